"""Scaling of labels, variances, cutoffs and ε together; scaling of features; splits of rows."""

import numpy as np
import pytest
import torch

import biv
from biv.datasets import split_rows
from biv.preprocessing import FeatureScaler, LabelScaler


def rng(seed=0):
    return np.random.default_rng(seed)


def test_clean_labels_get_mean_0_and_variance_1():
    y = rng().gamma(2.0, 50.0, 1000)
    for ddof in (0, 1):
        scaler = LabelScaler.fit(y, ddof=ddof)
        unit = scaler.label(y)
        assert unit.mean() == pytest.approx(0, abs=1e-12)
        assert unit.var(ddof=ddof) == pytest.approx(1, rel=1e-12)
    with_gaps = np.append(y, np.nan)
    assert LabelScaler.fit(with_gaps) == LabelScaler.fit(y)


@pytest.mark.parametrize("kind", [np.asarray, lambda x: torch.tensor(x).double(), lambda x: x[0]])
def test_the_inverse_restores_labels_and_variances(kind):
    scaler = LabelScaler(mean=-3.0, std=12.5)
    raw = kind([7.0, 0.0, 1e6])
    for scale, unscale in (
        (scaler.label, scaler.label_raw),
        (scaler.variance, scaler.variance_raw),
    ):
        assert type(scale(raw)) is type(raw)
        np.testing.assert_allclose(unscale(scale(raw)), raw, rtol=1e-14)
        np.testing.assert_allclose(scale(unscale(raw)), raw, rtol=1e-14)


def test_losses_do_not_depend_on_the_units():
    """If y, σ², cutoff and ε are scaled together, losses differ only by the unit of the loss."""
    scaler = LabelScaler(mean=200.0, std=40.0)
    pred, target = torch.randn(2, 50, generator=torch.Generator().manual_seed(0)).double()
    variance = torch.rand(50, generator=torch.Generator().manual_seed(1)).double()
    raw = [scaler.label_raw(pred), scaler.label_raw(target), scaler.variance_raw(variance)]
    unit = scaler.std**2
    for loss, name in ((biv.biv_loss, "epsilon"), (biv.cutoff_loss, "threshold")):
        normalised = loss(pred, target, variance, **{name: 0.4})
        in_raw = loss(*raw, **{name: scaler.variance_raw(0.4)})
        torch.testing.assert_close(in_raw / unit, normalised)
    iv = biv.iv_loss(pred, target, variance, epsilon=0.4)
    torch.testing.assert_close(biv.iv_loss(*raw, epsilon=scaler.variance_raw(0.4)), iv)


def test_noisy_labels_are_scaled_by_the_statistics_of_the_clean_ones():
    generator = rng(1)
    y = generator.normal(30.0, 4.0, 20_000)
    variance = biv.noise.Gamma(0.5, 100.0).sample(len(y), generator)
    noisy = biv.noise.corrupt(y, variance, generator)
    scaler = LabelScaler.fit(noisy, variance)
    assert scaler.mean == pytest.approx(30.0, abs=0.2)
    assert scaler.std == pytest.approx(4.0, rel=0.03)
    assert LabelScaler.fit(noisy).std > 8  # inflated by the noise


