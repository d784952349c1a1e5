"""List the data sets and presets of a store, and the runs that a report shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from biv.paper.artefacts import artefacts
from biv.paper.claims import claims
from biv.paper.presets import PRESETS
from biv.paper.spec import Run
from biv.paper.store import Store

MAX_SEEDS = 1000  # larger seeds are ignored, because a damaged store may contain any number


@dataclass(frozen=True)
class Selection:
    """Part of a store that a report shows.

    Attributes
    ----------
    dataset : str
        Data set of the runs.
    preset : str
        Name of their preset.
    seeds : int
        Number of seeds.
    runs : int, default=0
        Number of stored runs that the artefacts and claims use.
    """

    dataset: str
    preset: str
    seeds: int
    runs: int = 0


def contents(store: Store) -> list[Selection]:
    """Return the data sets and presets of a store, the one with the most runs first."""
    finished = store.runs()
    seeds: dict[Run, list[int]] = {}
    for run in finished:
        seeds.setdefault(replace(run, seed=0), []).append(run.seed)
    selections = []
    for dataset in dict.fromkeys(run.dataset for run in finished):
        for preset in PRESETS.values():
            if preset.only_faces and dataset != "utkface":
                continue
            present = {run for run in runs_of_report(dataset, preset.name, 1) if run in seeds}
            if present:
                valid = [seed for run in present for seed in seeds[run] if seed < MAX_SEEDS] or [0]
                selections.append(Selection(dataset, preset.name, max(valid) + 1, len(valid)))
    return sorted(selections, key=lambda selection: -selection.runs)


def runs_of_report(dataset: str, preset: str, seeds: int) -> list[Run]:
    """Return the runs of all artefacts and claims, without duplicates."""
    things: list[Any] = list(artefacts(dataset, PRESETS[preset]).values())
    things += claims(dataset, PRESETS[preset]).values()
    return list(dict.fromkeys(run for thing in things for run in thing.runs(seeds)))
