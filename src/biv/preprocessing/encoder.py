"""From a table with numbers, categories and gaps to a matrix of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils import typed_json
from biv._utils.messages import shortened

Array = npt.NDArray[Any]

MISSING = "\N{SYMBOL FOR NULL}"  # what a missing category is called


@dataclass(frozen=True)
class Numeric:
    """A column of numbers: what is missing becomes the median, with a second column that says so.

    Attributes:
        median: Median of the rows that it was fitted on.
        flagged: Whether any of them was missing; only then is there a second column.
    """

    median: float
    flagged: bool

    def encode(self, values: Array) -> Iterator[Array]:
        """One column or two."""
        missing = np.isnan(values)
        yield np.where(missing, self.median, values)
        if self.flagged:
            yield missing.astype(np.float64)


@dataclass(frozen=True)
class Categorical:
    """A column of categories: one column of 0 and 1 for each that was seen.

    What is missing is a category of its own, if it was seen; a category that was not is 0 in all.

    Attributes:
        values: As text, in order.
    """

    values: tuple[str, ...]

    def encode(self, values: Array) -> Iterator[Array]:
        """As many columns as there are categories."""
        for value in self.values:
            yield (values == value).astype(np.float64)


@dataclass(frozen=True)
class Ignored:
    """A column that is left out, whatever it holds."""

    ignored: bool = True

    def encode(self, values: Array) -> Iterator[Array]:  # noqa: ARG002
        """No column."""
        yield from ()


Rule = Numeric | Categorical | Ignored


class FeatureEncoder:
    """How the columns of a table become numbers; fitted on the training rows.

    Columns of a pandas frame that hold text or categories are categories; truth values are 0 and 1.
    Everything else must be numbers, where NaN is a missing one. Some columns may be ignored.

    Attributes:
        columns: A rule for each column.
        numeric: Which columns of the matrix hold the numbers of the table.

    Example:
        >>> x = np.array([[1.0, 5.0], [np.nan, 6.0], [3.0, 7.0]])
        >>> encoder = FeatureEncoder.fit(x)
        >>> encoder(x)
        array([[1., 0., 5.],
               [2., 1., 6.],
               [3., 0., 7.]])
        >>> encoder.numeric
        (0, 2)
    """

    def __init__(self, columns: tuple[Rule, ...]) -> None:
        self.columns = columns
        self.numeric = tuple(self._numeric())

    def _numeric(self) -> Iterator[int]:
        place = 0
        for column in self.columns:
            if isinstance(column, Numeric):
                yield place
                place += 1 + column.flagged
            elif isinstance(column, Categorical):
                place += len(column.values)

    @classmethod
    def fit(cls, table: Any) -> FeatureEncoder:
        """The rule for each column of a frame or an array."""
        rules: list[Rule] = []
        for _, values in columns_of(table):
            if values.dtype == object:
                rules.append(Categorical(tuple(sorted(set(values.tolist())))))
                continue
            known = values[~np.isnan(values)]
            with np.errstate(over="ignore"):
                median = float(np.median(known)) if len(known) else 0.0
                if np.isinf(median):  # the sum of the middle two
                    median = 2 * float(np.median(known / 2))
            rules.append(Numeric(median, len(known) < len(values)))
        return cls(tuple(rules))

    def ignoring(self, places: Iterable[int]) -> FeatureEncoder:
        """The same without the columns at these places of the table.

        Example:
            >>> x = np.array([[1.0, 5.0], [2.0, 6.0]])
            >>> FeatureEncoder.fit(x).ignoring([0])(x)
            array([[5.],
                   [6.]])
        """
        out = set(places)
        return FeatureEncoder(
            tuple(Ignored() if k in out else rule for k, rule in enumerate(self.columns))
        )

    def __call__(self, table: Any) -> npt.NDArray[np.float64]:
        """The matrix, (N, outputs).

        Raises:
            ValueError: A column of numbers holds text, or the other way round.
        """
        parts: list[Array] = []
        used = [k for k, rule in enumerate(self.columns) if not isinstance(rule, Ignored)]
        for number, column in columns_of(table, used):
            rule = self.columns[number]
            values = (
                _as_categories(column) if isinstance(rule, Categorical) else _as_numbers(column)
            )
            if isinstance(rule, Categorical) != (values.dtype == object):
                kinds = ("numbers", "categories")
                wanted = kinds[isinstance(rule, Categorical)]
                name = shortened(table.columns[number]) if hasattr(table, "columns") else number
                raise ValueError(f"column {name} must hold {wanted}, as in training")
            parts += rule.encode(values)
        return np.stack(parts, axis=1)

    def unseen(self, table: Any) -> dict[str, int]:
        """How many cells of a frame hold a category that was not seen, by column.

        Example:
            >>> import pandas as pd
            >>> encoder = FeatureEncoder.fit(pd.DataFrame({"town": ["Bern", "Basel"]}))
            >>> encoder.unseen(pd.DataFrame({"town": ["Bern", "Zug", "Zug"]}))
            {'town': 2}
        """
        known = {k: set(r.values) for k, r in enumerate(self.columns) if isinstance(r, Categorical)}
        found = {
            table.columns[place]: sum(value not in known[place] for value in _as_categories(values))
            for place, values in columns_of(table, list(known))
        }
        return {name: count for name, count in found.items() if count}

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the columns of the matrix, by those of the table."""
        pairs = zip(columns, self.columns, strict=True)
        return [own for name, rule in pairs for own in _names(name, rule)]

    def place_of(self, number: int) -> int:
        """The column of the table that a column of the matrix comes from."""
        ends = np.cumsum([len(_names("", rule)) for rule in self.columns])
        return int(np.searchsorted(ends, number, side="right"))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rules as JSON."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, content: Sequence[Mapping[str, Any]]) -> FeatureEncoder:
        """Return the encoder that :meth:`to_json` described."""
        return cls(tuple(_rule_from_json(rule) for rule in content))


