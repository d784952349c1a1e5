"""Fraction of the true labels' variance that is explained."""

import math
import warnings

import numpy as np
import pytest

from biv import metrics
from biv.noise import Gamma, corrupt
from helpers.draws import N


@pytest.mark.slow
def test_r2():
    rng = np.random.default_rng(9)
    scores = []
    for _ in range(400):
        y = rng.normal(0, 2, N)
        variance = Gamma(1.0, 4.0).sample(N, rng)
        pred = y + rng.normal(0, 1, N)
        scores.append(metrics.noise_corrected_r2(pred, corrupt(y, variance, rng), variance))
    values, errors = np.array(scores).T
    assert values.mean() == pytest.approx(0.75, abs=0.01)
    assert errors.mean() == pytest.approx(values.std(), rel=0.15)


def test_r2_unweighted_where_variance_follows_the_label():
    """σ² is large for large labels, so that the weighted label variance is too low."""
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
    """Its error is the label variance in every draw, so that the standard error is small."""
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
    r2_of_mean = metrics.noise_corrected_r2(np.full(3, y.mean()), y, np.zeros(3)).value
    assert r2_of_mean == pytest.approx(1 - y.var() / y.var(ddof=1))
    with pytest.warns(UserWarning, match="labels do not vary more than their noise explains"):
        assert math.isnan(metrics.noise_corrected_r2(y, np.ones(3), np.zeros(3)).value)


@pytest.mark.parametrize("weighted", [True, False])
def test_r2_is_nan_if_the_label_variance_may_be_0(weighted):
    """With few and noisy labels, a quotient by the lower limit would be arbitrary."""
    rng = np.random.default_rng(17)
    unknown = 0
    for _ in range(200):
        y, variance = rng.normal(size=30), rng.gamma(0.5, 6.0, 30)
        pred, noisy = y + rng.normal(0, 0.3, 30), corrupt(y, variance, rng)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            value, stderr = metrics.noise_corrected_r2(pred, noisy, variance, weighted=weighted)
        plain = noisy.var(ddof=1) - variance.mean()
        assert math.isnan(value) or abs(value) < 4  # just above the limit it would be up to 300
        if not weighted and plain <= 1e-3 * noisy.var():
            assert math.isnan(value)
        assert math.isnan(value) == math.isnan(stderr) == bool(caught)
        assert all("the variance of the true labels may be 0" in str(one.message) for one in caught)
        unknown += math.isnan(value)
    assert (0.05 if not weighted else 0.0) < unknown / 200 < 0.75


def test_r2_of_skewed_labels_with_little_noise_is_known():
    """One label differs: the standard error is as large as the variance, without any noise."""
    y, variance = np.zeros(30), np.full(30, 1e-4)
    y[0] = 1.0
    assert metrics.noise_corrected_r2(y, y, variance).value == pytest.approx(1, abs=0.01)
