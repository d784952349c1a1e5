"""Weights computed from variances, and Kish's effective batch size."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import biv
from helpers.reference import reference_batch_size

SCALES = st.floats(-300, 300).map(lambda exponent: 10.0**exponent)
VARIANCES = hnp.arrays(
    np.float64, st.integers(1, 30), elements=st.just(0.0) | st.just(np.inf) | SCALES
)


def test_inverse_variance_weights():
    variance = np.array([0.0, 0.25, 1.0, np.inf])
    np.testing.assert_array_equal(
        biv.inverse_variance_weights(variance, 0.25), [4.0, 2.0, 0.8, 0.0]
    )
    np.testing.assert_array_equal(biv.inverse_variance_weights(variance), [np.inf, 4.0, 1.0, 0.0])


def test_cutoff_weights_are_strict():
    variance = np.array([0.0, 0.5, 1.0, np.inf])
    np.testing.assert_array_equal(biv.cutoff_weights(variance, 0.5), [1, 0, 0, 0])
    np.testing.assert_array_equal(biv.cutoff_weights(variance, np.inf), [1, 1, 1, 0])


@pytest.mark.parametrize(
    "function", [biv.inverse_variance_weights, lambda v: biv.cutoff_weights(v, 2)]
)
def test_the_result_has_the_type_of_the_argument(function):
    array = np.linspace(1, 3, 4)
    expected = function(array)
    assert isinstance(expected, np.ndarray)
    for tensor in (torch.tensor(array), torch.tensor(array, dtype=torch.float32)):
        weights = function(tensor)
        assert isinstance(weights, torch.Tensor)
        assert weights.dtype == tensor.dtype
        np.testing.assert_allclose(weights.numpy(), expected, rtol=1e-6)


def test_unusual_arrays_are_accepted():
    """Big-endian (FITS), read-only, reversed, integer and long arrays, lists and scalars."""
    plain = np.array([1.0, 2.0, 4.0])
    read_only = plain.copy()
    read_only.flags.writeable = False
    for array in (
        plain.astype(">f8"),
        plain.astype(">f4"),
        read_only,
        plain[::-1].copy()[::-1],
        plain.astype(int),
        plain.astype(np.longdouble),
        plain.tolist(),
    ):
        np.testing.assert_array_equal(biv.inverse_variance_weights(array), [1.0, 0.5, 0.25])
    assert biv.inverse_variance_weights(4.0) == 0.25


def test_the_argument_is_not_modified():
    array, tensor = np.array([1.0, 2.0]), torch.tensor([1.0, 2.0])
    biv.inverse_variance_weights(array)[:] = 7
    biv.cutoff_weights(tensor, 2.0)[:] = 7
    assert array.tolist() == tensor.tolist() == [1.0, 2.0]


def test_half_precision_weights_do_not_overflow():
    tiny = torch.tensor([1e-6], dtype=torch.float16)
    weights = biv.inverse_variance_weights(tiny)
    assert weights.dtype == torch.float32
    assert weights.isfinite().all()


def test_one_epsilon_per_row():
    variance = torch.rand(3, 5, dtype=torch.float64)
    epsilon = biv.epsilon_for_batch_size(variance, 4.5, dim=1)
    weights = biv.inverse_variance_weights(variance, epsilon[:, None])
    assert (biv.effective_batch_size(weights, dim=1) >= 4.5 * (1 - 1e-6)).all()


@given(variance=VARIANCES, epsilon=st.just(0.0) | SCALES)
def test_batch_size_is_kishs_and_within_bounds(variance, epsilon):
    weights = biv.inverse_variance_weights(variance, epsilon)
    size = biv.effective_batch_size(weights)
    assert size == pytest.approx(reference_batch_size(weights), rel=1e-9)
    if weights.any():
        assert 1 <= size <= len(weights)
    else:
        assert size == 0


@given(variance=VARIANCES, epsilons=st.tuples(SCALES, SCALES))
def test_batch_size_does_not_decrease_as_epsilon_grows(variance, epsilons):
    small, large = (
        biv.effective_batch_size(biv.inverse_variance_weights(variance, epsilon))
        for epsilon in sorted(epsilons)
    )
    assert small <= large * (1 + 1e-12)


@given(n=st.integers(1, 1000), scale=SCALES)
def test_equal_weights_all_count(n, scale):
    assert biv.effective_batch_size(np.full(n, scale)) == n
    assert biv.effective_batch_size(torch.full((n,), 1e-30)) == n


def test_batch_size_along_dimensions():
    weights = torch.rand(3, 4, 5, dtype=torch.float64)
    rows = biv.effective_batch_size(weights, dim=-1)
    assert rows.shape == (3, 4)
    assert rows[1, 2] == pytest.approx(reference_batch_size(weights[1, 2]))
    both = biv.effective_batch_size(weights.numpy(), dim=(0, 2))
    assert both.shape == (4,)
    assert both[3] == pytest.approx(reference_batch_size(weights[:, 3]))
    assert isinstance(rows, torch.Tensor)
    assert isinstance(both, np.ndarray)
    first = biv.effective_batch_size(weights, dim=-3)  # counted from the end, the first of three
    assert torch.equal(first, biv.effective_batch_size(weights, dim=0))


def test_batch_size_of_zero_or_infinite_weights_and_empty_arrays():
    assert biv.effective_batch_size(np.array([np.inf, np.inf, 3.0])) == 2
    assert biv.effective_batch_size(np.zeros(4)) == 0
    assert biv.effective_batch_size(torch.zeros(0)) == 0
    assert biv.effective_batch_size(np.zeros((3, 0)), dim=1).tolist() == [0, 0, 0]
    assert biv.effective_batch_size(torch.tensor(0.3)) == 1


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: biv.inverse_variance_weights(np.array([1.0, -1.0])), ValueError, "variance must be non-negative.*-1 at index 1"),
        (lambda: biv.inverse_variance_weights(np.array([np.nan])), ValueError, "variance .*nan at index 0"),
        (lambda: biv.inverse_variance_weights(-1.0), ValueError, "variance .*-1 at its one element"),
        (lambda: biv.inverse_variance_weights("1"), TypeError, "variance must be an array of real numbers; got '1'"),
        (lambda: biv.inverse_variance_weights(np.ones(2) * 1j), TypeError, "variance .*complex128"),
        (lambda: biv.inverse_variance_weights(torch.ones(2, dtype=torch.long)), TypeError, "variance .*torch.int64"),
        (lambda: biv.inverse_variance_weights(torch.ones(2, dtype=torch.cfloat)), TypeError, "variance .*complex64"),
        (lambda: biv.inverse_variance_weights(torch.ones(2), -1.0), ValueError, "epsilon .*>= 0; got -1"),
        (lambda: biv.inverse_variance_weights(torch.ones(2), "1"), TypeError, "epsilon .*got '1'"),
        (lambda: biv.inverse_variance_weights(torch.ones(2), torch.ones(3)), ValueError, r"epsilon must broadcast .*\(2,\); got \(3,\)"),
        (lambda: biv.inverse_variance_weights(torch.ones(2), torch.ones(2, 2)), ValueError, r"epsilon must broadcast .*\(2,\); got \(2, 2\)"),
        (lambda: biv.inverse_variance_weights(torch.ones(2), -torch.ones(2)), ValueError, "epsilon must be finite and >= 0; got -1"),
        (lambda: biv.cutoff_weights(torch.ones(2), 0.0), ValueError, "threshold .*> 0; got 0"),
        (lambda: biv.cutoff_weights(torch.ones(2), float("nan")), ValueError, "threshold .*got nan"),
        (lambda: biv.cutoff_weights(torch.ones(2), "1"), TypeError, "threshold .*got '1'"),
        (lambda: biv.cutoff_weights(-np.ones(2), 1.0), ValueError, "variance .*-1 at index 0"),
        (lambda: biv.effective_batch_size(np.array([1.0, -1.0])), ValueError, "weights must be non-negative numbers; .*-1 at index 1"),
        (lambda: biv.effective_batch_size(np.array([np.nan])), ValueError, "weights .*nan"),
        (lambda: biv.effective_batch_size(torch.ones(3), dim=1), ValueError, r"dim must be in \[-1, 0\]; got 1"),
        (lambda: biv.effective_batch_size(torch.ones(3), dim=(0, 0)), ValueError, "dim must name each dimension once"),
        (lambda: biv.effective_batch_size(torch.ones(3), dim="0"), TypeError, "dim must be an integer.*got '0'"),
        (lambda: biv.effective_batch_size(torch.ones(3), dim=0.5), TypeError, "dim must be an integer"),
        (lambda: biv.inverse_variance_weights(np.ones(2), np.array(["1", "2"])), TypeError, "epsilon must"),
    ],
)  # fmt: skip
def test_bad_input(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
