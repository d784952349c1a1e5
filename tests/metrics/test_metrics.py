"""Scores against noisy labels, judged by many draws of the noise."""

import math
import re
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.optimize import brentq
from torch.utils._python_dispatch import TorchDispatchMode

import biv
from biv import metrics
from biv.noise import Gamma, corrupt
from helpers.sizes import size

N = 400


@pytest.fixture(scope="module")
def problem():
    """A model whose error grows with σ², so that weighted and plain errors differ, and its labels."""
    rng = np.random.default_rng(0)
    y = rng.normal(5.0, 2.0, N)
    variance = Gamma(0.5, 4.0).sample(N, rng)
    pred = y + rng.normal(0, 0.3 + 0.3 * np.sqrt(variance))
    return pred, y, variance


def many_draws(score, y, variance, draws=2000):
    rng = np.random.default_rng(1)
    return np.array([score(corrupt(y, variance, rng)) for _ in range(draws)])


def agree(values, expected):
    """Whether the mean of independent values is what is expected, within 4.5 standard errors."""
    error = values.std(ddof=1) / math.sqrt(len(values))
    return abs(values.mean() - expected) < 4.5 * error


def test_unweighted_is_unbiased(problem):
    pred, y, variance = problem
    found = many_draws(
        lambda noisy: metrics.noise_corrected_mse(pred, noisy, variance, weighted=False),
        y,
        variance,
    )
    truth = np.mean((pred - y) ** 2)
    assert agree(found[:, 0], truth)
    naive = many_draws(lambda noisy: np.mean((pred - noisy) ** 2), y, variance, 200)
    assert not agree(naive, truth)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_weighted_is_unbiased_for_the_weighted_error(problem, epsilon):
    pred, y, variance = problem
    found = many_draws(
        lambda noisy: metrics.noise_corrected_mse(pred, noisy, variance, epsilon=epsilon),
        y,
        variance,
    )
    w = 1 / (variance + epsilon) ** 2
    assert agree(found[:, 0], np.average((pred - y) ** 2, weights=w))
    assert not agree(found[:, 0], np.mean((pred - y) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [True, False])
def test_standard_errors_are_honest(weighted):
    """Over draws of labels and errors alike, the spread of the score is what it said it would be."""
    rng = np.random.default_rng(2)
    found = []
    for _ in range(1000):
        variance = Gamma(1.0, 1.0).sample(N, rng)
        pred = rng.normal(0, 0.7, N)
        noisy = corrupt(np.zeros(N), variance, rng)
        options = {"epsilon": 0.5} if weighted else {}
        found.append(
            metrics.noise_corrected_mse(pred, noisy, variance, weighted=weighted, **options)
        )
    values, errors = np.array(found).T
    assert agree(values, 0.49)
    assert errors.mean() == pytest.approx(values.std(), rel=0.1)


GIVEN = {
    "right": lambda variance, rng: variance,
    "the root of the right one": lambda variance, rng: np.sqrt(variance),
    "off by a random factor": lambda variance, rng: variance * np.exp(rng.normal(0, 0.8, N)),
}


@pytest.mark.slow
@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_standard_errors_count_the_estimation_of_epsilon(given):
    """They need no σ² to be right; with ε taken as known they were down to half of the truth."""
    rng = np.random.default_rng(16)
    found = []
    for _ in range(250):
        variance = np.exp(rng.normal(0, 1.4, N))
        y = rng.normal(size=N)
        arguments = y + rng.normal(0, 0.3, N), corrupt(y, variance, rng), given(variance, rng)
        found.append(
            (metrics.noise_corrected_mse(*arguments), metrics.noise_corrected_r2(*arguments))
        )
    for values, errors in np.array(found).transpose(1, 2, 0):
        assert errors.mean() == pytest.approx(values.std(), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("score", [metrics.noise_corrected_mse, metrics.noise_corrected_r2])
def test_the_standard_error_is_that_of_the_jackknife(score, problem):
    """Leaving out each label in turn, ε and V₀ estimated anew: what the formula is short for."""
    pred, y, variance = problem
    columns = pred, corrupt(y, variance, np.random.default_rng(5)), np.sqrt(variance)
    left = np.array([score(*(np.delete(c, k) for c in columns)).value for k in range(N)])
    jackknife = np.sqrt((N - 1) / N * ((left - left.mean()) ** 2).sum())
    assert score(*columns).stderr == pytest.approx(jackknife, rel=0.06)


@pytest.mark.slow
def test_weighting_is_far_less_noisy_and_agrees_where_error_and_noise_are_unrelated():
    rng = np.random.default_rng(3)
    plain, weighted = [], []
    for _ in range(300):
        variance = Gamma(0.25, 10.0).sample(N, rng)
        pred = rng.normal(0, 1.0, N)
        noisy = corrupt(np.zeros(N), variance, rng)
        plain.append(metrics.noise_corrected_mse(pred, noisy, variance, weighted=False).value)
        weighted.append(metrics.noise_corrected_mse(pred, noisy, variance).value)
    assert np.mean(weighted) == pytest.approx(1.0, abs=0.05)
    assert np.std(weighted) < np.std(plain) / 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("alpha", "n", "tau2"),
    [(1.0, 100, 0.01), (1.0, 400, 0.001), (0.25, 400, 0.01), (1.0, 400, 0.5)],
)
def test_intervals_hold_with_an_estimated_epsilon(alpha, n, tau2):
    """The default: two standard errors hold the truth about as often as they should, also where the
    model is so good that the estimate of its error is often 0."""
    rng = np.random.default_rng(13)
    held, draws = 0, 300
    for _ in range(draws):
        variance = Gamma(alpha, 1.0).sample(n, rng)
        pred = rng.normal(0, math.sqrt(tau2), n)
        score = metrics.noise_corrected_mse(pred, corrupt(np.zeros(n), variance, rng), variance)
        held += abs(score.value - tau2) < 1.96 * score.stderr
    assert held / draws > 0.89


def test_value_by_hand():
    pred, target = np.array([0.0, 0.0, 0.0]), np.array([1.0, 2.0, 3.0])
    variance = np.array([0.0, 1.0, 3.0])
    score = metrics.noise_corrected_mse(pred, target, variance, weighted=False)
    assert score.value == pytest.approx((1 + 3 + 6) / 3)
    assert score.stderr == pytest.approx(np.std([1, 3, 6], ddof=1) / np.sqrt(3))
    value, stderr = metrics.noise_corrected_mse(pred, target, variance, epsilon=1.0)
    w = np.array([1, 1 / 4, 1 / 16])
    assert value == pytest.approx((w @ [1, 3, 6]) / w.sum())
    influence = w * (np.array([1, 3, 6]) - value) / w.sum()
    assert stderr == pytest.approx(np.sqrt(1.5 * (influence**2).sum()))


def test_a_negative_value_is_returned_as_it_is():
    assert metrics.noise_corrected_mse(np.zeros(3), np.zeros(3), np.ones(3)).value == -1
    assert (
        metrics.noise_corrected_mse(np.zeros(3), np.zeros(3), np.ones(3), weighted=False).value
        == -1
    )


def test_trusted_labels_without_epsilon_decide_alone():
    pred, target = np.array([1.0, 9.0, 3.0]), np.array([0.0, 0.0, 0.0])
    score = metrics.noise_corrected_mse(pred, target, np.array([0.0, 1.0, 0.0]), epsilon=0.0)
    assert score.value == pytest.approx(5.0)


def test_any_scale():
    rng = np.random.default_rng(4)
    pred, target, variance = rng.normal(size=50), rng.normal(size=50), rng.gamma(1, size=50)
    one = metrics.noise_corrected_mse(pred, target, variance)
    for scale in (1e-30, 1e-6, 1e6, 1e30):
        other = metrics.noise_corrected_mse(pred * scale, target * scale, variance * scale**2)
        assert other.value == pytest.approx(one.value * scale**2, rel=1e-9)
        assert other.stderr == pytest.approx(one.stderr * scale**2, rel=1e-9)


SCORES = {
    "mse": metrics.noise_corrected_mse,
    "mse unweighted": lambda *a: metrics.noise_corrected_mse(*a, weighted=False),
    "r2": metrics.noise_corrected_r2,
    "chi2": metrics.reduced_chi_squared,
    "residual variance": metrics.residual_variance,
    "label variance": lambda pred, target, variance: metrics.label_variance(target, variance),
}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_what_does_not_count_and_what_is_accepted(score, problem):
    pred, y, variance = (column[:40] for column in problem)
    noisy = corrupt(y, variance, np.random.default_rng(5))
    expected = score(pred, noisy, variance)
    assert all(isinstance(number, float) for number in np.atleast_1d(expected).tolist())
    junk = [np.append(pred, [7.0, np.nan]), np.append(noisy, [np.nan, 3.0])]
    assert score(*junk, np.append(variance, [np.nan, np.inf])) == expected
    assert (
        score(*(torch.tensor(a, requires_grad=True) for a in (pred, noisy)), torch.tensor(variance))
        == expected
    )
    assert score(pred.tolist(), noisy.tolist(), variance.tolist()) == expected
    wide = score(*(a.reshape(20, 2) for a in (pred, noisy, variance)))
    assert wide == expected
    column = score(pred.reshape(20, 2), noisy.reshape(20, 2), variance[:20].reshape(20, 1))
    assert column == score(pred, noisy, np.repeat(variance[:20], 2))


# ---- label variance ------------------------------------------------------------------------------


def test_label_variance_is_the_sample_variance_of_clean_labels():
    y = np.array([1.0, 2.0, 4.0, 8.0])
    assert metrics.label_variance(y, np.zeros(4)) == pytest.approx(y.var(ddof=1), rel=1e-12)
    assert metrics.label_variance(y + 1e6, np.zeros(4)) == pytest.approx(y.var(ddof=1), rel=1e-9)
    assert metrics.label_variance(np.full(3, 2.0), np.zeros(3)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.25, 1.0, 10.0])
