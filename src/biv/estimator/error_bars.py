"""What a user says of the labels' noise, as variances of the labels' shape; and what is unknown."""

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
ROWS_SHOWN = 5  # of those that an error or a warning names
MIN_LABELS = 3  # labels that a slope can be told from
SURE = 3.0  # standard errors
INTERVAL = 1.96  # standard errors to each side: 95%


class ErrorBars(NamedTuple):
    """The noise variances of some labels.

    Attributes:
        variance: σ², (N, D), in squared units of y; +inf where a label is missing, NaN where the
            variance is unknown.
        name: What the user called them: "y_var" or "y_std".
    """

    variance: Array
    name: str

    @property
    def taken(self) -> str:
        """What they were given as: "variance" or "std"."""
        return next(taken for taken, name in ARGUMENTS.items() if name == self.name)

    @property
    def unknown(self) -> npt.NDArray[np.bool_]:
        """Which labels have no variance."""
        return np.isnan(self.variance)

    def rows(self, which: Array, output: int) -> ErrorBars:
        """Return those of some rows and one output."""
        return ErrorBars(self.variance[which, output, None], self.name)

    def filled(self, values: npt.ArrayLike) -> Array:
        """The variances, with these in the place of the unknown ones."""
        return np.where(self.unknown, values, self.variance)


def read(y: Array, y_var: Any, y_std: Any) -> ErrorBars | None:
    """σ² from either of the two, None from neither.

    Args:
        y: Labels, (N,) or (N, D); NaN is a missing one, whose variance is not looked at.
        y_var: σ², as y; or (N,) or (N, 1) for all labels of a row; or one number for all.
        y_std: σ, likewise.

    Raises:
        ValueError: Both are given, a shape is another, or a value is negative.

    Example:
        >>> bars = read(np.array([3.0, np.nan]), None, [0.5, np.nan])
        >>> bars.variance.tolist(), bars.name
        ([[0.25], [inf]], 'y_std')
    """
    if y_var is not None and y_std is not None:
        raise ValueError(f"give y_var or y_std, not both{argument_hint('y_var')}")
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
            f"{name} must be at least 0; got less in {_rows(value < 0)}{argument_hint(name)}"
        )
    _refuse_extremes(name, value)
    return ErrorBars(value if name == "y_var" else value**2, name)


def _refuse_extremes(name: str, value: Array) -> None:
    """Raise where σ² would not be finite, or 0 where σ is not."""
    limit = arrays.LARGEST if name == "y_std" else arrays.LARGEST**2
    huge = np.isfinite(value) & (value > limit)
    if huge.any():
        raise ValueError(
            f"{name} must be at most {limit:g}, or +inf for a label to ignore; got more in "
            f"{_rows(huge)}{argument_hint(name)}"
        )
    lost = (value > 0) & (value < 1 / limit)
    if lost.any():
        raise ValueError(
            f"{name} must be 0 or at least {1 / limit:g}, for its square to be above 0; got less "
            f"in {_rows(lost)}: choose another unit{argument_hint(name)}"
        )


def require_known(bars: ErrorBars | None, how: str = "") -> None:
    """Raise where a variance is unknown.

    Raises:
        ValueError: A variance is unknown; the message names the first rows and ends with `how`.
    """
    if bars is not None and bars.unknown.any():
        raise ValueError(
            f"{bars.name} must not be NaN; got it in {_rows(bars.unknown)}{how}"
            f"{argument_hint(bars.name)}"
        )


def require_finite(variance: Array, name: str) -> None:
    """Raise for a new label of infinite variance, which no standard deviation describes.

    Raises:
        ValueError: It names the first rows.
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
    """The median of the known finite variances of each output, (D,).

    Raises:
        ValueError: An output has none.
    """
    known = np.where(np.isfinite(bars.variance), bars.variance, np.nan)
    if np.isnan(known).all(axis=0).any():
        raise ValueError(
            f"{bars.name} must be known of some labels of every output; got none: without error "
            f"bars, leave it out{argument_hint(bars.name)}"
        )
    return np.nanmedian(known, axis=0)


def common_variance(residual: Array, tau2: float, known: Array) -> float:
    """The noise variance that labels with these residuals share: their mean square less τ².

    No less than the lowest tenth of the variances that are known: a few residuals that happen to be
    small do not make labels that nothing is known of the best of all.
    """
    return max(float(np.mean(residual**2)) - tau2, float(np.quantile(known, 0.1)))


class Factor(NamedTuple):
    """By what factor variances seem to be off, and the 95% interval of that."""

    value: float
    low: float
    high: float

    @property
    def stderr(self) -> float:
        """Standard error of the value."""
        return (self.high - self.value) / INTERVAL


def multiplied(variance: Array, factors: Sequence[Factor]) -> Array:
    """Variances, (N, D), by a factor an output; one below 0 counts as 0. Infinite ones stay so."""
    by = np.array([max(f.value, 0.0) for f in factors])
    finite = np.isfinite(variance)
    return np.where(finite, np.where(finite, variance, 0.0) * by, variance)


def factor(pred: Array, target: Array, variance: Array) -> Factor:
    """:func:`biv.metrics.variance_factor` with its interval; NaN where it cannot be told."""
    if len(variance) < MIN_LABELS or np.ptp(variance) == 0:
        return Factor(np.nan, np.nan, np.nan)
    value, stderr = metrics.variance_factor(pred, target, variance)
    return Factor(value, value - INTERVAL * stderr, value + INTERVAL * stderr)


def is_impossible(mse: float, stderr: float) -> bool:
    """Whether a mean squared error to the true labels is below 0, and not by chance.

    Then the error bars are larger than the labels' noise, whatever their factor: that is a slope,
    and may be 1 or more where they are too large by another law than a factor.
    """
    return mse < -SURE * stderr
