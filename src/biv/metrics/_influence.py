"""How far each element moves a weighted mean, through the ε of its weights too."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from biv.metrics.sample_size import raised_to_sample_size


class EstimatedEpsilon(NamedTuple):
    """ε of weights 1/(σ²+ε)², and how far each element moves it: None if none does."""

    value: float | None
    influence: Tensor | None = None


def estimated_epsilon(
    square: Tensor, variance: Tensor, root: float, count: Tensor | None = None
) -> EstimatedEpsilon:
    """ε from the Paule–Mandel root of these squares.

    Elements move it to first order through the equation it solves; not where it is 0, nor where it
    had to be raised, which depends on the variances alone.
    """
    value = raised_to_sample_size(root, variance, count)
    if not 0 < root == value:
        return EstimatedEpsilon(value)
    ratio = square / (variance + root)
    return EstimatedEpsilon(value, (ratio - ratio.mean()) / (ratio / (variance + root)).sum())


def influence_on_mean(
    terms: Tensor, w: Tensor, mean: float, variance: Tensor, epsilon: EstimatedEpsilon
) -> Tensor:
    """How far each element moves a mean by weights (σ²+ε)⁻² to first order, through ε too.

    Moving ε matters where the terms differ systematically with σ², as they do if σ² is wrong.
    """
    own = w * (terms - mean) / w.sum()
    if epsilon.value is None or epsilon.influence is None:
        return own
    slope = -2 * (own / (variance + epsilon.value)).sum()
    return own + slope * epsilon.influence
