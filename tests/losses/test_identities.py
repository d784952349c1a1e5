"""Identities stated in docstrings that no other test covers."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import biv
from biv import labels, metrics
from biv.epsilon import Fixed, MinimumBatchSize, Relative
from biv.noise import BinaryUniform, Gamma, Uniform, corrupt, disturb
from biv.preprocessing import LabelScaler

N = 60
TIGHT = {"rtol": 1e-12, "atol": 1e-12}
SHIFT, SCALE = 7.5, 3.0


@pytest.fixture
def scored():
    """Predictions, noisy labels and their variances, as arrays."""
    rng = np.random.default_rng(0)
    variance = rng.gamma(1.0, 2.0, N) + 0.01
    return rng.normal(size=N), rng.normal(size=N) + rng.normal(0, np.sqrt(variance)), variance


@pytest.fixture
def batch(scored):
    return tuple(torch.tensor(column) for column in scored)


def assert_close(result, expected, rtol=1e-9):
    np.testing.assert_allclose(np.array(result), np.array(expected), rtol=rtol, atol=1e-12)


# ---- losses and weights --------------------------------------------------------------------------


def test_l2_is_torchs_mean_squared_error_for_all_finite_variances(batch):
    pred, target, variance = batch
    torch.testing.assert_close(biv.l2_loss(pred, target, variance), F.mse_loss(pred, target))
    torch.testing.assert_close(biv.l2_loss(pred, target), F.mse_loss(pred, target))


@pytest.mark.parametrize("epsilon", [0.0, 0.3, MinimumBatchSize(fraction=0.5)])
def test_iv_is_biv_times_the_mean_weight_of_the_elements_used(batch, epsilon):
    pred, target, variance = batch
    mask = torch.arange(N) % 3 > 0
    known = torch.where(torch.arange(N) % 7 > 0, target, torch.nan)
    used = mask & ~known.isnan()
    number = biv.epsilon.as_policy(epsilon).resolve(torch.where(used, variance, torch.inf))
    mean = biv.inverse_variance_weights(variance[used], number).mean()
    iv, normalised = (
        loss(pred, known, variance, epsilon=epsilon, mask=mask)
        for loss in (biv.iv_loss, biv.biv_loss)
    )
    torch.testing.assert_close(iv, normalised * mean, **TIGHT)


def test_iv_has_twice_the_gradient_of_the_gaussian_likelihood(batch):
    pred, target, variance = batch
    slopes = []
    for loss in (biv.iv_loss, torch.nn.GaussianNLLLoss(eps=1e-12)):
        leaf = pred.clone().requires_grad_()
        loss(leaf, target, variance).backward()
        slopes.append(leaf.grad)
    torch.testing.assert_close(slopes[0], 2 * slopes[1], **TIGHT)


def test_scaling_variances_divides_iv(batch):
    pred, target, variance = batch
    one = biv.iv_loss(pred, target, variance, epsilon=0.3)
    four = biv.iv_loss(pred, target, 4 * variance, epsilon=1.2)
    torch.testing.assert_close(4 * four, one, **TIGHT)


def test_cutoff_weights_are_those_of_the_loss_and_scale_invariant(batch):
    pred, target, variance = batch
    kept = biv.cutoff_weights(variance, 1.5)
    assert 0 < kept.sum() < N
    torch.testing.assert_close(
        biv.l2_loss(pred, target, sample_weight=kept),
        biv.cutoff_loss(pred, target, variance, threshold=1.5),
        **TIGHT,
    )
    assert torch.equal(biv.cutoff_weights(4 * variance, 4 * 1.5), kept)


def test_a_relative_epsilon_is_an_absolute_one_in_unit_variance(batch):
    pred, target, variance = batch
    scaler = LabelScaler(mean=200.0, std=40.0)
    raw = scaler.label_raw(pred), scaler.label_raw(target), scaler.variance_raw(variance)
    policy = Relative(0.05, label_variance=scaler.std**2)
    assert policy.resolve(variance) == Fixed(0.05 * 1600.0).resolve(variance)
    torch.testing.assert_close(
        scaler.variance(biv.biv_loss(*raw, epsilon=policy)),
        biv.biv_loss(pred, target, variance, epsilon=0.05),
    )


def test_a_minimum_batch_size_scales_with_the_variances(batch):
    *_, variance = batch
    for policy in (MinimumBatchSize(40), MinimumBatchSize(fraction=2 / 3)):
        epsilon = policy.resolve(variance)
        weights = biv.inverse_variance_weights(variance, float(epsilon))
        assert float(biv.effective_batch_size(weights)) == pytest.approx(40, rel=2e-6)
        assert float(policy.resolve(100 * variance)) == pytest.approx(100 * float(epsilon))
    assert MinimumBatchSize(40).resolve(torch.full((N,), 2.0)) == 0


# ---- scores --------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.3}, {"weighted": False}], ids=str)
def test_a_noise_corrected_error_with_equal_variances_and_shifted_labels(scored, options):
    pred, target, variance = scored
    error = np.mean((pred - target) ** 2)
    for equal in (0.0, 0.7):
        result = metrics.noise_corrected_mse(pred, target, np.full(N, equal), **options)
        assert result.value == pytest.approx(error - equal)
    one = metrics.noise_corrected_mse(pred, target, variance, **options)
    assert_close(
        metrics.noise_corrected_mse(pred + SHIFT, target + SHIFT, variance, **options), one
    )


@pytest.mark.parametrize("options", [{}, {"epsilon": 0.3}, {"weighted": False}], ids=str)
def test_exchanging_the_models_changes_the_sign_of_a_difference(scored, options):
    pred, target, variance = scored
    other = pred + 0.3 * np.cos(np.arange(N))
    one = metrics.noise_corrected_difference(pred, other, target, variance, **options)
    two = metrics.noise_corrected_difference(other, pred, target, variance, **options)
    assert_close(two, (-one.value, one.stderr))
    assert abs(one.value) > 1e-6


@pytest.mark.parametrize("weighted", [True, False])
def test_r2_of_clean_labels_and_in_other_units(scored, weighted):
    pred, target, variance = scored
    clean = metrics.noise_corrected_r2(pred, target, np.zeros(N), weighted=weighted)
    expected = 1 - np.mean((pred - target) ** 2) / target.var(ddof=1)
    assert clean.value == pytest.approx(expected)
    one = metrics.noise_corrected_r2(pred, target, variance, weighted=weighted)
    two = metrics.noise_corrected_r2(
        SCALE * pred + SHIFT, SCALE * target + SHIFT, SCALE**2 * variance, weighted=weighted
    )
    assert_close(two, one, rtol=1e-6)


def test_r2_of_perfect_predictions_is_above_one_by_the_noise(scored):
    """With f = ỹ, which no model reaches, σ² is subtracted from an error of 0."""
    _, target, _ = scored
    result = metrics.noise_corrected_r2(target, target, np.full(N, 0.4), weighted=False)
    assert result.value == pytest.approx(1 + 0.4 / (target.var(ddof=1) - 0.4))


def test_chi_squared_is_the_inverse_variance_loss(scored):
    loss = biv.iv_loss(*map(torch.tensor, scored), epsilon=0.3)
    one = metrics.reduced_chi_squared(*scored, epsilon=0.3)
    assert one.value == pytest.approx(float(loss))
    fitted = metrics.reduced_chi_squared(*scored, epsilon=0.3, parameters=10)
    assert_close(fitted, np.array(one) * N / (N - 10))
    pred, target, variance = scored
    assert_close(
        metrics.reduced_chi_squared(pred, target, 4 * variance, epsilon=1.2), np.array(one) / 4
    )


def test_label_and_residual_variance_scale_with_the_unit(scored):
    pred, target, variance = scored
    spread = metrics.label_variance(target, variance)
    assert metrics.label_variance(
        SCALE * target + SHIFT, SCALE**2 * variance
    ) == pytest.approx(SCALE**2 * spread)  # fmt: skip
    tau2 = metrics.residual_variance(pred, target, variance)
    assert metrics.residual_variance(
        SCALE * pred + SHIFT, SCALE * target + SHIFT, SCALE**2 * variance
    ) == pytest.approx(SCALE**2 * tau2)
    assert metrics.reduced_chi_squared(pred, target, variance, epsilon=tau2).value == (
        pytest.approx(1)
    )


@pytest.mark.parametrize("equal", [0.0, 0.7, 1e3])
def test_residual_variance_with_equal_variances_is_the_error_minus_them(scored, equal):
    pred, target, _ = scored
    expected = max(np.mean((pred - target) ** 2) - equal, 0.0)
    result = metrics.residual_variance(pred, target, np.full(N, equal))
    assert result == pytest.approx(expected, rel=1e-9)


def test_an_effective_sample_size_is_that_of_squared_weights(scored):
    *_, variance = scored
    size = metrics.effective_sample_size(variance, epsilon=0.3)
    weights = biv.inverse_variance_weights(variance, 0.3)
    assert size == pytest.approx(float(biv.effective_batch_size(weights**2)))
    assert size < float(biv.effective_batch_size(weights))
    assert metrics.effective_sample_size(9 * variance, epsilon=2.7) == pytest.approx(size)
    assert metrics.effective_sample_size(np.full(N, 0.2), epsilon=0.0) == N
    rising = [metrics.effective_sample_size(variance, epsilon=e) for e in np.geomspace(1e-3, 1e3)]
    assert (np.diff(rising) > 0).all()


def test_a_steady_epsilon_gives_enough_effective_labels(scored):
    *_, variance = scored
    for estimate, raised in ((1e-4, True), (50.0, False)):
        result = metrics.steady_epsilon(estimate, variance)
        assert result > estimate if raised else result == estimate
        assert metrics.effective_sample_size(variance, epsilon=result) >= 30 * (1 - 1e-9)
        scaled = metrics.steady_epsilon(9 * estimate, 9 * variance)
        assert scaled == pytest.approx(9 * result)


# ---- labels --------------------------------------------------------------------------------------


def columns(*ranges):
    rng = np.random.default_rng(1)
    return [rng.uniform(low, high, N) for low, high in ranges]


def assert_pairs_close(result, expected):
    assert_close(result.y, expected[0])
    assert_close(result.variance, expected[1])


def test_an_interval_is_a_plus_minus_about_its_middle():
    middle, half = columns((-5, 5), (0, 3))
    for level in (0.5, 0.95):
        result = labels.interval(middle - half, middle + half, level=level)
        assert_pairs_close(result, labels.plus_minus(middle, half, level=level))
    one_sigma = labels.plus_minus(middle, half, level=math.erf(math.sqrt(0.5)))
    assert_pairs_close(one_sigma, (middle, half**2))
    other = half[::-1]
    for centre in ("median", "mode"):
        assert_pairs_close(
            labels.asymmetric(middle, half, half, level=0.5, centre=centre),
            labels.plus_minus(middle, half, level=0.5),
        )
        one = labels.asymmetric(middle, half, other, centre=centre)
        two = labels.asymmetric(middle, other, half, centre=centre)
        assert_close(one.variance, two.variance)
        assert_close(one.y - middle, middle - two.y)
    evenly = labels.plus_minus(middle, half)
    assert_close(evenly.variance, (2 * half) ** 2 / 12)  # that of a uniform distribution


def test_samples_and_ensembles():
    values = np.random.default_rng(2).normal(size=(N, 9))
    own_variance = np.random.default_rng(3).gamma(1.0, size=(9, N))
    drawn = labels.samples(values)
    assert_pairs_close(
        labels.samples(SCALE * values + SHIFT), (SCALE * drawn.y + SHIFT, 9 * drawn.variance)
    )
    assert_pairs_close(labels.samples(values.T, axis=0), drawn)
    assert_pairs_close(labels.ensemble(values.T), drawn)
    agreeing = labels.ensemble(np.ones((9, N)), own_variance)
    assert_pairs_close(agreeing, (np.ones(N), own_variance.mean(axis=0)))
    twice = labels.ensemble(values.T, correlation=1 / 3).variance / drawn.variance
    assert_close(twice, np.full(N, (2 + 1 / 9) / (1 + 1 / 9)))
    spread = [
        labels.ensemble(values.T, own_variance, correlation=r).variance - own_variance.mean(0)
        for r in (0, 1 / 3)
    ]
    assert_close(spread[1] / spread[0], twice)


def test_a_component_of_a_state_is_a_unit_weight():
    rng = np.random.default_rng(4)
    root = rng.normal(size=(3, 3))
    state = (rng.normal(size=3), root @ root.T)
    assert_pairs_close(labels.posterior(state, 1), labels.posterior(state, [0.0, 1.0, 0.0]))
    one, twice = (
        labels.posterior(state, [1.0, -2.0, 0.5]),
        labels.posterior(state, [2.0, -4.0, 1.0]),
    )
    assert_pairs_close(twice, (2 * one.y, 4 * one.variance))


def test_a_poll_of_the_whole_population_and_a_complementary_poll():
    share, count = columns((0, 1), (50, 90))
    result = labels.poll(share, count)
    assert_pairs_close(labels.poll(1 - share, count), (1 - share, result.variance))
    assert_pairs_close(
        labels.poll(share, count, design_effect=1.7), labels.poll(share, count / 1.7)
    )
    assert (labels.poll(share, 80.0, population=80).variance == 0).all()


def test_counts_and_their_exposure():
    a, b = (column.round() for column in columns((0, 50), (1, 90)))
    one, half = labels.counts(a), labels.counts(a, 4.0)
    assert_pairs_close(half, (one.y / 4, one.variance / 16))
    logs = labels.log_counts(a)
    assert_pairs_close(labels.log_counts(a, 4.0), (logs.y - math.log(4), logs.variance))
    others, ratio = labels.log_counts(b), labels.log_count_ratio(a, b)
    assert_pairs_close(ratio, (logs.y - others.y, logs.variance + others.variance))
    assert_pairs_close(labels.log_count_ratio(b, a), (-ratio.y, ratio.variance))
    a, b = 1e9 * (1 + a), 1e9 * b
    np.testing.assert_allclose(
        labels.count_ratio(a, b).variance,
        (a / b) ** 2 * labels.log_count_ratio(a, b).variance,
        rtol=1e-7,
    )


def test_bootstrapped_targets_without_discount_and_at_the_end():
    reward, value, variance, own_variance = columns((-1, 1), (-5, 5), (0, 2), (0, 1))
    undiscounted = labels.bootstrapped(reward, value, variance, gamma=1.0)
    assert_pairs_close(undiscounted, (reward + value, variance))
    ended = labels.bootstrapped(
        reward, value, variance, gamma=0.9, terminal=np.ones(N, bool), reward_variance=own_variance
    )
    assert_pairs_close(ended, (reward, own_variance))


def crowd():
    rng = np.random.default_rng(5)
    items, raters = rng.integers(0, 20, size=200), rng.integers(0, 6, size=200)
    return items, rng.normal(size=200) + items, raters


def test_repeats_scale_with_the_unit_and_ignore_the_order():
    items, values, _ = crowd()
    result, order = labels.repeats(items, values), np.random.default_rng(6).permutation(200)
    assert_pairs_close(labels.repeats(items[order], values[order]), result)
    scaled = labels.repeats(items, SCALE * values + SHIFT)
    assert_pairs_close(scaled, (SCALE * result.y + SHIFT, SCALE**2 * result.variance))
    assert_pairs_close(labels.ratings(items, values), result)


def test_a_stricter_rater_shifts_all_items_equally():
    items, values, raters = crowd()
    result = labels.ratings(items, values, raters)
    stricter = labels.ratings(items, values - SHIFT * (raters == 2), raters)
    expected_shift = -SHIFT * np.mean(raters == 2)
    np.testing.assert_allclose(stricter.y, result.y + expected_shift, atol=1e-7)
    np.testing.assert_allclose(stricter.variance, result.variance, rtol=1e-6)


# ---- noise and units -----------------------------------------------------------------------------


def test_moments_of_noise_models():
    for spread in (0.0, 0.4, 1.0):
        model = Uniform(5.0, spread=spread)
        low, high = model.support
        assert (low + high) / 2 == pytest.approx(model.mean)
        assert (high - low) ** 2 / 12 == pytest.approx(model.variance)
    two = BinaryUniform(0.3, mean=6.0, high_variance=2.0)
    assert 0.3 * two.low.mean + 0.7 * two.high.mean == pytest.approx(two.mean)
    one = BinaryUniform(0.0, mean=6.0, high_variance=2.0)
    assert (one.variance, one.support) == (pytest.approx(2.0), Uniform(6.0, 2.0).support)
    assert Gamma(1.0, 6.0).variance == 36.0  # an exponential distribution
    drawn, twice = (Gamma(0.5, mean).sample(50, np.random.default_rng(7)) for mean in (6.0, 12.0))
    assert_close(twice, 2 * drawn)


def test_noise_scales_with_the_unit_of_the_labels(scored):
    y, _, variance = scored
    noisy = corrupt(y, variance, np.random.default_rng(8))
    assert_close(
        corrupt(SCALE * y + SHIFT, SCALE**2 * variance, np.random.default_rng(8)),
        SCALE * noisy + SHIFT,
    )
    disturbed = disturb(variance, 0.7, np.random.default_rng(9))
    assert_close(disturb(SCALE * variance, 0.7, np.random.default_rng(9)), SCALE * disturbed)


def test_a_scaler_maps_labels_and_variances_consistently(scored):
    _, y, variance = scored
    scaler = LabelScaler.fit(y)
    assert scaler.label(y).var(ddof=1) == pytest.approx(scaler.variance(y.var(ddof=1)))
    chi = metrics.reduced_chi_squared(np.zeros(N), y, variance)
    assert_close(
        metrics.reduced_chi_squared(
            scaler.label(np.zeros(N)), scaler.label(y), scaler.variance(variance)
        ),
        chi,
    )
