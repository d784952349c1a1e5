"""Workers of a Dask cluster."""

from __future__ import annotations

import threading
import time
import traceback
from asyncio import CancelledError as AsyncCancelledError
from asyncio import TimeoutError as AsyncTimeoutError
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

import distributed

from biv.paper.spec import Run
from biv.paper.stacks import Report, Trouble, member_steps, provenance
from biv.paper.workers import clusters


class DaskWorkers:
    """The processes that a scheduler of Dask has when it is asked.

    A worker that dies costs the stack that it was at, which the scheduler gives to another; it
    gives up a stack that several have died of (its `allowed-failures`).
    """

    def __init__(self, where: clusters.Address) -> None:
        self._where = where
        place = str(where.place)
        clusters.require_listening(where, place)
        try:
            self._client = _client(f"tcp://{place}")
        except OSError as error:
            raise ConnectionError(
                f"what answers at {where} is no scheduler of Dask, or a busy one: {error}"
            ) from error
        self._waiting: dict[Any, Sequence[Run]] = {}
        self._done = distributed.as_completed(loop=self._client.loop, raise_errors=False)
        try:
            self.count = self._workers()
            clusters.require_versions(self._client.run(clusters.versions, on_error="return"))
        except BaseException:
            self.close()
            raise

    def _workers(self) -> int:
        try:
            self._client.wait_for_workers(1, timeout=clusters.PATIENCE)
        except (TimeoutError, AsyncTimeoutError) as error:
            raise ValueError(
                f"{self._where} has no workers after {clusters.PATIENCE:.0f} s: start some, with "
                f"`dask worker {self._where.place} --nthreads 1`"
            ) from error
        return len(self._client.nthreads())

    def require_rows(self, runs: Sequence[Run]) -> str | None:
        """See that the data are on every worker."""
        found = self._client.run(clusters.data_meanwhile, list(runs), on_error="return")
        notes = [clusters.require_data(found), self._idle_threads()]
        return "\n".join(note for note in notes if note) or None

    def _idle_threads(self) -> str | None:
        threads = sum(self._client.nthreads().values())
        if threads <= self.count:
            return None
        return (
            f"{self._where} has {threads} threads in {self.count} workers, and a worker trains one "
            "stack at a time: start workers with --nthreads 1 to use all cores."
        )

    def submit(self, runs: Sequence[Run]) -> None:
        """Have a stack trained."""
        future = self._client.submit(clusters.work, list(runs), clusters.versions(), pure=False)
        self._waiting[future] = runs
        self._done.add(future)

    def finished(self, moved: Callable[[int], object]) -> Iterator[tuple[Sequence[Run], Report]]:
        """Every stack with what became of it, as they are done."""
        steps = 0
        for future in self._done:
            report = self._report(future)
            runs = self._waiting.pop(future)
            if not isinstance(report, Trouble):
                steps += member_steps(runs)
                moved(steps)
            yield runs, report

    def _report(self, future: Any) -> Report:
        try:
            report: Report = future.result()
            return report
        except clusters.OtherVersionError:
            raise
        except distributed.KilledWorker as error:
            told = (
                f"KilledWorker: all that were given this stack died, the last {error.last_worker}"
            )
            return self._trouble(told, "", again=False)
        except (CancelledError, AsyncCancelledError) as error:
            raise RuntimeError(
                f"{self._where} is gone, or has dropped what it was given; what was done before is "
                "stored: start again to go on"
            ) from error
        except Exception as error:  # it was not even begun: a worker could not read it, say
            text = "".join(traceback.format_exception(error))
            return self._trouble(f"{type(error).__name__}: {error}", text, again=True)

    def _trouble(self, error: str, text: str, again: bool) -> Trouble:
        return Trouble(error, text, str(self._where), provenance(time.monotonic()), again)

    def close(self) -> None:
        """Cancel what is queued and disconnect; a stack that a worker has begun is in vain."""
        if self._client.status == "running":
            self._client.cancel(list(self._waiting), force=True)
        self._waiting.clear()
        self._client.close()


def _client(address: str) -> Any:
    """A client of a scheduler, in bounded time: Dask may wait for ever for a server of others."""
    made: Future[Any] = Future()

    def make() -> None:
        try:
            made.set_result(
                distributed.Client(address, timeout=clusters.PATIENCE, set_as_default=False)
            )
        except BaseException as error:
            made.set_exception(error)

    threading.Thread(target=make, daemon=True).start()
    try:
        return made.result(timeout=clusters.PATIENCE + 1)
    except FutureTimeoutError as error:
        raise TimeoutError("it does not speak as one does") from error
