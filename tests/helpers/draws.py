"""Many draws of the noise, and whether their mean is what is expected."""

import math

import numpy as np

from biv.noise import corrupt

N = 400


def many_draws(score, y, variance, draws=2000):
    rng = np.random.default_rng(1)
    return np.array([score(corrupt(y, variance, rng)) for _ in range(draws)])


def mean_agrees(values, expected):
    """Whether the mean of independent values is what is expected, within 4.5 standard errors."""
    error = values.std(ddof=1) / math.sqrt(len(values))
    return abs(values.mean() - expected) < 4.5 * error
