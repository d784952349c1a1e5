"""`biv report`: one HTML file about a store of runs, or about a model and its table."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from biv import _json
from biv.cli import experiments, owndata
from biv.cli.parsing import add_command
from biv.experiments.artefacts import PRESETS, ROWS
from biv.experiments.store import Store
from biv.report.page import require_plotly

EXAMPLES = """examples:
  biv report biv-model                                   a model of `biv train`: report.html
  biv report biv-model --comparison comparison.json -o model.html
  biv report paper/results -o paper.html                 a store of `biv reproduce`
  biv report results --dataset bike2011 --preset laptop  one of the kinds of runs in it

The page has everything in it: it opens offline, and no request leaves it. `biv train`, `biv
compare` and `biv reproduce` make one by themselves; this makes it again, from what they have kept.
A comparison is what `biv compare --json` prints.
"""
DEFAULT = Path("report.html")


def add_to(commands: Any) -> None:
    """Add this command to the parser's."""
    parser = add_command(
        commands,
        "report",
        call,
        brief="one HTML file to look at: of a model, or of the paper's runs",
        description=__doc__,
        examples=EXAMPLES,
        page="command",
    )
    parser.add_argument(
        "source",
        type=Path,
        metavar="STORE|MODEL",
        help="a folder of `biv reproduce` (or its runs.sqlite), or a model folder of `biv train`",
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=DEFAULT, help="file (default: report.html)"
    )
    parser.add_argument(
        "--comparison",
        type=Path,
        metavar="JSON",
        help="of a model: what `biv compare --json` printed, to be shown too",
    )
    parser.add_argument(
        "--dataset", choices=list(ROWS), help="of a store (default: what it has most runs of)"
    )
    parser.add_argument("--preset", choices=list(PRESETS), help="of a store (default: likewise)")
    parser.add_argument("--force", action="store_true", help="replace what is there already")


def call(options: argparse.Namespace) -> int:
    """Look what it is, and write the page."""
    require_plotly()
    out, source = options.out, options.source
    owndata.checked_path(out, "--out", (".html", ".htm"), options.force)
    if not source.exists():
        raise ValueError(f"{source} is not there")
    store = source / experiments.STORE if source.is_dir() else source
    if source.is_file() or store.is_file():
        if options.comparison is not None:
            raise ValueError("--comparison is for a model, and this is a store of runs")
        _of_store(store, options)
    else:
        if options.dataset is not None or options.preset is not None:
            raise ValueError("--dataset and --preset are for a store of runs, and this is none")
        _of_model(source, options)
    print(out)
    return 0


def _of_store(path: Path, options: argparse.Namespace) -> None:
    from biv.report import paperpage

    store = Store(path, read_only=True)
    there = paperpage.contents(store)
    wanted = [
        chosen
        for chosen in there
        if options.dataset in (None, chosen.dataset) and options.preset in (None, chosen.preset)
    ]
    found = "; ".join(f"{c.dataset}, {c.preset} preset ({c.runs:,} runs)" for c in there)
    if not wanted:
        raise ValueError(f"{path} has no such runs; found {found or 'none at all'}")
    if len(wanted) > 1:
        owndata.note(
            f"the store has {found}: shown are the first; --dataset and --preset choose others"
        )
    with experiments.shown(path):
        page = paperpage.page(store, wanted[0], shlex.quote(str(path.parent)))
    page.write(options.out)


def _of_model(path: Path, options: argparse.Namespace) -> None:
    owndata.require_libraries()
    from biv.owndata import ModelFolder
    from biv.owndata.schemas import read_comparison
    from biv.report import ownpage

    folder = ModelFolder.read(path)
    if options.comparison is not None:
        comparison = read_comparison(options.comparison, folder.target.name)
        folder = replace(folder, comparison=comparison)
    with _json.damaged(path, "cannot be shown"):
        page = ownpage.of_model(folder, shlex.quote(str(path)))
    page.write(options.out)
