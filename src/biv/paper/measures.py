"""What a claim is about: one number a seed, read off the runs of a line."""

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
    """The results at hand, by line and seed.

    Attributes:
        seeds: How many were asked for.
    """

    def __init__(self, results: Mapping[Run, RunResult], seeds: int) -> None:
        self._results, self.seeds = results, seeds

    def of(self, line: Line) -> dict[int, RunResult]:
        """The runs of a line that are there, by seed."""
        runs = (run for run in line.runs(self.seeds) if run in self._results)
        return {run.seed: self._results[run] for run in runs}


class Measure(Protocol):
    """A number for every seed that has one."""

    @property
    def lines(self) -> tuple[Line, ...]:
        """What must have been run."""
        ...

    def values(self, evidence: ResultsByLine) -> Values:
        """The numbers, by seed."""
        ...


@dataclass(frozen=True)
class OfLine:
    """What is read off the runs of one line."""

    line: Line

    @property
    def lines(self) -> tuple[Line, ...]:
        """The one."""
        return (self.line,)


class Lowest(OfLine):
    """The lowest point of each run's own smoothed test loss.

    A run that did not stay finite counts as 1, the error of a constant: to leave it out would
    favour the method that lost it.
    """

    def values(self, evidence: ResultsByLine) -> Values:
        """By seed."""
        return {
            seed: float(result.smoothed.min()) if result.diverged_at is None else DIVERGED_ABOVE
            for seed, result in evidence.of(self.line).items()
            if len(result.smoothed)
        }


class Variability(OfLine):
    """How much the training loss varies from batch to batch.

    The standard deviation within an epoch over the epoch's mean, averaged over epochs. It does not
    change when the loss is multiplied by a constant, as normalisation and ε multiply it. A run that
    did not stay finite has none.
    """

    def values(self, evidence: ResultsByLine) -> Values:
        """By seed."""
        return {
            seed: float(np.mean(result.train_loss_std / result.train_loss, dtype=np.float64))
            for seed, result in evidence.of(self.line).items()
            if result.diverged_at is None
        }


@dataclass(frozen=True)
class StepsTo:
    """The steps until a run is as low as another of its seed ever is; all of them if it never is.

    A run that does not stay finite never is.

    Attributes:
        line: Whose steps.
        target: Whose lowest smoothed test loss is to be reached.
    """

    line: Line
    target: Line

    @property
    def lines(self) -> tuple[Line, ...]:
        """Both."""
        return (self.line, self.target)

    def values(self, evidence: ResultsByLine) -> Values:
        """By seed."""
        targets = Lowest(self.target).values(evidence)
        steps: Values = {}
        for seed, result in evidence.of(self.line).items():
            if seed not in targets:
                continue
            reached = (result.smoothed <= targets[seed]) & (result.diverged_at is None)
            first = int(reached.argmax()) if reached.any() else len(reached) - 1
            unsmoothed = len(result.test_loss) - len(reached)  # evaluations before the first mean
            steps[seed] = float((unsmoothed + first + 1) * result.run.test_every)
        return steps


@dataclass(frozen=True)
class Quotient:
    """One measure over another, seed by seed."""

    first: Measure
    second: Measure

    @property
    def lines(self) -> tuple[Line, ...]:
        """Of both."""
        return (*self.first.lines, *self.second.lines)

    def values(self, evidence: ResultsByLine) -> Values:
        """Of the seeds that both have."""
        first, second = self.first.values(evidence), self.second.values(evidence)
        return {seed: first[seed] / second[seed] for seed in first if seed in second}


@dataclass(frozen=True)
class Times:
    """A measure, multiplied by a number."""

    factor: float
    measure: Measure

    @property
    def lines(self) -> tuple[Line, ...]:
        """The measure's."""
        return self.measure.lines

    def values(self, evidence: ResultsByLine) -> Values:
        """By seed."""
        return {seed: self.factor * value for seed, value in self.measure.values(evidence).items()}


@dataclass(frozen=True)
class Tuned:
    """The lowest loss under the setting that was best elsewhere.

    A setting's worth is its mean over seeds. Where the runs of a setting are not all there, nothing
    is chosen.

    Attributes:
        options: A line for every setting.
        chosen_on: Lines of the same settings, by which one is chosen; `options` for the best in
            hindsight.
    """

    options: tuple[Line, ...]
    chosen_on: tuple[Line, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """All."""
        return (*self.options, *self.chosen_on)

    def values(self, evidence: ResultsByLine) -> Values:
        """By seed."""
        choice = best_of(self.chosen_on, evidence)
        return {} if choice is None else Lowest(self.options[choice]).values(evidence)


def best_of(lines: Sequence[Line], evidence: ResultsByLine) -> int | None:
    """Which line is lowest in the mean over seeds; None if they do not all have the same seeds."""
    values = [Lowest(line).values(evidence) for line in lines]
    if not values[0] or any(set(each) != set(values[0]) for each in values):
        return None
    return int(np.argmin([np.mean(list(each.values())) for each in values]))
