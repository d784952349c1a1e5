"""What the processor is told while a stack is trained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def steady_machine(threads: int = 1) -> Iterator[None]:
    """So many threads, and numbers too small for full precision are 0; both restored at the end.

    With several, a product may be cut in other places for another number of members, and
    round differently. Where a gradient is 0 for long, an optimiser's second moment decays into such
    small numbers, which cost a processor many times what others do.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    smallest = torch.tensor(torch.finfo(torch.float32).tiny)
    flushed = bool(smallest / 2 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)
        torch.set_num_threads(before)
