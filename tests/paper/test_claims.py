"""The paper's claims: a made-up world in which all hold, and others in which each fails."""

import csv
import math
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest

from biv.paper.artefacts import artefacts
from biv.paper.claim import Contrast, find
from biv.paper.claims import claims
from biv.paper.grid import BIV, CLEAN, L2, Grid, Line, gamma
from biv.paper.measures import Lowest, Quotient, ResultsByLine, StepsTo, Times, Tuned, Variability
from biv.paper.presets import PRESETS
from biv.paper.report import claims as report
from biv.paper.results import RunResult
from biv.paper.spec import Loss
from biv.paper.verdicts import Count
from helpers.paper_runs import RUN, line_of

SEEDS = 5
ALL = claims("bike", PRESETS["paper"])
ADVANTAGE = {
    "gamma": {10.0: 0.97, 5.0: 0.95, 2.0: 0.9, 1.0: 0.85, 0.5: 0.75, 0.25: 0.65},
    "uniform": {0.0: 1.0, 0.5: 0.95, 1.0: 0.9},
    "binary": {0.3: 0.8, 0.5: 0.7, 0.7: 0.6, 0.9: 0.5},
}
EPSILON_COST = {0.0: 1.12, 0.001: 1.1, 0.5: 1.08, 1.0: 1.12}


def height(run):
    """The lowest loss of a run, if the paper were right in everything."""
    noise, loss = run.noise, run.loss
    if noise == CLEAN:
        return 0.06
    if run.optimizer == "sgd":
        best = 0.1 if loss.kind == "biv" else 0.1 * math.sqrt(noise.level)
        return 0.1 * (1 + abs(math.log10(run.learning_rate / best)))
    if noise.kind == "hours":
        return {"l2": 0.12, "biv": 0.13, "iv": 0.14, "cutoff": 0.3}[loss.kind]
    small = (256 / run.batch_size) ** 0.1
    if loss.kind == "l2":
        return 0.12 * small
    biv = 0.12 * ADVANTAGE[noise.kind][noise.parameter] * small
    if loss.kind == "cutoff":
        if noise.kind == "uniform":
            return 0.14
        if noise.kind == "binary":
            return biv
        best = {1.0: 1.0, 0.5: 1.0, 0.25: 0.25}[noise.parameter]
        return biv * (1.1 if loss.threshold == best else 1.2)
    if loss.kind == "iv" and loss.epsilon == 0:
        return {1.0: 0.13, 0.5: 0.3, 0.25: 2.0}[noise.parameter]
    if loss.epsilon == 100:
        return 0.12
    worse = 1.15 if noise.disturbance == 2 else 1.0
    return biv * worse * EPSILON_COST.get(loss.epsilon, 1.0)


def world(claim, change=lambda run, loss: loss):
    """Results of all runs of a claim: curves that fall, reach their height, and rise a little."""
    results = {}
    time = np.arange(200)
    for run in claim.runs(SEEDS):
        jitter = np.random.default_rng(zlib.crc32(run.canonical().encode())).normal()
        lowest = change(run, height(run)) * math.exp(0.005 * jitter)
        curve = lowest * (1 + np.exp(-(time - 34) / 10) + np.maximum(time - 120, 0) / 400)
        epochs = np.ones(10, dtype=np.float32)
        spread = (0.2 if run.loss.epsilon else 0.8) * math.exp(0.05 * jitter) * epochs
        results[run] = RunResult(run, curve.astype(np.float32), epochs, spread, epochs, None, {})
    return results


def test_there_are_twenty_and_what_they_need_is_mostly_there():
    assert list(ALL) == list(range(1, 21))
    drawn = {run for a in artefacts("bike", PRESETS["paper"]).values() for run in a.runs(SEEDS)}
    own = {n: len(set(claim.runs(SEEDS)) - drawn) for n, claim in ALL.items()}
    assert {n: count for n, count in own.items() if count} == {16: 5, 19: 240, 20: 50}
    assert {run.train_rows for run in ALL[16].runs(1)} == {7_000, 14_000}
    assert {run.optimizer for run in ALL[19].runs(1)} == {"sgd"}
    assert {run.test_region for run in ALL[20].runs(1)} == {"quiet", "noisy"}
    smaller = claims("bike2011", PRESETS["paper"])
    assert set(ALL) - set(smaller) == {16}  # there are not as many rows


