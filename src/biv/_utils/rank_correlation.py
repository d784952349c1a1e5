"""Spearman's rank correlation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def ranks(values: Floats) -> Floats:
    """Return the centred ranks of values, scaled to a vector of length 1.

    Tied values get their mean rank. The scalar product of two such vectors is Spearman's
    correlation.

    Examples
    --------
    >>> ranks(np.array([3.0, 1.0, 3.0])).round(3)
    array([ 0.408, -0.816,  0.408])
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    result: Floats = (ends - (counts - 1) / 2)[inverse]
    result = result - result.mean()
    length = np.sqrt((result**2).sum())
    return result / length if length > 0 else result


def rank_correlation(one: Floats, other: Floats) -> float:
    """Return Spearman's correlation, or 0 if all values of either array are equal.

    Examples
    --------
    >>> one, other = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 1.0, 2.0, 5.0])
    >>> round(rank_correlation(one, other), 3)
    0.949
    """
    return float(ranks(one) @ ranks(other))
