"""Statistics of tables that do not fit in memory, computed part by part and added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from biv import metrics

Floats = npt.NDArray[np.float64]

PER_OCTAVE = 16  # groups per factor of 2 in σ²: variances of a group differ by at most 4%
TRUSTED = np.iinfo(np.int64).min  # key of the group of σ² = 0


@dataclass(frozen=True, eq=False)
class Moments:
    r"""Count, mean, and sum of squared deviations from the mean, of each of F columns.

    The sum of two objects has the moments of all their rows (Chan, Golub and LeVeque, 1979): with
    :math:`d = m_b - m_a` and :math:`n = n_a + n_b`,

    .. math:: m = m_a + d \, \frac{n_b}{n}, \qquad S = S_a + S_b + d^2 \, \frac{n_a n_b}{n}.

    Raw squares are never summed, so that no digits are lost if the mean is large.

    Attributes
    ----------
    count : ndarray of shape (F,)
        Number of values that are not NaN.
    mean : ndarray of shape (F,)
        Their mean; 0 if there are none.
    squares : ndarray of shape (F,)
        Sum of their squared deviations from the mean.

    Examples
    --------
    >>> x = np.array([[1e9 + 1], [1e9 + 2], [1e9 + 3], [np.nan]])
    >>> (Moments.of(x[:1]) + Moments.of(x[1:])).variance
    array([0.66666667])
    """

    count: Floats
    mean: Floats
    squares: Floats

    @classmethod
    def of(cls, x: npt.NDArray[Any]) -> Moments:
        """Compute the moments of the columns of a matrix, (N, F)."""
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
        fraction = other.count / np.maximum(count, 1)
        difference = other.mean - self.mean
        squares = self.squares + other.squares + difference**2 * self.count * fraction
        return Moments(count, self.mean + difference * fraction, squares)

    @property
    def variance(self) -> Floats:
        """Variance of the values that are not NaN, (F,), with their number as denominator."""
        return self.squares / np.maximum(self.count, 1)


@dataclass(frozen=True)
class Group:
    """Moments of labels whose variances are nearly equal.

    Attributes
    ----------
    count : float
        Number of labels.
    mean : float
        Mean of the labels.
    squares : float
        Sum of squared deviations of the labels from their mean.
    variance : float
        Mean of their σ².
    """

    count: float
    mean: float
    squares: float
    variance: float

    def __add__(self, other: Group) -> Group:
        count = self.count + other.count
        fraction, difference = other.count / count, other.mean - self.mean
        return Group(
            count,
            self.mean + difference * fraction,
            self.squares + other.squares + difference**2 * self.count * fraction,
            self.variance + (other.variance - self.variance) * fraction,
        )


@dataclass(frozen=True, eq=False)
class LabelGroups:
    """Moments of noisy labels in groups of nearly equal σ², sixteen per factor of 2.

    The sum of two objects has the moments of all their labels. The groups suffice to estimate the
    label variance: weights depend on σ² only, and are nearly constant within a group. The weighted
    quantities, (ỹ−m)² and σ², are exact.

    Attributes
    ----------
    groups : mapping of int to Group
        Groups by the sixteenth of an octave of σ². Labels of infinite σ² are in no group.

    Examples
    --------
    >>> y, variance = np.array([1.0, 2.0, 3.0, 99.0]), np.array([0.0, 0.0, 0.0, 1e9])
    >>> groups = LabelGroups.of(y[:2], variance[:2]) + LabelGroups.of(y[2:], variance[2:])
    >>> round(groups.moments.variance, 6), groups.count
    (1.0, 4)
    """

    groups: Mapping[int, Group]

    @classmethod
    def of(cls, y: Floats, variance: Floats | None = None) -> LabelGroups:
        """Group labels, (N,), by their σ², (N,); without σ² the labels are taken as clean."""
        variance = np.zeros(len(y)) if variance is None else variance
        used = np.isfinite(y) & np.isfinite(variance)
        y, variance = y[used], variance[used]
        trusted = variance == 0
        octave = np.log2(np.where(trusted, 1.0, variance))
        key = np.where(trusted, TRUSTED, np.floor(PER_OCTAVE * octave).astype(np.int64))
        keys, group = np.unique(key, return_inverse=True)
        count = np.bincount(group, minlength=len(keys)).astype(np.float64)

        def total(values: Floats) -> Floats:
            return np.bincount(group, values, minlength=len(keys)).astype(np.float64)

        mean = total(y) / count
        columns = (count, mean, total(np.square(y - mean[group])), total(variance) / count)
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return cls(dict(zip(keys.tolist(), (Group(*row) for row in rows), strict=True)))

    def __add__(self, other: LabelGroups) -> LabelGroups:
        groups = dict(self.groups)
        for key, group in other.groups.items():
            groups[key] = groups[key] + group if key in groups else group
        return LabelGroups(groups)

    @cached_property
    def _columns(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return counts, means, squares and variances, by increasing variance."""
        rows = [astuple(self.groups[key]) for key in sorted(self.groups)]
        count, mean, squares, variance = np.array(rows, dtype=np.float64).reshape(-1, 4).T
        return count, mean, squares, variance

    @property
    def count(self) -> int:
        """Number of labels of finite variance."""
        return int(self._columns[0].sum())

    @property
    def trusted(self) -> int:
        """Number of labels of variance 0."""
        return int(self.groups[TRUSTED].count) if TRUSTED in self.groups else 0

    @property
    def moments(self) -> metrics.LabelMoments:
        """Mean and variance without the noise, as of :func:`biv.metrics.label_moments`."""
        return metrics.grouped_label_moments(*self._columns)

    @property
    def mean_variance(self) -> float:
        """Mean variance of all labels, Σσ²/n."""
        count, _, _, variance = self._columns
        return float((count * variance).sum() / count.sum())

    @property
    def median_variance(self) -> float:
        """Approximate median variance: the mean variance of the group that contains the median."""
        count, _, _, variance = self._columns
        return float(variance[np.searchsorted(count.cumsum(), count.sum() / 2)])

    def effective_sample_size(self, epsilon: float) -> float:
        """Return Kish's effective sample size for weights 1/(σ²+ε), with ε > 0 if any σ² is 0."""
        count, _, _, variance = self._columns
        weights = (variance.min() + epsilon) / (variance + epsilon)
        return float((count * weights).sum() ** 2 / (count * weights**2).sum())
