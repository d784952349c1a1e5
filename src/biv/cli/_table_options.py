"""What the commands on one's own data share: options, reading with a bar, notes, JSON."""

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
from biv._utils.messages import shortened
from biv._utils.wording import OPTIONS, render_text

if TYPE_CHECKING:
    from biv.tables import LabelledTable, Target

ERROR_BAR = re.compile(r"err|std|sigma|unc|var|^[_ ]?se$|^d$|σ")
STANDARD = re.compile(r"(?<![a-z])(e?err(or)?|std(dev)?|sd|se|sem|sigma|unc\w*)(?![a-z])|σ(?!²)")
SQUARED = re.compile(r"(?<![a-z])i?var(iance)?(?![a-z])|σ²|sigma_?2")
COLUMNS_SHOWN = 3
NEEDED = ("pandas", "pyarrow", "safetensors", "sklearn")


def add_files(parser: argparse.ArgumentParser) -> None:
    """The table."""
    parser.add_argument(
        "files",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="CSV or Parquet; several with the same columns, or a folder of them",
    )


def add_columns(parser: argparse.ArgumentParser, *, error_bars: bool) -> None:
    """Which columns mean what."""
    columns = parser.add_argument_group("columns")
    columns.add_argument("--target", required=True, metavar="COLUMN", help="the labels")
    bars = columns.add_mutually_exclusive_group(required=error_bars)
    bars.add_argument("--target-std", metavar="COLUMN", help="their error bars, as σ")
    bars.add_argument("--target-var", metavar="COLUMN", help="their error bars, as σ²")
    bars.add_argument(
        "--target-interval",
        nargs=2,
        metavar=("LOW", "HIGH"),
        help="their error bars, as the two ends of a confidence interval that holds the label (not "
        "as distances from it)",
    )
    columns.add_argument("--level", type=float, help="of that interval (default: 0.95)")
    columns.add_argument("--weight", metavar="COLUMN", help="how much each row matters")
    for option, default, text in (
        ("--features", None, "learn from these (default: all others)"),
        ("--ignore", [], "leave these out"),
        (
            "--keep",
            [],
            "learn from these even if they look like identifiers (text of which at least 95%% of "
            "the filled cells are distinct, or half of them if there are more than 100 texts) or "
            "like copies of the label",
        ),
        ("--category", [], "numeric columns to treat as categories (for example, post codes)"),
    ):
        columns.add_argument(
            option, nargs="+", action="extend", default=default, metavar="COLUMN", help=text
        )


def add_unknown(parser: Any) -> None:
    """What becomes of labels whose error bar is missing."""
    parser.add_argument(
        "--unknown-variance",
        choices=("raise", "median", "estimate"),
        default="raise",
        help="where an error bar is missing: an error, the median, or an estimate (default: raise)",
    )


def add_usual(parser: argparse.ArgumentParser, *, seed: bool = True) -> None:
    """What every command has."""
    if seed:
        parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    parser.add_argument("--json", action="store_true", help="print JSON, for machines, and no text")
    parser.add_argument("--force", action="store_true", help="replace what is there already")


def add_report(parser: argparse.ArgumentParser, where: str) -> None:
    """Whether and where to write the page about it."""
    report = parser.add_mutually_exclusive_group()
    report.add_argument(
        "--report", type=Path, metavar="HTML", help=f"where to write it (default: {where})"
    )
    report.add_argument("--no-report", action="store_true", help="write no report")


def report_path(
    options: argparse.Namespace, default: Path, made: Path | None = None
) -> Path | None:
    """Where to, if a report is wanted and can be made.

    Args:
        options: Of the command.
        default: Where to unless told otherwise.
        made: A folder that will be there by then.

    Raises:
        ValueError: It cannot be written there.
    """
    if options.no_report:
        return None
    from biv.report.page import has_plotly, require_plotly

    if not has_plotly():
        if options.report is not None:
            require_plotly()
        note("no report: it needs plotly (pip install plotly)")
        return None
    if options.report is None:
        return default
    return checked_path(Path(options.report), "--report", (".html", ".htm"), options.force, made)


def checked_path(
    path: Path, option: str, suffixes: Sequence[str], force: bool, made: Path | None = None
) -> Path:
    """A file that can be written, before the work and not after it.

    Raises:
        ValueError: It is there already, or cannot be.
    """
    if path.suffix.lower() not in suffixes:
        raise ValueError(f"{option} must end in {' or '.join(suffixes)}; got {path}")
    if path.exists() and not force:
        raise ValueError(f"{path} is there already: --force replaces it")
    if not path.parent.is_dir() and path.parent != made:
        raise ValueError(f"{path.parent} is not a folder")
    return path


def free_path(stem: str, suffix: str, *, force: bool) -> Path:
    """The first of stem, stem-2, stem-3, ... that is not there."""
    names = (f"{stem}{f'-{k}' if k > 1 else ''}{suffix}" for k in range(1, 1_000_000))
    return next(Path(name) for name in names if force or not Path(name).exists())


