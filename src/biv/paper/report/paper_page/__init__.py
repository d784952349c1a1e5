"""The HTML report of a store: the paper's table, figures and claims, and how to repeat them."""

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
from biv.paper.report.paper_page._contents import Selection, contents, runs_of_report
from biv.paper.report.paper_page._curves import POINTS, figure_section
from biv.paper.report.paper_page._runs import provenance_section, runs_section
from biv.paper.report.paper_page._table import table_section
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.store import Store
from biv.report.page import Page, footer_text
from biv.report.parts import Section, Text

__all__ = ["Selection", "contents", "page"]


def page(store: Store, selection: Selection, folder: str) -> Page:
    """Build the report of one data set and preset.

    Parameters
    ----------
    store : Store
        Store of the runs.
    selection : Selection
        Data set, preset and number of seeds to show.
    folder : str
        Folder of the store, quoted for a shell, for the commands that the report shows.
    """
    seeds = selection.seeds
    results = store.results(runs_of_report(selection.dataset, selection.preset, seeds))
    grid = artefacts(selection.dataset, PRESETS[selection.preset])
    present = [a for a in grid.values() if _comparable(a, results, seeds)]
    verdicts = [
        claim.test(results, seeds)
        for claim in claims(selection.dataset, PRESETS[selection.preset]).values()
    ]
    verdicts = [verdict for verdict in verdicts if verdict.overall != "not run"]
    sections = []
    columns = None
    if present and present[0].kind == "table":
        columns = tables.cells(present[0], results, seeds)
        sections.append(table_section(present[0], columns, results, seeds))
    if verdicts:
        sections.append(claims_section(verdicts, seeds))
    drawn = [artefact for artefact in present if artefact.kind == "figure"]
    if drawn:
        sections.append(
            Section(
                "figures",
                "The figures",
                [
                    Text(
                        f"Curves are thinned to {POINTS} points. The numbers below each figure are "
                        "computed from all evaluations."
                    )
                ],
                [figure_section(artefact, results, seeds) for artefact in drawn],
            )
        )
    sections += [runs_section(results), provenance_section(store, selection, results, folder)]
    first, *more = _answers(columns, verdicts)
    return Page(
        "Batch inverse-variance weighting, reproduced",
        f"Mai, Khamies and Paull (2021) on {_DATASET_NAMES[selection.dataset]}, {selection.preset} "
        f"preset: {len(results):,} runs, {claim_texts.seeds_text(seeds)}.",
        first,
        sections,
        footer=footer_text(),
        more_conclusions=more,
    )


def _comparable(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> bool:
    """Return whether an artefact has enough lines with runs to be worth showing."""
    counts = []
    for panel in artefact.panels:
        available = [any(run in results for run in line.runs(seeds)) for line in panel.lines]
        counts.append((sum(available), len(available)))
    enough = [with_runs >= min(2, lines) for with_runs, lines in counts]
    return all(enough) or (artefact.kind == "table" and any(enough))


_DATASET_NAMES = {
    "bike": "Bike Sharing",
    "bike2011": "the first year of Bike Sharing",
    "utkface": "UTKFace",
}


def _answers(
    columns: Sequence[Sequence[tables.TableEntry]] | None, verdicts: Sequence[Verdict]
) -> list[str]:
    """Return the conclusions, the most important first."""
    sentences = []
    complete = [column for column in columns or [] if any(cell.best for cell in column)]
    if complete:
        best = [next(cell for cell in column if cell.best) for column in complete]
        wins = [cell for cell in best if cell.method == "BIV"]
        if len(wins) == len(best):
            noises = "each noise" if len(best) > 1 else "the one noise"
            sentences.append(
                f"Under {noises} of the paper's table, BIV has the lowest test loss of all methods "
                f"that learn from noisy labels: {_losses_text(best)}."
            )
        else:
            winners = ", ".join(f"{cell.method} at {cell.noise}" for cell in best)
            sentences.append(f"The methods with the lowest test loss are {winners}.")
        biv = [c for column in complete for c in column if c.method == "BIV" and c.ours]
        finite = [cell for cell in biv if math.isfinite(cell.closed)]
        if finite:
            fractions = ", ".join(f"{cell.closed:.0%} at {cell.noise}" for cell in finite)
            sentences.append(
                f"BIV closes part of the gap between L2 and training on clean labels: {fractions}."
            )
    if verdicts:
        _, _, counts = claim_texts.totals(verdicts).partition(": ")
        sentences.append(f"Of {len(verdicts)} claims of the paper, tested by one rule, {counts}")
    return sentences or ["The sections below show the runs of this store."]


def _losses_text(best: Sequence[tables.TableEntry]) -> str:
    return ", ".join(f"{cell.ours.lowest:.3f} at {cell.noise}" for cell in best if cell.ours)