def _rule_from_json(rule: Mapping[str, Any]) -> Rule:
    if "values" in rule:
        return typed_json.convert(rule, Categorical)
    return (
        typed_json.convert(rule, Ignored)
        if "ignored" in rule
        else typed_json.convert(rule, Numeric)
    )


def _names(name: str, rule: Rule) -> list[str]:
    if isinstance(rule, Categorical):
        return [f"{name}={value}" for value in rule.values]
    return [name, f"{name} is missing"][: 1 + rule.flagged] if isinstance(rule, Numeric) else []


def _as_categories(values: Array) -> Array:
    """A column in which every cell is missing says nothing of its kind: here, categories."""
    if values.dtype != object and np.isnan(values).all():
        return np.full(len(values), MISSING, dtype=object)
    return values


def _as_numbers(values: Array) -> Array:
    """The same, for numbers."""
    if values.dtype == object and (values == MISSING).all():
        return np.full(len(values), np.nan)
    return values


def has_categories(table: Any) -> bool:
    """Whether it is a frame with a column that does not hold numbers."""
    frame = hasattr(table, "iloc") and getattr(table, "ndim", 0) == 2
    return frame and any(dtype.kind not in "fiub" for dtype in table.dtypes)


def columns_of(table: Any, places: Sequence[int] | None = None) -> Iterator[tuple[int, Array]]:
    """Columns as float64, or as objects that hold text, with their places; None means all."""
    frame = hasattr(table, "iloc")
    table = table if frame else np.asarray(table, dtype=np.float64)
    for place in range(table.shape[1]) if places is None else places:
        if not frame:
            yield place, table[:, place]
            continue
        column = table.iloc[:, place]
        if column.dtype.kind in "fiub":
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
            yield place, _finite(values, table.columns[place])
        elif column.dtype.kind == "O":
            missing = column.isna().to_numpy()
            if column.dtype == object and all(isinstance(v, Real) for v in column[~missing]):
                # Numbers that a gap has made objects.
                yield place, _finite(_floats(column, table.columns[place]), table.columns[place])
                continue
            text = np.array([str(value) for value in column], dtype=object)
            text[missing] = MISSING
            yield place, text
        else:
            raise ValueError(
                f"column {shortened(table.columns[place])} must hold numbers, truth values or "
                f"categories; got {column.dtype}: turn dates into numbers first, days say"
            )


def _floats(column: Any, name: object) -> Array:
    try:
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    except OverflowError:
        raise ValueError(
            f"column {shortened(name)} must be finite; got an integer too large"
        ) from None


def _finite(values: Array, name: object) -> Array:
    infinite = np.isinf(values)
    if infinite.any():
        row = int(np.flatnonzero(infinite)[0])
        raise ValueError(f"column {shortened(name)} must be finite; got infinity in row {row}")
    return values
