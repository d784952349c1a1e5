"""Variances estimated from few values, shrunk towards what all labels have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from biv.labels._noisy_labels import (
    Array,
)

DEGREES = np.geomspace(0.5, 1e5, 60)  # candidate degrees of freedom; the last is practically ∞
MIN_DEGREES, BISECTIONS = 4.0, 60
MAX_SPREADS = 10_000  # beyond this number, the prior is fitted to an evenly spaced selection


def moderated(squares: Array, freedom: npt.NDArray[np.int64], total: int | None = None) -> Array:
    """Estimate the variance of a single value of each item, shrunk towards the common variance.

    The result is the expectation of the variance given the sums of squares. However alike the
    variances seem, the estimate never claims more than `total` degrees of freedom, by default the
    sum of `freedom`.
    """
    several = freedom > 0
    if not several.any():
        raise ValueError(
            "at least one item must have two values, to estimate their spread; got none"
        )
    if not squares.any():
        raise ValueError("the values of at least one item must differ; got a spread of 0 for all")
    prior, scale = _fit_prior(squares[several], freedom[several].astype(np.float64))
    nu = prior + freedom
    shrunk = (prior * scale + squares) / nu
    result: Array = shrunk * variance_of_t(np.minimum(nu, total or freedom.sum()))
    return result


def variance_of_t(nu: Any) -> Any:
    """Return the variance of a t distribution, with at least 4 degrees of freedom."""
    nu = np.maximum(nu, MIN_DEGREES)
    return nu / (nu - 2.0)


def _fit_prior(squares: Array, d: Array) -> tuple[float, float]:
    """Fit degrees of freedom and scale of the variances' prior by marginal likelihood.

    s² = squares/d is s₀² times an F variable of (d, d₀) degrees of freedom.
    """
    if (step := len(d) // MAX_SPREADS) > 1:
        selection = np.lexsort((squares, d))[step // 2 :: step]
        squares, d = squares[selection], d[selection]
    prior, mean = DEGREES[:, None], squares.sum() / d.sum()
    low, high = np.full(prior.shape, 1e-12), np.full(prior.shape, 1e12)  # bounds of s₀²/mean
    # `_utils.search` is not used: its midpoints and number of steps would change the last digits.
    for _ in range(BISECTIONS):
        middle = np.sqrt(low * high)
        fraction = squares / (prior * middle * mean + squares)
        # The derivative of the likelihood falls as s₀² grows.
        rises = ((d + prior) * fraction - d).sum(axis=1, keepdims=True) > 0
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    scale = np.sqrt(low * high) * mean
    half_d, half_prior = torch.from_numpy(d / 2), torch.from_numpy(prior / 2)
    beta = torch.lgamma(half_d) + torch.lgamma(half_prior) - torch.lgamma(half_d + half_prior)
    terms = (
        -d / 2 * np.log(prior * scale)
        - beta.numpy()
        - (d + prior) / 2 * np.log1p(squares / (prior * scale))
    )
    best = int(terms.sum(axis=1).argmax())
    return float(DEGREES[best]), float(scale[best, 0])
