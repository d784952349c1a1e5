"""Test the claims on simulated results in which all hold, and in which each of them fails."""

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
    """Return the lowest loss of a run as it would be if all claims held."""
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


def simulated(claim, change=lambda run, loss: loss):
    """Return results of all runs of a claim: curves that fall to their lowest loss and rise a little."""
    results = {}
    step = np.arange(200)
    for run in claim.runs(SEEDS):
        jitter = np.random.default_rng(zlib.crc32(run.canonical().encode())).normal()
        lowest = change(run, height(run)) * math.exp(0.005 * jitter)
        curve = lowest * (1 + np.exp(-(step - 34) / 10) + np.maximum(step - 120, 0) / 400)
        epochs = np.ones(10, dtype=np.float32)
        spread = (0.2 if run.loss.epsilon else 0.8) * math.exp(0.05 * jitter) * epochs
        results[run] = RunResult(run, curve.astype(np.float32), epochs, spread, epochs, None, {})
    return results


def test_there_are_twenty_claims_and_most_of_their_runs_are_in_artefacts():
    assert list(ALL) == list(range(1, 21))
    drawn = {run for a in artefacts("bike", PRESETS["paper"]).values() for run in a.runs(SEEDS)}
    extra = {n: len(set(claim.runs(SEEDS)) - drawn) for n, claim in ALL.items()}
    assert {n: count for n, count in extra.items() if count} == {16: 5, 19: 240, 20: 50}
    assert {run.train_rows for run in ALL[16].runs(1)} == {7_000, 14_000}
    assert {run.optimizer for run in ALL[19].runs(1)} == {"sgd"}
    assert {run.test_region for run in ALL[20].runs(1)} == {"quiet", "noisy"}
    smaller = claims("bike2011", PRESETS["paper"])
    assert set(ALL) - set(smaller) == {16}  # which needs more rows


@pytest.mark.parametrize("number", ALL)
def test_every_claim_holds_on_results_as_the_paper_describes_them(number):
    verdict = ALL[number].test(simulated(ALL[number]), SEEDS)
    assert [f for f in verdict.findings if f.verdict not in ("holds", "shown")] == []
    assert verdict.overall == "holds"


def scaled_where(condition, factor):
    return lambda run, loss: loss * factor if condition(run) else loss


def is_(kind, noise, parameter=None, **more):
    """Return a condition on runs: this loss, this noise, and these other settings."""

    def condition(run):
        settings = {**vars(run.noise), **vars(run.loss), **vars(run)}
        matches = run.loss.kind == kind and run.noise.kind == noise
        matches = matches and parameter in (None, run.noise.parameter)
        return matches and all(settings[name] == value for name, value in more.items())

    return condition


WRONG = {
    1: scaled_where(is_("l2", "uniform", 0.0), 1.3),
    2: scaled_where(is_("l2", "gamma"), 1.5),
    3: scaled_where(is_("cutoff", "binary", 0.3), 1.3),
    4: scaled_where(is_("cutoff", "gamma", 0.5, threshold=5.0), 0.5),
    5: scaled_where(is_("cutoff", "gamma", 0.25, threshold=5.0), 0.5),
    6: scaled_where(is_("biv", "gamma", 0.5), 1.5),
    7: scaled_where(is_("biv", "gamma", 10.0), 0.5),
    8: scaled_where(is_("biv", "uniform", 0.0), 1.2),
    9: scaled_where(is_("cutoff", "uniform", 0.5, threshold=1.5), 0.5),
    10: scaled_where(is_("iv", "gamma", 0.25, seed=3), 0.3),
    11: scaled_where(is_("biv", "gamma", epsilon=0.1), 1.2),
    12: scaled_where(is_("iv", "gamma", epsilon=0.05), 1.3),
    13: scaled_where(is_("biv", "gamma", batch_size=16), 2.0),
    14: scaled_where(is_("l2", "gamma", batch_size=64), 0.5),
    15: scaled_where(is_("biv", "gamma", disturbance=1.0), 1.2),
    16: scaled_where(is_("l2", "none", train_rows=14_000), 0.8),
    17: scaled_where(is_("biv", "gamma", 0.5), 2.0),
    18: scaled_where(is_("biv", "uniform", 1.0), 0.3),
    19: scaled_where(is_("biv", "gamma", level=10.0, learning_rate=1.0), 0.3),
    20: scaled_where(is_("biv", "hours", test_region="noisy"), 0.7),
}


@pytest.mark.parametrize("number", ALL)
def test_every_claim_fails_on_results_that_contradict_it(number):
    assert ALL[number].test(simulated(ALL[number], WRONG[number]), SEEDS).overall == "fails"


