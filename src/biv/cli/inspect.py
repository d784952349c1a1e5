"""`biv inspect`: check the error bars of a table before training."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from functools import partial
from pathlib import Path

from biv._utils.command_line import describe_command
from biv.cli import _table_options

DESCRIPTION = """Check the error bars of a table before training: how unequal they are, whether they
look right, and how much weighting by them may help."""

EXAMPLES = """examples:
  biv inspect data.csv --target y --target-std y_err         print text and draw a picture
  biv inspect data.csv --target y --target-var v --no-picture --json
  biv inspect data/ --target y --target-interval low high --picture bars.svg

The text compares σ² with the variance of the labels. It gives the effective sample size, the gain
to expect from weighting, a suitable ε, and the rows to check. For these it fits a small ensemble on
at most 20,000 rows, which takes some seconds.
"""
PICTURE = "biv-inspect"  # stem of the default file


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=DESCRIPTION,
        examples=EXAMPLES,
        page="command",
    )
    _table_options.add_files(parser)
    _table_options.add_columns(parser, error_bars=True)
    picture = parser.add_mutually_exclusive_group()
    picture.add_argument(
        "--picture",
        type=Path,
        metavar="FILE",
        help="file of the picture: PNG, SVG or PDF (default: biv-inspect.png, or the next free "
        "name)",
    )
    picture.add_argument("--no-picture", action="store_true", help="do not draw a picture")
    _table_options.add_common(parser)


def call(options: argparse.Namespace) -> int:
    """Read the table, inspect its error bars, print the findings and draw the picture."""
    path = None if options.no_picture else _picture_path(options)
    table = _table_options.read(options)
    from biv.report import inspection as report
    from biv.report.matplotlib_figures import save_figure
    from biv.workflows import inspect

    inspection = inspect(table, seed=options.seed, progress=sys.stderr.isatty())

    def write(file: Path) -> None:
        save_figure(report.draw(inspection), file, dpi=150, replace=options.force)

    choose_path = partial(_unused_path, options) if options.picture is None else None
    written = _table_options.write_supplement(path, write, "the text is complete", choose_path)
    result = inspection.record().to_json() | {"picture": None if written is None else str(written)}
    text = f"{_table_options.describe(table)}.\n\n{report.text(inspection)}"
    _table_options.show(
        options, result, text if written is None else f"{text}\n\nWritten:\n{written}"
    )
    return 0 if (written is None) == (path is None) else 1


def _picture_path(options: argparse.Namespace) -> Path:
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError(
            "the picture requires matplotlib: pip install matplotlib, or pass --no-picture"
        )
    if options.picture is None:
        return _unused_path(options)
    return _table_options.checked_path(
        Path(options.picture), "--picture", (".png", ".svg", ".pdf"), options.force
    )


def _unused_path(options: argparse.Namespace) -> Path:
    return _table_options.unused_path(PICTURE, ".png", force=options.force)
