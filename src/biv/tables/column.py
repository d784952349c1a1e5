"""What the cells of one column mean, and the features that it becomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from biv.tables.part import Part, require_arrow, require_pandas

TRUTHS = {"true": 1.0, "false": 0.0}


MAX_LETTERS = 1000


DAY = 86_400.0


Kind = Literal["number", "truth", "category", "date", "sequence"]


@dataclass(frozen=True)
class Column:
    """What the cells of a column mean, and what becomes of them.

    Attributes:
        name: As in the files.
        kind: "number"; "truth" (true and false, as 1 and 0); "category"; "date" (ISO 8601: the day,
            the day of the year, the day of the week, and the hour if there are any); "sequence"
            (texts of equal length over few letters: a category for each position). A text column
            of which at least 95% of 20 or more filled cells are distinct is left out.
        length: Of a sequence.
        hours: Whether a date has a time of day.
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
        """The columns that it becomes, by name: float64, or pandas' strings.

        Raises:
            ValueError: A cell does not mean what the column does.
        """
        return dict(zip(self.features, getattr(self, f"_{self.kind}")(part), strict=True))

    @property
    def features(self) -> list[str]:
        """Return the names of the columns that it becomes."""
        ends = [""]
        if self.kind == "date":
            ends += [": day of the year", ": day of the week", ": hour"][: 2 + self.hours]
        elif self.kind == "sequence":
            ends = [f"[{place + 1}]" for place in range(self.length)]
        return [f"{self.name}{end}" for end in ends]

    @property
    def holds_text(self) -> bool:
        """Return whether these are categories."""
        return self.kind in ("category", "sequence")

    def _number(self, part: Part) -> Iterator[Any]:
        values = part.numbers(self.name)
        part.refuse(self.name, np.isinf(values), "finite")
        yield values

    def _truth(self, part: Part) -> Iterator[Any]:
        known = part.known(self.name)
        told = part.text(self.name)
        values = np.array([np.nan if t is None else TRUTHS.get(t.lower(), np.nan) for t in told])
        part.refuse(self.name, known & np.isnan(values), "true or false")
        yield values

    def _category(self, part: Part) -> Iterator[Any]:
        yield _text(part.text(self.name))

    def _date(self, part: Part) -> Iterator[Any]:
        moment = parse_dates(part, self.name)
        gone = moment.isna().to_numpy()
        part.refuse(self.name, gone & part.known(self.name), "a date, as in 2024-12-31")
        # Not by nanoseconds, which end in 2262: 9999-12-31 is a date that tables have.
        whole = moment.dt.tz_localize(None).to_numpy().astype("datetime64[ms]").astype(np.float64)
        seconds = np.where(gone, np.nan, whole / 1000)
        yield seconds / DAY
        yield moment.dt.day_of_year.to_numpy(dtype=np.float64)
        yield moment.dt.day_of_week.to_numpy(dtype=np.float64)
        if self.hours:
            yield seconds % DAY / 3600

    def _sequence(self, part: Part) -> Iterator[Any]:
        told = part.text(self.name)
        odd = np.array([t is not None and len(t) != self.length for t in told])
        part.refuse(self.name, odd, f"of {self.length} letters, as in training")
        gone = [None] * self.length
        letters = np.array([gone if t is None else list(t) for t in told], dtype=object)
        for place in range(self.length):
            yield _text(letters[:, place])


def _text(values: Any) -> Any:
    return require_pandas().array(values, dtype="string")


def parse_dates(part: Part, name: str) -> Any:
    """Dates as a pandas series of moments, without a zone in UTC; NaT where a cell is none."""
    pandas, column = require_pandas(), part.cells.column(name)
    cells = column.to_pandas() if kind_of_type(column) == "date" else pandas.Series(part.text(name))
    return pandas.to_datetime(cells, format="ISO8601", utc=True, errors="coerce")


def kind_of_type(column: Any) -> str | None:
    """Of an Arrow array or field with a type that says it; None of text and all others."""
    types = require_arrow().types
    if types.is_boolean(column.type):
        return "truth"
    if types.is_date(column.type) or types.is_timestamp(column.type):
        return "date"
    if types.is_integer(column.type) or types.is_floating(column.type):
        return "number"
    return "number" if types.is_decimal(column.type) else None
