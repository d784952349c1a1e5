"""Losses, weights and ε at the limits of number ranges and of dtypes."""

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
    """Elementwise loss with an infinite gradient where the two are equal."""
    return (pred - target).abs().sqrt()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize(
    "loss",
    [
        lambda *a, validate: biv.biv_loss(*a, base=root, validate_args=validate),
        lambda *a, validate: biv.BIVLoss(base=root, validate_args=validate)(*a),
    ],
)
def test_an_ignored_label_has_no_gradient_even_if_that_of_the_base_is_infinite(
    loss, validate, dtype
):
    pred = torch.tensor([1.0, 2.0, 3.0], dtype=dtype, requires_grad=True)
    target = torch.tensor([1.0, 0.0, 0.0], dtype=dtype)
    variance = torch.tensor([math.inf, 1.0, 2.0], dtype=dtype)
    loss(pred, target, variance, validate=validate).backward()
    assert pred.grad[0] == 0
    assert pred.grad.isfinite().all()


def test_a_missing_label_is_left_out_even_if_the_base_hides_it():
    def lenient(pred, target):
        return torch.nan_to_num(pred - target).square()

    pred, variance = torch.tensor([1.0, 2.0]), torch.ones(2)
    target = torch.tensor([0.0, math.nan])
    assert biv.biv_loss(pred, target, variance, base=lenient) == 1.0


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_a_negative_zero_counts_as_zero(zero):
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
def test_iv_with_a_minimum_size_of_all_elements_matches_float64(dtype):
    torch.manual_seed(0)
    pred, target, variance = (torch.rand(32).to(dtype) for _ in range(3))
    policy = MinimumBatchSize(32)
    exact = [x.double() for x in (pred, target, variance)]
    loss = biv.iv_loss(pred, target, variance, epsilon=policy)
    assert float(loss) == pytest.approx(float(biv.iv_loss(*exact, epsilon=policy)), rel=2e-4)


@pytest.mark.parametrize("form", [FUNCTIONS, MODULES], ids=["functions", "modules"])
@pytest.mark.parametrize("name", list(FUNCTIONS))
@pytest.mark.parametrize("scale", [3e38, 1e30, 1e-30, 1e-38])
def test_sample_weights_of_any_magnitude_give_the_loss_of_float64(form, name, scale):
    torch.manual_seed(0)
    loss = form[name]
    pred, target = torch.rand(2, 50) * (1e-3 if name == "iv" and scale > 1 else 1.0)
    variance, weight = torch.rand(50) + 1.0, torch.rand(50) * scale
    exact = loss(*(x.double() for x in (pred, target, variance)), sample_weight=weight.double())
    result = loss(pred, target, variance, sample_weight=weight)
    assert result.isfinite()
    assert float(result) == pytest.approx(float(exact), rel=1e-5)


@pytest.mark.parametrize("name", list(MODULES))
def test_a_window_with_huge_sample_weights_matches_one_batch(name):
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
def test_the_error_for_a_sparse_tensor_names_the_argument(form, name, argument):
    arguments = {"pred": torch.ones(3), "target": torch.zeros(3), "variance": torch.ones(3)}
    arguments |= {"sample_weight": torch.ones(3), "mask": torch.ones(3, dtype=torch.bool)}
    if argument not in ("sample_weight", "mask"):
        del arguments["sample_weight"], arguments["mask"]
    arguments[argument] = arguments[argument].to_sparse()
    batch = [arguments.pop(k) for k in ("pred", "target", "variance")]
    with pytest.raises(TypeError, match=f"^{argument} must be a dense tensor"):
        form[name](*batch, **arguments)


@pytest.mark.parametrize("argument", ["pred", "target", "variance", "sample_weight"])
def test_the_error_for_an_8_bit_dtype_names_the_argument(argument):
    arguments = dict.fromkeys(("pred", "target", "variance", "sample_weight"), torch.ones(3))
    arguments[argument] = torch.ones(3).to(torch.float8_e4m3fn)
    with pytest.raises(TypeError, match=rf"^{argument} must .*use {argument}\.float\(\)"):
        biv.biv_loss(**arguments)


def test_8_bit_and_sparse_weights_are_errors():
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
def test_the_error_for_an_integer_too_large_for_a_float_names_the_argument(digits):
    number = 10**digits
    with pytest.raises(ValueError, match=r"^epsilon must be a finite number >= 0; got an int"):
        biv.biv_loss(torch.ones(2), torch.ones(2), torch.ones(2), epsilon=number)
    with pytest.raises(ValueError, match=r"^threshold must be"):
        biv.cutoff_loss(torch.ones(2), torch.ones(2), torch.ones(2), threshold=number)
    with pytest.raises(ValueError, match=r"^size must be"):
        MinimumBatchSize(number)


@pytest.mark.parametrize("name", list(MODULES))
def test_the_sample_weight_of_an_ignored_label_has_no_effect(name):
    pred, target, variance = torch.ones(3), torch.zeros(3), torch.tensor([1.0, 1.5, math.inf])
    weight = torch.tensor([1e-30, 2e-30, 3e38])
    expected = MODULES[name](pred[:2], target[:2], variance[:2], sample_weight=weight[:2])
    result = MODULES[name](pred, target, variance, sample_weight=weight)
    assert float(result) == pytest.approx(float(expected), rel=1e-5)
    assert result > 0


def test_errors_for_overflows_name_the_argument():
    pred, target, variance = torch.ones(2), torch.zeros(2), torch.full((2,), 1e-30)
    weight = torch.full((2,), 3e38)
    with pytest.raises(ValueError, match=r"^sample_weight / \(variance \+ epsilon\) must be fin"):
        biv.iv_loss(pred, target, variance, sample_weight=weight)
    with pytest.raises(ValueError, match=r"^sample_weight must be small enough for the sum"):
        biv.L2Loss().sums(pred, target, sample_weight=weight)
