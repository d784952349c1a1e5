"""Simulated processes that labels come from. Each returns the truth and its noisy labels."""

import math
from types import SimpleNamespace

import numpy as np

from biv import labels

N = 20_000


def kalman_track(rng, steps=60):
    """A body that drifts at random and is measured with noise: the last state, and the truth."""
    f, h = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    q, r = np.diag([0.01, 0.02]), 4.0
    truth = rng.multivariate_normal([0.0, 0.0], np.eye(2))
    mean, covariance = np.zeros(2), np.eye(2)
    states, positions = [], []
    for _ in range(steps):
        truth = f @ truth + rng.multivariate_normal([0, 0], q)
        mean, covariance = f @ mean, f @ covariance @ f.T + q
        measured = truth[0] + math.sqrt(r) * rng.normal()
        gain = covariance @ h.T / (h @ covariance @ h.T + r)
        mean = mean + gain[:, 0] * (measured - mean[0])
        covariance = covariance - gain @ h @ covariance
        states.append(SimpleNamespace(x=mean[:, None], P=covariance))
        positions.append(truth[0])
    return states[-1], positions[-1]


def grouped(rng, counts, spread):
    """Items measured several times each, with a different spread per item."""
    truth = rng.normal(size=len(counts)) * 5
    items = np.repeat(np.arange(len(counts)), counts)
    return truth, items, truth[items] + spread[items] * rng.normal(size=len(items))


def split_normal(rng):
    """Truth with a split normal distribution: one scale below and another above."""
    y, below, above = rng.normal(size=N), *rng.uniform(0.1, 2.0, size=(2, N))
    up = rng.random(N) < above / (above + below)
    truth = y + np.where(up, above, -below) * np.abs(rng.normal(size=N))
    z = 1.6448536269514722
    return truth, labels.asymmetric(y, z * below, z * above, level=0.9, centre="mode")


def skewed(rng):
    """Medians and 5% and 95% percentiles of y + sZ + bZ²."""
    y, s = rng.normal(size=N), rng.uniform(0.5, 2.0, N)
    b = rng.uniform(-0.1, 0.1, N) * s
    z = 1.6448536269514722
    normal = rng.normal(size=N)
    truth = y + s * normal + b * normal**2
    return truth, labels.asymmetric(y, s * z - b * z**2, s * z + b * z**2, level=0.9)


def equal_repeats(rng):
    counts = rng.integers(1, 5, size=N)
    truth, items, values = grouped(rng, counts, np.full(N, 2.0))
    return truth, labels.repeats(items, values)


def unequal_repeats(rng):
    """Variances that follow the assumed distribution."""
    counts, d0 = rng.integers(1, 6, size=N), 10.0
    spread = np.sqrt(d0 / rng.chisquare(d0, size=N))
    truth, items, values = grouped(rng, counts, spread)
    return truth, labels.repeats(items, values)


def other_repeats(rng):
    """Variances that do not follow the assumed distribution: two kinds of items."""
    counts = rng.integers(2, 6, size=N)
    truth, items, values = grouped(rng, counts, np.where(rng.random(N) < 0.5, 1.0, 2.0))
    return truth, labels.repeats(items, values)


def crowd(rng):
    counts = rng.integers(2, 6, size=4000)
    truth, items, values = grouped(rng, counts, np.full(4000, 1.0))
    raters = rng.integers(0, 60, size=len(items))
    bias = rng.normal(size=60) * 2
    noisy_labels = labels.ratings(items, values + bias[raters], raters)
    return truth + np.average(bias[raters]), noisy_labels


def busy_crowd(rng):
    """Many raters with few ratings each, so that their biases are uncertain."""
    truth, items, values = grouped(rng, np.full(3000, 3), np.full(3000, 1.0))
    raters = rng.integers(0, 1000, size=len(items))
    bias = rng.normal(size=1000)
    noisy_labels = labels.ratings(items, values + bias[raters], raters)
    return truth + np.average(bias[raters]), noisy_labels


