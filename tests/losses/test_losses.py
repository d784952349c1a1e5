"""Identities and settings of single losses."""

import copy
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import biv
from biv.epsilon import MinimumBatchSize
from biv.losses._reduction import LossFormula, Weighted
from biv.models import MLP
from biv.training import Member, Schedule, train_reference, train_stack
from helpers.cases import batch, gradient
from helpers.training_runs import FEATURES, triplets

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("base", ["mse", "mae", "huber"])
@pytest.mark.parametrize(
    "change",
    [
        "nothing",
        "ignored",
        "missing",
        "trusted",
        "diverged",
        "tiny",
        "huge",
        "apart",
        "all ignored",
    ],
)
def test_the_fast_path_equals_the_general_path(monkeypatch, dtype, base, change):
    """The fast path gives the same loss and gradient for any batch, or is not taken."""
    pred, target, variance = batch(40, dtype=dtype)
    if change == "ignored":
        variance[3] = torch.inf
    elif change == "missing":
        target[3] = torch.nan
    elif change == "trusted":
        variance[3] = 0.0
    elif change == "diverged":
        pred[3], variance[3] = torch.inf, torch.inf
    elif change in ("tiny", "huge"):
        variance *= {"tiny": 1e-37, "huge": 1e37}[change]
        pred = target + 1e-4 * pred  # errors so small that their product with 1/σ² underflows
    elif change == "apart":
        variance[::2] *= 1e-12
    elif change == "all ignored":
        variance[:] = torch.inf
    epsilons = (0.0, 0.05)

    def results():
        for epsilon in epsilons:
            arguments = (target, variance)
            options = {"epsilon": epsilon, "base": base}
            yield biv.biv_loss(pred, *arguments, **options)
            yield gradient(biv.biv_loss, pred, *arguments, **options)

    short = list(results())
    monkeypatch.setattr(LossFormula, "_value_if_plain", lambda *_: None)
    torch.testing.assert_close(short, list(results()))


def test_the_fast_path_is_taken_for_plain_batches(monkeypatch):
    """A batch without left-out elements does not pay the cost of leaving some out."""
    monkeypatch.setattr(Weighted, "sums", lambda *_: pytest.fail("the general path was taken"))
    pred, target, variance = batch(40, 2)
    for validate_args in (True, False):
        biv.biv_loss(pred, target, variance, validate_args=validate_args)
        biv.BIVLoss(validate_args=validate_args)(pred, target, variance)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 3.0])
def test_biv_is_torchs_own_weighted_mse(epsilon):
    pred, target, variance = batch(30, 2)
    expected = F.mse_loss(pred, target, weight=1 / (variance + epsilon))
    torch.testing.assert_close(
        biv.biv_loss(pred, target, variance, epsilon=epsilon), expected, **TIGHT
    )


def test_biv_tends_to_l2_as_epsilon_grows():
    pred, target, variance = batch(30)
    l2 = biv.l2_loss(pred, target)
    gaps = [
        abs(biv.biv_loss(pred, target, variance, epsilon=epsilon) - l2).item()
        for epsilon in (1e0, 1e2, 1e4, 1e8)
    ]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-8 * l2.item() < gaps[0]


def test_biv_without_epsilon_is_its_limit_at_variance_zero():
    pred, target, variance = batch(10)
    variance[[2, 5]] = 0.0
    exact = biv.biv_loss(pred, target, variance, epsilon=0.0)
    torch.testing.assert_close(exact, F.mse_loss(pred[[2, 5]], target[[2, 5]]), **TIGHT)
    torch.testing.assert_close(
        biv.biv_loss(pred, target, variance, epsilon=1e-14), exact, rtol=1e-9, atol=0
    )


def test_cutoff_is_l2_on_the_kept_subset_and_strict():
    pred, target, variance = batch(30)
    threshold = variance.median().item()  # equal to one variance, which is then left out
    kept = variance < threshold
    assert 0 < kept.sum() < 30
    expected = biv.l2_loss(pred[kept], target[kept])
    loss = biv.cutoff_loss(pred, target, variance, threshold=threshold)
    torch.testing.assert_close(loss, expected, **TIGHT)
    assert biv.cutoff_loss(pred, target, variance, threshold=1e-9).item() == 0
    torch.testing.assert_close(
        biv.cutoff_loss(pred, target, variance, threshold=float("inf")), biv.l2_loss(pred, target)
    )


def test_a_linear_model_trained_by_biv_equals_weighted_least_squares():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 3, generator=generator, dtype=torch.float64)
    _, noise, variance = batch(60, seed=2)
    y = x @ torch.tensor([1.0, -2.0, 0.5]).double() + noise * variance.sqrt()
    w = 1 / variance
    closed_form = torch.linalg.solve(x.T @ (w[:, None] * x), x.T @ (w * y))

    beta = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS(
        [beta],
        max_iter=200,
        tolerance_grad=1e-12,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )

    def closure():
        optimizer.zero_grad()
        loss = biv.biv_loss(x @ beta, y, variance, epsilon=0.0)
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(beta.detach(), closed_form, rtol=1e-8, atol=1e-8)
    unweighted = torch.linalg.lstsq(x, y[:, None]).solution[:, 0]
    assert (beta.detach() - unweighted).abs().max() > 1e-3  # the weighted solution differs


