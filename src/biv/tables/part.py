"""Consecutive rows of a file: cells as numbers and text; errors name the cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv._utils.messages import shortened
from biv._utils.wording import Message

TEXT, PARQUET = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet", ".pq")


MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-", "?")  # in either case


NUMBER = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)$"


class Part(NamedTuple):
    """Some consecutive rows of a file.

    Attributes:
        path: The file.
        start: How many of its rows come before.
        cells: An Arrow record batch: of CSV the text as it is, of Parquet the cells' types.
    """

    path: Path
    start: int
    cells: Any

    def __len__(self) -> int:
        return len(self.cells)

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Which cells of a column are there: neither null, NaN nor, in CSV, in :data:`MISSING`."""
        arrow = require_arrow()
        column = self.cells.column(name)
        there = column.is_valid()
        if kind(self.path) is TEXT:
            cells = arrow.compute.utf8_lower(trimmed(column))
            there = arrow.compute.invert(arrow.compute.is_in(cells, value_set=arrow.array(MISSING)))
        elif arrow.types.is_floating(column.type):
            there = arrow.compute.fill_null(
                arrow.compute.invert(arrow.compute.is_nan(column)), False
            )
        return np.asarray(there.to_numpy(zero_copy_only=False))

    def numbers(self, name: str, wanted: str = "a number") -> npt.NDArray[np.float64]:
        """A column as numbers; NaN where a cell is missing.

        Raises:
            ValueError: A cell is no number.
        """
        values = numbers(self.cells.column(name))
        if np.isnan(values).any():  # else there is nothing to look for
            self.refuse(name, np.isnan(values) & self.known(name), wanted)
        return values

    def text(self, name: str) -> list[str | None]:
        """A column as text, without spaces around it; None where a cell is missing.

        Raises:
            ValueError: It holds lists or the like.
        """
        if not holds_scalars(self.cells.column(name)):
            self.refuse(name, np.ones(len(self), dtype=bool), "text, a number or a date")
        cells = trimmed(self.cells.column(name)).to_pylist()
        known = self.known(name)
        return [cell if there else None for cell, there in zip(cells, known, strict=True)]

    def refuse(self, name: str, bad: npt.NDArray[np.bool_], wanted: str) -> None:
        """Name the first cell that is bad, if there is one.

        Raises:
            ValueError: There is.
        """
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            cell = self.cells.column(name).slice(row, 1)
            try:
                found = str(cell[0].as_py())
            except (ValueError, OverflowError):  # a date that Python has no room for
                found = cell.to_string(skip_new_lines=True).strip("[]")
            raise ValueError(
                Message(
                    "{path}, row {row}, column {name} must be {wanted}; got {found}",
                    path=self.path,
                    row=self.start + row + 1,
                    name=shortened(name),
                    wanted=wanted,
                    found=shortened(found),
                )
            )


def numbers(column: Any) -> npt.NDArray[np.float64]:
    """The cells of an Arrow array as numbers; NaN where one is none."""
    arrow = require_arrow()
    if not holds_scalars(column):
        return np.full(len(column), np.nan)
    types = arrow.types
    if not types.is_primitive(column.type) or types.is_temporal(column.type):
        column = trimmed(column)
        good = arrow.compute.match_substring_regex(column, NUMBER)
        if not arrow.compute.all(good).as_py():
            column = arrow.compute.if_else(good, column, None)
    values = column.cast(arrow.float64(), safe=False)
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=np.float64)


def holds_scalars(column: Any) -> bool:
    """Whether an Arrow array has numbers, text or dates, and not lists or the like."""
    types = require_arrow().types
    own = column.type.value_type if types.is_dictionary(column.type) else column.type
    odd = types.is_nested(own) or types.is_null(own) or "binary" in str(own)
    return not odd and not isinstance(own, require_arrow().BaseExtensionType)


def trimmed(column: Any) -> Any:
    """An Arrow array as text, without spaces around it."""
    arrow = require_arrow()
    return arrow.compute.utf8_trim_whitespace(column.cast(arrow.string()))


def kind(path: Path) -> tuple[str, ...] | None:
    """:data:`TEXT` or :data:`PARQUET`, by the name; None for anything else."""
    name = path.name.lower()
    return next((kind for kind in (TEXT, PARQUET) if name.endswith(kind)), None)


def require_arrow() -> Any:
    """Arrow, which is imported when a table is read and not before."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError("tables need pyarrow: pip install pyarrow, or biv[command]") from error
    return pa


def require_pandas() -> Any:
    """Pandas, likewise."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ValueError("tables need pandas: pip install pandas, or biv[command]") from error
    return pd
