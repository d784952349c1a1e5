"""Statistics computed part by part equal those of all rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import biv
from biv import metrics
from biv.tables.statistics import LabelGroups, Moments


def parts(rows, count, rng):
    edges = np.sort(rng.integers(0, rows + 1, size=count - 1))
    return np.split(np.arange(rows), edges)  # some may be empty


@given(st.integers(0, 10_000), st.sampled_from([0.0, 1e6, -1e12]), st.integers(1, 6))
def test_moments_of_parts_add_up_to_those_of_all_rows(seed, shift, count):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rng.integers(1, 60), 3)) * [1.0, 1e-3, 50.0] + shift
    x[rng.random(x.shape) < 0.2] = np.nan
    result = sum((Moments.of(x[p]) for p in parts(len(x), count, rng)), Moments.of(x[:0]))
    known = [column[~np.isnan(column)].astype(np.longdouble) for column in x.T]
    np.testing.assert_array_equal(result.count, [len(k) for k in known])
    for k, column in enumerate(known):
        if len(column):
            scale = max(abs(shift), 1.0)
            assert abs(result.mean[k] - column.mean()) <= 1e-14 * scale
            # The relative error grows with the mean, and not with its square.
            error, std = abs(float(result.variance[k] - column.var())), float(column.std())
            assert error <= 1e-12 * std**2 + 1e-15 * scale * std + (4e-16 * scale) ** 2


def test_a_large_mean_costs_no_digits():
    """With a mean of 1e9, a sum of raw squares would lose all digits of the variance."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 1)) + 1e9
    result = sum((Moments.of(part) for part in np.split(x, 10)), Moments.of(x[:0]))
    np.testing.assert_allclose(result.variance, x.var(axis=0), rtol=1e-7)
    assert abs((x**2).mean() - x.mean() ** 2 - x.var()) > 0.1


def noisy(seed, rows=4000, alpha=0.3):
    rng = np.random.default_rng(seed)
    v = rng.gamma(alpha, 2.0, rows)
    v[rng.random(rows) < 0.1] = 0.0
    v[:3] = 1e9, np.inf, np.inf
    return 50 + 3 * rng.normal(size=rows) + np.sqrt(np.where(np.isinf(v), 0, v)), v


@pytest.mark.parametrize("seed", range(5))
def test_label_moments_of_groups_equal_those_of_the_labels(seed):
    y, v = noisy(seed)
    rng = np.random.default_rng(seed)
    groups = sum((LabelGroups.of(y[p], v[p]) for p in parts(len(y), 5, rng)), LabelGroups({}))
    exact = metrics.label_moments(y, v)
    assert groups.count == np.isfinite(v).sum()
    # Weights differ by 2% within a group, which changes the estimate by far less than its error.
    assert groups.moments.variance == pytest.approx(exact.variance, rel=2e-3)
    assert groups.moments.mean == pytest.approx(exact.mean, rel=1e-4)
    finite = v[np.isfinite(v)]
    assert groups.mean_variance == pytest.approx(finite.mean(), rel=1e-12)
    assert groups.median_variance == pytest.approx(np.median(finite), rel=0.05)
    size = biv.effective_batch_size(biv.inverse_variance_weights(finite, 0.5))
    assert groups.effective_sample_size(0.5) == pytest.approx(size, rel=1e-3)


def test_label_moments_are_exact_for_few_distinct_variances():
    rng = np.random.default_rng(0)
    v = rng.choice([0.0, 0.25, 4.0], size=500)
    y = rng.normal(size=500) + np.sqrt(v) * rng.normal(size=500)
    result, exact = LabelGroups.of(y, v).moments, metrics.label_moments(y, v)
    assert result == pytest.approx(exact, rel=1e-10)


def test_groups_do_not_depend_on_the_parts():
    y, v = noisy(7)
    whole = LabelGroups.of(y, v)
    halves = LabelGroups.of(y[:999], v[:999]) + LabelGroups.of(y[999:], v[999:])
    assert whole.groups.keys() == halves.groups.keys()
    assert halves.moments == pytest.approx(whole.moments, rel=1e-12)


def test_clean_labels_have_their_sample_variance():
    y = np.array([1.0, 2.0, 4.0, np.nan])
    groups = LabelGroups.of(y)
    assert groups.moments == pytest.approx((7 / 3, y[:3].var(ddof=1)))


def test_grouped_moments_equal_those_of_rows_if_every_group_is_one_row():
    y, v = noisy(3, rows=200)
    y, v = y[np.isfinite(v)], v[np.isfinite(v)]
    one = np.ones(len(y))
    result = metrics.grouped_label_moments(one, y, 0 * one, v)
    assert result == pytest.approx(metrics.label_moments(y, v), rel=1e-12)
