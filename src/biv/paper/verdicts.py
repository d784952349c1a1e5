"""The rule that decides claims: ratios paired over seeds, with margins fixed before the runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

EQUAL_WITHIN = 0.05  # an equality holds if the whole interval lies within ±5% of 1

# 97.5% points of Student's t with 1, 2, ... degrees of freedom (scipy.stats.t.ppf(0.975, df)).
T_975 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281,
    2.2010, 2.1788, 2.1604, 2.1448, 2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
    2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484, 2.0452, 2.0423,
)  # fmt: skip


@dataclass(frozen=True)
class PairedRatio:
    """Ratio of two methods under the same seeds, and what was claimed about it.

    Attributes
    ----------
    label : str
        Name of the comparison.
    claimed : str
        "below", "above" or "equal" to 1; "shown" for a ratio that is reported without a verdict.
    ratio : float
        Geometric mean of the ratios of the seeds.
    low, high : float
        Ends of its 95% interval.
    seeds : int
        Number of seeds that have both values.
    ran : bool, default=True
        Whether both methods have runs. A run that did not stay finite may have no value.
    """

    label: str
    claimed: str
    ratio: float
    low: float
    high: float
    seeds: int
    ran: bool = True

    @property
    def verdict(self) -> str:
        """One of "holds", "fails", "undecided", "shown" and "not run".

        A difference holds if the interval lies entirely on the claimed side of 1, and fails if it
        lies entirely on the other side. An equality holds if the interval lies inside the margin,
        and fails if it lies entirely outside.
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
    label: str, claimed: str, first: Mapping[int, float], second: Mapping[int, float]
) -> PairedRatio:
    """Estimate the ratio first/second over the seeds that both have.

    Parameters
    ----------
    label : str
        Name of the comparison.
    claimed : str
        "below", "above", "equal" or "shown".
    first, second : mapping of int to float
        One positive value per seed.

    Returns
    -------
    PairedRatio
        The geometric mean, with a 95% interval of a paired t-test of the logarithms. The ends of
        the interval are NaN for a single seed, and the ratio is NaN if there is no common seed.

    Examples
    --------
    >>> biv, l2 = {0: 0.09, 1: 0.10, 2: 0.11}, {0: 0.11, 1: 0.12, 2: 0.13}
    >>> result = compare("BIV/L2", "below", biv, l2)
    >>> f"{result.ratio:.3f} [{result.low:.3f}, {result.high:.3f}] {result.verdict}"
    '0.832 [0.798, 0.868] holds'
    """
    shared = sorted(set(first) & set(second))
    logs = np.log([first[seed] / second[seed] for seed in shared])
    if len(logs) == 0:
        return PairedRatio(label, claimed, math.nan, math.nan, math.nan, 0)
    mean = float(logs.mean())
    if len(logs) == 1:
        return PairedRatio(label, claimed, math.exp(mean), math.nan, math.nan, 1)
    quantile = T_975[min(len(logs) - 1, len(T_975)) - 1]
    half = quantile * float(logs.std(ddof=1)) / math.sqrt(len(logs))
    ends = math.exp(mean - half), math.exp(mean + half)
    return PairedRatio(label, claimed, math.exp(mean), *ends, len(logs))


@dataclass(frozen=True)
class Count:
    """Number of runs with a property that was claimed of every run.

    Attributes
    ----------
    label : str
        Name of the property.
    times : int
        Number of runs that have the property.
    seeds : int
        Number of runs.
    required : int
        Number of runs that the claim needs.
    """

    label: str
    times: int
    seeds: int
    required: int

    @property
    def verdict(self) -> str:
        """Whether all required runs have the property; one run without it makes the claim fail."""
        if not self.seeds:
            return "not run"
        if self.times < self.seeds:
            return "fails"
        return "holds" if self.seeds == self.required else "undecided"


@dataclass(frozen=True)
class Note:
    """A text that is shown with a claim and has no verdict.

    Attributes
    ----------
    label : str
        What the text is about.
    text : str
        The text.
    seeds : int
        Number of seeds that it is based on.
    """

    label: str
    text: str
    seeds: int
    verdict: str = "shown"


Finding = PairedRatio | Count | Note


def overall(findings: Sequence[Finding]) -> str:
    """Combine the verdicts on the parts of a claim.

    A claim holds if all its parts hold, and fails if one part fails. If no part has runs, the claim
    was not run.
    """
    verdicts = {finding.verdict for finding in findings} - {"shown"}
    if verdicts == {"not run"}:
        return "not run"
    if "fails" in verdicts:
        return "fails"
    return "holds" if verdicts == {"holds"} else "undecided"
