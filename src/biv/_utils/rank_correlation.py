"""Spearman's rank correlation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def ranks(values: Floats) -> Floats:
    """Return ranks from least to greatest, tied values with their mean rank, centred, of length 1.

    The product of two such vectors is Spearman's correlation.

    Example:
        >>> ranks(np.array([3.0, 1.0, 3.0])).round(3)
        array([ 0.408, -0.816,  0.408])
    """
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    found: Floats = (ends - (counts - 1) / 2)[place]
    found = found - found.mean()
    length = np.sqrt((found**2).sum())
    return found / length if length > 0 else found


def rank_correlation(one: Floats, other: Floats) -> float:
    """Return Spearman's correlation; 0 if the values of either are all equal.

    Example:
        >>> one, other = np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 1.0, 2.0, 5.0])
        >>> round(rank_correlation(one, other), 3)
        0.949
    """
    return float(ranks(one) @ ranks(other))
