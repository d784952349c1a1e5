"""Train a stack of runs in this process. Every worker, local or in a cluster, calls this module."""

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


class StackFailure(NamedTuple):
    """Error of a stack that could not be trained.

    Attributes
    ----------
    error : str
        The error in one line.
    traceback : str
        Traceback of the worker, or an empty string.
    worker : str
        Name of the worker.
    provenance : dict
        Versions, machine and time.
    retry : bool, default=True
        Whether to try the runs once more. Runs that have killed their workers are not retried.
    """

    error: str
    traceback: str
    worker: str
    provenance: dict[str, Any]
    retry: bool = True


Report = list[Outcome] | StackFailure


def attempt(runs: Sequence[Run], after_steps: Callable[[int], object] = lambda _: None) -> Report:
    """Train a stack, and return an error instead of raising it; not every error can be pickled."""
    start = time.monotonic()
    try:
        return train(runs, after_steps)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        worker = f"{platform.node()}, process {os.getpid()}"
        return StackFailure(message, traceback.format_exc(), worker, provenance(start))


def require_rows(runs: Sequence[Run]) -> None:
    """Check that the data sets of these runs exist and have enough rows for one of their runs.

    Raises
    ------
    ValueError
        A data set has too few rows.
    FileNotFoundError
        A data set does not exist.
    """
    for dataset, pixels in {(run.dataset, run.pixels) for run in runs}:
        rows = len(protocol.source(dataset, pixels).data)
        needed = min(r.train_rows + r.test_rows for r in runs if r.dataset == dataset)
        if needed > rows:
            raise ValueError(
                f"{dataset} must have at least {needed:,} rows for these runs; got {rows:,}. "
                "Choose a smaller preset"
            )


def member_steps(runs: Sequence[Run]) -> int:
    """Return the number of training steps of all these runs together."""
    return sum(run.epochs * (run.train_rows // run.batch_size) for run in runs)


def train(
    runs: Sequence[Run], after_steps: Callable[[int], object] = lambda _: None
) -> list[Outcome]:
    """Train runs of one shape in a stack; runs with invalid settings are returned as failures.

    Parameters
    ----------
    runs : sequence of Run
        Runs that have the same `shape()`.
    after_steps : callable, optional
        Called with the number of training steps since the last call.

    Returns
    -------
    list of RunResult or Failure
        One outcome per run; the failures come first.
    """
    outcomes: list[Outcome] = []
    members, valid = [], []
    make_member = protocol.MemberFactory()
    start = time.monotonic()
    for run in runs:
        try:
            members.append(make_member(run))
            valid.append(run)
        except ValueError as error:
            outcomes.append(Failure(run, f"{type(error).__name__}: {error}", provenance(start)))
            after_steps(member_steps([run]))
    if not valid:
        return outcomes
    histories = (_one_by_one if valid[0].pixels else _stacked)(valid, members, after_steps)
    for run, history in zip(valid, histories, strict=True):
        outcomes.append(RunResult.of(run, history, provenance(start) | _device(run)))
    return outcomes


def _device(run: Run) -> dict[str, str]:
    """Return the device of a network for images; others are always trained on the CPU."""
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
    """Train networks for images one after the other, on a GPU if there is one."""
    for run, member in zip(runs, members, strict=True):
        module = protocol.network(run)(member.generators()[0])
        loop = Loop(module, member, protocol.schedule(run), Compute(device=None))
        with numerical_settings(torch.get_num_threads()):
            while loop.epoch < run.epochs and not loop.all_frozen:
                loop.run_epoch(lambda: after_steps(1))
        yield loop.history()


def provenance(start: float) -> dict[str, Any]:
    """Return the versions, the machine, the time, and the seconds since `start`."""
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
    """Return the git commit of the sources, with "-dirty" after changes; None without git."""
    here = Path(__file__)
    try:
        _git(here.parent, "ls-files", "--error-unmatch", here.name)
        return _git(here.parent, "describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
