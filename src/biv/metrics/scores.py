"""Estimates of the error to the true labels, from noisy labels."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from biv._utils import arrays, validation
from biv._utils.pages import errors_point_to
from biv._utils.warnings import warn
from biv.metrics._elements import relative_weights, score_each_output, used_elements
from biv.metrics._influence import EstimatedEpsilon, estimated_epsilon, influence_on_mean
from biv.metrics._scores import Score, stacked, standard_error, weighted_mean
from biv.metrics.moments import estimate_label_variance, paule_mandel
from biv.metrics.sample_size import raise_to_sample_size


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
    r"""Estimate the mean squared error to the true labels from noisy labels.

    .. math:: \frac{\sum_k w_k \left[(f_k - \tilde y_k)^2 - \sigma_k^2\right]}{\sum_k w_k},
              \qquad w_k = (\sigma_k^2 + \epsilon)^{-2} \text{ or } 1

    Here f is the prediction and ỹ the label.

    Parameters
    ----------
    pred : array-like of any shape
        Predictions f of a model that was not fitted on these labels, in label units.
    target : array-like of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : array-like of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units. +inf marks a label to ignore.
    weighted : bool, default=True
        Whether the weights are 1/(σ²+ε)² instead of 1. Set it to False if the model may be worse
        where labels are noisier.
    epsilon : float, default=None
        ε >= 0, **absolute**: in the units of `variance`. None estimates it (see Notes). Set it to
        compare scores that have the same weights.
    sample_weight : array-like of a shape that `variance` may have, default=None
        Importance of each element, >= 0, which multiplies w. Pass it if some elements matter more
        for a reason other than their noise.
    per_output : bool, default=False
        Whether to return one score per output, an index of the last dimension. Set it to True if
        outputs differ in unit or in the size of their variances.

    Returns
    -------
    Score
        (value, stderr), in squared label units; arrays of shape (D,) with `per_output`. The value
        may be negative. If it is many standard errors below 0, the variances are too large; for
        example, σ may have been passed for σ².

    Raises
    ------
    ValueError
        If shapes differ, a variance is negative or NaN, no label can be used, or `epsilon` is set
        with ``weighted=False``.

    Notes
    -----
    With ``weighted=False``, the value is **unbiased** for the mean squared error to the
    true labels, but a few noisy labels may make it useless. With ``weighted=True``, the weights are
    close to the inverse variance of each term, and the value is far less noisy. For a given ε, it
    is then unbiased for the mean squared error *with these weights*. The two errors are equal **if
    σ² is unrelated to the model's error**. If the model is worse where labels are noisier, the
    weighted value is too low.

    The estimate of ε is :func:`residual_variance`. It is raised if the score would rest on too few
    labels, until the effective sample size (:func:`effective_sample_size`) is 30, or half the
    labels if that is less.

    A negative value is not replaced by 0, because the result would be biased. The standard error is
    correct to first order, includes the estimation of ε, and does not assume that σ² is right. With
    fewer than about fifty labels, or with σ² that is wrong by large factors in many rows, it may be
    10 to 20% too small.

    Identities:

    - If all σ² are 0, it is the mean squared error.
    - If all σ² are equal, it is the mean squared error minus σ².
    - Adding a number to f and ỹ changes nothing.
    - Multiplying f and ỹ by c, and σ² and ε by c², multiplies both results by c².

    Examples
    --------
    >>> import numpy as np
    >>> pred, target = np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, 2.0])
    >>> value, stderr = noise_corrected_mse(pred, target, np.array([0.1, 0.1, 0.1]))
    >>> round(value, 4), round(stderr, 4)
    (0.3167, 0.3005)
    """
    if per_output:
        columns = {"pred": pred, "target": target, "variance": variance}
        score = partial(noise_corrected_mse, weighted=weighted, epsilon=epsilon)
        return stacked(score_each_output(score, columns | {"sample_weight": sample_weight}))
    f, y, v, *importance = used_elements(target, variance, pred, sample_weight=sample_weight)
    estimate = _mse_epsilon(f - y, v, weighted, epsilon)
    w = _mse_weights(f - y, v, weighted, estimate.value)
    w = w * importance[0] if importance else w
    terms = (f - y).square() - v
    value = float((w * terms).sum() / w.sum())
    return Score(value, standard_error(influence_on_mean(terms, w, value, v, estimate)))


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
    r"""Estimate the difference of two models' mean squared errors to the true labels.

    .. math::
        \frac{\sum_k w_k \left[(f_k - \tilde y_k)^2 - (g_k - \tilde y_k)^2\right]}{\sum_k w_k},
        \qquad w_k = (\sigma_k^2 + \epsilon)^{-1} \text{ or } 1

    Here f and g are the predictions of the two models, and ỹ is the label.

    Parameters
    ----------
    pred : array-like of any shape
        Predictions f of one model, which was not fitted on these labels, in label units.
    other : array-like of the shape of `pred`
        Predictions g of another model, which was not fitted on these labels either.
    target : array-like of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : array-like of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units. +inf marks a label to ignore.
    weighted : bool, default=True
        Whether the weights are 1/(σ²+ε) instead of 1. Set it to False if the models may be worse
        where labels are noisier.
    epsilon : float, default=None
        ε >= 0, **absolute**: in the units of `variance`. None takes the lower of the two models'
        estimates (see :func:`noise_corrected_mse`). Set it to compare several differences that have
        the same weights.
    sample_weight : array-like of a shape that `variance` may have, default=None
        Importance of each element, >= 0, which multiplies w. Pass it if some elements matter more
        for a reason other than their noise.
    per_output : bool, default=False
        Whether to return one difference per output, an index of the last dimension. Set it to True
        if outputs differ in unit or in the size of their variances.

    Returns
    -------
    Score
        (value, stderr), in squared label units; arrays of shape (D,) with `per_output`. A negative
        value means that `pred` is better than `other`.

    Raises
    ------
    ValueError
        If shapes differ, a variance is negative or NaN, no label can be used, or `epsilon` is set
        with ``weighted=False``.

    Notes
    -----
    Both models are scored on the same labels, so that σ² cancels, and the standard error is far
    below that of either score. Each term is :math:`(f - g)(f + g - 2\tilde y)`. Its variance is
    proportional to σ² plus a constant, so that the weights are not squared as in
    :func:`noise_corrected_mse`.

    Identities:

    - Unweighted, or with equal variances, it is the difference of the two scores.
    - Exchanging the models only changes its sign.
    - The difference of a model from itself is 0 with standard error 0.

    Examples
    --------
    >>> import numpy as np
    >>> y, f, g = np.array([[1.5, 2.0, 3.0], [1.0, 2.0, 3.0], [1.0, 2.0, 4.0]])
    >>> value, _ = noise_corrected_difference(f, g, y, np.full(3, 0.1))
    >>> round(value, 4)
    -0.3333
    """
    if per_output:
        columns = {"pred": pred, "other": other, "target": target, "variance": variance}
        score = partial(noise_corrected_difference, weighted=weighted, epsilon=epsilon)
        return stacked(score_each_output(score, columns | {"sample_weight": sample_weight}))
    f, y, v, *importance = used_elements(target, variance, pred, sample_weight=sample_weight)
    g, *_ = used_elements(target, variance, other, sample_weight=sample_weight)
    if weighted and epsilon is None:
        tau2 = min(paule_mandel(f - y, v), paule_mandel(g - y, v))
        epsilon = raise_to_sample_size(tau2, v)
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
    r"""Estimate the fraction of the true labels' variance that the predictions explain.

    .. math:: R^2 = 1 - \frac{\text{noise-corrected MSE}}{\text{label variance}}

    Parameters
    ----------
    pred : array-like of any shape
        Predictions of a model that was not fitted on these labels, in label units.
    target : array-like of the shape of `pred`
        Noisy labels ỹ, in label units, at least two. NaN marks a missing label.
    variance : array-like of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units. +inf marks a label to ignore.
    weighted : bool, default=True
        Whether error and label variance are weighted, as in :func:`noise_corrected_mse` and
        :func:`label_variance`. Otherwise the label variance is var(ỹ) − mean(σ²). Set it to False
        if the model may be worse where labels are noisier.
    epsilon : float, default=None
        ε >= 0 in the weights of the error, **absolute**: in the units of `variance`. None estimates
        it as in :func:`noise_corrected_mse`. Set it to compare scores that have the same weights.
    per_output : bool, default=False
        Whether to return one score per output, an index of the last dimension. Set it to True if
        outputs differ in unit or in the size of their variances.

    Returns
    -------
    Score
        (value, stderr), without unit; arrays of shape (D,) with `per_output`. 1 is perfect, 0 is as
        good as predicting the mean label, and noise may raise the value above 1. Value and stderr
        are NaN, with a warning, if the label variance may be 0.

    Raises
    ------
    ValueError
        If shapes differ, a variance is negative or NaN, fewer than two labels can be used, or
        `epsilon` is set with ``weighted=False``.

    Notes
    -----
    The standard error is that of the quotient, to first order.

    If the labels do not vary more than their noise explains, the label variance may be 0. This is
    assumed if its estimate is at the lower limit of :func:`label_variance`, or below both its own
    standard error and the mean σ².
    Unweighted, this may happen with few labels or a few large σ².

    Identities:

    - If all σ² are 0, it is 1 − MSE/var(ỹ), with ddof 1.
    - Adding a number to predictions and labels changes nothing.
    - Multiplying predictions and labels by c, and σ² and ε by c², changes nothing.

    Examples
    --------
    >>> import numpy as np
    >>> target = np.array([1.0, 2.0, 3.0])
    >>> noise_corrected_r2(target, target, np.zeros(3)).value
    1.0
    """
    if per_output:
        columns = {"pred": pred, "target": target, "variance": variance}
        score = partial(noise_corrected_r2, weighted=weighted, epsilon=epsilon)
        return stacked(score_each_output(score, columns))
    f, y, v = used_elements(target, variance, pred)
    error = (f - y).square() - v
    estimate = _mse_epsilon(f - y, v, weighted, epsilon)
    w = _mse_weights(f - y, v, weighted, estimate.value)
    mse = float((w * error).sum() / w.sum())
    moment = estimate_label_variance(y, v, weighted=weighted)
    if moment.may_be_zero:
        warn(
            "noise_corrected_r2 is NaN: the labels do not vary more than their noise explains, so "
            "that the variance of the true labels may be 0. Use more labels, set weighted=True, "
            "and check that variance holds σ², not σ (see: biv docs checking)"
        )
        return Score(math.nan, math.nan)
    influence = influence_on_mean(error, w, mse, v, estimate) / moment.variance
    influence -= mse / moment.variance**2 * moment.influence
    return Score(1 - mse / moment.variance, standard_error(influence))


@errors_point_to("checking")
def reduced_chi_squared(
    pred: Any, target: Any, variance: Any, *, epsilon: float = 0.0, parameters: int = 0
) -> Score:
    r"""Compute the reduced chi-square of residuals, which tests the size of the variances.

    .. math:: \chi^2_\nu = \frac{1}{n - p} \sum_k \frac{(f_k - \tilde y_k)^2}{\sigma_k^2 + \epsilon}

    Here f is the prediction, ỹ the label, and n the number of labels used.

    Parameters
    ----------
    pred : array-like of any shape
        Predictions f, in label units.
    target : array-like of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : array-like of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units. It must be positive if `epsilon` is
        0.
    epsilon : float, default=0.0
        ε >= 0, **absolute**: in the units of `variance`. Set it to the variance of the model's own
        error if that is known from elsewhere.
    parameters : int, default=0
        Number p of parameters that were fitted on these labels. Set it if the labels are not
        held out.

    Returns
    -------
    Score
        (value, stderr), without unit. The value is about 1 for a perfect model and right variances.

    Raises
    ------
    ValueError
        If shapes differ, a variance is negative, NaN, or 0 with ε = 0, or `parameters` is not
        below n.

    Notes
    -----
    If the value is well above 1, the variances are too small or the model has an error of its own;
    these labels alone cannot show which. If it is well below 1, the variances are too large (σ may
    have been passed for σ²), or the predictions were fitted on these labels.

    Identities:

    - For p = 0, it is :func:`biv.iv_loss`.
    - Multiplying σ² and ε by c divides it by c.
    - If p = 0, and ε is :func:`residual_variance` and above 0, it is 1.

    Examples
    --------
    >>> import numpy as np
    >>> pred, target = np.zeros(4), np.array([1.0, -1.0, 2.0, -2.0])
    >>> reduced_chi_squared(pred, target, np.full(4, 2.5)).value
    1.0
    """
    f, y, v = used_elements(target, variance, pred)
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    if not offset and bool((v == 0).any()):
        raise ValueError(
            "variance must be positive if epsilon is 0; got 0 in "
            f"{int((v == 0).sum())} elements: pass an epsilon > 0, or leave them out"
        )
    parameters = validation.integer("parameters", parameters, at_least=0)
    if len(v) <= parameters:
        raise ValueError(
            f"parameters must be smaller than the number of labels used, {len(v)}; got {parameters}"
        )
    ratio = (f - y).square() / (v + offset)
    expected = "large enough for (pred - target)²/(variance + epsilon) to have a finite square"
    validation.check_elements("variance", v, ratio <= arrays.LARGEST**2, expected)
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
        epsilon = raise_to_sample_size(paule_mandel(residual, variance), variance)
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    return relative_weights(variance, offset).square()


def _mse_epsilon(
    residual: Tensor, variance: Tensor, weighted: bool, epsilon: float | None
) -> EstimatedEpsilon:
    """Return the ε that was passed, or its estimate if none was."""
    if epsilon is not None or not weighted:
        return EstimatedEpsilon(epsilon)
    return estimated_epsilon(residual.square(), variance, paule_mandel(residual, variance))
