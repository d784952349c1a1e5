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
from biv.paper.stacks import Report, StackFailure, member_steps, provenance
from biv.paper.workers import clusters


class DaskWorkers:
    """Processes that a Dask scheduler has at the time of connecting.

    If a worker dies, the scheduler gives its stack to another one. It gives up a stack that has
    killed several workers (see its setting `allowed-failures`).
    """

    def __init__(self, cluster: clusters.Address) -> None:
        self._cluster = cluster
        host_and_port = str(cluster.host_and_port)
        clusters.require_listening(cluster, host_and_port)
        try:
            self._client = _client(f"tcp://{host_and_port}")
        except OSError as error:
            raise ConnectionError(
                f"the server at {cluster} is not a Dask scheduler, or is too busy: {error}"
            ) from error
        self._waiting: dict[Any, Sequence[Run]] = {}
        self._completed = distributed.as_completed(loop=self._client.loop, raise_errors=False)
        try:
            self.count = self._wait_for_workers()
            clusters.require_versions(self._client.run(clusters.versions, on_error="return"))
        except BaseException:
            self.close()
            raise

    def _wait_for_workers(self) -> int:
        try:
            self._client.wait_for_workers(1, timeout=clusters.CONNECT_TIMEOUT)
        except (TimeoutError, AsyncTimeoutError) as error:
            raise ValueError(
                f"{self._cluster} has no workers after {clusters.CONNECT_TIMEOUT:.0f} s. Start "
                f"some with `dask worker {self._cluster.host_and_port} --nthreads 1`"
            ) from error
        return len(self._client.nthreads())

    def require_rows(self, runs: Sequence[Run]) -> str | None:
        """Check that every worker has the data. Return a note for the user, if any."""
        by_worker = self._client.run(clusters.data_in_thread, list(runs), on_error="return")
        notes = [clusters.require_data(by_worker), self._idle_threads_note()]
        return "\n".join(note for note in notes if note) or None

    def _idle_threads_note(self) -> str | None:
        threads = sum(self._client.nthreads().values())
        if threads <= self.count:
            return None
        return (
            f"{self._cluster} has {threads} threads in {self.count} workers, but a worker trains "
            "one stack at a time. Start workers with --nthreads 1 to use all cores."
        )

    def submit(self, runs: Sequence[Run]) -> None:
        """Queue a stack for training."""
        future = self._client.submit(clusters.work, list(runs), clusters.versions(), pure=False)
        self._waiting[future] = runs
        self._completed.add(future)

    def finished(
        self, on_progress: Callable[[int], object]
    ) -> Iterator[tuple[Sequence[Run], Report]]:
        """Yield every stack with its report, in the order in which they finish."""
        steps = 0
        for future in self._completed:
            report = self._report(future)
            runs = self._waiting.pop(future)
            if not isinstance(report, StackFailure):
                steps += member_steps(runs)
                on_progress(steps)
            yield runs, report

    def _report(self, future: Any) -> Report:
        try:
            report: Report = future.result()
            return report
        except clusters.OtherVersionError:
            raise
        except distributed.KilledWorker as error:
            message = (
                f"KilledWorker: every worker that trained this stack died, last {error.last_worker}"
            )
            return self._failure(message, "", retry=False)
        except (CancelledError, AsyncCancelledError) as error:
            raise RuntimeError(
                f"the connection to {self._cluster} was lost, or it dropped its tasks. Finished "
                "runs are stored; run the same command again to resume"
            ) from error
        except (
            Exception
        ) as error:  # before the training, for example if a worker cannot unpickle it
            text = "".join(traceback.format_exception(error))
            return self._failure(f"{type(error).__name__}: {error}", text, retry=True)

    def _failure(self, error: str, text: str, retry: bool) -> StackFailure:
        return StackFailure(error, text, str(self._cluster), provenance(time.monotonic()), retry)

    def close(self) -> None:
        """Cancel queued stacks and disconnect; results of stacks in training are dropped."""
        if self._client.status == "running":
            self._client.cancel(list(self._waiting), force=True)
        self._waiting.clear()
        self._client.close()


def _client(address: str) -> Any:
    """Return a client of a scheduler, or raise in bounded time.

    Dask may wait forever if the server at the address is not a scheduler.
    """
    connected: Future[Any] = Future()

    def connect() -> None:
        try:
            connected.set_result(
                distributed.Client(address, timeout=clusters.CONNECT_TIMEOUT, set_as_default=False)
            )
        except BaseException as error:
            connected.set_exception(error)

    threading.Thread(target=connect, daemon=True).start()
    try:
        return connected.result(timeout=clusters.CONNECT_TIMEOUT + 1)
    except FutureTimeoutError as error:
        raise TimeoutError("it does not answer in Dask's protocol") from error
