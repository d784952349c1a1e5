"""Each label's variance is that of its error, or differs from it as its docstring states."""

import math

import numpy as np
import pytest
from scipy import stats

import biv
from biv import labels
from helpers.label_processes import (
    CALIBRATED,
    N,
    grouped,
)


@pytest.mark.parametrize("process", CALIBRATED)
def test_the_variance_equals_that_of_the_error(process):
    simulate, bias = CALIBRATED[process]
    truth, result = simulate(np.random.default_rng(0))
    chi = biv.metrics.reduced_chi_squared(truth, result.y, result.variance)
    assert abs(chi.value - 1) < 4 * chi.stderr + bias
    assert (
        abs(np.mean(result.y - truth)) < 5 * np.std(result.y - truth) / math.sqrt(len(truth)) + 0.03
    )


@pytest.mark.parametrize(
    ("a", "b", "stated"),
    [(5, 5, 0.78), (10, 10, 0.92), (50, 50, 0.99), (1000, 5, 1.05), (1000, 2, 1.41)],
)
def test_ratios_of_small_counts_differ_as_the_docstring_states(a, b, stated):
    """Compute the exact mean of (y − truth)²/variance over two Poisson counts."""
    events, others = np.meshgrid(np.arange(1400.0), np.arange(1.0, 200.0), indexing="ij")
    probability = stats.poisson(a).pmf(events) * stats.poisson(b).pmf(others)
    result = labels.count_ratio(events.ravel(), others.ravel())
    ratio = (result.y - a / b) ** 2 / result.variance
    assert np.average(ratio, weights=probability.ravel()) == pytest.approx(stated, abs=0.01)


def ratio_of_errors(truth, result):
    return np.mean((result.y - truth) ** 2 / result.variance)


@pytest.mark.parametrize(("count", "stated"), [(2, 3.6), (3, 1.9), (5, 1.0)])
def test_two_kinds_of_items_differ_as_the_docstring_states(count, stated):
    """Half of the items have 100 times the variance of the others; each half alone is right."""
    rng = np.random.default_rng(10)
    spread = np.repeat([1.0, 10.0], N // 2)
    truth, items, values = grouped(rng, np.full(N, count), spread)
    assert ratio_of_errors(truth, labels.repeats(items, values)) == pytest.approx(stated, rel=0.1)
    half = items < N // 2
    separate = labels.repeats(items[half], values[half])
    assert ratio_of_errors(truth[: N // 2], separate) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("count", "stated"), [(4, 3.0), (5, 2.0), (8, 1.4), (50, 1.04)])
def test_few_samples_give_a_larger_variance_than_their_error(count, stated):
    draws = np.random.default_rng(11).normal(size=(count + 1, N))
    result = labels.samples(draws[1:], axis=0)
    assert result.variance.mean() / (1 + 1 / count) == pytest.approx(stated, rel=0.03)
    shrunk = labels.ensemble(draws[1:], np.zeros((count, N)))
    assert shrunk.variance.mean() / (1 + 1 / count) == pytest.approx(1, rel=0.03)
    assert ratio_of_errors(draws[0], shrunk) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("member_variance", "correlation", "stated"),
    [(0, 0.5, 2.7), (0, 0.9, 16), (0.1, 0.5, 2.4), (0.1, 0.9, 9)],
)
def test_correlated_members_differ_as_the_docstring_states(member_variance, correlation, stated):
    rng = np.random.default_rng(12)
    means = math.sqrt(correlation) * rng.normal(size=N)
    means = means + math.sqrt(1 - correlation) * rng.normal(size=(5, N))
    truth = math.sqrt(1 + member_variance) * rng.normal(size=N)
    variances = np.full((5, N), member_variance)
    result = labels.ensemble(means, variances)
    assert ratio_of_errors(truth, result) == pytest.approx(stated, rel=0.05)
    corrected = labels.ensemble(means, variances, correlation=correlation)
    assert ratio_of_errors(truth, corrected) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("noise", "stated"),
    [
        (stats.lognorm(0.4), 1.13), (stats.lognorm(0.7), 1.5), (stats.lognorm(1.0), 2.4),
        (stats.gamma(4), 1.03), (stats.expon(), 1.13),
    ],
)  # fmt: skip
def test_skewed_noise_differs_as_the_docstring_states(noise, stated):
    """Compare the exact mean squared error of the label with its variance."""
    low, median, high = noise.ppf([0.158655, 0.5, 0.841345])
    y, variance = labels.asymmetric([median], [median - low], [high - median])
    error = noise.var() + (noise.mean() - y[0]) ** 2
    assert error / variance[0] == pytest.approx(stated, rel=0.03)


def test_percentiles_of_a_skewed_distribution_give_nearly_its_mean():
    """The label is at least ten times closer to the mean than the median is."""
    for distribution in (stats.lognorm(0.4), stats.gamma(4)):
        low, median, high = distribution.ppf([0.158655, 0.5, 0.841345])
        result = labels.asymmetric([median], [median - low], [high - median])
        assert abs(result.y[0] - distribution.mean()) < 0.1 * (distribution.mean() - median)
        assert result.variance[0] == pytest.approx(distribution.var(), rel=0.15)
