"""Laws that every loss obeys, and laws that a loss declares."""

import copy
import pickle

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import biv
from biv.epsilon import EpsilonPolicy, MinimumBatchSize
from helpers.cases import CASES, batch, cases_obeying, gradient

TIGHT = {"rtol": 1e-12, "atol": 1e-12}


PER_OUTPUT = [case for case in CASES if "per_output" in case.settings]


def by_name(case):
    return case.name


def scaled_epsilon(settings, factor):
    """Return the same settings with variances `factor` times larger."""
    settings = dict(settings)
    for name in ("epsilon", "threshold"):
        value = settings.get(name)
        if isinstance(value, EpsilonPolicy):
            if not isinstance(value, MinimumBatchSize):
                settings[name] = value.resolve(torch.ones(1)) * factor
        elif value is not None:
            settings[name] = value * factor
    return settings


# ---- common to all -------------------------------------------------------------------------------


@given(
    shape=st.lists(st.integers(1, 5), min_size=0, max_size=3),
    seed=st.integers(0, 2**31),
    masked=st.booleans(),
    weighted=st.booleans(),
    missing=st.booleans(),
)
@pytest.mark.parametrize("case", [c for c in CASES if c.reference_settings != {}], ids=by_name)
def test_matches_the_reference(case, shape, seed, masked, weighted, missing):
    pred, target, variance = batch(*shape, seed=seed)
    extra = batch(*shape, seed=seed + 1)
    options = {}
    if missing:
        target[extra[0] < -1] = torch.nan
        variance[extra[0] > 1] = torch.inf
    if masked:
        options["mask"] = extra[1] > 0
    if weighted:
        options["sample_weight"] = extra[2].round(decimals=1)
    as_numpy = {name: value.numpy() for name, value in options.items()}
    expected = case.reference(pred.numpy(), target.numpy(), variance.numpy(), **as_numpy)
    torch.testing.assert_close(
        case(pred, target, variance, **options),
        torch.tensor(expected, dtype=torch.float64),
        **TIGHT,
    )


@pytest.mark.parametrize("case", [c for c in CASES if c.reference_settings == {}], ids=by_name)
def test_a_policy_is_its_epsilon(case):
    pred, target, variance = batch(20)
    epsilon = case.settings["epsilon"].resolve(variance)
    expected = case.reference(
        pred.numpy(), target.numpy(), variance.numpy(), epsilon=float(epsilon)
    )
    assert case(pred, target, variance).item() == pytest.approx(expected, rel=1e-12)


def test_module_is_the_function(case):
    pred, target, variance = batch(6, 2)
    mask, sample_weight = target > -1, variance + 0.1
    options = {"mask": mask, "sample_weight": sample_weight}
    module = case.build()
    assert torch.equal(
        module(pred, target, variance, **options), case(pred, target, variance, **options)
    )
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(pred, target, variance), module(pred, target, variance))
        assert repr(twin) == repr(module)


def test_order_does_not_matter(case):
    pred, target, variance = batch(17)
    order = torch.randperm(17, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        case(pred[order], target[order], variance[order]), case(pred, target, variance), **TIGHT
    )


@pytest.mark.parametrize("case", cases_obeying("one normaliser"), ids=by_name)
def test_shape_does_not_matter(case):
    pred, target, variance = batch(3, 4, 5)
    flat = case(pred.flatten(), target.flatten(), variance.flatten())
    torch.testing.assert_close(case(pred, target, variance), flat, **TIGHT)


def test_variance_of_one_column_is_expanded_before_summing(case):
    pred, target, variance = batch(6, 3, variance_shape=(6, 1))
    mask, sample_weight = variance > 0.2, variance + 0.5
    full = case(
        pred,
        target,
        variance.repeat(1, 3),
        mask=mask.repeat(1, 3),
        sample_weight=sample_weight.repeat(1, 3),
    )
    torch.testing.assert_close(
        case(pred, target, variance, mask=mask, sample_weight=sample_weight), full, **TIGHT
    )