@pytest.mark.parametrize("number", ALL)
def test_no_claim_is_decided_without_runs_or_by_one_seed(number):
    claim = ALL[number]
    nothing = claim.test({}, SEEDS)
    assert nothing.overall == "not run"
    assert nothing.missing == nothing.required == len(claim.runs(SEEDS))
    one = {run: result for run, result in simulated(claim).items() if run.seed == 0}
    assert claim.test(one, SEEDS).overall == "undecided"


def test_a_claim_about_every_run_needs_all_runs_to_hold_and_one_to_fail():
    assert Count("", 5, 5, 5).verdict == "holds"
    assert Count("", 4, 4, 5).verdict == "undecided"
    assert Count("", 0, 0, 5).verdict == "not run"
    assert Count("", 3, 4, 5).verdict == "fails"


@pytest.mark.parametrize("level", [1.0, 10.0])
def test_no_setting_is_chosen_if_runs_of_one_setting_are_missing(level):
    claim = ALL[19]
    part = {
        run: result
        for run, result in simulated(claim).items()
        if (run.noise.level, run.learning_rate, run.seed) != (level, 0.3, 4)
    }
    verdict = claim.test(part, SEEDS)
    assert verdict.overall == "undecided"
    without_seeds = [f for f in verdict.findings if not f.seeds]
    assert len(without_seeds) == (6 if level == 1.0 else 2)
    assert all("0.3 at" not in note.text for note in verdict.findings[-2:]) == (level == 10.0)


def test_a_note_lists_the_best_learning_rates():
    findings = ALL[19].test(simulated(ALL[19]), SEEDS).findings
    assert [f.ratio > 1.2 for f in findings[3:6]] == [True] * 3  # without normalisation
    notes = [finding.text for finding in findings[-2:]]
    assert notes == [
        "0.1 at 0.01μ, 0.1 at 0.1μ, 0.1 at 1μ, 0.1 at 10μ",
        "0.01 at 0.01μ, 0.03 at 0.1μ, 0.1 at 1μ, 0.3 at 10μ",
    ]


def test_find_returns_a_claim_by_its_number():
    assert find("07", ALL) is ALL[7]
    with pytest.raises(
        ValueError,
        match="a claim must be one of 1, 2, .*20 on this data set; got '21'",
    ):
        find("21", ALL)


# Measures.


def test_the_lowest_loss_of_a_run_that_did_not_stay_finite_is_1():
    line, results = line_of(np.full(50, 0.2), np.full(50, 3.0), np.full(50, 0.3), diverged=(2,))
    values = Lowest(line).values(ResultsByLine(results, 4))
    assert values == {0: pytest.approx(0.2), 1: pytest.approx(3.0), 2: 1.0}
    assert Lowest(line).values(ResultsByLine(results, 1)) == {0: pytest.approx(0.2)}
    assert Lowest(line).lines == (line,)
    short, results = line_of(np.full(7, 0.2))
    assert Lowest(short).values(ResultsByLine(results, 1)) == {}


def test_a_part_with_runs_but_without_values_is_undecided():
    line, results = line_of(np.full(50, 0.2), np.full(50, 0.2), diverged=(0, 1))
    part = Contrast("", "below", Variability(line), Lowest(line))
    assert part.evaluate(ResultsByLine(results, 2)).verdict == "undecided"
    assert part.evaluate(ResultsByLine({}, 2)).verdict == "not run"


def with_curves(line, *curves, diverged_at=None):
    flat = np.ones(20, dtype=np.float32)
    return {
        run: RunResult(run, np.asarray(curve, dtype=np.float32), flat, flat, flat, diverged_at, {})
        for run, curve in zip(line.runs(len(curves)), curves, strict=True)
    }


def test_steps_are_counted_up_to_the_lowest_loss_of_the_target():
    falling = np.linspace(1.0, 0.2, 81)  # falls by 0.01 per evaluation
    plain = Line("L2", replace(RUN, loss=L2, test_every=3))
    fast, higher, diverged = (
        Line(name, replace(RUN, loss=Loss("biv", epsilon=e), test_every=3))
        for name, e in (("fast", 0.1), ("higher", 0.2), ("diverged", 0.3))
    )
    results = {
        **with_curves(plain, falling),
        **with_curves(fast, falling - 0.1),
        **with_curves(higher, falling + 0.1),
        **with_curves(diverged, falling - 0.1, diverged_at=3),
    }
    by_line = ResultsByLine(results, 1)
    assert StepsTo(plain, plain).values(by_line) == {0: 81 * 3}
    assert StepsTo(fast, plain).values(by_line) == {0: 71 * 3}
    assert StepsTo(higher, plain).values(by_line) == {0: 81 * 3}
    assert StepsTo(diverged, plain).values(by_line) == {0: 81 * 3}
    assert StepsTo(fast, Line("", replace(RUN, seed=9))).values(by_line) == {}
    assert StepsTo(fast, plain).lines == (fast, plain)


