"""The finding about error bars: its kind is right, and its advice never leads to the opposite."""

import numpy as np
import pytest

from biv import metrics
from biv._utils.wording import STREAM_OPTIONS
from biv.estimator.findings import INSTEAD, MIN_JUDGED, SILENT, judge, ranks

DRAWS = 8


def labels(rng, rows):
    """Return imperfect predictions, noisy labels, and the σ of each label."""
    truth, sigma = 3 * rng.normal(size=rows), np.exp(rng.normal(0, 0.6, size=rows))
    return truth + 0.5 * rng.normal(size=rows), truth + sigma * rng.normal(size=rows), sigma


def with_placeholders(values, share):
    def column(rng, sigma):
        replaced = rng.random(len(sigma)) < share
        return np.where(replaced, rng.choice(values, len(sigma)), sigma)

    return column


PLACEHOLDERS = np.array([0, 0.001, 2, 99])
COLUMNS = {  # by name: the column, what it is passed as, and the kinds of finding that are right
    "right": (lambda _, s: s, "std", {"consistent"}),
    "σ for σ²": (lambda _, s: s, "variance", {"misread", "factor", "shape"}),
    "σ² for σ": (lambda _, s: s**2, "std", {"misread", "factor"}),
    "1/σ² for σ²": (lambda _, s: s**-2, "variance", {"misread"}),
    "1/σ for σ": (lambda _, s: 1 / s, "std", {"misread"}),
    "too large": (lambda _, s: 3 * s, "std", {"factor"}),
    "too small": (lambda _, s: s / 3, "std", {"factor"}),
    "shuffled": (lambda rng, s: rng.permutation(s), "std", {"nothing"}),
    "equal": (lambda _, s: np.ones_like(s), "std", {"equal"}),
    "placeholders": (lambda rng, s: rng.choice(PLACEHOLDERS, len(s)), "std", {"placeholders"}),
    "ordered placeholders": (
        lambda _, s: PLACEHOLDERS[np.digitize(s, np.quantile(s, [0.25, 0.5, 0.75]))],
        "std",
        {"placeholders"},
    ),
    "some placeholders": (with_placeholders(PLACEHOLDERS, 0.3), "std", {"placeholders"}),
    "some 99": (with_placeholders([99.0], 0.1), "std", {"placeholders"}),
    "two instruments": (lambda _, s: np.where(s > 1, 2.0, 0.5), "std", {"consistent"}),
}


def draw(name, rows, seed):
    """Return predictions, labels, a column of error bars, and what it is passed as."""
    rng = np.random.default_rng([seed, rows])
    pred, target, sigma = labels(rng, rows)
    make, passed_as, _ = COLUMNS[name]
    column = make(rng, sigma)
    if name == "two instruments":  # the labels scatter by these error bars
        target = pred + column * rng.normal(size=rows)
    return pred, target, column, passed_as


def judge_column(pred, target, column, passed_as):
    return judge(pred, target, column ** metrics.READINGS[passed_as], passed_as)


@pytest.mark.slow
@pytest.mark.parametrize("name", COLUMNS)
def test_the_kind_is_right(name):
    kinds = [judge_column(*draw(name, 1500, seed)).kind for seed in range(DRAWS)]
    assert sum(kind in COLUMNS[name][2] for kind in kinds) >= DRAWS - 1


def judge_corrected(finding, pred, target, column, passed_as):
    """Return the finding after the advice has been followed."""
    variance = column ** metrics.READINGS[passed_as]
    if finding.kind == "factor":
        return judge(pred, target, variance, passed_as, calibrated=finding.factor.value)
    if finding.kind == "misread":
        text = finding.text
        reading = next(k for k in INSTEAD if f"seems to hold {INSTEAD[k][0]}, judging by" in text)
        _, advice, instead = INSTEAD[reading]
        return judge_column(pred, target, 1 / column if "inverse" in advice else column, instead)
    assert finding.kind == "placeholders"
    values, counts = np.unique(column, return_counts=True)
    unknown = np.isin(column, values[counts >= 3])
    assert ("In that case, fit without error bars" in finding.text) == unknown.all()
    assert ("choose its replacement with unknown_variance" in finding.text) != unknown.all()
    return judge(pred, target, np.where(unknown, np.nan, variance), passed_as)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [150, 600, 1500])
