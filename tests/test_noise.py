"""Noise models: moments, distribution and support; and noisy labels drawn with them."""

import numpy as np
import pytest
import torch
from scipy import stats

from biv.noise import BinaryUniform, Gamma, Uniform, corrupt, disturb

MU = 20_000.0
MODELS = [
    Uniform(MU, variance=0.0),
    Uniform(MU, variance=MU**2 / 10),
    Uniform(MU, variance=MU**2 / 3),
    Uniform(MU, spread=0.5),
    Uniform(MU, spread=1.0),
    BinaryUniform(0.0, MU),
    BinaryUniform(0.3, MU),
    BinaryUniform(0.9, MU, high_variance=1e9),
    BinaryUniform(0.5, 0.25),
    BinaryUniform(0.5, 0.3, high_variance=1e-3),
    Gamma(0.25, MU),
    Gamma(1.0, MU),
    Gamma(10.0, 3.0),
]


def rng(seed=0):
    return np.random.default_rng(seed)


def distribution(model):
    """Return the cumulative distribution of a model, computed by SciPy."""
    if isinstance(model, Uniform):
        half = np.sqrt(3 * model.variance)
        return stats.uniform(model.mean - half, 2 * half).cdf
    if isinstance(model, Gamma):
        return stats.gamma(model.alpha, scale=model.mean / model.alpha).cdf
    mu_h = (model.mean - 0.5 * model.p) / (1 - model.p)
    half = np.sqrt(3 * model.high_variance)

    def high(v):
        return stats.uniform(mu_h - half, 2 * half).cdf(v) if half else (v >= mu_h).astype(float)

    return lambda v: model.p * stats.uniform(0, 1).cdf(v) + (1 - model.p) * high(v)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_moments_and_support(model):
    n = 200_000
    draws = model.sample(n, rng())
    assert draws.shape == (n,)
    assert draws.dtype == np.float64
    spread = np.sqrt(model.variance)
    assert abs(draws.mean() - model.mean) <= 4.5 * spread / np.sqrt(n) + 1e-9 * model.mean
    fourth = ((draws - model.mean) ** 4).mean()
    error = 4.5 * np.sqrt(max(fourth - model.variance**2, 0) / n)
    assert abs(((draws - model.mean) ** 2).mean() - model.variance) <= error + 1e-9 * model.mean**2
    low, high = model.support
    assert 0 <= low <= draws.min()
    assert draws.max() <= high


@pytest.mark.parametrize(
    "model", [m for m in MODELS if not isinstance(m, BinaryUniform) and m.variance > 0], ids=repr
)
def test_distribution(model):
    assert stats.kstest(model.sample(20_000, rng(1)), distribution(model)).pvalue > 1e-3


@pytest.mark.parametrize("model", [m for m in MODELS if isinstance(m, BinaryUniform)], ids=repr)
def test_distribution_of_a_mixture(model):
    """A part that is a single value is tested separately, because it is not continuous."""
    draws = model.sample(20_000, rng(1))
    if model.high_variance:
        assert stats.kstest(draws, distribution(model)).pvalue > 1e-3
        return
    high = draws == model.high.mean
    assert stats.binomtest(int(high.sum()), len(draws), 1 - model.p).pvalue > 1e-3
    if model.p:
        assert stats.kstest(draws[~high], stats.uniform(0, 1).cdf).pvalue > 1e-3


def test_the_papers_parameters():
    assert Uniform(MU, spread=1.0).support == (0.0, 2 * MU)
    low, high = Uniform(MU, spread=0.5).support
    assert (low / MU, high / MU) == (pytest.approx(0.293, abs=5e-4), pytest.approx(1.707, abs=5e-4))
    assert Uniform(MU, variance=MU**2 / 3) == Uniform(MU, spread=1.0)
    assert BinaryUniform(0.5, 2000).high.mean == (2000 - 0.25) / 0.5
    gamma = Gamma(0.25, MU)
    assert (gamma.mean, gamma.variance, gamma.support) == (MU, 4 * MU**2, (0.0, np.inf))


def test_moments_are_exact():
    model = BinaryUniform(0.3, 7.0, high_variance=2.0)
    mu_h = (7.0 - 0.15) / 0.7
    assert model.mean == 7.0
    assert model.variance == pytest.approx(0.3 / 3 + 0.7 * (2.0 + mu_h**2) - 49.0, rel=1e-12)


def test_samples_depend_only_on_the_generator():
    for model in MODELS:
        assert np.array_equal(model.sample(50, rng(3)), model.sample(50, rng(3)))
        assert model.sample((2, 5), rng()).shape == (2, 5)
        assert model.sample(0, rng()).shape == (0,)
    generator = rng()
    assert not np.array_equal(MODELS[-1].sample(9, generator), MODELS[-1].sample(9, generator))


