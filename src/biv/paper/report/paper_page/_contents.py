"""What a store has runs of, and which of them a report is of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from biv.paper.artefacts import artefacts
from biv.paper.claims import claims
from biv.paper.presets import PRESETS
from biv.paper.spec import Run
from biv.paper.store import Store

MAX_SEEDS = 1000  # that a report is of; a damaged store may name any


@dataclass(frozen=True)
class Chosen:
    """The part of a store that a report is of.

    Attributes:
        dataset: Of its runs.
        preset: Of its runs, by name.
        seeds: How many there are.
        runs: How many of those that artefacts and claims want are there.
    """

    dataset: str
    preset: str
    seeds: int
    runs: int = 0


def contents(store: Store) -> list[Chosen]:
    """What a store has runs of, the most first."""
    done = store.runs()
    seeds: dict[Run, list[int]] = {}
    for run in done:
        seeds.setdefault(replace(run, seed=0), []).append(run.seed)
    found = []
    for dataset in dict.fromkeys(run.dataset for run in done):
        for preset in PRESETS.values():
            if preset.only_faces and dataset != "utkface":
                continue
            present = {run for run in wanted_runs(dataset, preset.name, 1) if run in seeds}
            if present:
                own = [seed for run in present for seed in seeds[run] if seed < MAX_SEEDS] or [0]
                found.append(Chosen(dataset, preset.name, max(own) + 1, len(own)))
    return sorted(found, key=lambda chosen: -chosen.runs)


def wanted_runs(dataset: str, preset: str, seeds: int) -> list[Run]:
    """Return the runs of all artefacts and claims, each once."""
    things: list[Any] = list(artefacts(dataset, PRESETS[preset]).values())
    things += claims(dataset, PRESETS[preset]).values()
    return list(dict.fromkeys(run for thing in things for run in thing.runs(seeds)))
