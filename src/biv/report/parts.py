"""Parts of a page: text, figures and tables, each of which renders itself as HTML."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple, Protocol

from biv.report.charts import Chart

NAME_LENGTH = 80  # longest name that a page shows, in characters
CELL_LENGTH = 400  # longest text in a cell


def clean(text: object, limit: int | None = None) -> str:
    r"""Return a text without control characters, shortened to `limit` characters.

    Examples
    --------
    >>> clean("a\x00b"), clean("x" * 10, limit=4)
    ('a�b', 'xxx…')
    """
    shown = "".join(
        "�" if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\t\n" else letter
        for letter in str(text)
    )
    if limit is not None and len(shown) > limit:
        shown = shown[: limit - 1] + "…"
    return shown


def inline(text: object, limit: int | None = None) -> str:
    """Return HTML of a text, isolated so that right-to-left text does not reorder its context."""
    return f"<bdi>{escape(clean(text, limit))}</bdi>"


def quoted(text: object) -> str:
    """Return a name in quotation marks, isolated so that it does not reorder the text around it."""
    return f"“\u2068{clean(text, NAME_LENGTH)}\u2069”"


class PagePart(Protocol):
    """Part of a section."""

    def html(self) -> str:
        """Return the HTML of the part."""


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes
    ----------
    text : str
        Plain text.
    kind : {"", "lead", "note", "caption"}
        Style class of the paragraph.
    """

    text: str
    kind: str = ""

    def html(self) -> str:
        """Return the paragraph, escaped."""
        return f'<p class="{self.kind}">{escape(clean(self.text))}</p>'


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]

    def html(self) -> str:
        """Return the list, escaped."""
        return "<ul>" + "".join(f"<li>{escape(clean(item))}</li>" for item in self.items) + "</ul>"


@dataclass(frozen=True)
class Commands:
    """Shell commands to copy."""

    lines: Sequence[str]

    def html(self) -> str:
        """Return a block of code with a button that copies it."""
        code = escape(clean("\n".join(self.lines)))
        button = '<button type="button" class="tool" data-copies="code">Copy</button>'
        return f'<div class="code">{button}<pre tabindex="0"><code>{code}</code></pre></div>'


class KeyNumber(NamedTuple):
    """A number shown in large type, such as a score.

    Attributes
    ----------
    label : str
        Name of the quantity.
    value : str
        Formatted number.
    note : str
        Unit, reference value or uncertainty.
    """

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class KeyNumbers:
    """A row of key numbers."""

    numbers: Sequence[KeyNumber]

    def html(self) -> str:
        """Return an HTML description list."""
        return (
            '<dl class="figures">'
            + "".join(
                f"<div><dt>{escape(label)}</dt><dd><strong>{escape(value)}</strong>"
                f"<span>{escape(note)}</span></dd></div>"
                for label, value, note in self.numbers
            )
            + "</dl>"
        )


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text : str
        Text that is shown.
    value : float or str, optional
        Value for sorting and for CSV, if it differs from the text. It must not lose information:
        what the text says beyond it needs a column of its own.
    tone : {"", "good", "bad", "open", "best", "lower", "higher"}
        Style class of the cell.
    drawing : str
        SVG to show before the text. It is not escaped, so it must not contain a user's text.
    """

    text: str
    value: float | str | None = None
    tone: str = ""
    drawing: str = ""

    @property
    def raw(self) -> str:
        """Return the value for sorting and for CSV."""
        if self.value is None:
            return clean(self.text)
        if isinstance(self.value, float):
            if self.value.is_integer():
                return str(int(self.value))
            return repr(self.value) if math.isfinite(self.value) else ""
        return clean(self.value)

    def html(self, label: str, *, head: bool) -> str:
        """Return the cell with the name of its column, which narrow screens show beside it."""
        tag = 'th scope="row"' if head else "td"
        value = "" if self.value is None else f' data-value="{escape(self.raw)}"'
        return (
            f'<{tag} data-label="{escape(label)}" class="{self.tone}"{value}>'
            f"{self.drawing}{inline(self.text, CELL_LENGTH)}</{tag.split()[0]}>"
        )


@dataclass(frozen=True)
class Table:
    """A table to read, sort, copy and download.

    Attributes
    ----------
    name : str
        Name of the file for downloads, unique in the page.
    caption : str
        Text above the table.
    columns : sequence of str
        Names of the columns.
    rows : sequence of sequence of Cell or str
        Rows of the table. The first cell is the header of its row.
    folded : bool
        True if the table is hidden until its caption is clicked.
    numbers : sequence of int
        Indices of the columns of numbers, which are aligned to the right.
    """

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    folded: bool = False
    numbers: Sequence[int] = ()

    def html(self) -> str:
        """Return the whole table. It is readable without scripts; only its buttons need them."""
        head = "".join(
            f'<th scope="col" class="{"number" if k in self.numbers else ""}">'
            f'<button type="button">{escape(name)}</button></th>'
            for k, name in enumerate(self.columns)
        )
        body = "".join(
            "<tr>"
            + "".join(
                (cell if isinstance(cell, Cell) else Cell(cell)).html(name, head=k == 0)
                for k, (cell, name) in enumerate(zip(row, self.columns, strict=True))
            )
            + "</tr>"
            for row in self.rows
        )
        tools = (
            '<div class="tools"><button type="button" class="tool" data-copies="table">Copy'
            '</button><button type="button" class="tool" data-downloads="'
            f'{escape(self.name)}.csv">Download CSV</button></div>'
        )
        count = f"{len(self.rows):,} row{'' if len(self.rows) == 1 else 's'}"
        key = f"caption-{escape(self.name)}"
        right = " ".join(f"n{k + 1}" for k in self.numbers)
        table = (
            f'<div class="scroll" role="region" tabindex="0" aria-labelledby="{key}">'
            f'<table class="{right}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
            "</div>"
        )
        caption = f'<span id="{key}">{escape(clean(self.caption))}</span>'
        if self.folded:
            return (
                f'<details class="table"><summary>{caption} <small>{count}</small></summary>'
                f"{tools}{table}</details>"
            )
        return f'<div class="table"><div class="caption">{caption}{tools}</div>{table}</div>'


@dataclass(frozen=True)
class Section:
    """A part of the page with a heading.

    Attributes
    ----------
    key : str
        Anchor of the section.
    heading : str
        Text of the heading.
    parts : sequence of PagePart or Chart
        Contents from top to bottom.
    sections : sequence of Section
        Subsections, below the parts.
    """

    key: str
    heading: str
    parts: Sequence[PagePart | Chart] = ()
    sections: Sequence[Section] = ()

    def html(self, level: int = 2) -> str:
        """Return the section with its subsections."""
        inner = "".join(part.html() for part in self.parts)
        inner += "".join(section.html(level + 1) for section in self.sections)
        heading = escape(clean(self.heading, 200))
        return (
            f'<section id="{self.key}" aria-labelledby="{self.key}-heading">'
            f'<h{level} id="{self.key}-heading">{heading}</h{level}>{inner}</section>'
        )
