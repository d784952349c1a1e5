"""Reference implementation of the losses, in plain Python with float64, from the formulas.

It is independent of the library: it uses no torch and no shared helper, and loops over elements.
"""

import math

import numpy as np


def elementwise(base, f, y):
    if base == "mse":
        return (f - y) ** 2
    if base == "mae":
        return abs(f - y)
    if base == "huber":
        return 0.5 * (f - y) ** 2 if abs(f - y) <= 1 else abs(f - y) - 0.5
    return base(f, y)


def reference_loss(
    kind,
    pred,
    target,
    variance,
    *,
    epsilon=0.0,
    threshold=None,
    base="mse",
    mask=None,
    sample_weight=None,
    per_output=False,
):
    settings = {"epsilon": epsilon, "threshold": threshold, "base": base}
    arguments = pred, target, variance, mask, sample_weight
    if not per_output or np.ndim(target) < 2:
        return reference_of_one(kind, *arguments, **settings) or 0.0
    shape = np.shape(target)
    outputs = []
    for k in range(shape[-1]):
        column = [None if a is None else np.broadcast_to(a, shape)[..., k] for a in arguments]
        outputs.append(reference_of_one(kind, *column, **settings))
    defined = [loss for loss in outputs if loss is not None]
    return math.fsum(defined) / len(defined) if defined else 0.0


def reference_of_one(
    kind, pred, target, variance, mask, sample_weight, *, epsilon, threshold, base
):
    """Return the loss over all elements, or None if no element is used.

    For a loss that is not one of the four, `kind` is its weight as a function of variance and ε.
    """
    pred, target = np.asarray(pred, float), np.asarray(target, float)
    variance = np.broadcast_to(np.asarray(variance, float), target.shape)
    mask = np.ones(target.shape, bool) if mask is None else np.broadcast_to(mask, target.shape)
    if sample_weight is None:
        sample_weight = np.ones(target.shape)
    importance = np.broadcast_to(sample_weight, target.shape)

    used = [
        i
        for i in np.ndindex(target.shape)
        if mask[i] and not math.isnan(target[i]) and not math.isinf(variance[i]) and importance[i]
    ]
    if kind == "cutoff":
        used = [i for i in used if variance[i] < threshold]
    if not used:
        return None
    at_limit = kind == "biv" and epsilon == 0 and any(variance[i] == 0 for i in used)
    terms, weights = [], []
    for i in used:
        if callable(kind):
            w = kind(variance[i], epsilon)
        elif kind in ("l2", "cutoff"):
            w = 1.0
        elif at_limit:
            w = 1.0 if variance[i] == 0 else 0.0
        else:
            w = 1.0 / (variance[i] + epsilon)
        w *= importance[i]
        weights.append(w)
        terms.append(w * elementwise(base, pred[i], target[i]) if w else 0.0)
    denominator = len(used) if kind == "iv" else math.fsum(weights)
    return math.fsum(terms) / denominator


def reference_batch_size(weights):
    weights = [float(w) for w in np.ravel(weights)]
    if any(math.isinf(w) for w in weights):
        return float(sum(math.isinf(w) for w in weights))
    if not any(weights):
        return 0.0
    scaled = [w / max(weights) for w in weights]
    return math.fsum(scaled) ** 2 / math.fsum(w * w for w in scaled)
