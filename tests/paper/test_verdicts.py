"""Test the rule of the verdicts: intervals, margins, and how parts are combined."""

import math

import numpy as np
import pytest
from scipy import stats

from biv.paper.verdicts import T_975, PairedRatio, compare, overall


def test_quantiles_are_those_of_student_s_t():
    assert [stats.t.ppf(0.975, df) for df in range(1, 31)] == pytest.approx(T_975, abs=5e-5)


def test_the_interval_is_that_of_a_paired_t_test_of_the_logarithms():
    rng = np.random.default_rng(0)
    first, second = (dict(enumerate(rng.uniform(0.5, 1.5, size=7))) for _ in range(2))
    result = compare("", "below", first, {**second, 99: 1.0})
    logs = np.log([first[k] for k in range(7)]), np.log([second[k] for k in range(7)])
    expected = stats.ttest_rel(*logs).confidence_interval(0.95)
    assert (result.low, result.high) == pytest.approx(tuple(np.exp(expected)), rel=1e-4)
    assert result.seeds == 7
    assert result.ratio == pytest.approx(math.exp((logs[0] - logs[1]).mean()))


@pytest.mark.parametrize(
    ("claimed", "low", "high", "verdict"),
    [
        ("below", 0.8, 0.9, "holds"),
        ("below", 0.8, 1.1, "undecided"),
        ("below", 1.1, 1.2, "fails"),
        ("above", 1.1, 1.2, "holds"),
        ("above", 0.8, 0.9, "fails"),
        ("above", 0.9, 1.2, "undecided"),
        ("equal", 0.96, 1.04, "holds"),
        ("equal", 0.96, 1.06, "undecided"),
        ("equal", 0.951, 1.049, "holds"),
        ("equal", 0.7, 1.3, "undecided"),
        ("equal", 1.06, 1.2, "fails"),
        ("equal", 0.8, 0.94, "fails"),
        ("below", math.nan, math.nan, "undecided"),
    ],
)
def test_verdicts(claimed, low, high, verdict):
    assert PairedRatio("", claimed, 1.0, low, high, 5).verdict == verdict


def test_one_seed_or_none_is_undecided():
    assert compare("", "below", {0: 0.5}, {0: 1.0}).verdict == "undecided"
    assert compare("", "below", {0: 0.5}, {0: 1.0}).ratio == 0.5
    assert compare("", "below", {0: 0.5}, {1: 1.0}).seeds == 0


def test_the_verdict_on_a_claim_combines_those_on_its_parts():
    holds, fails, open_ = (
        PairedRatio("", "below", 1.0, low, high, 5) for low, high in ((0.5, 0.6), (2, 3), (0.5, 2))
    )
    assert overall([holds, holds]) == "holds"
    assert overall([holds, open_]) == "undecided"
    assert overall([holds, open_, fails]) == "fails"
    assert overall([]) == "undecided"
    absent = PairedRatio("", "below", math.nan, math.nan, math.nan, 0, ran=False)
    assert overall([absent, absent]) == "not run"
    assert overall([absent, holds]) == "undecided"
