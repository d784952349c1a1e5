"""A score with its standard error."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor


class Score(NamedTuple):
    """A score and its standard error: numbers, or arrays (D,) with ``per_output=True``."""

    value: float
    stderr: float


def stacked(outputs: list[Score]) -> Score:
    """One pair of arrays, (D,), of the scores of D outputs."""
    value, stderr = np.array(outputs, dtype=np.float64).reshape(-1, 2).T
    return Score(cast(float, value), cast(float, stderr))


def weighted_mean(terms: Tensor, w: Tensor) -> Score:
    value = float((w * terms).sum() / w.sum())
    return Score(value, standard_error(w * (terms - value) / w.sum()))


def standard_error(influence: Tensor) -> float:
    n = len(influence)
    return math.sqrt(n / (n - 1) * float(influence.square().sum())) if n > 1 else math.nan
