r"""Scores against noisy labels: how good is a model where no clean label was ever seen?

In all of them σ² is the variance of each label's noise; elements whose σ² is infinite or whose
target is NaN do not count; arrays and tensors are taken alike, at equal shapes or σ² of (N, 1)
beside (N, D). The noise is taken to be independent of the predictions: score predictions on labels
that the model was **not** fitted on.

σ² is taken to be known. If each σ² was estimated from a few repeats of its label, those that are
small by chance get the largest weights: with three repeats, a model whose mean squared error is .10
scores about .4, and the factor by which σ² seems to be off falls far below 1. Shrink such variances
with :func:`biv.labels.repeats` first, or score with ``weighted=False``, which stays unbiased.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, cast, overload

import numpy as np
import torch
from torch import Tensor

from biv._utils import arrays, bisection, validation
from biv._utils.arrays import FloatArray
from biv._utils.pages import helps_with
from biv._utils.warnings import warn
from biv.losses import weights

LABEL_VARIANCE_FLOOR = 1e-3  # of the weighted variance of the noisy labels
REFINEMENTS = 6  # of a grid of 33, sixteen times finer each
STEADY_SAMPLE_SIZE = 30  # effective labels that an estimated ε leaves at least

READINGS = {"variance": 1, "std": 2, "precision": -1, "inverse std": -2}  # σ² is the column to it
FEWEST_READ = 500  # labels: of fewer, most slips are missed, and outliers look like one
MOST_READ = 20_000  # labels: more would take time and tell nothing more
FAR_BETTER = 4.0  # standard errors
FOLLOWING = 0.15  # rank correlation with the residuals, beyond which error bars follow the noise


class Score(NamedTuple):
    """A score and its standard error: numbers, or arrays (D,) with ``per_output=True``."""

    value: float
    stderr: float


@helps_with("checking")
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
        factors in many rows, it may still be 10 to 20 % too small.

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
        return _scores(_of_each_output(score, columns | {"sample_weight": sample_weight}))
    f, y, v, *importance = _elements(target, variance, pred, sample_weight=sample_weight)
    chosen = _mse_epsilon(f - y, v, weighted, epsilon)
    w = _mse_weights(f - y, v, weighted, chosen.value)
    w = w * importance[0] if importance else w
    terms = (f - y).square() - v
    value = float((w * terms).sum() / w.sum())
    return Score(value, _stderr(_influence(terms, w, value, v, chosen)))


@helps_with("checking")
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
        return _scores(_of_each_output(score, columns | {"sample_weight": sample_weight}))
    f, y, v, *importance = _elements(target, variance, pred, sample_weight=sample_weight)
    g, *_ = _elements(target, variance, other, sample_weight=sample_weight)
    if weighted and epsilon is None:
        own = min(_residual_variance(f - y, v), _residual_variance(g - y, v))
        epsilon = _steady(own, v)
    w = _mse_weights(f - y, v, weighted, epsilon).sqrt()
    terms = (f - y).square() - (g - y).square()
    return _weighted_mean(terms, w * importance[0] if importance else w)


@helps_with("checking")
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
        return _scores(_of_each_output(score, columns))
    f, y, v = _elements(target, variance, pred)
    error = (f - y).square() - v
    chosen = _mse_epsilon(f - y, v, weighted, epsilon)
    w = _mse_weights(f - y, v, weighted, chosen.value)
    mse = float((w * error).sum() / w.sum())
    moment = _label_moment(y, v, weighted=weighted)
    if moment.may_be_zero:
        warn(
            "noise_corrected_r2 is NaN: the labels do not vary more than their noise explains, so "
            "that the variance of the true labels cannot be told from 0; use more labels, "
            "weighted=True if it is not set, and check that variance holds σ², not σ "
            "(see: biv docs checking)"
        )
        return Score(math.nan, math.nan)
    influence = _influence(error, w, mse, v, chosen) / moment.variance
    influence -= mse / moment.variance**2 * moment.influence
    return Score(1 - mse / moment.variance, _stderr(influence))


@helps_with("checking")
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
    f, y, v = _elements(target, variance, pred)
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    if not offset and bool((v == 0).any()):
        raise ValueError(
            "variance must be positive where epsilon is 0; found 0 in "
            f"{int((v == 0).sum())} elements: pass an epsilon > 0 or leave them out"
        )
    parameters = validation.integer("parameters", parameters, at_least=0)
    if len(v) <= parameters:
        raise ValueError(
            f"parameters must be fewer than the labels used, {len(v)}; found {parameters}"
        )
    ratio = (f - y).square() / (v + offset)
    wanted = "large enough for (pred - target)²/(variance + epsilon) to have a finite square"
    validation.all_elements("variance", v, ratio <= arrays.LARGEST**2, wanted)
    mean = _weighted_mean(ratio, torch.ones_like(ratio))
    correction = len(v) / (len(v) - parameters)
    return Score(mean.value * correction, mean.stderr * correction)


@overload
def label_variance(target: Any, variance: Any, *, per_output: Literal[False] = ...) -> float: ...
@overload
def label_variance(target: Any, variance: Any, *, per_output: Literal[True]) -> FloatArray: ...
@helps_with("checking")
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
        return np.array(_of_each_output(label_variance, columns))
    return label_moments(target, variance).variance


class LabelMoments(NamedTuple):
    """The mean and the variance of labels without their noise."""

    mean: float
    variance: float


def label_moments(target: Any, variance: Any) -> LabelMoments:
    """:func:`label_variance`, V, and the mean that goes with it, weighted by 1/(σ²+V)."""
    y, v = _elements(target, variance)
    spread = _label_moment(y, v).variance
    w = _relative_weights(v, spread)
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
    spread = _label_moment(y, v, count=n, squares=square).variance
    w = n * _relative_weights(v, spread)
    return LabelMoments(float((w * y).sum() / w.sum()), spread)


@overload
def residual_variance(
    pred: Any, target: Any, variance: Any, *, per_output: Literal[False] = ...
) -> float: ...
@overload
def residual_variance(
    pred: Any, target: Any, variance: Any, *, per_output: Literal[True]
) -> FloatArray: ...
@helps_with("checking")
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
        return np.array(_of_each_output(residual_variance, columns))
    f, y, v = _elements(target, variance, pred)
    return _residual_variance(f - y, v)


@helps_with("checking")
def variance_factor(pred: Any, target: Any, variance: Any) -> Score:
    r"""By what factor the given variances are too small or too large, as the residuals see it.

    The slope c of squared residuals on the variances,

    .. math:: E\,(f_k - \tilde y_k)^2 = \tau^2 + c\,\sigma_k^2,

    by least squares weighted with :math:`(\tau^2 + c\,\sigma^2)^{-2}`, the inverse variance of a
    squared residual. The model's own error, and any noise of the same size in all labels, is in the
    intercept τ². **A model that is worse where labels are noisier** makes c too large.

    Args:
        pred: f, predictions not fitted on these labels.
        target: ỹ, the noisy labels.
        variance: σ², not all alike: else the slope cannot be told from the intercept.

    Returns:
        (value, stderr). 1 of honest variances; of such as are off by a common factor, what to
        multiply them by. Of anything else it is a slope: σ passed for σ² gives about 2σ, which
        looks right near σ = ½ (:func:`misread` looks at the shape).
        Near or below 0 they say nothing of how noisy each label is. The standard error holds
        for noise of any distribution.

    Raises:
        ValueError: The variances are all alike, or there are fewer than three.

    Identities: scaling σ² by c divides both results by c; scaling f and ỹ by c and σ² by c² changes
    nothing.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> variance = rng.uniform(0, 2, size=5000)
        >>> target = rng.normal(0, np.sqrt(0.3 + 4 * variance))  # four times what is said
        >>> value, stderr = variance_factor(np.zeros(5000), target, variance)
        >>> abs(value - 4) < 3 * stderr < 0.5
        True
    """
    f, y, v = _elements(target, variance, pred)
    if len(v) < 3 or not bool(v.max() > v.min()):
        raise ValueError(
            "variance must differ between labels, three at least, for its factor to be told from "
            f"the model's own error; found {len(v)} in [{v.min():g}, {v.max():g}]"
        )
    square, scale = (f - y).square(), float(v.max())
    w = _relative_weights(v, _likely_ratio(square, v)).square()
    # The line's slope by sums: a solver's last digit hangs on where in memory its arrays lie.
    apart, above = (x - (w * x).sum() / w.sum() for x in (v / scale, square))
    spread = (w * apart.square()).sum()
    slope = (w * apart * above).sum() / spread
    influence = w * apart * (above - slope * apart) / spread
    return Score(float(slope) / scale, math.sqrt(float(influence.square().sum())) / scale)


def _likely_ratio(square: Tensor, variance: Tensor) -> float:
    """τ²/c at which normal residuals of variance τ² + cσ² are most likely.

    There the weighted line through the squares is τ² + cσ² itself. Between bounds: the lower leaves
    weights that rest on enough labels, the upper lets all labels weigh alike.
    """
    high = 100 * float(variance.max())
    low = max(_steady(0.0, variance), high * 1e-12)
    scale = float(square.mean()) or 1.0

    def unlikely(ratios: Tensor) -> Tensor:
        spread = variance + ratios[:, None]
        factor = (square / scale / spread).mean(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
        return factor.log() + spread.log().mean(dim=1)

    return _lowest(unlikely, low, high)


def _lowest(unlikely: Callable[[Tensor], Tensor], low: float, high: float) -> float:
    """Where a function is lowest between bounds, by ever finer grids on a logarithmic scale."""
    for _ in range(REFINEMENTS):
        grid = torch.logspace(math.log10(low), math.log10(high), 33, dtype=torch.float64)
        best = int(unlikely(grid).argmin())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 32)])
    return float(grid[best])


@helps_with("error-bars")
def misread(pred: Any, target: Any, variance: Any, *, taken: str = "variance") -> str | None:
    r"""What a column of error bars seems to be, if it is not what it was taken for.

    With residuals r of rows left out and a model's own error τ², each reading of the column says
    how large :math:`r_k^2` is on average: :math:`\tau^2 + \sigma_k^2`, where σ² is the column, its
    square, or the inverse of either. The reading that was taken may have a factor c ≥ 0 besides,
    :math:`\tau^2 + c\,\sigma_k^2`; the others are taken at their word. One of these is returned if
    the normal likelihood of the residuals prefers it by more than four standard errors of the
    difference (Vuong, 1989). So the **shape** tells: :func:`variance_factor` is about 2σ where σ
    was passed for σ², and looks right near σ = ½.

    Args:
        pred: f, predictions not fitted on these labels.
        target: ỹ, the noisy labels.
        variance: σ² as the column was read; where it is 0, a label is not looked at.
        taken: What the column was read as: "variance" (σ²), "std" (σ), "precision" (1/σ²) or
            "inverse std" (1/σ).

    Returns:
        The reading that fits better, in these words; None if none does, as with honest error bars
        and with such as say nothing. None too if the column goes with the residuals' sign, as error
        bars made from the noisy label do: they have a shape of their own. With fewer than 500
        labels it is always None. **None does not show that the column was read correctly**: with
        normal noise, error bars that vary by a factor of 1.6 to 2 and a model whose own error is
        small beside them, σ passed for σ² is found in 40 to 90 % of draws of 1,000 labels and in
        nearly all of 3,000. With heavy tails (Student's t, 3 degrees of freedom) it is found in
        one draw of ten of 3,000 labels, and with one outlier of 20 σ per hundred labels in none of
        10,000. A model's error that grows as σ² does, or a placeholder in many rows, may be taken
        for a slip.

    Identities: scaling f and ỹ by c and σ² by c² **may change the answer** unless it is None, since
    σ and σ² of the same column scale differently; shuffled error bars give None.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> sigma = rng.uniform(0.2, 2, size=3000)
        >>> target = rng.normal(0, np.sqrt(0.1 + sigma**2))
        >>> misread(np.zeros(3000), target, sigma)  # σ passed for σ²
        'std'
        >>> misread(np.zeros(3000), target, sigma**2)
    """
    if taken not in READINGS:
        raise ValueError(f"taken must be one of {', '.join(READINGS)}; found {taken!r}")
    f, y, v = _elements(target, variance, pred, largest_variance=math.inf)
    used = v > 0
    stride = -(-int(used.sum()) // MOST_READ) or 1
    residual, v = (f - y)[used][::stride], v[used][::stride]
    square = residual.square()
    if len(v) < FEWEST_READ or not bool(v.max() > v.min()) or not bool(square.any()):
        return None
    if abs(_rank_correlation(residual, v)) > FOLLOWING:
        return None
    nothing = _log_likelihoods(square, torch.zeros_like(v), scaled=False)
    own = max(_log_likelihoods(square, v, scaled=True), nothing, key=torch.sum)
    found = {}
    for name, power in READINGS.items():
        if name != taken:
            other = v ** (power / READINGS[taken])
            gain = _log_likelihoods(square, other, scaled=False) - own
            if float(gain.sum()) > FAR_BETTER * math.sqrt(len(v)) * float(gain.std()):
                found[name] = float(gain.sum())
    return max(found, key=found.__getitem__, default=None)


def _rank_correlation(one: Tensor, other: Tensor) -> float:
    """Spearman's, ties in the order in which they come."""
    ranks = [x.argsort(stable=True).argsort().double() for x in (one, other)]
    a, b = (x - x.mean() for x in ranks)
    return float((a * b).mean() / a.square().mean())


def _log_likelihoods(square: Tensor, variance: Tensor, *, scaled: bool) -> Tensor:
    """Of each residual, were it normal with τ² + cσ² at the likeliest τ², and c if it is `scaled`.

    But for a constant; otherwise c = 1.
    """
    if scaled:
        spread = variance + _likely_ratio(square, variance)
        spread = spread * (square / spread).mean()
    else:
        scale = float(square.mean())

        def unlikely(tau2: Tensor) -> Tensor:
            spread = variance + tau2[:, None]
            return (spread.log() + square / spread).mean(dim=1)

        spread = variance + _lowest(unlikely, 1e-9 * scale, 100 * scale)
    return -(spread.log() + square / spread) / 2


@helps_with("checking")
def effective_sample_size(variance: Any, *, epsilon: float) -> float:
    r"""How many labels a weighted evaluation really rests on: Kish's size of its weights.

    .. math:: \frac{\left(\sum_k w_k\right)^2}{\sum_k w_k^2},
              \qquad w_k = (\sigma_k^2 + \epsilon)^{-2}

    These are the weights of :func:`noise_corrected_mse` at that ε, **squared** ones; a small number
    beside n says that a few labels of low σ² decide the score. How many labels a *fit* rests on is
    another size, at the same ε no smaller: that of the weights 1/(σ²+τ²) themselves, which
    :class:`biv.BIVRegressor` has as ``effective_sample_size_``.

    Args:
        variance: σ²; infinite ones count for nothing.
        epsilon: >= 0, in the units of `variance`.

    Returns:
        A number in [1, n]; 0 if no σ² is finite.

    Identities: :func:`biv.effective_batch_size` of the squared
    :func:`biv.inverse_variance_weights`; n for n equal variances; scaling σ² and ε together changes
    nothing; non-decreasing in ε.

    Example:
        >>> import numpy as np
        >>> effective_sample_size(np.array([1.0, 1.0, 1.0, np.inf]), epsilon=0.5)
        3.0
    """
    v = arrays.variances("variance", variance).detach().double().flatten()
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    return float(weights.kish(_relative_weights(v, offset).square(), (0,)))


def _elements(
    target: Any,
    variance: Any,
    *pred: Any,
    sample_weight: Any = None,
    largest_variance: float = arrays.LARGEST**2,
) -> tuple[Tensor, ...]:
    """The predictions, if any, targets, variances and importances, if any, that count.

    As flat float64 tensors.
    """
    given = {"pred": pred[0]} if pred else {}
    given |= {"target": target, "variance": variance}
    given |= {} if sample_weight is None else {"sample_weight": sample_weight}
    columns = {
        name: arrays.to_tensor(name, value).detach().cpu().double() for name, value in given.items()
    }
    y = columns["target"]
    v = columns["variance"] = validation.expanded("variance", columns["variance"], "target", y)
    if pred:
        validation.same_shape("pred", columns["pred"], "target", y)
    known = ~y.isnan()
    if sample_weight is not None:
        s = validation.expanded("sample_weight", columns["sample_weight"], "target", y)
        validation.all_elements("sample_weight", s, s >= 0, "non-negative and not NaN")
        columns["sample_weight"], known = s, known & (s > 0)
    validation.all_elements("variance", v, (v >= 0) | ~known, "non-negative and not NaN")
    used = known & v.isfinite()
    for name, column in columns.items():
        validation.all_elements(name, column, column.isfinite() | ~used, "finite")
        limit = largest_variance if name == "variance" else arrays.LARGEST
        if name != "sample_weight":
            wanted = f"at most {limit:g} in size, for its powers to be finite"
            validation.all_elements(name, column, (column.abs() <= limit) | ~used, wanted)
    if not bool(used.any()):
        raise ValueError(
            "target must hold at least one element that is not NaN and has finite variance; "
            f"found none of {y.numel()}"
        )
    found = {name: column[used] for name, column in columns.items()}
    sizes = [float(found[name].abs().max()) for name in ("pred", "target") if name in found]
    largest = max(*sizes, math.sqrt(float(found["variance"].max())))
    if 0 < largest < 1 / arrays.LARGEST:
        raise ValueError(
            f"target and its errors must not all be below {1 / arrays.LARGEST:g}, for their "
            f"powers not to vanish; found {largest:g} at most: choose another unit"
        )
    return tuple(found.values())


def _of_each_output(score: Callable[..., Any], columns: dict[str, Any]) -> list[Any]:
    """A score of each output, the last of two or more dimensions, by itself."""
    tensors = {
        name: arrays.to_tensor(name, given).detach()
        for name, given in columns.items()
        if given is not None
    }
    target = tensors["target"]
    if target.ndim < 2:
        raise ValueError(
            "target must have its outputs in the last dimension, (N, D), with per_output=True; "
            f"found shape {tuple(target.shape)}"
        )
    for name, given in tensors.items():
        if name in ("pred", "other"):
            validation.same_shape(name, given, "target", target)
        else:
            tensors[name] = validation.expanded(name, given, "target", target)
    found = []
    for k in range(target.shape[-1]):
        try:
            found.append(score(**{name: given[..., k] for name, given in tensors.items()}))
        except ValueError as error:
            raise ValueError(f"output {k}: {error}") from None
    return found


def _scores(outputs: list[Score]) -> Score:
    """One pair of arrays, (D,), of the scores of D outputs."""
    value, stderr = np.array(outputs, dtype=np.float64).reshape(-1, 2).T
    return Score(cast(float, value), cast(float, stderr))


def _relative_weights(variance: Tensor, epsilon: float | Tensor) -> Tensor:
    return weights.relative_weights(variance, epsilon, weights.smallest(variance))


def _mse_weights(
    residual: Tensor, variance: Tensor, weighted: bool, epsilon: float | None
) -> Tensor:
    if not weighted:
        if epsilon is not None:
            raise ValueError(f"epsilon must be None with weighted=False; found {epsilon!r}")
        return torch.ones_like(variance)
    if epsilon is None:
        epsilon = _steady(_residual_variance(residual, variance), variance)
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    return _relative_weights(variance, offset).square()


def _weighted_mean(terms: Tensor, w: Tensor) -> Score:
    value = float((w * terms).sum() / w.sum())
    return Score(value, _stderr(w * (terms - value) / w.sum()))


class _Epsilon(NamedTuple):
    """ε of weights 1/(σ²+ε)², and how far each element moves it: None if none does."""

    value: float | None
    influence: Tensor | None = None


def _mse_epsilon(
    residual: Tensor, variance: Tensor, weighted: bool, epsilon: float | None
) -> _Epsilon:
    """The ε given, or the estimate that is taken where none is."""
    if epsilon is not None or not weighted:
        return _Epsilon(epsilon)
    return _estimated(residual.square(), variance, _residual_variance(residual, variance))


def _estimated(
    square: Tensor, variance: Tensor, root: float, count: Tensor | None = None
) -> _Epsilon:
    """ε from the Paule–Mandel root of these squares.

    Elements move it to first order through the equation it solves; not where it is 0, nor where it
    had to be raised, which depends on the variances alone.
    """
    value = _steady(root, variance, count)
    if not 0 < root == value:
        return _Epsilon(value)
    ratio = square / (variance + root)
    return _Epsilon(value, (ratio - ratio.mean()) / (ratio / (variance + root)).sum())


def _influence(
    terms: Tensor, w: Tensor, mean: float, variance: Tensor, epsilon: _Epsilon
) -> Tensor:
    """How far each element moves a mean by weights (σ²+ε)⁻² to first order, through ε too.

    Moving ε matters where the terms differ systematically with σ², as they do if σ² is wrong.
    """
    own = w * (terms - mean) / w.sum()
    if epsilon.value is None or epsilon.influence is None:
        return own
    slope = -2 * (own / (variance + epsilon.value)).sum()
    return own + slope * epsilon.influence


def _stderr(influence: Tensor) -> float:
    n = len(influence)
    return math.sqrt(n / (n - 1) * float(influence.square().sum())) if n > 1 else math.nan


def _residual_variance(residual: Tensor, variance: Tensor) -> float:
    def excess(tau2: Tensor) -> Tensor:
        return (residual.square() / (variance + tau2)).sum() - len(residual)

    return _root(excess, residual.square().sum() / len(residual))


class _LabelMoment(NamedTuple):
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
        return self.at_floor or self.variance < min(self.noise, _stderr(self.influence))


def _label_moment(
    y: Tensor,
    v: Tensor,
    *,
    weighted: bool = True,
    count: Tensor | None = None,
    squares: Tensor | None = None,
) -> _LabelMoment:
    """Of labels, or of groups of `count` labels with mean y, and `squares` around it."""
    count = torch.ones_like(y) if count is None else count
    n = float(count.sum())
    if n < 2:
        raise ValueError(
            f"target must hold at least two elements of finite variance; found {n:.0f}"
        )

    def around(mean: Tensor) -> Tensor:
        each = (y - mean).square()
        return each if squares is None else each + squares / count

    def excess(candidate: Tensor) -> Tensor:
        w = count / (v + candidate)
        mean = (w * y).sum() / w.sum()
        return (w * around(mean)).sum() - (n - 1)

    if weighted:
        start = _root(excess, (count * around((count * y).sum() / n)).sum() / (n - 1))
        by = count / (v + start) if start else torch.ones_like(v)
        chosen = _estimated(around((by * y).sum() / by.sum()), v, start, count)
        w = _relative_weights(v, cast(float, chosen.value)).square()
    else:
        chosen, w = _Epsilon(None), torch.ones_like(v)
    total = (count * w).sum()
    square = around((count * w * y).sum() / total)
    raw = (count * w * square).sum()
    corrected = raw - (count * w * v * (1 - w / total)).sum()
    freedom = total - (count * w.square()).sum() / total
    floor = LABEL_VARIANCE_FLOOR * float(raw / total)
    estimate = float(corrected / freedom)
    found = max(estimate, floor)
    noise = float((count * w * v).sum() / total)
    influence = _influence(square - v, w, found, v, chosen)
    return _LabelMoment(found, influence, noise, estimate <= floor)


@helps_with("checking")
def steady_epsilon(estimate: float, variance: Any) -> float:
    """ε, raised from an estimate of τ² until a weighted score rests on enough labels.

    It is what :func:`noise_corrected_mse` does with its own estimate: an effective sample size
    (:func:`effective_sample_size`) of 30, or of half the labels if that is less.

    Args:
        estimate: >= 0, in the units of `variance`.
        variance: σ²; infinite ones count for nothing.

    Returns:
        ε, at least the estimate.

    Identities: the estimate itself where it is enough; scaling both arguments scales ε.

    Example:
        >>> import numpy as np
        >>> steady_epsilon(0.5, np.ones(100))
        0.5
    """
    v = arrays.variances("variance", variance).detach().double().flatten()
    least = float(validation.real_number("estimate", estimate, validation.NON_NEGATIVE))
    limit = arrays.LARGEST**2
    validation.all_elements(
        "variance", v, (v <= limit) | v.isinf(), f"at most {limit:g}, or infinite"
    )
    return _steady(least, v[v.isfinite()])


def _steady(estimate: float, variance: Tensor, count: Tensor | None = None) -> float:
    """ε, raised from an estimate until a score weighted by 1/(σ²+ε)² rests on enough labels.

    Where the estimate is near 0 a few labels of tiny σ² would decide alone, and no standard error
    computed from them could be trusted.
    """
    count = torch.ones_like(variance) if count is None else count
    wanted = min(STEADY_SAMPLE_SIZE, (float(count.sum()) + 1) / 2)

    def rests_on_enough(epsilon: Tensor) -> Tensor:
        w = _relative_weights(variance, epsilon).square()
        return (count * w).sum().square() >= wanted * (count * w.square()).sum()

    if bool(rests_on_enough(torch.tensor(estimate, dtype=torch.float64))):
        return estimate
    high = 10 * variance.amax()  # weights within 21 % of each other: almost all labels count
    return float(bisection.smallest_where(rests_on_enough, high * 1e-40, high))


def _root(excess: Any, high: Tensor) -> float:
    """Where a decreasing function of a variance falls to 0; 0 if it starts below."""
    if not bool(high > 0):
        return 0.0
    low = high * 1e-40
    if not bool(excess(low) > 0):
        return 0.0
    return float(bisection.smallest_where(lambda x: excess(x) <= 0, low, high))
