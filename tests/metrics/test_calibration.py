"""Factors of error bars, and misread columns."""

import math

import numpy as np
import pytest
import torch

import biv
from biv import metrics
from biv.metrics import calibration
from biv.noise import Gamma, corrupt
from helpers.draws import N
from helpers.sizes import size


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "tau2"), [(1.0, 0.05), (4.0, 0.3), (0.25, 1.0), (1.0, 0.0)])
def test_the_factor_of_wrong_variances_is_estimated(factor, tau2):
    def draw(seed):
        rng = np.random.default_rng(seed)
        variance = Gamma(0.5, 1.2).sample(N, rng)
        target = rng.normal(3.0, np.sqrt(tau2 + factor * variance))
        return metrics.variance_factor(np.full(N, 3.0), target, variance)

    results = np.array([draw(seed) for seed in range(200)])
    assert results[:, 0].mean() == pytest.approx(factor, rel=0.02)
    assert results[:, 1].mean() == pytest.approx(results[:, 0].std(), rel=0.2)
    inside = np.abs(results[:, 0] - factor) < 1.96 * results[:, 1]
    assert 0.88 < inside.mean() < 0.99


def test_the_factor_is_the_slope_of_a_weighted_line(problem):
    """Compare with a least-squares solver and White's (1980) standard errors."""
    pred, y, variance = problem
    target = corrupt(y, variance, np.random.default_rng(3))
    square = (pred - target) ** 2
    ratio = calibration._likely_ratio(torch.from_numpy(square), torch.from_numpy(variance))
    design = np.stack([np.ones(N), variance], axis=1)
    root = 1 / (variance + ratio)
    line = np.linalg.lstsq(root[:, None] * design, root * square, rcond=None)[0]
    bread = np.linalg.inv((root**2 * design.T) @ design)
    meat = bread @ (root**2 * (square - design @ line) * design.T)
    results = metrics.variance_factor(pred, target, variance)
    assert results == pytest.approx((line[1], np.sqrt((meat @ meat.T)[1, 1])), rel=1e-9)


def test_the_factor_has_no_unit(problem):
    pred, y, variance = problem
    target = corrupt(y, variance, np.random.default_rng(3))
    one = metrics.variance_factor(pred, target, variance)
    two = metrics.variance_factor(1e4 * pred, 1e4 * target, 1e8 * variance)
    assert two == pytest.approx(tuple(one), rel=1e-6)
    three = metrics.variance_factor(pred, target, 10 * variance)
    assert three == pytest.approx((one[0] / 10, one[1] / 10), rel=1e-4)
    known = np.where(np.arange(N) % 5, target, np.nan)
    assert metrics.variance_factor(pred, known, variance) == metrics.variance_factor(
        *(values[np.arange(N) % 5 > 0] for values in (pred, target, variance))
    )


def test_unrelated_variances_have_no_slope():
    rng = np.random.default_rng(4)
    variance = rng.uniform(0, 1, size=4000)
    value, stderr = metrics.variance_factor(np.zeros(4000), rng.normal(size=4000), variance)
    assert abs(value) < 4 * stderr < 0.5
    falling = rng.normal(0, np.sqrt(2 - variance))
    value, stderr = metrics.variance_factor(np.zeros(4000), falling, variance)
    assert value == pytest.approx(-1, abs=4 * stderr)


@pytest.mark.parametrize("variance", [np.ones(9), np.array([1.0, 2.0])])
def test_a_factor_needs_variances_that_differ(variance):
    zeros = np.zeros_like(variance)
    with pytest.raises(
        ValueError, match=f"must differ between at least three labels.*; got {len(variance)} in"
    ):
        metrics.variance_factor(zeros, zeros, variance)


def test_labels_of_two_kinds_have_one_factor():
    """τ² is far from both kinds. Weights from a previously fitted line would diverge."""
    rng = np.random.default_rng(4)
    variance = np.where(rng.random(1000) < 0.5, 1.0, 3600.0) * rng.uniform(0.5, 1.5, 1000)
    target = rng.normal(0, np.sqrt(47 + 4 * variance))
    value, stderr = metrics.variance_factor(np.zeros(1000), target, variance)
    assert value == pytest.approx(4, abs=3 * stderr)
    assert stderr < 0.4
    same = metrics.variance_factor(np.zeros(1000), np.zeros(1000), variance)
    assert same == (0, 0)  # there is nothing to explain


COLUMNS = {
    "variance": lambda s: s**2,
    "std": lambda s: s,
    "precision": lambda s: s**-2,
    "inverse std": lambda s: 1 / s,
}

AS_VARIANCE = {"variance": lambda c: c, "std": np.square, "precision": lambda c: 1 / c,
               "inverse std": lambda c: c**-2}  # fmt: skip


def noisy(n, tau2, seed, scale=1.0):
    """Return σ of about `scale`, and residuals of a model with error `tau2` · scale²."""
    rng = np.random.default_rng(seed)
    sigma = scale * np.exp(rng.normal(0, 0.7, n))
    return sigma, rng.normal(0, np.sqrt(tau2 * scale**2 + sigma**2))


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 30.0])
@pytest.mark.parametrize("taken", list(COLUMNS))
@pytest.mark.parametrize("real", list(COLUMNS))
def test_a_misread_column_is_detected(real, taken, scale):
    sigma, residual = noisy(4000, 0.1, 0, scale)
    read = AS_VARIANCE[taken](COLUMNS[real](sigma))
    results = metrics.misread(residual, np.zeros(4000), read, taken=taken)
    assert results == (None if real == taken else real)


