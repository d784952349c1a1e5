"""`biv compare`: are the error bars worth it here, and with which method?"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from biv._utils.command_line import describe_command
from biv.cli import _table_options

EXAMPLES = """examples:
  biv compare data.csv --target y --target-std y_err
  biv compare data.parquet --target y --target-var v --rows 0 --folds 10     all rows, more folds
  biv compare data.csv --target y --target-std y_err --json > comparison.json

Compared by cross-validation, on the same folds: networks with L2 (all labels alike), IV (1/σ²),
Cutoff (labels below a σ² chosen by validation), BIV (1/(σ²+ε)), and BIV with the same variances on
the wrong rows, which shows whether they know which labels are good; linear weighted least squares;
gradient boosting with and without weights (scikit-learn's, and LightGBM if it is installed). Errors
are to the true labels, with the noise of the labels taken out. The rows are those that `biv train`
learns from with the same --unknown-variance. A page with charts is written beside
the text: biv-compare.html. `biv train --comparison comparison.json` puts the result into its own.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    describe_command(
        parser,
        call,
        description=__doc__,
        examples=EXAMPLES,
        page="checking",
    )
    _table_options.add_files(parser)
    _table_options.add_columns(parser, error_bars=True)
    parser.add_argument("--folds", type=int, default=5, help="of cross-validation (default: 5)")
    parser.add_argument(
        "--rows",
        type=int,
        default=10_000,
        help="compare on so many at most, drawn by lot; 0 for all (default: 10000)",
    )
    _table_options.add_unknown(parser)
    parser.add_argument(
        "--unweighted",
        action="store_true",
        help="let all labels count alike in the scores: noisier, and only as right as the large "
        "error bars, but not of one end of the labels where σ² goes with the label",
    )
    parser.add_argument("--jobs", type=int, help="processes (default: one a core)")
    _table_options.add_report(parser, "biv-compare.html, or the next free name")
    _table_options.add_usual(parser)


def call(options: argparse.Namespace) -> int:
    """Read, cross-validate, recommend."""
    if options.folds < 2 or options.rows < 0 or (options.jobs is not None and options.jobs < 1):
        raise ValueError("--folds must be at least 2, --rows 0 or more, and --jobs at least 1")

    def free() -> Path:
        return _table_options.free_path("biv-compare", ".html", force=options.force)

    page = _table_options.report_path(options, free())
    table = _table_options.read(options)
    from biv._utils.progress import progress_bar
    from biv.report import comparison as report
    from biv.workflows import compare
    from biv.workflows.methods import methods

    _table_options.note_zeros(table)
    names = methods()
    if not options.json:
        print(f"{_table_options.described(table)}.", flush=True)
    total = len(names) * options.folds
    with progress_bar(total, f"{len(names)} methods, {options.folds} folds", unit="fit") as bar:
        found = compare(
            table,
            folds=options.folds,
            rows=options.rows or None,
            weighted=not options.unweighted,
            unknown=options.unknown_variance,
            seed=options.seed,
            jobs=options.jobs or os.cpu_count() or 1,
            after_task=bar.update,
        )
    record = found.record()
    text = report.text(record)

    def write(path: Path) -> None:
        from biv.report import model_page

        assert found.evidence is not None
        whole = model_page.build_comparison_page(found.evidence, record, options.command)
        whole.write(path, replace=options.force)

    choose = free if options.report is None else None
    written = _table_options.written(page, write, "the comparison itself is complete", choose)
    if written is not None:
        text += f"\n\n{written}"
    printed = record.to_json() | {"report": None if written is None else str(written)}
    _table_options.show(options, printed, text)
    return 0 if (written is None) == (page is None) else 1
