"""`biv predict`: add the predictions of a model to a table."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from biv._utils.command_line import describe_command
from biv._utils.messages import shortened
from biv.cli import _table_options

DESCRIPTION = (
    "Copy a table and add columns with the predictions of a model and their standard deviations."
)

EXAMPLES = """examples:
  biv predict biv-model new.csv                      writes predictions.csv
  biv predict biv-model new.parquet --out out.parquet
  biv predict model parts/ --out all.csv --name y_hat

The prediction is of the true label. The standard deviation says how far the true label may be from
it; the noise of a new measurement is not included. A part of the standard deviation, the model's
own error, is the same for all rows. Files of any size are processed part by part. The output file
appears only when it is complete.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=DESCRIPTION,
        examples=EXAMPLES,
        page="command",
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="model folder of `biv train`")
    _table_options.add_files(parser)
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        metavar="FILE",
        help="output file, in the format of the input (default: predictions with the suffix of "
        "the input, such as predictions.csv.gz)",
    )
    parser.add_argument(
        "--name",
        default="prediction",
        metavar="COLUMN",
        help="name of the column of predictions; the column of standard deviations has _std "
        "appended (default: prediction)",
    )
    _table_options.add_common(parser, seed=False)


def call(options: argparse.Namespace) -> int:
    """Predict the rows of the files and write them with the predictions."""
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
    result = {"out": str(out), "rows": rows, "columns": columns}
    _table_options.show(
        options,
        result,
        f"{'1 row' if rows == 1 else f'{rows:,} rows'} predicted: {shortened(columns[0])} is the "
        f"predicted true label, {shortened(columns[1])} its standard deviation.\n{out}",
    )
    return 0


def _note_unseen(counts: Mapping[str, int]) -> None:
    """Print a note on categories that do not occur in the training data."""
    shown = ", ".join(f"{count:,} in {shortened(name)}" for name, count in counts.items())
    _table_options.note(
        f"categories that do not occur in the training data were treated as unknown: {shown}"
    )
