"""`biv reproduce`: train the runs behind the paper's table and figures, and draw them."""

from __future__ import annotations

import argparse
import importlib.util

from biv._utils.command_line import describe_command
from biv.paper.artefacts import artefacts, find
from biv.paper.commands import _options
from biv.paper.presets import PRESETS

EXAMPLES = """examples:
  biv reproduce table1                                  the table, on all of Bike Sharing
  biv reproduce fig03 varnoise                          figures, by number or by the paper's name
  biv reproduce all --jobs 2 --out results              everything, in two processes
  biv reproduce table1 --dataset bike2011 --preset laptop     on the included data, in a minute
  biv reproduce table1 --dataset utkface --preset laptop --seeds 2 \\
      --panels alpha=1 alpha=0.25 --lines GT L2 BIV     a part of the table, on faces, in an hour
  biv reproduce all --cluster dask://10.0.0.7:8786      everything, on a Dask cluster
  biv reproduce all --cluster ray                       everything, on Ray
  biv reproduce --list                                  list artefacts, runs and estimated times

The HTML report OUT/report.html shows all stored runs on one page.

Runs are stored in OUT/runs.sqlite, and stored runs are not trained again. An interruption loses
only the runs in training. Several commands may use the same OUT at a time; each trains the runs
that were missing when it started. A cluster uses the same OUT, so you can start on this machine and
finish on a cluster, or the reverse. Its workers (dask worker HOST:PORT --nthreads 1; ray start)
need the same versions of biv, torch and NumPy as this machine.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="paper",
        interrupted="finished runs are stored",
    )
    parser.add_argument(
        "names", nargs="*", metavar="ARTEFACT", help="table1, fig01 to fig15, or all"
    )
    parser.add_argument(
        "--panels",
        nargs="+",
        default=[],
        metavar="TITLE",
        help="only these panels, such as alpha=1",
    )
    parser.add_argument(
        "--lines",
        nargs="+",
        default=[],
        metavar="LABEL",
        help="only these lines, such as GT L2 BIV C=mu",
    )
    _options.add_options(parser)


def call(options: argparse.Namespace) -> int:
    """Train the missing runs, then draw everything from the store."""
    from biv.paper.commands import _common
    from biv.paper.report import files

    _options.check(options)
    available = artefacts(options.dataset, PRESETS[options.preset])
    if "all" in options.names or (options.list and not options.names):
        selected = list(available.values())
    else:
        selected = list(dict.fromkeys(find(name, available) for name in options.names))
    selected = [artefact.only(options.panels, options.lines) for artefact in selected]
    if options.list:
        rows = [
            _common.ListingRow(a.name, a.label, a.runs(options.seeds), a.title) for a in selected
        ]
        return _common.print_listing(rows, options)
    if not selected:
        raise ValueError("name a table or figure, such as table1, fig03 or all; --list lists them")
    if importlib.util.find_spec("matplotlib") is None:  # fail before the training, not after it
        raise ValueError("the figures need matplotlib: pip install matplotlib, or biv[paper]")
    runs = [run for artefact in selected for run in artefact.runs(options.seeds)]
    store, summary = _common.train_missing(runs, options)
    for artefact in selected:
        stem = _options.stem(artefact.name, options)
        if options.panels or options.lines:  # a part must not replace the whole artefact
            stem += "-part"
        with files.named_errors(store.path):
            written = files.write(artefact, store, options.seeds, options.out, stem)
        print(f"\n{written.table}\n")
        print(f"{artefact.name} ({options.preset} preset): {written.caption}")
        print("  " + "  ".join(str(path) for path in written.paths), flush=True)
    _common.write_report(store, options)
    return _common.report_failures(summary)