def test_label_variance_is_close_to_the_clean_one(alpha):
    rng = np.random.default_rng(6)
    found, plain = [], []
    for _ in range(300):
        y = rng.normal(3, 2, 1000)
        variance = Gamma(alpha, 10.0).sample(1000, rng)
        noisy = corrupt(y, variance, rng)
        found.append(metrics.label_variance(noisy, variance))
        plain.append(noisy.var(ddof=1) - variance.mean())
    assert np.mean(found) == pytest.approx(4.0, rel=0.03)
    assert np.std(found) < np.std(plain)


def test_one_huge_variance_does_not_ruin_it():
    rng = np.random.default_rng(7)
    y, variance = rng.normal(0, 1, 500), np.full(500, 0.1)
    variance[0] = 1e8
    noisy = corrupt(y, variance, rng)
    assert metrics.label_variance(noisy, variance) == pytest.approx(1.0, rel=0.2)
    assert abs(noisy.var() - variance.mean() - 1) > 100


def test_label_variance_against_its_formula():
    """Few labels, where every correction of degrees of freedom shows."""
    rng = np.random.default_rng(12)
    y, v = rng.normal(0, 3, 6), rng.gamma(1, 2, 6)

    def excess(candidate):
        w = 1 / (v + candidate)
        return w @ (y - np.average(y, weights=w)) ** 2 - 5

    w = 1 / (v + brentq(excess, 0, 1e3, xtol=1e-14)) ** 2
    total, mean = w.sum(), np.average(y, weights=w)
    expected = w @ (y - mean) ** 2 - w @ v + (w**2 @ v) / total
    assert metrics.label_variance(y, v) == pytest.approx(
        expected / (total - (w @ w) / total), rel=1e-9
    )


