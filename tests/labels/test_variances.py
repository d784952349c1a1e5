"""The variance of a label is that of its error, or what its docstring states."""

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
def test_a_variance_is_that_of_the_error(process):
    simulate, bias = CALIBRATED[process]
    truth, found = simulate(np.random.default_rng(0))
    chi = biv.metrics.reduced_chi_squared(truth, found.y, found.variance)
    assert abs(chi.value - 1) < 4 * chi.stderr + bias
    assert (
        abs(np.mean(found.y - truth)) < 5 * np.std(found.y - truth) / math.sqrt(len(truth)) + 0.03
    )


@pytest.mark.parametrize(
    ("a", "b", "stated"),
    [(5, 5, 0.78), (10, 10, 0.92), (50, 50, 0.99), (1000, 5, 1.05), (1000, 2, 1.41)],
)
def test_a_ratio_of_small_counts_is_off_by_what_its_docstring_says(a, b, stated):
    """The exact mean of (y − truth)²/variance over two Poisson counts, the denominator above 0."""
    events, others = np.meshgrid(np.arange(1400.0), np.arange(1.0, 200.0), indexing="ij")
    chance = stats.poisson(a).pmf(events) * stats.poisson(b).pmf(others)
    found = labels.count_ratio(events.ravel(), others.ravel())
    ratio = (found.y - a / b) ** 2 / found.variance
    assert np.average(ratio, weights=chance.ravel()) == pytest.approx(stated, abs=0.01)


def ratio_of_errors(truth, found):
    return np.mean((found.y - truth) ** 2 / found.variance)


@pytest.mark.parametrize(("count", "stated"), [(2, 3.6), (3, 1.9), (5, 1.0)])
def test_two_kinds_of_items_are_off_by_what_the_docstring_says(count, stated):
    """Half of the items have a hundred times the variance of the others; alone, each is right."""
    rng = np.random.default_rng(10)
    spread = np.repeat([1.0, 10.0], N // 2)
    truth, items, values = grouped(rng, np.full(N, count), spread)
    assert ratio_of_errors(truth, labels.repeats(items, values)) == pytest.approx(stated, rel=0.1)
    half = items < N // 2
    alone = labels.repeats(items[half], values[half])
    assert ratio_of_errors(truth[: N // 2], alone) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(("count", "stated"), [(4, 3.0), (5, 2.0), (8, 1.4), (50, 1.04)])
def test_few_samples_state_a_larger_variance_than_their_error(count, stated):
    draws = np.random.default_rng(11).normal(size=(count + 1, N))
    found = labels.samples(draws[1:], axis=0)
    assert found.variance.mean() / (1 + 1 / count) == pytest.approx(stated, rel=0.03)
    alike = labels.ensemble(draws[1:], np.zeros((count, N)))
    assert alike.variance.mean() / (1 + 1 / count) == pytest.approx(1, rel=0.03)
    assert ratio_of_errors(draws[0], alike) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("own", "correlation", "stated"), [(0, 0.5, 2.7), (0, 0.9, 16), (0.1, 0.5, 2.4), (0.1, 0.9, 9)]
)
def test_correlated_members_are_off_by_what_the_docstring_says(own, correlation, stated):
    rng = np.random.default_rng(12)
    means = math.sqrt(correlation) * rng.normal(size=N)
    means = means + math.sqrt(1 - correlation) * rng.normal(size=(5, N))
    truth = math.sqrt(1 + own) * rng.normal(size=N)
    found = labels.ensemble(means, np.full((5, N), own))
    assert ratio_of_errors(truth, found) == pytest.approx(stated, rel=0.05)
    told = labels.ensemble(means, np.full((5, N), own), correlation=correlation)
    assert ratio_of_errors(truth, told) == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize(
    ("noise", "stated"),
    [
        (stats.lognorm(0.4), 1.13), (stats.lognorm(0.7), 1.5), (stats.lognorm(1.0), 2.4),
        (stats.gamma(4), 1.03), (stats.expon(), 1.13),
    ],
)  # fmt: skip
def test_skewed_noise_is_off_by_what_the_docstring_says(noise, stated):
    """The exact mean squared error of the label, over its variance."""
    low, median, high = noise.ppf([0.158655, 0.5, 0.841345])
    y, variance = labels.asymmetric([median], [median - low], [high - median])
    error = noise.var() + (noise.mean() - y[0]) ** 2
    assert error / variance[0] == pytest.approx(stated, rel=0.03)


def test_percentiles_of_a_skewed_distribution_give_its_mean():
    """Of a lognormal one and a gamma one, by scipy; nearer than the median by far."""
    for known in (stats.lognorm(0.4), stats.gamma(4)):
        low, median, high = known.ppf([0.158655, 0.5, 0.841345])
        found = labels.asymmetric([median], [median - low], [high - median])
        assert abs(found.y[0] - known.mean()) < 0.1 * (known.mean() - median)
        assert found.variance[0] == pytest.approx(known.var(), rel=0.15)
