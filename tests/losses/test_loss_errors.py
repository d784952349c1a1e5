"""Errors of the losses name the argument, what was expected and what was found."""

import numpy as np
import pytest
import torch

import biv
from biv.epsilon import Fixed, MinimumBatchSize, Relative
from helpers.cases import batch

N = 4
COLUMN = torch.ones(N, 1)
ROW = torch.ones(N)

# Problem: (arguments that replace valid ones, type of the error, pattern of its message).
BAD_ARGUMENTS = {
    "pred of another shape": ({"pred": COLUMN}, ValueError, r"pred .*\(4,\); got \(4, 1\): use pred.reshape\(-1\)"),
    "pred of another length": ({"pred": torch.ones(5)}, ValueError, r"pred .*\(4,\); got \(5,\)"),
    "variance as a column": (
        {"variance": COLUMN},
        ValueError,
        r"variance .*\(4,\); got \(4, 1\): use variance.reshape\(-1\)",
    ),
    "variance as a row": (
        {"pred": COLUMN, "target": COLUMN, "variance": ROW},
        ValueError,
        r"variance .*\(4, 1\); got \(4,\): use variance.reshape\(-1, 1\)",
    ),
    "a row for a matrix": (
        {"pred": torch.ones(N, 3), "target": torch.ones(N, 3), "variance": ROW},
        ValueError,
        r"variance .*\(4, 3\) or \(4, 1\); got \(4,\): use variance.reshape\(-1, 1\)",
    ),
    "one row for all": (
        {"pred": torch.ones(N, 3), "target": torch.ones(N, 3), "variance": torch.ones(1, 3)},
        ValueError,
        r"variance .*\(4, 3\) or \(4, 1\); got \(1, 3\): expand variance to that shape first",
    ),
    "one variance for all": ({"variance": torch.tensor(1.0)}, ValueError, r"variance .*got \(\): pass one value per element, such as torch.full_like\(target"),
    "mask of another shape": ({"mask": torch.ones(5, dtype=torch.bool)}, ValueError, r"mask .*\(4,\); got \(5,\)"),
    "sample_weight of another shape": ({"sample_weight": torch.ones(5)}, ValueError, r"sample_weight .*\(4,\); got \(5,\)"),
    "negative variance": (
        {"variance": torch.tensor([1.0, -0.25, 1.0, -3.0])},
        ValueError,
        "variance must be non-negative and not NaN; got -0.25 at index 1, -3 at index 3",
    ),
    "many negative variances": ({"variance": -ROW}, ValueError, r"-1 at index 2 \(4 invalid elements in all\)"),
    "negative variance in a matrix": (
        {name: torch.ones(2, 2) for name in ("pred", "target")} | {"variance": torch.tensor([[1.0, 1.0], [-2.0, 1.0]])},
        ValueError,
        r"got -2 at index \(1, 0\)",
    ),
    "NaN variance": ({"variance": torch.tensor([1.0, 1.0, torch.nan, 1.0])}, ValueError, "variance .*got nan at index 2"),
    "infinite target": ({"target": torch.tensor([1.0, 1.0, 1.0, -torch.inf])}, ValueError, "target must be finite, .*got -inf at index 3"),
    "negative sample_weight": ({"sample_weight": -ROW}, ValueError, "sample_weight must be finite and >= 0; got -1 at index 0"),
    "NaN sample_weight": ({"sample_weight": ROW * torch.nan}, ValueError, "sample_weight .*got nan at index 0"),
    "infinite sample_weight": ({"sample_weight": ROW * torch.inf}, ValueError, "sample_weight .*got inf at index 0"),
    "variance that requires grad": (
        {"variance": torch.ones(N, requires_grad=True)},
        ValueError,
        r"variance must not require grad.*got requires_grad=True: use variance.detach\(\)",
    ),
    "sample_weight that requires grad": ({"sample_weight": torch.ones(N, requires_grad=True)}, ValueError, r"use sample_weight.detach\(\)"),
    "integer pred": ({"pred": torch.ones(N, dtype=torch.long)}, TypeError, r"pred .*floating-point.*got torch.int64: use pred.float\(\)"),
    "integer target": ({"target": torch.ones(N, dtype=torch.int32)}, TypeError, "target .*got torch.int32"),
    "integer variance": ({"variance": torch.ones(N, dtype=torch.long)}, TypeError, "variance .*got torch.int64"),
    "boolean variance": ({"variance": torch.ones(N, dtype=torch.bool)}, TypeError, "variance .*got torch.bool"),
    "complex pred": ({"pred": torch.ones(N, dtype=torch.cfloat)}, TypeError, "pred .*got torch.complex64$"),
    "complex variance": ({"variance": torch.ones(N, dtype=torch.cfloat)}, TypeError, "variance .*got torch.complex64$"),
    "integer mask": ({"mask": torch.ones(N, dtype=torch.long)}, TypeError, "mask .*torch.bool.*got a tensor of dtype torch.int64"),
    "NumPy variance": ({"variance": np.ones(N)}, TypeError, r"variance must be a torch.Tensor; got a numpy.ndarray of dtype float64.*: use torch.as_tensor\(variance\)"),
    "a number for variance": ({"variance": 1.0}, TypeError, "variance must be a torch.Tensor; got 1.0 of type float"),
    "a string for variance": ({"variance": "1.0"}, TypeError, "variance must be a torch.Tensor; got '1.0' of type str"),
    "a string for pred": ({"pred": "y"}, TypeError, "pred must be a torch.Tensor; got 'y'"),
    "a list for target": ({"target": [1.0]}, TypeError, r"target must be a torch.Tensor; got \[1.0\]"),
    "another device": ({"variance": torch.ones(N, device="meta")}, ValueError, "variance .*same device as target, cpu; got meta"),
}  # fmt: skip


