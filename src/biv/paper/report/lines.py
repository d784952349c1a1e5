"""Tables of the numbers behind a figure, with one row per line."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from biv.paper.grid import Artefact, Line
from biv.paper.measures import ResultsByLine, Variability
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.summary import Summary, summarise
from biv.report.markdown import aligned

LOSSES = ("panel", "line", "lowest test loss", "at sample (thousands)", "last", "diverged")
VARIABILITY = ("line", "std / mean of training loss per epoch", "lowest seed", "highest seed")


def numbers(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> str:
    """Return the numbers of a figure as a Markdown table."""
    return aligned(rows(artefact, results, seeds))


def rows(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> list[tuple[str, ...]]:
    """Return the numbers of a figure as rows of cells, the header first."""
    if artefact.quantity == "train_loss":
        by_line = ResultsByLine(results, seeds)
        lines = [line for panel in artefact.panels for line in panel.lines]
        return [VARIABILITY, *(_variability(line, by_line) for line in lines)]
    losses = [
        (panel.title, line.label, *_losses(summarise(line, results, seeds)))
        for panel in artefact.panels
        for line in panel.lines
    ]
    return [LOSSES, *losses]


def _losses(summary: Summary | None) -> tuple[str, ...]:
    if summary is None:
        return ("not run", "", "", "")
    diverged = f"{summary.diverged}/{len(summary.seeds)}" if summary.diverged else ""
    if not summary.curves.size:
        return ("", "", "", diverged)
    spread = f" ± {summary.lowest_std:.3f}" if len(summary.curves) > 1 else ""
    at = summary.samples[summary.mean.argmin()] / 1e3
    return (f"{summary.lowest:.3f}{spread}", f"{at:.0f}", f"{summary.mean[-1]:.3f}", diverged)


def _variability(line: Line, by_line: ResultsByLine) -> tuple[str, ...]:
    values = list(Variability(line).values(by_line).values())
    if not values:
        return (line.label, "diverged" if by_line.by_seed(line) else "not run", "", "")
    return (line.label, *(f"{value:.2f}" for value in (np.mean(values), min(values), max(values))))
