"""Workers of a Ray cluster, which may be started on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from biv.paper.spec import Run
from biv.paper.stacks import Report, StackFailure, member_steps, provenance
from biv.paper.workers import clusters

POLL_INTERVAL = 0.2  # seconds; Ray reacts to Ctrl-C only between two polls
RETRIES = 3  # number of times that a stack whose worker died is retried


class RayWorkers:
    """One process per CPU of a Ray cluster; a stack whose worker dies is given to another one."""

    def __init__(self, cluster: clusters.Address) -> None:
        self._cluster = cluster
        self._initialized_here = not ray.is_initialized()
        self._waiting: dict[Any, Sequence[Run]] = {}
        if self._initialized_here:
            self._join()
        try:
            self.count = self._wait_for_cpus()
            clusters.require_versions(self._on_every_node(clusters.versions))
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        address = self._cluster.host_and_port or os.environ.get("RAY_ADDRESS")
        if address and ":" in address and "//" not in address:
            clusters.require_listening(self._cluster, address)
        try:
            ray.init(
                self._cluster.host_and_port,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise ConnectionError(f"{self._cluster} cannot be used: {error}") from error

    def _wait_for_cpus(self) -> int:
        deadline = time.monotonic() + clusters.CONNECT_TIMEOUT
        while (count := int(ray.cluster_resources().get("CPU", 0))) == 0:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"{self._cluster} has no CPUs after {clusters.CONNECT_TIMEOUT:.0f} s. Start a "
                    "node that has some with `ray start`"
                )
            time.sleep(POLL_INTERVAL)
        return count

    def _on_every_node(self, function: Callable[..., Any], *arguments: object) -> dict[str, Any]:
        """Return the result, or the exception, of a function on each node that has CPUs."""
        tasks = {}
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = ray.remote(function).options(num_cpus=0, scheduling_strategy=on_node)
                tasks[f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})"] = task
        references = {name: task.remote(*arguments) for name, task in tasks.items()}
        return {name: _result_or_error(reference) for name, reference in references.items()}

    def require_rows(self, runs: Sequence[Run]) -> str | None:
        """Check that every node has the data. Return a note on skipped files, if any."""
        return clusters.require_data(self._on_every_node(clusters.data, list(runs)))

    def submit(self, runs: Sequence[Run]) -> None:
        """Queue a stack for training; networks for images request a GPU if the cluster has any."""
        gpus = 1 if runs[0].pixels and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        task = ray.remote(clusters.work).options(
            num_cpus=1, num_gpus=gpus, max_retries=RETRIES, name=f"{len(runs)} runs"
        )
        self._waiting[task.remote(list(runs), clusters.versions())] = runs

    def finished(
        self, on_progress: Callable[[int], object]
    ) -> Iterator[tuple[Sequence[Run], Report]]:
        """Yield every stack with its report, in the order in which they finish."""
        steps = 0
        while self._waiting:
            done, _ = ray.wait(list(self._waiting), timeout=POLL_INTERVAL)
            for reference in done:
                report = self._report(reference)
                runs = self._waiting.pop(reference)
                if not isinstance(report, StackFailure):
                    steps += member_steps(runs)
                    on_progress(steps)
                yield runs, report

    def _report(self, reference: Any) -> Report:
        try:
            report: Report = ray.get(reference)
            return report
        except ray.exceptions.RayTaskError as error:  # raised on the worker before the training
            if isinstance(error.cause, clusters.OtherVersionError):
                raise error.cause from None
            return self._failure(f"{type(error.cause).__name__}: {error.cause}", error, retry=True)
        except ray.exceptions.RayError as error:
            message = f"{type(error).__name__}: every worker that trained this stack died"
            return self._failure(message, error, retry=False)

    def _failure(self, message: str, error: Exception, retry: bool) -> StackFailure:
        origin = provenance(time.monotonic())
        return StackFailure(message, str(error), str(self._cluster), origin, retry)

    def close(self) -> None:
        """Cancel queued and running stacks, and shut Ray down if it was initialized here."""
        if not ray.is_initialized():
            return
        for reference in self._waiting:
            ray.cancel(reference, force=True)
        self._waiting.clear()
        if self._initialized_here:
            ray.shutdown()


def _result_or_error(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        return error.cause
    except ray.exceptions.RayError as error:
        return error
