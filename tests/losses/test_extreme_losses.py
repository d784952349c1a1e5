"""Losses, weights and ε at the ends of the ranges of numbers, and of types."""

import math

import pytest
import torch

import biv
from biv.epsilon import MinimumBatchSize, epsilon_for_batch_size

FUNCTIONS = {
    "l2": lambda *batch, **options: biv.l2_loss(*batch, **options),
    "iv": lambda *batch, **options: biv.iv_loss(*batch, epsilon=0.5, **options),
    "biv": lambda *batch, **options: biv.biv_loss(*batch, **options),
    "cutoff": lambda *batch, **options: biv.cutoff_loss(*batch, threshold=2.0, **options),
}
MODULES = {
    "l2": biv.L2Loss(),
    "iv": biv.IVLoss(0.5),
    "biv": biv.BIVLoss(),
    "cutoff": biv.CutoffLoss(2.0),
}


def root(pred, target):
    """Of gradient inf where the two are equal."""
    return (pred - target).abs().sqrt()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("look", [True, False])
@pytest.mark.parametrize(
    "loss",
    [
        lambda *a, look: biv.biv_loss(*a, base=root, validate_args=look),
        lambda *a, look: biv.BIVLoss(base=root, validate_args=look)(*a),
    ],
)
def test_an_ignored_label_sends_no_gradient_whatever_that_of_the_base_is(loss, look, dtype):
    pred = torch.tensor([1.0, 2.0, 3.0], dtype=dtype, requires_grad=True)
    target = torch.tensor([1.0, 0.0, 0.0], dtype=dtype)
    variance = torch.tensor([math.inf, 1.0, 2.0], dtype=dtype)
    loss(pred, target, variance, look=look).backward()
    assert pred.grad[0] == 0
    assert pred.grad.isfinite().all()


def test_a_base_that_hides_a_missing_label_does_not_count_it():
    def patient(pred, target):
        return torch.nan_to_num(pred - target).square()

    pred, variance = torch.tensor([1.0, 2.0]), torch.ones(2)
    target = torch.tensor([0.0, math.nan])
    assert biv.biv_loss(pred, target, variance, base=patient) == 1.0


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_negative_zero_is_a_zero(zero):
    variance = torch.tensor([zero, 1.0, 2.0], dtype=torch.float64)
    epsilon = MinimumBatchSize(2).resolve(variance)
    assert epsilon == MinimumBatchSize(2).resolve(variance.abs())
    assert 0 < epsilon < 2
    weights = biv.inverse_variance_weights(variance, torch.full((3,), zero, dtype=torch.float64))
    assert weights[0] == math.inf
    assert biv.inverse_variance_weights(variance, zero)[0] == math.inf
    with pytest.raises(ValueError, match="must be positive if epsilon is 0"):
        biv.iv_loss(torch.ones(3), torch.zeros(3), variance.float(), epsilon=zero)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_at_a_size_of_all_elements_iv_is_its_definition_in_every_dtype(dtype):
    torch.manual_seed(0)
    pred, target, variance = (torch.rand(32).to(dtype) for _ in range(3))
    policy = MinimumBatchSize(32)
    exact = [x.double() for x in (pred, target, variance)]
    loss = biv.iv_loss(pred, target, variance, epsilon=policy)
    assert float(loss) == pytest.approx(float(biv.iv_loss(*exact, epsilon=policy)), rel=2e-4)


