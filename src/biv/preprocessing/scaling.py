"""Scale labels, variances, cutoffs and ε to normalised units and back, and scale features."""

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

SQUARABLE = 1e-150  # squares of numbers from this to its reciprocal neither overflow nor vanish

Quantity = TypeVar("Quantity", float, npt.NDArray[np.float64], Tensor)


@dataclass(frozen=True)
class LabelScaler:
    r"""Scaler of labels to mean 0 and variance 1, and of their variances with them.

    .. math:: y' = (y - m)/s, \qquad \sigma'^2 = \sigma^2/s^2

    The threshold C of a cutoff and ε are variances, and change units as σ² does. The methods take
    numbers, arrays and tensors. Make a scaler with :meth:`fit`, or directly from m and s.

    Parameters
    ----------
    mean : float or array-like of shape (D,)
        m, in label units; one number per output if there are D outputs.
    std : float or array-like of the shape of `mean`
        s > 0, in label units.

    Notes
    -----
    :meth:`label_raw` inverts :meth:`label`, and :meth:`variance_raw` inverts :meth:`variance`.
    ``label(y).var()`` equals ``variance(y.var())``. If labels, σ², ε and C change from normalised
    to raw units together, BIV and Cutoff losses are multiplied by s², and IV losses stay the same.

    If m and s are arrays, the outputs are the last dimension of what is scaled, (N, D). σ² may also
    have shape (N, 1). A single number, such as ε, then gives one number per output.

    Examples
    --------
    >>> from biv.preprocessing import LabelScaler
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
        """Return a scaler with the mean and standard deviation of labels.

        Without variances these are the plain mean and standard deviation. With variances, m is the
        mean with the weights 1/(σ²+s²), and s² is the estimate of
        :func:`biv.metrics.label_variance`. The noise does not inflate s. Fit on the training rows
        only; the paper's protocol fits on all of its clean labels.

        Parameters
        ----------
        y : array-like of shape (N,), (N, 1) or (N, D)
            Labels, with NaN where one is missing. If D > 1, each column is an output with its own m
            and s. Otherwise m and s are numbers.
        variance : array-like of the shape of `y`, or (N, 1) beside (N, D), or None, default=None
            σ² of each label, in squared label units. Pass it unless the labels are clean.
        ddof : int, default=1
            Delta degrees of freedom of the variance of clean labels. Set it to 0 for the
            population variance.

        Returns
        -------
        LabelScaler
            The fitted scaler.

        Raises
        ------
        ValueError
            There are too few labels, or they do not vary, so that no scale makes their variance 1.

        Examples
        --------
        >>> import numpy as np
        >>> LabelScaler.fit(np.array([[1.0, 100.0], [3.0, 500.0]]), ddof=0)
        LabelScaler(mean=array([  2., 300.]), std=array([  1., 200.]))
        """
        labels = arrays.to_float_array("y", y).astype(np.float64)
        arrays.check_magnitude("y", labels, arrays.LARGEST)
        if labels.ndim == 2 and labels.shape[1] > 1:
            return cls._fit_per_output(labels, variance, ddof)
        if variance is None:
            labels = labels[~np.isnan(labels)]
            if labels.size <= ddof:
                label = "label" if ddof == 1 else "labels"
                raise ValueError(f"y must hold more than {ddof} {label}; got {labels.size}")
            mean, spread = float(labels.mean()), float(labels.var(ddof=ddof))
        else:
            mean, spread = metrics.label_moments(labels, variance)
        if not spread > 0:
            raise ValueError(f"y must vary, to be scaled to variance 1; got variance {spread:g}")
        return cls(mean, math.sqrt(spread))

    @classmethod
    def _fit_per_output(
        cls, labels: npt.NDArray[np.float64], variance: npt.ArrayLike | None, ddof: int
    ) -> LabelScaler:
        noise = None
        if variance is not None:
            tensor = arrays.to_tensor("variance", variance)
            noise = validation.expanded("variance", tensor, "y", torch.from_numpy(labels)).numpy()
        scalers = []
        for k, column in enumerate(labels.T):
            try:
                column_noise = None if noise is None else noise[:, k]
                scalers.append(cls.fit(column, column_noise, ddof=ddof))
            except ValueError as error:
                raise ValueError(f"output {k}: {error}") from None
        return cls(np.array([s.mean for s in scalers]), np.array([s.std for s in scalers]))

    def label(self, raw: Quantity) -> Quantity:
        """Return labels or predictions in normalised units, (raw − m)/s.

        Parameters
        ----------
        raw : float, ndarray or Tensor
            Labels or predictions in label units.

        Returns
        -------
        float, ndarray or Tensor
            The same kind and shape as `raw`, without unit.

        Examples
        --------
        >>> LabelScaler(mean=100.0, std=20.0).label(140.0)
        2.0
        """
        mean, std = self._beside(raw)
        scaled: Quantity = (raw - mean) / std
        return scaled

    def label_raw(self, normalised: Quantity) -> Quantity:
        """Return labels or predictions in label units, the inverse of :meth:`label`.

        Parameters
        ----------
        normalised : float, ndarray or Tensor
            Labels or predictions in normalised units.

        Returns
        -------
        float, ndarray or Tensor
            The same kind and shape as `normalised`, in label units.

        Examples
        --------
        >>> LabelScaler(mean=100.0, std=20.0).label_raw(2.0)
        140.0
        """
        mean, std = self._beside(normalised)
        scaled: Quantity = normalised * std + mean
        return scaled

    def variance(self, raw: Quantity) -> Quantity:
        """Return variances, cutoffs or ε in normalised units, raw/s².

        Parameters
        ----------
        raw : float, ndarray or Tensor
            Variances, cutoffs or ε in squared label units.

        Returns
        -------
        float, ndarray or Tensor
            The same kind as `raw`, without unit.

        Examples
        --------
        >>> LabelScaler(mean=100.0, std=20.0).variance(40.0)
        0.1
        """
        _, std = self._beside(raw, one_per_row=True)
        scaled: Quantity = raw / std**2
        return scaled

    def variance_raw(self, normalised: Quantity) -> Quantity:
        """Return variances, cutoffs or ε in squared label units, the inverse of `variance`.

        Parameters
        ----------
        normalised : float, ndarray or Tensor
            Variances, cutoffs or ε in normalised units.

        Returns
        -------
        float, ndarray or Tensor
            The same kind as `normalised`, in squared label units.

        Examples
        --------
        >>> LabelScaler(mean=100.0, std=20.0).variance_raw(0.05)
        20.0
        """
        _, std = self._beside(normalised, one_per_row=True)
        scaled: Quantity = normalised * std**2
        return scaled

    def _beside(self, quantity: Quantity, *, one_per_row: bool = False) -> tuple[Any, Any]:
        """Return m and s as numbers, arrays or tensors, to match `quantity`."""
        if isinstance(self.mean, float):
            return self.mean, self.std
        shape, outputs = np.shape(quantity), len(self.mean)
        if (
            shape
            and shape[-1] != outputs
            and not (one_per_row and len(shape) > 1 and shape[-1] == 1)
        ):
            raise ValueError(
                f"labels and variances must have the {outputs} outputs in their last dimension, "
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
    r"""Scaler of each feature to mean 0 and variance 1; a constant feature becomes 0.

    .. math:: x'_{ij} = (x_{ij} - m_j)/s_j

    Make a scaler with :meth:`fit`, and call it with rows to scale.

    Parameters
    ----------
    mean : ndarray of shape (D,)
        m, one number per column, in units of the feature.
    std : ndarray of shape (D,)
        s, one number per column, in units of the feature.

    Examples
    --------
    >>> import numpy as np
    >>> from biv.preprocessing import FeatureScaler
    >>> x = np.array([[1.0, 5.0], [3.0, 5.0]])
    >>> FeatureScaler.fit(x, ddof=0)(x)
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, x: npt.NDArray[Any], *, ddof: int = 1) -> FeatureScaler:
        """Return a scaler with the means and standard deviations of the columns of `x`.

        Parameters
        ----------
        x : ndarray of shape (N, D)
            The training rows. The paper's protocol passes all rows.
        ddof : int, default=1
            Delta degrees of freedom of the variance. Set it to 0 for the population variance.

        Returns
        -------
        FeatureScaler
            The fitted scaler.

        Raises
        ------
        ValueError
            `x` is not two-dimensional or has at most `ddof` rows.
        """
        if x.ndim != 2 or len(x) <= ddof:
            raise ValueError(f"x must have shape (N, D) with N > {ddof}; got {x.shape}")
        size = np.abs(x).max(axis=0)
        extreme = (size > 1 / SQUARABLE) | ((size < SQUARABLE) & (size > 0))
        if not extreme.any():
            return cls(x.mean(axis=0), x.std(axis=0, ddof=ddof))
        # Without this, squares would overflow or vanish. Dividing by a power of two is exact.
        exponent = np.where(extreme, np.frexp(size)[1], 0)
        reduced = np.ldexp(x, -exponent)
        with np.errstate(over="ignore"):
            std = np.ldexp(reduced.std(axis=0, ddof=ddof), exponent)
        mean = np.ldexp(reduced.mean(axis=0), exponent)
        return cls(mean, np.minimum(std, np.finfo(np.float64).max))

    def __call__(self, x: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return rows of features, (N, D), in normalised units."""
        if x.ndim != 2 or x.shape[1] != len(self.mean):
            raise ValueError(f"x must have shape (N, {len(self.mean)}); got {x.shape}")
        # A column that is constant except for rounding errors would become noise of unit variance.
        varies = self.std > 1e-12 * np.abs(self.mean)
        mean, std = self.mean, np.where(varies, self.std, 1.0)
        if (std > 1 / SQUARABLE).any():  # otherwise, differences could overflow
            unit = np.where(std > 1 / SQUARABLE, 0.25, 1.0)
            x, mean, std = x * unit, mean * unit, std * unit
        with np.errstate(over="ignore"):  # for new rows; callers check the result
            return np.where(varies, (x - mean) / std, 0.0)
