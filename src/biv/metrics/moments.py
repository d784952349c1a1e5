"""Moments of what is not seen: the variance of the clean labels, and of the model's own error."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast, overload

import numpy as np
import torch
from torch import Tensor

from biv._utils import search
from biv._utils.arrays import FloatArray
from biv._utils.pages import errors_point_to
from biv.metrics._elements import elements, of_each_output, relative_weights
from biv.metrics._influence import EstimatedEpsilon, estimated_epsilon, influence_on_mean
from biv.metrics._scores import standard_error

LABEL_VARIANCE_FLOOR = 1e-3  # of the weighted variance of the noisy labels


@overload
def label_variance(target: Any, variance: Any, *, per_output: Literal[False] = ...) -> float: ...
@overload
def label_variance(target: Any, variance: Any, *, per_output: Literal[True]) -> FloatArray: ...
@errors_point_to("checking")
def label_variance(target: Any, variance: Any, *, per_output: bool = False) -> float | FloatArray:
    r"""The variance of the unseen clean labels, from noisy ones.

    With weights :math:`w = (\sigma^2 + V_0)^{-2}`, their sum W and :math:`m = \sum w \tilde y / W`,
    the estimate that is unbiased for those weights,

    .. math:: V = \frac{\sum w (\tilde y - m)^2 - \sum w \sigma^2 (1 - w/W)}{W - \sum w^2 / W},

    floored at 0.001 of the weighted variance of ỹ. V₀ is the Paule–Mandel estimate, the root of
    :math:`\sum (\tilde y - m_0)^2 / (\sigma^2 + V_0) = n - 1`, where :math:`m_0` is the mean of ỹ
    by weights :math:`1/(\sigma^2 + V_0)`; or more where a handful of labels would otherwise decide
    (see `epsilon` in :func:`noise_corrected_mse`). So one huge σ² costs nothing, where it would
    ruin var(ỹ) − mean(σ²). Like every weighted score it takes σ² to be unrelated to the labels:
    where large labels have large σ², it is too low.

    Args:
        target: ỹ, the noisy labels; at least two of finite variance.
        variance: σ².
        per_output: Whether each output, an index of the last dimension of (N, D), has its own.

    Returns:
        An estimate >= 0, in squared label units; the sample variance (ddof 1) if all σ² are 0.
        An array (D,) with `per_output`.

    Identities: adding a number to ỹ changes nothing; scaling ỹ by c and σ² by c² scales it by c².

    Example:
        >>> import numpy as np
        >>> target, variance = np.array([1.0, 2.0, 3.0, 99.0]), np.array([0.0, 0.0, 0.0, 1e9])
        >>> round(label_variance(target, variance), 6)
        1.0
    """
    if per_output:
        columns = {"target": target, "variance": variance}
        return np.array(of_each_output(label_variance, columns))
    return label_moments(target, variance).variance


class LabelMoments(NamedTuple):
    """The mean and the variance of labels without their noise."""

    mean: float
    variance: float


def label_moments(target: Any, variance: Any) -> LabelMoments:
    """:func:`label_variance`, V, and the mean that goes with it, weighted by 1/(σ²+V)."""
    y, v = elements(target, variance)
    spread = estimate_label_variance(y, v).variance
    w = relative_weights(v, spread)
    return LabelMoments(float((w * y).sum() / w.sum()), spread)


def grouped_label_moments(count: Any, mean: Any, squares: Any, variance: Any) -> LabelMoments:
    """:func:`label_moments` of labels that are known by groups of nearly equal variance.

    Args:
        count: How many labels each group has, one at least.
        mean: Of its labels.
        squares: Their sum around that mean.
        variance: The mean of their σ², finite.

    Example:
        >>> import numpy as np
        >>> y = np.array([1.0, 2.0, 3.0, 6.0])
        >>> round(label_moments(y, np.array([0.1, 0.1, 0.1, 2.0])).variance, 6)
        2.791574
        >>> round(grouped_label_moments([3, 1], [2, 6], [2, 0], [0.1, 2.0]).variance, 6)
        2.791574
    """
    n, y, square, v = (
        torch.as_tensor(column, dtype=torch.float64) for column in (count, mean, squares, variance)
    )
    spread = estimate_label_variance(y, v, count=n, squares=square).variance
    w = n * relative_weights(v, spread)
    return LabelMoments(float((w * y).sum() / w.sum()), spread)


class LabelVarianceEstimate(NamedTuple):
    """The label variance, how far each label moves it, and the noise that was taken out of it."""

    variance: float
    influence: Tensor
    noise: float
    at_floor: bool

    @property
    def may_be_zero(self) -> bool:
        """Whether it cannot be told from 0, so that nothing can be divided by it.

        A standard error above the variance alone says little: labels of which few differ have one
        too, without any noise.
        """
        return self.at_floor or self.variance < min(self.noise, standard_error(self.influence))


def estimate_label_variance(
    y: Tensor,
    v: Tensor,
    *,
    weighted: bool = True,
    count: Tensor | None = None,
    squares: Tensor | None = None,
) -> LabelVarianceEstimate:
    """Of labels, or of groups of `count` labels with mean y, and `squares` around it."""
    count = torch.ones_like(y) if count is None else count
    n = float(count.sum())
    if n < 2:
        raise ValueError(f"target must hold at least two elements of finite variance; got {n:.0f}")

    def around(mean: Tensor) -> Tensor:
        each = (y - mean).square()
        return each if squares is None else each + squares / count

    def excess(candidate: Tensor) -> Tensor:
        w = count / (v + candidate)
        mean = (w * y).sum() / w.sum()
        return (w * around(mean)).sum() - (n - 1)

    if weighted:
        start = search.root(excess, (count * around((count * y).sum() / n)).sum() / (n - 1))
        by = count / (v + start) if start else torch.ones_like(v)
        chosen = estimated_epsilon(around((by * y).sum() / by.sum()), v, start, count)
        w = relative_weights(v, cast(float, chosen.value)).square()
    else:
        chosen, w = EstimatedEpsilon(None), torch.ones_like(v)
    total = (count * w).sum()
    square = around((count * w * y).sum() / total)
    raw = (count * w * square).sum()
    corrected = raw - (count * w * v * (1 - w / total)).sum()
    freedom = total - (count * w.square()).sum() / total
    floor = LABEL_VARIANCE_FLOOR * float(raw / total)
    estimate = float(corrected / freedom)
    found = max(estimate, floor)
    noise = float((count * w * v).sum() / total)
    influence = influence_on_mean(square - v, w, found, v, chosen)
    return LabelVarianceEstimate(found, influence, noise, estimate <= floor)


@overload
def residual_variance(
    pred: Any, target: Any, variance: Any, *, per_output: Literal[False] = ...
) -> float: ...
@overload
def residual_variance(
    pred: Any, target: Any, variance: Any, *, per_output: Literal[True]
) -> FloatArray: ...
@errors_point_to("checking")
def residual_variance(
    pred: Any, target: Any, variance: Any, *, per_output: bool = False
) -> float | FloatArray:
    r"""τ², the model's own mean squared error, what the noise of the labels leaves.

    .. math:: \sum_k \frac{(f_k - \tilde y_k)^2}{\sigma_k^2 + \tau^2} = n

    The root of this, the Paule–Mandel estimate; 0 if the labels' noise alone explains residuals so
    large. It is the ε that makes 1/(σ²+ε) the inverse variance of a residual.

    Args:
        pred: f, predictions not fitted on these labels.
        target: ỹ, the noisy labels.
        variance: σ².
        per_output: Whether each output, an index of the last dimension of (N, D), has its own.

    Returns:
        τ² >= 0, in squared label units; an array (D,) with `per_output`.

    Identities: σ² = 0 gives the mean squared error, equal variances that less σ², or 0; scaling
    f and ỹ by c and σ² by c² scales it by c².

    Example:
        >>> import numpy as np
        >>> round(residual_variance(np.zeros(2), np.array([1.0, -3.0]), np.zeros(2)), 6)
        5.0
    """
    if per_output:
        columns = {"pred": pred, "target": target, "variance": variance}
        return np.array(of_each_output(residual_variance, columns))
    f, y, v = elements(target, variance, pred)
    return paule_mandel(f - y, v)


def paule_mandel(residual: Tensor, variance: Tensor) -> float:
    """The residual variance of checked elements; see :func:`residual_variance`."""

    def excess(tau2: Tensor) -> Tensor:
        return (residual.square() / (variance + tau2)).sum() - len(residual)

    return search.root(excess, residual.square().sum() / len(residual))
