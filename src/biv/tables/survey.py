"""One pass over a table in pieces: all that must be known before the first step of training."""

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
    "known ({median} puts the median in its place)", median=Setting("unknown_variance", "median")
)
MAX_HELD_OUT, SHARE_HELD_OUT = 65_536, 0.1  # rows, and of the rows


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows with a label, in the units of their table.

    Attributes:
        features: A pandas frame.
        y: (N,).
        variance: σ², or None.
        weight: Importance, or None.
        places: Which row of the whole table each is, from 0 on.
        ends: Of the labels' intervals, (N, 2), or None.
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
        """Some of them, by number or by truth."""
        frame = self.features.take(np.flatnonzero(which) if which.dtype == bool else which)
        variance, weight, ends = (
            c if c is None else c[which] for c in (self.variance, self.weight, self.ends)
        )
        return Rows(
            frame.reset_index(drop=True), self.y[which], variance, weight, self.places[which], ends
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Rows]) -> Rows:
        """One after another."""
        frame = require_pandas().concat([part.features for part in parts], ignore_index=True)

        def column(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else np.concatenate(values)

        names = ("y", "variance", "weight", "places", "ends")
        return cls(frame, *(column(name) for name in names))


@dataclass(frozen=True, eq=False)
class Reader:
    """Reads row groups of a table as rows to learn from.

    Attributes:
        groups: Of the table.
        schema: What its columns mean.
        target: Where the labels are.
        unknown: "raise" or "median": what becomes of a missing error bar.
        seed: Of the choice of the rows that are held out.
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
        """Of the rows."""
        return min(SHARE_HELD_OUT, MAX_HELD_OUT / self.groups.rows)

    def read(self, number: int) -> tuple[Rows, npt.NDArray[np.bool_], int]:
        """The rows of a group that have a label; which are held out; how many have no label.

        Rows that count for nothing, of an infinite variance or a weight of 0, are left out too.
        """
        part = self.groups.read(number, [*self.target.names, *self.schema.names])
        y = self.target.labels(part)
        variance, weight = self.target.variances(part), self.target.weights(part)
        self.target.refuse_extremes(part, y, variance, weight)
        counts = ~np.isnan(y)
        unlabelled = int((~counts).sum())
        if variance is not None:
            self._require_known(part, np.isnan(variance) & counts)
            counts &= ~np.isinf(variance)
        if weight is not None:
            counts &= weight > 0
        places = self.groups.rows_before(number) + np.arange(len(y))
        frame = self.schema.frame(part)
        for column in self.schema.columns:
            if column.kind == "number":
                huge = np.abs(frame[column.name].to_numpy()) > 1 / SQUARABLE
                part.refuse(column.name, huge, f"at most {1 / SQUARABLE:g} in magnitude")
        rows = Rows(frame, y, variance, weight, places, self.target.ends(part))
        drawn = np.random.default_rng([self.seed, number]).random(len(y))
        held_out = drawn < self.held_out_fraction
        if counts.all():
            return rows, held_out, unlabelled
        return rows[counts], held_out[counts], unlabelled

    def _require_known(self, part: Part, unknown: npt.NDArray[np.bool_]) -> None:
        if self.unknown == "raise":
            for name in self.target.error_bars:
                missing = unknown & ~part.known(name)
                part.refuse(name, missing, KNOWN)


@dataclass(frozen=True, eq=False)
class Survey:
    """What is found in one pass; surveys of parts add up to that of the whole.

    Attributes:
        learned: How many rows there are to learn from, held-out ones not among them.
        unlabelled: How many have no label.
        unknown: How many have no error bar.
        labels: The others, by their variances.
        numbers: Of the numeric features, by name.
        missing: How many of each are missing.
        categories: How often each occurs, of the others.
        held_out: Rows that are not learned from.
    """

    learned: int
    unlabelled: int
    unknown: int
    labels: LabelGroups
    numbers: Moments
    missing: Floats
    categories: dict[str, Counter[str]]
    held_out: list[Rows]

    @classmethod
    def of(cls, reader: Reader, number: int) -> Survey:
        """Of one row group."""
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
            self.learned + other.learned,
            self.unlabelled + other.unlabelled,
            self.unknown + other.unknown,
            self.labels + other.labels,
            self.numbers + other.numbers,
            self.missing + other.missing,
            {name: own + other.categories[name] for name, own in self.categories.items()},
            self.held_out + other.held_out,
        )

    @classmethod
    def combine(cls, parts: Sequence[Survey]) -> Survey:
        """Of a table, from those of its row groups in order."""
        return reduce(cls.__add__, parts)

    @property
    def rows(self) -> int:
        """With a label that counts."""
        return self.labels.count + self.unknown

    def encoder(self) -> FeatureEncoder:
        """How features become numbers. A missing number becomes the *mean* of its column here.

        A median is not to be had in one pass; a column that says what was missing is there too.
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
        """Mean and standard deviation of what the encoder makes of all rows."""
        means: list[float] = []
        variances: list[float] = []

        def add(mean: float, variance: float) -> None:
            means.append(mean)
            variances.append(variance)

        squares = self.numbers.squares / self.rows  # what is missing is at the mean
        columns = iter(zip(self.numbers.mean, squares, self.missing / self.rows, strict=True))
        for name in self.held_out[0].features.columns:
            if name in self.categories:
                shares = (
                    self.categories[name][v] / self.rows for v in sorted(self.categories[name])
                )
                for share in shares:
                    add(share, share * (1 - share))
            else:
                mean, variance, missing = next(columns)
                add(mean, variance)
                if missing:
                    add(missing, missing * (1 - missing))
        return FeatureScaler(np.array(means), np.sqrt(np.array(variances)))

    def scaler(self) -> LabelScaler:
        """By which labels are of unit variance without their noise."""
        mean, variance = self.labels.moments
        if not variance > 0:
            raise ValueError(f"every label is {mean:g}: nothing can be learned")
        return LabelScaler(mean, float(np.sqrt(variance)))