@pytest.mark.parametrize("epsilon", [0.05, MinimumBatchSize(fraction=0.5)])
def test_a_stack_trains_per_output_as_the_reference_loop_does(epsilon):
    rows = triplets(0, rows=90, outputs=3, dtype=torch.float64)
    rows.y[5:, 1], rows.variance[:, 2] = torch.nan, 1e-3 * rows.variance[:, 2]
    loss = biv.BIVLoss(epsilon, per_output=True)
    model, schedule = MLP(FEATURES, (5,), 3), Schedule(epochs=2, batch_size=20)
    member = Member(rows, None, loss, seed=1)
    (trained,) = train_stack(model, [member], schedule)
    module = model(member.generators()[0]).double()
    history = train_reference(module, member, schedule)
    for name in ("train_loss", "effective_batch_size"):
        expected = getattr(history, name)
        np.testing.assert_allclose(getattr(trained.history, name), expected, rtol=1e-9)


def test_settings_may_change_between_batches():
    """A schedule of ε changes the loss and its repr."""
    pred, target, variance = batch(20)
    loss, cutoff = biv.BIVLoss(), biv.CutoffLoss(1.0)
    loss.epsilon, loss.base, cutoff.threshold = 2.0, "mae", 0.5
    expected = biv.biv_loss(pred, target, variance, epsilon=2.0, base="mae")
    assert torch.equal(loss(pred, target, variance), expected)
    assert repr(loss) == "BIVLoss(epsilon=2.0, base='mae')"
    expected = biv.cutoff_loss(pred, target, variance, threshold=0.5)
    assert torch.equal(cutoff(pred, target, variance), expected)


@pytest.mark.parametrize(
    "number", [np.float32(0.5), np.array(0.5), Fraction(1, 2), torch.tensor(0.5), np.float64(0.5)]
)
def test_settings_accept_all_types_of_numbers(number):
    pred, target, variance = batch(20, dtype=torch.float32)
    for function, name in (
        (biv.biv_loss, "epsilon"),
        (biv.iv_loss, "epsilon"),
        (biv.cutoff_loss, "threshold"),
    ):
        loss = function(pred, target, variance, **{name: number})
        assert loss.dtype == torch.float32
        assert torch.equal(loss, function(pred, target, variance, **{name: 0.5}))


@pytest.mark.parametrize("infinity", [float("inf"), np.float32("inf"), torch.tensor(torch.inf)])
def test_an_infinite_threshold_keeps_all_labels(infinity):
    pred, target, variance = batch(20)
    assert biv.cutoff_loss(pred, target, variance, threshold=infinity) == biv.l2_loss(pred, target)


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.float32, 0.7), (torch.float16, 0.1), (torch.float64, 0.7)]
)
def test_a_cutoff_compares_in_the_precision_of_the_variance(dtype, value):
    pred, target, _ = batch(2)
    variance = torch.tensor([value, value / 2], dtype=dtype)
    assert biv.cutoff_weights(variance, value).tolist() == [0, 1]
    loss = biv.cutoff_loss(pred, target, variance, threshold=value)
    assert loss == biv.l2_loss(pred[1:], target[1:])


def test_a_left_out_element_is_safe_for_any_base():
    """The bases are undefined at 0, at 1, or where prediction and target are equal."""
    pred, target, variance = batch(6)
    pred, target = pred.abs() + 0.1, target.abs() + 3.0
    mask = torch.tensor([True, True, False, True, False, True])
    for base in (
        lambda f, y: (f - y).abs().sqrt(),
        lambda f, y: f - y * f.log(),
        lambda f, y: ((f - y) / y).square() / (1 - f).square(),
    ):
        pred[~mask] = target[~mask] = torch.nan
        options = {"base": base, "mask": mask}
        assert biv.biv_loss(pred, target, variance, **options).isfinite()
        grad = gradient(biv.biv_loss, pred, target, variance, **options)
        assert grad.isfinite().all()
        assert not grad[~mask].any()


def test_an_assigned_setting_is_used_from_then_on():
    pred, target, variance = batch(30)
    loss = biv.BIVLoss(epsilon=0.05)
    loss(pred, target, variance)
    loss.epsilon = 3.0
    assert loss(pred, target, variance) == biv.biv_loss(pred, target, variance, epsilon=3.0)
    loss.base = "mae"
    expected = biv.biv_loss(pred, target, variance, epsilon=3.0, base="mae")
    assert loss(pred, target, variance) == expected
    loss.epsilon = -1.0
    with pytest.raises(ValueError, match="epsilon must be"):
        loss(pred, target, variance)
    twin = copy.deepcopy(biv.BIVLoss(epsilon=3.0))
    twin.epsilon = 0.05
    assert twin(pred, target, variance) == biv.biv_loss(pred, target, variance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_pair_of_biv_has_absolute_weights(dtype):
    """Pairs of different batches can only be added if the weights are not relative to a batch."""
    pred, target, variance = (column.to(dtype) for column in batch(30))
    pair = biv.BIVLoss(epsilon=0.05).sums(pred, target, variance)
    expected = torch.promote_types(dtype, torch.float32)
    weights = 1 / (variance.to(expected) + 0.05)
    error = pred.to(expected) - target.to(expected)
    assert pair.denominator.dtype == pair.numerator.dtype == expected
    torch.testing.assert_close(pair.denominator, weights.sum())
    torch.testing.assert_close(pair.numerator, (weights * error**2).sum())
