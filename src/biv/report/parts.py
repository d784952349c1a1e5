"""What a section of a page shows: text, figures and tables, each of which writes its own HTML."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import NamedTuple, Protocol

from biv.report.charts import Chart

NAME_LENGTH = 80  # characters of a name that a page shows at once


CELL_LENGTH = 400


def clean(text: object, limit: int | None = None) -> str:
    r"""What people may see of a text: no control characters, and not without end.

    Example:
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
    """HTML of a text by itself; one that is written from right to left turns nothing else round."""
    return f"<bdi>{escape(clean(text, limit))}</bdi>"


def quoted(text: object) -> str:
    """A name among other words, none of which it turns round."""
    return f"“\u2068{clean(text, NAME_LENGTH)}\u2069”"


class PagePart(Protocol):
    """Something that a section shows."""

    def html(self) -> str:
        """As it stands in the page."""


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Attributes:
        words: Plain text.
        kind: "" or "lead", "note", "caption".
    """

    text: str
    kind: str = ""

    def html(self) -> str:
        """Escaped."""
        return f'<p class="{self.kind}">{escape(clean(self.text))}</p>'


@dataclass(frozen=True)
class Bullets:
    """A list of sentences."""

    items: Sequence[str]

    def html(self) -> str:
        """Escaped."""
        return "<ul>" + "".join(f"<li>{escape(clean(item))}</li>" for item in self.items) + "</ul>"


@dataclass(frozen=True)
class Commands:
    """What to type, and what that does."""

    lines: Sequence[str]

    def html(self) -> str:
        """A block of code, with a button to copy it."""
        code = escape(clean("\n".join(self.lines)))
        button = '<button type="button" class="tool" data-copies="code">Copy</button>'
        return f'<div class="code">{button}<pre tabindex="0"><code>{code}</code></pre></div>'


class Figure(NamedTuple):
    """A number that is worth a large type.

    Attributes:
        label: What it is.
        value: The number.
        note: Beside what, or how sure.
    """

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Figures:
    """A row of them."""

    figures: Sequence[Figure]

    def html(self) -> str:
        """A list of terms."""
        return (
            '<dl class="figures">'
            + "".join(
                f"<div><dt>{escape(label)}</dt><dd><strong>{escape(value)}</strong>"
                f"<span>{escape(note)}</span></dd></div>"
                for label, value, note in self.figures
            )
            + "</dl>"
        )


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        text: What is shown.
        value: What it is sorted by and written to CSV, if that is not the text; all that the text
            says, or a column of its own says the rest.
        tone: "good", "bad", "open", "best", "lower", "higher" or "".
        drawing: SVG of our own making to stand before the text.
    """

    text: str
    value: float | str | None = None
    tone: str = ""
    drawing: str = ""

    @property
    def raw(self) -> str:
        """For sorting and for CSV."""
        if self.value is None:
            return clean(self.text)
        if isinstance(self.value, float):
            if self.value.is_integer():
                return str(int(self.value))
            return repr(self.value) if math.isfinite(self.value) else ""
        return clean(self.value)

    def html(self, label: str, *, head: bool) -> str:
        """With its column's name, for narrow screens."""
        tag = 'th scope="row"' if head else "td"
        value = "" if self.value is None else f' data-value="{escape(self.raw)}"'
        return (
            f'<{tag} data-label="{escape(label)}" class="{self.tone}"{value}>'
            f"{self.drawing}{inline(self.text, CELL_LENGTH)}</{tag.split()[0]}>"
        )


@dataclass(frozen=True)
class Table:
    """A table to read, sort, copy and download.

    Attributes:
        name: Of the file that it is downloaded as; of one page, each has its own.
        caption: What it shows.
        columns: Their names.
        rows: Cells, or texts; the first cell names its row.
        folded: Whether it opens at a click.
        numbers: Columns of numbers, which stand to the right.
    """

    name: str
    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell | str]]
    folded: bool = False
    numbers: Sequence[int] = ()

    def html(self) -> str:
        """Complete without scripts; these add what buttons do."""
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
    """A part of the page with a heading, in its contents.

    Attributes:
        key: Its anchor.
        heading: What it says.
        parts: From top to bottom.
        sections: Below it.
    """

    key: str
    heading: str
    parts: Sequence[PagePart | Chart] = ()
    sections: Sequence[Section] = ()

    def html(self, level: int = 2) -> str:
        """With what is below it."""
        inner = "".join(part.html() for part in self.parts)
        inner += "".join(section.html(level + 1) for section in self.sections)
        heading = escape(clean(self.heading, 200))
        return (
            f'<section id="{self.key}" aria-labelledby="{self.key}-heading">'
            f'<h{level} id="{self.key}-heading">{heading}</h{level}>{inner}</section>'
        )
