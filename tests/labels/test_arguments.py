"""What functions of labels accept and refuse, and what they return."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from biv import labels


def test_names_may_be_text_and_come_back_in_order():
    found = labels.ratings(["b", "a", "b", "a"], [1.0, 2.0, 3.0, 6.0])
    y, variance = pickle.loads(pickle.dumps(found))
    assert np.array_equal(y, found.y)
    assert np.array_equal(variance, found.variance)
    assert found.items.tolist() == ["a", "b"]
    assert found.y.tolist() == [4.0, 2.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_stay_tensors(dtype):
    ones = torch.ones(3, dtype=dtype)
    for found in (
        labels.plus_minus(ones, ones, level=0.9),
        labels.interval(ones, 2 * ones),
        labels.asymmetric(ones, ones, 2 * ones),
        labels.samples(torch.randn(3, 5, dtype=dtype)),
        labels.ensemble(torch.randn(5, 3, dtype=dtype), torch.ones(5, 3, dtype=dtype)),
        labels.bootstrapped(ones, ones, ones, gamma=0.9, terminal=torch.tensor([0, 1, 0])),
    ):
        for tensor in found:
            assert tensor.dtype == dtype
            assert tensor.shape == (3,)


def test_what_is_read_only_is_taken_too():
    found = labels.bootstrapped(
        *np.broadcast_to(1.0, (3, 2)), gamma=0.5, terminal=np.broadcast_to([True, False], (2,))
    )
    assert found.y.tolist() == [1.0, 1.5]


def test_notes_stay_where_a_field_is_replaced():
    found = labels.repeats(["a", "a", "b", "b"], [1.0, 2.0, 3.0, 5.0])
    other = found._replace(variance=found.variance * 2)
    assert (other.variance == 2 * found.variance).all()
    assert (other.items == found.items).all()
    assert (other.counts == found.counts).all()


def test_a_terminal_state_is_not_looked_at():
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
def test_states_of_several_libraries(state):
    assert labels.posterior(state, component=1) == (pytest.approx(2.0), pytest.approx(4.0))
    y, variance = labels.posterior([state] * 3, component=[1.0, -1.0])
    np.testing.assert_allclose(y, -1.0)
    np.testing.assert_allclose(variance, 4.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: labels.repeats([1, 2], [1.0, 2.0]), "two values at least"),
        (lambda: labels.repeats([1, 1], [2.0, 2.0]), "spread is 0"),
        (lambda: labels.repeats([1, 1], [2.0]), "two columns of equal length"),
        (lambda: labels.repeats([], []), "must not be empty"),
        (lambda: labels.repeats([1, 1], [2.0, np.nan]), "got nan in row 1"),
        (lambda: labels.ratings([1, 1, 2, 2], [1.0, 2, 3, 4], ["a", "b", "c", "d"]), "got 2 groups without"),
        (lambda: labels.ratings([1, 1], [1.0, 2.0], ["a", "b"]), "too few to tell"),
        (lambda: labels.plus_minus([1.0], [-1.0]), "half_width must be non-negative"),
        (lambda: labels.asymmetric([1.0], [-1.0], [1.0]), "minus must be non-negative"),
        (lambda: labels.asymmetric([1.0], [1.0], [1.0, 2.0]), "plus must have the shape of y"),
        (lambda: labels.asymmetric([1.0], [1.0], [2.0], centre="mean"), "'median' or 'mode'"),
        (lambda: labels.plus_minus([1.0], [1.0], level=1.0), "level must be in"),
        (lambda: labels.plus_minus([1.0, 2.0], [1.0, 2.0, 3.0]), "must have the shape"),
        (lambda: labels.interval([2.0], [1.0]), "at least as large as low"),
        (lambda: labels.interval([2.0], [3.0, 4.0]), "of one shape"),
        (lambda: labels.samples([[1.0, 2.0, 3.0]]), "must be 4 or more along axis -1; got 3"),
        (lambda: labels.samples([1.0, 2.0, 3.0, 4.0], axis=1), "axis must be one of"),
        (lambda: labels.ensemble([[1.0], [2.0]], [[1.0]]), "variances must have the shape"),
        (lambda: labels.posterior([(np.ones(2), np.eye(3))]), "must have shape"),
        (lambda: labels.posterior([(np.ones(1), -np.eye(1))]), "must not be negative"),
        (lambda: labels.posterior([(np.ones(2), np.eye(2))], component=2), "one of 2"),
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
def test_what_cannot_be_is_said(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_state_without_a_covariance_is_told():
    with pytest.raises(TypeError, match="a state must have a mean"):
        labels.posterior([SimpleNamespace(mean=[1.0])])


@pytest.mark.parametrize("centre", ["median", "mode"])
def test_a_limit_is_a_label_to_ignore(centre):
    found = labels.asymmetric([1.0, 2.0], [np.inf, 0.1], [0.5, 0.1], centre=centre)
    np.testing.assert_allclose(found.y, [1.0, 2.0])
    np.testing.assert_allclose(found.variance, [np.inf, 0.01], rtol=1e-3)
