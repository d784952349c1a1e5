"""Influence of each element on a weighted mean, including its influence on ε of the weights."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from biv.metrics.sample_size import raise_to_sample_size


class EstimatedEpsilon(NamedTuple):
    """ε of the weights 1/(σ²+ε)², and the influence of each element on it, None if it is fixed."""

    value: float | None
    influence: Tensor | None = None


def estimated_epsilon(
    square: Tensor, variance: Tensor, root: float, count: Tensor | None = None
) -> EstimatedEpsilon:
    """Return ε and its influences from the Paule–Mandel root of the squares.

    The influences are the first-order effects on the root of its equation. There is none if the
    root is 0, or if ε had to be raised, because that depends on the variances alone.
    """
    value = raise_to_sample_size(root, variance, count)
    if not 0 < root == value:
        return EstimatedEpsilon(value)
    ratio = square / (variance + root)
    return EstimatedEpsilon(value, (ratio - ratio.mean()) / (ratio / (variance + root)).sum())


def influence_on_mean(
    terms: Tensor, w: Tensor, mean: float, variance: Tensor, epsilon: EstimatedEpsilon
) -> Tensor:
    """Return the influence of each element on a mean with weights (σ²+ε)⁻², to first order.

    It includes the influence through ε, which matters if the terms depend on σ², as they do if σ²
    is wrong.
    """
    direct = w * (terms - mean) / w.sum()
    if epsilon.value is None or epsilon.influence is None:
        return direct
    slope = -2 * (direct / (variance + epsilon.value)).sum()
    return direct + slope * epsilon.influence
