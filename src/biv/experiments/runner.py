"""Runs that are missing from a store, packed into stacks and sent to processes, one a core."""

from __future__ import annotations

import multiprocessing
import os
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import lru_cache
from importlib import metadata
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from biv._progress import progress_bar
from biv.experiments import protocol
from biv.experiments.spec import Run
from biv.experiments.store import Failure, Result, Store
from biv.models import ResNet18
from biv.training import Compute, History, Member, Schedule, Stack, Triplets
from biv.training.loop import Loop
from biv.training.machine import steady_machine

LARGEST_STACK = 40
POLL = 0.2  # seconds between two looks at the workers' progress

Outcome = Result | Failure


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


def require_rows(runs: Sequence[Run]) -> None:
    """A data set that is not on hand, or too small for any of these runs, is an error here, once.

    Raises:
        ValueError: It is too small.
        FileNotFoundError: It is not there.
    """
    for dataset, pixels in {(run.dataset, run.pixels) for run in runs}:
        rows = len(protocol.source(dataset, pixels).data)
        needed = min(r.train_rows + r.test_rows for r in runs if r.dataset == dataset)
        if needed > rows:
            raise ValueError(
                f"{dataset} has {rows:,} rows here, and these runs need {needed:,}: choose a "
                "smaller preset"
            )


def default_jobs(runs: Sequence[Run]) -> int:
    """As many processes as there are cores; one, where they would share a GPU."""
    on_gpu = torch.cuda.is_available() and any(run.pixels for run in runs)
    return 1 if on_gpu else os.cpu_count() or 1


