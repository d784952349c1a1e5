"""What a training leaves behind: a curve for each quantity, and whether it diverged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils import validation

Curve = npt.NDArray[np.float64]

SMOOTHING = 35  # evaluations; NOTE[DIFF] 4: a trailing mean
# A constant prediction of labels of unit variance has this error; NOTE[DIFF] 6: a run that ends
# above it counts as diverged.
DIVERGED_ABOVE = 1.0


@dataclass(frozen=True, eq=False)
class History:
    """The curves of one member.

    Attributes:
        train_loss: Loss on the batch of every step, (steps,), before that step's update; 0
            where a batch had nothing left, which made no update.
        effective_batch_size: Kish's, of the weights of every step, (steps,).
        test_loss: Mean squared error on the test rows, (evaluations,).
        test_step: After how many steps each of these was taken, (evaluations,).
        diverged_at: The step after which a loss, a parameter or an optimiser's moment was no longer
            finite; None if they stayed so. The member was frozen there: its curves are NaN beyond.

    Example:
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
        """The test loss as a trailing mean; its first value is at the `window`-th evaluation."""
        return smoothed(self.test_loss, window or smoothing(len(self.test_loss)))

    @property
    def diverged(self) -> bool:
        """Whether something was not finite, or the last smoothed test loss is above 1.

        The second half is for labels of unit variance, of which 1 is the error of their mean.
        """
        if self.diverged_at is not None:
            return True
        curve = self.smoothed_test_loss()
        return bool(len(curve) and curve[-1] > DIVERGED_ABOVE)


def smoothing(evaluations: int) -> int:
    """How many evaluations a point of a smoothed curve is the mean of.

    NOTE[DIFF] 20: 35, as in the paper; of a run that has fewer, an eighth of them.

    Example:
        >>> smoothing(2700), smoothing(24)
        (35, 3)
    """
    return SMOOTHING if evaluations >= SMOOTHING else evaluations // 8 or SMOOTHING


def smoothed(curve: npt.NDArray[Any], window: int = SMOOTHING) -> Curve:
    """Trailing means over `window` values along the last axis, from the first whole window on.

    Example:
        >>> smoothed(np.array([1.0, 2.0, 3.0, 4.0]), window=2)
        array([1.5, 2.5, 3.5])
    """
    validation.integer("window", window, at_least=1)
    if curve.shape[-1] < window:
        return np.empty((*curve.shape[:-1], 0))
    windows = np.lib.stride_tricks.sliding_window_view(curve, window, axis=-1)
    means: Curve = windows.mean(axis=-1, dtype=np.float64)
    return means
