"""Settings of torch during training: the number of threads, and denormal numbers as 0."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def numerical_settings(threads: int = 1) -> Iterator[None]:
    """Compute with this number of threads and flush denormal numbers to 0; restore both at the end.

    With several threads, torch may divide a product differently for another number of members, and
    so round differently. If a gradient stays 0, an optimizer's second moment decays into denormal
    numbers, which a processor computes many times more slowly than others.
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
