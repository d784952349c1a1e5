"""Moments that are not observed: those of the true labels, and of the model's own error."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, cast, overload

import numpy as np
import torch
from torch import Tensor

from biv._utils import search
from biv._utils.arrays import FloatArray
from biv._utils.pages import errors_point_to
from biv.metrics._elements import relative_weights, score_each_output, used_elements
from biv.metrics._influence import EstimatedEpsilon, estimated_epsilon, influence_on_mean
from biv.metrics._scores import standard_error

LABEL_VARIANCE_FLOOR = 1e-3  # as a fraction of the weighted variance of the noisy labels


@overload
def label_variance(target: Any, variance: Any, *, per_output: Literal[False] = ...) -> float: ...
@overload
def label_variance(target: Any, variance: Any, *, per_output: Literal[True]) -> FloatArray: ...
@errors_point_to("checking")
def label_variance(target: Any, variance: Any, *, per_output: bool = False) -> float | FloatArray:
    r"""Estimate the variance of the true labels from noisy labels.

    .. math:: V = \frac{\sum w (\tilde y - m)^2 - \sum w \sigma^2 (1 - w/W)}{W - \sum w^2 / W}

    Here ỹ is a label, :math:`w = (\sigma^2 + V_0)^{-2}` its weight, W the sum of the weights and
    :math:`m = \sum w \tilde y / W`. V_0 is a first estimate of V (see Notes). The
    result is at least 0.001 times the weighted variance of ỹ.

    Parameters
    ----------
    target : array-like of any shape
        Noisy labels ỹ, in label units, at least two of them with finite variance. NaN marks a
        missing label.
    variance : array-like of the shape of `target`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units.
    per_output : bool, default=False
        Whether to estimate it for each output, an index of the last dimension. Set it to True if
        outputs differ in unit.

    Returns
    -------
    float, or ndarray of shape (D,) with `per_output`
        Variance >= 0 of the true labels, in squared label units.

    Raises
    ------
    ValueError
        If fewer than two labels have finite variance, or a variance is negative or NaN.

    Notes
    -----
    The estimate is unbiased for given weights. Its :math:`V_0` is the Paule–Mandel estimate, the
    root of :math:`\sum (\tilde y - m_0)^2 / (\sigma^2 + V_0) = n - 1`. Here :math:`m_0` is the mean
    of ỹ with the weights :math:`1/(\sigma^2 + V_0)`. V_0 is raised if the result would rest on too
    few labels; see `epsilon` of :func:`noise_corrected_mse`. One huge σ² has therefore no effect,
    while it would ruin var(ỹ) − mean(σ²).

    Like every weighted score, the estimate assumes that σ² is unrelated to the labels. If large
    labels have large σ², the estimate is too low.

    Identities:

    - If all σ² are 0, it is the sample variance (ddof 1).
    - Adding a number to ỹ changes nothing.
    - Multiplying ỹ by c and σ² by c² multiplies it by c².

    Examples
    --------
    >>> import numpy as np
    >>> target, variance = np.array([1.0, 2.0, 3.0, 99.0]), np.array([0.0, 0.0, 0.0, 1e9])
    >>> round(label_variance(target, variance), 6)
    1.0
    """
    if per_output:
        columns = {"target": target, "variance": variance}
        return np.array(score_each_output(label_variance, columns))
    return label_moments(target, variance).variance


class LabelMoments(NamedTuple):
    """Mean and variance of the true labels.

    Attributes
    ----------
    mean : float
        Mean, in label units.
    variance : float
        Variance, in squared label units.

    Examples
    --------
    >>> LabelMoments(2.0, 1.0).variance
    1.0
    """

    mean: float
    variance: float


def label_moments(target: Any, variance: Any) -> LabelMoments:
    """Estimate the variance V of the true labels, and their mean with the weights 1/(σ²+V).

    Parameters
    ----------
    target : array-like of any shape
        Noisy labels, in label units, at least two of them with finite variance.
    variance : array-like of the shape of `target`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units.

    Returns
    -------
    LabelMoments
        (mean, variance); the variance is that of :func:`label_variance`.

    Raises
    ------
    ValueError
        If fewer than two labels have finite variance, or a variance is negative or NaN.

    Examples
    --------
    >>> import numpy as np
    >>> label_moments(np.array([1.0, 2.0, 3.0]), np.zeros(3))
    LabelMoments(mean=2.0, variance=1.0)
    """
    y, v = used_elements(target, variance)
    spread = estimate_label_variance(y, v).variance
    w = relative_weights(v, spread)
    return LabelMoments(float((w * y).sum() / w.sum()), spread)


def grouped_label_moments(count: Any, mean: Any, squares: Any, variance: Any) -> LabelMoments:
    """Estimate :func:`label_moments` from the sums of groups of labels with similar variances.

    Parameters
    ----------
    count : array-like of shape (G,)
        Number of labels of each group, at least 1.
    mean : array-like of shape (G,)
        Mean of the labels of each group, in label units.
    squares : array-like of shape (G,)
        Sum of squared differences from the mean of each group, in squared label units.
    variance : array-like of shape (G,)
        Mean of the finite σ² of each group, in squared label units.

    Returns
    -------
    LabelMoments
        (mean, variance).

    Raises
    ------
    ValueError
        If there are fewer than two labels in total.

    Examples
    --------
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
    """Label variance, influence of each label on it, and the noise that was subtracted."""

    variance: float
    influence: Tensor
    noise: float
    at_floor: bool

    @property
    def may_be_zero(self) -> bool:
        """Whether the variance may be 0, so that it must not be a divisor.

        A standard error above the variance is not enough: if only few labels differ, it is that
        large even without noise.
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
    """Estimate the label variance from labels, or from groups of `count` labels.

    For groups, `y` is their mean and `squares` their sum of squared differences from it.
    """
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
        first_w = count / (v + start) if start else torch.ones_like(v)
        epsilon = estimated_epsilon(around((first_w * y).sum() / first_w.sum()), v, start, count)
        w = relative_weights(v, cast(float, epsilon.value)).square()
    else:
        epsilon, w = EstimatedEpsilon(None), torch.ones_like(v)
    total = (count * w).sum()
    square = around((count * w * y).sum() / total)
    raw = (count * w * square).sum()
    corrected = raw - (count * w * v * (1 - w / total)).sum()
    freedom = total - (count * w.square()).sum() / total
    floor = LABEL_VARIANCE_FLOOR * float(raw / total)
    estimate = float(corrected / freedom)
    label_var = max(estimate, floor)
    noise = float((count * w * v).sum() / total)
    influence = influence_on_mean(square - v, w, label_var, v, epsilon)
    return LabelVarianceEstimate(label_var, influence, noise, estimate <= floor)


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
    r"""Estimate τ², the variance of the model's own error.

    It is the root of

    .. math:: \sum_k \frac{(f_k - \tilde y_k)^2}{\sigma_k^2 + \tau^2} = n,

    where f is the prediction, ỹ the label and n the number of labels used. It is 0 if the noise of
    the labels alone explains the residuals.

    Parameters
    ----------
    pred : array-like of any shape
        Predictions f of a model that was not fitted on these labels, in label units.
    target : array-like of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : array-like of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units.
    per_output : bool, default=False
        Whether to estimate it for each output, an index of the last dimension. Set it to True if
        outputs differ in unit or in their error.

    Returns
    -------
    float, or ndarray of shape (D,) with `per_output`
        τ² >= 0, in squared label units.

    Raises
    ------
    ValueError
        If shapes differ, or a variance is negative or NaN.

    Notes
    -----
    This is the Paule–Mandel estimate. With ε = τ², the weight 1/(σ²+ε) is the inverse variance of a
    residual.

    Identities:

    - If all σ² are 0, it is the mean squared error.
    - If all σ² are equal, it is the mean squared error minus σ², or 0 if that is negative.
    - Multiplying f and ỹ by c, and σ² by c², multiplies it by c².

    Examples
    --------
    >>> import numpy as np
    >>> round(residual_variance(np.zeros(2), np.array([1.0, -3.0]), np.zeros(2)), 6)
    5.0
    """
    if per_output:
        columns = {"pred": pred, "target": target, "variance": variance}
        return np.array(score_each_output(residual_variance, columns))
    f, y, v = used_elements(target, variance, pred)
    return paule_mandel(f - y, v)


def paule_mandel(residual: Tensor, variance: Tensor) -> float:
    """Return the residual variance of checked elements; see :func:`residual_variance`."""

    def excess(tau2: Tensor) -> Tensor:
        return (residual.square() / (variance + tau2)).sum() - len(residual)

    return search.root(excess, residual.square().sum() / len(residual))
