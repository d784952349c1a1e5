"""How a claim is put to the test: paired over seeds, with margins that no result has moved."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

EQUAL_WITHIN = 0.05  # an equality holds when the whole interval lies within ±5%

# 97.5% points of Student's t with 1, 2, ... degrees of freedom (scipy.stats.t.ppf(0.975, df)).
T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


@dataclass(frozen=True)
class PairedRatio:
    """Two methods under the same seeds: the ratio of what they reach, and what was claimed of it.

    Attributes:
        what: In words.
        claimed: "below", "above" or "equal"; "shown" of what is told beside and decides nothing.
        ratio: The geometric mean of the seeds' ratios.
        low: The lower end of its 95% interval.
        high: The upper end.
        seeds: How many pairs there are.
        ran: Whether both have runs at all; one that did not stay finite may still have no number.
    """

    what: str
    claimed: str
    ratio: float
    low: float
    high: float
    seeds: int
    ran: bool = True

    @property
    def verdict(self) -> str:
        """One of "holds", "fails", "undecided", "shown" and "not run".

        A difference holds when the interval excludes 1 on the claimed side, and fails when it does
        on the other; an equality holds within the margin, and fails when the interval lies outside.
        """
        if self.claimed == "shown":
            return "shown"
        if not self.ran:
            return "not run"
        if math.isnan(self.low) or math.isnan(self.high):
            return "undecided"
        if self.claimed == "equal":
            inside = self.low >= 1 - EQUAL_WITHIN and self.high <= 1 + EQUAL_WITHIN
            outside = self.high < 1 - EQUAL_WITHIN or self.low > 1 + EQUAL_WITHIN
            return "holds" if inside else "fails" if outside else "undecided"
        below, above = self.high < 1, self.low > 1
        holds, fails = (below, above) if self.claimed == "below" else (above, below)
        return "holds" if holds else "fails" if fails else "undecided"


def compare(
    what: str, claimed: str, first: Mapping[int, float], second: Mapping[int, float]
) -> PairedRatio:
    """The ratio first/second over the seeds that both have; intervals by Student's t of the logs.

    Example:
        >>> biv, l2 = {0: 0.09, 1: 0.10, 2: 0.11}, {0: 0.11, 1: 0.12, 2: 0.13}
        >>> found = compare("BIV/L2", "below", biv, l2)
        >>> f"{found.ratio:.3f} [{found.low:.3f}, {found.high:.3f}] {found.verdict}"
        '0.832 [0.798, 0.868] holds'
    """
    shared = sorted(set(first) & set(second))
    logs = np.log([first[seed] / second[seed] for seed in shared])
    if len(logs) == 0:
        return PairedRatio(what, claimed, math.nan, math.nan, math.nan, 0)
    mean = float(logs.mean())
    if len(logs) == 1:
        return PairedRatio(what, claimed, math.exp(mean), math.nan, math.nan, 1)
    quantile = T_975[min(len(logs) - 1, len(T_975)) - 1]
    half = quantile * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    ends = math.exp(mean - half), math.exp(mean + half)
    return PairedRatio(what, claimed, math.exp(mean), *ends, len(logs))


@dataclass(frozen=True)
class Count:
    """Something that was claimed of every run.

    Attributes:
        what: In words.
        times: In how many runs it was seen.
        seeds: How many runs there are.
        asked: How many there should be.
    """

    what: str
    times: int
    seeds: int
    asked: int

    @property
    def verdict(self) -> str:
        """It holds if it was seen in every run; one run in which it was not makes it fail."""
        if not self.seeds:
            return "not run"
        if self.times < self.seeds:
            return "fails"
        return "holds" if self.seeds == self.asked else "undecided"


@dataclass(frozen=True)
class Note:
    """Something that is told beside, in words.

    Attributes:
        what: In words.
        told: What was found.
        seeds: From how many runs each.
    """

    what: str
    told: str
    seeds: int
    verdict: str = "shown"


Finding = PairedRatio | Count | Note


def overall(findings: Sequence[Finding]) -> str:
    """Of a claim made of several parts: it holds if all do, and fails if one does.

    Where no part has the runs it rests on, nothing was put to the test.
    """
    verdicts = {finding.verdict for finding in findings} - {"shown"}
    if verdicts == {"not run"}:
        return "not run"
    if "fails" in verdicts:
        return "fails"
    return "holds" if verdicts == {"holds"} else "undecided"