@pytest.mark.parametrize("name", COLUMNS)
def test_advice_that_is_followed_leads_to_no_further_advice(name, rows):
    """After a misreading is corrected, a factor may remain if it is not large."""
    for seed in range(DRAWS // 2):
        drawing = draw(name, rows, seed)
        first = judge_column(*drawing)
        if first.kind in (*SILENT, "nothing", "shape", "too large"):  # without specific advice
            continue
        second = judge_corrected(first, *drawing)
        assert second.kind in (*SILENT, "factor"), (first.text, second.text)
        assert second.kind != first.kind
        assert not second.is_grave


@pytest.mark.parametrize("rows", [5, MIN_JUDGED - 1])
@pytest.mark.parametrize("name", COLUMNS)
def test_few_labels_are_not_judged(name, rows):
    finding = judge_column(*draw(name, rows, 0))
    assert finding.kind == "few"
    assert f"at least {MIN_JUDGED}" in finding.text
    assert not finding.is_grave


def test_only_labels_with_an_error_bar_are_counted():
    pred, target, column, passed_as = draw("right", 1500, 0)
    column[MIN_JUDGED - 1 :] = np.nan
    column[200:300] = np.inf
    assert judge_column(pred, target, column, passed_as).kind == "few"
    column[300] = 1.0
    assert judge_column(pred, target, column, passed_as).kind != "few"


def test_one_huge_error_bar_does_not_change_the_finding():
    pred, target, column, passed_as = draw("right", 600, 0)
    column[3] = 1e10
    assert judge_column(pred, target, column, passed_as).kind == "consistent"
    column[:] = np.where(
        np.arange(600) < 5, column, 0.0
    )  # with a median of 0, no error bar is huge
    assert judge_column(pred, target, column, passed_as).kind != "few"


def heavy(rng, rows):
    sigma = np.exp(rng.normal(0, 0.6, rows))
    return sigma, sigma * rng.standard_t(3, rows) / np.sqrt(3)


def skewed(rng, rows):
    sigma = rng.uniform(0.5, 2, rows)
    noise = (rng.lognormal(size=rows) - np.exp(0.5)) / np.sqrt((np.e - 1) * np.e)
    return sigma, sigma * noise


@pytest.mark.slow
@pytest.mark.parametrize("rows", [120, 300, 1500])
@pytest.mark.parametrize("noise", [heavy, skewed])
def test_heavy_tails_are_seldom_taken_for_wrong_error_bars(noise, rows):
    """The 95% interval of the factor excludes 1 in a quarter of these draws."""
    kinds, excluded = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        sigma, target = noise(rng, rows)
        finding = judge(0.3 * rng.normal(size=rows), target, sigma**2)
        kinds.append(finding.kind)
        excluded.append(not finding.factor.low <= 1 <= finding.factor.high)
    assert np.mean([kind not in SILENT for kind in kinds]) <= 0.15
    assert np.mean([kind not in SILENT for kind in kinds]) <= np.mean(excluded)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [120, 300, 1500])
def test_right_error_bars_are_seldom_judged_wrong(rows):
    results = [judge_column(*draw("right", rows, seed)) for seed in range(50)]
    assert np.mean([finding.kind not in SILENT for finding in results]) <= 0.02
    for finding in results:
        if finding.kind == "consistent":  # an interval that holds both 1 and 0.1 is no evidence
            assert 1 / 3 < finding.factor.low < finding.factor.high < 3


@pytest.mark.parametrize("scale", [3.0, 30.0])
def test_error_bars_computed_from_the_noisy_count_follow_its_noise(scale):
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        rate = scale * np.exp(rng.normal(0, 0.7, 400))
        n = rng.poisson(rate).astype(float)
        pred = rate * (1 + 0.02 * rng.normal(size=400))
        assert judge(pred, n, np.maximum(n, 1)).kind == "follows"
        assert (
            judge(pred, n, rate).kind in SILENT
        )  # computed from the expected count, they are right


def test_error_bars_correlated_with_the_truth_do_not_follow_the_noise():
    """The model misses half of the truth, so that its residuals are correlated with the truth."""
    for seed in range(DRAWS):
        rng = np.random.default_rng(seed)
        truth = rng.normal(size=600)
        sigma = np.exp(truth / 2)
        pred = 0.5 * truth + 0.3 * rng.normal(size=600)
        assert judge(pred, truth + sigma * rng.normal(size=600), sigma**2).kind != "follows"