def correct_reading(name, rng, n):
    """Return correctly read variances, which may be wrong otherwise, and residuals."""
    sigma = np.exp(rng.normal(0, rng.choice([0.3, 0.6, 1.0]), n))
    heavy = name == "heavy tails"
    noise = sigma * (rng.standard_t(3, n) / np.sqrt(3) if heavy else rng.normal(size=n))
    model = rng.normal(0, np.sqrt(rng.choice([0.05, 0.3, 1.0])), n)
    if name == "a model that is worse where labels are":
        model *= sigma
    if name == "outliers":
        noise[rng.integers(0, n, n // 100)] *= 20
    if name in ("counts", "log counts"):
        truth = 10 * (2 + rng.random(n)) if name == "counts" else 10 ** rng.random(n)
        make = biv.labels.counts if name == "counts" else biv.labels.log_counts
        label, variance = make(rng.poisson(truth))
        return variance, label - (truth if name == "counts" else np.log(truth))
    if name == "a share of the noisy label":
        label = 5 + rng.random(n) + 0.3 * 5 * rng.normal(size=n)
        return (0.3 * label) ** 2, label - 5.5
    variance_passed = sigma**2 * {"too small": 0.1, "too large": 10.0}.get(name, 1.0)
    if name == "shuffled":
        variance_passed = rng.permutation(variance_passed)
    return variance_passed, model + noise


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "right", "too small", "too large", "shuffled", "heavy tails", "outliers",
        "a model that is worse where labels are", "counts", "log counts",
        "a share of the noisy label",
    ],
)  # fmt: skip
def test_correctly_read_error_bars_are_not_reported(name):
    rng = np.random.default_rng(0)
    for n in (500, 1000, 5000):
        for _ in range(size(4, 12)):
            variance, residual = correct_reading(name, rng, n)
            for taken in ("variance", "std"):
                assert metrics.misread(residual, np.zeros(n), variance, taken=taken) is None


# Fractions of draws in which σ taken for σ² is detected, with 1,000, 3,000 and 10,000 labels, for a
# model whose own error has a tenth of the typical σ²: noise, spread of log σ, fractions.
# docs/error-bars.md shows them in a table.
DETECTION_RATES = [
    ("normal", 0.7, (0.93, 1.00, 1.00)),
    ("normal", 0.5, (0.40, 1.00, 1.00)),
    ("student", 0.7, (0.05, 0.12, 0.70)),
    ("outliers", 0.7, (0.00, 0.00, 0.00)),
]


def misread_draw(noise, spread, n, rng):
    sigma = np.exp(rng.normal(0, spread, n))
    drawn = rng.standard_t(3, n) / np.sqrt(3) if noise == "student" else rng.normal(size=n)
    if noise == "outliers":
        drawn[rng.integers(0, n, n // 100)] *= 20
    residual = sigma * drawn + rng.normal(0, math.sqrt(0.1), n)
    return metrics.misread(residual, np.zeros(n), sigma)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "spread", "rates"), DETECTION_RATES)
def test_detection_rates_of_misread_columns(noise, spread, rates):
    for n, draws, share in zip((1000, 3000, 10_000), (40, 40, 20), rates, strict=True):
        rng = np.random.default_rng(0)
        results = [misread_draw(noise, spread, n, rng) for _ in range(draws)]
        assert set(results) <= {"std", None}
        assert np.mean([one == "std" for one in results]) == pytest.approx(share, abs=0.1)


def test_columns_for_which_no_reading_is_returned():
    sigma, residual = noisy(4000, 0.1, 0)
    zeros = np.zeros(4000)
    assert metrics.misread(residual[:499], zeros[:499], sigma[:499] ** -2) is None
    assert metrics.misread(residual, zeros, np.ones(4000)) is None
    assert metrics.misread(zeros, zeros, sigma) is None
    for column, real in ((sigma, "std"), (sigma**-2, "precision")):
        trusted = np.where(np.arange(4000) % 3, column, 0.0)  # has no inverse
        assert metrics.misread(residual, zeros, trusted) == real
    unknown = np.where(np.arange(4000) % 3, zeros, np.nan)
    assert metrics.misread(residual, unknown, sigma**-2) == "precision"
    tiny = sigma * 1e-200  # its square is 0, and that of its inverse is infinite
    assert metrics.misread(residual, zeros, tiny) is metrics.misread(residual, zeros, 1 / tiny)
    assert metrics.misread(residual, zeros, tiny) is None
    falling = np.random.default_rng(1).permutation(residual)[np.argsort(np.argsort(-sigma))]
    assert (
        metrics.misread(falling, zeros, 1e-4 * sigma) is None
    )  # no reading fits better than ignoring the column
    many = [
        np.tile(column, 12) for column in (residual, zeros, sigma)
    ]  # only some of them are used
    assert metrics.misread(*many) == "std"
    with pytest.raises(ValueError, match="taken must be one of variance, std, .*; got 'sigma'"):
        metrics.misread(residual, zeros, sigma, taken="sigma")
