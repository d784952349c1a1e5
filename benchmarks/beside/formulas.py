"""Comparison of the formulas of losses, without training."""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from importlib import util

import torch
import torch.nn.functional as F

import biv
from beside.data import EPSILON

BATCH = 256


def random_batches(count, dtype):
    """Yield predictions, labels, and variances over six orders of magnitude."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        pred, target, scale = torch.randn(3, BATCH, 1, generator=generator, dtype=dtype)
        yield pred.requires_grad_(), target, 10 ** scale.mul(1.5).clamp(-3, 3)


def largest_differences(ours, theirs, *, factor=1.0, compare_loss=True, dtype=torch.float64):
    """Return the largest relative differences of loss and gradient over 200 batches."""
    worst = {"loss": 0.0, "gradient": 0.0}
    for pred, target, variance in random_batches(200, dtype):
        losses = ours(pred, target, variance), factor * theirs(pred, target, variance)
        gradients = [torch.autograd.grad(loss, pred)[0] for loss in losses]
        pairs = {"gradient": gradients} | ({"loss": losses} if compare_loss else {})
        for name, (a, b) in pairs.items():
            difference = float((a - b).detach().abs().max() / a.detach().abs().max())
            worst[name] = max(worst[name], difference)
    return worst if compare_loss else {"gradient": worst["gradient"]}


def weighted_mse(pred, target, variance):
    """Return PyTorch's weighted loss with the weights of BIV."""
    return F.mse_loss(pred, target, weight=1 / (variance + EPSILON))


def our_biv(pred, target, variance):
    """Return the loss of the paper."""
    return biv.biv_loss(pred, target, variance, epsilon=EPSILON)


def general_biv(pred, target, variance):
    """Return the same with a mask, which does not use torch's weighted loss."""
    mask = torch.ones_like(target, dtype=torch.bool)
    return biv.biv_loss(pred, target, variance, epsilon=EPSILON, mask=mask)


def edge_cases():
    """Return the outcome of each loss on unusual batches."""
    y, nan, inf = [1.5, 2.0, 2.0], float("nan"), float("inf")
    good = [0.1, 0.2, 0.3]
    cases = {
        "an ordinary batch": (y, good),
        "NaN in the target: a missing label": ([1.5, nan, 2.0], good),
        "σ² = 0: a label to trust": (y, [0.0, 0.2, 0.3]),
        "σ² = +inf: a label to ignore": (y, [0.1, inf, 0.3]),
        "both of these in one row": ([1.5, nan, 2.0], [0.1, inf, 0.3]),
        "σ² = +inf in the whole batch": (y, [inf] * 3),
        "σ² = NaN: forgotten": (y, [0.1, nan, 0.3]),
        "σ² < 0: a mistake": (y, [0.1, -0.2, 0.3]),
        "prediction (N, 1), target (N,)": (y, good),
        "prediction (N, 1), σ² (N,)": (y, good),
    }
    losses = {
        "mse_loss": weighted_mse,
        "nll": F.gaussian_nll_loss,
        "biv": our_biv,
    }
    outcomes = {}
    for case, (labels, variances) in cases.items():
        pred = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
        target = torch.tensor(labels)
        variance = torch.tensor(variances)
        target = target if "target (N,)" in case else target[:, None]
        variance = variance if "σ² (N,)" in case else variance[:, None]
        outcomes[case] = {
            name: outcome(loss, pred, target, variance) for name, loss in losses.items()
        }
    return outcomes


def outcome(loss, pred, target, variance):
    """Return the loss as text, with a note if there was a warning; or "error"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = loss(pred, target, variance)
        except (ValueError, TypeError, RuntimeError):
            return "error"
    (gradient,) = torch.autograd.grad(value, pred)
    text = f"{value.item():.3f}"
    if not gradient.isfinite().all():
        text += ", gradient not finite"
    return text + (", with a warning" if caught else "")


ASTRONN = """
import json, sys
import numpy as np
import tensorflow as tf
from astroNN.nn.losses import robust_mse
given = json.load(sys.stdin)
y, f, log_s2, err = (tf.constant(np.array(given[k], np.float32)) for k in ("y", "f", "s", "e"))
with tf.GradientTape() as tape:
    tape.watch([f, log_s2])
    loss = tf.reduce_mean(robust_mse(y, f, log_s2, err))
gradients = [g.numpy().tolist() for g in tape.gradient(loss, [f, log_s2])]
def missing(y):  # a row whose first label, or only one, is missing
    f = tf.zeros((1, len(y)))
    with tf.GradientTape() as tape:
        tape.watch(f)
        loss = tf.reduce_mean(robust_mse(tf.constant([y]), f, f, f + 1))
    return [bool(np.isfinite(loss)), bool(np.isfinite(tape.gradient(loss, f)).all())]
nan = float("nan")
print(json.dumps({"loss": float(loss), "gradients": gradients,
                  "missing": [missing([nan]), missing([nan, 1.0])]}))
"""


def astronn():
    """Compare the loss of astroNN with torch's for var = σ² + s², or return why it is missing.

    It runs in a separate process, because it imports TensorFlow, and with a temporary home folder,
    because it writes its settings there.
    """
    if util.find_spec("astroNN") is None:
        return {"missing": "it is not installed"}
    generator = torch.Generator().manual_seed(0)
    f, y, s, e = torch.randn(4, BATCH, 1, generator=generator)
    e = e.abs()
    given = {name: value.tolist() for name, value in zip("fyse", (f, y, s, e), strict=True)}
    with tempfile.TemporaryDirectory() as home:
        run = subprocess.run(
            [sys.executable, "-c", ASTRONN],
            input=json.dumps(given),
            capture_output=True,
            text=True,
            env=os.environ | {"HOME": home, "TF_CPP_MIN_LOG_LEVEL": "3"},
            check=False,
        )
    if run.returncode:
        return {"missing": run.stderr.strip().splitlines()[-1]}
    theirs = json.loads(run.stdout.strip().splitlines()[-1])
    f, s = f.requires_grad_(), s.requires_grad_()
    ours = F.gaussian_nll_loss(f, y, e**2 + s.exp())
    difference = abs(theirs["loss"] / ours.item() - 1)
    worst = 0.0
    for a, b in zip(torch.autograd.grad(ours, [f, s]), theirs["gradients"], strict=True):
        worst = max(worst, float((a - torch.tensor(b)).abs().max() / a.abs().max()))
    return {"loss": difference, "gradient": worst, "finite": theirs["missing"]}


def formulas():
    """Return all comparisons of formulas."""

    def nll(pred, target, variance):
        return F.gaussian_nll_loss(pred, target, variance)

    single = {"dtype": torch.float32}
    return {
        "mse_loss, double": largest_differences(our_biv, weighted_mse),
        "mse_loss, single": largest_differences(our_biv, weighted_mse, **single),
        "masked, double": largest_differences(general_biv, weighted_mse),
        "masked, single": largest_differences(general_biv, weighted_mse, **single),
        "nll, double": largest_differences(biv.iv_loss, nll, factor=2.0, compare_loss=False),
        "nll, single": largest_differences(
            biv.iv_loss, nll, factor=2.0, compare_loss=False, **single
        ),
        "astroNN": astronn(),
        "edge cases": edge_cases(),
    }
