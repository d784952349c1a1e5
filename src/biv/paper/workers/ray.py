"""Workers of a Ray cluster, or of one that is started on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from biv.paper.spec import Run
from biv.paper.stacks import Report, Trouble, member_steps, provenance
from biv.paper.workers import clusters

POLL = 0.2  # seconds between two moments at which Ctrl-C is heard
RETRIES = 3  # of a stack whose worker died


class RayWorkers:
    """As many processes as Ray has processors; a stack whose worker dies is given to another."""

    def __init__(self, where: clusters.Address) -> None:
        self._where = where
        self._ours = not ray.is_initialized()
        self._waiting: dict[Any, Sequence[Run]] = {}
        if self._ours:
            self._join()
        try:
            self.count = self._processors()
            clusters.require_versions(self._on_every_node(clusters.versions))
        except BaseException:
            self.close()
            raise

    def _join(self) -> None:
        place = self._where.place or os.environ.get("RAY_ADDRESS")
        if place and ":" in place and "//" not in place:
            clusters.require_listening(self._where, place)
        try:
            ray.init(
                self._where.place,
                include_dashboard=False,
                log_to_driver=False,
                logging_level="ERROR",
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise ConnectionError(f"{self._where} cannot be used: {error}") from error

    def _processors(self) -> int:
        deadline = time.monotonic() + clusters.PATIENCE
        while (count := int(ray.cluster_resources().get("CPU", 0))) == 0:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"{self._where} has no processors after {clusters.PATIENCE:.0f} s: start a "
                    "node that has some, with `ray start`"
                )
            time.sleep(POLL)
        return count

    def _on_every_node(self, function: Callable[..., Any], *arguments: object) -> dict[str, Any]:
        """What a function returns, or raises, on each node that has processors."""
        asked = {}
        for node in ray.nodes():
            if node["Alive"] and node["Resources"].get("CPU"):
                there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
                task = ray.remote(function).options(num_cpus=0, scheduling_strategy=there)
                asked[f"{node['NodeManagerHostname']} ({node['NodeID'][:8]})"] = task
        found = {name: task.remote(*arguments) for name, task in asked.items()}
        return {name: _result_or_error(reference) for name, reference in found.items()}

    def require_rows(self, runs: Sequence[Run]) -> str | None:
        """See that the data are on every node."""
        return clusters.require_data(self._on_every_node(clusters.data, list(runs)))

    def submit(self, runs: Sequence[Run]) -> None:
        """Have a stack trained; a network for images with a GPU, if there are any."""
        gpus = 1 if runs[0].pixels and ray.cluster_resources().get("GPU", 0) >= 1 else 0
        task = ray.remote(clusters.work).options(
            num_cpus=1, num_gpus=gpus, max_retries=RETRIES, name=f"{len(runs)} runs"
        )
        self._waiting[task.remote(list(runs), clusters.versions())] = runs

    def finished(self, moved: Callable[[int], object]) -> Iterator[tuple[Sequence[Run], Report]]:
        """Every stack with what became of it, as they are done."""
        steps = 0
        while self._waiting:
            done, _ = ray.wait(list(self._waiting), timeout=POLL)
            for reference in done:
                report = self._report(reference)
                runs = self._waiting.pop(reference)
                if not isinstance(report, Trouble):
                    steps += member_steps(runs)
                    moved(steps)
                yield runs, report

    def _report(self, reference: Any) -> Report:
        try:
            report: Report = ray.get(reference)
            return report
        except ray.exceptions.RayTaskError as error:  # raised there, before the training began
            if isinstance(error.cause, clusters.OtherVersionError):
                raise error.cause from None
            return self._trouble(f"{type(error.cause).__name__}: {error.cause}", error, again=True)
        except ray.exceptions.RayError as error:
            told = f"{type(error).__name__}: those that were given this stack are gone"
            return self._trouble(told, error, again=False)

    def _trouble(self, told: str, error: Exception, again: bool) -> Trouble:
        return Trouble(told, str(error), str(self._where), provenance(time.monotonic()), again)

    def close(self) -> None:
        """End what is queued or running, and leave Ray as it was found."""
        if not ray.is_initialized():
            return
        for reference in self._waiting:
            ray.cancel(reference, force=True)
        self._waiting.clear()
        if self._ours:
            ray.shutdown()


def _result_or_error(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        return error.cause
    except ray.exceptions.RayError as error:
        return error
