"""Charts as data: what is drawn, in which colours, and what it shows in words.

The page's script hands them to plotly; nothing here knows of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy.typing as npt

LIGHT_PAGE, DARK_PAGE = "#f6f7f9", "#1d2026"  # behind the charts, as the style sheet has it
Z = 1.96  # standard errors to each side of a 95% interval
CONTRAST = 3.0  # what stands out enough to be seen: W3C's rule for graphics
DARK_CONTRAST = 4.5  # thin lines on black want more


class Colour(NamedTuple):
    """One for light pages and paper, one for dark pages."""

    light: str
    dark: str

    @classmethod
    def from_hex(cls, colour: str) -> Colour:
        """A colour, mixed with black or white where it would not stand out.

        Example:
            >>> Colour.from_hex("#000000")
            Colour(light='#000000', dark='#8c8c8c')
        """
        return cls(
            _standing_out(colour, LIGHT_PAGE, 0, CONTRAST),
            _standing_out(colour, DARK_PAGE, 255, DARK_CONTRAST),
        )


def _standing_out(colour: str, page: str, towards: int, enough: float) -> str:
    own = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    for part in range(21):
        mixed = "#" + "".join(f"{round(c + (towards - c) * part / 20):02x}" for c in own)
        if contrast(mixed, page) >= enough:
            break
    return mixed


def contrast(one: str, other: str) -> float:
    """Of two colours, from 1 to 21, as W3C defines it.

    Example:
        >>> round(contrast("#000000", "#ffffff"), 3)
        21.0
    """
    darker, lighter = sorted(_luminance(colour) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    shares = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return sum(part * c for part, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# Okabe and Ito's, which the colour-blind tell apart.
BLACK = Colour("#1a1a1a", "#f2f2f2")
BLUE, ORANGE, GREEN = map(Colour.from_hex, ("#0072B2", "#D55E00", "#009E73"))
PINK, GREY = map(Colour.from_hex, ("#CC79A7", "#777777"))

Values = Sequence[Any] | npt.NDArray[Any]
SIGNIFICANT = 5  # digits that a chart keeps
SOLID = ("solid", "")
# As plotly names them, and as SVG draws them beside a name.
DASHES = (
    ("dash", "6 4"), ("dot", "2 3"), ("dashdot", "6 3 2 3"), ("longdash", "11 4"),
    ("longdashdot", "11 3 2 3"),
)  # fmt: skip


def rounded(values: Iterable[float], digits: int = SIGNIFICANT) -> list[float | None]:
    """As many digits as can be seen; None in the place of what is not finite.

    So many of each number, and as many of the range that all of them are in: labels near a million
    that differ by one still do.

    Example:
        >>> rounded([0.123456789, float("nan")], digits=3)
        [0.123, None]
        >>> rounded([1e6 + 0.25, 1e6 + 0.125], digits=3)
        [1000000.25, 1000000.125]
    """
    numbers = [float(value) for value in values]
    finite = [value for value in numbers if math.isfinite(value)]
    span = max(finite, default=0.0) - min(finite, default=0.0)

    def short(value: float) -> float:
        places = [digits - 1 - math.floor(math.log10(size)) for size in (abs(value), span) if size]
        return round(value, max(places)) if places else value

    return [short(value) if math.isfinite(value) else None for value in numbers]


@dataclass(frozen=True)
class Series:
    """Points that belong to one name.

    Attributes:
        name: Of the method, say; a switch of the chart shows and hides all that have it.
        x: Numbers.
        y: As many, or the names of the rows that dots are in.
        kind: "line" or "dots".
        low: Lower ends, of a band around a line or of error bars of dots.
        high: Upper ends.
        sideways: Whether these are ends of x rather than of y.
        texts: Of single points, shown on hovering; a user's own, perhaps.
        hollow: Whether dots are rings.
        bare: Whether there are error bars alone, without dots.
    """

    name: str
    x: Values
    y: Values
    kind: str = "line"
    low: Values | None = None
    high: Values | None = None
    sideways: bool = False
    texts: Sequence[str] | None = None
    hollow: bool = False
    bare: bool = False

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """In what JSON has."""
        own: dict[str, Any] = {
            "n": names.index(self.name),
            "x": _numbers(self.x),
            "y": _numbers(self.y),
            "kind": self.kind,
        }
        if self.low is not None and self.high is not None:
            own |= {"low": rounded(self.low), "high": rounded(self.high)}
        if self.texts is not None:
            own["texts"] = list(self.texts)
        return own | {name: True for name in ("sideways", "hollow", "bare") if getattr(self, name)}


def _numbers(values: Values) -> list[Any]:
    listed = list(values)
    return listed if listed and isinstance(listed[0], str) else rounded(listed)


class Mark(NamedTuple):
    """A straight line across a panel, with a word.

    Attributes:
        at: Where.
        label: What it stands for.
        axis: "x" for an upright one, "y" for a level one.
    """

    at: float
    label: str
    axis: str = "x"


@dataclass(frozen=True)
class Panel:
    """One pair of axes.

    Attributes:
        title: Above it; may be empty.
        x: What is to the right.
        y: What is upwards.
        series: From back to front.
        says: In words, what is to be seen, for those who cannot see it.
        log: Axes that are logarithmic: "", "x", "y" or "xy".
        x_range: Shown at first; None for all.
        y_range: Likewise.
        marks: Lines across.
        rows: Names of the rows, from the top, where y is names.
    """

    title: str
    x: str
    y: str
    series: Sequence[Series]
    description: str
    log: str = ""
    x_range: tuple[float, float] | None = None
    y_range: tuple[float, float] | None = None
    marks: Sequence[Mark] = ()
    rows: Sequence[str] | None = None

    @property
    def accessible_text(self) -> str:
        """What is to be seen, and where."""
        return f"{self.title}. {self.description}" if self.title else self.description

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """In what JSON has."""
        return {
            "title": self.title,
            "x": self.x,
            "y": self.y,
            "series": [series.to_json(names) for series in self.series],
            "log": self.log,
            "xRange": None if self.x_range is None else rounded(self.x_range),
            "yRange": None if self.y_range is None else rounded(self.y_range),
            "marks": [mark._asdict() for mark in self.marks],
            "rows": None if self.rows is None else list(self.rows),
        }


@dataclass(frozen=True)
class Chart:
    """Panels side by side, or one below another where there is no room.

    Attributes:
        key: Of its own in a page.
        caption: Below it.
        panels: From left to right.
        colours: Of each name, in the order of the switches.
    """

    key: str
    caption: str
    panels: Sequence[Panel]
    colours: dict[str, Colour]

    def dashes(self) -> dict[str, tuple[str, str]]:
        """Of each name: one is solid; the others can be told apart without their colours too."""
        names = list(self.colours)
        solid = next((name for name in names if name.startswith("BIV")), names[0])
        others = itertools.cycle(DASHES)
        return {name: SOLID if name == solid else next(others) for name in names}

    def to_json(self) -> dict[str, Any]:
        """In what JSON has."""
        names, dashes = list(self.colours), self.dashes()
        return {
            "names": [
                {
                    "name": name,
                    "light": colour.light,
                    "dark": colour.dark,
                    "dash": dashes[name][0],
                }
                for name, colour in self.colours.items()
            ],
            "panels": [panel.to_json(names) for panel in self.panels],
        }

    def html(self) -> str:
        """Its place, its switches and its words; a script draws it."""
        dashes = self.dashes()
        switches = "".join(
            f'<label><input type="checkbox" checked data-name="{k}">'
            f'<svg class="swatch" viewBox="0 0 30 8" style="--light:{colour.light};'
            f'--dark:{colour.dark}" aria-hidden="true"><line x1="0" x2="30" y1="4" y2="4" '
            f'stroke-dasharray="{dashes[name][1]}"/></svg>{escape(name)}</label>'
            for k, (name, colour) in enumerate(self.colours.items())
        )
        legend = f'<fieldset class="names"><legend>Shown</legend>{switches}</fieldset>'
        plots = "".join(
            f'<div class="plot{" rows" if panel.rows else ""}" role="group" tabindex="0" '
            f'data-panel="{k}" style="--rows:{len(panel.rows or ())}" '
            f'aria-label="{escape(panel.accessible_text)}"><p>{escape(panel.accessible_text)}</p></div>'
            for k, panel in enumerate(self.panels)
        )
        return (
            f'<figure class="chart" data-chart="{self.key}">'
            f"{legend if len(self.colours) > 1 else ''}"
            f'<div class="panels count-{min(len(self.panels), 4)}">{plots}</div>'
            f"<figcaption>{escape(self.caption)}</figcaption></figure>"
        )
