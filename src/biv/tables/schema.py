"""The meaning of a table's columns: numbers, truth values, categories, dates, sequences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from biv._utils import typed_json
from biv._utils.messages import shortened
from biv._utils.wording import Message, Setting
from biv.preprocessing.leakage import is_identifier
from biv.tables.column import MAX_LETTERS, TRUTHS, Column, Kind, kind_of_type, parse_dates
from biv.tables.files import Files
from biv.tables.part import Part, holds_scalars, numbers, require_pandas, trimmed

DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?", re.ASCII
)
LETTERS = re.compile(rf"[A-Za-z*.\-]{{2,{MAX_LETTERS}}}")
FEW_LETTERS = 30  # largest alphabet of a sequence: enough for amino acids with a stop
# A column with more distinct texts than this, and than half its filled cells, is not a category.
MANY = 100
COUNTED = 20_000  # no more distinct texts than this are counted
NEARLY = 0.9  # if this fraction of the cells are numbers, the others are typing errors
# End of the reason why a column is left out. Model folders and the names of checkpoints contain it,
# so its wording is part of their format; messages say it in other words.
LIKE_IDENTIFIERS = ", as identifiers have"


@dataclass
class Guess:
    """What is known so far about the cells of a column; :meth:`column` gives the conclusion."""

    name: str
    kinds: set[str] = field(default_factory=lambda: {"number", "truth", "date", "sequence"})
    known: int = 0
    counted: int = 0  # number of known cells whose distinct texts are in `distinct`
    numbers: int = 0
    hours: bool = False
    lengths: set[int] = field(default_factory=set)
    letters: set[str] = field(default_factory=set)
    distinct: set[str] = field(default_factory=set)
    error: ValueError | None = None  # names the first cell that is not a number
    other_type: str | None = None

    @classmethod
    def by_type(cls, column: Any) -> Guess | None:
        """Return the guess for an Arrow field; None if its type leaves open what the cells mean."""
        kind = kind_of_type(column)
        if kind not in ("number", "truth"):  # only cells show whether dates have hours
            return None
        return cls(column.name, kinds={kind}, known=1)

    def __or__(self, other: Guess) -> Guess:
        """Combine what is known from two parts of the table."""
        return Guess(
            self.name,
            self.kinds & other.kinds,
            self.known + other.known,
            self.counted + other.counted,
            self.numbers + other.numbers,
            self.hours or other.hours,
            self.lengths | other.lengths,
            self.letters | other.letters,
            self.distinct | other.distinct,
            self.error or other.error,
            self.other_type or other.other_type,
        )

    def update(self, part: Part) -> None:
        """Examine the cells of one more part."""
        column = part.cells.column(self.name)
        if not holds_scalars(column):
            if str(column.type) != "null":
                self.other_type = str(column.type)
            return
        typed = kind_of_type(column)
        if typed is not None:
            self.known += int(part.known(self.name).sum())
            self.kinds &= {typed}
            if typed == "date":
                dates = parse_dates(part, self.name).dropna()
                self.hours |= bool((dates.dt.normalize() != dates).any())
            return
        is_number = ~np.isnan(numbers(column))
        self.numbers += int(is_number.sum())
        known = is_number if is_number.all() else part.known(self.name)
        self.known += int(known.sum())
        if known.any() and (self.kinds - {"number"} or len(self.distinct) < COUNTED):
            texts = set(trimmed(column).filter(known).unique().to_pylist())
            self._update_from_texts(texts, int(known.sum()))
        if not is_number[known].all():
            self.kinds -= {"number"}
            self._keep_error(part)

    def _keep_error(self, part: Part) -> None:
        """Keep the error of the first cell that is not a number."""
        if self.error is None:
            try:
                expected = Message(
                    "a number, as nearly all other cells are ({category} allows text)",
                    category=Setting("categories", [self.name]),
                )
                part.numbers(self.name, expected)
            except ValueError as error:
                self.error = error

    def _update_from_texts(self, texts: set[str], cells: int) -> None:
        """Examine the distinct texts of some cells."""
        if len(self.distinct) < COUNTED:
            self.distinct |= texts
            self.counted += cells
        if "truth" in self.kinds and not all(t.lower() in TRUTHS for t in texts):
            self.kinds -= {"truth"}
        if "date" in self.kinds:
            if not all(DATE.fullmatch(t) for t in texts):
                self.kinds -= {"date"}
            self.hours |= any(len(t) > 10 for t in texts)
        if "sequence" in self.kinds:
            self.lengths |= {len(t) for t in texts}
            self.letters |= set().union(*texts)
            alike = len(self.lengths) == 1 and len(self.letters) <= FEW_LETTERS
            if not (alike and all(LETTERS.fullmatch(t) for t in texts)):
                self.kinds -= {"sequence"}

    def column(self, *, keep: bool = False) -> Column | str:
        """Return the rule for the column, or the reason why the column is left out.

        Parameters
        ----------
        keep : bool, default=False
            Whether to learn from the column even if its texts look like identifiers.

        Raises
        ------
        ValueError
            If nearly all cells are numbers and one is not.
        """
        if self.other_type is not None:
            return f"of type {self.other_type}"
        if not self.known:
            return "empty"
        kinds: tuple[Kind, ...] = ("truth", "number", "date")
        for kind in kinds:
            if kind in self.kinds:
                return Column(self.name, kind, hours=self.hours and kind == "date")
        if self.error is not None and self.numbers >= NEARLY * self.known:
            raise self.error
        many = len(self.distinct) > max(MANY, min(self.counted, COUNTED) / 2)
        alike = len(self.lengths) == 1 and len(self.letters) <= FEW_LETTERS
        sequences = many and alike and "sequence" in self.kinds
        left_out = is_identifier(len(self.distinct), self.counted) or (many and not sequences)
        if left_out and not keep:
            return self._like_identifiers(sequences=sequences)
        if sequences:
            return Column(self.name, "sequence", length=max(self.lengths))
        return Column(self.name, "category")

    def _like_identifiers(self, *, sequences: bool) -> str:
        more = " or more" if self.counted < self.known else ""
        texts = f"sequences of {max(self.lengths)} letters" if sequences else "texts"
        cells = f"{self.known:,} filled cell{'s' if self.known > 1 else ''}"
        return f"{len(self.distinct):,}{more} distinct {texts} in {cells}{LIKE_IDENTIFIERS}"


def guess_columns(names: Sequence[str], parts: Iterable[Part]) -> list[Guess]:
    """Examine the cells of some columns in all parts of a table."""
    guesses = [Guess(name) for name in names]
    for part in parts:
        for guess in guesses:
            guess.update(part)
    return guesses


@dataclass(frozen=True)
class Schema:
    """The columns that a model learns from, and their meaning.

    Attributes
    ----------
    columns : tuple of Column
        Rules for the columns, in the order of the files.
    ignored : mapping of str to str
        Columns that are left out, each with the reason.
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
        """Find the meaning of columns by reading all rows once; see :meth:`from_guesses`."""
        return cls.from_guesses(
            guess_columns(names, files.parts(names, after_part)), categories, keep
        )

    @classmethod
    def from_guesses(
        cls, guesses: Sequence[Guess], categories: Sequence[str] = (), keep: Sequence[str] = ()
    ) -> Schema:
        """Decide the meaning of columns from what is known about their cells.

        Parameters
        ----------
        guesses : sequence of Guess
            What is known about each column.
        categories : sequence of str, default=()
            Columns that are categories, whatever their cells.
        keep : sequence of str, default=()
            Columns to learn from even if they look like identifiers.

        Raises
        ------
        ValueError
            If a column of numbers has a cell that is not a number.
        """
        rules = {
            guess.name: Column(guess.name, "category")
            if guess.name in categories
            else guess.column(keep=guess.name in keep)
            for guess in guesses
        }
        return cls(
            tuple(rule for rule in rules.values() if isinstance(rule, Column)),
            {name: rule for name, rule in rules.items() if isinstance(rule, str)},
        )

    @property
    def names(self) -> list[str]:
        """Names of the columns in the files."""
        return [column.name for column in self.columns]

    @property
    def identifiers(self) -> list[str]:
        """Columns that were left out because they look like identifiers."""
        return [n for n, reason in self.ignored.items() if reason.endswith(LIKE_IDENTIFIERS)]

    def left_out(self) -> Iterator[str]:
        """Yield a message per column that was left out: the reason, and how to keep it."""
        for name, reason in self.ignored.items():
            hint: str = ""
            if name in self.identifiers:
                hint = Message(" ({keep} keeps it)", keep=Setting("keep", [name]))
            yield Message(
                "column {name} was left out: {reason}{hint}",
                name=shortened(name),
                reason=reason.replace(LIKE_IDENTIFIERS, ", so it looks like an identifier"),
                hint=hint,
            )

    def __call__(self, part: Part) -> dict[str, Any]:
        """Return the features of a part by name."""
        features: dict[str, Any] = {}
        for column in self.columns:
            new = column(part)
            if both := sorted(set(new) & set(features)):
                raise ValueError(
                    f"{part.path}: two columns give a feature {shortened(both[0])}; leave one of "
                    "them out"
                )
            features |= new
        return features

    def frame(self, part: Part) -> Any:
        """Return the features of a part as a pandas frame."""
        return require_pandas().DataFrame(self(part))

    def to_json(self) -> dict[str, Any]:
        """Return the schema as plain values for JSON."""
        return dict(typed_json.to_json(self))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Schema:
        """Make a schema from the values of :meth:`to_json`."""
        return typed_json.convert(content, cls)
