"""Labels of items that were measured or rated several times."""

import numpy as np
import pytest

from biv import labels
from biv.labels import _ratings


def test_few_values_borrow_from_many():
    """Of two values that happen to agree nobody learns that they are exact."""
    rng = np.random.default_rng(3)
    items, values = np.repeat(np.arange(300), 3), rng.normal(size=900)
    values[:3] = 1.0  # by chance
    found = labels.repeats([*items, 300], [*values, 0.0])
    assert found.variance[0] == pytest.approx(1 / 3, rel=0.3)
    assert found.variance[300] == pytest.approx(1, rel=0.2)  # one value, and still an error bar
    assert found.counts[0] == 3
    assert found.counts[300] == 1


def test_many_values_speak_for_themselves():
    rng = np.random.default_rng(4)
    spread = np.repeat([1.0, 10.0], 50)
    items = np.repeat(np.arange(100), 200)
    found = labels.repeats(items, spread[items] * rng.normal(size=20_000))
    np.testing.assert_allclose(found.variance, spread**2 / 200, rtol=0.5)


def test_biases_of_raters_are_taken_out():
    rng = np.random.default_rng(5)
    truth, bias = rng.normal(size=500), np.array([3.0, 0.0, -3.0, 1.0])
    items, raters = np.repeat(np.arange(500), 2), rng.integers(0, 4, size=1000)
    values = truth[items] + bias[raters] + 0.1 * rng.normal(size=1000)
    plain, found = labels.ratings(items, values), labels.ratings(items, values, raters)
    off = found.y - truth - np.mean(bias[raters])
    assert np.std(off) < 0.1
    assert np.std(plain.y - truth) > 1
    assert found.variance.mean() < plain.variance.mean() / 20


def ring_of_raters(people=40):
    """Each rater shares items with two neighbours, one of them twice; some ratings are repeated."""
    items = np.repeat(np.arange(2 * people), 2)
    raters = (items // 2 + np.tile([0, 1], 2 * people)) % people
    items, raters = np.append(items, [0, 0, 5]), np.append(raters, [0, 0, 7])
    return items, raters, np.eye(2 * people)[items], np.eye(people)[raters]


def test_labels_and_their_variances_are_those_of_least_squares():
    """The covariance of a dense regression on items and raters, with biases adding up to 0."""
    rng = np.random.default_rng(8)
    items, raters, by_item, by_rater = ring_of_raters()
    values = rng.normal(size=len(items))
    counts = by_item.sum(axis=0)
    design = np.hstack([by_item, by_rater])
    condition = np.append(np.zeros(len(counts)), by_rater.sum(axis=0))
    inverse = np.linalg.inv(design.T @ design + np.outer(condition, condition))
    exact = inverse - np.outer(*[inverse @ condition] * 2)  # the condition holds without error
    residuals = np.eye(len(items)) - design @ exact @ design.T

    added, share = _ratings._uncertainty(items, raters, counts.astype(int), by_rater.shape[1])
    np.testing.assert_allclose(added, np.diag(exact)[: len(counts)] - 1 / counts, atol=1e-9)
    np.testing.assert_allclose(share * (counts - 1), np.diag(residuals) @ by_item, atol=1e-9)
    found = labels.ratings(items, values, raters)
    np.testing.assert_allclose(found.y, (exact @ design.T @ values)[: len(counts)], atol=1e-7)


def test_raters_of_every_item_add_no_variance():
    items, raters = (part.ravel() for part in np.indices((9, 4)))
    added, share = _ratings._uncertainty(items, raters, np.full(9, 4), 4)
    np.testing.assert_allclose(added, 0, atol=1e-12)
    np.testing.assert_allclose(share, 8 / 9)


def test_the_uncertainty_of_very_many_raters_is_simulated(monkeypatch):
    items, raters, by_item, _ = ring_of_raters(people=20)
    counts = by_item.sum(axis=0).astype(int)
    exact = _ratings._uncertainty(items, raters, counts, 20)
    monkeypatch.setattr(_ratings, "MAX_RATERS", 10)
    monkeypatch.setattr(_ratings, "SIMULATIONS", 800)
    for one, other in zip(_ratings._uncertainty(items, raters, counts, 20), exact, strict=True):
        np.testing.assert_allclose(one, other, rtol=0.25)


def test_a_crowd_as_a_whole_is_taken_to_be_right():
    rng = np.random.default_rng(6)
    items, raters = rng.integers(0, 40, size=300), rng.integers(0, 9, size=300)
    values = rng.normal(size=300) + raters
    found = labels.ratings(items, values, raters)
    assert np.average(found.y, weights=found.counts) == pytest.approx(values.mean(), abs=1e-6)


def test_of_hardly_anything_known_the_variance_is_finite():
    """Pairs of values whose spreads differ by orders of magnitude."""
    rng = np.random.default_rng(7)
    items = np.repeat(np.arange(400), 2)
    spread = np.exp(4 * rng.normal(size=400))
    found = labels.repeats(items, spread[items] * rng.normal(size=800))
    assert (found.variance > 0).all()
    assert np.median(found.variance / spread**2) < 10
