"""The meaning of a column's cells, and the features that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from biv.tables.part import Part, require_arrow, require_pandas

TRUTHS = {"true": 1.0, "false": 0.0}
MAX_LETTERS = 1000  # in a sequence
DAY = 86_400.0  # seconds

Kind = Literal["number", "truth", "category", "date", "sequence"]


@dataclass(frozen=True)
class Column:
    """Rule that turns a column of a file into features.

    Attributes
    ----------
    name : str
        Name of the column in the files.
    kind : {"number", "truth", "category", "date", "sequence"}
        Meaning of the cells. "truth" is true or false and becomes 1 or 0. "date" is a date in ISO
        8601 and becomes the day, the day of the year, the day of the week and, if `hours`, the
        hour. "sequence" is text of equal length over few letters and becomes a category per
        position.
    length : int, default=0
        Number of letters of a sequence; 0 for other kinds.
    hours : bool, default=False
        Whether the dates have a time of day.
    """

    name: str
    kind: Kind
    length: int = 0
    hours: bool = False

    def __post_init__(self) -> None:
        least = 2 if self.kind == "sequence" else 0
        if not least <= self.length <= MAX_LETTERS:
            raise ValueError(
                f"length must lie in [{least}, {MAX_LETTERS}] for a {self.kind}; got {self.length}"
            )

    def __call__(self, part: Part) -> dict[str, Any]:
        """Return the features of a part of the table.

        Parameters
        ----------
        part : Part
            Rows of the table.

        Returns
        -------
        dict of str to array
            Features by name: float64, or pandas strings for categories.

        Raises
        ------
        ValueError
            If a cell is invalid for the kind of the column.
        """
        return dict(zip(self.features, getattr(self, f"_{self.kind}")(part), strict=True))

    @property
    def features(self) -> list[str]:
        """Return the names of the features."""
        suffixes = [""]
        if self.kind == "date":
            suffixes += [": day of the year", ": day of the week", ": hour"][: 2 + self.hours]
        elif self.kind == "sequence":
            suffixes = [f"[{position + 1}]" for position in range(self.length)]
        return [f"{self.name}{suffix}" for suffix in suffixes]

    @property
    def holds_text(self) -> bool:
        """Return whether the features are categories."""
        return self.kind in ("category", "sequence")

    def _number(self, part: Part) -> Iterator[Any]:
        values = part.numbers(self.name)
        part.refuse(self.name, np.isinf(values), "finite")
        yield values

    def _truth(self, part: Part) -> Iterator[Any]:
        known = part.known(self.name)
        texts = part.text(self.name)
        values = np.array([np.nan if t is None else TRUTHS.get(t.lower(), np.nan) for t in texts])
        part.refuse(self.name, known & np.isnan(values), "true or false")
        yield values

    def _category(self, part: Part) -> Iterator[Any]:
        yield _text(part.text(self.name))

    def _date(self, part: Part) -> Iterator[Any]:
        dates = parse_dates(part, self.name)
        missing = dates.isna().to_numpy()
        part.refuse(self.name, missing & part.known(self.name), "a date, as in 2024-12-31")
        # In milliseconds: nanoseconds end in the year 2262, and tables contain 9999-12-31.
        stamps = dates.dt.tz_localize(None).to_numpy().astype("datetime64[ms]").astype(np.float64)
        seconds = np.where(missing, np.nan, stamps / 1000)
        yield seconds / DAY
        yield dates.dt.day_of_year.to_numpy(dtype=np.float64)
        yield dates.dt.day_of_week.to_numpy(dtype=np.float64)
        if self.hours:
            yield seconds % DAY / 3600

    def _sequence(self, part: Part) -> Iterator[Any]:
        texts = part.text(self.name)
        wrong = np.array([t is not None and len(t) != self.length for t in texts])
        part.refuse(self.name, wrong, f"a text of {self.length} letters, as in training")
        missing = [None] * self.length
        letters = np.array([missing if t is None else list(t) for t in texts], dtype=object)
        for position in range(self.length):
            yield _text(letters[:, position])


def _text(values: Any) -> Any:
    return require_pandas().array(values, dtype="string")


def parse_dates(part: Part, name: str) -> Any:
    """Return dates as a pandas series in UTC, with NaT where a cell is not a date.

    Dates without a time zone are taken as UTC.
    """
    pandas, column = require_pandas(), part.cells.column(name)
    cells = column.to_pandas() if kind_of_type(column) == "date" else pandas.Series(part.text(name))
    return pandas.to_datetime(cells, format="ISO8601", utc=True, errors="coerce")


def kind_of_type(column: Any) -> str | None:
    """Return the kind that the type of an Arrow array or field implies; None for other types."""
    types = require_arrow().types
    if types.is_boolean(column.type):
        return "truth"
    if types.is_date(column.type) or types.is_timestamp(column.type):
        return "date"
    if types.is_integer(column.type) or types.is_floating(column.type):
        return "number"
    return "number" if types.is_decimal(column.type) else None