def test_label_variance_has_a_floor():
    noisy = np.array([1.0, -1.0, 1.0, -1.0])
    floored = metrics.label_variance(noisy, np.full(4, 50.0))
    assert floored == pytest.approx(1e-3 * noisy.var())


def test_one_trusted_label_does_not_decide_alone():
    """The noise may explain all the spread; then all weight would sit on the one trusted label."""
    y, variance = np.array([0.0, 5.0, -3.0, 2.0, 1.0, -4.0]), np.array([0.0] + [30.0] * 5)
    floored = metrics.label_variance(y, variance)
    assert 1e-3 < floored < 1.0
    assert metrics.label_variance(np.array([0.0, 5.0]), np.array([0.0, 1e40])) > 0


# ---- the others ----------------------------------------------------------------------------------


def test_residual_variance_is_the_models_own_error():
    rng = np.random.default_rng(8)
    variance = Gamma(0.5, 3.0).sample(20_000, rng)
    pred = rng.normal(0, 1.5, 20_000)
    noisy = corrupt(np.zeros(20_000), variance, rng)
    assert metrics.residual_variance(pred, noisy, variance) == pytest.approx(2.25, rel=0.05)
    assert metrics.residual_variance(np.zeros(3), np.zeros(3), np.ones(3)) == 0
    r, v = np.array([1.0, -3.0, 2.0]), np.array([0.1, 1.0, 3.0])
    expected = brentq(lambda tau2: (r**2 / (v + tau2)).sum() - 3, 0, 10, xtol=1e-14)
    assert metrics.residual_variance(np.zeros(3), r, v) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_r2():
    rng = np.random.default_rng(9)
    found = []
    for _ in range(400):
        y = rng.normal(0, 2, N)
        variance = Gamma(1.0, 4.0).sample(N, rng)
        pred = y + rng.normal(0, 1, N)
        found.append(metrics.noise_corrected_r2(pred, corrupt(y, variance, rng), variance))
    values, errors = np.array(found).T
    assert values.mean() == pytest.approx(0.75, abs=0.01)
    assert errors.mean() == pytest.approx(values.std(), rel=0.15)


def test_r2_unweighted_where_variance_follows_the_label():
    """σ² large for large labels: the weighted label variance is too low, the unweighted is not."""
    rng = np.random.default_rng(14)
    y = rng.normal(0, 2, 20_000)
    variance = np.where(np.abs(y) > 2, 10.0, 0.01)
    pred, noisy = y + rng.normal(0, 1, len(y)), corrupt(y, variance, rng)
    unweighted = metrics.noise_corrected_r2(pred, noisy, variance, weighted=False)
    assert unweighted.value == pytest.approx(0.75, abs=4 * unweighted.stderr)
    assert metrics.noise_corrected_r2(pred, noisy, variance).value < 0.5
    mse = metrics.noise_corrected_mse(pred, noisy, variance, epsilon=5.0).value
    expected = 1 - mse / metrics.label_variance(noisy, variance)
    assert metrics.noise_corrected_r2(pred, noisy, variance, epsilon=5.0).value == pytest.approx(
        expected
    )


