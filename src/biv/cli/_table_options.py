"""Shared parts of the commands on tables: options, reading, notes and output."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biv._utils.atomic_files import WriteError
from biv._utils.messages import shortened, wrong_path
from biv._utils.wording import OPTIONS, render_text

if TYPE_CHECKING:
    from biv.tables import LabelledTable, Target

# Names of columns that suggest an error bar, a standard deviation, or a variance.
ERROR_BAR = re.compile(r"err|std|sigma|unc|var|^[_ ]?se$|^d$|σ")
STANDARD = re.compile(r"(?<![a-z])(e?err(or)?|std(dev)?|sd|se|sem|sigma|unc\w*)(?![a-z])|σ(?!²)")
SQUARED = re.compile(r"(?<![a-z])i?var(iance)?(?![a-z])|σ²|sigma_?2")
COLUMNS_SHOWN = 3  # in a note
REQUIRED = ("pandas", "pyarrow", "safetensors", "sklearn")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add the argument for the files of the table."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="CSV or Parquet file, or a folder of such files; several must have the same columns",
    )


def add_columns(parser: argparse.ArgumentParser, *, error_bars: bool) -> None:
    """Add the options that name columns."""
    columns = parser.add_argument_group("columns")
    columns.add_argument("--target", required=True, metavar="COLUMN", help="column of the labels")
    bars = columns.add_mutually_exclusive_group(required=error_bars)
    bars.add_argument(
        "--target-std", metavar="COLUMN", help="column of the error bars, as standard deviations σ"
    )
    bars.add_argument(
        "--target-var", metavar="COLUMN", help="column of the error bars, as variances σ²"
    )
    bars.add_argument(
        "--target-interval",
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="columns of the error bars, as the two ends of a confidence interval that contains "
        "the label (not as distances from the label)",
    )
    columns.add_argument(
        "--level",
        type=float,
        help="confidence level of --target-interval, such as 0.6827 for errors of one σ "
        "(default: 0.95)",
    )
    columns.add_argument(
        "--weight",
        metavar="COLUMN",
        help="column of the importance of each row, independent of its error bar",
    )
    for option, default, text in (
        ("--features", None, "columns to learn from (default: all others)"),
        ("--ignore", [], "columns to leave out"),
        (
            "--keep",
            [],
            "columns to learn from even if they look like identifiers (text of which at least 95%% "
            "is distinct, or with more than 100 distinct values that make up more than half of the "
            "cells) or copies of the label",
        ),
        ("--category", [], "numeric columns to treat as categories (for example, post codes)"),
    ):
        columns.add_argument(
            option, nargs="+", action="extend", default=default, metavar="COLUMN", help=text
        )


def add_unknown(parser: Any) -> None:
    """Add the option for labels whose error bar is missing."""
    parser.add_argument(
        "--unknown-variance",
        choices=("raise", "median", "estimate"),
        default="raise",
        help="how to treat a missing error bar: raise an error, take the median of the known ones, "
        "or estimate it from residuals (default: raise)",
    )


def add_common(parser: argparse.ArgumentParser, *, seed: bool = True) -> None:
    """Add the options that all commands on tables have."""
    if seed:
        parser.add_argument(
            "--seed", type=int, default=0, help="seed of all random numbers (default: 0)"
        )
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument("--force", action="store_true", help="overwrite existing output")


def add_report(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the options for the HTML report."""
    report = parser.add_mutually_exclusive_group()
    report.add_argument(
        "--report", type=Path, metavar="HTML", help=f"file of the HTML report (default: {default})"
    )
    report.add_argument("--no-report", action="store_true", help="do not write an HTML report")


