"""`biv predict`: the columns of a table, and beside them what a model predicts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from biv._utils.command_line import describe_command
from biv._utils.messages import shortened
from biv.cli import _table_options

EXAMPLES = """examples:
  biv predict biv-model new.csv                      writes predictions.csv
  biv predict biv-model new.parquet --out out.parquet
  biv predict model parts/ --out all.csv --name y_hat

All rows are copied, with two columns more: the predicted true label, and the standard deviation of
the true label about it (without the noise of a new measurement; the part of it that is the model's
own error is the same for all rows). Files of any size are worked through a part at a time. The
output is complete or not there.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="command",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a folder of `biv train`")
    _table_options.add_files(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        help="file, of the kind of the input (default: predictions.csv or predictions.parquet)",
    )
    parser.add_argument(
        "--name",
        default="prediction",
        help="of the new column; the other has _std appended (default: prediction)",
    )
    _table_options.add_usual(parser, seed=False)


def call(options: argparse.Namespace) -> int:
    """Read a part, predict it, write it."""
    _table_options.require_libraries()
    from biv._utils.progress import progress_bar
    from biv.tables.files import Files
    from biv.workflows import ModelFolder, write_predictions

    folder = ModelFolder.read(options.model, for_report=False)
    files = Files(options.files)
    suffix = "".join(files.paths[0].suffixes[-2:]).lower()
    if not suffix.endswith(".gz"):
        suffix = files.paths[0].suffix.lower()
    out = options.out or Path(f"predictions{suffix}")
    with progress_bar(None, "predicting", unit="row") as bar:
        rows = write_predictions(
            folder,
            files,
            out,
            name=options.name,
            force=options.force,
            after_part=bar.update,
            report_unseen=_note_unseen,
        )
    columns = [options.name, f"{options.name}_std"]
    told = {"out": str(out), "rows": rows, "columns": columns}
    _table_options.show(
        options,
        told,
        f"{rows:,} rows, with {shortened(columns[0])} and {shortened(columns[1])}.\n{out}",
    )
    return 0


def _note_unseen(counts: Mapping[str, int]) -> None:
    shown = ", ".join(f"{count:,} in {shortened(name)}" for name, count in counts.items())
    _table_options.note(
        f"categories that training has not seen, as none of those it knows: {shown}"
    )
