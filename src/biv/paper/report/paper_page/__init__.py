"""The report of a store: the paper's table and figures, its claims, and how to repeat them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from biv.paper.artefacts import artefacts
from biv.paper.claim import Verdict
from biv.paper.claims import claims
from biv.paper.grid import Artefact
from biv.paper.presets import PRESETS
from biv.paper.report import claims as claim_texts
from biv.paper.report import tables
from biv.paper.report.paper_page._claims import claims_section
from biv.paper.report.paper_page._contents import Chosen, contents, wanted_runs
from biv.paper.report.paper_page._curves import POINTS, figure_section
from biv.paper.report.paper_page._runs import provenance_section, runs_section
from biv.paper.report.paper_page._table import table_section
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.store import Store
from biv.report.page import Page, footer_text
from biv.report.parts import Section, Text

__all__ = ["Chosen", "contents", "page"]


def page(store: Store, chosen: Chosen, place: str) -> Page:
    """Everything that a store has of one data set at one preset.

    Args:
        store: Of runs.
        chosen: Which of them.
        place: Of the store's folder, as commands would name it.
    """
    seeds = chosen.seeds
    results = store.results(wanted_runs(chosen.dataset, chosen.preset, seeds))
    grid = artefacts(chosen.dataset, PRESETS[chosen.preset])
    present = [a for a in grid.values() if _comparable(a, results, seeds)]
    verdicts = [
        claim.test(results, seeds)
        for claim in claims(chosen.dataset, PRESETS[chosen.preset]).values()
    ]
    verdicts = [verdict for verdict in verdicts if verdict.overall != "not run"]
    sections = []
    columns = None
    if present and present[0].kind == "table":
        columns = tables.cells(present[0], results, seeds)
        sections.append(table_section(present[0], columns, results, seeds))
    if verdicts:
        sections.append(claims_section(verdicts, seeds))
    shown = [artefact for artefact in present if artefact.kind == "figure"]
    if shown:
        sections.append(
            Section(
                "figures",
                "The figures",
                [Text(f"Curves are thinned to {POINTS} points; the numbers below each are not.")],
                [figure_section(artefact, results, seeds) for artefact in shown],
            )
        )
    sections += [runs_section(results), provenance_section(store, chosen, results, place)]
    first, *more = _answers(columns, verdicts)
    return Page(
        "Batch inverse-variance weighting, reproduced",
        f"Mai, Khamies and Paull (2021) on {_named(chosen.dataset)}, {chosen.preset} preset: "
        f"{len(results):,} trainings, {seeds} seed{'s' if seeds > 1 else ''}.",
        first,
        sections,
        footer=footer_text(),
        more_conclusions=more,
    )


def _comparable(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> bool:
    """Whether every panel that has runs has something to compare, and one has."""
    counts = []
    for panel in artefact.panels:
        there = [any(run in results for run in line.runs(seeds)) for line in panel.lines]
        counts.append((sum(there), len(there)))
    enough = [found >= min(2, of) for found, of in counts]
    return all(enough) or (artefact.kind == "table" and any(enough))


def _named(dataset: str) -> str:
    return {
        "bike": "Bike Sharing",
        "bike2011": "the first year of Bike Sharing",
        "utkface": "UTKFace",
    }[dataset]


def _answers(
    columns: Sequence[Sequence[tables.TableEntry]] | None, verdicts: Sequence[Verdict]
) -> list[str]:
    """What there is to say, the most important first."""
    said = []
    known = [column for column in columns or [] if any(cell.best for cell in column)]
    if known:
        best = [next(cell for cell in column if cell.best) for column in known]
        wins = [cell for cell in best if cell.method == "BIV"]
        if len(wins) == len(best):
            said.append(
                "BIV has the lowest test loss of all methods that learn from noisy labels, under "
                f"{'every noise' if len(best) > 1 else 'the one noise'} of the paper's table: "
                f"{_each(best)}."
            )
        else:
            told = ", ".join(f"{cell.method} at {cell.noise}" for cell in best)
            said.append(f"The lowest test losses of the paper's table are those of {told}.")
        closed = [c for column in known for c in column if c.method == "BIV" and c.ours]
        closed = [cell for cell in closed if math.isfinite(cell.closed)]
        if closed:
            shares = ", ".join(f"{cell.closed:.0%} at {cell.noise}" for cell in closed)
            said.append(f"Of the gap between L2 and clean labels, BIV closes {shares}.")
    if verdicts:
        told = claim_texts.totals(verdicts)
        said.append(f"The paper's claims, by one rule for all of them: {told[0].lower()}{told[1:]}")
    return said or ["What this store has is below."]


def _each(best: Sequence[tables.TableEntry]) -> str:
    return ", ".join(f"{cell.ours.lowest:.3f} at {cell.noise}" for cell in best if cell.ours)
