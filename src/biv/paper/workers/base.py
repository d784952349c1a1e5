"""The interface of local processes and clusters that train stacks for a runner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from biv.paper.spec import Run
from biv.paper.stacks import Report


class Workers(Protocol):
    """Processes that train stacks for one runner; each process trains one stack at a time.

    Workers return results and write nothing. The store has a single writer, the process of the
    runner.
    """

    @property
    def count(self) -> int:
        """Number of processes."""

    def require_rows(self, runs: Sequence[Run]) -> str | None:
        """Check that the data of these runs exist where they will be trained.

        Returns
        -------
        str or None
            A message about the data for the user, if there is one.

        Raises
        ------
        ValueError
            The data have too few rows.
        FileNotFoundError
            The data do not exist.
        """

    def submit(self, runs: Sequence[Run]) -> None:
        """Queue a stack for training."""

    def finished(
        self, on_progress: Callable[[int], object]
    ) -> Iterator[tuple[Sequence[Run], Report]]:
        """Yield every stack with its report, in the order in which they finish.

        Stacks that are submitted in the meantime are included.

        Parameters
        ----------
        on_progress : callable
            Called from time to time with the number of training steps so far.

        Raises
        ------
        RuntimeError
            The remaining stacks cannot be trained.
        """

    def close(self) -> None:
        """Cancel unfinished stacks and release the processes. A second call has no effect."""
