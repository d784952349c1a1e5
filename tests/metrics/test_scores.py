"""Scores against noisy labels, tested with many draws of the noise."""

import math

import numpy as np
import pytest
from scipy import stats

from biv import metrics
from biv.noise import Gamma, corrupt
from helpers.draws import N, many_draws, mean_agrees


def test_unweighted_is_unbiased(problem):
    pred, y, variance = problem
    scores = many_draws(
        lambda noisy: metrics.noise_corrected_mse(pred, noisy, variance, weighted=False),
        y,
        variance,
    )
    truth = np.mean((pred - y) ** 2)
    assert mean_agrees(scores[:, 0], truth)
    naive = many_draws(lambda noisy: np.mean((pred - noisy) ** 2), y, variance, 200)
    assert not mean_agrees(naive, truth)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_weighted_is_unbiased_for_the_weighted_error(problem, epsilon):
    pred, y, variance = problem
    scores = many_draws(
        lambda noisy: metrics.noise_corrected_mse(pred, noisy, variance, epsilon=epsilon),
        y,
        variance,
    )
    w = 1 / (variance + epsilon) ** 2
    assert mean_agrees(scores[:, 0], np.average((pred - y) ** 2, weights=w))
    assert not mean_agrees(scores[:, 0], np.mean((pred - y) ** 2))


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [True, False])
def test_standard_errors_equal_the_spread_of_the_score(weighted):
    """Over draws of labels and errors, the score varies by its standard error."""
    rng = np.random.default_rng(2)
    scores = []
    for _ in range(1000):
        variance = Gamma(1.0, 1.0).sample(N, rng)
        pred = rng.normal(0, 0.7, N)
        noisy = corrupt(np.zeros(N), variance, rng)
        options = {"epsilon": 0.5} if weighted else {}
        scores.append(
            metrics.noise_corrected_mse(pred, noisy, variance, weighted=weighted, **options)
        )
    values, errors = np.array(scores).T
    assert mean_agrees(values, 0.49)
    assert errors.mean() == pytest.approx(values.std(), rel=0.1)


DISTORTIONS = {
    "right": lambda variance, rng: variance,
    "the root of the right one": lambda variance, rng: np.sqrt(variance),
    "off by a random factor": lambda variance, rng: variance * np.exp(rng.normal(0, 0.8, N)),
}


