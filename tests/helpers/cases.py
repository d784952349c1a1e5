"""List of all losses under test. A new loss in it is tested for every law that it declares."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

import biv
from biv.epsilon import Fixed, MinimumBatchSize, Relative
from helpers.reference import reference_loss

EVERY_LAW = frozenset(
    {
        "equal variances are l2",
        "scale of variance and epsilon",
        "repetition is sample_weight",
        "minimiser is the weighted mean",
        "fixed epsilon",
        "one normaliser",
    }
)


@dataclass(frozen=True)
class Case:
    """One loss with its settings, its reference, and the laws that it obeys."""

    name: str
    kind: str
    function: Callable[..., Tensor]
    module: Callable[..., torch.nn.Module]
    settings: dict[str, Any] = field(default_factory=dict)
    reference_settings: dict[str, Any] | None = None
    laws: frozenset[str] = EVERY_LAW

    def __call__(self, *args, **kwargs):
        return self.function(*args, **self.settings, **kwargs)

    def build(self, **kwargs):
        return self.module(**self.settings, **kwargs)

    def reference(self, *args, **kwargs):
        settings = self.settings if self.reference_settings is None else self.reference_settings
        return reference_loss(self.kind, *args, **settings, **kwargs)


def log_cosh(pred, target):
    return (pred - target).cosh().log()


def numpy_log_cosh(pred, target):
    return np.log(np.cosh(pred - target))


def _biv(name, epsilon, base="mse", **kwargs):
    settings = {"epsilon": epsilon, "base": base}
    return Case(name, "biv", biv.biv_loss, biv.BIVLoss, settings, **kwargs)


def _per_output(name, kind, function, module, settings=None, laws=EVERY_LAW, **kwargs):
    settings = {**(settings or {}), "per_output": True}
    laws = laws - {"one normaliser"}
    return Case(name, kind, function, module, settings, laws=laws, **kwargs)


CASES = [
    Case(
        "l2",
        "l2",
        biv.l2_loss,
        biv.L2Loss,
    ),
    Case(
        "iv",
        "iv",
        biv.iv_loss,
        biv.IVLoss,
        {"epsilon": 0.0},
        laws=frozenset({"minimiser is the weighted mean", "fixed epsilon", "one normaliser"}),
    ),
    Case(
        "iv-epsilon",
        "iv",
        biv.iv_loss,
        biv.IVLoss,
        {"epsilon": 0.3},
        laws=frozenset({"minimiser is the weighted mean", "fixed epsilon", "one normaliser"}),
    ),
    _biv("biv", 0.05),
    _biv("biv-no-epsilon", 0.0),
    _biv(
        "biv-mae",
        0.05,
        "mae",
        laws=EVERY_LAW - {"equal variances are l2", "minimiser is the weighted mean"},
    ),
    _biv(
        "biv-huber",
        0.2,
        "huber",
        laws=EVERY_LAW - {"equal variances are l2", "minimiser is the weighted mean"},
    ),
    _biv(
        "biv-callable",
        0.05,
        log_cosh,
        reference_settings={"epsilon": 0.05, "base": numpy_log_cosh},
        laws=EVERY_LAW - {"equal variances are l2", "minimiser is the weighted mean"},
    ),
    _biv(
        "biv-module",
        0.05,
        torch.nn.SmoothL1Loss(reduction="none"),
        reference_settings={"epsilon": 0.05, "base": "huber"},
        laws=EVERY_LAW - {"equal variances are l2", "minimiser is the weighted mean"},
    ),
    _biv("biv-fixed", Fixed(0.1), reference_settings={"epsilon": 0.1}),
    _biv("biv-relative", Relative(0.05, 4.0), reference_settings={"epsilon": 0.2}),
    _biv(
        "biv-minimum-size",
        MinimumBatchSize(1.5),
        reference_settings={},
        laws=frozenset(
            {"equal variances are l2", "scale of variance and epsilon", "one normaliser"}
        ),
    ),
    _biv(
        "biv-minimum-fraction",
        MinimumBatchSize(fraction=0.8),
        reference_settings={},
        laws=frozenset(
            {"equal variances are l2", "scale of variance and epsilon", "one normaliser"}
        ),
    ),
    Case(
        "cutoff",
        "cutoff",
        biv.cutoff_loss,
        biv.CutoffLoss,
        {"threshold": 0.7},
        laws=EVERY_LAW - {"equal variances are l2"},
    ),
    _per_output("l2-per-output", "l2", biv.l2_loss, biv.L2Loss),
    _per_output(
        "iv-per-output",
        "iv",
        biv.iv_loss,
        biv.IVLoss,
        {"epsilon": 0.3},
        laws=frozenset({"minimiser is the weighted mean", "fixed epsilon"}),
    ),
    _per_output("biv-per-output", "biv", biv.biv_loss, biv.BIVLoss, {"epsilon": 0.05}),
    _per_output(
        "biv-minimum-fraction-per-output",
        "biv",
        biv.biv_loss,
        biv.BIVLoss,
        {"epsilon": MinimumBatchSize(fraction=0.8)},
        reference_settings={},
        laws=frozenset({"equal variances are l2", "scale of variance and epsilon"}),
    ),
    _per_output(
        "cutoff-per-output",
        "cutoff",
        biv.cutoff_loss,
        biv.CutoffLoss,
        {"threshold": 0.7},
        laws=EVERY_LAW - {"equal variances are l2"},
    ),
]


def cases_obeying(law):
    assert law in EVERY_LAW
    return [case for case in CASES if law in case.laws]


def batch(*shape, seed=0, dtype=torch.float64, variance_shape=None):
    """Return random predictions, targets and variances in (0, 1.5)."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size):
        return torch.rand(size, generator=generator, dtype=torch.float64)

    pred = (4 * draw(*shape) - 2).to(dtype)
    target = (4 * draw(*shape) - 2).to(dtype)
    variance = (1.5 * draw(*(variance_shape or shape))).to(dtype)
    return pred, target, variance


def gradient(loss, pred, *args, **kwargs):
    """Return the gradient of a loss with respect to its prediction."""
    pred = pred.detach().clone().requires_grad_()
    loss(pred, *args, **kwargs).backward()
    return pred.grad