def test_models_are_hashable_and_immutable():
    assert repr(Gamma(1.0, 2.0)) == "Gamma(alpha=1.0, mean=2.0)"
    assert hash(Uniform(2, spread=0)) == hash(Uniform(2.0, variance=0.0))
    with pytest.raises(AttributeError):
        Gamma(1.0, 2.0).mean = 3.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Uniform(3.0, variance=3.1), r"variance must be in \[0, 3\].*got 3.1"),
        (lambda: Uniform(3.0, variance=-1.0), r"variance must be in \[0, 3\]; got -1"),
        (lambda: Uniform(-3.0, variance=0.0), "mean .*>= 0; got -3"),
        (lambda: Uniform(3.0, spread=1.1), r"spread must be in \[0, 1\]; got 1.1"),
        (lambda: Uniform(3.0, spread=-1.0), r"spread must be in \[0, 1\]; got -1"),
        (lambda: Uniform(3.0), "exactly one of variance and spread"),
        (lambda: Uniform(3.0, 1.0, spread=0.5), "exactly one of variance and spread"),
        (lambda: BinaryUniform(1.0, 5.0), r"p must be in \[0, 1\); got 1"),
        (lambda: BinaryUniform(-0.1, 5.0), r"p must be in \[0, 1\); got -0.1"),
        (lambda: BinaryUniform(0.5, 0.2), "mean must be a finite number >= 0.25; got 0.2 .*p/2"),
        (lambda: BinaryUniform(0.5, 2.0, high_variance=9.0), r"high_variance must be in \[0, 4.08333\].*got 9"),
        (lambda: Gamma(0.0, 1.0), "alpha .*> 0; got 0"),
        (lambda: Gamma(-1.0, 1.0), "alpha .*> 0; got -1"),
        (lambda: Gamma(1.0, 0.0), "mean .*> 0; got 0"),
        (lambda: Gamma(float("nan"), 1.0), "alpha .*got nan"),
        (lambda: Gamma(1.0, 1.0).sample(-1, rng()), "n must be >= 0; got -1"),
        (lambda: corrupt(np.ones(3), np.ones(2), rng()), r"variance .*\(3,\).*got \(2,\)"),
        (lambda: corrupt(np.ones(3), np.ones((3, 1)), rng()), r"variance .*\(3,\).*got \(3, 1\)"),
        (lambda: corrupt(np.ones(2), np.array([1.0, -1.0]), rng()), "variance .*-1 at index 1"),
        (lambda: disturb(np.array([np.nan]), 1.0, rng()), "variance .*nan at index 0"),
        (lambda: disturb(np.ones(2), -1.0, rng()), "d_v .*>= 0; got -1"),
    ],
)  # fmt: skip
def test_infeasible_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gamma("1", 1.0), "alpha .*got '1'"),
        (lambda: Gamma(1.0, 1.0).sample(2.5, rng()), "n must be an integer"),
        (
            lambda: Gamma(1.0, 1.0).sample(2, 0),
            r"generator must be a numpy.random.Generator.*got 0",
        ),
        (lambda: corrupt(np.ones(2), np.ones(2), np.random), "generator must be"),
        (lambda: corrupt(["a"], np.ones(1), rng()), "y must be an array of real numbers"),
        (lambda: corrupt(np.ones(2) * 1j, np.ones(2), rng()), "y .*complex128"),
    ],
)
def test_wrong_types(make, message):
    with pytest.raises(TypeError, match=message):
        make()


def test_corrupted_labels_have_the_requested_noise():
    y = np.linspace(-50, 50, 100_000)
    variance = Gamma(1.0, 9.0).sample(len(y), rng(1))
    z = (corrupt(y, variance, rng(2)) - y) / np.sqrt(variance)
    assert stats.kstest(z, stats.norm.cdf).pvalue > 1e-3
    assert abs(np.corrcoef(z, y)[0, 1]) < 0.02
    assert abs(np.corrcoef(np.abs(z), variance)[0, 1]) < 0.02


def test_corrupt_keeps_shape_and_precision():
    y, variance = np.ones((4, 3), np.float32), np.full((4, 1), 0.5)
    noisy = corrupt(y, variance, rng())
    assert (noisy.shape, noisy.dtype) == ((4, 3), np.float32)
    assert len(np.unique(noisy)) == 12  # every element has its own draw
    assert corrupt(np.arange(3), np.zeros(3), rng()).tolist() == [0.0, 1.0, 2.0]
    assert corrupt(torch.ones(2), torch.zeros(2), rng()).tolist() == [1.0, 1.0]


def test_a_label_of_infinite_variance_becomes_nan():
    noisy = corrupt(np.array([1.0, 2.0]), np.array([np.inf, 0.0]), rng())
    assert np.isnan(noisy[0])
    assert noisy[1] == 2.0


@pytest.mark.parametrize("d_v", [0.5, 1.0, 2.0])
def test_disturbed_variances(d_v):
    variance = np.full(400_000, 6.0)
    disturbed = disturb(variance, d_v, rng(4))
    assert disturbed.min() >= 0
    assert (
        stats.kstest(disturbed, stats.foldnorm(3 / np.sqrt(d_v), scale=2 * np.sqrt(d_v)).cdf).pvalue
        > 1e-3
    )


def test_disturb_changes_signs_as_often_as_in_the_paper():
    """The probability is 0.13% at D_v = 1. The sign is known from the recorded draws."""

    class Spy(np.random.Generator):
        def standard_normal(self, *args, **kwargs):
            self.drawn = super().standard_normal(*args, **kwargs)
            return self.drawn

    spy = Spy(np.random.PCG64(5))
    n = 2_000_000
    disturbed = disturb(np.ones(n), 1.0, spy)
    flipped = spy.drawn / 3 < -1
    np.testing.assert_allclose(disturbed[flipped], -(1 + spy.drawn[flipped] / 3), atol=1e-12)
    assert flipped.mean() == pytest.approx(stats.norm.cdf(-3), rel=0.06)
    assert stats.norm.cdf(-3) == pytest.approx(0.00135, rel=1e-3)


def test_disturb_keeps_0_and_infinity():
    assert disturb(np.array([0.0, np.inf]), 2.0, rng()).tolist() == [0.0, np.inf]
    assert disturb(np.array([3.0]), 0.0, rng()).tolist() == [3.0]
    assert disturb(np.ones(2, np.float32), 1.0, rng()).dtype == np.float32
