"""Runs and a store: how many are stored, how long the others take, and their training.

What the paper's commands call; `runner` packs the runs into stacks and collects their results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from biv._utils.messages import format_duration
from biv.paper import runner, timing
from biv.paper.spec import Run
from biv.paper.store import Store
from biv.paper.workers import clusters
from biv.paper.workers.base import Workers
from biv.paper.workers.processes import Processes


class NothingStoredError(ValueError):
    """No run is stored, where only stored runs may be used."""


def open_stored(path: Path, runs: Sequence[Run]) -> tuple[Store, runner.Plan]:
    """Open a store to read these runs from it; nothing is trained.

    Args:
        path: Path of the store.
        runs: Runs in any order, repeated or not.

    Returns:
        The store, and the number of these runs that it has, with those that failed.

    Raises:
        NothingStoredError: There is no store, or it has none of the runs.
    """
    if not path.exists():
        raise NothingStoredError(f"{path} does not exist")
    wanted = set(runs)
    store = Store(path, read_only=True)
    stored = len(wanted) - len(store.missing(runs))
    if not stored:
        raise NothingStoredError(f"{path} has none of these {len(wanted)} runs")
    failed = [failure for failure in store.failures() if failure.run in wanted]
    return store, runner.Plan(stored, 0, failed)


def train_missing(
    path: Path,
    runs: Sequence[Run],
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    say: Callable[[str], object] = lambda _: None,
) -> tuple[Store, runner.Plan]:
    """Train the runs that a store lacks, and store them.

    Args:
        path: Path of the store, which is made if it does not exist.
        runs: Runs in any order, repeated or not.
        jobs: Number of processes of this machine; one per core by default.
        cluster: Address of a cluster that trains instead.
        say: Called with lines about the progress.

    Returns:
        The store, and how many runs were stored, were trained and have failed.
    """
    wanted, missing = set(runs), list(dict.fromkeys(runs))
    if path.exists():
        store = Store(path)  # to be written: whoever made the file may have been killed before
        missing = store.missing(runs)
        if not missing:
            say(f"0 runs trained, {len(wanted)} were stored already.")
            return store, runner.Plan(len(wanted), 0, [])
    with closing(workers_for(missing, jobs, cluster)) as workers:
        note = workers.require_rows(missing)  # missing data leave no empty store behind
        if cluster:
            where = f"in {workers.count} processes of {cluster}"
        else:
            duration = format_duration(_seconds(missing, workers.count))
            where = f"about {duration} in {workers.count} processes"
        stored = len(wanted) - len(missing)
        say(f"{len(missing)} runs to train, {stored} stored already: {where}.")
        if note:
            say(note)
        store = Store(path)
        plan = runner.complete(runs, store, workers=workers, say=say)
    say(f"{plan.trained} runs trained, {plan.stored} were stored already.")
    return store, plan


def workers_for(runs: Sequence[Run], jobs: int | None, cluster: str | None) -> Workers:
    """Return the workers of a cluster, or processes of this machine."""
    if cluster:
        return clusters.connect(clusters.address(cluster))
    return Processes(jobs or runner.default_jobs(runs))


def _seconds(runs: Sequence[Run], jobs: int) -> float:
    return timing.rows_forward(runs) * timing.seconds_per_row(runs[0]) / jobs


class Remaining(NamedTuple):
    """What is left to train of some runs.

    Attributes:
        runs: Number of runs.
        stored: Number of runs that are stored.
        jobs: Number of processes that the others are counted for.
        seconds: Estimated duration of the training of the others.
    """

    runs: int
    stored: int
    jobs: int
    seconds: float


def remaining(
    path: Path, groups: Iterable[Sequence[Run]], *, jobs: int | None = None
) -> Iterator[Remaining]:
    """Estimate for each group of runs, by itself, what is left to train. Nothing is written."""
    store = Store(path, read_only=True) if path.exists() else None
    pace = None
    for runs in groups:
        if pace is None:  # measured once, on runs of the first kind
            jobs = jobs or runner.default_jobs(runs)
            pace = timing.seconds_per_row(runs[0])
        missing = store.missing(runs) if store else runs
        seconds = timing.rows_forward(missing) * pace / (jobs or 1)
        yield Remaining(len(runs), len(runs) - len(missing), jobs or 1, seconds)
