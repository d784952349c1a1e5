"""Variance of the true labels, and of a model's own error."""

import numpy as np
import pytest
from scipy.optimize import brentq

from biv import metrics
from biv.noise import Gamma, corrupt

# ---- label variance ------------------------------------------------------------------------------


def test_label_variance_is_the_sample_variance_of_clean_labels():
    y = np.array([1.0, 2.0, 4.0, 8.0])
    assert metrics.label_variance(y, np.zeros(4)) == pytest.approx(y.var(ddof=1), rel=1e-12)
    assert metrics.label_variance(y + 1e6, np.zeros(4)) == pytest.approx(y.var(ddof=1), rel=1e-9)
    assert metrics.label_variance(np.full(3, 2.0), np.zeros(3)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.25, 1.0, 10.0])
def test_label_variance_is_close_to_that_of_the_true_labels(alpha):
    rng = np.random.default_rng(6)
    estimates, plain = [], []
    for _ in range(300):
        y = rng.normal(3, 2, 1000)
        variance = Gamma(alpha, 10.0).sample(1000, rng)
        noisy = corrupt(y, variance, rng)
        estimates.append(metrics.label_variance(noisy, variance))
        plain.append(noisy.var(ddof=1) - variance.mean())
    assert np.mean(estimates) == pytest.approx(4.0, rel=0.03)
    assert np.std(estimates) < np.std(plain)


def test_one_huge_variance_does_not_ruin_it():
    rng = np.random.default_rng(7)
    y, variance = rng.normal(0, 1, 500), np.full(500, 0.1)
    variance[0] = 1e8
    noisy = corrupt(y, variance, rng)
    assert metrics.label_variance(noisy, variance) == pytest.approx(1.0, rel=0.2)
    assert abs(noisy.var() - variance.mean() - 1) > 100


def test_label_variance_against_its_formula():
    """With few labels, every correction of degrees of freedom has an effect."""
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


def test_label_variance_has_a_lower_limit():
    noisy = np.array([1.0, -1.0, 1.0, -1.0])
    floored = metrics.label_variance(noisy, np.full(4, 50.0))
    assert floored == pytest.approx(1e-3 * noisy.var())


def test_one_trusted_label_does_not_decide_alone():
    """If noise explains all the spread, the trusted label would get all the weight."""
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