def test_r2_of_a_constant_is_known_to_be_zero():
    """Its error is the label variance, draw for draw: the two must cancel in the standard error."""
    rng = np.random.default_rng(15)
    y, variance = rng.normal(0, 2, N), np.ones(N)
    score = metrics.noise_corrected_r2(np.zeros(N), corrupt(y, variance, rng), variance)
    assert score.value == pytest.approx(0, abs=0.01)
    assert score.stderr < 0.01
    alone = metrics.noise_corrected_mse(np.zeros(N), corrupt(y, variance, rng), variance)
    assert alone.stderr > 0.1


def test_r2_of_perfect_mean_and_constant():
    y = np.array([1.0, 2.0, 4.0])
    assert metrics.noise_corrected_r2(y, y, np.zeros(3)).value == 1
    of_mean = metrics.noise_corrected_r2(np.full(3, y.mean()), y, np.zeros(3)).value
    assert of_mean == pytest.approx(1 - y.var() / y.var(ddof=1))
    with pytest.warns(UserWarning, match="labels do not vary more than their noise explains"):
        assert math.isnan(metrics.noise_corrected_r2(y, np.ones(3), np.zeros(3)).value)


@pytest.mark.parametrize("weighted", [True, False])
def test_r2_is_unknown_where_the_label_variance_cannot_be_told_from_0(weighted):
    """Few labels whose noise exceeds what they vary by: a quotient by the floor would be anything."""
    rng = np.random.default_rng(17)
    unknown = 0
    for _ in range(200):
        y, variance = rng.normal(size=30), rng.gamma(0.5, 6.0, 30)
        pred, noisy = y + rng.normal(0, 0.3, 30), corrupt(y, variance, rng)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            value, stderr = metrics.noise_corrected_r2(pred, noisy, variance, weighted=weighted)
        plain = noisy.var(ddof=1) - variance.mean()
        assert math.isnan(value) or abs(value) < 4  # it was up to 300 just above the floor
        if not weighted and plain <= 1e-3 * noisy.var():
            assert math.isnan(value)
        assert math.isnan(value) == math.isnan(stderr) == bool(said)
        assert all("cannot be told from 0" in str(one.message) for one in said)
        unknown += math.isnan(value)
    assert (0.05 if not weighted else 0.0) < unknown / 200 < 0.75


def test_r2_of_skewed_labels_with_little_noise_is_known():
    """One label that differs: its variance has a standard error as large, and no noise is in it."""
    y, variance = np.zeros(30), np.full(30, 1e-4)
    y[0] = 1.0
    assert metrics.noise_corrected_r2(y, y, variance).value == pytest.approx(1, abs=0.01)


UNITS = np.array([1.0, 1e-3, 1e5])
PER_OUTPUT = {
    "mse": metrics.noise_corrected_mse,
    "mse unweighted": partial(metrics.noise_corrected_mse, weighted=False),
    "r2": metrics.noise_corrected_r2,
    "residual variance": metrics.residual_variance,
    "difference": lambda pred, *a, **how: metrics.noise_corrected_difference(
        pred, 0.9 * pred, *a, **how
    ),
    "label variance": lambda _, *a, **how: metrics.label_variance(*a, **how),
}


@pytest.mark.parametrize("score", PER_OUTPUT.values(), ids=PER_OUTPUT)
def test_a_score_per_output_is_that_of_each_column(score, problem):
    pred, y, variance = (np.stack([c[:90], c[90:180], c[180:270]], axis=1) for c in problem)
    noisy = corrupt(y, variance, np.random.default_rng(5))
    noisy[:4, 1] = np.nan
    columns = pred * UNITS, noisy * UNITS, variance * UNITS**2
    found = score(*columns, per_output=True)
    expected = np.array([score(*(c[:, k] for c in columns)) for k in range(3)])
    np.testing.assert_allclose(np.array(found).T, expected, rtol=1e-12)
    assert isinstance(found[0], np.ndarray) or isinstance(found, np.ndarray)
    one_a_row = score(pred, noisy, variance[:, :1], per_output=True)
    assert np.array_equal(one_a_row, score(pred, noisy, variance[:, [0, 0, 0]], per_output=True))
    with pytest.raises(ValueError, match=r"outputs in the last dimension.*found shape \(90,\)"):
        score(*(c[:, 0] for c in columns), per_output=True)
    noisy[:, 2] = np.nan
    with pytest.raises(ValueError, match="output 2: target must hold at least one"):
        score(pred, noisy, variance, per_output=True)


