"""The smallest ε that reaches an effective batch size, and the policies for ε."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import brentq

import biv
from biv.epsilon import Fixed, MinimumBatchSize, Relative, as_policy
from helpers.reference import reference_batch_size

SMALL_TO_LARGE = st.floats(-12, 12).map(lambda exponent: 10.0**exponent)
VARIANCES = hnp.arrays(
    np.float64, st.integers(1, 40), elements=st.just(0.0) | st.just(np.inf) | SMALL_TO_LARGE
)


def batch_size(variance, epsilon):
    return biv.effective_batch_size(biv.inverse_variance_weights(variance, epsilon))


@given(variance=VARIANCES, fraction=st.floats(0.01, 1.0))
def test_epsilon_is_the_smallest_that_reaches_the_size(variance, fraction):
    available = np.isfinite(variance).sum()
    if not available:
        return
    size = max(fraction * available, 1e-3)
    epsilon = biv.epsilon_for_batch_size(variance, size)
    goal = size * (1 - 1e-6)
    assert epsilon >= 0
    assert batch_size(variance, epsilon) >= goal * (1 - 1e-12)
    if epsilon > 0:
        assert batch_size(variance, epsilon * (1 - 1e-6)) < goal


@pytest.mark.parametrize("scale", [1e-300, 1e-12, 1.0, 1e12, 1e290])
@pytest.mark.parametrize("size", [12, 20, 60, 63.9])
def test_against_scipys_root(scale, size):
    variance = np.random.default_rng(0).gamma(0.5, size=64)
    expected = brentq(
        lambda e: reference_batch_size(1 / (variance + e)) - size * (1 - 1e-6), 0, 1e5, xtol=1e-14
    )
    assert biv.epsilon_for_batch_size(variance * scale, size) == pytest.approx(
        expected * scale, rel=1e-8
    )


def test_a_root_far_below_the_smallest_positive_variance():
    variance = np.append(np.zeros(1000), 1.0)
    expected = brentq(
        lambda e: reference_batch_size(1 / (variance + e)) - 1000.003 * (1 - 1e-6),
        1e-9,
        1,
        xtol=1e-14,
    )
    assert expected < 2e-3
    assert biv.epsilon_for_batch_size(variance, 1000.003) == pytest.approx(expected, rel=1e-6)


def test_zeros_and_infinities():
    variance = np.array([0.0, 0.0, 1.0, 1.0, np.inf])
    assert biv.epsilon_for_batch_size(variance, 2) == 0  # the two trusted labels already reach it
    epsilon = biv.epsilon_for_batch_size(variance, 3)
    assert batch_size(variance, epsilon) == pytest.approx(3, rel=2e-6)
    assert biv.epsilon_for_batch_size(np.zeros(5), 5) == 0
    assert biv.epsilon_for_batch_size(np.full(5, 3.0), 5) == 0
    assert biv.epsilon_for_batch_size(np.array([1e-12, np.inf]), 1) == 0


def test_a_size_of_all_elements_is_reached_within_the_tolerance():
    variance = np.array([0.0, 1.0, 5.0])
    epsilon = biv.epsilon_for_batch_size(variance, 3)
    assert np.isfinite(epsilon)
    assert batch_size(variance, epsilon) >= 3 * (1 - 1e-6)


def test_vectorised_along_dim():
    variance = (
        torch.rand(3, 4, 5, dtype=torch.float64) * torch.tensor([1e-12, 1.0, 1e12])[:, None, None]
    )
    epsilon = biv.epsilon_for_batch_size(variance, 15, dim=(1, 2))
    assert epsilon.shape == (3,)
    for row in range(3):
        assert epsilon[row].item() == biv.epsilon_for_batch_size(variance[row].numpy(), 15)
    assert biv.epsilon_for_batch_size(variance.numpy(), 4, dim=-1).shape == (3, 4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_single_precision(dtype):
    variance = torch.rand(64, dtype=torch.float64).to(dtype)
    epsilon = biv.epsilon_for_batch_size(variance, 60)
    assert epsilon.dtype == torch.float32
    assert epsilon.shape == ()
    assert batch_size(variance.double(), epsilon.double()) >= 60 * (1 - 1e-6)


def test_the_result_can_be_passed_to_a_loss():
    pred, target, variance = torch.rand(3, 16)
    for epsilon in (
        biv.epsilon_for_batch_size(variance, 12),
        biv.epsilon_for_batch_size(variance.numpy(), 12),
    ):
        loss = biv.biv_loss(pred, target, variance, epsilon=epsilon)
        torch.testing.assert_close(loss, biv.BIVLoss(MinimumBatchSize(12))(pred, target, variance))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: biv.epsilon_for_batch_size(np.ones(3), 4), ValueError, "size must be at most 3, since only 3 elements have a finite variance; got 4"),
        (lambda: biv.epsilon_for_batch_size(np.array([1.0, np.inf]), 2), ValueError, "size must be at most 1, since only 1 element has a finite variance; got 2"),
        (lambda: biv.epsilon_for_batch_size(np.array([[1.0, 1.0], [1.0, np.inf]]), 2, dim=1), ValueError, r"at most 1, .* in batch \(1,\); got 2"),
        (lambda: biv.epsilon_for_batch_size(np.zeros(0), 1), ValueError, "size must be at most 0, .* 0 elements"),
        (lambda: biv.epsilon_for_batch_size(np.ones(3), 0), ValueError, "size .*> 0; got 0"),
        (lambda: biv.epsilon_for_batch_size(np.ones(3), float("nan")), ValueError, "size .*got nan"),
        (lambda: biv.epsilon_for_batch_size(np.ones(3), "2"), TypeError, "size .*got '2'"),
        (lambda: biv.epsilon_for_batch_size(-np.ones(3), 2), ValueError, "variance .*-1 at index 0"),
        (lambda: biv.epsilon_for_batch_size(np.ones(3) * np.nan, 2), ValueError, "variance .*nan at index 0"),
        (lambda: biv.epsilon_for_batch_size(torch.ones(3, dtype=torch.int8), 2), TypeError, "variance .*torch.int8"),
        (lambda: biv.epsilon_for_batch_size(np.ones(3), 2, dim=1), ValueError, "dim must be in"),
    ],
)  # fmt: skip
def test_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_policies():
    variance = torch.tensor([0.5, 2.0, torch.inf])
    assert as_policy(0.3) == Fixed(0.3)
    assert as_policy(policy := Relative(0.05, 40.0)) is policy
    assert policy.resolve(variance) == 2.0
    assert MinimumBatchSize(1).resolve(variance) == 0
    expected = biv.epsilon_for_batch_size(variance, 1.8)
    assert MinimumBatchSize(1.8).resolve(variance) == expected
    assert MinimumBatchSize(fraction=0.9).resolve(variance) == expected
    assert MinimumBatchSize(fraction=1.0).resolve(torch.full((3,), torch.inf)) == 0
