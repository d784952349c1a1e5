"""Train the runs that a store lacks, or estimate how long their training would take.

The paper's commands call this module. `runner` packs the runs into stacks and collects results.
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
    """Only stored runs may be used, and none of them is stored."""


def open_stored(path: Path, runs: Sequence[Run]) -> tuple[Store, runner.TrainingSummary]:
    """Open a store to read these runs from it. Nothing is trained.

    Parameters
    ----------
    path : Path
        Path of the store.
    runs : sequence of Run
        Runs in any order; duplicates are ignored.

    Returns
    -------
    store : Store
        The store, opened for reading.
    summary : TrainingSummary
        Number of runs that are stored, and the runs that failed.

    Raises
    ------
    NothingStoredError
        The store does not exist, or has none of the runs.
    """
    if not path.exists():
        raise NothingStoredError(f"{path} does not exist")
    requested = set(runs)
    store = Store(path, read_only=True)
    stored = len(requested) - len(store.missing(runs))
    if not stored:
        raise NothingStoredError(
            f"{path} has none of the {runner.count_text(len(requested))} requested"
        )
    failed = [failure for failure in store.failures() if failure.run in requested]
    return store, runner.TrainingSummary(stored, 0, failed)


def train_missing(
    path: Path,
    runs: Sequence[Run],
    *,
    jobs: int | None = None,
    cluster: str | None = None,
    log: Callable[[str], object] = lambda _: None,
) -> tuple[Store, runner.TrainingSummary]:
    """Train the runs that a store lacks, and store their results.

    Parameters
    ----------
    path : Path
        Path of the store, which is created if it does not exist.
    runs : sequence of Run
        Runs in any order; duplicates are trained once.
    jobs : int, optional
        Number of processes on this machine. The default is one per core.
    cluster : str, optional
        Address of a cluster to use instead of this machine.
    log : callable, optional
        Called with one line at a time about the progress.

    Returns
    -------
    store : Store
        The store.
    summary : TrainingSummary
        Numbers of runs that were stored and trained, and the runs that failed.
    """
    requested, missing = set(runs), list(dict.fromkeys(runs))
    if path.exists():
        # Not read-only: a process that was killed may have left an empty file.
        store = Store(path)
        missing = store.missing(runs)
        if not missing:
            log(f"Trained 0 runs; {len(requested)} already stored.")
            return store, runner.TrainingSummary(len(requested), 0, [])
    with closing(workers_for(missing, jobs, cluster)) as workers:
        note = workers.require_rows(missing)  # before the store is created: no data, no empty store
        count = f"in {workers.count} process{'es' if workers.count > 1 else ''}"
        if cluster:
            processes = f"{count} of {cluster}"
        else:
            duration = format_duration(_seconds(missing, workers.count))
            processes = f"about {duration} {count}"
        stored = len(requested) - len(missing)
        log(f"{runner.count_text(len(missing))} to train, {stored} already stored: {processes}.")
        if note:
            log(note)
        store = Store(path)
        summary = runner.complete(runs, store, workers=workers, log=log)
    log(f"Trained {runner.count_text(summary.trained)}; {summary.stored} already stored.")
    return store, summary


def workers_for(runs: Sequence[Run], jobs: int | None, cluster: str | None) -> Workers:
    """Return the workers of a cluster, or processes on this machine."""
    if cluster:
        return clusters.connect(clusters.address(cluster))
    return Processes(jobs or runner.default_jobs(runs))


def _seconds(runs: Sequence[Run], jobs: int) -> float:
    return timing.rows_forward(runs) * timing.seconds_per_row(runs[0]) / jobs


class Remaining(NamedTuple):
    """Remaining training of a group of runs.

    Attributes
    ----------
    runs : int
        Number of runs.
    stored : int
        Number of runs that are stored.
    jobs : int
        Number of processes that the estimate assumes.
    seconds : float
        Estimated duration of the training of the other runs, in seconds.
    """

    runs: int
    stored: int
    jobs: int
    seconds: float


def remaining(
    path: Path, groups: Iterable[Sequence[Run]], *, jobs: int | None = None
) -> Iterator[Remaining]:
    """Estimate the remaining training of each group of runs separately. Nothing is written."""
    store = Store(path, read_only=True) if path.exists() else None
    row_seconds = None
    for runs in groups:
        if row_seconds is None:  # measured once, on runs of the first group
            jobs = jobs or runner.default_jobs(runs)
            row_seconds = timing.seconds_per_row(runs[0])
        missing = store.missing(runs) if store else runs
        seconds = timing.rows_forward(missing) * row_seconds / (jobs or 1)
        yield Remaining(len(runs), len(runs) - len(missing), jobs or 1, seconds)
