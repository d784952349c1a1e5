"""The numbers behind a figure: a row a line."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from biv.paper.grid import Artefact, Line
from biv.paper.measures import ResultsByLine, Variability
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.summary import Summary, summarise
from biv.report.markdown import aligned

LOSSES = ("panel", "line", "lowest test loss", "after thousand samples", "last", "diverged")
VARIABILITY = ("line", "std / mean of training loss in an epoch", "lowest seed", "highest seed")


def numbers(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> str:
    """A figure as a Markdown table."""
    return aligned(rows(artefact, results, seeds))


def rows(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> list[tuple[str, ...]]:
    """A figure as a table, its head first."""
    if artefact.quantity == "train_loss":
        evidence = ResultsByLine(results, seeds)
        lines = [line for panel in artefact.panels for line in panel.lines]
        return [VARIABILITY, *(_variability(line, evidence) for line in lines)]
    losses = [
        (panel.title, line.label, *_losses(summarise(line, results, seeds)))
        for panel in artefact.panels
        for line in panel.lines
    ]
    return [LOSSES, *losses]


def _losses(own: Summary | None) -> tuple[str, ...]:
    if own is None:
        return ("not run", "", "", "")
    diverged = f"{own.diverged}/{len(own.seeds)}" if own.diverged else ""
    if not own.curves.size:
        return ("", "", "", diverged)
    spread = f" ± {own.lowest_std:.3f}" if len(own.curves) > 1 else ""
    at = own.samples[own.mean.argmin()] / 1e3
    return (f"{own.lowest:.3f}{spread}", f"{at:.0f}", f"{own.mean[-1]:.3f}", diverged)


def _variability(line: Line, evidence: ResultsByLine) -> tuple[str, ...]:
    values = list(Variability(line).values(evidence).values())
    if not values:
        return (line.label, "diverged" if evidence.of(line) else "not run", "", "")
    return (line.label, *(f"{value:.2f}" for value in (np.mean(values), min(values), max(values))))
