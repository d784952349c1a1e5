"""Sections of curves: those of a figure, and those behind the table."""

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

POINTS = 150  # of a curve, at most: more than a screen shows of it


def figure_section(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> Section:
    """Return a figure of the paper and its numbers."""
    number = int(artefact.name.removeprefix("fig"))
    heading = f"Figure {number}, {artefact.label}: {artefact.shows}"
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
    """Return the curves of an artefact and its numbers."""
    tested = artefact.quantity == "test_loss"
    chart = (_tests if tested else _trainings)(key, artefact, results, seeds, caption)
    parts: list[Any] = [] if chart is None else [chart]
    head, *rows = lines.rows(artefact, results, seeds)
    numbers = Table(key, "The numbers", head, rows, folded=True)
    return Section(key, heading, [*parts, numbers])


def _colours(artefact: Artefact) -> dict[str, Colour]:
    """Of every line, by its label."""
    found: dict[str, Colour] = {}
    for panel in artefact.panels:
        for line, colour in zip(panel.lines, figures.colours(panel), strict=True):
            truth = colour == figures.TRUTH_COLOUR
            found.setdefault(line.label, BLACK if truth else Colour.from_hex(_hex(colour)))
    return found


def _hex(colour: Any) -> str:
    if isinstance(colour, str):
        return colour
    return "#" + "".join(f"{round(255 * share):02x}" for share in colour[:3])


def _tests(
    key: str, artefact: Artefact, results: Mapping[Run, RunResult], seeds: int, caption: str
) -> Chart | None:
    """Mean test losses with their bands."""
    owns = [
        [own for line in p.lines if (own := summarise(line, results, seeds)) and own.curves.size]
        for p in artefact.panels
    ]
    everything = [own for panel in owns for own in panel]
    if not everything:
        return None
    limits = figures.limits(everything)
    panels = [
        Panel(
            panel.title,
            "training samples seen, thousands",
            "test MSE on clean labels",
            [_curve(own) for own in found],
            "Lowest means: " + "; ".join(f"{o.line.label} {o.lowest:.3f}" for o in found) + ".",
            y_range=limits,
        )
        for panel, found in zip(artefact.panels, owns, strict=True)
        if found
    ]
    drawn = {own.line.label for own in everything}
    colours = {name: colour for name, colour in _colours(artefact).items() if name in drawn}
    return Chart(key, caption, panels, colours)


def _curve(own: Summary) -> Series:
    shown = thinned(len(own.samples))
    mean, std = own.mean[shown], own.std[shown]
    several = len(own.curves) > 1
    return Series(
        own.line.label,
        own.samples[shown] / 1e3,
        mean,
        low=mean - std if several else None,
        high=mean + std if several else None,
    )


def thinned(count: int) -> Any:
    """Places of a curve, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))


def _trainings(
    key: str, artefact: Artefact, results: Mapping[Run, RunResult], seeds: int, caption: str
) -> Chart | None:
    """Training losses, the mean of every epoch and the deviation within it."""
    panels = []
    colours = _colours(artefact)
    for panel in artefact.panels:
        series = [own for line in panel.lines if (own := _training(line, results, seeds))]
        if series:
            said = "; ".join(f"{own.name} ends at {float(own.y[-1]):.3g}" for own in series)
            axis = "training loss, an epoch's mean ± std"
            panels.append(
                Panel(panel.title, "training samples seen, thousands", axis, series, said, log="y")
            )
    shown = {own.name for panel in panels for own in panel.series}
    colours = {name: colour for name, colour in colours.items() if name in shown}
    return Chart(key, caption, panels, colours) if panels else None


def _training(line: Line, results: Mapping[Run, RunResult], seeds: int) -> Series | None:
    found = figures.training_curve(line, results, seeds)
    if found is None:
        return None
    samples, mean, spread = found
    shown = thinned(len(samples))
    floor = np.maximum(mean - spread, mean / 30)[shown]  # a logarithmic axis knows no 0
    return Series(
        line.label, samples[shown] / 1e3, mean[shown], low=floor, high=(mean + spread)[shown]
    )