@pytest.mark.parametrize("number", ALL)
def test_every_claim_holds_where_the_paper_is_right(number):
    verdict = ALL[number].test(world(ALL[number]), SEEDS)
    assert [f for f in verdict.findings if f.verdict not in ("holds", "shown")] == []
    assert verdict.overall == "holds"


def where(condition, factor):
    return lambda run, loss: loss * factor if condition(run) else loss


def is_(kind, noise, parameter=None, **more):
    """Whether a run has this loss, this noise, and whatever else is asked for."""

    def asked(run):
        own = {**vars(run.noise), **vars(run.loss), **vars(run)}
        found = run.loss.kind == kind and run.noise.kind == noise
        found = found and parameter in (None, run.noise.parameter)
        return found and all(own[name] == value for name, value in more.items())

    return asked


WRONG = {
    1: where(is_("l2", "uniform", 0.0), 1.3),
    2: where(is_("l2", "gamma"), 1.5),
    3: where(is_("cutoff", "binary", 0.3), 1.3),
    4: where(is_("cutoff", "gamma", 0.5, threshold=5.0), 0.5),
    5: where(is_("cutoff", "gamma", 0.25, threshold=5.0), 0.5),
    6: where(is_("biv", "gamma", 0.5), 1.5),
    7: where(is_("biv", "gamma", 10.0), 0.5),
    8: where(is_("biv", "uniform", 0.0), 1.2),
    9: where(is_("cutoff", "uniform", 0.5, threshold=1.5), 0.5),
    10: where(is_("iv", "gamma", 0.25, seed=3), 0.3),
    11: where(is_("biv", "gamma", epsilon=0.1), 1.2),
    12: where(is_("iv", "gamma", epsilon=0.05), 1.3),
    13: where(is_("biv", "gamma", batch_size=16), 2.0),
    14: where(is_("l2", "gamma", batch_size=64), 0.5),
    15: where(is_("biv", "gamma", disturbance=1.0), 1.2),
    16: where(is_("l2", "none", train_rows=14_000), 0.8),
    17: where(is_("biv", "gamma", 0.5), 2.0),
    18: where(is_("biv", "uniform", 1.0), 0.3),
    19: where(is_("biv", "gamma", level=10.0, learning_rate=1.0), 0.3),
    20: where(is_("biv", "hours", test_region="noisy"), 0.7),
}


@pytest.mark.parametrize("number", ALL)
def test_every_claim_fails_where_the_paper_is_wrong(number):
    assert ALL[number].test(world(ALL[number], WRONG[number]), SEEDS).overall == "fails"


@pytest.mark.parametrize("number", ALL)
def test_nothing_is_decided_by_nothing_or_by_one_seed(number):
    claim = ALL[number]
    nothing = claim.test({}, SEEDS)
    assert nothing.overall == "not run"
    assert nothing.missing == nothing.asked == len(claim.runs(SEEDS))
    one = {run: result for run, result in world(claim).items() if run.seed == 0}
    assert claim.test(one, SEEDS).overall == "undecided"


def test_what_is_said_of_every_run_wants_every_run_but_one_is_enough_against_it():
    assert Count("", 5, 5, 5).verdict == "holds"
    assert Count("", 4, 4, 5).verdict == "undecided"
    assert Count("", 0, 0, 5).verdict == "not run"
    assert Count("", 3, 4, 5).verdict == "fails"


