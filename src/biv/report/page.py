"""A report as one HTML file that contains its text, tables, charts, styles and scripts.

Text from a user's file, such as names of columns, labels and paths, is never interpreted as HTML.
It is escaped where it is inserted. In addition, the content security policy of the page forbids all
requests, and it forbids all scripts except the two that carry the page's nonce. The nonce is a hash
of the page, so the author of a malicious text cannot know it.
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
    """Return the text at the end of a page: the version of biv, and how to use the charts."""
    return (
        f"Made by biv {metadata.version('biv')}. This file is self-contained: it loads nothing and "
        "sends nothing. Charts: drag to zoom, double-click to reset. With the keyboard, + and - "
        "zoom, the arrow keys move, and 0 resets."
    )


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes
    ----------
    title : str
        Title of the window and heading of the page.
    about : str
        Line below the heading.
    conclusion : str
        The most important sentence.
    sections : sequence of Section
        Sections, listed in the table of contents.
    parts : sequence of PagePart or Chart
        Parts between the conclusions and the first section.
    footer : str
        Text at the end.
    more_conclusions : sequence of str
        Further sentences, shown below the conclusion.
    """

    title: str
    about: str
    conclusion: str
    sections: Sequence[Section]
    parts: Sequence[PagePart | Chart] = ()
    footer: str = ""
    more_conclusions: Sequence[str] = field(default_factory=tuple)

    def charts(self) -> Iterable[Chart]:
        """Yield all charts in the order of the page."""
        queue: list[Any] = [*self.parts, *self.sections]
        while queue:
            first = queue.pop(0)
            if isinstance(first, Chart):
                yield first
            elif isinstance(first, Section):
                queue = [*first.parts, *first.sections, *queue]

    def html(self) -> str:
        """Return the text of the HTML file."""
        require_plotly()
        from plotly.offline import get_plotlyjs

        contents = "".join(
            f'<li><a href="#{section.key}">{escape(clean(section.heading, NAME_LENGTH))}</a></li>'
            for section in self.sections
        )
        more = "".join(f"<p>{escape(clean(sentence))}</p>" for sentence in self.more_conclusions)
        data = {chart.key: chart.to_json() for chart in self.charts()}
        body = "".join(part.html() for part in self.parts)
        body += "".join(section.html() for section in self.sections)
        charts = _json(data)
        # The policy could hold a hash per script instead, but a browser is slow to compute these.
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
            '<a class="skip" href="#content">Skip to content</a>'
            f"<header><h1>{escape(clean(self.title, 200))}</h1>"
            f"<p>{escape(clean(self.about))}</p>"
            '<button type="button" id="theme" hidden>Theme: automatic</button></header>'
            f'<nav aria-label="Contents"><ul>{contents}</ul></nav><main id="content">'
            f'<div class="answer" role="note"><p>{escape(clean(self.conclusion))}</p>{more}</div>'
            "<noscript><p class='note'>The charts need JavaScript, which is disabled in this "
            "browser. The tables do not need it.</p></noscript>"
            f"{body}</main><footer><p>{escape(clean(self.footer))}</p></footer>"
            f'<script type="application/json" id="charts">{charts}</script>'
            + "".join(
                f'<script nonce="{nonce}">{script}</script>'
                for script in (get_plotlyjs(), _asset("report.js"))
            )
            + "</body></html>\n"
        )

    def write(self, path: Path, *, replace: bool = True) -> Path:
        """Write the file, complete or not at all.

        See :func:`biv._utils.atomic_files.write_atomically`.
        """
        write_atomically(path, self.html().encode("utf-8", errors="replace"), replace=replace)
        return path


def require_plotly() -> None:
    """Check that plotly is installed. Commands call this before their long computations.

    Raises
    ------
    ValueError
        If plotly is not installed. The message names the package to install.
    """
    if not has_plotly():
        raise ValueError("the report needs plotly: pip install plotly, or biv[report]")


def has_plotly() -> bool:
    """Return whether plotly, which reports need, is installed."""
    return importlib.util.find_spec("plotly") is not None


def _asset(name: str) -> str:
    return (resources.files("biv.report") / "assets" / name).read_text(encoding="utf-8")


def _json(data: object) -> str:
    """Return JSON in which no character can end the script element that contains it."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text
