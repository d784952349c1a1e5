"""Score that compares the epochs of one training run on noisy labels."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from biv import metrics
from biv._utils.pages import page_hint
from biv._utils.warnings import warn
from biv.losses import weights

EPSILON_FRACTION = 0.1  # ε of the score, relative to the label variance


class HeldOutScore:
    r"""Noise-corrected mean squared error whose weights do not depend on the predictions.

    For each output,

    .. math:: \frac{\sum_k w_k [(f_k - \tilde y_k)^2 - \sigma_k^2 - c\,s_k^2]}{\sum_k w_k},
              \qquad w_k = \frac{1}{\sigma_k^2 + \epsilon},

    summed over the labels that are used, and averaged over the outputs. Two epochs are compared by
    the difference of their scores, in which σ² cancels. Each term of that difference has a variance
    proportional to σ² plus a constant, which gives these weights. All epochs must use the same
    weights: a new ε would add :math:`\sum w (\sigma_{true}^2 - \sigma^2) / \sum w`, which depends
    on ε if the error bars are wrong. Therefore ε is fixed in advance: a tenth of each output's
    label variance, or more if the score would depend on few labels
    (:func:`biv.metrics.steady_epsilon`).

    Parameters
    ----------
    y : array-like or Tensor of shape (N, D)
        Noisy labels; NaN if a label is missing.
    variance : array-like or Tensor of shape (N, D), or None
        σ²; +inf for a label to ignore. None if the labels are clean.
    sample_weight : array-like or Tensor of shape (N, D) or (N, 1), default=None
        Importance of each label.

    Notes
    -----
    With equal variances, the score is the mean squared error of the labels that are used, minus σ².
    The difference of two scores does not depend on the variances that are subtracted.

    Examples
    --------
    >>> score = HeldOutScore(torch.tensor([[1.0], [2.0], [torch.nan]]), torch.full((3, 1), 0.1))
    >>> round(score(torch.tensor([[1.0], [3.0], [7.0]])), 6)
    0.4
    """

    def __init__(self, y: Any, variance: Any, sample_weight: Any = None) -> None:
        self.y = _double(y)
        self.variance = torch.zeros_like(self.y) if variance is None else _double(variance)
        importance = 1.0 if sample_weight is None else _double(sample_weight)
        w = torch.ones_like(self.y) * importance
        used = ~self.y.isnan() & self.variance.isfinite() & (w > 0)
        for output, rows in enumerate(used.T):
            w[rows, output] *= _weights(self.y[rows, output], self.variance[rows, output])
        w[~used] = 0.0
        total = w.sum(dim=0)
        self.share = w / torch.where(total > 0, total, 1.0) / int((total > 0).sum())

    def __call__(self, pred: Any, gain: Any = 0.0) -> float:
        """Return the score of predictions; infinite if one for a label in use is not finite.

        Parameters
        ----------
        pred : array-like or Tensor of shape (N, D)
            Predictions f.
        gain : array-like or Tensor of shape (N, D), default=0.0
            c·s², the expected decrease of the squared error for a larger ensemble.
        """
        error = (_double(pred) - self.y).square() - self.variance - gain
        score = float((self.share * error)[self.share > 0].sum())
        return score if math.isfinite(score) else math.inf


def warn_if_negative(lowest: float) -> None:
    """Warn if the estimated mean squared error of the chosen epoch is negative."""
    if lowest < 0:
        warn(
            f"the estimated mean squared error of the chosen epoch is negative ({lowest:.3g} "
            "times the label variance). Either the model's error is too small to be distinguished "
            "from 0 with these labels, or the error bars are larger than the noise. The choice of "
            "the epoch is still valid: epochs are compared by differences, which the error bars "
            f"do not change{page_hint('checking')}"
        )


def _double(values: Any) -> Tensor:
    return torch.as_tensor(values).double()


def _weights(target: Tensor, variance: Tensor) -> Tensor:
    """Return 1/(σ²+ε) of one output, divided by the largest of them."""
    least = EPSILON_FRACTION * metrics.label_variance(target, variance) if len(target) > 1 else 0.0
    epsilon = metrics.steady_epsilon(least, variance) if len(target) else 0.0
    return weights.relative_weights(variance, epsilon, weights.smallest_variance(variance))
