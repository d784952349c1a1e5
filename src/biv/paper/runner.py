"""Runs that are missing from a store, packed into stacks, sent to workers and written down."""

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
from biv.paper.stacks import Outcome, Trouble, member_steps
from biv.paper.store import Store
from biv.paper.timing import rows_forward
from biv.paper.workers.base import Workers
from biv.paper.workers.processes import Processes

LARGEST_STACK = 40


def pack(runs: Sequence[Run], jobs: int) -> list[list[Run]]:
    """Runs of one shape in stacks of nearly equal size, as many as keep all processes busy.

    Those of a seed are next to each other, since they share their rows. A member's numbers do not
    depend on its stack, so neither do results depend on how they were packed.
    """
    shapes: dict[tuple[Any, ...], list[Run]] = {}
    for run in sorted(dict.fromkeys(runs), key=lambda run: (run.seed, run.canonical())):
        shapes.setdefault(run.shape(), []).append(run)
    stacks: list[list[Run]] = []
    for alike in shapes.values():
        if alike[0].pixels is not None:
            stacks += [[run] for run in alike]
            continue
        count = -(-len(alike) // LARGEST_STACK)
        count = min(-(-count // jobs) * jobs, max(len(alike) // 4, 1)) if jobs > 1 else count
        edges = [len(alike) * k // count for k in range(count + 1)]
        stacks += [alike[a:b] for a, b in pairwise(edges)]
    return sorted(
        stacks, key=rows_forward, reverse=True
    )  # the longest first, so that all end together


def default_jobs(runs: Sequence[Run]) -> int:
    """As many processes as there are cores; one, where they would share a GPU."""
    on_gpu = torch.cuda.is_available() and any(run.pixels for run in runs)
    return 1 if on_gpu else os.cpu_count() or 1


class Plan(NamedTuple):
    """What has become of a plan.

    Attributes:
        stored: Runs that were there already.
        trained: Runs that were trained now.
        failed: Runs that could not be, and why.
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
    say: Callable[[str], object] = lambda _: None,
) -> Plan:
    """Train what a store does not have of these runs, and put it there.

    Args:
        runs: Any, in any order, repeated or not.
        store: Every stack is written when it is done, by this process alone.
        jobs: Processes of this machine; as many as there are cores by default.
        workers: Others to train instead; they are closed at the end.
        progress: Whether to show one bar over the whole plan, on a terminal.
        say: Called with a line for every finished stack, and the traceback of one that raised.

    Raises:
        ValueError: A data set is not on hand, or the store cannot be written to.
        RuntimeError: A process was ended from outside; what was done before is stored.
    """
    wanted = list(dict.fromkeys(runs))
    missing = store.missing(wanted)
    if not missing:
        return Plan(len(wanted), 0, [])
    store.add([])  # a store that cannot be written to is an error here, not after the training
    failed: list[Failure] = []
    total = member_steps(missing)
    with (
        closing(workers or Processes(jobs or default_jobs(missing))) as at_work,
        progress_bar(total, f"{len(missing)} runs", enabled=progress) as bar,
    ):
        at_work.require_rows(missing)

        def moved(steps: int) -> None:  # steps of a second attempt do not count
            bar.update(min(steps, total) - bar.n)

        for line, outcomes in _finished(pack(missing, at_work.count), at_work, moved):
            store.add(outcomes)
            failed += [outcome for outcome in outcomes if isinstance(outcome, Failure)]
            bar.clear()
            say(line)
    return Plan(len(wanted) - len(missing), len(missing) - len(failed), failed)


def _finished(
    stacks: Sequence[Sequence[Run]], workers: Workers, moved: Callable[[int], object]
) -> Iterator[tuple[str, Sequence[Outcome]]]:
    """Every stack as it is done: a line about it, and what to store.

    One that raises is tried once more, its runs one by one, so that a bad one fails alone.
    """
    tried: set[Run] = set()
    total = len(stacks)
    for stack in stacks:
        workers.submit(stack)
    for number, (stack, report) in enumerate(workers.finished(moved), start=1):
        outcomes: Sequence[Outcome] = []
        if not isinstance(report, Trouble):
            outcomes, words = report, _described(stack, report)
        elif report.again and tried.isdisjoint(stack):
            tried.update(stack)
            total += len(stack)
            for run in stack:
                workers.submit([run])
            words = f"{_counted(stack)} failed and will be tried again{_told(report)}"
        else:
            outcomes = [_failure(run, report) for run in stack]
            words = f"{_described(stack, outcomes)}{_told(report)}"
        yield f"stack {number} of {total}: {words}", outcomes


def _failure(run: Run, trouble: Trouble) -> Failure:
    return Failure(run, trouble.error, trouble.provenance | {"traceback": trouble.traceback})


def _told(trouble: Trouble) -> str:
    return f" ({trouble.worker}):\n{trouble.traceback or trouble.error}".rstrip()


def _counted(stack: Sequence[Run]) -> str:
    return f"{len(stack)} run{'s' if len(stack) > 1 else ''} of {stack[0].dataset}"


def _described(stack: Sequence[Run], outcomes: Sequence[Outcome]) -> str:
    results = [outcome for outcome in outcomes if isinstance(outcome, RunResult)]
    words = [_counted(stack)]
    if results:
        words.append(f"{results[0].provenance['stack_seconds']:.0f} s")
    if diverged := sum(result.diverged for result in results):
        words.append(f"{diverged} diverged")
    if len(results) < len(stack):
        words.append(f"{len(stack) - len(results)} failed")
    return ", ".join(words)