REASONS = ("mask", "missing target", "infinite variance", "zero weight")


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("validate_args", [True, False])
def test_a_left_out_element_has_no_effect(case, reason, validate_args):
    pred, target, variance = batch(12, seed=5)
    out = torch.zeros(12, dtype=torch.bool)
    out[[0, 3, 7]] = True
    expected = case(pred[~out], target[~out], variance[~out])
    expected_gradient = torch.zeros(12, dtype=torch.float64)
    expected_gradient[~out] = gradient(case, pred[~out], target[~out], variance[~out])

    options = {"validate_args": validate_args}
    # The prediction of a left-out element may be anything, even NaN.
    pred[out] = torch.tensor([torch.nan, torch.inf, 1e300], dtype=torch.float64)
    if reason == "mask":
        options["mask"] = ~out
        target[out], variance[out] = torch.inf, torch.tensor([-1.0, torch.nan, 0.0]).double()
    elif reason == "missing target":
        target[out], variance[out] = torch.nan, torch.tensor([-1.0, torch.nan, 0.0]).double()
    elif reason == "infinite variance":
        variance[out] = torch.inf
    else:
        options["sample_weight"] = (~out).double()
        variance[out] = 0.0
    torch.testing.assert_close(case(pred, target, variance, **options), expected, **TIGHT)
    torch.testing.assert_close(
        gradient(case, pred, target, variance, **options), expected_gradient, **TIGHT
    )


@pytest.mark.parametrize("reason", ["masked", "missing", "infinite", "no rows", "no columns"])
def test_the_loss_without_used_elements_is_zero_and_attached(case, reason):
    shape = {"no rows": (0, 3), "no columns": (3, 0)}.get(reason, (3, 3))
    pred, target, variance = batch(*shape)
    options = {}
    if reason == "masked":
        options["mask"] = torch.zeros(shape, dtype=torch.bool)
    elif reason == "missing":
        target.fill_(torch.nan)
    elif reason == "infinite":
        variance.fill_(torch.inf)
    for validate_args in (True, False):
        pred = pred.detach().requires_grad_()
        loss = case(pred, target, variance, validate_args=validate_args, **options)
        loss.backward()
        assert loss.item() == 0
        assert torch.equal(pred.grad, torch.zeros_like(pred))


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_half_precision_gives_a_single_precision_loss(case, half):
    pred, target, variance = batch(32, dtype=half)
    loss = case(pred, target, variance)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, case(pred.float(), target.float(), variance.float()))
    assert gradient(case, pred, target, variance).dtype == half


def test_mixed_precision_is_promoted(case):
    pred, target, variance = batch(16)
    for single in range(3):
        arguments = [pred, target, variance]
        arguments[single] = arguments[single].float()
        loss = case(*arguments)
        assert loss.dtype == torch.float64
        doubled = [argument.double() for argument in arguments]
        torch.testing.assert_close(loss, case(*doubled), **TIGHT)
    loss = case(pred, target.float(), variance.float())
    assert loss.dtype == torch.float64
    torch.testing.assert_close(loss, case(pred, target, variance), rtol=1e-5, atol=0)
    single = (pred.float(), target.float(), variance.float())
    assert case(*single, sample_weight=variance + 0.1).dtype == torch.float64
    assert gradient(case, pred.float(), target, variance).dtype == torch.float32


@pytest.mark.parametrize("case", cases_obeying("fixed epsilon"), ids=by_name)
@pytest.mark.parametrize("weighted", [False, True])
def test_pairs_add_up_and_divide(case, weighted):
    pred, target, variance = batch(20)
    options = {"mask": target > -1, "sample_weight": variance + 0.1} if weighted else {}
    module = case.build()

    def pair(rows):
        part = {name: option[rows] for name, option in options.items()}
        return module.sums(pred[rows], target[rows], variance[rows], **part)

    total = sum([pair(slice(7)), pair(slice(7, 9)), pair(slice(9, 20))])
    torch.testing.assert_close(total.value(), module(pred, target, variance, **options), **TIGHT)
    whole = pair(slice(20))
    torch.testing.assert_close(total.numerator, whole.numerator, **TIGHT)
    torch.testing.assert_close(total.denominator, whole.denominator, **TIGHT)


# ---- declared ------------------------------------------------------------------------------------


def columns(*tensors):
    return list(zip(*(tensor.unbind(-1) for tensor in tensors), strict=True))


@pytest.mark.parametrize("case", PER_OUTPUT, ids=by_name)
@pytest.mark.parametrize("shape", [(12, 3), (4, 3, 3), (12, 1)])
def test_per_output_is_the_mean_of_the_losses_of_the_outputs(case, shape):
    pred, target, variance = batch(*shape, seed=2)
    target[2], target[..., 0][0] = torch.nan, torch.nan
    mask, importance = target > -1.9, variance + 0.1
    single = {name: value for name, value in case.settings.items() if name != "per_output"}
    alone = [
        case.function(*column, mask=m, sample_weight=s, **single)
        for *column, m, s in columns(pred, target, variance, mask, importance)
    ]
    options = {"mask": mask, "sample_weight": importance}
    result = case(pred, target, variance, **options)
    torch.testing.assert_close(result, torch.stack(alone).mean(), **TIGHT)
    grad = gradient(case, pred, target, variance, **options)
    assert grad.isfinite().all()
    assert not grad[target.isnan()].any()