def good_arguments():
    return {"pred": torch.zeros(N), "target": torch.zeros(N), "variance": torch.ones(N)}


@pytest.mark.parametrize("problem", BAD_ARGUMENTS)
def test_bad_arguments_of_every_loss(case, problem):
    replaced, kind, message = BAD_ARGUMENTS[problem]
    for call in (case, case.build()):
        with pytest.raises(kind, match=message):
            call(**good_arguments() | replaced)


def test_a_long_list_is_shortened_in_the_error():
    with pytest.raises(TypeError, match="variance must be a torch.Tensor") as error:
        biv.biv_loss(**good_arguments() | {"variance": [1.0] * 10_000})
    assert len(str(error.value)) < 200


def test_errors_have_the_indices_of_the_argument_passed():
    pred, target, _ = batch(5, 4)
    variance = torch.tensor([[1.0], [-1.0], [1.0], [-2.0], [-3.0]])
    target[4] = torch.nan  # unused, so not checked
    with pytest.raises(ValueError, match=r"got -1 at index \(1, 0\), -2 at index \(3, 0\) \(see"):
        biv.biv_loss(pred, target, variance)
    with pytest.raises(
        ValueError, match=r"sample_weight .*got -1 at index \(1, 0\), -2 at index \(3, 0\) \(see"
    ):
        biv.biv_loss(pred, target, variance.abs(), sample_weight=variance)


def test_a_missing_variance_is_an_error_except_to_l2(case):
    arguments = good_arguments() | {"variance": None}
    if case.kind == "l2":
        assert case.build()(**arguments) == 0
        assert case(**arguments) == 0
    else:
        for call in (case, case.build()):
            with pytest.raises(TypeError, match="variance must be a torch.Tensor; got None"):
                call(**arguments)


