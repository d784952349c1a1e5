"""Tables with labels and error bars that are read from files into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils.messages import shortened
from biv._utils.pages import errors_point_to
from biv._utils.warnings import warn
from biv._utils.wording import Message, Setting
from biv.preprocessing.encoder import FeatureEncoder
from biv.tables.dataset import Dataset
from biv.tables.files import Files
from biv.tables.part import require_pandas
from biv.tables.schema import Schema
from biv.tables.target import Target

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LabelledTable:
    r"""A table in memory with N labelled rows, ready for training.

    `len(table)` is N. :meth:`read` makes a table from files.

    Attributes
    ----------
    features : pandas.DataFrame
        Features: numbers, and categories as text.
    y : ndarray of shape (N,)
        Labels.
    variance : ndarray of shape (N,) or None
        Variance σ² of each label's noise, in squared label units. NaN is unknown; None means that
        there are no error bars.
    weight : ndarray of shape (N,) or None
        Importance of each row.
    rows : ndarray of int, shape (N,)
        Position of each row among all rows of the files, from 0.
    unlabelled : int
        Number of rows that were left out because they have no label.
    files : dict of Path to int
        Number of rows of each file.
    schema : Schema
        Meaning of the columns.
    target : Target
        Columns of the label, its error bar and its weight.
    ends : ndarray of shape (N, 2) or None, default=None
        Ends of the labels' confidence intervals, in label units; None if the error bars are not
        intervals.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "data.csv"
    >>> _ = path.write_text("size,y,err\n1,2.5,0.1\n2,,0.1\n3,4.5,0.3\n")
    >>> table = LabelledTable.read(path, Target("y", std="err"))
    >>> len(table), table.unlabelled, table.y.tolist(), table.variance.round(2).tolist()
    (2, 1, [2.5, 4.5], [0.01, 0.09])
    """

    features: Any
    y: Floats
    variance: Floats | None
    weight: Floats | None
    rows: npt.NDArray[np.int64]
    unlabelled: int
    files: dict[Path, int]
    schema: Schema
    target: Target
    ends: Floats | None = None

    def __len__(self) -> int:
        return len(self.y)

    def where(self, *places: int) -> str:
        """Return the files and row numbers of some rows of this table, for messages."""
        rows_of_file: dict[Path, list[str]] = {}
        for place in places:
            row = int(self.rows[place])
            for path, count in self.files.items():
                if row < count:
                    rows_of_file.setdefault(path, []).append(str(row + 1))
                    break
                row -= count
        return "; ".join(
            f"{path}, row{'s' if len(rows) > 1 else ''} {', '.join(rows)}"
            for path, rows in rows_of_file.items()
        )

    @classmethod
    def read(
        cls,
        paths: str | Path | Sequence[str | Path],
        target: Target,
        *,
        features: Sequence[str] | None = None,
        ignore: Sequence[str] = (),
        keep: Sequence[str] = (),
        categories: Sequence[str] = (),
        after_part: Callable[[int], object] = lambda _: None,
    ) -> LabelledTable:
        r"""Read a table from CSV or Parquet files.

        The files are read twice: once to find the meaning of the columns, and once for the values.

        Parameters
        ----------
        paths : path or sequence of paths
            Files with the same columns, and folders of such files.
        target : Target
            Columns of the label, its error bar and its weight.
        features : sequence of str, optional
            Columns to learn from. By default all columns that `target` does not name; pass names
            to select some.
        ignore : sequence of str, default=()
            Columns to leave out. Use it for columns that will be unknown in new rows.
        keep : sequence of str, default=()
            Columns to learn from even if they look like identifiers. Columns that `features` names
            are kept in any case.
        categories : sequence of str, default=()
            Numeric columns to treat as categories. Use it for codes, such as post codes.
        after_part : callable, optional
            Function called with the number of rows of each part that has been read, for progress.
            It counts every row twice.

        Returns
        -------
        LabelledTable
            The rows that have a label.

        Raises
        ------
        ValueError
            If a column is missing, a cell is invalid, or no row or column is left.
        FileNotFoundError
            If a file does not exist.

        Examples
        --------
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "data.csv"
        >>> _ = path.write_text("x,day,y,v\n1,2024-03-01,5,4\n2,2024-03-02,6,1\n")
        >>> table = LabelledTable.read(path, Target("y", variance="v"), ignore=["x"])
        >>> list(table.features.columns), table.variance.tolist()
        (['day', 'day: day of the year', 'day: day of the week'], [4.0, 1.0])
        """
        files = Files(paths)
        names = chosen_columns(files, target, features, ignore, keep, categories)
        kept = (*keep, *(features or ()))
        schema = Schema.guess(files, names, categories, kept, after_part)
        require_columns(schema, files)
        collected: dict[str, list[Any]] = {}
        counts: dict[Path, int] = {}
        rows_read = unlabelled = 0
        for part in files.parts([*target.names, *schema.names], after_part):
            y = target.labels(part)
            used = ~np.isnan(y)
            unlabelled += int((~used).sum())
            variance, weight = target.variances(part), target.weights(part)
            target.refuse_extremes(part, y, variance, weight)
            columns = {
                "y": y,
                "variance": variance,
                "weight": weight,
                "ends": target.ends(part),
                "rows": rows_read + np.arange(len(y)),
            } | {f"x {name}": values for name, values in schema(part).items()}
            for name, values in columns.items():
                if values is not None:
                    collected.setdefault(name, []).append(values[used])
            counts[part.path] = counts.get(part.path, 0) + len(y)
            rows_read += len(y)
        if rows_read == unlabelled:
            raise ValueError(f"{files} must have rows with a {shortened(target.name)}; got none")
        # Each list of parts is released as soon as it is concatenated, to save memory.
        arrays = {name: _concatenate(collected.pop(name)) for name in list(collected)}
        target.require_inside(files, arrays["y"], arrays.get("ends"))
        frame = {n.removeprefix("x "): arrays.pop(n) for n in list(arrays) if n.startswith("x ")}
        return cls(
            require_pandas().DataFrame(frame),
            arrays["y"],
            arrays.get("variance"),
            arrays.get("weight"),
            arrays["rows"],
            unlabelled,
            counts,
            schema,
            target,
            arrays.get("ends"),
        )

    def dataset(self) -> Dataset:
        """Return the table as a data set of numbers only.

        Every category becomes a column of 0 and 1. A missing number becomes the median of its
        column, and a further column of 0 and 1 marks it.

        Returns
        -------
        Dataset
            Features, labels and variances of all rows.
        """
        encoder = FeatureEncoder.fit(self.features)
        names = encoder.names(list(self.features.columns))
        return Dataset(
            encoder(self.features),
            self.y,
            self.variance,
            tuple(names),
            source=", ".join(map(str, self.files)),
            licence="that of the files",
        )


def chosen_columns(
    files: Files,
    target: Target,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> list[str]:
    """Return the columns to learn from, given the arguments of :meth:`LabelledTable.read`.

    Raises
    ------
    ValueError
        If a column does not exist, if a feature is a column of the target, or if `keep` names a
        column that is left out.
    """
    for name in (*target.names, *(features or ()), *ignore, *keep, *categories):
        files.require_column(name)
    if both := set(features or ()) & set(target.names):
        raise ValueError(
            f"{shortened(min(both))} is {target.role(min(both))}, so it cannot also be a feature"
        )
    if wrong := set(categories) & set(target.names):
        raise ValueError(
            f"{shortened(min(wrong))} is {target.role(min(wrong))}, so it cannot also be a category"
        )
    excluded = {*target.names, *ignore}
    requested = files.columns if features is None else dict.fromkeys(features)
    for names, reason in (
        (target.names, "is the label, its error bar or its weight"),
        (ignore, "is among the columns to ignore too"),
        ([n for n in keep if n not in requested], "is not among the features"),
    ):
        if both := set(keep) & set(names):
            raise ValueError(f"{shortened(min(both))} cannot be kept: it {reason}")
    return [n for n in requested if n not in excluded and n.strip()]


def require_columns(schema: Schema, files: Files) -> None:
    """Check that at least one column is left to learn from.

    Raises
    ------
    ValueError
        If there is none.
    """
    if not schema.columns and set(schema.ignored.values()) == {"empty"}:
        has_rows = any(len(part) for part in files.parts(list(schema.ignored)[:1]))
        if not has_rows:
            raise ValueError(f"there are no rows in {files}")
        raise ValueError(f"{files}: all cells to learn from are empty")
    if not schema.columns:
        name = next(iter(schema.identifiers), None)
        hint: str = ""
        if name is not None:
            keep, quoted = Setting("keep", [name]), shortened(name)
            hint = Message(" ({keep} keeps {quoted})", keep=keep, quoted=quoted)
        reasons = "".join(
            f"; {shortened(name)} has {schema.ignored[name]}" for name in schema.identifiers
        )
        raise ValueError(
            Message(
                "{files} must have a column to learn from; got none{reasons}{hint}",
                files=files,
                reasons=reasons,
                hint=hint,
            )
        )


def left_out_message(unlabelled: int, label: str) -> str:
    """Return the message that rows without a label were left out."""
    rows = "1 row" if unlabelled == 1 else f"{unlabelled:,} rows"
    return f"left out {rows} without a label in column {shortened(label)}"


def _concatenate(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    pandas = require_pandas()
    return pandas.concat([pandas.Series(part) for part in parts], ignore_index=True).array


@errors_point_to("command")
def read_table(
    paths: str | Path | Sequence[str | Path],
    *,
    target: str,
    target_var: str | None = None,
    target_std: str | None = None,
    target_interval: tuple[str, str] | None = None,
    level: float = 0.95,
    features: Sequence[str] | None = None,
    ignore: Sequence[str] = (),
    keep: Sequence[str] = (),
    categories: Sequence[str] = (),
) -> Dataset:
    r"""Read a table with labels and error bars from CSV or Parquet files.

    Parameters
    ----------
    paths : path or sequence of paths
        A file, several files with the same columns, or a folder of such files.
    target : str
        Column of the labels.
    target_var : str, optional
        Column of the variances σ², in squared label units. Give at most one of `target_var`,
        `target_std` and `target_interval`; without any, the labels have no error bars.
    target_std : str, optional
        Column of the standard deviations σ, in label units.
    target_interval : tuple of (str, str), optional
        Columns of the two ends of a confidence interval around the label, in label units.
    level : float, default=0.95
        Probability that the interval contains the true label. Set it to 0.6827 for errors of one σ.
    features : sequence of str, optional
        Columns to learn from. By default all others; pass names to select some.
    ignore : sequence of str, default=()
        Columns to leave out. Use it for columns that will be unknown in new rows.
    keep : sequence of str, default=()
        Columns to learn from even if they look like identifiers. Columns that `features` names are
        kept in any case.
    categories : sequence of str, default=()
        Numeric columns to treat as categories. Use it for codes, such as post codes.

    Returns
    -------
    Dataset
        Features as numbers, of shape (N, D), with the labels and variances of the N labelled rows.

    Raises
    ------
    ValueError
        If a column is missing or a cell is invalid. The message names the file, the row (counted
        from 1, without the header), the column and the cell.
    FileNotFoundError
        If a file does not exist.

    Notes
    -----
    The kind of a column follows from all its cells:

    - *Numbers* and *true/false* stay numbers.
    - *Dates* (ISO 8601) become the day, the day of the year, the day of the week and, if there is a
      time of day, the hour.
    - *Sequences* become a category per position. A text column holds sequences if it has many
      distinct texts (more than 100, and more than half the number of filled cells), which are of
      equal length and consist of few letters.
    - *Identifiers* are left out, with a warning, unless `keep` or `features` names them. A text
      column is an identifier if it has that many distinct texts and is not a sequence, or if it has
      at least 20 filled cells of which at least 95% are distinct. The latter applies to sequences
      too.
    - *Other text* is a category, with a column of 0 and 1 for each distinct text.

    A cell of CSV is missing if it is empty or one of NA, N/A, NaN, null, None, - and ?. A cell of
    Parquet is missing if it is null or NaN. A missing number becomes the median of its column, and
    a further column of 0 and 1 marks it. A missing category is a category of its own. A row
    without a label is left out, with a warning. A missing error bar is NaN, which means unknown.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "data.csv"
    >>> _ = path.write_text("colour,size,y,err\nred,1,2.5,0.1\nblue,2,3.5,0.1\nred,,4.5,0.3\n")
    >>> data = read_table(path, target="y", target_std="err")
    >>> data.feature_names
    ('colour=blue', 'colour=red', 'size', 'size is missing')
    >>> data.x.tolist()
    [[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 2.0, 0.0], [0.0, 1.0, 1.5, 1.0]]
    >>> data.variance.round(2).tolist()
    [0.01, 0.01, 0.09]
    """
    columns = Target(target, target_var, target_std, target_interval, level)
    table = LabelledTable.read(
        paths, columns, features=features, ignore=ignore, keep=keep, categories=categories
    )
    if table.unlabelled:
        warn(left_out_message(table.unlabelled, target))
    for remark in table.schema.left_out():
        warn(remark)
    return table.dataset()
