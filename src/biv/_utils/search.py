"""One-dimensional searches on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

REFINEMENTS = 6  # each makes the grid of 33 points sixteen times finer
STEPS = 40  # halvings, which reduce a bracket of fifty decades to a relative width of 1e-10


def smallest_where(holds: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """Return the smallest x in (low, high] at which a monotone condition holds, elementwise.

    `holds` must be False below some x, True from there on, and True at `high`. It was evaluated to
    True at the returned x. There is no branch on a value, so that this compiles and vmaps.
    """
    low, high = low.log(), high.log()
    for _ in range(STEPS):
        middle = (low + high) / 2
        is_true = holds(middle.exp())
        low, high = torch.where(is_true, low, middle), torch.where(is_true, middle, high)
    return high.exp()


def root(excess: Callable[[Tensor], Tensor], high: Tensor) -> float:
    """Return the root of a decreasing function in [0, high]; 0 if it is not positive near 0."""
    if not bool(high > 0):
        return 0.0
    low = high * 1e-40
    if not bool(excess(low) > 0):
        return 0.0
    return float(smallest_where(lambda x: excess(x) <= 0, low, high))


def argmin(function: Callable[[Tensor], Tensor], low: float, high: float) -> float:
    """Return the minimizer of a function in [low, high], by refining a logarithmic grid."""
    for _ in range(REFINEMENTS):
        grid = torch.logspace(math.log10(low), math.log10(high), 33, dtype=torch.float64)
        best = int(function(grid).argmin())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 32)])
    return float(grid[best])
