"""Measures that claims compare: one number per seed, computed from the runs of a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from biv.paper.grid import Line
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.training.history import DIVERGED_ABOVE

Values = dict[int, float]  # by seed


class ResultsByLine:
    """The available results, by line and seed.

    Attributes
    ----------
    seeds : int
        Number of seeds that were requested.
    """

    def __init__(self, results: Mapping[Run, RunResult], seeds: int) -> None:
        self._results, self.seeds = results, seeds

    def by_seed(self, line: Line) -> dict[int, RunResult]:
        """Return the available results of a line, by seed."""
        runs = (run for run in line.runs(self.seeds) if run in self._results)
        return {run.seed: self._results[run] for run in runs}


class Measure(Protocol):
    """A number for every seed that has one."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines whose runs the measure needs."""
        ...

    def values(self, results: ResultsByLine) -> Values:
        """Return the number of each seed."""
        ...


@dataclass(frozen=True)
class LineMeasure:
    """Base class of measures that need one line."""

    line: Line

    @property
    def lines(self) -> tuple[Line, ...]:
        """The line, as a tuple."""
        return (self.line,)


class Lowest(LineMeasure):
    """Lowest point of each run's own smoothed test loss.

    A run that did not stay finite counts as 1, the error of a constant prediction. Leaving it out
    would favour the method that lost it.
    """

    def values(self, results: ResultsByLine) -> Values:
        """Return the lowest loss of each seed."""
        return {
            seed: float(result.smoothed.min()) if result.diverged_at is None else DIVERGED_ABOVE
            for seed, result in results.by_seed(self.line).items()
            if len(result.smoothed)
        }


class Variability(LineMeasure):
    """Variation of the training loss from batch to batch.

    It is the standard deviation within an epoch divided by the epoch's mean, averaged over epochs.
    Multiplying the loss by a constant, as normalisation and ε do, does not change it. A run that
    did not stay finite has no value.
    """

    def values(self, results: ResultsByLine) -> Values:
        """Return the variability of each seed."""
        return {
            seed: float(np.mean(result.train_loss_std / result.train_loss, dtype=np.float64))
            for seed, result in results.by_seed(self.line).items()
            if result.diverged_at is None
        }


@dataclass(frozen=True)
class StepsTo:
    """Number of steps until a run is as low as another run of its seed ever becomes.

    A run that never becomes as low counts with all its steps, and so does a run that did not stay
    finite.

    Attributes
    ----------
    line : Line
        Line whose steps are counted.
    target : Line
        Line whose lowest smoothed test loss is to be reached.
    """

    line: Line
    target: Line

    @property
    def lines(self) -> tuple[Line, ...]:
        """Both lines."""
        return (self.line, self.target)

    def values(self, results: ResultsByLine) -> Values:
        """Return the number of steps of each seed."""
        targets = Lowest(self.target).values(results)
        steps: Values = {}
        for seed, result in results.by_seed(self.line).items():
            if seed not in targets:
                continue
            reached = (result.smoothed <= targets[seed]) & (result.diverged_at is None)
            first = int(reached.argmax()) if reached.any() else len(reached) - 1
            unsmoothed = len(result.test_loss) - len(reached)  # evaluations before the first mean
            steps[seed] = float((unsmoothed + first + 1) * result.run.test_every)
        return steps


@dataclass(frozen=True)
class Quotient:
    """One measure divided by another, seed by seed."""

    first: Measure
    second: Measure

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines of both measures."""
        return (*self.first.lines, *self.second.lines)

    def values(self, results: ResultsByLine) -> Values:
        """Return the quotient of each seed that both measures have."""
        first, second = self.first.values(results), self.second.values(results)
        return {seed: first[seed] / second[seed] for seed in first if seed in second}


@dataclass(frozen=True)
class Times:
    """A measure multiplied by a number."""

    factor: float
    measure: Measure

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines of the measure."""
        return self.measure.lines

    def values(self, results: ResultsByLine) -> Values:
        """Return the product of each seed."""
        return {seed: self.factor * value for seed, value in self.measure.values(results).items()}


@dataclass(frozen=True)
class Tuned:
    """Lowest loss with the setting that was best on other lines.

    The best setting has the lowest mean over seeds. If the runs of a setting are incomplete, no
    setting is chosen and there are no values.

    Attributes
    ----------
    options : tuple of Line
        One line per setting.
    chosen_on : tuple of Line
        Lines with the same settings, on which the setting is chosen. Pass `options` to choose the
        best setting in hindsight.
    """

    options: tuple[Line, ...]
    chosen_on: tuple[Line, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """All lines."""
        return (*self.options, *self.chosen_on)

    def values(self, results: ResultsByLine) -> Values:
        """Return the lowest loss of each seed with the chosen setting."""
        choice = index_of_best(self.chosen_on, results)
        return {} if choice is None else Lowest(self.options[choice]).values(results)


def index_of_best(lines: Sequence[Line], results: ResultsByLine) -> int | None:
    """Return the index of the line with the lowest mean; None if their seeds differ."""
    values = [Lowest(line).values(results) for line in lines]
    if not values[0] or any(set(each) != set(values[0]) for each in values):
        return None
    return int(np.argmin([np.mean(list(each.values())) for each in values]))
