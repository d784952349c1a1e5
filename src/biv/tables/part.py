"""Consecutive rows of a file: cells as numbers and text, and errors that name the cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv._utils.messages import shortened
from biv._utils.wording import Message

TEXT, PARQUET = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet", ".pq")
MISSING = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-", "?")  # upper case too
NUMBER = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?|nan)$"


class Part(NamedTuple):
    """Consecutive rows of a file.

    Attributes
    ----------
    path : Path
        The file.
    start : int
        Number of rows of the file before this part.
    cells : pyarrow.RecordBatch
        The cells: strings for CSV, typed values for Parquet.
    """

    path: Path
    start: int
    cells: Any

    def __len__(self) -> int:
        return len(self.cells)

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the cells of a column that are not missing.

        A cell is missing if it is null, NaN or, in CSV, one of :data:`MISSING`.
        """
        arrow = require_arrow()
        column = self.cells.column(name)
        known = column.is_valid()
        if kind(self.path) is TEXT:
            cells = arrow.compute.utf8_lower(trimmed(column))
            known = arrow.compute.invert(arrow.compute.is_in(cells, value_set=arrow.array(MISSING)))
        elif arrow.types.is_floating(column.type):
            known = arrow.compute.fill_null(
                arrow.compute.invert(arrow.compute.is_nan(column)), False
            )
        return np.asarray(known.to_numpy(zero_copy_only=False))

    def numbers(self, name: str, expected: str = "a number") -> npt.NDArray[np.float64]:
        """Return a column as numbers, with NaN for missing cells.

        Parameters
        ----------
        name : str
            Name of the column.
        expected : str, default="a number"
            Description of a valid cell for the error message.

        Raises
        ------
        ValueError
            If a cell is not a number.
        """
        values = numbers(self.cells.column(name))
        if np.isnan(values).any():  # otherwise no cell needs a check
            self.refuse(name, np.isnan(values) & self.known(name), expected)
        return values

    def text(self, name: str) -> list[str | None]:
        """Return a column as text without surrounding spaces, with None for missing cells.

        Raises
        ------
        ValueError
            If the column has nested values, such as lists.
        """
        if not holds_scalars(self.cells.column(name)):
            self.refuse(name, np.ones(len(self), dtype=bool), "text, a number or a date")
        cells = trimmed(self.cells.column(name)).to_pylist()
        known = self.known(name)
        return [cell if valid else None for cell, valid in zip(cells, known, strict=True)]

    def refuse(self, name: str, bad: npt.NDArray[np.bool_], expected: str) -> None:
        """Raise an error that names the first bad cell of a column, if there is one.

        Parameters
        ----------
        name : str
            Name of the column.
        bad : ndarray of bool, shape (rows,)
            True for bad cells.
        expected : str
            Description of a valid cell, which follows "must be" in the message.

        Raises
        ------
        ValueError
            If a cell is bad.
        """
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            cell = self.cells.column(name).slice(row, 1)
            try:
                value = str(cell[0].as_py())
            except (ValueError, OverflowError):  # a date outside the range of Python's dates
                value = cell.to_string(skip_new_lines=True).strip("[]")
            raise ValueError(
                Message(
                    "{path}, row {row}, column {name} must be {expected}; got {value}",
                    path=self.path,
                    row=self.start + row + 1,
                    name=shortened(name),
                    expected=expected,
                    value=shortened(value),
                )
            )


def numbers(column: Any) -> npt.NDArray[np.float64]:
    """Return the cells of an Arrow array as numbers, with NaN for cells that are not numbers."""
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
    """Return whether an Arrow array has numbers, text or dates, and not nested or binary values."""
    types = require_arrow().types
    type_ = column.type.value_type if types.is_dictionary(column.type) else column.type
    other = types.is_nested(type_) or types.is_null(type_) or "binary" in str(type_)
    return not other and not isinstance(type_, require_arrow().BaseExtensionType)


def trimmed(column: Any) -> Any:
    """Return an Arrow array as text without surrounding spaces."""
    arrow = require_arrow()
    return arrow.compute.utf8_trim_whitespace(column.cast(arrow.string()))


def kind(path: Path) -> tuple[str, ...] | None:
    """Return :data:`TEXT` or :data:`PARQUET` by the suffix of a name; None for other files."""
    name = path.name.lower()
    return next((kind for kind in (TEXT, PARQUET) if name.endswith(kind)), None)


def require_arrow() -> Any:
    """Return pyarrow, which is imported only when a table is read."""
    try:
        import pyarrow as pa
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(
            "reading tables requires pyarrow: pip install pyarrow, or biv[command]"
        ) from error
    return pa


def require_pandas() -> Any:
    """Return pandas, which is imported only when a table is read."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ValueError(
            "reading tables requires pandas: pip install pandas, or biv[command]"
        ) from error
    return pd
