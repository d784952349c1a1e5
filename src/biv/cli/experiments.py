"""What the commands on the paper's experiments share: their options, and the training."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from biv.experiments import runner
from biv.experiments.artefacts import PRESETS, ROWS
from biv.experiments.spec import Run
from biv.experiments.store import Store

STORE = "runs.sqlite"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which data, how much of the protocol, and where to."""
    parser.add_argument(
        "--dataset", choices=list(ROWS), default="bike", help="(default: bike, the whole of it)"
    )
    parser.add_argument(
        "--preset",
        choices=list(PRESETS),
        default="paper",
        help="how much of the protocol is run (default: paper)",
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs of everything (default: 5)")
    parser.add_argument("--jobs", type=int, help="processes (default: one a core)")
    parser.add_argument(
        "--out", type=Path, default=Path("biv-results"), help="folder (default: biv-results)"
    )
    parser.add_argument(
        "--stored", action="store_true", help="train nothing: what is stored must do"
    )


def check(options: argparse.Namespace) -> None:
    """Numbers that argparse cannot judge.

    Raises:
        ValueError: One is out of range.
    """
    if options.seeds < 1 or (options.jobs is not None and options.jobs < 1):
        raise ValueError("--seeds and --jobs must be at least 1")


def train_missing(runs: Sequence[Run], options: argparse.Namespace) -> tuple[Store, runner.Plan]:
    """The store with these runs in it, unless they fail or nothing may be trained.

    Raises:
        ValueError: Nothing may be trained, and there is no store.
    """
    path = options.out / STORE
    if options.stored:
        if not path.exists():
            raise ValueError(f"{path} is not there, and --stored trains nothing")
        store = Store(path)
        wanted = set(runs)
        stored = len(wanted) - len(store.missing(runs))
        print(f"{stored} of {len(wanted)} runs are stored.")
        failed = [failure for failure in store.failures() if failure.run in wanted]
        return store, runner.Plan(stored, 0, failed)
    store = Store(path)
    plan = runner.complete(runs, store, jobs=options.jobs, say=lambda line: print(line, flush=True))
    print(f"{plan.trained} runs trained, {plan.stored} were stored already.")
    return store, plan


def report_failures(plan: runner.Plan) -> int:
    """Say what could not be trained; the exit code."""
    for failure in plan.failed:
        print(f"failed: {failure.run.canonical()}: {failure.error}")
    return 1 if plan.failed else 0
