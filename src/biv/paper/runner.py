"""Train the runs that a store lacks: pack them into stacks for workers, and store the results."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, NamedTuple

import torch

from biv._utils.progress import progress_bar
from biv.paper.results import Failure, RunResult
from biv.paper.spec import Run
from biv.paper.stacks import Outcome, StackFailure, member_steps
from biv.paper.store import Store
from biv.paper.timing import rows_forward
from biv.paper.workers.base import Workers
from biv.paper.workers.processes import Processes

LARGEST_STACK = 40


def pack(runs: Sequence[Run], jobs: int) -> list[list[Run]]:
    """Divide runs into stacks, each of runs of one shape, of nearly equal size, for all processes.

    Runs with the same seed are neighbours, because they share their rows. The result of a member
    does not depend on its stack, so results do not depend on how the runs were packed.
    """
    shapes: dict[tuple[Any, ...], list[Run]] = {}
    for run in sorted(dict.fromkeys(runs), key=lambda run: (run.seed, run.canonical())):
        shapes.setdefault(run.shape(), []).append(run)
    stacks: list[list[Run]] = []
    for same_shape in shapes.values():
        if same_shape[0].pixels is not None:
            stacks += [[run] for run in same_shape]
            continue
        count = -(-len(same_shape) // LARGEST_STACK)
        count = min(-(-count // jobs) * jobs, max(len(same_shape) // 4, 1)) if jobs > 1 else count
        edges = [len(same_shape) * k // count for k in range(count + 1)]
        stacks += [same_shape[a:b] for a, b in pairwise(edges)]
    # The longest stacks come first, so that all processes finish at about the same time.
    return sorted(stacks, key=rows_forward, reverse=True)


def default_jobs(runs: Sequence[Run]) -> int:
    """Return the number of cores, or 1 where several processes would share a GPU."""
    on_gpu = torch.cuda.is_available() and any(run.pixels for run in runs)
    return 1 if on_gpu else os.cpu_count() or 1


class TrainingSummary(NamedTuple):
    """Result of :func:`complete`.

    Attributes
    ----------
    stored : int
        Number of runs that were already stored.
    trained : int
        Number of runs that were trained now.
    failed : list of Failure
        Runs that could not be trained, with their errors.
    """

    stored: int
    trained: int
    failed: list[Failure]


def complete(
    runs: Sequence[Run],
    store: Store,
    *,
    jobs: int | None = None,
    workers: Workers | None = None,
    progress: bool = True,
    log: Callable[[str], object] = lambda _: None,
) -> TrainingSummary:
    """Train the runs that a store lacks, and store their results.

    Parameters
    ----------
    runs : sequence of Run
        Runs in any order; duplicates are trained once.
    store : Store
        Store that every stack is written to when it is finished, by this process alone.
    jobs : int, optional
        Number of processes on this machine. The default is the number of cores.
    workers : Workers, optional
        Workers to use instead of processes on this machine. They are closed at the end.
    progress : bool, default=True
        Whether to show a progress bar over all runs, on a terminal.
    log : callable, optional
        Called with one line per finished stack, and with the traceback of a stack that raised.

    Returns
    -------
    TrainingSummary
        Numbers of runs that were stored and trained, and the runs that failed.

    Raises
    ------
    ValueError
        The data are missing or too few, or the store cannot be written to.
    RuntimeError
        A worker process was killed. Results that were finished before are stored.
    """
    requested = list(dict.fromkeys(runs))
    missing = store.missing(requested)
    if not missing:
        return TrainingSummary(len(requested), 0, [])
    store.add([])  # fail before the training, not after it, if the store cannot be written to
    failed: list[Failure] = []
    total = member_steps(missing)
    with (
        closing(workers or Processes(jobs or default_jobs(missing))) as pool,
        progress_bar(total, count_text(len(missing)), enabled=progress) as bar,
    ):
        pool.require_rows(missing)

        def on_progress(steps: int) -> None:
            # Steps of a second attempt would exceed the total.
            bar.update(min(steps, total) - bar.n)

        for line, outcomes in _finished(pack(missing, pool.count), pool, on_progress):
            store.add(outcomes)
            failed += [outcome for outcome in outcomes if isinstance(outcome, Failure)]
            bar.clear()
            log(line)
    return TrainingSummary(len(requested) - len(missing), len(missing) - len(failed), failed)


def _finished(
    stacks: Sequence[Sequence[Run]], workers: Workers, on_progress: Callable[[int], object]
) -> Iterator[tuple[str, Sequence[Outcome]]]:
    """Yield a log line and the outcomes of every stack, in the order in which they finish.

    The runs of a stack that raises are tried once more, one by one, so that a bad run fails alone.
    """
    retried: set[Run] = set()
    total = len(stacks)
    for stack in stacks:
        workers.submit(stack)
    for number, (stack, report) in enumerate(workers.finished(on_progress), start=1):
        outcomes: Sequence[Outcome] = []
        if not isinstance(report, StackFailure):
            outcomes, message = report, _summary_text(stack, report)
        elif report.retry and retried.isdisjoint(stack):
            retried.update(stack)
            total += len(stack)
            for run in stack:
                workers.submit([run])
            message = f"{_stack_text(stack)} failed and will be retried{_error_text(report)}"
        else:
            outcomes = [_run_failure(run, report) for run in stack]
            message = f"{_summary_text(stack, outcomes)}{_error_text(report)}"
        yield f"stack {number} of {total}: {message}", outcomes


def _run_failure(run: Run, failure: StackFailure) -> Failure:
    return Failure(run, failure.error, failure.provenance | {"traceback": failure.traceback})


def _error_text(failure: StackFailure) -> str:
    return f" ({failure.worker}):\n{failure.traceback or failure.error}".rstrip()


def count_text(count: int) -> str:
    """Return a number of runs as text, such as "1 run"."""
    return "1 run" if count == 1 else f"{count} runs"


def _stack_text(stack: Sequence[Run]) -> str:
    return f"{count_text(len(stack))} of {stack[0].dataset}"


def _summary_text(stack: Sequence[Run], outcomes: Sequence[Outcome]) -> str:
    results = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
    parts = [_stack_text(stack)]
    if results:
        parts.append(f"{results[0].provenance['stack_seconds']:.0f} s")
    if diverged := sum(result.diverged for result in results):
        parts.append(f"{diverged} diverged")
    if len(results) < len(stack):
        parts.append(f"{len(stack) - len(results)} failed")
    return ", ".join(parts)
