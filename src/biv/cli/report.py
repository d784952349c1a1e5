"""`biv report`: one HTML file about a store of runs, or about a model and its table."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from biv._utils.command_line import describe_command
from biv.cli import _table_options

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


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
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
        "--dataset", help="of a store, such as bike (default: what it has most runs of)"
    )
    parser.add_argument("--preset", help="of a store, such as paper (default: likewise)")
    parser.add_argument("--force", action="store_true", help="replace what is there already")


def call(options: argparse.Namespace) -> int:
    """Look what it is, and write the page."""
    from biv.report.page import require_plotly

    require_plotly()
    out, source = options.out, options.source
    _table_options.checked_path(out, "--out", (".html", ".htm"), options.force)
    if not source.exists():
        raise ValueError(f"{source} is not there")
    store = source / "runs.sqlite" if source.is_dir() else source
    if source.is_file() or store.is_file():
        if options.comparison is not None:
            raise ValueError("--comparison is for a model, and this is a store of runs")
        import_module("biv.paper.commands.report").write(store, options)
    else:
        if options.dataset is not None or options.preset is not None:
            raise ValueError("--dataset and --preset are for a store of runs, and this is none")
        _of_model(source, options)
    print(out)
    return 0


def _of_model(path: Path, options: argparse.Namespace) -> None:
    _table_options.require_libraries()
    from biv._utils import typed_json
    from biv.report import model_page
    from biv.workflows import ModelFolder
    from biv.workflows.comparison_record import ComparisonRecord

    folder = ModelFolder.read(path)
    if options.comparison is not None:
        comparison = ComparisonRecord.read(options.comparison, folder.target.name)
        folder = replace(folder, comparison=comparison)
    with typed_json.errors_name_file(path, "cannot be shown"):
        page = model_page.build_model_page(folder, shlex.quote(str(path)))
    page.write(options.out)
