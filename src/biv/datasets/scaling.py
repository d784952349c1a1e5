"""One object that carries labels, variances, cutoffs and ε to normalised units and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from biv import _arrays, _checks, metrics

Quantity = TypeVar("Quantity", float, npt.NDArray[np.float64], Tensor)


@dataclass(frozen=True)
class LabelScaler:
    r"""Labels of mean 0 and variance 1.

    .. math:: y' = (y - m)/s, \qquad \sigma'^2 = \sigma^2/s^2

    A cutoff and ε are variances, and change units as σ² does. Numbers, arrays and tensors alike.

    Args:
        mean: m, in label units.
        std: s > 0, in label units.

    Identities: :meth:`label_raw` undoes :meth:`label`, and :meth:`variance_raw` :meth:`variance`;
    the variance of ``label(y)`` is ``variance`` of that of y; BIV and Cutoff losses of labels, σ²,
    ε and C in raw units are s² times those in normalised units, and IV losses the same.

    Example:
        >>> scaler = LabelScaler(mean=100.0, std=20.0)
        >>> scaler.label(140.0), scaler.variance(40.0), scaler.variance_raw(0.05)
        (2.0, 0.1, 20.0)
    """

    mean: float
    std: float

    def __post_init__(self) -> None:
        mean = float(_checks.real_number("mean", self.mean, _checks.FINITE))
        std = float(_checks.real_number("std", self.std, _checks.POSITIVE))
        object.__setattr__(self, "mean", mean)
        object.__setattr__(self, "std", std)

    @classmethod
    def fit(
        cls, y: npt.ArrayLike, variance: npt.ArrayLike | None = None, *, ddof: int = 1
    ) -> LabelScaler:
        """Statistics of labels: clean ones, or noisy ones and their variances.

        The paper takes those of all its clean labels. Elsewhere take the training rows only, with
        their variances: then m is their inverse-variance-weighted mean, and s² the estimate of
        :func:`biv.metrics.label_variance`, neither of which the noise inflates.

        Args:
            y: Labels. NaN is a missing one.
            variance: σ² of each, of the same shape; None if the labels are clean.
            ddof: Delta degrees of freedom of the variance of clean labels.

        Raises:
            ValueError: The labels do not vary, so that no scale would make their variance 1.
        """
        labels = _arrays.to_float_array("y", y).astype(np.float64)
        if variance is None:
            labels = labels[~np.isnan(labels)]
            if labels.size <= ddof:
                raise ValueError(f"y must hold more than {ddof} labels; found {labels.size}")
            mean, spread = float(labels.mean()), float(labels.var(ddof=ddof))
        else:
            mean, spread = metrics.label_moments(labels, variance)
        if not spread > 0:
            raise ValueError(
                f"y must vary, for its variance to become 1; found variance {spread:g}"
            )
        return cls(mean, math.sqrt(spread))

    def label(self, raw: Quantity) -> Quantity:
        """Labels to normalised units."""
        return (raw - self.mean) / self.std

    def label_raw(self, normalised: Quantity) -> Quantity:
        """Labels back to their own units."""
        return normalised * self.std + self.mean

    def variance(self, raw: Quantity) -> Quantity:
        """Variances, cutoffs and ε to normalised units."""
        return raw / self.std**2

    def variance_raw(self, normalised: Quantity) -> Quantity:
        """Variances, cutoffs and ε back to squared label units."""
        return normalised * self.std**2


@dataclass(frozen=True, eq=False)
class FeatureScaler:
    r"""Features of mean 0 and variance 1, column by column; a constant one becomes 0.

    .. math:: x'_{ij} = (x_{ij} - m_j)/s_j

    Shapes: (N, D) to (N, D).

    Attributes:
        mean: m, (D,).
        std: s, (D,).

    Example:
        >>> x = np.array([[1.0, 5.0], [3.0, 5.0]])
        >>> FeatureScaler.fit(x, ddof=0)(x)
        array([[-1.,  0.],
               [ 1.,  0.]])
    """

    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, x: npt.NDArray[Any], *, ddof: int = 1) -> FeatureScaler:
        """Statistics of the rows of `x`: all of them in the paper, the training rows elsewhere."""
        if x.ndim != 2 or len(x) <= ddof:
            raise ValueError(f"x must be (N, D) with N > {ddof}; found {x.shape}")
        return cls(x.mean(axis=0), x.std(axis=0, ddof=ddof))

    def __call__(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Rows of features to normalised units."""
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise ValueError(f"x must be (N, {len(self.mean)}); found {x.shape}")
        # What is constant but for rounding would be blown up to noise of unit variance.
        varies = self.std > 1e-12 * np.maximum(np.abs(self.mean), 1e-300)
        return np.where(varies, (x - self.mean) / np.where(varies, self.std, 1.0), 0.0)