def test_chi_squared_tells_whether_the_variances_are_too_small():
    rng = np.random.default_rng(10)
    y = rng.normal(0, 1, 5000)
    variance = Gamma(2.0, 1.0).sample(5000, rng)
    noisy = corrupt(y, variance, rng)
    honest = metrics.reduced_chi_squared(y, noisy, variance)
    assert honest.value == pytest.approx(1.0, abs=4 * honest.stderr)
    assert honest.stderr == pytest.approx(math.sqrt(2 / 5000), rel=0.1)
    assert metrics.reduced_chi_squared(y, noisy, variance / 4).value == pytest.approx(
        4 * honest.value
    )
    off = y + rng.normal(0, 2, 5000)
    assert metrics.reduced_chi_squared(off, noisy, variance).value > 3
    assert metrics.reduced_chi_squared(off, noisy, variance, epsilon=4.0).value == pytest.approx(
        1, abs=0.1
    )


@pytest.mark.slow
def test_chi_squared_counts_fitted_parameters():
    rng = np.random.default_rng(11)
    x, variance = np.linspace(-1, 1, 12), np.full(12, 0.5)
    found = []
    for _ in range(2000):
        noisy = corrupt(x, variance, rng)
        fit = np.polyval(np.polyfit(x, noisy, 3), x)
        found.append(metrics.reduced_chi_squared(fit, noisy, variance, parameters=4).value)
    assert agree(np.array(found), 1.0)
    fitted, held_out = (
        metrics.reduced_chi_squared(fit, noisy, variance, parameters=p) for p in (4, 0)
    )
    assert fitted.stderr == pytest.approx(held_out.stderr * 12 / 8)
    assert metrics.reduced_chi_squared(fit, noisy, variance, parameters=np.int64(4)) == fitted
    assert stats.kstest(np.array(found) * 8, stats.chi2(8).cdf).pvalue > 1e-3


def test_effective_sample_size():
    variance = np.array([1.0, 2.0, np.inf])
    w = np.array([1.0, 0.25])
    expected = w.sum() ** 2 / (w**2).sum()
    assert metrics.effective_sample_size(variance, epsilon=0.0) == pytest.approx(expected)
    assert metrics.effective_sample_size(variance, epsilon=1e9) == pytest.approx(2.0)
    assert metrics.effective_sample_size(np.array([0.0, 0.0, 1.0]), epsilon=0) == 2
    assert metrics.effective_sample_size(np.array([1e-300, 1e-300]), epsilon=0) == 2
    assert metrics.effective_sample_size(np.array([]), epsilon=0) == 0


ONES = np.ones(3)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: metrics.noise_corrected_mse(ONES, ONES, np.ones((3, 1))), ValueError, r"variance .*\(3,\); found \(3, 1\): use variance.reshape\(-1\)"),
        (lambda: metrics.noise_corrected_mse(np.ones(2), ONES, ONES), ValueError, r"pred .*\(3,\); found \(2,\)"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, -ONES), ValueError, "variance .*-1 at index 0"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, ONES * np.nan), ValueError, "variance .*nan at index 0"),
        (lambda: metrics.noise_corrected_mse(ONES * np.nan, ONES, ONES), ValueError, "pred must be finite; found nan at index 0"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES * np.inf, ONES), ValueError, "target must be finite; found inf"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, ONES * np.inf), ValueError, "at least one element .*found none of 3"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, ONES, epsilon=-1.0), ValueError, "epsilon .*found -1"),
        (lambda: metrics.noise_corrected_mse(ONES, ONES, ONES, weighted=False, epsilon=1.0), ValueError, "epsilon must be None with weighted=False; found 1.0"),
        (lambda: metrics.noise_corrected_mse("a", ONES, ONES), TypeError, "pred must be an array of real numbers"),
        (lambda: metrics.noise_corrected_mse(ONES, torch.ones(3, dtype=torch.long), ONES), TypeError, "target .*torch.int64"),
        (lambda: metrics.label_variance(np.ones(1), np.ones(1)), ValueError, "at least two elements .*found 1"),
        (lambda: metrics.reduced_chi_squared(ONES, ONES, np.zeros(3)), ValueError, "variance must be positive where epsilon is 0; found 0 in 3 elements"),
        (lambda: metrics.reduced_chi_squared(ONES, ONES, ONES, parameters=3), ValueError, "parameters must be fewer than the labels used, 3; found 3"),
        (lambda: metrics.reduced_chi_squared(ONES, ONES, ONES, parameters=-1), ValueError, "parameters must be an integer >= 0; found -1"),
        (lambda: metrics.reduced_chi_squared(ONES, ONES, ONES, parameters=1.5), TypeError, "parameters must be an integer >= 0; found 1.5"),
        (lambda: metrics.noise_corrected_mse(ONES, np.ma.array(ONES, mask=[1, 0, 0]), ONES), TypeError, "target must not be a masked array"),
        (lambda: metrics.effective_sample_size(-ONES, epsilon=0), ValueError, "variance .*-1 at index 0"),
    ],
)  # fmt: skip
def test_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_one_label_has_a_value_but_no_error():
    score = biv.metrics.noise_corrected_mse(np.zeros(1), np.ones(1), np.zeros(1))
    assert score.value == 1
    assert math.isnan(score.stderr)


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "tau2"), [(1.0, 0.05), (4.0, 0.3), (0.25, 1.0), (1.0, 0.0)])
def test_the_factor_of_misjudged_variances_is_found(factor, tau2):
    def draw(seed):
        rng = np.random.default_rng(seed)
        variance = Gamma(0.5, 1.2).sample(N, rng)
        target = rng.normal(3.0, np.sqrt(tau2 + factor * variance))
        return metrics.variance_factor(np.full(N, 3.0), target, variance)

    found = np.array([draw(seed) for seed in range(200)])
    assert found[:, 0].mean() == pytest.approx(factor, rel=0.02)
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.2)
    inside = np.abs(found[:, 0] - factor) < 1.96 * found[:, 1]
    assert 0.88 < inside.mean() < 0.99


