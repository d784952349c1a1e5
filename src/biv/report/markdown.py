"""Markdown that is also readable as plain text."""

from __future__ import annotations

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns; the first row is the header.

    Examples
    --------
    >>> print(aligned([("method", "loss"), ("L2", "0.112"), ("BIV", "0.095")]))
    | method | loss  |
    |--------|-------|
    | L2     | 0.112 |
    | BIV    | 0.095 |
    """
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |"
        for row in rows
    ]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(lines)
