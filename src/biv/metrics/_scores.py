"""A score with its standard error."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor


class Score(NamedTuple):
    """A score and its standard error.

    Attributes
    ----------
    value : float, or ndarray of shape (D,) with ``per_output=True``
        The score.
    stderr : float, or ndarray of shape (D,) with ``per_output=True``
        Its standard error, in the same unit.

    Examples
    --------
    >>> Score(0.12, 0.01).stderr
    0.01
    """

    value: float
    stderr: float


def stacked(outputs: list[Score]) -> Score:
    """Return the scores of D outputs as one pair of arrays of shape (D,)."""
    value, stderr = np.array(outputs, dtype=np.float64).reshape(-1, 2).T
    return Score(cast(float, value), cast(float, stderr))


def weighted_mean(terms: Tensor, w: Tensor) -> Score:
    """Return a weighted mean and its standard error."""
    value = float((w * terms).sum() / w.sum())
    return Score(value, standard_error(w * (terms - value) / w.sum()))


def standard_error(influence: Tensor) -> float:
    """Return the standard error of an estimate from the influences of n elements; NaN if n = 1."""
    n = len(influence)
    return math.sqrt(n / (n - 1) * float(influence.square().sum())) if n > 1 else math.nan
