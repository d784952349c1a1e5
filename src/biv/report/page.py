"""One HTML file that holds everything it shows: text, tables, charts, styles and scripts.

Whatever comes from a user's file (names of columns, labels, paths) is text here and stays text. It
is escaped where it is put into the page, and the page's policy lets no script run but its own two,
which carry a word that nobody who wrote those texts could know, and lets nothing be fetched.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import metadata, resources
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from biv._utils.atomic_files import write_atomically
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


def made() -> str:
    """By what, and how to use it: the last words of a page."""
    return (
        f"Made by biv {metadata.version('biv')}. This file is complete: it loads nothing and sends "
        "nothing. On a chart: drag to zoom, double click for all of it; with the keyboard, + and - "
        "zoom, arrows move, 0 shows all."
    )


class Part(Protocol):
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

    words: str
    kind: str = ""

    def html(self) -> str:
        """Escaped."""
        return f'<p class="{self.kind}">{escape(clean(self.words))}</p>'


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

    each: Sequence[Figure]

    def html(self) -> str:
        """A list of terms."""
        return (
            '<dl class="figures">'
            + "".join(
                f"<div><dt>{escape(label)}</dt><dd><strong>{escape(value)}</strong>"
                f"<span>{escape(note)}</span></dd></div>"
                for label, value, note in self.each
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
    parts: Sequence[Part | Chart] = ()
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


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes:
        title: Of the window, and at the top.
        about: A line below it.
        answer: What there is to say, in a sentence.
        parts: Below that.
        sections: The rest.
        made: By what, at the end.
    """

    title: str
    about: str
    answer: str
    sections: Sequence[Section]
    parts: Sequence[Part | Chart] = ()
    made: str = ""
    answers: Sequence[str] = field(default_factory=tuple)

    def charts(self) -> Iterable[Chart]:
        """All of them, in their order."""
        waiting: list[Any] = [*self.parts, *self.sections]
        while waiting:
            first = waiting.pop(0)
            if isinstance(first, Chart):
                yield first
            elif isinstance(first, Section):
                waiting = [*first.parts, *first.sections, *waiting]

    def html(self) -> str:
        """The file, as text."""
        require_plotly()
        from plotly.offline import get_plotlyjs

        contents = "".join(
            f'<li><a href="#{section.key}">{escape(clean(section.heading, NAME_LENGTH))}</a></li>'
            for section in self.sections
        )
        more = "".join(f"<p>{escape(clean(words))}</p>" for words in self.answers)
        data = {chart.key: chart.to_json() for chart in self.charts()}
        body = "".join(part.html() for part in self.parts)
        body += "".join(section.html() for section in self.sections)
        charts = _json(data)
        # Hashes of the scripts would do as well, but a browser takes a while to compute them.
        nonce = hashlib.sha256(f"{self.title}{body}{charts}".encode(errors="replace")).hexdigest()
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; "
            "img-src data: blob:; base-uri 'none'; form-action 'none'"
        )
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            '<meta name="color-scheme" content="light dark">'
            f"<title>{escape(clean(self.title, NAME_LENGTH))}</title>"
            f"<style>{_asset('report.css')}</style></head><body>"
            '<a class="skip" href="#content">To the content</a>'
            f"<header><h1>{escape(clean(self.title, 200))}</h1>"
            f"<p>{escape(clean(self.about))}</p>"
            '<button type="button" id="theme" hidden>Theme: automatic</button></header>'
            f'<nav aria-label="Contents"><ul>{contents}</ul></nav><main id="content">'
            f'<div class="answer" role="note"><p>{escape(clean(self.answer))}</p>{more}</div>'
            "<noscript><p class='note'>Charts need JavaScript, which this page brings along; "
            "the tables do not.</p></noscript>"
            f"{body}</main><footer><p>{escape(clean(self.made))}</p></footer>"
            f'<script type="application/json" id="charts">{charts}</script>'
            + "".join(
                f'<script nonce="{nonce}">{script}</script>'
                for script in (get_plotlyjs(), _asset("report.js"))
            )
            + "</body></html>\n"
        )

    def write(self, path: Path, *, replace: bool = True) -> Path:
        """The whole file or none; see :func:`biv._utils.atomic_files.write_atomically`."""
        write_atomically(path, self.html().encode("utf-8", errors="replace"), replace=replace)
        return path


def require_plotly() -> None:
    """Before a long work, not after it.

    Raises:
        ValueError: It says what to install.
    """
    if not has_plotly():
        raise ValueError("the report needs plotly: pip install plotly, or biv[report]")


def has_plotly() -> bool:
    """Whether a report can be made here."""
    return importlib.util.find_spec("plotly") is not None


def _asset(name: str) -> str:
    return (resources.files("biv.report") / "assets" / name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """JSON that can stand in a page: nothing in it ends the element that it is in."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
