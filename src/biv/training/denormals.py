"""Denormal numbers, which cost a processor many times what others do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Numbers too small for full precision are 0 inside; restored at the end.

    Where a gradient is 0 for long, an optimiser's second moment decays into them.
    """
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    before = bool(smallest / 2 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