def sparse_crowd(rng):
    """Many crowds of raters in a ring, each of whom shares items with few others."""
    truths, parts = [], []
    for _ in range(60):
        truth, items, values = grouped(rng, np.full(60, 2), np.full(60, 1.0))
        raters = (items // 3 + np.tile([0, 1], 60) * rng.integers(1, 3, size=120)) % 20
        bias = rng.normal(size=20)
        parts.append(labels.ratings(items, values + bias[raters], raters))
        truths.append(truth + np.average(bias[raters]))
    y, variance = np.hstack([tuple(part) for part in parts])
    return np.hstack(truths), labels.NoisyLabels(y, variance)


def few_items(rng):
    """Many sets of three items measured four times: their common variance is uncertain too."""
    parts = [labels.repeats(np.repeat(np.arange(3), 4), rng.normal(size=12)) for _ in range(500)]
    y, variance = np.hstack([tuple(part) for part in parts])
    return np.zeros(1500), labels.NoisyLabels(y, variance)


def normal(rng):
    truth, std = rng.normal(size=N), rng.uniform(0.1, 3, size=N)
    return truth, truth + std * rng.normal(size=N), std


def ranges(rng):
    truth, y, std = normal(rng)
    return truth, labels.plus_minus(y, 1.6448536 * std, level=0.9)


def rounded(rng):
    truth = rng.uniform(0, 100, size=N)
    return truth, labels.plus_minus(truth.round(), 0.5)


def intervals(rng):
    truth, y, std = normal(rng)
    return truth, labels.interval(y - 1.959964 * std, y + 1.959964 * std)


def monte_carlo(rng, n):
    centre, std = rng.normal(size=N), rng.uniform(0.1, 3, size=N)
    draws = centre + std * rng.normal(size=(n + 1, N))
    return draws[0], labels.samples(draws[1:], axis=0)


def mixture(rng):
    centre, between = rng.normal(size=N), rng.uniform(0.1, 2, size=N)
    means = centre + between * rng.normal(size=(31, N))
    own_variance = rng.uniform(0.1, 2, size=(31, N))
    truth = means[0] + np.sqrt(own_variance[0]) * rng.normal(size=N)
    return truth, labels.ensemble(means[1:], own_variance[1:])


def few_members(rng, count, correlation=0.0):
    """Members with a common deviation agree better with each other than with the truth."""
    between, own_variance = (
        rng.uniform(0.8, 1.2, size=N),
        rng.uniform(0.05, 0.15, size=(count + 1, N)),
    )
    deviations = math.sqrt(1 - correlation) * rng.normal(size=(count + 1, N))
    deviations[1:] += math.sqrt(correlation) * rng.normal(size=N)
    deviations[0] = rng.normal(size=N)
    means = rng.normal(size=N) + between * deviations
    truth = means[0] + np.sqrt(own_variance[0]) * rng.normal(size=N)
    return truth, labels.ensemble(means[1:], own_variance[1:], correlation=correlation)


def tracks(rng):
    states, truth = zip(*(kalman_track(rng) for _ in range(400)), strict=True)
    return np.array(truth), labels.posterior(states, component=0)


def polls(rng):
    truth, n = rng.uniform(0.05, 0.95, size=N), rng.integers(40, 2000, size=N)
    return truth, labels.poll(rng.binomial(n, truth) / n, n)


def finite_polls(rng):
    truth, n = rng.integers(40, 160, size=N), rng.integers(40, 150, size=N)
    answers = rng.hypergeometric(truth, 200 - truth, n)
    return truth / 200, labels.poll(answers / n, n, population=200)


def clustered_polls(rng):
    """Twenty answers in four clusters of five equal answers: a design effect of 5."""
    truth = rng.uniform(0.05, 0.95, size=N)
    return truth, labels.poll(rng.binomial(4, truth) / 4, 20, design_effect=5)


def poisson(rng):
    rate, time = rng.uniform(20, 100, size=N), rng.uniform(1, 3, size=N)
    return rate, labels.counts(rng.poisson(rate * time), time)


def log_poisson(rng):
    rate = rng.uniform(20, 200, size=N)
    return np.log(rate), labels.log_counts(rng.poisson(rate))


def log_ratios(rng):
    a, b = rng.uniform(30, 300, size=(2, N))
    return np.log(a / b), labels.log_count_ratio(rng.poisson(a), rng.poisson(b))


def ratios(rng):
    a, b = rng.uniform(100, 300, size=N), rng.uniform(300, 900, size=N)
    return a / b, labels.count_ratio(rng.poisson(a), rng.poisson(b))


def targets(rng):
    value, std, reward = rng.normal(size=N), rng.uniform(0.5, 2, size=N), rng.normal(size=N)
    ends = rng.random(N) < 0.2
    estimate = value + std * rng.normal(size=N)
    noisy = reward + 0.3 * rng.normal(size=N)
    noisy_labels = labels.bootstrapped(
        noisy, estimate, std**2, gamma=0.9, terminal=ends, reward_variance=np.full(N, 0.09)
    )
    return reward + np.where(ends, 0, 0.9 * value), noisy_labels


# Each process, and the relative error of the variance that its approximation may have.
CALIBRATED = {
    "asymmetric": (skewed, 0),
    "split": (split_normal, 0),
    "equal repeats": (equal_repeats, 0),
    "unequal repeats": (unequal_repeats, 0.02),
    "other repeats": (other_repeats, 0.05),
    "crowd": (crowd, 0),
    "busy crowd": (busy_crowd, 0),
    "sparse crowd": (sparse_crowd, 0.1),
    "few items": (few_items, 0),
    "ranges": (ranges, 0),
    "rounded": (rounded, 0),
    "intervals": (intervals, 0),
    "few samples": (lambda rng: monte_carlo(rng, 8), 0),
    "samples": (lambda rng: monte_carlo(rng, 50), 0),
    "mixture": (mixture, 0),
    "two members": (lambda rng: few_members(rng, 2), 0),
    "three members": (lambda rng: few_members(rng, 3), 0),
    "five members": (lambda rng: few_members(rng, 5), 0),
    "correlated": (lambda rng: few_members(rng, 5, 0.5), 0),
    "much correlated": (lambda rng: few_members(rng, 5, 0.9), 0),
    "tracks": (tracks, 0),
    "polls": (polls, 0.01),
    "finite polls": (finite_polls, 0.02),
    "clustered polls": (clustered_polls, 0.05),
    "counts": (poisson, 0.03),
    "log counts": (log_poisson, 0.02),
    "log ratios": (log_ratios, 0.02),
    "ratios": (ratios, 0.02),
    "targets": (targets, 0),
}