@pytest.mark.parametrize("form", [FUNCTIONS, MODULES], ids=["functions", "modules"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("scale", [3e38, 1e30, 1e-30, 1e-38])
def test_sample_weights_of_any_size_give_the_loss_of_float64(form, name, scale):
    torch.manual_seed(0)
    loss = form[name]
    pred, target = torch.rand(2, 50) * (1e-3 if name == "iv" and scale > 1 else 1.0)
    variance, weight = torch.rand(50) + 1.0, torch.rand(50) * scale
    exact = loss(*(x.double() for x in (pred, target, variance)), sample_weight=weight.double())
    found = loss(pred, target, variance, sample_weight=weight)
    assert found.isfinite()
    assert float(found) == pytest.approx(float(exact), rel=1e-5)


@pytest.mark.parametrize("name", list(MODULES))
def test_a_window_shares_huge_sample_weights(name):
    torch.manual_seed(0)
    pred, target = torch.rand(2, 8) * 1e-3
    variance, weight = torch.rand(8) + 1.0, torch.rand(8) * 3e38
    weight[:4] /= 1e10
    whole = MODULES[name](pred, target, variance, sample_weight=weight)
    halves = [slice(0, 4), slice(4, 8)]
    window = MODULES[name].window(
        [target[h] for h in halves],
        [variance[h] for h in halves],
        sample_weights=[weight[h] for h in halves],
    )
    parts = [window(pred[h], target[h], variance[h], sample_weight=weight[h]) for h in halves]
    assert float(sum(parts)) == pytest.approx(float(whole), rel=1e-5)
    assert whole.isfinite()


@pytest.mark.parametrize("form", [FUNCTIONS, MODULES], ids=["functions", "modules"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("argument", ["pred", "target", "variance", "sample_weight", "mask"])
def test_a_sparse_tensor_is_refused_by_the_name_of_its_argument(form, name, argument):
    given = {"pred": torch.ones(3), "target": torch.zeros(3), "variance": torch.ones(3)}
    given |= {"sample_weight": torch.ones(3), "mask": torch.ones(3, dtype=torch.bool)}
    if argument not in ("sample_weight", "mask"):
        del given["sample_weight"], given["mask"]
    given[argument] = given[argument].to_sparse()
    batch = [given.pop(k) for k in ("pred", "target", "variance")]
    with pytest.raises(TypeError, match=f"^{argument} must be a dense tensor"):
        form[name](*batch, **given)


@pytest.mark.parametrize("argument", ["pred", "target", "variance", "sample_weight"])
def test_eight_bits_are_refused_by_the_name_of_their_argument(argument):
    given = dict.fromkeys(("pred", "target", "variance", "sample_weight"), torch.ones(3))
    given[argument] = torch.ones(3).to(torch.float8_e4m3fn)
    with pytest.raises(TypeError, match=rf"^{argument} must .*use {argument}\.float\(\)"):
        biv.biv_loss(**given)


def test_weights_of_eight_bits_or_sparse_ones_are_refused():
    for odd in (torch.ones(3).to(torch.float8_e5m2), torch.ones(3).to_sparse()):
        for call in (
            biv.inverse_variance_weights,
            lambda v: biv.cutoff_weights(v, 1.0),
            lambda v: epsilon_for_batch_size(v, 2),
        ):
            with pytest.raises(TypeError, match="^variance must"):
                call(odd)
        with pytest.raises(TypeError, match="^weights must"):
            biv.effective_batch_size(odd)


@pytest.mark.parametrize("digits", [400, 5000])
def test_an_integer_beyond_all_floats_is_refused_by_name(digits):
    number = 10**digits
    with pytest.raises(ValueError, match=r"^epsilon must be a finite number >= 0; got an int"):
        biv.biv_loss(torch.ones(2), torch.ones(2), torch.ones(2), epsilon=number)
    with pytest.raises(ValueError, match=r"^threshold must be"):
        biv.cutoff_loss(torch.ones(2), torch.ones(2), torch.ones(2), threshold=number)
    with pytest.raises(ValueError, match=r"^size must be"):
        MinimumBatchSize(number)


@pytest.mark.parametrize("name", list(MODULES))
def test_the_sample_weight_of_an_ignored_label_is_of_no_consequence(name):
    pred, target, variance = torch.ones(3), torch.zeros(3), torch.tensor([1.0, 1.5, math.inf])
    weight = torch.tensor([1e-30, 2e-30, 3e38])
    expected = MODULES[name](pred[:2], target[:2], variance[:2], sample_weight=weight[:2])
    found = MODULES[name](pred, target, variance, sample_weight=weight)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)
    assert found > 0


def test_sums_and_products_that_overflow_are_refused_by_name():
    pred, target, variance = torch.ones(2), torch.zeros(2), torch.full((2,), 1e-30)
    weight = torch.full((2,), 3e38)
    with pytest.raises(ValueError, match=r"^sample_weight / \(variance \+ epsilon\) must be fin"):
        biv.iv_loss(pred, target, variance, sample_weight=weight)
    with pytest.raises(ValueError, match=r"^sample_weight must be small enough for the sum"):
        biv.L2Loss().sums(pred, target, sample_weight=weight)