def rows_forward(runs: Sequence[Run]) -> float:
    """The arithmetic of runs: rows passed forward, a row that is learned from counting as three."""
    total = 0.0
    for run in runs:
        steps = run.epochs * (run.train_rows // run.batch_size)
        total += steps * (3.0 * run.batch_size + run.test_rows / run.test_every)
    return total


def seconds_an_image(pixels: int, count: int = 16) -> float:
    """What an image passed forward costs here, a step of training counting as three."""
    images = torch.zeros(count, 3, pixels, pixels, dtype=torch.uint8)
    member = Member(Triplets(images, torch.zeros(count), torch.ones(count)))
    module = ResNet18()(member.generators()[0])
    loop = Loop(module, member, Schedule(epochs=2, batch_size=count), Compute(device=None))
    with steady_machine(1):
        loop.run_epoch()  # the library is warm
        start = time.perf_counter()
        loop.run_epoch()
    return (time.perf_counter() - start) / (3 * count)


def member_steps(runs: Sequence[Run]) -> int:
    """How many updates these runs make, all in all."""
    return sum(run.epochs * (run.train_rows // run.batch_size) for run in runs)


def train(
    runs: Sequence[Run], after_steps: Callable[[int], object] = lambda _: None
) -> list[Outcome]:
    """Train runs of one shape in a stack; those that cannot be trained come back as failures.

    Args:
        runs: Of one shape.
        after_steps: Called with the number of updates made since the last call.
    """
    outcomes: list[Outcome] = []
    members, good = [], []
    make = protocol.MemberFactory()
    start = time.monotonic()
    for run in runs:
        try:
            members.append(make(run))
            good.append(run)
        except ValueError as error:
            outcomes.append(Failure(run, f"{type(error).__name__}: {error}", provenance(start)))
            after_steps(member_steps([run]))
    if not good:
        return outcomes
    histories = (_one_by_one if good[0].pixels else _stacked)(good, members, after_steps)
    for run, history in zip(good, histories, strict=True):
        outcomes.append(Result.of(run, history, provenance(start) | _device(run)))
    return outcomes


def _device(run: Run) -> dict[str, str]:
    """Of a network for images, which are the ones that a GPU is used for."""
    if run.pixels is None:
        return {}
    return {"device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"}


def _stacked(
    runs: Sequence[Run], members: Sequence[Member], after_steps: Callable[[int], object]
) -> Sequence[History]:
    stack = Stack(protocol.network(runs[0]), members, protocol.schedule(runs[0]))
    while stack.epoch < runs[0].epochs and not stack.all_frozen:
        stack.run_epoch(lambda: after_steps(len(runs)))
    return stack.histories()


def _one_by_one(
    runs: Sequence[Run], members: Sequence[Member], after_steps: Callable[[int], object]
) -> Iterator[History]:
    """Networks for images; on a GPU, if there is one."""
    for run, member in zip(runs, members, strict=True):
        module = protocol.network(run)(member.generators()[0])
        loop = Loop(module, member, protocol.schedule(run), Compute(device=None))
        with steady_machine(torch.get_num_threads()):
            while loop.epoch < run.epochs and not loop.all_frozen:
                loop.run_epoch(lambda: after_steps(1))
        yield loop.history()


def provenance(start: float) -> dict[str, Any]:
    """Where and when this is computed, and how long it has taken."""
    return {
        "biv": metadata.version("biv"),
        "commit": _commit(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "stack_seconds": round(time.monotonic() - start, 1),
    }


@lru_cache(maxsize=1)
def _commit() -> str | None:
    """Of the sources, where they are a checkout that git knows; "-dirty" if they were changed."""
    here = Path(__file__)
    try:
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


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
    progress: bool = True,
    say: Callable[[str], object] = lambda _: None,
) -> Plan:
    """Train what a store does not have of these runs, and put it there.

    Args:
        runs: Any, in any order, repeated or not.
        store: Every stack is written when it is done, by this process alone.
        jobs: Processes; as many as there are cores by default.
        progress: Whether to show one bar over the whole plan, on a terminal.
        say: Called with a line for every finished stack.

    Raises:
        ValueError: A data set is not on hand, or the store cannot be written to.
        RuntimeError: A process was ended from outside; what was done before is stored.
    """
    wanted = list(dict.fromkeys(runs))
    missing = store.missing(wanted)
    if not missing:
        return Plan(len(wanted), 0, [])
    store.add([])  # a store that cannot be written to is an error here, not after the training
    require_rows(missing)
    workers = jobs or default_jobs(missing)
    stacks = pack(missing, workers)
    failed: list[Failure] = []
    with progress_bar(member_steps(missing), f"{len(missing)} runs", enabled=progress) as bar:
        for number, (stack, outcomes) in enumerate(_outcomes(stacks, workers, bar), start=1):
            store.add(outcomes)
            failed += [outcome for outcome in outcomes if isinstance(outcome, Failure)]
            bar.clear()
            say(f"stack {number} of {len(stacks)}: {_described(stack, outcomes)}")
    return Plan(len(wanted) - len(missing), len(missing) - len(failed), failed)


def _described(stack: Sequence[Run], outcomes: Sequence[Outcome]) -> str:
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    words = [f"{len(stack)} runs of {stack[0].dataset}"]
    if results:
        words.append(f"{results[0].provenance['stack_seconds']:.0f} s")
    if diverged := sum(result.diverged for result in results):
        words.append(f"{diverged} diverged")
    if len(results) < len(stack):
        words.append(f"{len(stack) - len(results)} failed")
    return ", ".join(words)


def _outcomes(
    stacks: Sequence[Sequence[Run]], workers: int, bar: tqdm[Any]
) -> Iterator[tuple[Sequence[Run], list[Outcome]]]:
    """Every stack with its outcomes, as they are done."""
    context = multiprocessing.get_context("spawn")
    steps, stop = context.Value("q", 0), context.Event()
    pool = ProcessPoolExecutor(
        min(workers, len(stacks)), context, initializer=_begin, initargs=(steps, stop, os.getpid())
    )
    with pool:
        with _deaf():
            waiting: dict[Future[list[Outcome]], Sequence[Run]] = {
                pool.submit(_work_on, stack): stack for stack in stacks
            }
        try:
            while waiting:
                done, _ = wait(waiting, timeout=POLL, return_when=FIRST_COMPLETED)
                bar.update(steps.value - bar.n)
                for future in done:
                    yield waiting.pop(future), future.result()
        except BrokenProcessPool as error:
            raise RuntimeError(
                "a worker process was ended from outside, by a lack of memory perhaps; what was "
                "done before is stored: start again to go on"
            ) from error
        finally:
            stop.set()  # when all is done, or when interrupted: within a step
            pool.shutdown(cancel_futures=True)


@contextmanager
def _deaf() -> Iterator[None]:
    """What is started meanwhile does not hear Ctrl-C, from its first moment on: it is for us."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# Of this worker process: the counter that all share, and the event that ends them all.
_steps: Any = None
_stop: Any = None


def _begin(steps: Any, stop: Any, parent: int) -> None:
    """Set up a worker: one thread, and an end when its parent says so or is no more."""
    global _steps, _stop
    _steps, _stop = steps, stop
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it is not inherited, as from a thread
    torch.set_num_threads(1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _work_on(runs: Sequence[Run]) -> list[Outcome]:
    """Train a stack; should it fail as a whole, its runs one by one, so that one fails alone."""
    try:
        return train(runs, _count)
    except Exception as error:
        if len(runs) == 1:
            told = f"{type(error).__name__}: {error}"
            return [Failure(runs[0], told, provenance(time.monotonic()))]
        return [outcome for run in runs for outcome in _work_on([run])]


def _count(steps: int) -> None:
    if _stop.is_set():
        os._exit(1)
    with _steps.get_lock():
        _steps.value += steps
