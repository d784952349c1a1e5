"""What the paper's commands share: listing, training what is missing, and the report."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biv._utils import typed_json
from biv._utils.messages import format_duration
from biv.paper import runner, stacks
from biv.paper.artefacts import PRESETS, artefacts
from biv.paper.commands import _options
from biv.paper.spec import Run
from biv.paper.store import Store
from biv.paper.workers import clusters
from biv.paper.workers.base import Workers
from biv.paper.workers.processes import Processes
from biv.report.page import has_plotly

STORE = "runs.sqlite"


def train_missing(runs: Sequence[Run], options: argparse.Namespace) -> tuple[Store, runner.Plan]:
    """The store with these runs in it, unless they fail or nothing may be trained.

    Raises:
        ValueError: Nothing may be trained, and nothing is stored.
    """
    path = options.out / STORE
    wanted = set(runs)
    if options.stored:
        if not path.exists():
            raise ValueError(f"{path} is not there, and --stored trains nothing")
        store = Store(path, read_only=True)
        stored = len(wanted) - len(store.missing(runs))
        if not stored:
            raise ValueError(
                f"{path} has none of these {len(wanted)} runs ({options.dataset}, "
                f"{options.preset} preset), and --stored trains nothing"
            )
        print(f"{stored} of {len(wanted)} runs are stored.")
        failed = [failure for failure in store.failures() if failure.run in wanted]
        return store, runner.Plan(stored, 0, failed)
    missing = list(dict.fromkeys(runs))
    if path.exists():
        store = Store(path)  # to be written: whoever made the file may have been killed before
        missing = store.missing(runs)
        if not missing:
            print(f"0 runs trained, {len(wanted)} were stored already.")
            return store, runner.Plan(len(wanted), 0, [])
    with closing(_workers(missing, options)) as workers:
        note = workers.require_rows(missing)  # what is not on hand leaves no empty store behind
        if options.cluster:
            about = f"in {workers.count} processes of {options.cluster}"
        else:
            pace = seconds_a_unit(missing[0]) / workers.count
            about = f"about {format_duration(runner.rows_forward(missing) * pace)} in "
            about += f"{workers.count} processes"
        there = len(wanted) - len(missing)
        print(f"{len(missing)} runs to train, {there} stored already: {about}.", flush=True)
        if note:
            print(note, flush=True)
        store = Store(path)
        plan = runner.complete(
            runs, store, workers=workers, say=lambda line: print(line, flush=True)
        )
    print(f"{plan.trained} runs trained, {plan.stored} were stored already.")
    return store, plan


def _workers(missing: Sequence[Run], options: argparse.Namespace) -> Workers:
    if options.cluster:
        return clusters.connect(clusters.address(options.cluster))
    return Processes(options.jobs or runner.default_jobs(missing))


@contextmanager
def shown(path: Path) -> Iterator[None]:
    """Name the store where what is stored of its runs is valid and yet cannot be shown.

    Raises:
        ValueError: Something failed inside, or a number was not finite.
    """
    with (
        typed_json.damaged(path, "cannot be shown"),
        np.errstate(divide="raise", over="raise", invalid="raise"),
    ):
        yield


def write_report(store: Store, options: argparse.Namespace) -> None:
    """The page about all that the store has of these data at this preset, beside it."""
    if options.no_report:
        return
    if not has_plotly():
        print("No report: it needs plotly (pip install plotly).")
        return
    from biv.paper.report import paper_page

    chosen = paper_page.Chosen(options.dataset, options.preset, options.seeds)
    with shown(store.path):
        page = paper_page.page(store, chosen, shlex.quote(str(options.out)))
    print(page.write(options.out / f"{_options.stem('report', options)}.html"), flush=True)


def report_failures(plan: runner.Plan) -> int:
    """Say what could not be trained; the exit code."""
    for failure in plan.failed:
        print(f"failed: {failure.run.canonical()}: {failure.error}")
    return 1 if plan.failed else 0


class Listed(NamedTuple):
    """An artefact or a claim in a listing."""

    name: str
    label: str
    runs: Sequence[Run]
    shows: str


def listing(things: Iterable[Listed], options: argparse.Namespace) -> str:
    """Everything with its runs, what is stored of them, and how long the rest would take."""
    path = options.out / STORE
    store = Store(path, read_only=True) if path.exists() else None  # looking leaves nothing behind
    jobs, pace = options.jobs or 1, None
    rows = [f"{'name':7} {'label':18} {'runs':>5} {'stored':>6} {'to go':>8}  shows"]
    for thing in things:
        if pace is None:
            jobs = options.jobs or runner.default_jobs(thing.runs)
            pace = seconds_a_unit(thing.runs[0])
        missing = store.missing(thing.runs) if store else thing.runs
        time_left = format_duration(runner.rows_forward(missing) * pace / jobs)
        rows.append(
            f"{thing.name:7} {thing.label:18} {len(thing.runs):5} "
            f"{len(thing.runs) - len(missing):6} {time_left:>8}  {thing.shows}"
        )
    rows.append(
        f"\nTimes are estimates for {jobs} processes on this machine, each line by itself; "
        "runs that several share are trained once."
    )
    return "\n".join(rows)


def seconds_a_unit(run: Run) -> float:
    """What a row of this kind passed forward costs one process here, measured on a few of them."""
    if run.pixels is not None:
        return runner.seconds_an_image(run.pixels)
    sample = artefacts("bike2011", PRESETS["smoke"])["table1"].runs(1)
    stacks.train(sample[:2])  # the data set is read, the library warm
    start = time.perf_counter()
    stacks.train(sample)
    return (time.perf_counter() - start) / runner.rows_forward(sample)
