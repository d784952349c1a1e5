"""Bisection on a logarithmic scale, for many problems at once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

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
