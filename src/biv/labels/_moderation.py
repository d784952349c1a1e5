"""Variances estimated from few values, shrunk towards what all labels have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from biv.labels._noisy_labels import (
    Array,
)

DEGREES = np.geomspace(0.5, 1e5, 60)  # of freedom that are tried; the last is endless
MIN_DEGREES, BISECTIONS = 4.0, 60
MAX_SPREADS = 10_000  # of more, the distribution of the variances is fitted to evenly spaced ones


def moderated(squares: Array, freedom: npt.NDArray[np.int64], total: int | None = None) -> Array:
    """Variances of single values from sums of squares, each shrunk towards the common variance.

    The result is the expectation of the variance given the sums of squares. However alike the
    variances seem, it rests on no more than `total` degrees of freedom, by default their sum.
    """
    several = freedom > 0
    if not several.any():
        raise ValueError("an item must have two values at least, to say how far they spread")
    if not squares.any():
        raise ValueError("the values of every item must not all agree: their spread is 0")
    prior, scale = _prior(squares[several], freedom[several].astype(np.float64))
    nu = prior + freedom
    shrunk = (prior * scale + squares) / nu
    result: Array = shrunk * variance_of_t(np.minimum(nu, total or freedom.sum()))
    return result


def variance_of_t(nu: Any) -> Any:
    """The variance of a t distribution, with its degrees of freedom taken for 4 at least."""
    nu = np.maximum(nu, MIN_DEGREES)
    return nu / (nu - 2.0)


def _prior(squares: Array, d: Array) -> tuple[float, float]:
    """Degrees of freedom and scale of the variances' distribution, by marginal likelihood.

    s² = squares/d is s₀² times an F variable of (d, d₀) degrees of freedom.
    """
    if (step := len(d) // MAX_SPREADS) > 1:
        chosen = np.lexsort((squares, d))[step // 2 :: step]
        squares, d = squares[chosen], d[chosen]
    prior, mean = DEGREES[:, None], squares.sum() / d.sum()
    low, high = np.full(prior.shape, 1e-12), np.full(prior.shape, 1e12)  # of s₀² over the mean
    # Not `_utils.search`, whose midpoints and number of steps would give other last digits.
    for _ in range(BISECTIONS):
        middle = np.sqrt(low * high)
        share = squares / (prior * middle * mean + squares)
        rises = ((d + prior) * share - d).sum(axis=1, keepdims=True) > 0  # falls as s₀² grows
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    scale = np.sqrt(low * high) * mean
    half, own = torch.from_numpy(d / 2), torch.from_numpy(prior / 2)
    beta = torch.lgamma(half) + torch.lgamma(own) - torch.lgamma(half + own)
    terms = (
        -d / 2 * np.log(prior * scale)
        - beta.numpy()
        - (d + prior) / 2 * np.log1p(squares / (prior * scale))
    )
    best = int(terms.sum(axis=1).argmax())
    return float(DEGREES[best]), float(scale[best, 0])
