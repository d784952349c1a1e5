"""What the columns of a table mean: numbers, truth values, categories, dates, sequences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from biv._utils import typed_json
from biv._utils.messages import shortened
from biv._utils.wording import Message, Setting
from biv.preprocessing.leakage import is_identifier
from biv.tables.files import (
    Files,
    Part,
    holds_cells,
    numbers,
    require_arrow,
    require_pandas,
    trimmed,
)

TRUTHS = {"true": 1.0, "false": 0.0}
DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?", re.ASCII
)
MOST_LETTERS = 1000
LETTERS = re.compile(rf"[A-Za-z*.\-]{{2,{MOST_LETTERS}}}")
FEW_LETTERS = 30  # of an alphabet: amino acids and a stop, nucleotides
MANY = 100  # distinct texts, in more than half of the filled cells: too many for categories
COUNTED = 20_000  # different texts that are counted at all
NEARLY = 0.9  # of the cells are numbers: then the others are slips
DAY = 86_400.0
Kind = Literal["number", "truth", "category", "date", "sequence"]
LIKE_IDENTIFIERS = ", as identifiers have"  # ends the reason why such a column is left out


@dataclass(frozen=True)
class Column:
    """What the cells of a column mean, and what becomes of them.

    Attributes:
        name: As in the files.
        kind: "number"; "truth" (true and false, as 1 and 0); "category"; "date" (ISO 8601: the day,
            the day of the year, the day of the week, and the hour if there are any); "sequence"
            (texts of equal length over few letters: a category for each position). A text column
            of which at least 95 % of 20 or more filled cells are distinct is left out.
        length: Of a sequence.
        hours: Whether a date has a time of day.
    """

    name: str
    kind: Kind
    length: int = 0
    hours: bool = False

    def __post_init__(self) -> None:
        least = 2 if self.kind == "sequence" else 0
        if not least <= self.length <= MOST_LETTERS:
            raise ValueError(
                f"length must lie in [{least}, {MOST_LETTERS}] for a {self.kind}; "
                f"found {self.length}"
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
        moment = _moments(part, self.name)
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


def _moments(part: Part, name: str) -> Any:
    """Dates as a pandas series of moments, without a zone in UTC; NaT where a cell is none."""
    pandas, column = require_pandas(), part.cells.column(name)
    cells = column.to_pandas() if _kind(column) == "date" else pandas.Series(part.text(name))
    return pandas.to_datetime(cells, format="ISO8601", utc=True, errors="coerce")


def _kind(column: Any) -> str | None:
    """Of an Arrow array or field with a type that says it; None of text and all others."""
    types = require_arrow().types
    if types.is_boolean(column.type):
        return "truth"
    if types.is_date(column.type) or types.is_timestamp(column.type):
        return "date"
    if types.is_integer(column.type) or types.is_floating(column.type):
        return "number"
    return "number" if types.is_decimal(column.type) else None


@dataclass
class Guess:
    """What the cells of a column have in common, part by part; see :meth:`column`."""

    name: str
    kinds: set[str] = field(default_factory=lambda: {"number", "truth", "date", "sequence"})
    known: int = 0
    counted: int = 0  # of the known cells, those whose distinct texts are in `different`
    numbers: int = 0
    hours: bool = False
    lengths: set[int] = field(default_factory=set)
    letters: set[str] = field(default_factory=set)
    different: set[str] = field(default_factory=set)
    slip: ValueError | None = None
    odd_type: str | None = None

    @classmethod
    def by_type(cls, column: Any) -> Guess | None:
        """Of an Arrow field whose type says it all; None where cells must be looked at."""
        kind = _kind(column)
        if kind not in ("number", "truth"):  # a date may or may not have hours
            return None
        return cls(column.name, kinds={kind}, known=1)

    def __or__(self, other: Guess) -> Guess:
        """Of the cells of two parts together."""
        return Guess(
            self.name,
            self.kinds & other.kinds,
            self.known + other.known,
            self.counted + other.counted,
            self.numbers + other.numbers,
            self.hours or other.hours,
            self.lengths | other.lengths,
            self.letters | other.letters,
            self.different | other.different,
            self.slip or other.slip,
            self.odd_type or other.odd_type,
        )

    def look(self, part: Part) -> None:
        """At the cells of one more part."""
        column = part.cells.column(self.name)
        if not holds_cells(column):
            if str(column.type) != "null":
                self.odd_type = str(column.type)
            return
        typed = _kind(column)
        if typed is not None:
            self.known += int(part.known(self.name).sum())
            self.kinds &= {typed}
            if typed == "date":
                moments = _moments(part, self.name).dropna()
                self.hours |= bool((moments.dt.normalize() != moments).any())
            return
        good = ~np.isnan(numbers(column))
        self.numbers += int(good.sum())
        there = good if good.all() else part.known(self.name)
        self.known += int(there.sum())
        if there.any() and (self.kinds - {"number"} or len(self.different) < COUNTED):
            texts = set(trimmed(column).filter(there).unique().to_pylist())
            self._look_at(texts, int(there.sum()))
        if not good[there].all():
            self.kinds -= {"number"}
            self._remember(part)

    def _remember(self, part: Part) -> None:
        if self.slip is None:
            try:
                wanted = Message(
                    "a number, as nearly all others are (or {category})",
                    category=Setting("categories", [self.name]),
                )
                part.numbers(self.name, wanted)
            except ValueError as error:
                self.slip = error

    def _look_at(self, different: set[str], cells: int) -> None:
        if len(self.different) < COUNTED:
            self.different |= different
            self.counted += cells
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

    def column(self, *, keep: bool = False) -> Column | str:
        """The rule, or why the column is left out.

        Args:
            keep: Whether to learn from it even if its texts are like those of identifiers.

        Raises:
            ValueError: Nearly all cells are numbers, and one is not.
        """
        if self.odd_type is not None:
            return f"of type {self.odd_type}"
        if not self.known:
            return "empty"
        kinds: tuple[Kind, ...] = ("truth", "number", "date")
        for kind in kinds:
            if kind in self.kinds:
                return Column(self.name, kind, hours=self.hours and kind == "date")
        if self.slip is not None and self.numbers >= NEARLY * self.known:
            raise self.slip
        many = len(self.different) > max(MANY, min(self.counted, COUNTED) / 2)
        alike = len(self.lengths) == 1 and len(self.letters) <= FEW_LETTERS
        sequences = many and alike and "sequence" in self.kinds
        left_out = is_identifier(len(self.different), self.counted) or (many and not sequences)
        if left_out and not keep:
            return self._like_identifiers(sequences=sequences)
        if sequences:
            return Column(self.name, "sequence", length=max(self.lengths))
        return Column(self.name, "category")

    def _like_identifiers(self, *, sequences: bool) -> str:
        more = " or more" if self.counted < self.known else ""
        texts = f"sequences of {max(self.lengths)} letters" if sequences else "texts"
        cells = f"{self.known:,} filled cell{'s' if self.known > 1 else ''}"
        return f"{len(self.different):,}{more} distinct {texts} in {cells}{LIKE_IDENTIFIERS}"


def looked_at(names: Sequence[str], parts: Iterable[Part]) -> list[Guess]:
    """What the cells of each column have in common."""
    guesses = [Guess(name) for name in names]
    for part in parts:
        for guess in guesses:
            guess.look(part)
    return guesses


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
        keep: Sequence[str] = (),
        after_part: Any = lambda _: None,
    ) -> Schema:
        """By reading all rows once; see :meth:`agreed`.

        Raises:
            ValueError: A column of numbers has a cell that is none.
        """
        return cls.agreed(looked_at(names, files.parts(names, after_part)), categories, keep)

    @classmethod
    def agreed(
        cls, guesses: Sequence[Guess], categories: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Schema:
        """By what was seen of each column.

        Args:
            guesses: What was seen.
            categories: Columns that are categories, whatever they hold.
            keep: Columns to learn from even if they look like identifiers.

        Raises:
            ValueError: A column of numbers has a cell that is none.
        """
        found = {
            own.name: Column(own.name, "category")
            if own.name in categories
            else own.column(keep=own.name in keep)
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

    @property
    def identifiers(self) -> list[str]:
        """Columns that were left out because they look like identifiers."""
        return [n for n, reason in self.ignored.items() if reason.endswith(LIKE_IDENTIFIERS)]

    def left_out(self) -> Iterator[str]:
        """Say of each column that was left out why, and how to keep it."""
        for name, reason in self.ignored.items():
            hint: str = ""
            if name in self.identifiers:
                hint = Message(" ({keep} keeps it)", keep=Setting("keep", [name]))
            yield Message(
                "column {name} was left out: {reason}{hint}",
                name=shortened(name),
                reason=reason,
                hint=hint,
            )

    def __call__(self, part: Part) -> dict[str, Any]:
        """The features of a part, column by column."""
        features: dict[str, Any] = {}
        for column in self.columns:
            own = column(part)
            if both := sorted(set(own) & set(features)):
                raise ValueError(
                    f"{part.path}: two columns give a feature {shortened(both[0])}: leave one of "
                    "them out"
                )
            features |= own
        return features

    def frame(self, part: Part) -> Any:
        """The same as a pandas frame."""
        return require_pandas().DataFrame(self(part))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return dict(typed_json.to_json(self))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Schema:
        """Return the schema that JSON describes."""
        return typed_json.convert(content, cls)
