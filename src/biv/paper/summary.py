"""From the runs of a line to the numbers that the paper reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from biv.paper.grid import Line
from biv.paper.results import RunResult
from biv.paper.spec import Run

Curves = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Summary:
    """The seeds of one line.

    Attributes:
        line: Which.
        seeds: Of the runs that are there.
        diverged: How many of them diverged.
        curves: The smoothed test losses of those that did not, (runs, evaluations); if all did, of
            those that stayed finite and only end above 1, as where a method overfits.
        samples: How many training samples had been seen at each of these evaluations.
    """

    line: Line
    seeds: tuple[int, ...]
    diverged: int
    curves: Curves
    samples: npt.NDArray[np.int64]

    @property
    def mean(self) -> Curves:
        """The mean smoothed curve."""
        return np.asarray(self.curves.mean(axis=0))

    @property
    def std(self) -> Curves:
        """The standard deviation across runs; 0 of a single one."""
        several = len(self.curves) > 1
        return np.asarray(self.curves.std(axis=0, ddof=1) if several else 0 * self.curves[0])

    @property
    def lowest(self) -> float:
        """The headline: the minimum over steps of the mean smoothed curve (NOTE[DIFF] 5)."""
        return float(self.mean.min()) if self.curves.size else float("nan")

    @property
    def lowest_std(self) -> float:
        """The standard deviation across runs at that step."""
        return float(self.std[self.mean.argmin()]) if self.curves.size else float("nan")


def summarise(line: Line, results: Mapping[Run, RunResult], seeds: int) -> Summary | None:
    """What a store has of a line; None if it has nothing."""
    there = [results[run] for run in line.runs(seeds) if run in results]
    if not there:
        return None
    shown = [result for result in there if not result.diverged]
    shown = shown or [result for result in there if result.diverged_at is None]
    length = len(there[0].smoothed)
    curves = np.array([result.smoothed for result in shown]).reshape(len(shown), length)
    run = line.run
    evaluations = np.arange(1, len(there[0].test_loss) + 1)
    samples = (
        (evaluations * run.test_every * run.batch_size)[-length:] if length else evaluations[:0]
    )
    ids = tuple(result.run.seed for result in there)
    return Summary(line, ids, sum(result.diverged for result in there), curves, samples)