def test_variability_does_not_depend_on_the_scale_of_the_loss():
    line, results = line_of(np.full(50, 0.2), np.full(50, 0.2), diverged=(1,))
    for scale in (1.0, 100.0):
        mean = scale * np.array([1.0, 2.0, 4.0], dtype=np.float32)
        std = scale * np.array([0.1, 0.4, 1.2], dtype=np.float32)
        scaled = {
            run: replace(r, train_loss=mean, train_loss_std=std) for run, r in results.items()
        }
        assert Variability(line).values(ResultsByLine(scaled, 2)) == {0: pytest.approx(0.2)}


def test_a_setting_is_chosen_on_the_given_lines():
    grid = Grid("bike2011", PRESETS["smoke"])
    here = tuple(grid.line("", gamma(1.0), Loss("biv", epsilon=e)) for e in (0.1, 0.2))
    there = tuple(grid.line("", gamma(0.5), Loss("biv", epsilon=e)) for e in (0.1, 0.2))
    heights = dict(zip((*here, *there), (0.5, 0.3, 0.2, 3.0), strict=True))
    results = {}
    for line, level in heights.items():
        results |= with_curves(line, np.full(40, level), np.full(40, level))
    by_line = ResultsByLine(results, 2)
    assert Tuned(here, there).values(by_line) == {0: 0.5, 1: 0.5}
    assert Tuned(here, here).values(by_line) == pytest.approx({0: 0.3, 1: 0.3})
    quotient = Quotient(Times(2.0, Tuned(here, there)), Tuned(here, here))
    assert quotient.values(by_line) == pytest.approx({0: 1 / 0.3, 1: 1 / 0.3})
    assert set(quotient.lines) == {*here, *there}


# Texts and tables of verdicts.


@pytest.fixture(scope="module")
def verdicts():
    chosen = [ALL[4], ALL[10], ALL[20]]
    return [
        claim.test(
            simulated(claim, WRONG[10] if claim is ALL[10] else lambda run, loss: loss), SEEDS
        )
        for claim in chosen
    ]


def test_verdicts_are_reported_with_ratio_interval_and_seeds(verdicts):
    for report_text in (report.text(verdicts, SEEDS), report.markdown(verdicts, SEEDS)):
        assert "Of 3: 2 hold, 1 fails, 0 undecided." in report_text
        assert "holds (all 17 parts)" in report_text
        assert "FAILS (2 of 3 parts hold, 1 fails)" in report_text
        # Parts that are only shown are not counted.
        assert re.search(r"noisy region twice *(\n|\|) +holds( +\||\n)", report_text)
        assert "4 of 5" in report_text
        assert "missing" not in report_text
    rows = list(csv.DictReader(report.comma_separated(verdicts).splitlines()))
    assert len(rows) == 17 + 3 + 8
    first = rows[0]
    assert (first["claim"], first["claim_verdict"]) == ("4", "holds")
    assert float(first["low"]) < float(first["ratio"]) < float(first["high"]) < 1
    assert (rows[19]["told"], rows[19]["seeds"], rows[19]["part_verdict"]) == ("4", "5", "fails")
    assert {row["part_verdict"] for row in rows} == {"holds", "fails", "shown"}


def test_missing_runs_are_reported():
    none = report.text([ALL[2].test({}, 1)], 1)
    assert "not run\n" in none
    assert "0 hold, 0 fail, 0 undecided, 1 not run" in none
    assert "nan" not in none + report.markdown([ALL[2].test({}, 1)], 1)
    one = {run: result for run, result in simulated(ALL[2]).items() if run.seed == 0}
    assert "undecided at 1 seed\n" in report.text([ALL[2].test(one, 1)], 1)
    part = report.text([ALL[2].test(one, SEEDS)], SEEDS)
    assert "undecided at 5 seeds (8 of 10 runs are missing)\n" in part


def test_claims_and_artefacts_share_runs():
    drawn = artefacts("bike", PRESETS["paper"])
    table = set(drawn["table1"].runs(SEEDS))
    assert set(ALL[17].runs(SEEDS)) <= table
    assert {run.loss for run in ALL[13].runs(1)} == {BIV, L2}
