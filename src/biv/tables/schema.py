"""What the columns of a table mean: numbers, truth values, categories, dates, sequences."""

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
FEW_LETTERS = 30  # of an alphabet: amino acids and a stop, nucleotides
MANY = 100  # distinct texts, in more than half of the filled cells: too many for categories
COUNTED = 20_000  # different texts that are counted at all
NEARLY = 0.9  # of the cells are numbers: then the others are slips
LIKE_IDENTIFIERS = ", as identifiers have"  # ends the reason why such a column is left out


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
        kind = kind_of_type(column)
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
        if not holds_scalars(column):
            if str(column.type) != "null":
                self.odd_type = str(column.type)
            return
        typed = kind_of_type(column)
        if typed is not None:
            self.known += int(part.known(self.name).sum())
            self.kinds &= {typed}
            if typed == "date":
                moments = parse_dates(part, self.name).dropna()
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


def guess_columns(names: Sequence[str], parts: Iterable[Part]) -> list[Guess]:
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
        """By reading all rows once; see :meth:`from_guesses`.

        Raises:
            ValueError: A column of numbers has a cell that is none.
        """
        return cls.from_guesses(
            guess_columns(names, files.parts(names, after_part)), categories, keep
        )

    @classmethod
    def from_guesses(
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
