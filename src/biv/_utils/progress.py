"""Progress bars, which are shown only on a terminal and only for work that takes a while."""

from __future__ import annotations

from typing import Any

from tqdm import tqdm

DELAY = 2.0  # seconds before a bar is shown


def progress_bar(
    total: int | None, label: str, *, enabled: bool = True, done: int = 0, unit: str = "step"
) -> tqdm[Any]:
    """Return a bar over `total` steps with the remaining time, or a count if `total` is None.

    Nothing is shown if stderr is not a terminal.
    """
    return tqdm(
        total=total,
        initial=done,
        desc=label,
        unit=unit,
        delay=DELAY,
        dynamic_ncols=True,
        leave=False,
        disable=None if enabled else True,
    )