@pytest.mark.parametrize("gone", [1.0, 10.0])
def test_nothing_is_chosen_among_settings_that_were_not_all_run(gone):
    claim = ALL[19]
    part = {
        run: result
        for run, result in world(claim).items()
        if (run.noise.level, run.learning_rate, run.seed) != (gone, 0.3, 4)
    }
    verdict = claim.test(part, SEEDS)
    assert verdict.overall == "undecided"
    lost = [f for f in verdict.findings if not f.seeds]
    assert len(lost) == (6 if gone == 1.0 else 2)
    assert all("0.3 at" not in note.told for note in verdict.findings[-2:]) == (gone == 10.0)


def test_the_learning_rates_that_were_best_are_told():
    findings = ALL[19].test(world(ALL[19]), SEEDS).findings
    assert [f.ratio > 1.2 for f in findings[3:6]] == [True] * 3  # without normalisation
    notes = [finding.told for finding in findings[-2:]]
    assert notes == [
        "0.1 at 0.01μ, 0.1 at 0.1μ, 0.1 at 1μ, 0.1 at 10μ",
        "0.01 at 0.01μ, 0.03 at 0.1μ, 0.1 at 1μ, 0.3 at 10μ",
    ]


def test_a_claim_goes_by_its_number():
    assert find("07", ALL) is ALL[7]
    with pytest.raises(
        ValueError,
        match="a claim must be one of 1, 2, .*20 .what this data set has the rows for.; got '21'",
    ):
        find("21", ALL)


# Measures.


def test_the_lowest_of_a_run_that_did_not_stay_finite_is_the_error_of_a_constant():
    line, results = line_of(np.full(50, 0.2), np.full(50, 3.0), np.full(50, 0.3), diverged=(2,))
    values = Lowest(line).values(ResultsByLine(results, 4))
    assert values == {0: pytest.approx(0.2), 1: pytest.approx(3.0), 2: 1.0}
    assert Lowest(line).values(ResultsByLine(results, 1)) == {0: pytest.approx(0.2)}
    assert Lowest(line).lines == (line,)
    short, results = line_of(np.full(7, 0.2))
    assert Lowest(short).values(ResultsByLine(results, 1)) == {}


def test_what_was_run_and_has_no_number_is_undecided_and_not_unrun():
    line, results = line_of(np.full(50, 0.2), np.full(50, 0.2), diverged=(0, 1))
    part = Contrast("", "below", Variability(line), Lowest(line))
    assert part.find(ResultsByLine(results, 2)).verdict == "undecided"
    assert part.find(ResultsByLine({}, 2)).verdict == "not run"


def with_curves(line, *curves, diverged_at=None):
    flat = np.ones(20, dtype=np.float32)
    return {
        run: RunResult(run, np.asarray(curve, dtype=np.float32), flat, flat, flat, diverged_at, {})
        for run, curve in zip(line.runs(len(curves)), curves, strict=True)
    }


def test_steps_are_counted_to_the_other_s_lowest():
    falling = np.linspace(1.0, 0.2, 81)  # 0.01 less every evaluation
    plain = Line("L2", replace(RUN, loss=L2, test_every=3))
    fast, never, gone = (
        Line(name, replace(RUN, loss=Loss("biv", epsilon=e), test_every=3))
        for name, e in (("fast", 0.1), ("never", 0.2), ("gone", 0.3))
    )
    results = {
        **with_curves(plain, falling),
        **with_curves(fast, falling - 0.1),
        **with_curves(never, falling + 0.1),
        **with_curves(gone, falling - 0.1, diverged_at=3),
    }
    evidence = ResultsByLine(results, 1)
    assert StepsTo(plain, plain).values(evidence) == {0: 81 * 3}
    assert StepsTo(fast, plain).values(evidence) == {0: 71 * 3}
    assert StepsTo(never, plain).values(evidence) == {0: 81 * 3}
    assert StepsTo(gone, plain).values(evidence) == {0: 81 * 3}
    assert StepsTo(fast, Line("", replace(RUN, seed=9))).values(evidence) == {}
    assert StepsTo(fast, plain).lines == (fast, plain)


