"""Arguments that the functions of biv.labels accept and reject, and the types they return."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from biv import labels


def test_items_may_be_text_and_are_returned_sorted():
    result = labels.ratings(["b", "a", "b", "a"], [1.0, 2.0, 3.0, 6.0])
    y, variance = pickle.loads(pickle.dumps(result))
    assert np.array_equal(y, result.y)
    assert np.array_equal(variance, result.variance)
    assert result.items.tolist() == ["a", "b"]
    assert result.y.tolist() == [4.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_give_tensors_of_the_same_dtype(dtype):
    ones = torch.ones(3, dtype=dtype)
    for result in (
        labels.plus_minus(ones, ones, level=0.9),
        labels.interval(ones, 2 * ones),
        labels.asymmetric(ones, ones, 2 * ones),
        labels.samples(torch.randn(3, 5, dtype=dtype)),
        labels.ensemble(torch.randn(5, 3, dtype=dtype), torch.ones(5, 3, dtype=dtype)),
        labels.bootstrapped(ones, ones, ones, gamma=0.9, terminal=torch.tensor([0, 1, 0])),
    ):
        for tensor in result:
            assert tensor.dtype == dtype
            assert tensor.shape == (3,)


def test_read_only_arrays_are_accepted():
    result = labels.bootstrapped(
        *np.broadcast_to(1.0, (3, 2)), gamma=0.5, terminal=np.broadcast_to([True, False], (2,))
    )
    assert result.y.tolist() == [1.0, 1.5]


def test_replacing_a_field_keeps_items_and_counts():
    result = labels.repeats(["a", "a", "b", "b"], [1.0, 2.0, 3.0, 5.0])
    other = result._replace(variance=result.variance * 2)
    assert (other.variance == 2 * result.variance).all()
    assert (other.items == result.items).all()
    assert (other.counts == result.counts).all()


def test_the_value_of_a_terminal_state_is_ignored():
    y, variance = labels.bootstrapped(
        [1.0, 1.0], [np.nan, 2.0], [np.nan, 1.0], gamma=1.0, terminal=[True, False]
    )
    assert y.tolist() == [1.0, 3.0]
    assert variance.tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "state",
    [
        SimpleNamespace(mean=[1.0, 2.0], cov=[[1.0, 0.5], [0.5, 4.0]]),
        SimpleNamespace(x=np.array([[1.0], [2.0]]), P=np.array([[1.0, 0.5], [0.5, 4.0]])),
        torch.distributions.MultivariateNormal(
            torch.tensor([1.0, 2.0]), torch.tensor([[1.0, 0.5], [0.5, 4.0]])
        ),
        (np.array([1.0, 2.0]), np.array([[1.0, 0.5], [0.5, 4.0]])),
    ],
    ids=["scipy", "filterpy", "torch", "pair"],
)
def test_states_of_several_libraries_are_read(state):
    assert labels.posterior(state, component=1) == (pytest.approx(2.0), pytest.approx(4.0))
    y, variance = labels.posterior([state] * 3, component=[1.0, -1.0])
    np.testing.assert_allclose(y, -1.0)
    np.testing.assert_allclose(variance, 4.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: labels.repeats([1, 2], [1.0, 2.0]), "at least one item must have two values"),
        (lambda: labels.repeats([1, 1], [2.0, 2.0]), "at least one item must differ; got a spread of 0"),
        (lambda: labels.repeats([1, 1], [2.0]), "one-dimensional and of equal length"),
        (lambda: labels.repeats([], []), "must not be empty"),
        (lambda: labels.repeats([1, 1], [2.0, np.nan]), "got nan in row 1"),
        (lambda: labels.ratings([1, 1, 2, 2], [1.0, 2, 3, 4], ["a", "b", "c", "d"]), "got 2 groups of raters without"),
        (lambda: labels.ratings([1, 1], [1.0, 2.0], ["a", "b"]), "at least as many ratings as items and raters .*; got 2 ratings of 1 items by 2 raters"),
        (lambda: labels.plus_minus([1.0], [-1.0]), "half_width must be non-negative"),
        (lambda: labels.asymmetric([1.0], [-1.0], [1.0]), "minus must be non-negative"),
        (lambda: labels.asymmetric([1.0], [1.0], [1.0, 2.0]), "plus must have the shape of y"),
        (lambda: labels.asymmetric([1.0], [1.0], [2.0], centre="mean"), "'median' or 'mode'"),
        (lambda: labels.plus_minus([1.0], [1.0], level=1.0), "level must be in"),
        (lambda: labels.plus_minus([1.0, 2.0], [1.0, 2.0, 3.0]), "must have the shape"),
        (lambda: labels.interval([2.0], [1.0]), "at least as large as low"),
        (lambda: labels.interval([2.0], [3.0, 4.0]), "low and high must have the same shape"),
        (lambda: labels.samples([[1.0, 2.0, 3.0]]), "must have at least 4 values along axis -1; got 3"),
        (lambda: labels.samples([1.0, 2.0, 3.0, 4.0], axis=1), "axis 1 is out of bounds for values with 1 dimension"),
        (lambda: labels.ensemble([[1.0], [2.0]], [[1.0]]), "variances must have the shape"),
        (lambda: labels.posterior([(np.ones(2), np.eye(3))]), "must have shape"),
        (lambda: labels.posterior([(np.ones(1), -np.eye(1))]), "must not be negative"),
        (lambda: labels.posterior([(np.ones(2), np.eye(2))], component=2), "component must be less than 2"),
        (lambda: labels.posterior([]), "must not be empty"),
        (lambda: labels.poll([1.5], [10]), "share must be in"),
        (lambda: labels.poll([0.5], [0]), "count must be positive"),
        (lambda: labels.poll([0.5], [100], population=50), "at most the population, 50"),
        (lambda: labels.counts([-1.0]), "events must be non-negative"),
        (lambda: labels.counts([1.0], 0.0), "exposure must be positive"),
        (lambda: labels.count_ratio([1.0], [0.0]), "others must be positive"),
        (lambda: labels.bootstrapped([1.0], [1.0], [-1.0], gamma=0.9), "next_variance must be"),
        (lambda: labels.bootstrapped([1.0], [1.0, 2.0], [1.0], gamma=0.9), "shape of reward"),
        (lambda: labels.bootstrapped([1.0], [1.0], [1.0], gamma=1.5), "gamma must be in"),
        (lambda: labels.ensemble([[1.0], [2.0]], correlation=1.0), "correlation must be in"),
    ],
)  # fmt: skip
def test_invalid_arguments_are_rejected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_state_without_a_covariance_is_rejected():
    with pytest.raises(TypeError, match="a state must have a mean"):
        labels.posterior([SimpleNamespace(mean=[1.0])])


@pytest.mark.parametrize("centre", ["median", "mode"])
def test_an_infinite_error_bar_is_a_label_to_ignore(centre):
    result = labels.asymmetric([1.0, 2.0], [np.inf, 0.1], [0.5, 0.1], centre=centre)
    np.testing.assert_allclose(result.y, [1.0, 2.0])
    np.testing.assert_allclose(result.variance, [np.inf, 0.01], rtol=1e-3)
