"""Lines of text that `biv inspect`, `biv train` and `biv compare` share."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from biv.report.conclusions import Conclusions

WIDTH = 100  # characters of a line of text
LABEL_WIDTH = 26  # characters of the first column of `fields`
MAX_REASONS = 3  # bullets below a verdict


def headline(conclusions: Conclusions) -> list[str]:
    """Return the verdict, its reasons as bullets, and the advice, as lines."""
    lines = [paragraph(f"Verdict: {conclusions.verdict}")]
    lines += [bullet(reason) for reason in at_most(MAX_REASONS, conclusions.reasons)]
    if conclusions.advice:
        lines.append(paragraph(f"Next: {' '.join(conclusions.advice)}"))
    return lines


def at_most(count: int, texts: Sequence[str]) -> list[str]:
    """Return texts in at most `count` pieces: the shortest neighbours are joined.

    Examples
    --------
    >>> at_most(2, ["A long sentence.", "Short.", "Brief."])
    ['A long sentence.', 'Short. Brief.']
    """
    joined = list(texts)
    while len(joined) > count:
        k = min(range(len(joined) - 1), key=lambda k: len(joined[k]) + len(joined[k + 1]))
        joined[k : k + 2] = [f"{joined[k]} {joined[k + 1]}"]
    return joined


def paragraph(text: str) -> str:
    """Return a text in lines of at most 100 characters."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)  # options must remain whole


def bullet(text: str) -> str:
    """Return a text as an item of a list."""
    return textwrap.fill(
        text, WIDTH, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False
    )


def fields(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return names and values in two columns; a long value continues on the next line.

    Examples
    --------
    >>> fields([("ε", "0.1831"), ("best epoch", "9 of 12")])
    ['ε                         0.1831', 'best epoch                9 of 12']
    """
    indent = "\n" + " " * LABEL_WIDTH
    return [f"{name:{LABEL_WIDTH}}{indent.join(_wrapped(value))}".rstrip() for name, value in rows]


def _wrapped(value: str) -> list[str]:
    return textwrap.wrap(value, WIDTH - LABEL_WIDTH, break_long_words=False, break_on_hyphens=False)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table with its first column of the width that `fields` has.

    Examples
    --------
    >>> columns([("", "weighted", "plain"), ("R²", "0.913", "0.996")])
    ['                          weighted  plain', 'R²                        0.913     0.996']
    """
    widths = [max(len(row[k]) for row in rows) + 2 for k in range(1, len(rows[0]))]
    return [
        f"{row[0]:{LABEL_WIDTH}}"
        + "".join(cell.ljust(w) for cell, w in zip(row[1:], widths, strict=True)).rstrip()
        for row in rows
    ]


def read_more(page: str) -> str:
    """Return where the numbers are explained."""
    return f"Read more: biv docs {page}"
