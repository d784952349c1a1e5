"""`biv inspect`: what the error bars of a table look like, and what they are worth."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from functools import partial
from pathlib import Path

from biv._utils.command_line import describe_command
from biv.cli import _table_options

EXAMPLES = """examples:
  biv inspect data.csv --target y --target-std y_err         text, and a picture beside it
  biv inspect data.csv --target y --target-var v --no-picture --json
  biv inspect data/ --target y --target-interval low high --picture bars.svg

How large σ² is beside the variance of the labels, how many labels really count, what weighting
buys, which rows to look at, and the ε that suits. For the last, a small ensemble is fitted on
20,000 rows at most: some seconds.
"""
PICTURE = "biv-inspect"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="command",
    )
    _table_options.add_files(parser)
    _table_options.add_columns(parser, error_bars=True)
    picture = parser.add_mutually_exclusive_group()
    picture.add_argument(
        "--picture",
        type=Path,
        help="where to (PNG, SVG, PDF; default: biv-inspect.png, or the next free name)",
    )
    picture.add_argument("--no-picture", action="store_true", help="text alone")
    _table_options.add_usual(parser)


def call(options: argparse.Namespace) -> int:
    """Read, look, say and draw."""
    path = None if options.no_picture else _picture_path(options)
    table = _table_options.read(options)
    from biv.report import inspection as report
    from biv.report.matplotlib_figures import save_figure
    from biv.workflows import inspect

    seen = inspect(table, seed=options.seed, progress=sys.stderr.isatty())

    def write(to: Path) -> None:
        save_figure(report.draw(seen), to, dpi=150, replace=options.force)

    choose = partial(_free_path, options) if options.picture is None else None
    written = _table_options.written(path, write, "the text is complete", choose)
    printed = seen.record().to_json() | {"picture": None if written is None else str(written)}
    text = f"{_table_options.described(table)}.\n\n{report.text(seen)}"
    _table_options.show(options, printed, text if written is None else f"{text}\n\n{written}")
    return 0 if (written is None) == (path is None) else 1


def _picture_path(options: argparse.Namespace) -> Path:
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("the picture needs matplotlib: pip install matplotlib, or --no-picture")
    if options.picture is None:
        return _free_path(options)
    return _table_options.checked_path(
        Path(options.picture), "--picture", (".png", ".svg", ".pdf"), options.force
    )


def _free_path(options: argparse.Namespace) -> Path:
    return _table_options.free_path(PICTURE, ".png", force=options.force)