def report_path(
    options: argparse.Namespace, default: Path, new_folder: Path | None = None
) -> Path | None:
    """Return the file of the report, or None if no report is to be written.

    Parameters
    ----------
    options : Namespace
        Options of the command.
    default : Path
        File if the options name none.
    new_folder : Path, optional
        Folder that will be created before the report is written.

    Raises
    ------
    ValueError
        If the report cannot be written to the given file.
    """
    if options.no_report:
        return None
    from biv.report.page import has_plotly, require_plotly

    if not has_plotly():
        if options.report is not None:
            require_plotly()
        note("no report is written, because plotly is not installed (pip install plotly)")
        return None
    if options.report is None:
        return default
    return checked_path(
        Path(options.report), "--report", (".html", ".htm"), options.force, new_folder
    )


def checked_path(
    path: Path, option: str, suffixes: Sequence[str], force: bool, new_folder: Path | None = None
) -> Path:
    """Check before any work that a file can be written, and return its path.

    Raises
    ------
    ValueError
        If the suffix is wrong, the file already exists, or its folder does not exist.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)}; got {path}")
    if path.exists() and not force:
        raise ValueError(f"{path} already exists: --force replaces it")
    if not path.parent.is_dir() and path.parent != new_folder:
        raise ValueError(wrong_path(path.parent, "a folder"))
    return path


def unused_path(stem: str, suffix: str, *, force: bool) -> Path:
    """Return the first of stem, stem-2, stem-3, ... that does not exist; stem if `force`."""
    names = (f"{stem}{f'-{k}' if k > 1 else ''}{suffix}" for k in range(1, 1_000_000))
    return next(Path(name) for name in names if force or not Path(name).exists())


def require_libraries() -> None:
    """Check before any work that the required libraries are installed.

    Raises
    ------
    ValueError
        If a library is missing; the message names what to install.
    """
    missing = [name for name in REQUIRED if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"this command requires {', '.join(missing)}: pip install 'biv[command]'")


def read(options: argparse.Namespace) -> LabelledTable:
    """Read the table that the options name, with a progress bar and notes on what was left out."""
    require_libraries()
    from biv._utils.progress import progress_bar
    from biv.tables import LabelledTable
    from biv.tables.labelled import left_out_message
    from biv.workflows.checks import column_remarks, require_no_copies

    with progress_bar(None, "reading", unit="row") as bar:
        table = LabelledTable.read(
            options.files,
            target(options),
            features=options.features,
            ignore=options.ignore,
            keep=options.keep,
            categories=options.category,
            after_part=bar.update,
        )
    if table.unlabelled:
        note(left_out_message(table.unlabelled, options.target))
    for remark in column_remarks(table.schema, table.features, options.keep):
        note(remark)
    source = ", ".join(map(str, list(table.files)[:COLUMNS_SHOWN]))
    require_no_copies(source, table.target, table.features, table.y, table.ends, options.keep)
    _note_missing(table)
    _note_names(table)
    return table


def _note_missing(table: LabelledTable) -> None:
    """Print a note on missing cells of features."""
    missing = table.features.isna().sum()
    missing = missing[missing > 0]
    if len(missing):
        shown = ", ".join(
            f"{count:,} in {shortened(name)}" for name, count in missing[:COLUMNS_SHOWN].items()
        )
        others = len(missing) - COLUMNS_SHOWN
        more = f" and {others} more column{'s' if others > 1 else ''}" if others > 0 else ""
        note(
            f"missing cells: {shown}{more}. A missing number becomes the median of its column, and "
            "a further column marks it. A missing category becomes a category of its own"
        )


def _note_names(table: LabelledTable) -> None:
    """Print notes on columns whose names suggest another role than they have."""
    target = table.target
    for name, pattern, option in (
        (target.variance, STANDARD, "--target-std"),
        (target.std, SQUARED, "--target-var"),
    ):
        if name is not None and pattern.search(name.casefold()):
            note(
                f"the name of column {shortened(name)} suggests {option} (see: biv docs error-bars)"
            )
    if target.error_bars:
        for name in _possible_error_bars(target, table.schema.names):
            note(
                f"column {shortened(name)} is used as a feature; if it is an error bar, leave it "
                "out with --ignore"
            )


def note_zeros(table: LabelledTable) -> None:
    """Print a note on error bars of 0, which give a label the largest weight."""
    count = 0 if table.variance is None else int((table.variance == 0).sum())
    if count:
        labels = "1 label has" if count == 1 else f"{count:,} labels have"
        note(
            f"{labels} an error bar of 0, which gives the largest weight; if 0 stands for unknown, "
            "leave the cell empty"
        )


def target(options: argparse.Namespace) -> Target:
    """Return the columns of labels and error bars that the options name."""
    from biv.tables import Target

    seed, level = getattr(options, "seed", 0), options.level
    if seed < 0:
        raise ValueError(f"--seed must be non-negative; got {seed}")
    if seed >= 1 << 32:
        raise ValueError(f"--seed must be less than 2**32; got {seed}")
    if level is not None and not 0 < level < 1:
        raise ValueError(f"--level must be between 0 and 1; got {level:g}")
    interval = options.target_interval and tuple(options.target_interval)
    if options.level is not None and interval is None:
        raise ValueError("--level requires --target-interval")
    return Target(
        options.target,
        options.target_var,
        options.target_std,
        interval,
        0.95 if options.level is None else options.level,
        options.weight,
    )


KINDS_IN_WORDS = {"number": "numeric", "truth": "true/false", "category": "categorical"}


def describe(table: LabelledTable) -> str:
    """Describe a table in one line."""
    count = len(table.schema.columns)
    kinds = [column.kind for column in table.schema.columns]
    counts = ", ".join(f"{kinds.count(k)} {KINDS_IN_WORDS.get(k, k)}" for k in dict.fromkeys(kinds))
    files = "1 file" if len(table.files) == 1 else f"{len(table.files)} files"
    columns = "1 column" if count == 1 else f"{count} columns"
    return f"{len(table):,} rows from {files}; {columns} to learn from ({counts})"


def note(message: str) -> None:
    """Print a note to standard error."""
    print(f"biv: note: {render_text(message, OPTIONS)}", file=sys.stderr, flush=True)


def note_no_error_bars(target: Target, features: Iterable[str]) -> None:
    """Print notes that there are no error bars, and which feature may be one."""
    for name in _possible_error_bars(target, features):
        note(
            f"column {shortened(name)} is used as a feature; if it is the error bar, pass it as "
            "--target-std"
        )
    note(
        "no error bars were given: all labels have the same weight, and all errors include the "
        "noise of the labels"
    )


def _possible_error_bars(target: Target, features: Iterable[str]) -> list[str]:
    """Return the features whose names suggest an error bar of the label."""
    label = target.name.casefold()
    return [
        name
        for name in features
        if ERROR_BAR.search(name.casefold().replace(label, "", 1)) and label in name.casefold()
    ]


@contextmanager
def noted_warnings() -> Iterator[None]:
    """Print warnings as notes, without the line of code that raised them."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda warning, *_, **__: note(render_text(warning, OPTIONS))
        yield


def write_supplement(
    path: Path | None,
    write: Callable[[Path], object],
    otherwise: str,
    choose_path: Callable[[], Path] | None = None,
) -> Path | None:
    """Write a file that accompanies a result; print a note if it cannot be written.

    A failure does not raise an error, so that the result itself is not lost.

    Parameters
    ----------
    path : Path or None
        File to write; None writes nothing.
    write : callable
        Writes the file.
    otherwise : str
        Text that ends the note, such as "the model is complete".
    choose_path : callable, optional
        Returns another path if another process has created the file meanwhile.

    Returns
    -------
    Path or None
        The file that was written, if any.
    """
    if path is None:
        return None
    while True:
        try:
            write(path)
        except FileExistsError as error:
            if choose_path is None:
                note(f"{error.filename} already exists: --force replaces it; {otherwise}")
                return None
            path = choose_path()
        except WriteError as error:
            note(f"{error}; {otherwise}")
            return None
        else:
            return path


def show(options: argparse.Namespace, result: Mapping[str, Any], text: str) -> None:
    """Print the result as JSON or as text."""
    if options.json:
        print(json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(text)