BAD_SETTINGS = {
    "negative epsilon": (biv.BIVLoss, {"epsilon": -0.1}, ValueError, "epsilon must be a finite number >= 0; got -0.1"),
    "NaN epsilon": (biv.BIVLoss, {"epsilon": float("nan")}, ValueError, "epsilon .*got nan"),
    "infinite epsilon": (biv.IVLoss, {"epsilon": float("inf")}, ValueError, "epsilon .*got inf"),
    "a string for epsilon": (biv.BIVLoss, {"epsilon": "0.05"}, TypeError, r"epsilon must be a finite number >= 0; got '0.05' of type str: pass a number or a policy"),
    "None for epsilon": (biv.BIVLoss, {"epsilon": None}, TypeError, "epsilon .*got None"),
    "a boolean for epsilon": (biv.BIVLoss, {"epsilon": True}, TypeError, "epsilon .*got True of type bool"),
    "many epsilons": (biv.BIVLoss, {"epsilon": torch.ones(2)}, TypeError, r"epsilon .*shape \(\).*got .*shape \(2,\)"),
    "an epsilon that learns": (biv.BIVLoss, {"epsilon": torch.tensor(0.1, requires_grad=True)}, ValueError, "epsilon must not require grad"),
    "threshold of zero": (biv.CutoffLoss, {"threshold": 0.0}, ValueError, "threshold must be a number > 0; got 0"),
    "negative threshold": (biv.CutoffLoss, {"threshold": -1}, ValueError, "threshold .*got -1"),
    "NaN threshold": (biv.CutoffLoss, {"threshold": float("nan")}, ValueError, "threshold .*got nan"),
    "a string for threshold": (biv.CutoffLoss, {"threshold": "1"}, TypeError, "threshold .*got '1' of type str"),
    "an unknown base": (biv.BIVLoss, {"base": "l3"}, ValueError, "base must be one of 'mse', 'mae', 'huber' or a callable.*got 'l3'"),
    "no base": (biv.BIVLoss, {"base": None}, ValueError, "base .*got None"),
    "a group of another kind": (biv.BIVLoss, {"process_group": "world"}, TypeError, "process_group .*got 'world'"),
}  # fmt: skip

FUNCTION_OF = {
    biv.BIVLoss: biv.biv_loss,
    biv.IVLoss: biv.iv_loss,
    biv.CutoffLoss: biv.cutoff_loss,
}


@pytest.mark.parametrize("problem", BAD_SETTINGS)
def test_bad_settings_raise_when_the_loss_is_created(problem):
    module, settings, kind, message = BAD_SETTINGS[problem]
    with pytest.raises(kind, match=message):
        module(**settings)
    if "process_group" not in settings:
        with pytest.raises(kind, match=message):
            FUNCTION_OF[module](**good_arguments(), **settings)


def test_cutoff_needs_a_threshold():
    with pytest.raises(TypeError, match="threshold"):
        biv.CutoffLoss()


def test_iv_is_not_finite_at_variance_zero():
    pred, target, variance = batch(N)
    variance[2] = 0.0
    with pytest.raises(ValueError, match="variance must be positive if epsilon is 0"):
        biv.iv_loss(pred, target, variance)
    with pytest.raises(
        ValueError,
        match=r"variance must be positive .*got variance 0 and epsilon 0: .*window\(\)",
    ):
        biv.BIVLoss(epsilon=0.0).sums(pred, target, variance)
    with pytest.raises(ValueError, match="got variance 1e-39"):
        biv.iv_loss(pred.float(), target.float(), torch.full((N,), 1e-39))
    assert biv.iv_loss(pred, target, variance, epsilon=0.1).isfinite()
    mask = variance > 0
    assert biv.iv_loss(pred, target, variance, mask=mask).isfinite()


def test_pairs_need_an_epsilon_that_does_not_depend_on_the_batch():
    with pytest.raises(
        ValueError, match=r"epsilon must be a number, .*MinimumBatchSize.*window\(\)"
    ):
        biv.BIVLoss(MinimumBatchSize(2)).sums(**good_arguments())


@pytest.mark.parametrize("wrong", [lambda p, t: ((p - t) ** 2).mean(), lambda p, t: 0.0])
def test_a_base_that_is_not_elementwise(wrong):
    with pytest.raises(ValueError, match=r"base must return one loss per element.*\(4,\)"):
        biv.biv_loss(**good_arguments(), base=wrong)


