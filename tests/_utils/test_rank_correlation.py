"""Rank correlations, compared with those of SciPy."""

import numpy as np
import pytest
from scipy import stats

from biv._utils.rank_correlation import rank_correlation, ranks


@pytest.mark.parametrize("distinct", [3, 20, 10**9])
def test_rank_correlation_is_spearmans_with_ties(distinct):
    rng = np.random.default_rng(0)
    one = rng.integers(distinct, size=500).astype(float)
    other = one + rng.integers(distinct, size=500)
    assert rank_correlation(one, other) == pytest.approx(stats.spearmanr(one, other).statistic)


def test_equal_values_have_rank_correlation_0():
    assert rank_correlation(np.ones(5), np.arange(5.0)) == 0.0


def test_ranks_are_average_ranks():
    values = np.random.default_rng(0).integers(0, 9, 200).astype(float)
    reference = stats.rankdata(values) - np.mean(stats.rankdata(values))
    np.testing.assert_allclose(ranks(values), reference / np.linalg.norm(reference))
    other = np.random.default_rng(1).integers(0, 30, 200) + values
    assert ranks(values) @ ranks(other) == pytest.approx(stats.spearmanr(values, other).statistic)
