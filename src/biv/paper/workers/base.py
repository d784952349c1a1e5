"""What a runner asks of those that train: the one interface of local processes and clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from biv.paper.spec import Run
from biv.paper.stacks import Report


class Workers(Protocol):
    """Processes that train stacks, one at a time each, for one plan.

    They return what they have trained, and write nothing: the store has one writer, the process
    that asked.
    """

    @property
    def count(self) -> int:
        """How many processes there are."""

    def require_rows(self, runs: Sequence[Run]) -> str | None:
        """See that the data of these runs are where they will be trained.

        Returns:
            What people should know about these data, if there is something.

        Raises:
            ValueError: They are too few.
            FileNotFoundError: They are not there.
        """

    def submit(self, runs: Sequence[Run]) -> None:
        """Have a stack trained."""

    def finished(self, moved: Callable[[int], object]) -> Iterator[tuple[Sequence[Run], Report]]:
        """Every stack with what became of it, as they are done, those submitted meanwhile too.

        Args:
            moved: Called with the number of updates made so far, every now and then.

        Raises:
            RuntimeError: No more will be done.
        """

    def close(self) -> None:
        """Drop what is not done and let go of the processes; once more does no harm."""
