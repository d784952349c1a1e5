"""Encode a table of numbers, categories and missing values as a matrix of numbers."""

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

MISSING = "\N{SYMBOL FOR NULL}"  # the name of a missing category


@dataclass(frozen=True)
class Numeric:
    """Rule for a column of numbers: fill missing values with the median and flag them.

    Attributes
    ----------
    median : float
        Median of the rows that the rule was fitted on.
    flagged : bool
        True if a value of these rows was missing. A second column then is 1 where one is missing.
    """

    median: float
    flagged: bool

    def encode(self, values: Array) -> Iterator[Array]:
        """Yield one column, or two if `flagged`."""
        missing = np.isnan(values)
        yield np.where(missing, self.median, values)
        if self.flagged:
            yield missing.astype(np.float64)


@dataclass(frozen=True)
class Categorical:
    """Rule for a column of categories: one column of 0 and 1 per category.

    Missing values are a category of their own if there were any in fitting. A category that was not
    seen in fitting is 0 in every column.

    Attributes
    ----------
    values : tuple of str
        The categories as text, sorted.
    """

    values: tuple[str, ...]

    def encode(self, values: Array) -> Iterator[Array]:
        """Yield one column per category."""
        for value in self.values:
            yield (values == value).astype(np.float64)


@dataclass(frozen=True)
class Ignored:
    """Rule for a column that is left out, whatever it holds."""

    ignored: bool = True

    def encode(self, values: Array) -> Iterator[Array]:  # noqa: ARG002
        """Yield nothing."""
        yield from ()


Rule = Numeric | Categorical | Ignored


class FeatureEncoder:
    """Encoder of the columns of a table as numbers, fitted on the training rows.

    Columns of a pandas frame that hold text or categories become one column of 0 and 1 per
    category. Booleans become 0 and 1. All other columns must hold numbers. A missing number (NaN)
    becomes the median of its column, and a further column flags it.

    Make an encoder with :meth:`fit` and call it with a table to encode. To leave out columns, use
    :meth:`ignoring`.

    Attributes
    ----------
    columns : tuple of rules
        One rule per column of the table.
    numeric : tuple of int
        Indices of the columns of the encoded matrix that hold the numbers of the table.

    Examples
    --------
    >>> import numpy as np
    >>> from biv.preprocessing import FeatureEncoder
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
        index = 0
        for rule in self.columns:
            if isinstance(rule, Numeric):
                yield index
                index += 1 + rule.flagged
            elif isinstance(rule, Categorical):
                index += len(rule.values)

    @classmethod
    def fit(cls, table: Any) -> FeatureEncoder:
        """Return an encoder with one rule per column of a table.

        Parameters
        ----------
        table : DataFrame or array-like of shape (N, columns)
            The training rows.

        Returns
        -------
        FeatureEncoder
            The fitted encoder.

        Raises
        ------
        ValueError
            A column holds infinite values, or neither numbers, booleans nor categories.
        """
        rules: list[Rule] = []
        for _, values in columns_of(table):
            if values.dtype == object:
                rules.append(Categorical(tuple(sorted(set(values.tolist())))))
                continue
            known = values[~np.isnan(values)]
            with np.errstate(over="ignore"):
                median = float(np.median(known)) if len(known) else 0.0
                if np.isinf(median):  # the sum of the middle two values overflowed
                    median = 2 * float(np.median(known / 2))
            rules.append(Numeric(median, len(known) < len(values)))
        return cls(tuple(rules))

    def ignoring(self, places: Iterable[int]) -> FeatureEncoder:
        """Return an encoder that ignores some columns of the table.

        Parameters
        ----------
        places : iterable of int
            Indices of the columns to ignore.

        Returns
        -------
        FeatureEncoder
            An encoder with the same rules for the other columns.

        Examples
        --------
        >>> x = np.array([[1.0, 5.0], [2.0, 6.0]])
        >>> FeatureEncoder.fit(x).ignoring([0])(x)
        array([[5.],
               [6.]])
        """
        ignored = set(places)
        return FeatureEncoder(
            tuple(Ignored() if k in ignored else rule for k, rule in enumerate(self.columns))
        )

    def __call__(self, table: Any) -> npt.NDArray[np.float64]:
        """Return the table encoded as a matrix of numbers.

        Parameters
        ----------
        table : DataFrame or array-like of shape (N, columns)
            A table with the columns of the one that the encoder was fitted on.

        Returns
        -------
        ndarray of shape (N, outputs)
            The encoded rows.

        Raises
        ------
        ValueError
            A column of numbers holds categories, or a column of categories holds numbers.
        """
        parts: list[Array] = []
        used = [k for k, rule in enumerate(self.columns) if not isinstance(rule, Ignored)]
        for index, column in columns_of(table, used):
            rule = self.columns[index]
            values = (
                _as_categories(column) if isinstance(rule, Categorical) else _as_numbers(column)
            )
            if isinstance(rule, Categorical) != (values.dtype == object):
                kinds = ("numbers", "categories")
                expected = kinds[isinstance(rule, Categorical)]
                name = shortened(table.columns[index]) if hasattr(table, "columns") else index
                raise ValueError(f"column {name} must hold {expected}, as in training")
            parts += rule.encode(values)
        return np.stack(parts, axis=1)

    def unseen(self, table: Any) -> dict[str, int]:
        """Return the number of cells per column whose category was not seen in fitting.

        Parameters
        ----------
        table : DataFrame
            A table with the columns of the one that the encoder was fitted on.

        Returns
        -------
        dict of str to int
            Number of cells by column, for the columns that have any.

        Examples
        --------
        >>> import pandas as pd
        >>> encoder = FeatureEncoder.fit(pd.DataFrame({"town": ["Bern", "Basel"]}))
        >>> encoder.unseen(pd.DataFrame({"town": ["Bern", "Zug", "Zug"]}))
        {'town': 2}
        """
        known = {k: set(r.values) for k, r in enumerate(self.columns) if isinstance(r, Categorical)}
        counts = {
            table.columns[index]: sum(value not in known[index] for value in _as_categories(values))
            for index, values in columns_of(table, list(known))
        }
        return {name: count for name, count in counts.items() if count}

    def names(self, columns: Sequence[str]) -> list[str]:
        """Return the names of the columns of the encoded matrix, made from those of the table.

        Parameters
        ----------
        columns : sequence of str
            Names of the columns of the table.

        Returns
        -------
        list of str
            One name per column of the matrix.

        Examples
        --------
        >>> x = np.array([[1.0, 5.0], [np.nan, 6.0]])
        >>> FeatureEncoder.fit(x).names(["age", "height"])
        ['age', 'age is missing', 'height']
        """
        pairs = zip(columns, self.columns, strict=True)
        return [output for name, rule in pairs for output in _names(name, rule)]

    def place_of(self, number: int) -> int:
        """Return the index of the table's column that a column of the encoded matrix comes from.

        Parameters
        ----------
        number : int
            Index of a column of the matrix.

        Returns
        -------
        int
            Index of a column of the table.

        Examples
        --------
        >>> x = np.array([[1.0, 5.0], [np.nan, 6.0]])
        >>> [FeatureEncoder.fit(x).place_of(k) for k in range(3)]
        [0, 0, 1]
        """
        ends = np.cumsum([len(_names("", rule)) for rule in self.columns])
        return int(np.searchsorted(ends, number, side="right"))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the rules as a list of dicts that can be written as JSON.

        Returns
        -------
        list of dict
            One dict per column of the table.

        Examples
        --------
        >>> FeatureEncoder.fit(np.array([[1.0], [3.0]])).to_json()
        [{'median': 2.0, 'flagged': False}]
        """
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, content: Sequence[Mapping[str, Any]]) -> FeatureEncoder:
        """Return the encoder from the content that :meth:`to_json` returned.

        Parameters
        ----------
        content : sequence of dict
            One dict per column of the table.

        Returns
        -------
        FeatureEncoder
            An encoder with these rules.
        """
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
    """Return a column in which every cell is missing as categories, and any other as it is."""
    if values.dtype != object and np.isnan(values).all():
        return np.full(len(values), MISSING, dtype=object)
    return values


