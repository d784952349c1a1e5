"""Statistics of many draws of the noise."""

import math

import numpy as np

from biv.noise import corrupt

N = 400


def many_draws(score, y, variance, draws=2000):
    rng = np.random.default_rng(1)
    return np.array([score(corrupt(y, variance, rng)) for _ in range(draws)])


def mean_agrees(values, expected):
    """Return whether the mean of independent values is within 4.5 standard errors of `expected`."""
    error = values.std(ddof=1) / math.sqrt(len(values))
    return abs(values.mean() - expected) < 4.5 * error
