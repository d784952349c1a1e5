"""The score that compares the epochs of one training on noisy labels."""

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

    summed over the labels that count, and averaged over the outputs. Two epochs are compared by the
    difference of their scores, in which σ² cancels: each term of it has a variance that is
    proportional to σ² plus a constant, hence these weights. They must be the same for both epochs,
    because an ε that is estimated anew adds :math:`\sum w (\sigma_{true}^2 - \sigma^2) / \sum w`,
    which moves with ε where the error bars are wrong. So ε is fixed beforehand: a tenth of each
    output's label variance, or more where the score would rest on a few labels
    (:func:`biv.metrics.steady_epsilon`).

    Args:
        y: Noisy labels, (N, D), an array or a tensor; NaN where one is missing.
        variance: σ², (N, D); +inf where a label is ignored. None if the labels are clean.
        sample_weight: Importance, (N, D) or (N, 1), or None.

    Identities: with equal variances, it is the mean squared error of the labels that count, minus
    σ²; the difference of two scores does not change when σ² is replaced by another variance in the
    subtracted term; labels that do not count have no influence.

    Example:
        >>> score = HeldOutScore(torch.tensor([[1.0], [2.0], [torch.nan]]), torch.full((3, 1), 0.1))
        >>> round(score(torch.tensor([[1.0], [3.0], [7.0]])), 6)
        0.4
    """

    def __init__(self, y: Any, variance: Any, sample_weight: Any = None) -> None:
        self.y = _double(y)
        self.variance = torch.zeros_like(self.y) if variance is None else _double(variance)
        importance = 1.0 if sample_weight is None else _double(sample_weight)
        w = torch.ones_like(self.y) * importance
        counts = ~self.y.isnan() & self.variance.isfinite() & (w > 0)
        for output, used in enumerate(counts.T):
            w[used, output] *= _weights(self.y[used, output], self.variance[used, output])
        w[~counts] = 0.0
        total = w.sum(dim=0)
        self.share = w / torch.where(total > 0, total, 1.0) / int((total > 0).sum())

    def __call__(self, pred: Any, gain: Any = 0.0) -> float:
        """Return the score of predictions, (N, D); infinite if one that counts is not finite.

        Args:
            pred: f.
            gain: c·s², (N, D): by how much the squared error of a larger ensemble is expected to be
                lower.
        """
        error = (_double(pred) - self.y).square() - self.variance - gain
        score = float((self.share * error)[self.share > 0].sum())
        return score if math.isfinite(score) else math.inf


def warn_if_negative(lowest: float) -> None:
    """Warn that the mean squared error of the chosen epoch was estimated to be below 0."""
    if lowest < 0:
        warn(
            f"the estimated mean squared error of the chosen epoch is negative ({lowest:.3g} "
            "times the label variance): either the model's error is too small to be told from "
            "0 with these labels, or the error bars are larger than the noise. Epochs are "
            f"compared by differences, which the error bars do not change{page_hint('checking')}"
        )


def _double(values: Any) -> Tensor:
    return torch.as_tensor(values).double()


def _weights(target: Tensor, variance: Tensor) -> Tensor:
    """Return 1/(σ²+ε) of one output, divided by the largest of them."""
    least = EPSILON_FRACTION * metrics.label_variance(target, variance) if len(target) > 1 else 0.0
    epsilon = metrics.steady_epsilon(least, variance) if len(target) else 0.0
    return weights.relative_weights(variance, epsilon, weights.smallest_variance(variance))