def require_libraries() -> None:
    """Before the work, not after it.

    Raises:
        ValueError: It says what to install.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"this needs {', '.join(missing)}: pip install 'biv[command]'")


def read(options: argparse.Namespace) -> LabelledTable:
    """The table that the options name, with a bar; what was left out is said."""
    require_libraries()
    from biv._utils.progress import progress_bar
    from biv.tables import LabelledTable
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
        note(f"{table.unlabelled:,} rows have no {shortened(options.target)} and were left out")
    for remark in column_remarks(table.schema, table.features, options.keep):
        note(remark)
    source = ", ".join(map(str, list(table.files)[:COLUMNS_SHOWN]))
    require_no_copies(source, table.target, table.features, table.y, table.ends, options.keep)
    _note_missing(table)
    _note_names(table)
    return table


def _note_missing(table: LabelledTable) -> None:
    gaps = table.features.isna().sum()
    gaps = gaps[gaps > 0]
    if len(gaps):
        shown = ", ".join(
            f"{count:,} in {shortened(name)}" for name, count in gaps[:COLUMNS_SHOWN].items()
        )
        more = f" and {len(gaps) - COLUMNS_SHOWN} more columns" if len(gaps) > COLUMNS_SHOWN else ""
        note(
            f"missing cells: {shown}{more}; a number becomes the median of its column, with a "
            "column that says so, and a category is one of its own"
        )


def _note_names(table: LabelledTable) -> None:
    """What a column is called may tell another kind of error bar; or that it is one at all."""
    target = table.target
    for name, taken, option in (
        (target.variance, STANDARD, "--target-std"),
        (target.std, SQUARED, "--target-var"),
    ):
        if name is not None and taken.search(name.casefold()):
            note(f"by its name, column {shortened(name)} may be for {option} (biv docs error-bars)")
    if target.error_bars:
        for name in _near(target, table.schema.names):
            note(f"column {shortened(name)} is learned from: is it an error bar (--ignore)?")


def note_zeros(table: LabelledTable) -> None:
    """That 0 is taken for what it says."""
    count = 0 if table.variance is None else int((table.variance == 0).sum())
    if count:
        labels = "1 label has" if count == 1 else f"{count:,} labels have"
        note(f"{labels} an error bar of 0, and count most: was that measured, or is it unknown?")


def target(options: argparse.Namespace) -> Target:
    """Where the options say that labels are."""
    from biv.tables import Target

    seed, level = getattr(options, "seed", 0), options.level
    if seed < 0:
        raise ValueError(f"--seed must be 0 or more; got {seed}")
    if seed >= 1 << 32:
        raise ValueError(f"--seed must be less than 2**32; got {seed}")
    if level is not None and not 0 < level < 1:
        raise ValueError(f"--level must be between 0 and 1; got {level:g}")
    interval = options.target_interval and tuple(options.target_interval)
    if options.level is not None and interval is None:
        raise ValueError("--level is that of --target-interval, which is not there")
    return Target(
        options.target,
        options.target_var,
        options.target_std,
        interval,
        0.95 if options.level is None else options.level,
        options.weight,
    )


def described(table: LabelledTable) -> str:
    """What was read, in a line."""
    count = len(table.schema.columns)
    kinds = [column.kind for column in table.schema.columns]
    told = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    files = "1 file" if len(table.files) == 1 else f"{len(table.files)} files"
    columns = "1 column" if count == 1 else f"{count} columns"
    return f"{len(table):,} rows from {files}; {columns} to learn from ({told})"


def note(message: str) -> None:
    """Print something to know, beside the results."""
    print(f"biv: note: {render_text(message, OPTIONS)}", file=sys.stderr, flush=True)


def note_no_error_bars(target: Target, learned_from: Iterable[str]) -> None:
    """That all labels count alike, and which column may have been meant."""
    for name in _near(target, learned_from):
        note(f"column {shortened(name)} is learned from: is it the error bar (--target-std)?")
    note("no error bars were given: all labels count alike, and their noise is in every error")


def _near(target: Target, learned_from: Iterable[str]) -> list[str]:
    """Columns that are called as an error bar of the label would be."""
    label = target.name.casefold()
    return [
        name
        for name in learned_from
        if ERROR_BAR.search(name.casefold().replace(label, "", 1)) and label in name.casefold()
    ]


@contextmanager
def noted_warnings() -> Iterator[None]:
    """Warnings as notes, without the line of code that they come from."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda warning, *_, **__: note(render_text(warning, OPTIONS))
        yield


def written(
    page: Path | None,
    write: Callable[[Path], object],
    otherwise: str,
    choose: Callable[[], Path] | None = None,
) -> Path | None:
    """Write what accompanies a result; if that fails, say so, so that the result is not lost.

    Args:
        page: Where to, if to anywhere.
        write: Writes it.
        otherwise: What is said where it cannot be written: what there is all the same.
        choose: Chooses another name, if another process has taken this one meanwhile.

    Returns:
        Where it is, or None.
    """
    if page is None:
        return None
    while True:
        try:
            write(page)
        except FileExistsError as error:
            if choose is None:
                note(f"{error.filename} is there already: --force replaces it; {otherwise}")
                return None
            page = choose()
        except WriteError as error:
            note(f"{error}; {otherwise}")
            return None
        else:
            return page


def show(options: argparse.Namespace, printed: Mapping[str, Any], text: str) -> None:
    """Print the result, as JSON or as text."""
    if options.json:
        print(json.dumps(printed, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        print(text)
