"""Progress, for people: nothing off a terminal, and nothing for work of a moment."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

PATIENCE = 2.0  # seconds before a bar is worth showing


def progress_bar(
    total: int | None, what: str, *, enabled: bool = True, done: int = 0, unit: str = "step"
) -> tqdm[Any]:
    """A bar over `total` steps with the time left, or a count where there is no total.

    It is silent where stderr is not a terminal.
    """
    return tqdm(
        total=total,
        initial=done,
        desc=what,
        unit=unit,
        delay=PATIENCE,
        dynamic_ncols=True,
        leave=False,
        disable=None if enabled else True,
    )