def test_the_factor_is_the_slope_of_a_weighted_line(problem):
    """As a solver of least squares finds it, with the errors of White (1980)."""
    pred, y, variance = problem
    target = corrupt(y, variance, np.random.default_rng(3))
    square = (pred - target) ** 2
    ratio = metrics._likely_ratio(torch.from_numpy(square), torch.from_numpy(variance))
    design = np.stack([np.ones(N), variance], axis=1)
    root = 1 / (variance + ratio)
    line = np.linalg.lstsq(root[:, None] * design, root * square, rcond=None)[0]
    bread = np.linalg.inv((root**2 * design.T) @ design)
    meat = bread @ (root**2 * (square - design @ line) * design.T)
    found = metrics.variance_factor(pred, target, variance)
    assert found == pytest.approx((line[1], np.sqrt((meat @ meat.T)[1, 1])), rel=1e-9)


class Operations(TorchDispatchMode):
    """The names of those that torch is asked for."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.names.add(operation.name())
        return operation(*args, **kwargs or {})


def test_scores_are_sums_of_elements(problem):
    """Products and solvers of BLAS and LAPACK differ in their last digit with where arrays lie."""
    pred, y, variance = problem
    other = y + 0.1
    with Operations() as asked:
        metrics.noise_corrected_mse(pred, y, variance)
        metrics.noise_corrected_difference(pred, other, y, variance)
        metrics.noise_corrected_r2(pred, y, variance)
        metrics.reduced_chi_squared(pred, y, variance)
        metrics.label_moments(y, variance)
        metrics.residual_variance(pred, y, variance)
        metrics.variance_factor(pred, y, variance)
        metrics.misread(pred, y, variance)
        metrics.effective_sample_size(variance, epsilon=0.1)
    assert "aten::sum" in asked.names
    of_matrices = re.compile(r"::(.*mm|mv|addmv|dot|vdot|.*linalg.*|.*lstsq.*|.*pinv.*)$")
    assert not [name for name in asked.names if of_matrices.search(name)]


def test_the_factor_has_no_units(problem):
    pred, y, variance = problem
    target = corrupt(y, variance, np.random.default_rng(3))
    one = metrics.variance_factor(pred, target, variance)
    two = metrics.variance_factor(1e4 * pred, 1e4 * target, 1e8 * variance)
    assert two == pytest.approx(tuple(one), rel=1e-6)
    three = metrics.variance_factor(pred, target, 10 * variance)
    assert three == pytest.approx((one[0] / 10, one[1] / 10), rel=1e-4)
    known = np.where(np.arange(N) % 5, target, np.nan)
    assert metrics.variance_factor(pred, known, variance) == metrics.variance_factor(
        *(values[np.arange(N) % 5 > 0] for values in (pred, target, variance))
    )


def test_variances_that_say_nothing_have_no_slope():
    rng = np.random.default_rng(4)
    variance = rng.uniform(0, 1, size=4000)
    value, stderr = metrics.variance_factor(np.zeros(4000), rng.normal(size=4000), variance)
    assert abs(value) < 4 * stderr < 0.5
    falling = rng.normal(0, np.sqrt(2 - variance))
    value, stderr = metrics.variance_factor(np.zeros(4000), falling, variance)
    assert value == pytest.approx(-1, abs=4 * stderr)


@pytest.mark.parametrize("variance", [np.ones(9), np.array([1.0, 2.0])])
def test_a_factor_needs_variances_that_differ(variance):
    zeros = np.zeros_like(variance)
    with pytest.raises(ValueError, match=f"must differ between labels.*; found {len(variance)} in"):
        metrics.variance_factor(zeros, zeros, variance)


def test_labels_of_two_kinds_have_one_factor():
    """Where τ² lies far from either kind, weights that follow a line fitted before would run away."""
    rng = np.random.default_rng(4)
    variance = np.where(rng.random(1000) < 0.5, 1.0, 3600.0) * rng.uniform(0.5, 1.5, 1000)
    target = rng.normal(0, np.sqrt(47 + 4 * variance))
    value, stderr = metrics.variance_factor(np.zeros(1000), target, variance)
    assert value == pytest.approx(4, abs=3 * stderr)
    assert stderr < 0.4
    same = metrics.variance_factor(np.zeros(1000), np.zeros(1000), variance)
    assert same == (0, 0)  # nothing is left to explain


COLUMNS = {
    "variance": lambda s: s**2,
    "std": lambda s: s,
    "precision": lambda s: s**-2,
    "inverse std": lambda s: 1 / s,
}
AS_VARIANCE = {"variance": lambda c: c, "std": np.square, "precision": lambda c: 1 / c,
               "inverse std": lambda c: c**-2}  # fmt: skip


def noisy(n, tau2, seed, scale=1.0):
    """σ about `scale`, and residuals of a model with so much error in squares of that."""
    rng = np.random.default_rng(seed)
    sigma = scale * np.exp(rng.normal(0, 0.7, n))
    return sigma, rng.normal(0, np.sqrt(tau2 * scale**2 + sigma**2))


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 30.0])
@pytest.mark.parametrize("taken", list(COLUMNS))
@pytest.mark.parametrize("real", list(COLUMNS))
def test_a_column_is_told_from_what_it_was_taken_for(real, taken, scale):
    sigma, residual = noisy(4000, 0.1, 0, scale)
    read = AS_VARIANCE[taken](COLUMNS[real](sigma))
    found = metrics.misread(residual, np.zeros(4000), read, taken=taken)
    assert found == (None if real == taken else real)


def no_slip(name, rng, n):
    """Error bars that were read as they are meant, whatever else is wrong; and residuals."""
    sigma = np.exp(rng.normal(0, rng.choice([0.3, 0.6, 1.0]), n))
    heavy = name == "heavy tails"
    noise = sigma * (rng.standard_t(3, n) / np.sqrt(3) if heavy else rng.normal(size=n))
    model = rng.normal(0, np.sqrt(rng.choice([0.05, 0.3, 1.0])), n)
    if name == "a model that is worse where labels are":
        model *= sigma
    if name == "outliers":
        noise[rng.integers(0, n, n // 100)] *= 20
    if name in ("counts", "log counts"):
        truth = 10 * (2 + rng.random(n)) if name == "counts" else 10 ** rng.random(n)
        made = biv.labels.counts if name == "counts" else biv.labels.log_counts
        label, variance = made(rng.poisson(truth))
        return variance, label - (truth if name == "counts" else np.log(truth))
    if name == "a share of the noisy label":
        label = 5 + rng.random(n) + 0.3 * 5 * rng.normal(size=n)
        return (0.3 * label) ** 2, label - 5.5
    given = sigma**2 * {"too small": 0.1, "too large": 10.0}.get(name, 1.0)
    if name == "of other rows":
        given = rng.permutation(given)
    return given, model + noise


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "honest", "too small", "too large", "of other rows", "heavy tails", "outliers",
        "a model that is worse where labels are", "counts", "log counts",
        "a share of the noisy label",
    ],
)  # fmt: skip
def test_error_bars_that_were_read_aright_are_left_alone(name):
    rng = np.random.default_rng(0)
    for n in (500, 1000, 5000):
        for _ in range(size(4, 12)):
            variance, residual = no_slip(name, rng, n)
            for taken in ("variance", "std"):
                assert metrics.misread(residual, np.zeros(n), variance, taken=taken) is None


# The share of draws in which σ taken for σ² is found, with 1,000, 3,000 and 10,000 labels and a
# model whose own error has a tenth of the typical σ²: noise, spread of log σ, shares. The table of
# docs/error-bars.md has these.
SLIPS_FOUND = [
    ("normal", 0.7, (0.93, 1.00, 1.00)),
    ("normal", 0.5, (0.40, 1.00, 1.00)),
    ("student", 0.7, (0.05, 0.12, 0.70)),
    ("outliers", 0.7, (0.00, 0.00, 0.00)),
]


def slip(noise, spread, n, rng):
    sigma = np.exp(rng.normal(0, spread, n))
    drawn = rng.standard_t(3, n) / np.sqrt(3) if noise == "student" else rng.normal(size=n)
    if noise == "outliers":
        drawn[rng.integers(0, n, n // 100)] *= 20
    residual = sigma * drawn + rng.normal(0, math.sqrt(0.1), n)
    return metrics.misread(residual, np.zeros(n), sigma)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "spread", "shares"), SLIPS_FOUND)
def test_how_many_slips_are_found(noise, spread, shares):
    for n, draws, share in zip((1000, 3000, 10_000), (40, 40, 20), shares, strict=True):
        rng = np.random.default_rng(0)
        found = [slip(noise, spread, n, rng) for _ in range(draws)]
        assert set(found) <= {"std", None}
        assert np.mean([one == "std" for one in found]) == pytest.approx(share, abs=0.1)


def test_a_reading_wants_labels_that_can_tell():
    sigma, residual = noisy(4000, 0.1, 0)
    zeros = np.zeros(4000)
    assert metrics.misread(residual[:499], zeros[:499], sigma[:499] ** -2) is None
    assert metrics.misread(residual, zeros, np.ones(4000)) is None
    assert metrics.misread(zeros, zeros, sigma) is None
    for column, real in ((sigma, "std"), (sigma**-2, "precision")):
        trusted = np.where(np.arange(4000) % 3, column, 0.0)  # whose inverse is none
        assert metrics.misread(residual, zeros, trusted) == real
    unknown = np.where(np.arange(4000) % 3, zeros, np.nan)
    assert metrics.misread(residual, unknown, sigma**-2) == "precision"
    tiny = sigma * 1e-200  # whose square is 0, and that of its inverse infinite
    assert metrics.misread(residual, zeros, tiny) is metrics.misread(residual, zeros, 1 / tiny)
    assert metrics.misread(residual, zeros, tiny) is None
    falling = np.random.default_rng(1).permutation(residual)[np.argsort(np.argsort(-sigma))]
    assert metrics.misread(falling, zeros, 1e-4 * sigma) is None  # no reading is better than none
    many = [np.tile(column, 12) for column in (residual, zeros, sigma)]  # of which some are read
    assert metrics.misread(*many) == "std"
    with pytest.raises(ValueError, match="taken must be one of variance, std, .*; found 'sigma'"):
        metrics.misread(residual, zeros, sigma, taken="sigma")


def test_importances_multiply_the_weights(problem):
    pred, y, variance = problem
    target = corrupt(y, variance, np.random.default_rng(5))
    twice = np.where(np.arange(N) < 100, 2.0, np.where(np.arange(N) < 200, 0.0, 1.0))
    rows = np.repeat(np.arange(N), twice.astype(int))
    for options in ({"epsilon": 0.3}, {"weighted": False}):
        repeated = metrics.noise_corrected_mse(pred[rows], target[rows], variance[rows], **options)
        found = metrics.noise_corrected_mse(pred, target, variance, sample_weight=twice, **options)
        assert found.value == pytest.approx(repeated.value)
    with pytest.raises(ValueError, match="sample_weight must be non-negative"):
        metrics.noise_corrected_mse(pred, target, variance, sample_weight=-twice)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_difference_is_that_of_two_scores_with_an_honest_error(weighted):
    """Over draws of the noise: unbiased, and within 1.96 standard errors in 95 % of them."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=400)
    f = truth + rng.normal(0, 0.4, 400)
    g = f + rng.normal(0, 0.1, 400)
    variance = rng.gamma(0.5, 2.0, size=400)
    how = {"weighted": weighted, "epsilon": 0.1 if weighted else None}
    w = 1 / (variance + 0.1) if weighted else np.ones(400)
    exact = np.average((f - truth) ** 2 - (g - truth) ** 2, weights=w)
    found = []
    for _ in range(400):
        y = truth + np.sqrt(variance) * rng.normal(size=400)
        found.append(metrics.noise_corrected_difference(f, g, y, variance, **how))
        one, other = (metrics.noise_corrected_mse(p, y, variance, **how) for p in (f, g))
        if not weighted:
            assert found[-1].value == pytest.approx(one.value - other.value)
    values, errors = np.array(found).T
    assert values.mean() == pytest.approx(exact, abs=4 * values.std() / 20)
    assert np.mean(np.abs(values - exact) < 1.96 * errors) > 0.92
    assert errors.mean() < 0.7 * one.stderr  # pairing pays


def test_a_difference_weighs_by_the_inverse_variance_which_varies_least():
    """Less than with the squared weights of a score, over draws of rows and of the noise."""
    rng, drawn = np.random.default_rng(0), []
    for _ in range(400):
        f, g = rng.normal(0, 0.3, size=(2, 400))
        variance = rng.gamma(1, 0.6, size=400)
        y = np.sqrt(variance) * rng.normal(size=400)
        w, terms = 1 / (variance + 0.1), (f - y) ** 2 - (g - y) ** 2
        found = metrics.noise_corrected_difference(f, g, y, variance, epsilon=0.1).value
        assert found == pytest.approx(np.average(terms, weights=w))
        drawn.append((found, np.average(terms, weights=w**2)))
    ours, squared = np.std(drawn, axis=0)
    assert ours < 0.98 * squared


def test_a_difference_of_a_model_from_itself_is_none(problem):
    f, y, v = problem
    assert metrics.noise_corrected_difference(f, f, y, v) == (0.0, 0.0)
