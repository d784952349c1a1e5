"""A stack of runs, trained in this process: what every worker does, wherever it is."""

from __future__ import annotations

import os
import platform
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from biv.paper import protocol
from biv.paper.results import Failure, RunResult
from biv.paper.spec import Run
from biv.training import Compute, History, Member, Stack
from biv.training.loop import Loop
from biv.training.numerics import numerical_settings

Outcome = RunResult | Failure


class Trouble(NamedTuple):
    """Why a stack came to nothing.

    Attributes:
        error: In one line.
        traceback: The worker's, where there is one.
        worker: Which one.
        provenance: What is known of it.
        again: Whether to try its runs once more; not those that have ended workers already.
    """

    error: str
    traceback: str
    worker: str
    provenance: dict[str, Any]
    again: bool = True


Report = list[Outcome] | Trouble


def attempt(runs: Sequence[Run], after_steps: Callable[[int], object] = lambda _: None) -> Report:
    """Train a stack; what is raised comes back as trouble, since not every error can be sent."""
    start = time.monotonic()
    try:
        return train(runs, after_steps)
    except Exception as error:
        told = f"{type(error).__name__}: {error}"
        where = f"{platform.node()}, process {os.getpid()}"
        return Trouble(told, traceback.format_exc(), where, provenance(start))


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
        outcomes.append(RunResult.of(run, history, provenance(start) | _device(run)))
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
        with numerical_settings(torch.get_num_threads()):
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
