"""Charts as data: their series, axes and colours, and a description of each in words.

Nothing here depends on plotly. The script of the page passes the charts to it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

import numpy.typing as npt

LIGHT_PAGE, DARK_PAGE = "#f6f7f9", "#1d2026"  # backgrounds of charts, as in the style sheet
Z = 1.96  # half-width of a 95% interval, in standard errors
CONTRAST = 3.0  # smallest contrast of graphics that the W3C recommends
DARK_CONTRAST = 4.5  # thin lines on black need a higher contrast


class Colour(NamedTuple):
    """Colour of a series: one value for light pages and paper, one for dark pages."""

    light: str
    dark: str

    @classmethod
    def from_hex(cls, colour: str) -> Colour:
        """Return a colour, mixed with black or white where its contrast is too low.

        Examples
        --------
        >>> Colour.from_hex("#000000")
        Colour(light='#000000', dark='#8c8c8c')
        """
        return cls(
            _with_contrast(colour, LIGHT_PAGE, 0, CONTRAST),
            _with_contrast(colour, DARK_PAGE, 255, DARK_CONTRAST),
        )


def _with_contrast(colour: str, background: str, towards: int, smallest: float) -> str:
    """Mix a colour with black (0) or white (255) until its contrast is large enough."""
    channels = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    for step in range(21):
        mixed = "#" + "".join(f"{round(c + (towards - c) * step / 20):02x}" for c in channels)
        if contrast(mixed, background) >= smallest:
            break
    return mixed


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, from 1 to 21, as the W3C defines it.

    Examples
    --------
    >>> round(contrast("#000000", "#ffffff"), 3)
    21.0
    """
    darker, lighter = sorted(_luminance(colour) for colour in (one, other))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(factor * c for factor, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


# The palette of Okabe and Ito, which remains distinguishable with colour blindness.
BLACK = Colour("#1a1a1a", "#f2f2f2")
BLUE, ORANGE, GREEN = map(Colour.from_hex, ("#0072B2", "#D55E00", "#009E73"))
PINK, GREY = map(Colour.from_hex, ("#CC79A7", "#777777"))

Values = Sequence[Any] | npt.NDArray[Any]
SIGNIFICANT = 5  # significant digits of the numbers of a chart
SOLID = ("solid", "")
# Names of the dashes in plotly, and the dash arrays of SVG for the legend.
DASHES = (
    ("dash", "6 4"), ("dot", "2 3"), ("dashdot", "6 3 2 3"), ("longdash", "11 4"),
    ("longdashdot", "11 3 2 3"),
)  # fmt: skip


def rounded(values: Iterable[float], digits: int = SIGNIFICANT) -> list[float | None]:
    """Round to the digits that can be seen in a chart, and replace non-finite numbers by None.

    Every number keeps `digits` significant digits, and more if needed to distinguish numbers within
    their range. Labels near a million that differ by one therefore remain different.

    Examples
    --------
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
    """Points of one name, drawn as a line or as dots.

    Attributes
    ----------
    name : str
        Name of the series, such as a method. One check box of the chart shows and hides all
        series of the same name.
    x : sequence of float
        Horizontal positions.
    y : sequence of float or of str
        Vertical positions, or the names of the rows that the dots are in.
    kind : {"line", "dots"}
        Form of the series.
    low, high : sequence of float, optional
        Lower and upper ends of the band around a line, or of the error bars of dots.
    sideways : bool
        True if `low` and `high` are ends of x, False if they are ends of y.
    texts : sequence of str, optional
        Text per point, shown when the mouse is over it. It may come from a user's file.
    hollow : bool
        True to draw rings instead of filled dots.
    bare : bool
        True to draw the error bars without the dots.
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
        """Return the series in the types of JSON; the name becomes its index in `names`."""
        fields: dict[str, Any] = {
            "n": names.index(self.name),
            "x": _numbers(self.x),
            "y": _numbers(self.y),
            "kind": self.kind,
        }
        if self.low is not None and self.high is not None:
            fields |= {"low": rounded(self.low), "high": rounded(self.high)}
        if self.texts is not None:
            fields["texts"] = list(self.texts)
        return fields | {
            name: True for name in ("sideways", "hollow", "bare") if getattr(self, name)
        }


def _numbers(values: Values) -> list[Any]:
    listed = list(values)
    return listed if listed and isinstance(listed[0], str) else rounded(listed)


class Mark(NamedTuple):
    """Labelled straight line across a panel.

    Attributes
    ----------
    at : float
        Position on the axis.
    label : str
        Meaning of the line.
    axis : {"x", "y"}
        "x" for a vertical line, "y" for a horizontal one.
    """

    at: float
    label: str
    axis: str = "x"


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its series.

    Attributes
    ----------
    title : str
        Title above the axes, or "".
    x, y : str
        Titles of the two axes.
    series : sequence of Series
        Series from back to front.
    description : str
        What the panel shows, in words, for readers who cannot see it.
    log : {"", "x", "y", "xy"}
        Logarithmic axes.
    x_range, y_range : tuple of (float, float), optional
        Range that is shown at first. None shows all points.
    marks : sequence of Mark
        Lines across the panel.
    rows : sequence of str, optional
        Names of the rows from top to bottom, if y holds names.
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
        """Return the title and the description."""
        return f"{self.title}. {self.description}" if self.title else self.description

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the panel in the types of JSON."""
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
    """Panels side by side, or one below another on a narrow screen.

    Attributes
    ----------
    key : str
        Identifier, unique in the page.
    caption : str
        Text below the chart.
    panels : sequence of Panel
        Panels from left to right.
    colours : dict of str to Colour
        Colour per name of a series, in the order of the check boxes.
    """

    key: str
    caption: str
    panels: Sequence[Panel]
    colours: dict[str, Colour]

    def dashes(self) -> dict[str, tuple[str, str]]:
        """Return the dash per name, so that lines can be distinguished without colours.

        One line is solid: that of BIV, or else the first.
        """
        names = list(self.colours)
        solid = next((name for name in names if name.startswith("BIV")), names[0])
        others = itertools.cycle(DASHES)
        return {name: SOLID if name == solid else next(others) for name in names}

    def to_json(self) -> dict[str, Any]:
        """Return the chart in the types of JSON."""
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
        """Return the frame, check boxes and descriptions; the script of the page adds the plots."""
        dashes = self.dashes()
        switches = "".join(
            f'<label><input type="checkbox" checked data-name="{k}">'
            f'<svg class="swatch" viewBox="0 0 30 8" style="--light:{colour.light};'
            f'--dark:{colour.dark}" aria-hidden="true"><line x1="0" x2="30" y1="4" y2="4" '
            f'stroke-dasharray="{dashes[name][1]}"/></svg>{escape(name)}</label>'
            for k, (name, colour) in enumerate(self.colours.items())
        )
        legend = f'<fieldset class="names"><legend>Show</legend>{switches}</fieldset>'
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
