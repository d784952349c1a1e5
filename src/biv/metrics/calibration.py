"""Checks of error bars against residuals: a common factor, and a column that was read wrongly."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from biv._utils import search
from biv._utils.pages import errors_point_to
from biv._utils.rank_correlation import rank_correlation
from biv.metrics._elements import relative_weights, used_elements
from biv.metrics._scores import Score
from biv.metrics.sample_size import raise_to_sample_size

READINGS = {"variance": 1, "std": 2, "precision": -1, "inverse std": -2}  # σ² = column ** power
MIN_LABELS = 500  # with fewer labels, most misreadings are missed and outliers look like one
MAX_LABELS = 20_000  # more labels take time without adding information
FAR_BETTER = 4.0  # standard errors by which another reading must fit better
MAX_NOISE_CORRELATION = 0.15  # rank correlation of σ² and residual; above it, σ² follows the noise


@errors_point_to("checking")
def variance_factor(pred: Any, target: Any, variance: Any) -> Score:
    r"""Estimate the factor by which the variances should be multiplied.

    It is the slope c of the squared residuals on the variances,

    .. math:: E\,(f_k - \tilde y_k)^2 = \tau^2 + c\,\sigma_k^2,

    where f is the prediction, ỹ the label and τ² the variance of the model's own error.

    Parameters
    ----------
    pred : array-like of any shape
        Predictions f of a model that was not fitted on these labels, in label units.
    target : array-like of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : array-like of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, in squared label units. They must not all be equal, because
        c could not be distinguished from τ².

    Returns
    -------
    Score
        (value, stderr), without unit. The value is 1 for right variances. If all variances are
        wrong by a common factor, it is the number to multiply them by. If it is near or below 0,
        the variances do not show how noisy each label is. The standard error holds for noise of any
        distribution.

    Raises
    ------
    ValueError
        If the variances are all equal, or there are fewer than three labels.

    Notes
    -----
    The slope is fitted by least squares with the weights :math:`(\tau^2 + c\,\sigma^2)^{-2}`, the
    inverse variance of a squared residual. Noise of the same size in all labels is part of τ². **A
    model that is worse where labels are noisier makes c too large.**

    If the variances are wrong in another way, c is only a slope. For example, if σ was passed for
    σ², c is the slope of σ² on σ, which is 2σ at a typical σ. Near σ = 0.5 it is 1 and looks right.
    :func:`misread` compares the shapes instead.

    Identities:

    - Multiplying σ² by k divides both results by k.
    - Multiplying f and ỹ by k, and σ² by k², changes nothing.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> variance = rng.uniform(0, 2, size=5000)
    >>> target = rng.normal(0, np.sqrt(0.3 + 4 * variance))  # four times the variance passed
    >>> value, stderr = variance_factor(np.zeros(5000), target, variance)
    >>> round(value, 2), round(stderr, 2)
    (4.0, 0.11)
    """
    f, y, v = used_elements(target, variance, pred)
    if len(v) < 3 or not bool(v.max() > v.min()):
        raise ValueError(
            "variance must differ between at least three labels, because its factor could not be "
            f"distinguished from the model's own error; got {len(v)} in "
            f"[{v.min():g}, {v.max():g}]"
        )
    square, scale = (f - y).square(), float(v.max())
    w = relative_weights(v, _likely_ratio(square, v)).square()
    # Sums give the slope. The last digit of a solver would depend on memory alignment.
    centred_v, centred_square = (x - (w * x).sum() / w.sum() for x in (v / scale, square))
    spread = (w * centred_v.square()).sum()
    slope = (w * centred_v * centred_square).sum() / spread
    influence = w * centred_v * (centred_square - slope * centred_v) / spread
    return Score(float(slope) / scale, math.sqrt(float(influence.square().sum())) / scale)


def _likely_ratio(square: Tensor, variance: Tensor) -> float:
    """Return the τ²/c with the largest likelihood of normal residuals of variance τ² + cσ².

    The search has bounds. At the lower one the weights rest on enough labels, and at the upper one
    they are nearly equal.
    """
    high = 100 * float(variance.max())
    low = max(raise_to_sample_size(0.0, variance), high * 1e-12)
    scale = float(square.mean()) or 1.0

    def negative_log_likelihood(ratios: Tensor) -> Tensor:
        spread = variance + ratios[:, None]
        factor = (square / scale / spread).mean(dim=1).clamp(min=torch.finfo(torch.float64).tiny)
        return factor.log() + spread.log().mean(dim=1)

    return search.argmin(negative_log_likelihood, low, high)


@errors_point_to("error-bars")
def misread(pred: Any, target: Any, variance: Any, *, taken: str = "variance") -> str | None:
    r"""Detect that a column of error bars does not hold the quantity that it was read as.

    Each reading of the column predicts the mean of the squared residual :math:`r_k^2`, as
    :math:`\tau^2 + \sigma_k^2`. Here τ² is the variance of the model's own error, and σ² is the
    column, its square, or the inverse of either. Another reading is returned if it fits the
    residuals far better than the one that was used.

    Parameters
    ----------
    pred : array-like of any shape
        Predictions f of a model that was not fitted on these labels, in label units.
    target : array-like of the shape of `pred`
        Noisy labels ỹ, in label units. NaN marks a missing label.
    variance : array-like of the shape of `pred`, or (N, 1) for (N, D)
        Noise variance σ² of each label, as the column was read. Labels with σ² = 0 are ignored.
    taken : {"variance", "std", "precision", "inverse std"}, default="variance"
        Quantity that the column was read as: σ², σ, 1/σ² or 1/σ. Set it if the column was not read
        as σ².

    Returns
    -------
    str or None
        The reading that fits better, as one of the values of `taken`. None if no other reading fits
        better, if the column is correlated with the signed residuals (as error bars computed from
        the noisy label are), or if there are fewer than 500 labels.

    Raises
    ------
    ValueError
        If `taken` is invalid, or the arguments are.

    Notes
    -----
    The test compares normal likelihoods of the residuals (Vuong, 1989). Another reading must be
    better by more than four standard errors of the difference. The variances of the reading that
    was used may have a factor c >= 0, as :math:`\tau^2 + c\,\sigma_k^2`; the other readings have
    none. So the test compares the **shape**, which :func:`variance_factor` does not: if σ was
    passed for σ², that factor is the slope of σ² on σ, which near σ = 0.5 is 1 and looks right.

    **None does not show that the column was read correctly.** The table shows how
    often σ that was passed for σ² is detected, if the error bars vary by a factor of 1.6 to 2 and
    the model's own error is small compared with them:

    ============================================== ============== ======================
    noise                                          labels         detected in
    ============================================== ============== ======================
    normal                                         1,000          40 to 90% of draws
    normal                                         3,000          nearly all draws
    Student's t with 3 degrees of freedom          3,000          one draw of ten
    normal, and one outlier of 20 σ per 100 labels 10,000         no draw
    ============================================== ============== ======================

    A model error that is proportional to σ², or a placeholder in many rows, may look like a misread
    column.

    Multiplying f and ỹ by c, and σ² by c², may change the result, because the readings of one
    column scale differently.

    Identity: shuffled error bars give None.

    References
    ----------
    Vuong, "Likelihood Ratio Tests for Model Selection and Non-Nested Hypotheses", Econometrica 57,
    1989.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> sigma = rng.uniform(0.2, 2, size=3000)
    >>> target = rng.normal(0, np.sqrt(0.1 + sigma**2))
    >>> misread(np.zeros(3000), target, sigma)  # σ passed for σ²
    'std'
    >>> print(misread(np.zeros(3000), target, sigma**2))
    None
    """
    if taken not in READINGS:
        raise ValueError(f"taken must be one of {', '.join(READINGS)}; got {taken!r}")
    f, y, v = used_elements(target, variance, pred, largest_variance=math.inf)
    positive = v > 0
    stride = -(-int(positive.sum()) // MAX_LABELS) or 1
    residual, v = (f - y)[positive][::stride], v[positive][::stride]
    square = residual.square()
    if len(v) < MIN_LABELS or not bool(v.max() > v.min()) or not bool(square.any()):
        return None
    if abs(rank_correlation(residual.numpy(), v.numpy())) > MAX_NOISE_CORRELATION:
        return None
    without_variances = _log_likelihoods(square, torch.zeros_like(v), scaled=False)
    as_read = max(_log_likelihoods(square, v, scaled=True), without_variances, key=torch.sum)
    gains = {}
    for name, power in READINGS.items():
        if name != taken:
            other = v ** (power / READINGS[taken])
            gain = _log_likelihoods(square, other, scaled=False) - as_read
            if float(gain.sum()) > FAR_BETTER * math.sqrt(len(v)) * float(gain.std()):
                gains[name] = float(gain.sum())
    return max(gains, key=gains.__getitem__, default=None)


def _log_likelihoods(square: Tensor, variance: Tensor, *, scaled: bool) -> Tensor:
    """Return the log-likelihood of each residual as normal with variance τ² + cσ².

    The most likely τ² is used, and the most likely c if `scaled`, otherwise c = 1. A constant is
    left out.
    """
    if scaled:
        spread = variance + _likely_ratio(square, variance)
        spread = spread * (square / spread).mean()
    else:
        scale = float(square.mean())

        def negative_log_likelihood(tau2: Tensor) -> Tensor:
            spread = variance + tau2[:, None]
            return (spread.log() + square / spread).mean(dim=1)

        spread = variance + search.argmin(negative_log_likelihood, 1e-9 * scale, 100 * scale)
    return -(spread.log() + square / spread) / 2