@pytest.mark.parametrize("noisy", [False, True])
def test_every_output_is_scaled_separately(noisy):
    y = rng().normal([5.0, 0.0, -300.0], [2.0, 1e-3, 1e4], (400, 3))
    y[3, 1] = np.nan
    variance = rng(1).gamma(0.5, [1.0, 1e-6, 1e7], (400, 3)) if noisy else None
    scaler = LabelScaler.fit(y, variance)
    for k in range(3):
        alone = LabelScaler.fit(y[:, k], None if variance is None else variance[:, k])
        assert (scaler.mean[k], scaler.std[k]) == (alone.mean, alone.std)
        np.testing.assert_array_equal(scaler.label(y)[:, k], alone.label(y[:, k]))
    for raw in (y, torch.tensor(y), torch.tensor(y, dtype=torch.float32)):
        for scale, unscale in (
            (scaler.label, scaler.label_raw),
            (scaler.variance, scaler.variance_raw),
        ):
            assert type(scale(raw)) is type(raw)
            assert scale(raw).dtype == raw.dtype
            np.testing.assert_allclose(unscale(scale(raw)), raw, rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(scaler.variance_raw(0.05), 0.05 * scaler.std**2)
    one_per_row = np.full((400, 1), 2.0)
    np.testing.assert_allclose(
        scaler.variance(one_per_row), 2.0 / scaler.std**2 * np.ones((400, 3))
    )
    assert scaler == LabelScaler(scaler.mean.copy(), scaler.std.copy())
    assert scaler != LabelScaler(scaler.mean, 2 * scaler.std)
    for wrong in (y[:, :1], y[:, :2], y[:, 0]):
        with pytest.raises(
            ValueError, match=r"the 3 outputs in their last dimension, \(N, 3\); got"
        ):
            scaler.label(wrong)


def test_one_output_of_any_shape_has_numbers():
    y, variance = rng().normal(size=50), rng(1).gamma(1, size=50)
    flat, column = LabelScaler.fit(y, variance), LabelScaler.fit(y[:, None], variance[:, None])
    assert flat == column
    assert hash(flat) == hash(column)
    assert isinstance(column.mean, float)
    assert isinstance(column.std, float)
    assert flat != "a scaler"


def test_features_get_mean_0_and_variance_1():
    x = np.column_stack([rng().normal(5, 3, 100), np.full(100, 0.1), np.arange(100.0)])
    scaler = FeatureScaler.fit(x[:60])
    unit = scaler(x)
    np.testing.assert_allclose(unit[:60].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(unit[:60].std(0, ddof=1), [1, 0, 1])
    assert not unit[:, 1].any()


def test_a_split_is_disjoint_seeded_and_complete():
    split = split_rows(100, train=70, test=30, generator=rng(3))
    assert sorted([*split.train, *split.test]) == list(range(100))
    repeated = split_rows(100, train=70, test=30, generator=rng(3))
    assert np.array_equal(split.train, repeated.train)
    assert np.array_equal(split.test, repeated.test)
    other = split_rows(100, train=70, test=30, generator=rng(4))
    assert not np.array_equal(split.train, other.train)
    smaller = split_rows(100, train=30, test=30, generator=rng(3))
    assert np.array_equal(smaller.test, split.test)
    assert np.array_equal(smaller.train, split.train[:30])
    part = split_rows(100, train=10, test=5, generator=rng(3))
    assert (len(part.train), len(part.test)) == (10, 5)
    assert not set(part.train) & set(part.test)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: split_rows(10, train=8, test=3, generator=rng()), ValueError, r"train \+ test must be at most the number of rows, 10; got 8 \+ 3 = 11"),
        (lambda: split_rows(10, train=0, test=3, generator=rng()), ValueError, "train must be an integer >= 1; got 0"),
        (lambda: split_rows(10, train=2.5, test=3, generator=rng()), TypeError, "train must be an integer >= 1; got 2.5"),
        (lambda: split_rows(10, train=2, test=3, generator=7), TypeError, "generator must be a numpy.random.Generator"),
        (lambda: LabelScaler(0.0, 0.0), ValueError, "std .*> 0; got 0"),
        (lambda: LabelScaler(float("nan"), 1.0), ValueError, "mean must be a finite number; got nan"),
        (lambda: LabelScaler.fit(np.ones(5)), ValueError, "y must vary.*got variance 0"),
        (lambda: LabelScaler.fit(np.ones(1)), ValueError, "y must hold more than 1 label; got 1"),
        (lambda: LabelScaler.fit(np.ones(3), np.ones(2)), ValueError, r"variance .*\(3,\); got \(2,\)"),
        (lambda: LabelScaler.fit(np.eye(3)[:, :2] * [1, 0]), ValueError, "output 1: y must vary.*got variance 0"),
        (lambda: LabelScaler.fit(np.ones((3, 2)), np.ones(3)), ValueError, r"variance .*\(3, 2\) or \(3, 1\); got \(3,\)"),
        (lambda: LabelScaler(0.0, np.ones(2)), ValueError, r"two numbers or two arrays of shape \(D,\); got shapes \(\) and \(2,\)"),
        (lambda: LabelScaler(np.zeros(2), np.array([1.0, 0.0])), ValueError, "std .*> 0; got 0"),
        (lambda: FeatureScaler.fit(np.ones(3)), ValueError, r"x must have shape \(N, D\).*got \(3,\)"),
        (lambda: FeatureScaler.fit(np.ones((3, 2)))(np.ones((3, 3))), ValueError, r"x must have shape \(N, 2\); got \(3, 3\)"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