def test_variability_has_no_scale():
    line, results = line_of(np.full(50, 0.2), np.full(50, 0.2), diverged=(1,))
    for scale in (1.0, 100.0):
        mean = scale * np.array([1.0, 2.0, 4.0], dtype=np.float32)
        std = scale * np.array([0.1, 0.4, 1.2], dtype=np.float32)
        there = {run: replace(r, train_loss=mean, train_loss_std=std) for run, r in results.items()}
        assert Variability(line).values(ResultsByLine(there, 2)) == {0: pytest.approx(0.2)}


def test_a_setting_is_chosen_where_it_is_said_to_be():
    grid = Grid("bike2011", PRESETS["smoke"])
    here = tuple(grid.line("", gamma(1.0), Loss("biv", epsilon=e)) for e in (0.1, 0.2))
    there = tuple(grid.line("", gamma(0.5), Loss("biv", epsilon=e)) for e in (0.1, 0.2))
    heights = dict(zip((*here, *there), (0.5, 0.3, 0.2, 3.0), strict=True))
    results = {}
    for line, level in heights.items():
        results |= with_curves(line, np.full(40, level), np.full(40, level))
    evidence = ResultsByLine(results, 2)
    assert Tuned(here, there).values(evidence) == {0: 0.5, 1: 0.5}
    assert Tuned(here, here).values(evidence) == pytest.approx({0: 0.3, 1: 0.3})
    quotient = Quotient(Times(2.0, Tuned(here, there)), Tuned(here, here))
    assert quotient.values(evidence) == pytest.approx({0: 1 / 0.3, 1: 1 / 0.3})
    assert set(quotient.lines) == {*here, *there}


# How they are told.


@pytest.fixture(scope="module")
def verdicts():
    chosen = [ALL[4], ALL[10], ALL[20]]
    return [
        claim.test(world(claim, WRONG[10] if claim is ALL[10] else lambda run, loss: loss), SEEDS)
        for claim in chosen
    ]


def test_verdicts_are_told_with_effect_interval_and_seeds(verdicts):
    for told in (report.text(verdicts, SEEDS), report.markdown(verdicts, SEEDS)):
        assert "Of 3: 2 hold, 1 fail, 0 undecided." in told
        assert "holds (all 17 parts)" in told
        assert "FAILS (2 of 3 parts hold, 1 fail)" in told
        assert re.search(r"doubly *(\n|\|) +holds( +\||\n)", told)  # what is shown is no part of it
        assert "4 of 5" in told
        assert "missing" not in told
    rows = list(csv.DictReader(report.comma_separated(verdicts).splitlines()))
    assert len(rows) == 17 + 3 + 8
    first = rows[0]
    assert (first["claim"], first["claim_verdict"]) == ("4", "holds")
    assert float(first["low"]) < float(first["ratio"]) < float(first["high"]) < 1
    assert (rows[19]["told"], rows[19]["seeds"], rows[19]["part_verdict"]) == ("4", "5", "fails")
    assert {row["part_verdict"] for row in rows} == {"holds", "fails", "shown"}


def test_what_is_missing_is_told_as_such():
    told = report.text([ALL[2].test({}, 1)], 1)
    assert "not run\n" in told
    assert "0 hold, 0 fail, 0 undecided, 1 not run" in told
    assert "nan" not in told + report.markdown([ALL[2].test({}, 1)], 1)
    one = {run: result for run, result in world(ALL[2]).items() if run.seed == 0}
    assert "undecided at 1 seed\n" in report.text([ALL[2].test(one, 1)], 1)
    part = report.text([ALL[2].test(one, SEEDS)], SEEDS)
    assert "undecided at 5 seeds (8 of 10 runs are missing)\n" in part


def test_the_same_runs_are_asked_for_by_claims_and_artefacts():
    drawn = artefacts("bike", PRESETS["paper"])
    table = set(drawn["table1"].runs(SEEDS))
    assert set(ALL[17].runs(SEEDS)) <= table
    assert {run.loss for run in ALL[13].runs(1)} == {BIV, L2}
