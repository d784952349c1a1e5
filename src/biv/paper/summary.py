"""Summarise the runs of a line as the paper does: mean curve, lowest loss, divergence."""

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
    """Smoothed test losses of one line, over its seeds.

    Attributes
    ----------
    line : Line
        The line.
    seeds : tuple of int
        Seeds of the available runs.
    diverged : int
        Number of those runs that diverged.
    curves : ndarray, shape (runs, evaluations)
        Smoothed test losses of the runs that did not diverge. If all runs diverged, those of the
        runs that stayed finite and only end above 1, as when a method overfits.
    samples : ndarray of int, shape (evaluations,)
        Number of training samples seen at each evaluation.
    """

    line: Line
    seeds: tuple[int, ...]
    diverged: int
    curves: Curves
    samples: npt.NDArray[np.int64]

    @property
    def mean(self) -> Curves:
        """Mean of the smoothed curves."""
        return np.asarray(self.curves.mean(axis=0))

    @property
    def std(self) -> Curves:
        """Standard deviation across runs; 0 for a single run."""
        several = len(self.curves) > 1
        return np.asarray(self.curves.std(axis=0, ddof=1) if several else 0 * self.curves[0])

    @property
    def lowest(self) -> float:
        """Lowest test loss: the minimum over steps of the mean smoothed curve (NOTE[DIFF] 5)."""
        return float(self.mean.min()) if self.curves.size else float("nan")

    @property
    def lowest_std(self) -> float:
        """Standard deviation across runs at the step of the lowest mean."""
        return float(self.std[self.mean.argmin()]) if self.curves.size else float("nan")


def summarise(line: Line, results: Mapping[Run, RunResult], seeds: int) -> Summary | None:
    """Summarise the available runs of a line; return None if there are none."""
    available = [results[run] for run in line.runs(seeds) if run in results]
    if not available:
        return None
    shown = [result for result in available if not result.diverged]
    shown = shown or [result for result in available if result.diverged_at is None]
    length = len(available[0].smoothed)
    curves = np.array([result.smoothed for result in shown]).reshape(len(shown), length)
    run = line.run
    evaluations = np.arange(1, len(available[0].test_loss) + 1)
    samples = (
        (evaluations * run.test_every * run.batch_size)[-length:] if length else evaluations[:0]
    )
    ids = tuple(result.run.seed for result in available)
    return Summary(line, ids, sum(result.diverged for result in available), curves, samples)
