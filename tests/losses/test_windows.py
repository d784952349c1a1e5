"""Gradient accumulation: the micro-batches of a window add up to the window as one batch."""

import pytest
import torch

import biv
from helpers.cases import batch
from helpers.ranks import backward, gradients, linear, part


def rows(count, missing=False):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(count)).double()
    _, target, variance = batch(count, 2, seed=count)
    if missing:
        target[0, 0], variance[1] = torch.nan, torch.inf
    return {"x": x, "target": target, "variance": variance, "mask": None, "sample_weight": None}


@pytest.mark.parametrize("missing", [False, True])
def test_every_window_equals_one_batch_including_the_last_partial_one(case, missing):
    data = rows(22, missing)
    micro_batches = [part(data, k) for k in torch.arange(22).split(4)]  # the last has two rows
    steps = 0
    start = 0
    for window in biv.accumulation_windows(micro_batches, 4):
        loss, accumulated, at_once = case.build(), linear(), linear()
        window_loss = loss.window([m["target"] for m in window], [m["variance"] for m in window])
        total = sum(backward(accumulated, window_loss, m) for m in window)
        stop = start + sum(len(m["x"]) for m in window)
        value = backward(at_once, loss, part(data, slice(start, stop)))
        torch.testing.assert_close(total, value, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(
            gradients(accumulated), gradients(at_once), rtol=1e-10, atol=1e-12
        )
        start, steps = stop, steps + 1
    assert (start, steps) == (22, 2)


def test_masks_and_importances_of_a_window():
    data, loss = rows(10), biv.BIVLoss()
    data["mask"], data["sample_weight"] = data["target"] > -1, data["variance"] + 0.1
    micro = [part(data, k) for k in torch.arange(10).split(4)]
    columns = {f"{name}s": [m[name] for m in micro] for name in data if name != "x"}
    accumulated, at_once = linear(), linear()
    window_loss = loss.window(**columns)
    for m in micro:
        backward(accumulated, window_loss, m)
    backward(at_once, loss, data)
    torch.testing.assert_close(gradients(accumulated), gradients(at_once), rtol=1e-10, atol=1e-12)


def test_a_window_per_output_keeps_the_precision_of_each_part():
    loss = biv.BIVLoss(biv.epsilon.MinimumBatchSize(fraction=0.5), per_output=True)
    single, double = batch(4, 3, dtype=torch.float32), batch(4, 3, seed=1)
    window_loss = loss.window([single[1], double[1]], [single[2], double[2]])
    assert window_loss(*single).dtype == torch.float32
    assert window_loss(*double).dtype == torch.float64


def test_a_trusted_label_in_one_micro_batch_determines_the_window():
    """Without ε, the limit is taken over the window and not in each micro-batch."""
    data = rows(8)
    data["variance"][5] = 0.0
    loss = biv.BIVLoss(epsilon=0.0)
    micro = [part(data, k) for k in (slice(4), slice(4, 8))]
    window_loss = loss.window([m["target"] for m in micro], [m["variance"] for m in micro])
    model = linear()
    shares = [backward(model, window_loss, m) for m in micro]
    assert shares[0] == 0
    assert shares[1] > 0


def test_a_window_checks_its_arguments():
    loss, y = biv.BIVLoss(), torch.ones(3, 1)
    window_loss = loss.window([y], [y])
    with pytest.raises(
        ValueError, match=r"pred must have the shape of target, \(3, 1\); got \(3,\)"
    ):
        window_loss(torch.ones(3), y, y)
    with pytest.raises(ValueError, match="variance must be non-negative"):
        window_loss(y, y, -y)
    with pytest.raises(ValueError, match="variance must be non-negative"):
        loss.window([y], [-y])


def test_a_window_without_validation_reads_no_values():
    y = torch.ones(3, 1, device="meta")
    window_loss = biv.BIVLoss(validate_args=False).window([y, y], [y, y])
    assert window_loss(y, y, y).shape == ()
    with pytest.raises(RuntimeError):
        biv.BIVLoss().window([y, y], [y, y])


def test_a_window_without_used_elements_is_zero():
    loss, y = biv.BIVLoss(), torch.full((3,), torch.nan)
    pred = torch.ones(3, requires_grad=True)
    loss.window([y], [torch.ones(3)])(pred, y, torch.ones(3)).backward()
    assert torch.equal(pred.grad, torch.zeros(3))


def test_windows_of_an_iterator():
    windows = biv.accumulation_windows(iter(range(5)), 2)
    assert list(windows) == [[0, 1], [2, 3], [4]]
    assert list(biv.accumulation_windows([], 2)) == []
