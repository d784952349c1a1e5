"""The losses inside PyTorch: autograd, autocast, compile, functional transforms."""

import pytest
import torch

import biv
from helpers.cases import CASES, batch


def loss_arguments(*shape, seed=0):
    """Return a batch with missing, ignored, masked and weighted elements."""
    pred, target, variance = batch(*shape, seed=seed)
    target.view(-1)[1] = torch.nan
    variance.view(-1)[3] = torch.inf
    mask = torch.ones(shape, dtype=torch.bool)
    mask.view(-1)[5] = False
    return pred, target, variance, {"mask": mask, "sample_weight": variance.clamp(0.1, 1)}


def test_gradcheck(case):
    pred, target, variance, options = loss_arguments(5, 3)
    pred = pred.requires_grad_()
    assert torch.autograd.gradcheck(lambda p: case(p, target, variance, **options), (pred,))
    assert torch.autograd.gradgradcheck(lambda p: case(p, target, variance, **options), (pred,))


def test_gradients_reach_targets(case):
    """A bootstrapped target is a tensor that may require grad."""
    pred, target, variance = batch(6)
    target = target.requires_grad_()
    assert torch.autograd.gradcheck(lambda t: case(pred, t, variance), (target,))


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_autocast(case, half):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    x, (_, target, variance) = torch.randn(16, 3), batch(16, 1, dtype=torch.float32)
    with torch.autocast("cpu", dtype=half):
        pred = model(x)
        loss = case(pred, target, variance)
    assert pred.dtype == half
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, case(pred.float(), target, variance))
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.slow
def test_compile_in_one_graph(case):
    torch.compiler.reset()
    pred, target, variance, options = loss_arguments(8, 2)
    module = case.build()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    results = []
    for call in (module, compiled):
        leaf = pred.clone().requires_grad_()
        loss = call(leaf, target, variance, **options)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(results[1], results[0], rtol=1e-12, atol=1e-12)


def test_vmap_over_a_stack(case):
    pred, target, variance, options = loss_arguments(4, 9)
    stacked = torch.func.vmap(lambda p, t, v, m, s: case(p, t, v, mask=m, sample_weight=s))
    together = stacked(pred, target, variance, *options.values())
    alone = [
        case(pred[i], target[i], variance[i], **{k: o[i] for k, o in options.items()})
        for i in range(4)
    ]
    torch.testing.assert_close(together, torch.stack(alone), rtol=1e-12, atol=1e-12)


def test_grad_of_a_stack(case):
    pred, target, variance = batch(4, 9)
    together = torch.func.vmap(torch.func.grad(lambda p, t, v: case(p, t, v)))(
        pred, target, variance
    )
    leaf = pred.clone().requires_grad_()
    sum(case(leaf[i], target[i], variance[i]) for i in range(4)).backward()
    torch.testing.assert_close(together, leaf.grad, rtol=1e-12, atol=1e-12)


def test_values_are_not_checked_inside_a_transform(case):
    pred, target, variance = batch(4)
    variance[0] = -1.0
    if case.kind != "l2":
        assert torch.isfinite(torch.func.grad(lambda p: case(p, target, variance))(pred)).any()
    with pytest.raises(ValueError, match="variance"):
        case(pred, target, variance)


def test_without_validation_no_value_is_read(case):
    """Tensors on the meta device have no values, so that reading one raises."""
    pred, target, variance = (tensor.to("meta") for tensor in batch(6, 2))
    mask = torch.ones(6, 2, dtype=torch.bool, device="meta")
    loss = case(pred, target, variance, mask=mask, sample_weight=variance, validate_args=False)
    assert loss.shape == ()
    with pytest.raises(RuntimeError):
        case(pred, target, variance)


def test_a_module_has_no_state():
    for case in CASES:
        module = case.build()
        assert not list(module.parameters())
        assert not module.state_dict()


def test_repr_shows_the_settings():
    assert repr(biv.BIVLoss()) == "BIVLoss(epsilon=0.05, base='mse')"
    assert repr(biv.CutoffLoss(2.0)) == "CutoffLoss(threshold=2.0)"
    assert repr(biv.L2Loss()) == "L2Loss()"
    assert repr(biv.L2Loss(per_output=True)) == "L2Loss(per_output=True)"
