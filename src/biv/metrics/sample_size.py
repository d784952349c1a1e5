"""Effective sample size of weighted scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from biv._utils import arrays, search, validation
from biv._utils.pages import errors_point_to
from biv.losses import weights
from biv.metrics._elements import relative_weights

STEADY_SAMPLE_SIZE = 30  # smallest effective sample size with an estimated ε


@errors_point_to("checking")
def effective_sample_size(variance: Any, *, epsilon: float) -> float:
    r"""Compute Kish's effective sample size of a weighted score.

    .. math:: \frac{\left(\sum_k w_k\right)^2}{\sum_k w_k^2},
              \qquad w_k = (\sigma_k^2 + \epsilon)^{-2}

    If it is small compared with the number of labels, a few labels of low σ² decide the score.

    Parameters
    ----------
    variance : array-like of any shape
        Noise variance σ² of each label, in squared label units. Infinite ones do not count.
    epsilon : float
        ε >= 0, **absolute**: in the units of `variance`.

    Returns
    -------
    float
        Number of labels, in [1, n]; 0 if no σ² is finite.

    Raises
    ------
    ValueError
        If a variance is negative or NaN, or `epsilon` is negative.

    Notes
    -----
    The weights are those of :func:`noise_corrected_mse` at that ε, which are **squared**
    inverse-variance weights. A *fit* has the weights 1/(σ²+τ²). Their effective sample size, which
    is at least as large for the same ε, is ``effective_sample_size_`` of :class:`biv.BIVRegressor`.

    Identities:

    - It is :func:`biv.effective_batch_size` of the squared :func:`biv.inverse_variance_weights`.
    - It is n for n equal variances.
    - Multiplying σ² and ε by the same number changes nothing.
    - It does not decrease as ε grows.

    Examples
    --------
    >>> import numpy as np
    >>> effective_sample_size(np.array([1.0, 1.0, 1.0, np.inf]), epsilon=0.5)
    3.0
    """
    v = arrays.to_variances("variance", variance).detach().double().flatten()
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    return float(weights.kish(relative_weights(v, offset).square(), (0,)))


@errors_point_to("checking")
def steady_epsilon(estimate: float, variance: Any) -> float:
    """Raise an estimate of τ² until a score weighted with it rests on enough labels.

    Enough is an effective sample size (:func:`effective_sample_size`) of 30, or of half the labels
    if that is less. :func:`noise_corrected_mse` applies this to its own estimate.

    Parameters
    ----------
    estimate : float
        Estimate >= 0 of τ², in the units of `variance`.
    variance : array-like of any shape
        Noise variance σ² of each label, in squared label units. Infinite ones do not count.

    Returns
    -------
    float
        ε, which is at least `estimate`, in the units of `variance`.

    Raises
    ------
    ValueError
        If a variance is negative or NaN, or `estimate` is negative.

    Notes
    -----
    Identities:

    - It is `estimate` itself if that gives enough labels.
    - Multiplying both arguments by c multiplies ε by c.

    Examples
    --------
    >>> import numpy as np
    >>> steady_epsilon(0.5, np.ones(100))
    0.5
    """
    v = arrays.to_variances("variance", variance).detach().double().flatten()
    least = float(validation.real_number("estimate", estimate, validation.NON_NEGATIVE))
    limit = arrays.LARGEST**2
    validation.check_elements(
        "variance", v, (v <= limit) | v.isinf(), f"at most {limit:g}, or infinite"
    )
    return raise_to_sample_size(least, v[v.isfinite()])


def raise_to_sample_size(estimate: float, variance: Tensor, count: Tensor | None = None) -> float:
    """Raise ε until a score with the weights 1/(σ²+ε)² rests on enough labels.

    If ε is near 0, a few labels of very small σ² could decide the score, and a standard error
    computed from so few could not be trusted.
    """
    count = torch.ones_like(variance) if count is None else count
    required = min(STEADY_SAMPLE_SIZE, (float(count.sum()) + 1) / 2)

    def is_enough(epsilon: Tensor) -> Tensor:
        w = relative_weights(variance, epsilon).square()
        return (count * w).sum().square() >= required * (count * w.square()).sum()

    if bool(is_enough(torch.tensor(estimate, dtype=torch.float64))):
        return estimate
    high = 10 * variance.amax()  # here the weights differ by at most 21%, so it is large enough
    return float(search.smallest_where(is_enough, high * 1e-40, high))