def test_error_bars_larger_than_the_noise():
    """σ is passed as σ² near σ = ½, where the slope is 2σ = 1; then all error bars are equal."""
    rng = np.random.default_rng(0)
    sigma = rng.uniform(0.35, 0.65, size=800)
    target = sigma * rng.normal(size=800)
    pred = np.zeros(800)
    finding = judge(pred, target, sigma)
    assert finding.kind == "too large"
    assert finding.factor.low < 1 < finding.factor.high
    assert judge(pred, target, sigma**2).kind == "consistent"
    assert judge(pred, target, np.full(800, 0.9)).kind == "too large"
    assert judge(pred, target, np.full(800, 0.2)).kind == "equal"


def test_the_text_of_a_factor_names_other_causes():
    pred, target, column, passed_as = draw("too large", 1500, 0)
    low = judge(pred, target, column**2, passed_as)
    assert "few repeats" in low.text
    assert "worse where labels" not in low.text
    assert "biv train --calibrate-variance corrects" in low.record().text
    assert "--calibrate-variance, without --stream," in low.record(STREAM_OPTIONS).text
    assert low.factor.value == pytest.approx(1 / 9, rel=0.3)
    high = judge_column(*draw("too small", 1500, 0))
    assert "worse where labels" in high.text
    assert "few repeats" not in high.text
    assert "; calibrate_variance=True corrects a common factor" in high.text
    assert high.is_grave
    for finding in (low, high):
        assert f"by {finding.factor.value:.3g} ({finding.factor.low:.3g} to" in finding.text


def test_calibrated_error_bars_are_judged_after_calibration():
    pred, target, column, _ = draw("too small", 1500, 0)
    before = judge(pred, target, column**2)
    after = judge(pred, target, column**2, calibrated=before.factor.value)
    assert (before.kind, after.kind) == ("factor", "consistent")
    assert after.factor.value == pytest.approx(1)
    pred, target, shuffled, _ = draw("shuffled", 1500, 0)
    assert judge(pred, target, shuffled**2).kind == "nothing"
    assert judge(pred, target, shuffled**2, calibrated=-0.1).kind == "equal"  # all are 0
    wrong = draw("1/σ² for σ²", 1500, 0)[:3]
    assert judge(*wrong, calibrated=0.1).kind == "misread"  # no factor corrects these


def test_the_bounds_of_an_interval_have_no_other_reading():
    pred, target, column, _ = draw("1/σ² for σ²", 1500, 0)
    assert judge(pred, target, column, None).kind == "nothing"


def test_a_reading_that_would_be_judged_wrong_is_not_advised():
    """The column holds 20/σ², which is far from every reading."""
    rng = np.random.default_rng(0)
    column = np.exp(rng.normal(0, 0.8, size=1500))
    target, pred = np.sqrt(20 / column) * rng.normal(size=1500), np.zeros(1500)
    reading = metrics.misread(pred, target, column)
    assert reading is not None
    corrected = judge(pred, target, column ** metrics.READINGS[reading], INSTEAD[reading][2])
    assert corrected.is_grave
    assert judge(pred, target, column).kind == "nothing"


def test_ranks_of_equal_values_are_their_mean():
    expected = np.array([2, 2, 2, 4, 5]) - 3
    result = ranks(np.array([1.0, 1.0, 1.0, 7.0, 9.0]))
    assert result == pytest.approx(expected / np.sqrt((expected**2).sum()))
    assert ranks(np.ones(3)).tolist() == [0, 0, 0]


def test_an_uncertain_factor_far_below_1_has_its_own_text():
    """Heavy tails make its standard error large, once it is rescaled to a factor of 1."""
    rng = np.random.default_rng(4)
    texts = []
    for _ in range(40):
        sigma = np.exp(rng.normal(0, 0.5, size=300))
        noise = 0.4 * sigma * rng.standard_t(3, size=300) / np.sqrt(3)
        finding = judge(noise, np.zeros(300), sigma**2)
        assert finding.kind in ("factor", "undecided", "too large", "nothing")
        if finding.kind == "undecided" and finding.factor.high < 0.8:
            texts.append(finding.text)
    assert texts
    assert all("σ² may be too large" in text and "heavy tails" in text for text in texts)
