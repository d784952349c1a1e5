"""`biv reproduce`: the paper's table and figures, trained where they are missing."""

from __future__ import annotations

import argparse
import importlib.util

from biv._utils.command_line import describe_command
from biv.paper.artefacts import artefacts, find
from biv.paper.commands import _options
from biv.paper.presets import PRESETS

EXAMPLES = """examples:
  biv reproduce table1                                  the table, on the whole of Bike Sharing
  biv reproduce fig03 varnoise                          figures, by number or by the paper's name
  biv reproduce all --jobs 2 --out results              everything, in two processes
  biv reproduce table1 --dataset bike2011 --preset laptop     on shipped data, in a minute
  biv reproduce table1 --dataset utkface --preset laptop --seeds 2 \\
      --panels alpha=1 alpha=0.25 --lines GT L2 BIV     a part of the table, on faces: an hour
  biv reproduce all --cluster dask://10.0.0.7:8786      everything, on the workers of a scheduler
  biv reproduce all --cluster ray                       everything, on Ray
  biv reproduce --list                                  every artefact, its runs, its time here

All that is there is on one page too, OUT/report.html, to be opened in a browser.

Runs are kept in OUT/runs.sqlite. What is there is not trained again; what is interrupted loses the
stacks in flight only. Several commands may share OUT; each trains what was missing when it began.
A cluster fills the same OUT: what is begun here can be finished there, and the other way round. Its
workers (dask worker HOST:PORT --nthreads 1; ray start) need the biv, torch and NumPy that are here.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="paper",
        interrupted="what was finished is stored",
    )
    parser.add_argument(
        "names", nargs="*", metavar="ARTEFACT", help="table1, fig01 to fig15, or all"
    )
    parser.add_argument(
        "--panels", nargs="+", default=[], metavar="TITLE", help="only these, such as alpha=1"
    )
    parser.add_argument(
        "--lines", nargs="+", default=[], metavar="LABEL", help="only these, such as GT L2 BIV C=mu"
    )
    _options.add_options(parser)


def call(options: argparse.Namespace) -> int:
    """Train what is missing, then draw everything from the store."""
    from biv.paper.commands import _common
    from biv.paper.report import files

    _options.check(options)
    known = artefacts(options.dataset, PRESETS[options.preset])
    if "all" in options.names or (options.list and not options.names):
        chosen = list(known.values())
    else:
        chosen = list(dict.fromkeys(find(name, known) for name in options.names))
    chosen = [artefact.only(options.panels, options.lines) for artefact in chosen]
    if options.list:
        things = [_common.Listed(a.name, a.label, a.runs(options.seeds), a.shows) for a in chosen]
        return _common.print_listing(things, options)
    if not chosen:
        raise ValueError("name what to reproduce, such as table1, fig03 or all; --list shows them")
    if importlib.util.find_spec("matplotlib") is None:  # before the training, not after it
        raise ValueError("the figures need matplotlib: pip install matplotlib, or biv[paper]")
    runs = [run for artefact in chosen for run in artefact.runs(options.seeds)]
    store, plan = _common.train_missing(runs, options)
    for artefact in chosen:
        stem = _options.stem(artefact.name, options)
        if options.panels or options.lines:  # a part does not replace the whole
            stem += "-part"
        with files.named_errors(store.path):
            written = files.write(artefact, store, options.seeds, options.out, stem)
        print(f"\n{written.table}\n")
        print(f"{artefact.name} ({options.preset} preset): {written.caption}")
        print("  " + "  ".join(str(path) for path in written.paths), flush=True)
    _common.write_report(store, options)
    return _common.report_failures(plan)
