"""What a claim is: a sentence and its parts, each a comparison of runs, and the verdict on it.

What makes a comparison hold or fail stands in `verdicts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from biv.paper import verdicts
from biv.paper.grid import Line
from biv.paper.measures import (
    Measure,
    ResultsByLine,
    best_of,
)
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.verdicts import Finding


@dataclass(frozen=True)
class Contrast:
    """A part of a claim: the first measure is "below", "above" or "equal" to the second.

    Or it is "shown" beside the second, and decides nothing.
    """

    what: str
    claimed: str
    first: Measure
    second: Measure

    @property
    def lines(self) -> tuple[Line, ...]:
        """What must have been run."""
        return (*self.first.lines, *self.second.lines)

    def find(self, evidence: ResultsByLine) -> Finding:
        """What the runs say."""
        first, second = self.first.values(evidence), self.second.values(evidence)
        found = verdicts.compare(self.what, self.claimed, first, second)
        return replace(found, ran=all(evidence.of(line) for line in self.lines))


@dataclass(frozen=True)
class Diverges:
    """A part of a claim: every run of the line diverges."""

    what: str
    line: Line

    @property
    def lines(self) -> tuple[Line, ...]:
        """What must have been run."""
        return (self.line,)

    def find(self, evidence: ResultsByLine) -> Finding:
        """What the runs say."""
        there = evidence.of(self.line).values()
        times = sum(result.diverged for result in there)
        return verdicts.Count(self.what, times, len(there), evidence.seeds)


@dataclass(frozen=True)
class Choices:
    """Beside a claim: which learning rate is best under each noise."""

    what: str
    options: tuple[tuple[str, tuple[Line, ...]], ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """What must have been run."""
        return tuple(line for _, lines in self.options for line in lines)

    def find(self, evidence: ResultsByLine) -> Finding:
        """What the runs say."""
        best = ((name, lines, best_of(lines, evidence)) for name, lines in self.options)
        told = [f"{lines[k].run.learning_rate:g} at {n}" for n, lines, k in best if k is not None]
        return verdicts.Note(self.what, ", ".join(told), evidence.seeds)


Part = Contrast | Diverges | Choices


@dataclass(frozen=True)
class Claim:
    """Something that the paper says, supposes or leaves open.

    Attributes:
        number: 1 to 20.
        says: In a sentence.
        parts: All of which must hold.
    """

    number: int
    says: str
    parts: tuple[Part, ...]

    def runs(self, seeds: int) -> list[Run]:
        """What must have been run, each once."""
        lines = (line for part in self.parts for line in part.lines)
        return list(dict.fromkeys(run for line in lines for run in line.runs(seeds)))

    def test(self, results: Mapping[Run, RunResult], seeds: int) -> Verdict:
        """What the runs say of it."""
        evidence = ResultsByLine(results, seeds)
        findings = tuple(part.find(evidence) for part in self.parts)
        wanted = self.runs(seeds)
        return Verdict(self, findings, len(wanted), sum(run not in results for run in wanted))


@dataclass(frozen=True)
class Verdict:
    """A claim and what was found, part by part.

    Attributes:
        claim: Which.
        findings: One a part.
        asked: How many runs it wants.
        missing: How many of them are not there.
    """

    claim: Claim
    findings: tuple[Finding, ...]
    asked: int
    missing: int

    @property
    def overall(self) -> str:
        """One of "holds", "fails", "undecided", "not run"."""
        return "not run" if self.missing == self.asked else verdicts.overall(self.findings)

    def count(self, verdict: str) -> int:
        """How many parts have this verdict."""
        return sum(finding.verdict == verdict for finding in self.findings)


def find(number: str, among: Mapping[int, Claim]) -> Claim:
    """A claim by its number.

    Raises:
        ValueError: There is none of that number.
    """
    if number.isdigit() and int(number) in among:
        return among[int(number)]
    numbers = ", ".join(str(n) for n in among)
    raise ValueError(
        f"a claim must be one of {numbers} (what this data set has the rows for); got {number!r}"
    )
