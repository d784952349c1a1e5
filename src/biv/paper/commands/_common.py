"""What the paper's commands share: training what is missing, a listing, and the report."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from biv._utils.messages import format_duration
from biv.paper import runner, sweep
from biv.paper.commands import _options
from biv.paper.report.files import named_errors
from biv.paper.spec import Run
from biv.paper.store import Store
from biv.report.page import has_plotly


def train_missing(runs: Sequence[Run], options: argparse.Namespace) -> tuple[Store, runner.Plan]:
    """Return the store with these runs, except those that fail or may not be trained.

    Raises:
        ValueError: Nothing may be trained, and nothing is stored.
    """
    path = _options.store_path(options)
    if not options.stored:
        return sweep.train_missing(
            path,
            runs,
            jobs=options.jobs,
            cluster=options.cluster,
            say=lambda line: print(line, flush=True),
        )
    try:
        store, plan = sweep.open_stored(path, runs)
    except sweep.NothingStoredError as error:
        chosen = f"{options.dataset}, {options.preset} preset"
        raise ValueError(f"{error}, and --stored trains nothing ({chosen})") from error
    print(f"{plan.stored} of {len(set(runs))} runs are stored.")
    return store, plan


def write_report(store: Store, options: argparse.Namespace) -> None:
    """Write the page about all runs of these data at this preset, beside the store."""
    if options.no_report:
        return
    if not has_plotly():
        print("No report: it needs plotly (pip install plotly).")
        return
    from biv.paper.report import paper_page

    chosen = paper_page.Chosen(options.dataset, options.preset, options.seeds)
    with named_errors(store.path):
        page = paper_page.page(store, chosen, shlex.quote(str(options.out)))
    print(page.write(options.out / f"{_options.stem('report', options)}.html"), flush=True)


def report_failures(plan: runner.Plan) -> int:
    """Print what could not be trained, and return the exit code."""
    for failure in plan.failed:
        print(f"failed: {failure.run.canonical()}: {failure.error}")
    return 1 if plan.failed else 0


class Listed(NamedTuple):
    """An artefact or a claim in a listing."""

    name: str
    label: str
    runs: Sequence[Run]
    shows: str


def print_listing(things: Sequence[Listed], options: argparse.Namespace) -> int:
    """Print everything with its runs, what is stored of them, and how long the rest would take."""
    path = _options.store_path(options)
    print(f"{'name':7} {'label':18} {'runs':>5} {'stored':>6} {'to go':>8}  shows")
    left = list(sweep.remaining(path, [thing.runs for thing in things], jobs=options.jobs))
    for thing, found in zip(things, left, strict=True):
        print(
            f"{thing.name:7} {thing.label:18} {found.runs:5} {found.stored:6} "
            f"{format_duration(found.seconds):>8}  {thing.shows}"
        )
    jobs = left[0].jobs if left else options.jobs or 1
    print(
        f"\nTimes are estimates for {jobs} processes on this machine, each line by itself; runs "
        "that several share are trained once."
    )
    return 0
