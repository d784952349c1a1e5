"""`biv report`: write an HTML report on a model, or on a store of runs."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from biv._utils.command_line import describe_command
from biv.cli import _table_options

DESCRIPTION = """Write an HTML report on a model of `biv train`, or on runs of `biv reproduce`.
The file opens offline in any browser."""

EXAMPLES = """examples:
  biv report biv-model                                   report on a model, to report.html
  biv report biv-model --comparison comparison.json -o model.html
  biv report paper/results -o paper.html                 report on the runs of `biv reproduce`
  biv report results --dataset bike2011 --preset laptop  report on some of these runs

`biv train`, `biv compare` and `biv reproduce` write a report themselves. This command writes it
again from the stored results.
"""
DEFAULT = Path("report.html")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=DESCRIPTION,
        examples=EXAMPLES,
        page="command",
    )
    parser.add_argument(
        "source",
        type=Path,
        metavar="STORE|MODEL",
        help="model folder of `biv train`, or output folder (or runs.sqlite) of `biv reproduce`",
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=DEFAULT,
        metavar="FILE",
        help="output file (default: report.html)",
    )
    parser.add_argument(
        "--comparison",
        type=Path,
        metavar="JSON",
        help="with a model: include this comparison, the output of `biv compare --json`",
    )
    parser.add_argument(
        "--dataset",
        help="with runs: data set to report on, such as bike (default: the one with most runs)",
    )
    parser.add_argument(
        "--preset",
        help="with runs: preset to report on, such as paper (default: the one with most runs)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing output")


def call(options: argparse.Namespace) -> int:
    """Find out what the source is, and write the report on it."""
    from biv.report.page import require_plotly

    require_plotly()
    out, source = options.out, options.source
    _table_options.checked_path(out, "--out", (".html", ".htm"), options.force)
    if not source.exists():
        raise ValueError(f"{source} does not exist")
    store = source / "runs.sqlite" if source.is_dir() else source
    if source.is_file() or store.is_file():
        if options.comparison is not None:
            raise ValueError(f"--comparison requires a model folder; {source} is a store of runs")
        import_module("biv.paper.commands.report").write(store, options)
    else:
        if options.dataset is not None or options.preset is not None:
            raise ValueError(f"--dataset and --preset require a store of runs; {source} is not one")
        _write_model_report(source, options)
    print(out)
    return 0


def _write_model_report(path: Path, options: argparse.Namespace) -> None:
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
