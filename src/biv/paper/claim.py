"""Claims and their verdicts: a statement and its parts, each a comparison of runs.

The rule that decides whether a comparison holds is in `verdicts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from biv.paper import verdicts
from biv.paper.grid import Line
from biv.paper.measures import (
    Measure,
    ResultsByLine,
    index_of_best,
)
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.verdicts import Finding


@dataclass(frozen=True)
class Contrast:
    """Part of a claim: the first measure is below, above or equal to the second.

    Attributes
    ----------
    label : str
        Name of the comparison.
    claimed : str
        "below", "above", "equal", or "shown" for a comparison that is reported without a verdict.
    first, second : Measure
        The measures to compare.
    """

    label: str
    claimed: str
    first: Measure
    second: Measure

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines whose runs this part needs."""
        return (*self.first.lines, *self.second.lines)

    def evaluate(self, results: ResultsByLine) -> Finding:
        """Compare the two measures over the seeds that both have."""
        first, second = self.first.values(results), self.second.values(results)
        finding = verdicts.compare(self.label, self.claimed, first, second)
        return replace(finding, ran=all(results.by_seed(line) for line in self.lines))


@dataclass(frozen=True)
class Diverges:
    """Part of a claim: every run of a line diverges."""

    label: str
    line: Line

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines whose runs this part needs."""
        return (self.line,)

    def evaluate(self, results: ResultsByLine) -> Finding:
        """Count the runs that diverged."""
        available = results.by_seed(self.line).values()
        diverged = sum(result.diverged for result in available)
        return verdicts.Count(self.label, diverged, len(available), results.seeds)


@dataclass(frozen=True)
class Choices:
    """Note on a claim: the best learning rate under each noise."""

    label: str
    options: tuple[tuple[str, tuple[Line, ...]], ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """Lines whose runs this part needs."""
        return tuple(line for _, lines in self.options for line in lines)

    def evaluate(self, results: ResultsByLine) -> Finding:
        """List the best learning rate of each option whose runs are complete."""
        best = ((name, lines, index_of_best(lines, results)) for name, lines in self.options)
        rates = [f"{lines[k].run.learning_rate:g} at {n}" for n, lines, k in best if k is not None]
        return verdicts.Note(self.label, ", ".join(rates), results.seeds)


Part = Contrast | Diverges | Choices


@dataclass(frozen=True)
class Claim:
    """Something that the paper states, supposes or leaves open.

    Attributes
    ----------
    number : int
        Number from 1 to 20.
    statement : str
        The claim as one sentence.
    parts : tuple of Part
        Comparisons that must all hold.
    """

    number: int
    statement: str
    parts: tuple[Part, ...]

    def runs(self, seeds: int) -> list[Run]:
        """Return the runs that the claim needs, without duplicates."""
        lines = (line for part in self.parts for line in part.lines)
        return list(dict.fromkeys(run for line in lines for run in line.runs(seeds)))

    def test(self, results: Mapping[Run, RunResult], seeds: int) -> Verdict:
        """Evaluate every part on the available results."""
        by_line = ResultsByLine(results, seeds)
        findings = tuple(part.evaluate(by_line) for part in self.parts)
        runs = self.runs(seeds)
        return Verdict(self, findings, len(runs), sum(run not in results for run in runs))


@dataclass(frozen=True)
class Verdict:
    """A claim with one finding per part.

    Attributes
    ----------
    claim : Claim
        The claim.
    findings : tuple of Finding
        One finding per part.
    required : int
        Number of runs that the claim needs.
    missing : int
        Number of those runs that have no result.
    """

    claim: Claim
    findings: tuple[Finding, ...]
    required: int
    missing: int

    @property
    def overall(self) -> str:
        """One of "holds", "fails", "undecided", "not run"."""
        return "not run" if self.missing == self.required else verdicts.overall(self.findings)

    def count(self, verdict: str) -> int:
        """Return the number of parts with this verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)


def find(number: str, available: Mapping[int, Claim]) -> Claim:
    """Return a claim by its number.

    Raises
    ------
    ValueError
        No claim of this data set has this number.
    """
    if number.isdigit() and int(number) in available:
        return available[int(number)]
    numbers = ", ".join(str(n) for n in available)
    raise ValueError(f"a claim must be one of {numbers} on this data set; got {number!r}")