@pytest.mark.slow
@pytest.mark.parametrize("distort", DISTORTIONS.values(), ids=DISTORTIONS)
def test_standard_errors_include_the_estimation_of_epsilon(distort):
    """σ² need not be right. If ε were taken as known, they would be up to half too small."""
    rng = np.random.default_rng(16)
    scores = []
    for _ in range(250):
        variance = np.exp(rng.normal(0, 1.4, N))
        y = rng.normal(size=N)
        arguments = y + rng.normal(0, 0.3, N), corrupt(y, variance, rng), distort(variance, rng)
        scores.append(
            (metrics.noise_corrected_mse(*arguments), metrics.noise_corrected_r2(*arguments))
        )
    for values, errors in np.array(scores).transpose(1, 2, 0):
        assert errors.mean() == pytest.approx(values.std(), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("score", [metrics.noise_corrected_mse, metrics.noise_corrected_r2])
def test_the_standard_error_is_that_of_the_jackknife(score, problem):
    """The jackknife leaves out each label in turn, and estimates ε and V₀ again."""
    pred, y, variance = problem
    columns = pred, corrupt(y, variance, np.random.default_rng(5)), np.sqrt(variance)
    without_one = np.array([score(*(np.delete(c, k) for c in columns)).value for k in range(N)])
    jackknife = np.sqrt((N - 1) / N * ((without_one - without_one.mean()) ** 2).sum())
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
def test_intervals_cover_with_an_estimated_epsilon(alpha, n, tau2):
    """Two standard errors cover the truth about as often as they should, also if the model is so
    good that the estimate of its error is often 0."""
    rng = np.random.default_rng(13)
    covered, draws = 0, 300
    for _ in range(draws):
        variance = Gamma(alpha, 1.0).sample(n, rng)
        pred = rng.normal(0, math.sqrt(tau2), n)
        score = metrics.noise_corrected_mse(pred, corrupt(np.zeros(n), variance, rng), variance)
        covered += abs(score.value - tau2) < 1.96 * score.stderr
    assert covered / draws > 0.89


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


def test_a_negative_value_is_returned_unchanged():
    assert metrics.noise_corrected_mse(np.zeros(3), np.zeros(3), np.ones(3)).value == -1
    assert (
        metrics.noise_corrected_mse(np.zeros(3), np.zeros(3), np.ones(3), weighted=False).value
        == -1
    )


def test_without_epsilon_only_trusted_labels_count():
    pred, target = np.array([1.0, 9.0, 3.0]), np.array([0.0, 0.0, 0.0])
    score = metrics.noise_corrected_mse(pred, target, np.array([0.0, 1.0, 0.0]), epsilon=0.0)
    assert score.value == pytest.approx(5.0)


def test_chi_squared_shows_variances_that_are_too_small():
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
    scores = []
    for _ in range(2000):
        noisy = corrupt(x, variance, rng)
        fit = np.polyval(np.polyfit(x, noisy, 3), x)
        scores.append(metrics.reduced_chi_squared(fit, noisy, variance, parameters=4).value)
    assert mean_agrees(np.array(scores), 1.0)
    fitted, held_out = (
        metrics.reduced_chi_squared(fit, noisy, variance, parameters=p) for p in (4, 0)
    )
    assert fitted.stderr == pytest.approx(held_out.stderr * 12 / 8)
    assert metrics.reduced_chi_squared(fit, noisy, variance, parameters=np.int64(4)) == fitted
    assert stats.kstest(np.array(scores) * 8, stats.chi2(8).cdf).pvalue > 1e-3


def test_effective_sample_size():
    variance = np.array([1.0, 2.0, np.inf])
    w = np.array([1.0, 0.25])
    expected = w.sum() ** 2 / (w**2).sum()
    assert metrics.effective_sample_size(variance, epsilon=0.0) == pytest.approx(expected)
    assert metrics.effective_sample_size(variance, epsilon=1e9) == pytest.approx(2.0)
    assert metrics.effective_sample_size(np.array([0.0, 0.0, 1.0]), epsilon=0) == 2
    assert metrics.effective_sample_size(np.array([1e-300, 1e-300]), epsilon=0) == 2
    assert metrics.effective_sample_size(np.array([]), epsilon=0) == 0


def test_sample_weights_multiply_the_weights(problem):
    pred, y, variance = problem
    target = corrupt(y, variance, np.random.default_rng(5))
    twice = np.where(np.arange(N) < 100, 2.0, np.where(np.arange(N) < 200, 0.0, 1.0))
    rows = np.repeat(np.arange(N), twice.astype(int))
    for options in ({"epsilon": 0.3}, {"weighted": False}):
        repeated = metrics.noise_corrected_mse(pred[rows], target[rows], variance[rows], **options)
        scores = metrics.noise_corrected_mse(pred, target, variance, sample_weight=twice, **options)
        assert scores.value == pytest.approx(repeated.value)
    with pytest.raises(ValueError, match="sample_weight must be non-negative"):
        metrics.noise_corrected_mse(pred, target, variance, sample_weight=-twice)


@pytest.mark.parametrize("weighted", [True, False])
def test_a_difference_is_that_of_two_scores_with_a_correct_standard_error(weighted):
    """It is unbiased over draws of the noise, and 1.96 standard errors cover 95% of them."""
    rng = np.random.default_rng(0)
    truth = rng.normal(size=400)
    f = truth + rng.normal(0, 0.4, 400)
    g = f + rng.normal(0, 0.1, 400)
    variance = rng.gamma(0.5, 2.0, size=400)
    options = {"weighted": weighted, "epsilon": 0.1 if weighted else None}
    w = 1 / (variance + 0.1) if weighted else np.ones(400)
    exact = np.average((f - truth) ** 2 - (g - truth) ** 2, weights=w)
    scores = []
    for _ in range(400):
        y = truth + np.sqrt(variance) * rng.normal(size=400)
        scores.append(metrics.noise_corrected_difference(f, g, y, variance, **options))
        one, other = (metrics.noise_corrected_mse(p, y, variance, **options) for p in (f, g))
        if not weighted:
            assert scores[-1].value == pytest.approx(one.value - other.value)
    values, errors = np.array(scores).T
    assert values.mean() == pytest.approx(exact, abs=4 * values.std() / 20)
    assert np.mean(np.abs(values - exact) < 1.96 * errors) > 0.92
    assert errors.mean() < 0.7 * one.stderr  # the paired standard error is smaller


def test_the_weights_of_a_difference_vary_least():
    """The difference varies less than with the squared weights of a score."""
    rng, drawn = np.random.default_rng(0), []
    for _ in range(400):
        f, g = rng.normal(0, 0.3, size=(2, 400))
        variance = rng.gamma(1, 0.6, size=400)
        y = np.sqrt(variance) * rng.normal(size=400)
        w, terms = 1 / (variance + 0.1), (f - y) ** 2 - (g - y) ** 2
        scores = metrics.noise_corrected_difference(f, g, y, variance, epsilon=0.1).value
        assert scores == pytest.approx(np.average(terms, weights=w))
        drawn.append((scores, np.average(terms, weights=w**2)))
    inverse_variance, squared = np.std(drawn, axis=0)
    assert inverse_variance < 0.98 * squared


def test_a_model_differs_from_itself_by_0(problem):
    f, y, v = problem
    assert metrics.noise_corrected_difference(f, f, y, v) == (0.0, 0.0)