def _as_numbers(values: Array) -> Array:
    """Return a column in which every cell is missing as numbers, and any other as it is."""
    if values.dtype == object and (values == MISSING).all():
        return np.full(len(values), np.nan)
    return values


def has_categories(table: Any) -> bool:
    """Return whether `table` is a frame with a column that does not hold numbers."""
    is_frame = hasattr(table, "iloc") and getattr(table, "ndim", 0) == 2
    return is_frame and any(dtype.kind not in "fiub" for dtype in table.dtypes)


def columns_of(table: Any, places: Sequence[int] | None = None) -> Iterator[tuple[int, Array]]:
    """Yield the index and the values of each column, as float64 or as text in an object array.

    `places` holds the indices of the columns to yield; None means all columns.
    """
    is_frame = hasattr(table, "iloc")
    table = table if is_frame else np.asarray(table, dtype=np.float64)
    for index in range(table.shape[1]) if places is None else places:
        if not is_frame:
            yield index, table[:, index]
            continue
        column = table.iloc[:, index]
        if column.dtype.kind in "fiub":
            values = column.to_numpy(dtype=np.float64, na_value=np.nan)
            yield index, _finite(values, table.columns[index])
        elif column.dtype.kind == "O":
            missing = column.isna().to_numpy()
            if column.dtype == object and all(isinstance(v, Real) for v in column[~missing]):
                # Numbers become objects where a cell of the column is missing.
                yield index, _finite(_floats(column, table.columns[index]), table.columns[index])
                continue
            text = np.array([str(value) for value in column], dtype=object)
            text[missing] = MISSING
            yield index, text
        else:
            raise ValueError(
                f"column {shortened(table.columns[index])} must hold numbers, booleans or "
                f"categories; got {column.dtype}: convert dates to numbers first, such as days"
            )


def _floats(column: Any, name: object) -> Array:
    try:
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    except OverflowError:
        raise ValueError(
            f"column {shortened(name)} must be finite; got an integer that is too large"
        ) from None


def _finite(values: Array, name: object) -> Array:
    infinite = np.isinf(values)
    if infinite.any():
        row = int(np.flatnonzero(infinite)[0])
        raise ValueError(f"column {shortened(name)} must be finite; got infinity in row {row}")
    return values
