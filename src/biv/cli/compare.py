"""`biv compare`: cross-validate training methods on a table, and recommend one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from biv._utils.command_line import describe_command
from biv.cli import _table_options

DESCRIPTION = """Cross-validate training methods on a table with error bars, and recommend one.
The result shows whether weighting by the error bars helps on your data."""

EXAMPLES = """examples:
  biv compare data.csv --target y --target-std y_err
  biv compare data.parquet --target y --target-var v --rows 0 --folds 10     all rows, more folds
  biv compare data.csv --target y --target-std y_err --json > comparison.json

methods, all on the same folds:
  L2        networks that ignore the error bars
  IV        networks with weights 1/σ²
  Cutoff    networks without the labels whose σ² is above a threshold, chosen by validation
  BIV       networks with weights 1/(σ²+ε)
  shuffled  BIV with the variances assigned to the wrong rows; if it is as good as BIV, the error
            bars do not show which labels are reliable
  linear    weighted least squares
  boosting  gradient boosting with and without weights (scikit-learn, and LightGBM if installed)

Errors are to the true labels: the noise of the labels is subtracted. The rows are those that
`biv train` uses with the same --unknown-variance. An HTML report is written too. To include the
result in the report of a model, pass the JSON to `biv train --comparison comparison.json`.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=DESCRIPTION,
        examples=EXAMPLES,
        page="checking",
    )
    _table_options.add_files(parser)
    _table_options.add_columns(parser, error_bars=True)
    parser.add_argument(
        "--folds",
        type=int,
        default=5,
        metavar="N",
        help="number of folds of the cross-validation (default: 5)",
    )
    parser.add_argument(
        "--rows",
        type=int,
        default=10_000,
        metavar="N",
        help="use a random sample of at most this many rows; 0 uses all (default: 10000)",
    )
    _table_options.add_unknown(parser)
    parser.add_argument(
        "--unweighted",
        action="store_true",
        help="give all labels the same weight in the scores; use it if the error bars are "
        "correlated with the label. Scores are noisier and rely on the largest error bars",
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="number of processes (default: one per core)"
    )
    _table_options.add_report(parser, "biv-compare.html, or the next free name")
    _table_options.add_common(parser)


def call(options: argparse.Namespace) -> int:
    """Read the table, cross-validate the methods, and print the recommendation."""
    for name, smallest in (("folds", 2), ("rows", 0), ("jobs", 1)):
        value = getattr(options, name)
        if value is not None and value < smallest:
            raise ValueError(f"--{name} must be at least {smallest}; got {value}")

    def default_path() -> Path:
        return _table_options.unused_path("biv-compare", ".html", force=options.force)

    page = _table_options.report_path(options, default_path())
    table = _table_options.read(options)
    from biv._utils.progress import progress_bar
    from biv.report import comparison as report
    from biv.workflows import compare
    from biv.workflows.methods import methods

    _table_options.note_zeros(table)
    names = methods()
    if not options.json:
        print(f"{_table_options.describe(table)}.\n", flush=True)
    total = len(names) * options.folds
    with progress_bar(total, f"{len(names)} methods, {options.folds} folds", unit="fit") as bar:
        comparison = compare(
            table,
            folds=options.folds,
            rows=options.rows or None,
            weighted=not options.unweighted,
            unknown=options.unknown_variance,
            seed=options.seed,
            jobs=options.jobs or os.cpu_count() or 1,
            after_task=bar.update,
        )
    record = comparison.record()
    text = report.text(record)

    def write(path: Path) -> None:
        from biv.report import model_page

        assert comparison.evidence is not None
        content = model_page.build_comparison_page(comparison.evidence, record, options.command)
        content.write(path, replace=options.force)

    choose_path = default_path if options.report is None else None
    written = _table_options.write_supplement(
        page, write, "the comparison itself is complete", choose_path
    )
    if written is not None:
        text += f"\n\nWritten:\n{written}"
    result = record.to_json() | {"report": None if written is None else str(written)}
    _table_options.show(options, result, text)
    return 0 if (written is None) == (page is None) else 1
