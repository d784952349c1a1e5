"""One-dimensional searches on a logarithmic scale."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

REFINEMENTS = 6  # of a grid of 33, sixteen times finer each
STEPS = 40  # halvings: fifty decades of bracket come down to a relative width of 1e-10


def smallest_where(holds: Callable[[Tensor], Tensor], low: Tensor, high: Tensor) -> Tensor:
    """The smallest x in (low, high] where a monotone condition holds, elementwise.

    `holds` is False below some x and True from there on, and is True at `high`; the number returned
    is one where it was seen to hold. Has no branch on a value, so it compiles and vmaps.
    """
    low, high = low.log(), high.log()
    for _ in range(STEPS):
        middle = (low + high) / 2
        held = holds(middle.exp())
        low, high = torch.where(held, low, middle), torch.where(held, middle, high)
    return high.exp()


def root(excess: Callable[[Tensor], Tensor], high: Tensor) -> float:
    """Where a decreasing function of a variance falls to 0, below `high`; 0 if it starts below."""
    if not bool(high > 0):
        return 0.0
    low = high * 1e-40
    if not bool(excess(low) > 0):
        return 0.0
    return float(smallest_where(lambda x: excess(x) <= 0, low, high))


def argmin(function: Callable[[Tensor], Tensor], low: float, high: float) -> float:
    """Where a function is lowest between bounds, by ever finer grids on a logarithmic scale."""
    for _ in range(REFINEMENTS):
        grid = torch.logspace(math.log10(low), math.log10(high), 33, dtype=torch.float64)
        best = int(function(grid).argmin())
        low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 32)])
    return float(grid[best])