@pytest.mark.parametrize("case", PER_OUTPUT, ids=by_name)
@pytest.mark.parametrize("factor", [1e-6, 0.0, 1e6, torch.inf])
def test_per_output_the_variance_of_one_output_does_not_affect_another(case, factor):
    """An output without used elements does not count in the mean."""
    pred, target, variance = batch(12, 3, seed=3)
    changed = variance * torch.tensor([1.0, 1.0, factor]).double()
    before, after = (gradient(case, pred, target, v)[:, :2] for v in (variance, changed))
    dropped = factor > 1 if case.kind == "cutoff" else factor == torch.inf
    torch.testing.assert_close(after, before * (3 / 2 if dropped else 1), **TIGHT)
    if case.kind == "biv" and factor == 1e-6:
        pooled = case.function(pred, target, changed, epsilon=0.0)
        nearly_alone = case.function(pred[:, 2], target[:, 2], changed[:, 2], epsilon=0.0)
        torch.testing.assert_close(pooled, nearly_alone, rtol=1e-3, atol=0)  # why per_output exists


@pytest.mark.parametrize("case", PER_OUTPUT, ids=by_name)
def test_per_output_pairs_and_weights_are_those_of_the_outputs(case):
    pred, target, variance = batch(20, 3, seed=4)
    target[:, 1] = torch.nan
    module, expected = case.build(), case(pred, target, variance)
    w = module.weights(target, variance)
    torch.testing.assert_close((w * (pred - target.nan_to_num()) ** 2).sum() / 2, expected, **TIGHT)
    if "fixed epsilon" in case.laws:
        pairs = [module.sums(pred[k], target[k], variance[k]) for k in (slice(7), slice(7, 20))]
        assert pairs[0].numerator.shape == (3,)
        torch.testing.assert_close(sum(pairs).value(), expected, **TIGHT)


@pytest.mark.parametrize("case", cases_obeying("equal variances are l2"), ids=by_name)
@pytest.mark.parametrize("value", [0.0, 1e-12, 1.0, 1e12])
def test_equal_variances_are_l2(case, value):
    pred, target, variance = batch(20)
    equal = torch.full_like(variance, value)
    torch.testing.assert_close(case(pred, target, equal), F.mse_loss(pred, target), **TIGHT)


@pytest.mark.parametrize(
    "case",
    [c for c in cases_obeying("scale of variance and epsilon") if c.kind != "l2"],
    ids=by_name,
)
@pytest.mark.parametrize("factor", [1e-30, 1e-12, 7.0, 1e12, 1e30])
def test_variance_and_epsilon_scale_together(case, factor):
    for dtype in (torch.float32, torch.float64):
        pred, target, variance = batch(20, dtype=dtype)
        scaled = case.function(
            pred, target, variance * factor, **scaled_epsilon(case.settings, factor)
        )
        torch.testing.assert_close(scaled, case(pred, target, variance))


@pytest.mark.parametrize("case", cases_obeying("repetition is sample_weight"), ids=by_name)
def test_an_integer_importance_is_a_repetition(case):
    pred, target, variance = batch(10)
    times = torch.tensor([0, 1, 2, 3, 1, 1, 4, 0, 2, 5])
    repeated = case(*(tensor.repeat_interleave(times) for tensor in (pred, target, variance)))
    torch.testing.assert_close(
        case(pred, target, variance, sample_weight=times.double()), repeated, **TIGHT
    )
    torch.testing.assert_close(
        case(pred, target, variance, sample_weight=1e-9 * times.double()), repeated, **TIGHT
    )


@pytest.mark.parametrize("case", cases_obeying("minimiser is the weighted mean"), ids=by_name)
def test_the_best_constant_prediction_is_the_weighted_mean(case):
    _, target, variance = batch(20)
    weights = {
        "l2": lambda v: np.ones_like(v),
        "iv": lambda v: 1 / (v + case.settings["epsilon"]),
        "biv": lambda v: (
            1 / (v + float(biv.epsilon.as_policy(case.settings["epsilon"]).resolve(variance)))
        ),
        "cutoff": lambda v: (v < case.settings["threshold"]).astype(float),
    }[case.kind](variance.numpy())
    best = np.average(target.numpy(), weights=weights)
    constant = torch.tensor(best, requires_grad=True)
    case(constant.expand(20), target, variance).backward()
    assert abs(constant.grad.item()) < 1e-12
    for step in (-1e-3, 1e-3):
        elsewhere = torch.tensor(best + step).double()
        assert case(elsewhere.expand(20), target, variance) > case(
            constant.expand(20), target, variance
        )
