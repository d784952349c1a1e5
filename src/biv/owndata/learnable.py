"""Whether a table can be learned from at all, said in the words of its files."""

from __future__ import annotations

import numpy as np

from biv._pages import see
from biv.datasets import LabelledTable

FEWEST_ROWS = 2


def require_learnable(table: LabelledTable, *, unknown: str = "raise") -> None:
    """Refuse what no model can learn from.

    Args:
        table: Rows, labels, error bars.
        unknown: What is to become of a missing error bar; "raise" refuses it.

    Raises:
        ValueError: There are too few rows, all labels are equal, or the error bars say nothing.
    """
    target, y, variance = table.target, table.y, table.variance
    source = ", ".join(map(str, list(table.files)[:3]))
    if len(table) < FEWEST_ROWS:
        raise ValueError(
            f"{source} must have at least {FEWEST_ROWS} rows with a label; found {len(table)}"
        )
    if np.ptp(y) == 0:
        raise ValueError(
            f"{source}: every label in column {target.name!r} is {y[0]:g}: nothing can be learned"
        )
    if table.weight is not None and not table.weight.any():
        raise ValueError(f"{source}: every weight in column {target.weight!r} is 0")
    if variance is None:
        return
    names = " and ".join(map(repr, target.error_bars))
    if np.isnan(variance).all():
        raise ValueError(
            f"{source}: no error bar in column {names} is known: leave it out{see('variance')}"
        )
    if unknown == "raise" and np.isnan(variance).any():
        count = int(np.isnan(variance).sum())
        first = table.where(int(np.flatnonzero(np.isnan(variance))[0]))
        raise ValueError(
            f"{first}, column {names} must have an error bar; it is missing there and in "
            f"{count - 1} other rows: --unknown-variance median puts the median in its place, "
            "and --unknown-variance estimate what their residuals say"
            f"{see('variance')}"
        )
    known = variance[~np.isnan(variance)]
    if not known.any():
        raise ValueError(
            f"{source}: every error bar in column {names} is 0: if the labels are without noise, "
            f"leave it out{see('variance')}"
        )
    if np.isinf(known).all():
        raise ValueError(f"{source}: every error bar in column {names} is infinite")
