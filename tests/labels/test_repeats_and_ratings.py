"""Labels of items that were measured or rated several times."""

import numpy as np
import pytest

from biv import labels
from biv.labels import _ratings


def test_variances_of_few_values_are_shrunk_towards_the_others():
    """Values that agree by chance must not look exact."""
    rng = np.random.default_rng(3)
    items, values = np.repeat(np.arange(300), 3), rng.normal(size=900)
    values[:3] = 1.0  # by chance
    result = labels.repeats([*items, 300], [*values, 0.0])
    assert result.variance[0] == pytest.approx(1 / 3, rel=0.3)
    assert result.variance[300] == pytest.approx(1, rel=0.2)  # a single value has an error bar too
    assert result.counts[0] == 3
    assert result.counts[300] == 1


def test_variances_of_many_values_are_not_shrunk():
    rng = np.random.default_rng(4)
    spread = np.repeat([1.0, 10.0], 50)
    items = np.repeat(np.arange(100), 200)
    result = labels.repeats(items, spread[items] * rng.normal(size=20_000))
    np.testing.assert_allclose(result.variance, spread**2 / 200, rtol=0.5)


def test_biases_of_raters_are_removed():
    rng = np.random.default_rng(5)
    truth, bias = rng.normal(size=500), np.array([3.0, 0.0, -3.0, 1.0])
    items, raters = np.repeat(np.arange(500), 2), rng.integers(0, 4, size=1000)
    values = truth[items] + bias[raters] + 0.1 * rng.normal(size=1000)
    plain, result = labels.ratings(items, values), labels.ratings(items, values, raters)
    errors = result.y - truth - np.mean(bias[raters])
    assert np.std(errors) < 0.1
    assert np.std(plain.y - truth) > 1
    assert result.variance.mean() < plain.variance.mean() / 20


def ring_of_raters(n_raters=40):
    """Each rater shares items with two neighbours, one of them twice; some ratings are repeated."""
    items = np.repeat(np.arange(2 * n_raters), 2)
    raters = (items // 2 + np.tile([0, 1], 2 * n_raters)) % n_raters
    items, raters = np.append(items, [0, 0, 5]), np.append(raters, [0, 0, 7])
    return items, raters, np.eye(2 * n_raters)[items], np.eye(n_raters)[raters]


def test_labels_and_variances_equal_those_of_dense_least_squares():
    """Compare with the covariance of a dense regression whose biases sum to 0."""
    rng = np.random.default_rng(8)
    items, raters, by_item, by_rater = ring_of_raters()
    values = rng.normal(size=len(items))
    counts = by_item.sum(axis=0)
    design = np.hstack([by_item, by_rater])
    condition = np.append(np.zeros(len(counts)), by_rater.sum(axis=0))
    inverse = np.linalg.inv(design.T @ design + np.outer(condition, condition))
    exact = inverse - np.outer(*[inverse @ condition] * 2)  # the condition holds without error
    residuals = np.eye(len(items)) - design @ exact @ design.T

    added, remaining = _ratings._bias_effects(items, raters, counts.astype(int), by_rater.shape[1])
    np.testing.assert_allclose(added, np.diag(exact)[: len(counts)] - 1 / counts, atol=1e-9)
    np.testing.assert_allclose(remaining * (counts - 1), np.diag(residuals) @ by_item, atol=1e-9)
    result = labels.ratings(items, values, raters)
    np.testing.assert_allclose(result.y, (exact @ design.T @ values)[: len(counts)], atol=1e-7)


def test_biases_add_no_variance_if_every_rater_rates_every_item():
    items, raters = (part.ravel() for part in np.indices((9, 4)))
    added, remaining = _ratings._bias_effects(items, raters, np.full(9, 4), 4)
    np.testing.assert_allclose(added, 0, atol=1e-12)
    np.testing.assert_allclose(remaining, 8 / 9)


def test_the_simulation_for_many_raters_agrees_with_the_exact_result(monkeypatch):
    items, raters, by_item, _ = ring_of_raters(n_raters=20)
    counts = by_item.sum(axis=0).astype(int)
    exact = _ratings._bias_effects(items, raters, counts, 20)
    monkeypatch.setattr(_ratings, "MAX_RATERS", 10)
    monkeypatch.setattr(_ratings, "SIMULATIONS", 800)
    for simulated, expected in zip(
        _ratings._bias_effects(items, raters, counts, 20), exact, strict=True
    ):
        np.testing.assert_allclose(simulated, expected, rtol=0.25)


def test_biases_sum_to_zero_over_all_ratings():
    rng = np.random.default_rng(6)
    items, raters = rng.integers(0, 40, size=300), rng.integers(0, 9, size=300)
    values = rng.normal(size=300) + raters
    result = labels.ratings(items, values, raters)
    assert np.average(result.y, weights=result.counts) == pytest.approx(values.mean(), abs=1e-6)


def test_variances_are_finite_if_spreads_differ_by_orders_of_magnitude():
    rng = np.random.default_rng(7)
    items = np.repeat(np.arange(400), 2)
    spread = np.exp(4 * rng.normal(size=400))
    result = labels.repeats(items, spread[items] * rng.normal(size=800))
    assert (result.variance > 0).all()
    assert np.median(result.variance / spread**2) < 10
