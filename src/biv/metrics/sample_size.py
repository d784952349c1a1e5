"""How many labels a weighted score rests on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from biv._utils import arrays, search, validation
from biv._utils.pages import errors_point_to
from biv.losses import weights
from biv.metrics._elements import relative_weights

STEADY_SAMPLE_SIZE = 30  # effective labels that an estimated ε leaves at least


@errors_point_to("checking")
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
    v = arrays.to_variances("variance", variance).detach().double().flatten()
    offset = float(validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE))
    return float(weights.kish(relative_weights(v, offset).square(), (0,)))


@errors_point_to("checking")
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
    v = arrays.to_variances("variance", variance).detach().double().flatten()
    least = float(validation.real_number("estimate", estimate, validation.NON_NEGATIVE))
    limit = arrays.LARGEST**2
    validation.check_elements(
        "variance", v, (v <= limit) | v.isinf(), f"at most {limit:g}, or infinite"
    )
    return raised_to_sample_size(least, v[v.isfinite()])


def raised_to_sample_size(estimate: float, variance: Tensor, count: Tensor | None = None) -> float:
    """ε, raised from an estimate until a score weighted by 1/(σ²+ε)² rests on enough labels.

    Where the estimate is near 0 a few labels of tiny σ² would decide alone, and no standard error
    computed from them could be trusted.
    """
    count = torch.ones_like(variance) if count is None else count
    wanted = min(STEADY_SAMPLE_SIZE, (float(count.sum()) + 1) / 2)

    def rests_on_enough(epsilon: Tensor) -> Tensor:
        w = relative_weights(variance, epsilon).square()
        return (count * w).sum().square() >= wanted * (count * w.square()).sum()

    if bool(rests_on_enough(torch.tensor(estimate, dtype=torch.float64))):
        return estimate
    high = 10 * variance.amax()  # weights within 21% of each other: almost all labels count
    return float(search.smallest_where(rests_on_enough, high * 1e-40, high))
