"""One object that carries labels, variances, cutoffs and ε to normalised units and back."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv import metrics
from biv._utils import arrays, validation

SQUARABLE = 1e-150  # columns of numbers between this and its reciprocal have ordinary squares

Quantity = TypeVar("Quantity", float, npt.NDArray[np.float64], Tensor)


@dataclass(frozen=True)
class LabelScaler:
    r"""Labels of mean 0 and variance 1.

    .. math:: y' = (y - m)/s, \qquad \sigma'^2 = \sigma^2/s^2

    A cutoff and ε are variances, and change units as σ² does. Numbers, arrays and tensors alike.
    With one m and one s per output, what is scaled has its outputs in the last dimension, (N, D);
    σ² may be (N, 1) too, and a number, such as ε, becomes one per output.

    Args:
        mean: m, in label units; a number, or an array (D,) with one per output.
        std: s > 0, likewise.

    Identities: :meth:`label_raw` undoes :meth:`label`, and :meth:`variance_raw` :meth:`variance`;
    the variance of ``label(y)`` is ``variance`` of that of y; BIV and Cutoff losses of labels, σ²,
    ε and C in raw units are s² times those in normalised units, and IV losses the same.

    Example:
        >>> scaler = LabelScaler(mean=100.0, std=20.0)
        >>> scaler.label(140.0), scaler.variance(40.0), scaler.variance_raw(0.05)
        (2.0, 0.1, 20.0)
    """

    mean: Any
    std: Any

    def __post_init__(self) -> None:
        if np.shape(self.mean) != np.shape(self.std) or np.ndim(self.mean) > 1:
            raise ValueError(
                "mean and std must be two numbers or two arrays of shape (D,); "
                f"got shapes {np.shape(self.mean)} and {np.shape(self.std)}"
            )
        object.__setattr__(self, "mean", _checked("mean", self.mean, validation.FINITE))
        object.__setattr__(self, "std", _checked("std", self.std, validation.POSITIVE))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, LabelScaler):
            return NotImplemented
        return np.array_equal(self.mean, other.mean) and np.array_equal(self.std, other.std)

    @classmethod
    def fit(
        cls, y: npt.ArrayLike, variance: npt.ArrayLike | None = None, *, ddof: int = 1
    ) -> LabelScaler:
        """Statistics of labels: clean ones, or noisy ones and their variances.

        The paper takes those of all its clean labels. Elsewhere take the training rows only, with
        their variances: then m is their inverse-variance-weighted mean, and s² the estimate of
        :func:`biv.metrics.label_variance`, neither of which the noise inflates.

        Args:
            y: Labels. NaN is a missing one. Of shape (N, D) with D > 1, each column is an output
                with an m and an s of its own; otherwise m and s are numbers.
            variance: σ² of each, of the same shape, or (N, 1) beside (N, D); None if the labels
                are clean.
            ddof: Delta degrees of freedom of the variance of clean labels.

        Raises:
            ValueError: The labels do not vary, so that no scale would make their variance 1.

        Example:
            >>> LabelScaler.fit(np.array([[1.0, 100.0], [3.0, 500.0]]), ddof=0)
            LabelScaler(mean=array([  2., 300.]), std=array([  1., 200.]))
        """
        labels = arrays.to_float_array("y", y).astype(np.float64)
        arrays.check_magnitude("y", labels, arrays.LARGEST)
        if labels.ndim == 2 and labels.shape[1] > 1:
            return cls._of_each_output(labels, variance, ddof)
        if variance is None:
            labels = labels[~np.isnan(labels)]
            if labels.size <= ddof:
                raise ValueError(f"y must hold more than {ddof} labels; got {labels.size}")
            mean, spread = float(labels.mean()), float(labels.var(ddof=ddof))
        else:
            mean, spread = metrics.label_moments(labels, variance)
        if not spread > 0:
            raise ValueError(f"y must vary, for its variance to become 1; got variance {spread:g}")
        return cls(mean, math.sqrt(spread))

    @classmethod
    def _of_each_output(
        cls, labels: npt.NDArray[np.float64], variance: npt.ArrayLike | None, ddof: int
    ) -> LabelScaler:
        noise = None
        if variance is not None:
            given = arrays.to_tensor("variance", variance)
            noise = validation.expanded("variance", given, "y", torch.from_numpy(labels)).numpy()
        scalers = []
        for k, column in enumerate(labels.T):
            try:
                own = None if noise is None else noise[:, k]
                scalers.append(cls.fit(column, own, ddof=ddof))
            except ValueError as error:
                raise ValueError(f"output {k}: {error}") from None
        return cls(np.array([s.mean for s in scalers]), np.array([s.std for s in scalers]))

    def label(self, raw: Quantity) -> Quantity:
        """Labels to normalised units."""
        mean, std = self._beside(raw)
        scaled: Quantity = (raw - mean) / std
        return scaled

    def label_raw(self, normalised: Quantity) -> Quantity:
        """Labels back to their own units."""
        mean, std = self._beside(normalised)
        scaled: Quantity = normalised * std + mean
        return scaled

    def variance(self, raw: Quantity) -> Quantity:
        """Variances, cutoffs and ε to normalised units."""
        _, std = self._beside(raw, one_a_row=True)
        scaled: Quantity = raw / std**2
        return scaled

    def variance_raw(self, normalised: Quantity) -> Quantity:
        """Variances, cutoffs and ε back to squared label units."""
        _, std = self._beside(normalised, one_a_row=True)
        scaled: Quantity = normalised * std**2
        return scaled

    def _beside(self, quantity: Quantity, *, one_a_row: bool = False) -> tuple[Any, Any]:
        """The mean and the standard deviation, in the kind of what they are to scale."""
        if isinstance(self.mean, float):
            return self.mean, self.std
        shape, outputs = np.shape(quantity), len(self.mean)
        if shape and shape[-1] != outputs and not (one_a_row and len(shape) > 1 and shape[-1] == 1):
            raise ValueError(
                f"what is scaled must have the {outputs} outputs in its last dimension, "
                f"(N, {outputs}); got shape {tuple(shape)}"
            )
        if isinstance(quantity, Tensor):
            return quantity.new_tensor(self.mean), quantity.new_tensor(self.std)
        return self.mean, self.std


def _checked(name: str, value: Any, allowed: validation.Range) -> float | npt.NDArray[np.float64]:
    if np.ndim(value) == 0:
        return float(validation.real_number(name, value, allowed))
    numbers = [float(validation.real_number(name, float(number), allowed)) for number in value]
    return np.array(numbers)


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
            raise ValueError(f"x must be (N, D) with N > {ddof}; got {x.shape}")
        size = np.abs(x).max(axis=0)
        extreme = (size > 1 / SQUARABLE) | ((size < SQUARABLE) & (size > 0))
        if not extreme.any():
            return cls(x.mean(axis=0), x.std(axis=0, ddof=ddof))
        # Squares would overflow or vanish; dividing by a power of two changes no digit.
        exponent = np.where(extreme, np.frexp(size)[1], 0)
        near = np.ldexp(x, -exponent)
        with np.errstate(over="ignore"):
            std = np.ldexp(near.std(axis=0, ddof=ddof), exponent)
        return cls(np.ldexp(near.mean(axis=0), exponent), np.minimum(std, np.finfo(np.float64).max))

    def __call__(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Rows of features to normalised units."""
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise ValueError(f"x must be (N, {len(self.mean)}); got {x.shape}")
        # What is constant but for rounding would be blown up to noise of unit variance.
        varies = self.std > 1e-12 * np.abs(self.mean)
        mean, std = self.mean, np.where(varies, self.std, 1.0)
        if (std > 1 / SQUARABLE).any():  # so that no difference overflows
            unit = np.where(std > 1 / SQUARABLE, 0.25, 1.0)
            x, mean, std = x * unit, mean * unit, std * unit
        with np.errstate(over="ignore"):  # of new rows; what comes of it is looked at
            return np.where(varies, (x - mean) / std, 0.0)
