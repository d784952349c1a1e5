"""Errors to the unseen true labels, from noisy ones."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from biv._utils import arrays, validation
from biv._utils.pages import errors_point_to
from biv._utils.warnings import warn
from biv.metrics._elements import elements, of_each_output, relative_weights
from biv.metrics._influence import EstimatedEpsilon, estimated_epsilon, influence_on_mean
from biv.metrics._scores import Score, stacked, standard_error, weighted_mean
from biv.metrics.moments import estimate_label_variance, paule_mandel
from biv.metrics.sample_size import raised_to_sample_size


@errors_point_to("checking")
def noise_corrected_mse(
    pred: Any,
    target: Any,
    variance: Any,
    *,
    weighted: bool = True,
    epsilon: float | None = None,
    sample_weight: Any = None,
    per_output: bool = False,
) -> Score:
    r"""The mean squared error to the unseen true labels, from noisy ones.

    .. math:: \frac{\sum_k w_k \left[(f_k - \tilde y_k)^2 - \sigma_k^2\right]}{\sum_k w_k},
              \qquad w_k = (\sigma_k^2 + \epsilon)^{-2} \text{ or } 1

    Args:
        pred: f, predictions not fitted on these labels.
        target: ỹ, the noisy labels.
        variance: σ².
        weighted: False weighs all elements alike: **unbiased** for the MSE to the true labels, but
            a few noisy labels can drown it. True weighs by 1/(σ²+ε)², close to the inverse variance
            of each term: far less noisy, and unbiased (for a given ε) for the MSE *weighted so*,
            which equals the MSE **where σ² is unrelated to the model's error**. If the model is
            worse where labels are noisier, it flatters the model.
        epsilon: ε >= 0, **absolute**, in the units of `variance`. None estimates it as the model's
            own mean squared error (:func:`residual_variance`), and takes more where a handful of
            labels would otherwise decide the score: as much as gives an effective sample size
            (:func:`effective_sample_size`) of 30, or of half the labels if that is less.
        sample_weight: How much each element matters, as `variance`; it multiplies w.
        per_output: Whether each output, an index of the last dimension of (N, D), has a score of
            its own. Otherwise all elements share one, which for outputs of different units or
            error bars means little.

    Returns:
        (value, stderr). The value may be negative, and is returned as it is, since cut off at 0 it
        would no longer be unbiased. Many standard errors below 0, the variances are too large:
        was σ given for σ²? The standard error is to first order, counts the estimation of ε, and
        needs no σ² to be right. With fewer than some fifty labels, or σ² that is wrong by large
        factors in many rows, it may still be 10 to 20% too small.

    Identities: σ² = 0 gives the mean squared error, and equal variances that less σ²; adding a
    number to f and ỹ changes nothing; scaling both by c, σ² and ε by c², scales both results by c².

    Example:
        >>> import numpy as np
        >>> pred, target = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 2.0])
        >>> value, stderr = noise_corrected_mse(pred, target, np.array([0.1, 0.1, 0.1]))
        >>> round(value, 4), round(stderr, 4)
        (0.3167, 0.3005)
    """
    if per_output:
        columns = {"pred": pred, "target": target, "variance": variance}
        score = partial(noise_corrected_mse, weighted=weighted, epsilon=epsilon)
        return stacked(of_each_output(score, columns | {"sample_weight": sample_weight}))
    f, y, v, *importance = elements(target, variance, pred, sample_weight=sample_weight)
    chosen = _mse_epsilon(f - y, v, weighted, epsilon)
    w = _mse_weights(f - y, v, weighted, chosen.value)
    w = w * importance[0] if importance else w
    terms = (f - y).square() - v
    value = float((w * terms).sum() / w.sum())
    return Score(value, standard_error(influence_on_mean(terms, w, value, v, chosen)))


@errors_point_to("checking")
def noise_corrected_difference(
    pred: Any,
    other: Any,
    target: Any,
    variance: Any,
    *,
    weighted: bool = True,
    epsilon: float | None = None,
    sample_weight: Any = None,
    per_output: bool = False,
) -> Score:
    r"""By how much one model's mean squared error to the true labels exceeds another's.

    .. math::
        \frac{\sum_k w_k \left[(f_k - \tilde y_k)^2 - (g_k - \tilde y_k)^2\right]}{\sum_k w_k},
        \qquad w_k = (\sigma_k^2 + \epsilon)^{-1} \text{ or } 1

    Both models meet the same labels, so that σ² cancels, and the standard error is far below that
    of either score. Each term is :math:`(f - g)(f + g - 2\tilde y)`, whose variance is proportional
    to σ² plus a constant: hence these weights, and not the squared ones of
    :func:`noise_corrected_mse`.

    Args:
        pred: f, predictions of one model, not fitted on these labels.
        other: g, those of another, likewise.
        target: ỹ, the noisy labels.
        variance: σ².
        weighted: Whether to weigh by 1/(σ²+ε), rather than all elements alike.
        epsilon: As in :func:`noise_corrected_mse`; None takes the lower of the two models'
            estimates.
        sample_weight: As there.
        per_output: As there.

    Returns:
        (value, stderr). Below 0, `pred` is the better.

    Identities: unweighted, or with equal variances, it is the difference of the two scores;
    exchanging the models changes its sign alone; a model differs from itself by 0 ± 0.

    Example:
        >>> import numpy as np
        >>> y, f, g = np.array([[1.5, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]])
        >>> value, _ = noise_corrected_difference(f, g, y, np.full(3, 0.1))
        >>> round(value, 4)
        -0.3333
    """
    if per_output:
        columns = {"pred": pred, "other": other, "target": target, "variance": variance}
        score = partial(noise_corrected_difference, weighted=weighted, epsilon=epsilon)
        return stacked(of_each_output(score, columns | {"sample_weight": sample_weight}))
    f, y, v, *importance = elements(target, variance, pred, sample_weight=sample_weight)
    g, *_ = elements(target, variance, other, sample_weight=sample_weight)
    if weighted and epsilon is None:
        own = min(paule_mandel(f - y, v), paule_mandel(g - y, v))
        epsilon = raised_to_sample_size(own, v)
    w = _mse_weights(f - y, v, weighted, epsilon).sqrt()
    terms = (f - y).square() - (g - y).square()
    return weighted_mean(terms, w * importance[0] if importance else w)


@errors_point_to("checking")
def noise_corrected_r2(
    pred: Any,
    target: Any,
    variance: Any,
    *,
    weighted: bool = True,
    epsilon: float | None = None,
    per_output: bool = False,
) -> Score:
    r"""The share of the true labels' variance explained, from noisy labels.

    .. math:: R^2 = 1 - \frac{\text{noise-corrected MSE}}{\text{label variance}}

    Args:
        pred: f, predictions not fitted on these labels.
        target: ỹ, the noisy labels; at least two.
        variance: σ².
        weighted: As in :func:`noise_corrected_mse`; it holds for the label variance alike, which
            is that of :func:`label_variance` if True and var(ỹ) − mean(σ²) if False.
        epsilon: As in :func:`noise_corrected_mse`; the label variance has an estimate of its own.
        per_output: As in :func:`noise_corrected_mse`.

    Returns:
        (value, stderr). 1 is perfect, 0 as good as the mean label, and noise may carry it above 1.
        The standard error is that of the quotient, to first order. Both are NaN, with a warning,
        where the labels do not vary more than their noise explains, so that the label variance
        cannot be told from 0: it is at the floor of :func:`label_variance`, or below both its own
        standard error and the mean σ². Unweighted, this may happen with few labels or a few large
        σ².

    Identities: σ² = 0 gives 1 − MSE/var(ỹ), with ddof 1; adding a number to f and ỹ changes
    nothing, nor does scaling both by c, and σ² (and ε) by c².

    Example:
        >>> import numpy as np
        >>> target = np.array([1.0, 2.0, 3.0])
        >>> noise_corrected_r2(target, target, np.zeros(3)).value
        1.0
    """
    if per_output:
        columns = {"pred": pred, "target": target, "variance": variance}
        score = partial(noise_corrected_r2, weighted=weighted, epsilon=epsilon)
        return stacked(of_each_output(score, columns))
    f, y, v = elements(target, variance, pred)
    error = (f - y).square() - v
    chosen = _mse_epsilon(f - y, v, weighted, epsilon)
    w = _mse_weights(f - y, v, weighted, chosen.value)
    mse = float((w * error).sum() / w.sum())
    moment = estimate_label_variance(y, v, weighted=weighted)
    if moment.may_be_zero:
        warn(
            "noise_corrected_r2 is NaN: the labels do not vary more than their noise explains, so "
            "that the variance of the true labels cannot be told from 0; use more labels, "
            "weighted=True if it is not set, and check that variance holds σ², not σ "
            "(see: biv docs checking)"
        )
        return Score(math.nan, math.nan)
    influence = influence_on_mean(error, w, mse, v, chosen) / moment.variance
    influence -= mse / moment.variance**2 * moment.influence
    return Score(1 - mse / moment.variance, standard_error(influence))


@errors_point_to("checking")
def reduced_chi_squared(
    pred: Any, target: Any, variance: Any, *, epsilon: float = 0.0, parameters: int = 0
) -> Score:
    r"""Are the given variances too small?

    .. math:: \chi^2_\nu = \frac{1}{n - p} \sum_k \frac{(f_k - \tilde y_k)^2}{\sigma_k^2 + \epsilon}

    About 1 for a perfect model and honest variances. Well above 1: the variances are too small, or
    the model misses something; these labels alone cannot tell which. Well below 1: the variances
    are too large (σ given for σ²?), or the predictions were fitted on these labels.

    Args:
        pred: f, the predictions.
        target: ỹ, the noisy labels.
        variance: σ²; above 0 unless `epsilon` is.
        epsilon: >= 0, the variance of the model's own error where it is known from elsewhere, in
            the units of `variance`.
        parameters: p, how many parameters were fitted on these very labels; 0 for held-out labels.

    Returns:
        (value, stderr).

    Identities: for p = 0 it is :func:`biv.iv_loss`; scaling σ² and ε by c divides it by c; with
    ε = :func:`residual_variance`, where that is above 0, it is 1.

    Example:
        >>> import numpy as np
        >>> pred, target = np.zeros(4), np.array([1.0, -1.0, 2.0, -2.0])
        >>> reduced_chi_squared(pred, target, np.full(4, 2.5)).value
        1.0
    """
    f, y, v = elements(target, variance, pred)
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    if not offset and bool((v == 0).any()):
        raise ValueError(
            "variance must be positive where epsilon is 0; got 0 in "
            f"{int((v == 0).sum())} elements: pass an epsilon > 0 or leave them out"
        )
    parameters = validation.integer("parameters", parameters, at_least=0)
    if len(v) <= parameters:
        raise ValueError(
            f"parameters must be fewer than the labels used, {len(v)}; got {parameters}"
        )
    ratio = (f - y).square() / (v + offset)
    wanted = "large enough for (pred - target)²/(variance + epsilon) to have a finite square"
    validation.check_elements("variance", v, ratio <= arrays.LARGEST**2, wanted)
    mean = weighted_mean(ratio, torch.ones_like(ratio))
    correction = len(v) / (len(v) - parameters)
    return Score(mean.value * correction, mean.stderr * correction)


def _mse_weights(
    residual: Tensor, variance: Tensor, weighted: bool, epsilon: float | None
) -> Tensor:
    if not weighted:
        if epsilon is not None:
            raise ValueError(f"epsilon must be None with weighted=False; got {epsilon!r}")
        return torch.ones_like(variance)
    if epsilon is None:
        epsilon = raised_to_sample_size(paule_mandel(residual, variance), variance)
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    return relative_weights(variance, offset).square()


def _mse_epsilon(
    residual: Tensor, variance: Tensor, weighted: bool, epsilon: float | None
) -> EstimatedEpsilon:
    """The ε given, or the estimate that is taken where none is."""
    if epsilon is not None or not weighted:
        return EstimatedEpsilon(epsilon)
    return estimated_epsilon(residual.square(), variance, paule_mandel(residual, variance))
