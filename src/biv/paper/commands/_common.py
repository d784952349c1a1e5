"""Steps that the paper's commands share: training missing runs, a listing, and the report."""

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


def train_missing(
    runs: Sequence[Run], options: argparse.Namespace
) -> tuple[Store, runner.TrainingSummary]:
    """Train the missing runs, unless --stored forbids it, and return the store.

    Raises
    ------
    ValueError
        --stored was given, and none of the runs is stored.
    """
    path = _options.store_path(options)
    if not options.stored:
        return sweep.train_missing(
            path,
            runs,
            jobs=options.jobs,
            cluster=options.cluster,
            log=lambda line: print(line, flush=True),
        )
    try:
        store, summary = sweep.open_stored(path, runs)
    except sweep.NothingStoredError as error:
        selection = f"{options.dataset} with the {options.preset} preset"
        message = f"{error}, and --stored trains nothing; it needs the runs of {selection}"
        raise ValueError(message) from error
    print(f"{summary.stored} of {runner.count_text(len(set(runs)))} stored.")
    return store, summary


def write_report(store: Store, options: argparse.Namespace) -> None:
    """Write the HTML report of a data set and preset into the folder of the store."""
    if options.no_report:
        return
    if not has_plotly():
        print("The report was not written: it needs plotly (pip install plotly).")
        return
    from biv.paper.report import paper_page

    selection = paper_page.Selection(options.dataset, options.preset, options.seeds)
    with named_errors(store.path):
        page = paper_page.page(store, selection, shlex.quote(str(options.out)))
    print(page.write(options.out / f"{_options.stem('report', options)}.html"), flush=True)


def report_failures(summary: runner.TrainingSummary) -> int:
    """Print the runs that could not be trained, and return the exit code."""
    for failure in summary.failed:
        print(f"failed: {failure.run.canonical()}: {failure.error}")
    return 1 if summary.failed else 0


class ListingRow(NamedTuple):
    """An artefact or a claim in a listing."""

    name: str
    label: str
    runs: Sequence[Run]
    title: str


def print_listing(rows: Sequence[ListingRow], options: argparse.Namespace) -> int:
    """Print each row with its number of runs, of stored runs, and the time to train the others."""
    path = _options.store_path(options)
    print(f"{'name':7} {'label':18} {'runs':>5} {'stored':>6} {'time':>8}  content")
    estimates = list(sweep.remaining(path, [row.runs for row in rows], jobs=options.jobs))
    for row, estimate in zip(rows, estimates, strict=True):
        print(
            f"{row.name:7} {row.label:18} {estimate.runs:5} {estimate.stored:6} "
            f"{format_duration(estimate.seconds):>8}  {row.title}"
        )
    jobs = estimates[0].jobs if estimates else options.jobs or 1
    print(
        "\nThe time is an estimate for training the runs that are not stored, with "
        f"{jobs} process{'es' if jobs > 1 else ''} on this machine.\n"
        "Runs that several rows share are trained once, so all together take less than the sum."
    )
    return 0
