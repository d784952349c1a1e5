"""A table with labels and error bars, out of files and into memory."""

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
    """A table in memory, ready to be learned from.

    Attributes:
        features: A pandas frame: numbers, and categories as text.
        y: Labels, (N,).
        variance: σ² of each, NaN where it is unknown; None if there are none.
        weight: Importance of each row, or None.
        rows: Which row of all files each is, from 0 on.
        unlabelled: How many rows had no label, and were left out.
        files: Where they are from, each with its number of rows.
        schema: What the columns mean.
        target: Which of them hold labels.
        ends: Of the labels' intervals, (N, 2); None if error bars are given otherwise.
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
        """The files and the rows that rows of this table are from, for messages."""
        found: dict[Path, list[str]] = {}
        for place in places:
            row = int(self.rows[place])
            for path, count in self.files.items():
                if row < count:
                    found.setdefault(path, []).append(str(row + 1))
                    break
                row -= count
        return "; ".join(
            f"{path}, row{'s' if len(rows) > 1 else ''} {', '.join(rows)}"
            for path, rows in found.items()
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
        r"""Read files twice: once to see what the columns mean, once for their values.

        Args:
            paths: See :class:`biv.tables.files.Files`.
            target: Where the labels are.
            features: Columns to learn from; None for all that `target` does not name.
            ignore: Columns to leave out.
            keep: Columns to learn from even if they look like identifiers; those that `features`
                names are kept anyway.
            categories: Columns whose numbers are names.
            after_part: Is told of so many rows read, each row twice.

        Raises:
            ValueError: A column is missing, a cell is not what it should be, or nothing is left.

        Example:
            >>> import tempfile
            >>> path = Path(tempfile.mkdtemp()) / "data.csv"
            >>> _ = path.write_text("size,y,err\n1,2.5,0.1\n2,,0.1\n3,4.5,0.3\n")
            >>> table = LabelledTable.read(path, Target("y", std="err"))
            >>> len(table), table.unlabelled, table.y.tolist(), table.variance.round(2).tolist()
            (2, 1, [2.5, 4.5], [0.01, 0.09])
        """
        files = Files(paths)
        names = chosen_columns(files, target, features, ignore, keep, categories)
        kept = (*keep, *(features or ()))
        schema = Schema.guess(files, names, categories, kept, after_part)
        require_columns(schema, files)
        found: dict[str, list[Any]] = {}
        counts: dict[Path, int] = {}
        before = unlabelled = 0
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
                "rows": before + np.arange(len(y)),
            } | {f"x {name}": values for name, values in schema(part).items()}
            for name, values in columns.items():
                if values is not None:
                    found.setdefault(name, []).append(values[used])
            counts[part.path] = counts.get(part.path, 0) + len(y)
            before += len(y)
        if before == unlabelled:
            raise ValueError(f"{files} must have rows with a {shortened(target.name)}; got none")
        whole = {name: _joined(found.pop(name)) for name in list(found)}
        target.require_inside(files, whole["y"], whole.get("ends"))
        frame = {n.removeprefix("x "): whole.pop(n) for n in list(whole) if n.startswith("x ")}
        return cls(
            require_pandas().DataFrame(frame),
            whole["y"],
            whole.get("variance"),
            whole.get("weight"),
            whole["rows"],
            unlabelled,
            counts,
            schema,
            target,
            whole.get("ends"),
        )

    def dataset(self) -> Dataset:
        """All of it as numbers: a column for each category, gaps as medians with a column more."""
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
    """The columns to learn from, by what :meth:`LabelledTable.read` is given.

    Raises:
        ValueError: One is not there, or is a label too; or `keep` names one that is left out.
    """
    for name in (*target.names, *(features or ()), *ignore, *keep, *categories):
        files.require_column(name)
    if both := set(features or ()) & set(target.names):
        raise ValueError(f"{shortened(min(both))} cannot be a feature and a label or its error bar")
    if wrong := set(categories) & set(target.names):
        raise ValueError(
            f"{shortened(min(wrong))} cannot be a category and a label or its error bar"
        )
    out = {*target.names, *ignore}
    wanted = files.columns if features is None else dict.fromkeys(features)
    for names, why in (
        (target.names, "is the label, its error bar or its weight"),
        (ignore, "is to be left out too"),
        ([n for n in keep if n not in wanted], "is not among the features"),
    ):
        if both := set(keep) & set(names):
            raise ValueError(f"{shortened(min(both))} cannot be kept: it {why}")
    return [n for n in wanted if n not in out and n.strip()]


def require_columns(schema: Schema, files: Files) -> None:
    """Something must be left to learn from.

    Raises:
        ValueError: Nothing is.
    """
    if not schema.columns and set(schema.ignored.values()) == {"empty"}:
        raise ValueError(f"{files} must have rows with cells to learn from; got none")
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


def _joined(parts: list[Any]) -> Any:
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
    r"""A table with labels and error bars, out of CSV or Parquet files.

    What the columns hold is found out from all their cells. Numbers and truth values stay numbers;
    dates (ISO 8601) become the day, the day of the year, the day of the week and, if there is one,
    the hour; other text is a category, with a column of 0 and 1 for each distinct text. Texts of
    equal length over few letters, more than 100 of them in more than half of the filled cells, are
    sequences: a category for each position.

    A text column is left out, with a warning, if it looks like an identifier: at least 95% of its
    filled cells are distinct (of 20 or more), or it has more than 100 distinct texts, in more than
    half of its filled cells, that are no sequences. `keep` and `features` keep it.

    A cell of CSV is missing if it is empty or one of NA, N/A, NaN, null, None, - and ?; of Parquet,
    if it is null or NaN. A missing number becomes the median of its column, with a column that says
    so; a missing category is one of its own; a row without a label is left out, with a warning; a
    missing error bar is NaN, unknown.

    Args:
        paths: A file, several with the same columns, or a folder of them.
        target: Column of the labels.
        target_var: Column of σ²; or
        target_std: of σ; or
        target_interval: the two with the ends of a confidence interval that holds the label; or
            none of these.
        level: Of the interval.
        features: Columns to learn from; None for all others.
        ignore: Columns to leave out.
        keep: Columns to learn from even if they look like identifiers; those that `features` names
            are kept anyway.
        categories: Columns whose numbers are names, as those of post codes.

    Raises:
        ValueError: A column is missing, or a cell is not what it should be: the message names the
            file, the row (from 1 on, the header not among them), the column and the cell.
        FileNotFoundError: A file is not there.

    Example:
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
    chosen = Target(target, target_var, target_std, target_interval, level)
    table = LabelledTable.read(
        paths, chosen, features=features, ignore=ignore, keep=keep, categories=categories
    )
    if table.unlabelled:
        warn(f"{table.unlabelled} rows have no {shortened(target)} and were left out")
    for remark in table.schema.left_out():
        warn(remark)
    return table.dataset()
