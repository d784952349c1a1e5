"""Statistics of tables that do not fit in memory: taken part by part, and added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from biv import metrics

Floats = npt.NDArray[np.float64]

PER_OCTAVE = 16  # groups of variances: those of one differ by 4% at most
TRUSTED = np.iinfo(np.int64).min  # the group of σ² = 0


@dataclass(frozen=True, eq=False)
class Moments:
    r"""How many numbers each column has, their mean, and the sum of squares around it.

    Two add up to those of all their rows together (Chan, Golub and LeVeque, 1979): with
    :math:`d = m_b - m_a` and :math:`n = n_a + n_b`,

    .. math:: m = m_a + d \, \frac{n_b}{n}, \qquad S = S_a + S_b + d^2 \, \frac{n_a n_b}{n}.

    No sum of raw squares is ever taken, so that a large mean costs no digits.

    Attributes:
        count: (F,); NaN does not count.
        mean: (F,); 0 where there is none.
        squares: (F,).

    Example:
        >>> x = np.array([[1e9 + 1], [1e9 + 2], [1e9 + 3], [np.nan]])
        >>> (Moments.of(x[:1]) + Moments.of(x[1:])).variance
        array([0.66666667])
    """

    count: Floats
    mean: Floats
    squares: Floats

    @classmethod
    def of(cls, x: npt.NDArray[Any]) -> Moments:
        """Of the rows of a matrix, (N, F)."""
        x = np.asarray(x, dtype=np.float64)
        known = ~np.isnan(x)
        if known.all():
            count = np.full(x.shape[1], float(len(x)))
            mean = x.mean(axis=0) if len(x) else np.zeros(x.shape[1])
            return cls(count, mean, np.square(x - mean).sum(axis=0))
        count = known.sum(axis=0).astype(np.float64)
        mean = np.where(known, x, 0.0).sum(axis=0) / np.maximum(count, 1)
        return cls(count, mean, np.square(np.where(known, x - mean, 0.0)).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        count = self.count + other.count
        share = other.count / np.maximum(count, 1)
        apart = other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * self.count * share
        return Moments(count, self.mean + apart * share, squares)

    @property
    def variance(self) -> Floats:
        """(F,); of the numbers that there are, with all of them in the denominator."""
        return self.squares / np.maximum(self.count, 1)


@dataclass(frozen=True)
class Group:
    """Labels whose variances are nearly the same.

    Attributes:
        count: How many.
        mean: Of the labels.
        squares: Around it.
        variance: The mean of their σ².
    """

    count: float
    mean: float
    squares: float
    variance: float

    def __add__(self, other: Group) -> Group:
        count = self.count + other.count
        share, apart = other.count / count, other.mean - self.mean
        return Group(
            count,
            self.mean + apart * share,
            self.squares + other.squares + apart**2 * self.count * share,
            self.variance + (other.variance - self.variance) * share,
        )


@dataclass(frozen=True, eq=False)
class LabelGroups:
    """Noisy labels in groups of nearly equal σ², sixteen an octave; two add up.

    It is all that the label variance asks of the labels: weights depend on σ² alone, and within a
    group they are nearly one number. What is weighted, (ỹ−m)² and σ², is exact.

    Attributes:
        groups: By the sixteenth of an octave that σ² lies in. An infinite σ² is in none.

    Example:
        >>> y, variance = np.array([1.0, 2.0, 3.0, 99.0]), np.array([0.0, 0.0, 0.0, 1e9])
        >>> groups = LabelGroups.of(y[:2], variance[:2]) + LabelGroups.of(y[2:], variance[2:])
        >>> round(groups.moments.variance, 6), groups.count
        (1.0, 4)
    """

    groups: Mapping[int, Group]

    @classmethod
    def of(cls, y: Floats, variance: Floats | None = None) -> LabelGroups:
        """Of labels, (N,), and their σ²; without those they are taken to be clean."""
        variance = np.zeros(len(y)) if variance is None else variance
        used = np.isfinite(y) & np.isfinite(variance)
        y, variance = y[used], variance[used]
        trusted = variance == 0
        octave = np.log2(np.where(trusted, 1.0, variance))
        place = np.where(trusted, TRUSTED, np.floor(PER_OCTAVE * octave).astype(np.int64))
        names, place = np.unique(place, return_inverse=True)
        count = np.bincount(place, minlength=len(names)).astype(np.float64)

        def total(values: Floats) -> Floats:
            return np.bincount(place, values, minlength=len(names)).astype(np.float64)

        mean = total(y) / count
        columns = (count, mean, total(np.square(y - mean[place])), total(variance) / count)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return cls(dict(zip(names.tolist(), (Group(*row) for row in rows), strict=True)))

    def __add__(self, other: LabelGroups) -> LabelGroups:
        groups = dict(self.groups)
        for name, group in other.groups.items():
            groups[name] = groups[name] + group if name in groups else group
        return LabelGroups(groups)

    @cached_property
    def _columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Counts, means, squares and variances, by increasing variance."""
        rows = [astuple(self.groups[name]) for name in sorted(self.groups)]
        count, mean, squares, variance = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        return count, mean, squares, variance

    @property
    def count(self) -> int:
        """Labels of finite variance."""
        return int(self._columns[0].sum())

    @property
    def trusted(self) -> int:
        """Labels of variance 0."""
        return int(self.groups[TRUSTED].count) if TRUSTED in self.groups else 0

    @property
    def moments(self) -> metrics.LabelMoments:
        """Mean and variance without the noise, as :func:`biv.metrics.label_moments` has them."""
        return metrics.grouped_label_moments(*self._columns)

    @property
    def mean_variance(self) -> float:
        """Of all labels, Σσ²/n."""
        count, _, _, variance = self._columns
        return float((count * variance).sum() / count.sum())

    @property
    def median_variance(self) -> float:
        """The mean of the group that the median is in."""
        count, _, _, variance = self._columns
        return float(variance[np.searchsorted(count.cumsum(), count.sum() / 2)])

    def effective_sample_size(self, epsilon: float) -> float:
        """Kish's size of all weights 1/(σ²+ε), for an ε that is not 0 where a σ² is."""
        count, _, _, variance = self._columns
        weights = (variance.min() + epsilon) / (variance + epsilon)
        return float((count * weights).sum() ** 2 / (count * weights**2).sum())
