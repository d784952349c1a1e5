"""One HTML file that holds everything it shows: text, tables, charts, styles and scripts.

Whatever comes from a user's file (names of columns, labels, paths) is text here and stays text. It
is escaped where it is put into the page, and the page's policy lets no script run but its own two,
which carry a word that nobody who wrote those texts could know, and lets nothing be fetched.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib import metadata, resources
from pathlib import Path
from typing import Any

from biv._utils.atomic_files import write_atomically
from biv.report.charts import Chart
from biv.report.parts import NAME_LENGTH, PagePart, Section, clean


def footer_text() -> str:
    """By what, and how to use it: the last words of a page."""
    return (
        f"Made by biv {metadata.version('biv')}. This file is complete: it loads nothing and sends "
        "nothing. On a chart: drag to zoom, double click for all of it; with the keyboard, + and - "
        "zoom, arrows move, 0 shows all."
    )


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes:
        title: Of the window, and at the top.
        about: A line below it.
        conclusion: The most important sentence.
        parts: Below that.
        sections: The rest.
        made: By what, at the end.
    """

    title: str
    about: str
    conclusion: str
    sections: Sequence[Section]
    parts: Sequence[PagePart | Chart] = ()
    footer: str = ""
    more_conclusions: Sequence[str] = field(default_factory=tuple)

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
        more = "".join(f"<p>{escape(clean(words))}</p>" for words in self.more_conclusions)
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
            f'<div class="answer" role="note"><p>{escape(clean(self.conclusion))}</p>{more}</div>'
            "<noscript><p class='note'>Charts need JavaScript, which this page brings along; "
            "the tables do not.</p></noscript>"
            f"{body}</main><footer><p>{escape(clean(self.footer))}</p></footer>"
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
