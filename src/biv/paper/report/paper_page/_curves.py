"""Sections with curves: those of the figures, and those behind the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from biv.paper.grid import Artefact, Line
from biv.paper.report import figures, lines
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.summary import Summary, summarise
from biv.report.charts import BLACK, Chart, Colour, Panel, Series
from biv.report.parts import Section, Table

POINTS = 150  # maximum number of points of a curve, more than a screen can show


def figure_section(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> Section:
    """Return the section of one of the paper's figures."""
    number = int(artefact.name.removeprefix("fig"))
    heading = f"Figure {number}, {artefact.label}: {artefact.title}"
    caption = figures.caption(artefact, results, seeds)
    return curves_section(artefact.name, heading, artefact, results, seeds, caption)


def curves_section(
    key: str,
    heading: str,
    artefact: Artefact,
    results: Mapping[Run, RunResult],
    seeds: int,
    caption: str,
) -> Section:
    """Return a section with the curves of an artefact and their numbers."""
    tested = artefact.quantity == "test_loss"
    chart = (_test_chart if tested else _training_chart)(key, artefact, results, seeds, caption)
    parts: list[Any] = [] if chart is None else [chart]
    head, *rows = lines.rows(artefact, results, seeds)
    numbers = Table(key, "The numbers", head, rows, folded=True)
    return Section(key, heading, [*parts, numbers])


def _colours(artefact: Artefact) -> dict[str, Colour]:
    """Return the colour of each line, by its label."""
    by_label: dict[str, Colour] = {}
    for panel in artefact.panels:
        for line, colour in zip(panel.lines, figures.colours(panel), strict=True):
            truth = colour == figures.TRUTH_COLOUR
            by_label.setdefault(line.label, BLACK if truth else Colour.from_hex(_hex(colour)))
    return by_label


def _hex(colour: Any) -> str:
    if isinstance(colour, str):
        return colour
    return "#" + "".join(f"{round(255 * channel):02x}" for channel in colour[:3])


def _test_chart(
    key: str, artefact: Artefact, results: Mapping[Run, RunResult], seeds: int, caption: str
) -> Chart | None:
    """Return the chart of mean test losses and their bands; None if there are no runs."""
    by_panel = [
        [s for line in p.lines if (s := summarise(line, results, seeds)) and s.curves.size]
        for p in artefact.panels
    ]
    everything = [summary for summaries in by_panel for summary in summaries]
    if not everything:
        return None
    limits = figures.limits(everything)
    panels = [
        Panel(
            panel.title,
            "training samples seen, thousands",
            "test MSE on clean labels",
            [_curve(summary) for summary in summaries],
            "Lowest mean test losses: "
            + "; ".join(f"{s.line.label} {s.lowest:.3f}" for s in summaries)
            + ".",
            y_range=limits,
        )
        for panel, summaries in zip(artefact.panels, by_panel, strict=True)
        if summaries
    ]
    drawn = {summary.line.label for summary in everything}
    colours = {name: colour for name, colour in _colours(artefact).items() if name in drawn}
    return Chart(key, caption, panels, colours)


def _curve(summary: Summary) -> Series:
    shown = thinned(len(summary.samples))
    mean, std = summary.mean[shown], summary.std[shown]
    several = len(summary.curves) > 1
    return Series(
        summary.line.label,
        summary.samples[shown] / 1e3,
        mean,
        low=mean - std if several else None,
        high=mean + std if several else None,
    )


def thinned(count: int) -> Any:
    """Return at most `POINTS` evenly spaced indices of a curve, including both ends."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))


def _training_chart(
    key: str, artefact: Artefact, results: Mapping[Run, RunResult], seeds: int, caption: str
) -> Chart | None:
    """Return the chart of training losses per epoch, or None if there are no runs."""
    panels = []
    colours = _colours(artefact)
    for panel in artefact.panels:
        series = [s for line in panel.lines if (s := _training_curve(line, results, seeds))]
        if series:
            description = "; ".join(f"{s.name} ends at {float(s.y[-1]):.3g}" for s in series)
            axis = "training loss per epoch, mean ± std"
            panels.append(
                Panel(
                    panel.title,
                    "training samples seen, thousands",
                    axis,
                    series,
                    description,
                    log="y",
                )
            )
    shown = {series.name for panel in panels for series in panel.series}
    colours = {name: colour for name, colour in colours.items() if name in shown}
    return Chart(key, caption, panels, colours) if panels else None


def _training_curve(line: Line, results: Mapping[Run, RunResult], seeds: int) -> Series | None:
    curve = figures.training_curve(line, results, seeds)
    if curve is None:
        return None
    samples, mean, spread = curve
    shown = thinned(len(samples))
    floor = np.maximum(mean - spread, mean / 30)[shown]  # above 0, for the logarithmic axis
    return Series(
        line.label, samples[shown] / 1e3, mean[shown], low=floor, high=(mean + spread)[shown]
    )
