"""Statistics of a table larger than memory, collected in one pass before training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils import validation
from biv._utils.wording import Message, Setting
from biv.preprocessing.encoder import MISSING, Categorical, FeatureEncoder, Numeric
from biv.preprocessing.scaling import SQUARABLE, FeatureScaler, LabelScaler
from biv.tables.part import Part, require_pandas
from biv.tables.row_groups import RowGroups
from biv.tables.schema import Schema
from biv.tables.statistics import LabelGroups, Moments
from biv.tables.target import Target

Floats = npt.NDArray[np.float64]

KNOWN = Message(
    "known ({median} replaces missing error bars by the median of the known ones)",
    median=Setting("unknown_variance", "median"),
)
MAX_HELD_OUT, HELD_OUT_FRACTION = 65_536, 0.1  # at most so many rows, and this fraction


@dataclass(frozen=True, eq=False)
class Rows:
    """N rows with a label, in the units of their table.

    Attributes
    ----------
    features : pandas.DataFrame
        Features.
    y : ndarray of shape (N,)
        Labels.
    variance : ndarray of shape (N,) or None
        Variance σ² of each label's noise, in squared label units.
    weight : ndarray of shape (N,) or None
        Importance of each row.
    places : ndarray of int, shape (N,)
        Position of each row in the table, from 0.
    ends : ndarray of shape (N, 2) or None, default=None
        Ends of the labels' intervals.
    """

    features: Any
    y: Floats
    variance: Floats | None
    weight: Floats | None
    places: npt.NDArray[np.int64]
    ends: Floats | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, which: npt.NDArray[Any]) -> Rows:
        """Return some of the rows, selected by position or by a Boolean mask."""
        frame = self.features.take(np.flatnonzero(which) if which.dtype == bool else which)
        variance, weight, ends = (
            c if c is None else c[which] for c in (self.variance, self.weight, self.ends)
        )
        return Rows(
            frame.reset_index(drop=True), self.y[which], variance, weight, self.places[which], ends
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Rows]) -> Rows:
        """Concatenate the rows of several parts."""
        frame = require_pandas().concat([part.features for part in parts], ignore_index=True)

        def column(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else np.concatenate(values)

        names = ("y", "variance", "weight", "places", "ends")
        return cls(frame, *(column(name) for name in names))


@dataclass(frozen=True, eq=False)
class Reader:
    """Reader of row groups of a table.

    Attributes
    ----------
    groups : RowGroups
        Row groups of the table.
    schema : Schema
        Meaning of the columns.
    target : Target
        Columns of the label, its error bar and its weight.
    unknown : {"raise", "median"}, default="raise"
        Treatment of missing error bars.
    seed : int, default=0
        Seed of the choice of held-out rows.
    """

    groups: RowGroups
    schema: Schema
    target: Target
    unknown: str = "raise"
    seed: int = 0

    def __post_init__(self) -> None:
        validation.integer("seed", self.seed, at_least=0)

    @property
    def held_out_fraction(self) -> float:
        """Fraction of the rows that is held out."""
        return min(HELD_OUT_FRACTION, MAX_HELD_OUT / self.groups.rows)

    def read(self, number: int) -> tuple[Rows, npt.NDArray[np.bool_], int]:
        """Read the labelled rows of a group.

        Rows without influence, of infinite variance or weight 0, are left out too.

        Returns
        -------
        rows : Rows
            Rows with a label.
        held_out : ndarray of bool
            True for the rows that are held out.
        unlabelled : int
            Number of rows without a label.
        """
        part = self.groups.read(number, [*self.target.names, *self.schema.names])
        y = self.target.labels(part)
        variance, weight = self.target.variances(part), self.target.weights(part)
        self.target.refuse_extremes(part, y, variance, weight)
        used = ~np.isnan(y)
        unlabelled = int((~used).sum())
        if variance is not None:
            self._require_known(part, np.isnan(variance) & used)
            used &= ~np.isinf(variance)
        if weight is not None:
            used &= weight > 0
        places = self.groups.rows_before(number) + np.arange(len(y))
        frame = self.schema.frame(part)
        for column in self.schema.columns:
            if column.kind == "number":
                huge = np.abs(frame[column.name].to_numpy()) > 1 / SQUARABLE
                part.refuse(column.name, huge, f"at most {1 / SQUARABLE:g} in magnitude")
        rows = Rows(frame, y, variance, weight, places, self.target.ends(part))
        drawn = np.random.default_rng([self.seed, number]).random(len(y))
        held_out = drawn < self.held_out_fraction
        if used.all():
            return rows, held_out, unlabelled
        return rows[used], held_out[used], unlabelled

    def _require_known(self, part: Part, unknown: npt.NDArray[np.bool_]) -> None:
        if self.unknown == "raise":
            for name in self.target.error_bars:
                missing = unknown & ~part.known(name)
                part.refuse(name, missing, KNOWN)


@dataclass(frozen=True, eq=False)
class Survey:
    """Statistics of a part of a table; the sum of two surveys describes both parts.

    Attributes
    ----------
    training_rows : int
        Number of training rows, without those held out.
    unlabelled : int
        Number of rows without a label.
    unknown : int
        Number of rows with a label and without an error bar.
    labels : LabelGroups
        Moments of the labels whose error bars are known.
    numbers : Moments
        Moments of the numeric features.
    missing : ndarray of float
        Number of missing values of each numeric feature.
    categories : dict of str to Counter
        Number of rows per category, for each categorical feature.
    held_out : list of Rows
        Rows that are held out of training.
    """

    training_rows: int
    unlabelled: int
    unknown: int
    labels: LabelGroups
    numbers: Moments
    missing: Floats
    categories: dict[str, Counter[str]]
    held_out: list[Rows]

    @classmethod
    def of(cls, reader: Reader, number: int) -> Survey:
        """Survey one row group."""
        rows, held_out, unlabelled = reader.read(number)
        frame, known = rows.features, np.ones(len(rows), dtype=bool)
        if rows.variance is not None:
            known = ~np.isnan(rows.variance)
        numeric = [name for name, dtype in frame.dtypes.items() if dtype.kind == "f"]
        matrix = frame[numeric].to_numpy()
        categories = {
            str(name): Counter(frame[name].fillna(MISSING).value_counts().to_dict())
            for name in frame.columns
            if name not in set(numeric)
        }
        return cls(
            int((~held_out).sum()),
            unlabelled,
            int((~known).sum()),
            LabelGroups.of(rows.y, None if rows.variance is None else rows.variance),
            Moments.of(matrix),
            np.isnan(matrix).sum(axis=0).astype(np.float64),
            categories,
            [rows[held_out]],
        )

    def __add__(self, other: Survey) -> Survey:
        return Survey(
            self.training_rows + other.training_rows,
            self.unlabelled + other.unlabelled,
            self.unknown + other.unknown,
            self.labels + other.labels,
            self.numbers + other.numbers,
            self.missing + other.missing,
            {name: count + other.categories[name] for name, count in self.categories.items()},
            self.held_out + other.held_out,
        )

    @classmethod
    def combine(cls, parts: Sequence[Survey]) -> Survey:
        """Add the surveys of row groups, in their order."""
        return reduce(cls.__add__, parts)

    @property
    def rows(self) -> int:
        """Number of labelled rows, without those of infinite variance or weight 0."""
        return self.labels.count + self.unknown

    def encoder(self) -> FeatureEncoder:
        """Return the transformation of features to numbers.

        A missing number becomes the *mean* of its column, because one pass cannot give the exact
        median. A further column of 0 and 1 marks the missing numbers.
        """
        columns = iter(zip(self.numbers.mean, self.missing, strict=True))
        rules: list[Numeric | Categorical] = []
        for name in self.held_out[0].features.columns:
            if name in self.categories:
                rules.append(Categorical(tuple(sorted(self.categories[name]))))
            else:
                mean, missing = next(columns)
                rules.append(Numeric(float(mean), bool(missing)))
        return FeatureEncoder(tuple(rules))

    def features(self) -> FeatureScaler:
        """Return the scaler with the mean and standard deviation of all encoded features."""
        means: list[float] = []
        variances: list[float] = []

        def add(mean: float, variance: float) -> None:
            means.append(mean)
            variances.append(variance)

        squares = self.numbers.squares / self.rows  # missing values are at the mean
        columns = iter(zip(self.numbers.mean, squares, self.missing / self.rows, strict=True))
        for name in self.held_out[0].features.columns:
            if name in self.categories:
                fractions = (
                    self.categories[name][v] / self.rows for v in sorted(self.categories[name])
                )
                for fraction in fractions:
                    add(fraction, fraction * (1 - fraction))
            else:
                mean, variance, missing = next(columns)
                add(mean, variance)
                if missing:
                    add(missing, missing * (1 - missing))
        return FeatureScaler(np.array(means), np.sqrt(np.array(variances)))

    def scaler(self) -> LabelScaler:
        """Return the scaler that gives the labels without their noise unit variance."""
        mean, variance = self.labels.moments
        if not variance > 0:
            raise ValueError(f"every label is {mean:g}: nothing can be learned")
        return LabelScaler(mean, float(np.sqrt(variance)))
