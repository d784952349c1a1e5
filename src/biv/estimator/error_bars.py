"""Error bars as the user passes them, read as variances of the shape of the labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv import metrics
from biv._utils import arrays
from biv._utils.pages import argument_hint

Array = npt.NDArray[Any]

ARGUMENTS = {"variance": "y_var", "std": "y_std"}
ROWS_SHOWN = 5  # maximum number of rows that a message lists
MIN_LABELS = 3  # minimum number of labels for a slope
SURE = 3.0  # standard errors of a deviation that counts as certain
INTERVAL = 1.96  # standard errors to each side: 95%


class ErrorBars(NamedTuple):
    """Noise variances of labels.

    Attributes
    ----------
    variance : ndarray of shape (N, D)
        σ² in squared units of y; +inf where a label is missing, NaN where σ² is unknown.
    name : {"y_var", "y_std"}
        Argument that the user passed them as.
    """

    variance: Array
    name: str

    @property
    def passed_as(self) -> str:
        """Quantity that they were passed as: "variance" or "std"."""
        return next(kind for kind, name in ARGUMENTS.items() if name == self.name)

    @property
    def unknown(self) -> npt.NDArray[np.bool_]:
        """Mask of the labels whose variance is unknown."""
        return np.isnan(self.variance)

    def rows(self, index: Array, output: int) -> ErrorBars:
        """Return the error bars of some rows and one output."""
        return ErrorBars(self.variance[index, output, None], self.name)

    def filled(self, values: npt.ArrayLike) -> Array:
        """Return the variances with these values in place of the unknown ones."""
        return np.where(self.unknown, values, self.variance)


def read(y: Array, y_var: Any, y_std: Any) -> ErrorBars | None:
    """Return the error bars of labels, or None if neither `y_var` nor `y_std` is given.

    Parameters
    ----------
    y : ndarray of shape (N,) or (N, D)
        Labels. The variance of a missing label (NaN) is ignored.
    y_var : array-like of the shape of y, (N,) or (N, 1), or float, or None
        σ²; (N,) and (N, 1) hold one variance per row, and a number applies to all labels.
    y_std : array-like of the same shapes, or float, or None
        σ.

    Returns
    -------
    ErrorBars or None
        Variances of the labels.

    Raises
    ------
    ValueError
        Both are given, the shape is invalid, or a value is negative or out of range.

    Examples
    --------
    >>> bars = read(np.array([3.0, np.nan]), None, [0.5, np.nan])
    >>> bars.variance.tolist(), bars.name
    ([[0.25], [inf]], 'y_std')
    """
    if y_var is not None and y_std is not None:
        raise ValueError(f"pass y_var or y_std, not both{argument_hint('y_var')}")
    name, given = ("y_var", y_var) if y_std is None else ("y_std", y_std)
    if given is None:
        return None
    value = arrays.to_real_numbers(name, given)
    rows = len(y)
    if value.ndim == 0:
        value = np.broadcast_to(value, (rows,))
    if value.shape not in (y.shape, (rows, 1), (rows,)):
        raise ValueError(
            f"{name} must have the shape of y, {y.shape}; got {value.shape}{argument_hint(name)}"
        )
    labels = y.reshape(rows, -1)
    value = np.broadcast_to(value.reshape(rows, -1), labels.shape)
    value = np.where(np.isnan(labels), np.inf, value)
    if (value < 0).any():
        raise ValueError(
            f"{name} must not be negative; got a negative value in {_rows(value < 0)}"
            f"{argument_hint(name)}"
        )
    _refuse_extremes(name, value)
    return ErrorBars(value if name == "y_var" else value**2, name)


def _refuse_extremes(name: str, value: Array) -> None:
    """Raise if σ² would overflow, or become 0 although σ is positive."""
    limit = arrays.LARGEST if name == "y_std" else arrays.LARGEST**2
    huge = np.isfinite(value) & (value > limit)
    if huge.any():
        raise ValueError(
            f"{name} must be at most {limit:g}, or +inf for a label to ignore; got a larger value "
            f"in {_rows(huge)}{argument_hint(name)}"
        )
    tiny = (value > 0) & (value < 1 / limit)
    if tiny.any():
        reason = ", so that its square is not 0" if name == "y_std" else ""
        raise ValueError(
            f"{name} must be 0 or at least {1 / limit:g}{reason}; got a smaller value in "
            f"{_rows(tiny)}: choose another unit{argument_hint(name)}"
        )


def require_known(bars: ErrorBars | None, advice: str = "") -> None:
    """Check that no variance is unknown.

    Raises
    ------
    ValueError
        A variance is unknown; the message names the first rows and ends with `advice`.
    """
    if bars is not None and bars.unknown.any():
        raise ValueError(
            f"{bars.name} must not be NaN; got NaN in {_rows(bars.unknown)}{advice}"
            f"{argument_hint(bars.name)}"
        )


def require_finite(variance: Array, name: str) -> None:
    """Check that no new label has an infinite variance; its standard deviation has no meaning.

    Raises
    ------
    ValueError
        A variance is infinite; the message names the first rows.
    """
    if (infinite := np.isinf(variance)).any():
        raise ValueError(
            f"{name} must be finite for the standard deviation of a new label; got infinity in "
            f"{_rows(infinite)}"
        )


def _rows(bad: Array) -> str:
    rows = np.flatnonzero(bad.any(axis=1))
    shown = ", ".join(map(str, rows[:ROWS_SHOWN]))
    more = ", ..." if len(rows) > ROWS_SHOWN else ""
    return f"row {shown}" if len(rows) == 1 else f"{len(rows)} rows ({shown}{more})"


def medians(bars: ErrorBars) -> Array:
    """Return the median of the known finite variances of each output, (D,).

    Raises
    ------
    ValueError
        An output has none.
    """
    known = np.where(np.isfinite(bars.variance), bars.variance, np.nan)
    if np.isnan(known).all(axis=0).any():
        raise ValueError(
            f"{bars.name} must be known for at least one label of every output; got none: leave "
            f"it out if there are no error bars{argument_hint(bars.name)}"
        )
    return np.nanmedian(known, axis=0)


def common_variance(residual: Array, tau2: float, known: Array) -> float:
    """Return the noise variance that labels with these residuals share: their mean square − τ².

    The estimate is at least the 10% quantile of the known variances. Otherwise a few residuals that
    are small by chance could make labels of unknown variance the most trusted ones.
    """
    return max(float(np.mean(residual**2)) - tau2, float(np.quantile(known, 0.1)))


class Factor(NamedTuple):
    """Factor that variances should be multiplied by, and its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def stderr(self) -> float:
        """Standard error of the value."""
        return (self.high - self.value) / INTERVAL


def multiplied(variance: Array, factors: Sequence[Factor]) -> Array:
    """Return variances, (N, D), multiplied by one factor per output.

    A negative factor counts as 0. Infinite and unknown variances are unchanged.
    """
    multipliers = np.array([max(f.value, 0.0) for f in factors])
    finite = np.isfinite(variance)
    return np.where(finite, np.where(finite, variance, 0.0) * multipliers, variance)


def factor(pred: Array, target: Array, variance: Array) -> Factor:
    """Return :func:`biv.metrics.variance_factor` with its interval, NaN if not estimable."""
    if len(variance) < MIN_LABELS or np.ptp(variance) == 0:
        return Factor(np.nan, np.nan, np.nan)
    value, stderr = metrics.variance_factor(pred, target, variance)
    return Factor(value, value - INTERVAL * stderr, value + INTERVAL * stderr)


def is_impossible(mse: float, stderr: float) -> bool:
    """Return whether an estimated mean squared error to the true labels is certainly negative.

    Then the error bars are larger than the labels' noise, whatever their factor is. The factor is a
    slope, and can be 1 or more if the error bars are too large by other than a common factor.
    """
    return mse < -SURE * stderr
