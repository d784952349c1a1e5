"""What the columns of a table mean: numbers, truth values, categories, dates, sequences."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from biv.datasets.tablefiles import Files, Part, numbers, require_pandas

TRUTHS = {"true": 1.0, "false": 0.0}
DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?", re.ASCII
)
LETTERS = re.compile(r"[A-Za-z*.\-]{2,1000}")
FEW_LETTERS = 30  # of an alphabet: amino acids and a stop, nucleotides
MANY = 100  # different texts, in more than half of the rows: identifiers, or sequences
COUNTED = 20_000  # different texts that are counted at all
NEARLY = 0.9  # of the cells are numbers: then the others are slips
DAY = 86_400.0


@dataclass(frozen=True)
class Column:
    """What the cells of a column mean, and what becomes of them.

    Attributes:
        name: As in the files.
        kind: "number"; "truth" (true and false, as 1 and 0); "category"; "date" (ISO 8601: the day,
            the day of the year, the day of the week, and the hour if there are any); "sequence"
            (texts of equal length over few letters: a category for each position).
        length: Of a sequence.
        hours: Whether a date has a time of day.
    """

    name: str
    kind: str
    length: int = 0
    hours: bool = False

    def __call__(self, part: Part) -> dict[str, Any]:
        """The columns that it becomes, by name: float64, or pandas' strings.

        Raises:
            ValueError: A cell does not mean what the column does.
        """
        return dict(getattr(self, f"_{self.kind}")(part))

    def _number(self, part: Part) -> Iterator[tuple[str, Any]]:
        values = part.numbers(self.name)
        part.refuse(self.name, np.isinf(values), "finite")
        yield self.name, values

    def _truth(self, part: Part) -> Iterator[tuple[str, Any]]:
        column, known = part.frame[self.name], part.known(self.name)
        if column.dtype.kind in "fiub":
            values = numbers(column)
        else:
            values = np.array([TRUTHS.get(str(cell).strip().lower(), np.nan) for cell in column])
        part.refuse(self.name, known & ~np.isin(values, (0.0, 1.0)), "true or false")
        yield self.name, np.where(known, values, np.nan)

    def _category(self, part: Part) -> Iterator[tuple[str, Any]]:
        yield self.name, _text(_told(part, self.name))

    def _date(self, part: Part) -> Iterator[tuple[str, Any]]:
        pandas, known = require_pandas(), part.known(self.name)
        column = part.frame[self.name]
        if column.dtype.kind == "O":
            column = column.where(known, None)
        moment = pandas.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
        part.refuse(self.name, moment.isna().to_numpy() & known, "a date, as in 2024-12-31")
        seconds = (moment - pandas.Timestamp(0, tz="UTC")).dt.total_seconds()
        yield self.name, (seconds / DAY).to_numpy(dtype=np.float64)
        yield f"{self.name}: day of the year", moment.dt.day_of_year.to_numpy(dtype=np.float64)
        yield f"{self.name}: day of the week", moment.dt.day_of_week.to_numpy(dtype=np.float64)
        if self.hours:
            yield f"{self.name}: hour", (seconds % DAY / 3600).to_numpy(dtype=np.float64)

    def _sequence(self, part: Part) -> Iterator[tuple[str, Any]]:
        told = _told(part, self.name)
        odd = np.array([t is not None and len(t) != self.length for t in told])
        part.refuse(self.name, odd, f"of {self.length} letters, as in training")
        gone = [None] * self.length
        letters = np.array([gone if t is None else list(t) for t in told], dtype=object)
        for place in range(self.length):
            yield f"{self.name}[{place + 1}]", _text(letters[:, place])


def _told(part: Part, name: str) -> list[str | None]:
    """The cells as text, without spaces around it; None where one is missing."""
    cells = zip(part.frame[name], part.known(name), strict=True)
    return [str(cell).strip() if there else None for cell, there in cells]


def _text(values: Any) -> Any:
    return require_pandas().array(values, dtype="string")


@dataclass
class _Guess:
    """What the cells of a column have in common, part by part."""

    name: str
    kinds: set[str] = field(default_factory=lambda: {"number", "truth", "date", "sequence"})
    known: int = 0
    rows: int = 0
    numbers: int = 0
    hours: bool = False
    lengths: set[int] = field(default_factory=set)
    letters: set[str] = field(default_factory=set)
    different: set[str] = field(default_factory=set)
    slip: ValueError | None = None

    def look(self, part: Part) -> None:
        column, known = part.frame[self.name], part.known(self.name)
        self.rows += len(column)
        self.known += int(known.sum())
        if column.dtype.kind in "biufM":
            typed = {"b": "truth", "M": "date"}.get(column.dtype.kind, "number")
            self.kinds &= {typed}
            self.numbers += int(known.sum())
            if typed == "date":
                self.hours |= bool((column[known].dt.normalize() != column[known]).any())
            return
        self._read(part, known)
        if known.any() and (self.kinds - {"number"} or len(self.different) < COUNTED):
            self._look_at({str(cell).strip() for cell in column[known]})

    def _read(self, part: Part, known: Any) -> None:
        good = ~np.isnan(numbers(part.frame[self.name][known]))
        self.numbers += int(good.sum())
        if good.all():
            return
        self.kinds -= {"number"}
        if self.slip is None:
            try:
                part.numbers(self.name, "a number, as nearly all others are (or name it category)")
            except ValueError as error:
                self.slip = error

    def _look_at(self, different: set[str]) -> None:
        if len(self.different) < COUNTED:
            self.different |= different
        if "truth" in self.kinds and not all(t.lower() in TRUTHS for t in different):
            self.kinds -= {"truth"}
        if "date" in self.kinds:
            if not all(DATE.fullmatch(t) for t in different):
                self.kinds -= {"date"}
            self.hours |= any(len(t) > 10 for t in different)
        if "sequence" in self.kinds:
            self.lengths |= {len(t) for t in different}
            self.letters |= set().union(*different)
            alike = len(self.lengths) == 1 and len(self.letters) <= FEW_LETTERS
            if not (alike and all(LETTERS.fullmatch(t) for t in different)):
                self.kinds -= {"sequence"}

    def column(self) -> Column | str:
        """The rule, or why there is none.

        Raises:
            ValueError: Nearly all cells are numbers, and one is not.
        """
        if not self.known:
            return "empty"
        for kind in ("truth", "number", "date"):
            if kind in self.kinds:
                return Column(self.name, kind, hours=self.hours and kind == "date")
        many = len(self.different) > max(MANY, min(self.rows, COUNTED) / 2)
        if self.slip is not None and self.numbers >= NEARLY * self.known and self.known > MANY:
            raise self.slip
        if many and "sequence" in self.kinds:
            return Column(self.name, "sequence", length=max(self.lengths))
        if many:
            count = f"{len(self.different)}{' or more' if len(self.different) >= COUNTED else ''}"
            return f"{count} different texts in {self.rows} rows, as identifiers have"
        return Column(self.name, "category")


@dataclass(frozen=True)
class Schema:
    """The columns that a model learns from, and what each means.

    Attributes:
        columns: In the order of the files.
        ignored: Others, each with the reason.
    """

    columns: tuple[Column, ...]
    ignored: Mapping[str, str]

    @classmethod
    def guess(
        cls,
        files: Files,
        names: Sequence[str],
        categories: Sequence[str] = (),
        after_part: Any = lambda _: None,
    ) -> Schema:
        """By reading all rows once; `categories` are taken for what they are.

        Raises:
            ValueError: A column of numbers has a cell that is none.
        """
        guesses = [_Guess(name) for name in names]
        for part in files.parts(names, after_part):
            for guess in guesses:
                guess.look(part)
        found = {
            own.name: Column(own.name, "category") if own.name in categories else own.column()
            for own in guesses
        }
        return cls(
            tuple(rule for rule in found.values() if isinstance(rule, Column)),
            {name: rule for name, rule in found.items() if isinstance(rule, str)},
        )

    @property
    def names(self) -> list[str]:
        """Of the columns in the files."""
        return [column.name for column in self.columns]

    def __call__(self, part: Part) -> dict[str, Any]:
        """The features of a part, column by column."""
        features: dict[str, Any] = {}
        for column in self.columns:
            features |= column(part)
        return features

    def frame(self, part: Part) -> Any:
        """The same as a pandas frame."""
        return require_pandas().DataFrame(self(part))

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"columns": [asdict(c) for c in self.columns], "ignored": dict(self.ignored)}

    @classmethod
    def from_told(cls, told: Mapping[str, Any]) -> Schema:
        """Back from JSON."""
        return cls(tuple(Column(**c) for c in told["columns"]), dict(told["ignored"]))