def test_a_batch_smaller_than_the_minimum_size():
    loss = biv.BIVLoss(MinimumBatchSize(5))
    with pytest.raises(ValueError, match=r"size=5\) needs .*got 4 .*fraction"):
        loss(**good_arguments())
    unchecked = biv.BIVLoss(MinimumBatchSize(5), validate_args=False)
    pred, target, variance = batch(N)
    near_l2 = unchecked(pred, target, variance)
    torch.testing.assert_close(near_l2, biv.l2_loss(pred, target), rtol=1e-2, atol=0)


@pytest.mark.parametrize(
    ("policy", "settings", "kind", "message"),
    [
        (Fixed, {"value": -1.0}, ValueError, "epsilon .*got -1"),
        (Relative, {"fraction": -1.0, "label_variance": 1.0}, ValueError, "fraction .*got -1"),
        (Relative, {"fraction": 1.0, "label_variance": float("nan")}, ValueError, "label_variance .*nan"),
        (MinimumBatchSize, {}, ValueError, "exactly one of size and fraction"),
        (MinimumBatchSize, {"size": 4, "fraction": 0.5}, ValueError, "exactly one of size and"),
        (MinimumBatchSize, {"size": 0.5}, ValueError, "size must be a finite number >= 1; got 0.5: for a fraction of the batch use fraction=0.5"),
        (MinimumBatchSize, {"size": "4"}, TypeError, "size .*got '4'"),
        (MinimumBatchSize, {"fraction": 1.5}, ValueError, r"fraction must be in \(0, 1\]; got 1.5"),
        (MinimumBatchSize, {"fraction": 0.0}, ValueError, r"fraction must be in \(0, 1\]; got 0"),
    ],
)  # fmt: skip
def test_bad_policies(policy, settings, kind, message):
    with pytest.raises(kind, match=message):
        policy(**settings)


def test_a_window_per_output_needs_the_same_outputs_in_every_micro_batch():
    loss, y, wider = biv.BIVLoss(per_output=True), torch.ones(2, 3), torch.ones(2, 4)
    message = r"target must have the same last dimension .*, 3; got shape \(2, 4\)"
    with pytest.raises(ValueError, match=message):
        loss.window([y, wider], [y, wider])
    with pytest.raises(ValueError, match=message):
        loss.window([y], [y])(wider, wider, wider)
    with pytest.raises(ValueError, match=r"shape \(N,\); got shape \(2, 3\)"):
        loss.window([y[0], y], [y[0], y])


def test_a_minimum_batch_size_per_output_applies_to_each_output():
    loss, (pred, target, variance) = biv.BIVLoss(MinimumBatchSize(4), per_output=True), batch(6, 2)
    assert loss(pred, target, variance) > 0
    target[:3, 1] = torch.nan
    with pytest.raises(ValueError, match=r"size=4\) needs .*got 3 .*fraction"):
        loss(pred, target, variance)


def test_iv_per_output_is_not_finite_at_variance_zero():
    pred, target, variance = batch(N, 3)
    variance[2, 1] = 0.0
    with pytest.raises(ValueError, match="got variance 0 and epsilon 0"):
        biv.iv_loss(pred, target, variance, per_output=True)


def test_windows_need_one_entry_per_micro_batch():
    loss, y = biv.BIVLoss(), torch.ones(2)
    with pytest.raises(ValueError, match="variances must hold one entry per micro-batch, 2; got 1"):
        loss.window([y, y], [y])
    with pytest.raises(ValueError, match="masks must hold one entry per micro-batch, 1; got 2"):
        loss.window([y], [y], masks=[None, None])
    with pytest.raises(ValueError, match="at least one micro-batch"):
        loss.window([], [])
    with pytest.raises(TypeError, match="variance must be a torch.Tensor; got None"):
        loss.window([y])
    for bad in ({"targets": y, "variances": [y]}, {"targets": [y], "variances": y}):
        with pytest.raises(TypeError, match="must be a list with one tensor per micro-batch"):
            loss.window(**bad)
    assert loss.window((t for t in [y, y]), (t for t in [y, y]))(y, y, y) == 0
    for size, kind in ((0, ValueError), (1.5, TypeError), (True, TypeError), ("2", TypeError)):
        with pytest.raises(kind, match=f"size must be an integer >= 1; got {size!r}"):
            biv.accumulation_windows([1, 2], size)
