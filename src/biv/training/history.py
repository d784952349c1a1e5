"""Curves of a training run, and whether it diverged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils import validation

Curve = npt.NDArray[np.float64]

SMOOTHING = 35  # evaluations; NOTE[DIFF] 4: a trailing mean
# Error of a constant prediction of labels of unit variance. NOTE[DIFF] 6: a run that ends above it
# counts as diverged.
DIVERGED_ABOVE = 1.0


@dataclass(frozen=True, eq=False)
class History:
    """Curves of one training run.

    Attributes
    ----------
    train_loss : ndarray of shape (steps,)
        Loss of the batch of every step, before the step's update. It is 0 for a batch in which no
        label has a positive weight; such a batch makes no update.
    effective_batch_size : ndarray of shape (steps,)
        Kish's effective batch size of the weights of every step, as a number of labels.
    test_loss : ndarray of shape (evaluations,)
        Mean squared error on the test rows, in squared units of y.
    test_step : ndarray of shape (evaluations,)
        Number of steps done at each evaluation.
    diverged_at : int or None, default=None
        Step after which the loss, a parameter or the optimizer's state was infinite or NaN; None if
        all stayed finite. Training stopped there, and later values of the curves are NaN.

    Examples
    --------
    >>> steps = np.arange(1, 81)
    >>> history = History(1 / steps, np.full(80, 16.0), 2 / steps, steps)
    >>> history
    History(80 steps, last test loss 0.025)
    >>> history.smoothed_test_loss(window=8).shape, history.diverged
    ((73,), False)
    """

    train_loss: Curve
    effective_batch_size: Curve
    test_loss: Curve
    test_step: npt.NDArray[np.int64]
    diverged_at: int | None = None

    def __repr__(self) -> str:
        last = f", last test loss {self.test_loss[-1]:.4g}" if len(self.test_loss) else ""
        end = "" if self.diverged_at is None else f", diverged at step {self.diverged_at}"
        return f"History({len(self.train_loss)} steps{last}{end})"

    def smoothed_test_loss(self, window: int | None = None) -> Curve:
        """Return the trailing mean of the test loss, from the `window`-th evaluation on.

        Parameters
        ----------
        window : int, default=None
            Number of evaluations per mean; None takes 35, or an eighth of the evaluations if there
            are fewer than 35. Increase it to smooth more.

        Returns
        -------
        ndarray of shape (evaluations - window + 1,)
            Smoothed curve; empty if there are fewer evaluations than `window`.
        """
        return smoothed(self.test_loss, window or smoothing(len(self.test_loss)))

    @property
    def diverged(self) -> bool:
        """Whether a value was not finite, or the last smoothed test loss is above 1.

        The limit of 1 assumes labels of unit variance; it is the error of predicting their mean.
        """
        if self.diverged_at is not None:
            return True
        curve = self.smoothed_test_loss()
        return bool(len(curve) and curve[-1] > DIVERGED_ABOVE)


def smoothing(evaluations: int) -> int:
    """Return the number of evaluations that are averaged for one point of a smoothed curve.

    NOTE[DIFF] 20: 35, as in the paper; an eighth of the evaluations of a run that has fewer.

    Examples
    --------
    >>> smoothing(2700), smoothing(24)
    (35, 3)
    """
    return SMOOTHING if evaluations >= SMOOTHING else evaluations // 8 or SMOOTHING


def smoothed(curve: npt.NDArray[Any], window: int = SMOOTHING) -> Curve:
    """Return trailing means of a curve along its last axis, from the first full window on.

    Parameters
    ----------
    curve : ndarray of shape (..., n)
        One or more curves.
    window : int, default=35
        Number of values per mean. Decrease it for curves with few points; increase it to smooth
        more.

    Returns
    -------
    ndarray of shape (..., n - window + 1)
        Means, in float64; empty if there are fewer than `window` values.

    Raises
    ------
    ValueError
        If `window` is below 1.

    Examples
    --------
    >>> smoothed(np.array([1.0, 2.0, 3.0, 4.0]), window=2)
    array([1.5, 2.5, 3.5])
    """
    validation.integer("window", window, at_least=1)
    if curve.shape[-1] < window:
        return np.empty((*curve.shape[:-1], 0))
    windows = np.lib.stride_tricks.sliding_window_view(curve, window, axis=-1)
    means: Curve = windows.mean(axis=-1, dtype=np.float64)
    return means
