"""Losses on odd batches, compared with their formulas in float64."""

import math

import numpy as np
import torch

import biv
from biv.epsilon import Fixed, MinimumBatchSize, Relative
from fuzz.laws import one_of
from helpers.reference import reference_batch_size, reference_loss

DTYPES = (torch.float32, torch.float32, torch.float64, torch.float64, torch.float16, torch.bfloat16)
FUNCTIONS = {
    "l2": (biv.l2_loss, biv.L2Loss),
    "iv": (biv.iv_loss, biv.IVLoss),
    "biv": (biv.biv_loss, biv.BIVLoss),
    "cutoff": (biv.cutoff_loss, biv.CutoffLoss),
}
# The name or function for the library, then values and derivatives for the reference. The root
# has no finite derivative if the prediction is equal to the target.
BASES = {
    "mse": ("mse", lambda d: d**2, lambda d: 2 * d),
    "mae": ("mae", abs, np.sign),
    "huber": (
        "huber",
        lambda d: 0.5 * d**2 if abs(d) <= 1 else abs(d) - 0.5,
        lambda d: min(max(d, -1.0), 1.0),
    ),
    "root": (
        lambda a, b: (a - b).abs().sqrt(),
        lambda d: math.sqrt(abs(d)),
        lambda d: np.sign(d) / (2 * math.sqrt(abs(d))),
    ),
}


def case(rng, folder, number):  # noqa: ARG001
    """Check the value and gradient of one loss on one batch, or the error it must raise."""
    kind = one_of(rng, ["biv", "biv", "biv", "iv", "l2", "cutoff"])
    batch = _batch(rng)
    settings, reference = _settings(rng, kind, batch)
    wrong = _spoil(rng, batch) if rng.random() < 0.15 else None
    call = _call(rng, kind, settings)
    if wrong:
        _require_error(wrong, call, batch)
        return
    policy = settings.get("epsilon")
    if isinstance(policy, MinimumBatchSize):
        reference["epsilon"] = _minimum_epsilon(policy, batch)
    if kind == "iv" and reference["epsilon"] == 0 and (_used(batch)[1] == 0).any():
        _require_error("variance", call, batch)
        return
    _compare(kind, call, batch, reference, floor=isinstance(policy, MinimumBatchSize))


def _batch(rng):
    """Return tensors as a caller would pass them."""
    dtype = one_of(rng, DTYPES)
    shape = tuple(rng.integers(0 if rng.random() < 0.05 else 1, 7, size=rng.integers(1, 3)))
    wide = dtype in (torch.float32, torch.float64)
    scale = 10 ** rng.uniform(-3, 3) if wide else 1.0
    pred, target = (scale * rng.normal(size=shape) for _ in range(2))
    narrow = len(shape) == 2 and rng.random() < 0.3
    variance = rng.gamma(0.5, 2.0, size=(shape[0], 1) if narrow else shape)
    spread = one_of(rng, [0, 0, 3, 12]) if wide else 0
    variance *= 10.0 ** rng.uniform(-spread, spread, size=variance.shape)
    variance *= 10.0 ** (rng.uniform(-12, 12) if wide and rng.random() < 0.3 else 0)
    for value, share in ((0.0, 0.3), (-0.0, 0.1), (np.inf, 0.3)):
        if rng.random() < share:
            variance[rng.random(variance.shape) < 0.3] = value
    if rng.random() < 0.3:
        target[rng.random(shape) < 0.3] = np.nan
    same = rng.random(shape) < 0.3  # the root has no derivative there, but these are ignored
    if rng.random() < 0.3:
        variance = np.where(same, np.inf, np.broadcast_to(variance, shape))
        target = np.where(same, pred, target)
    mask = torch.from_numpy(rng.random(shape) < 0.7) if rng.random() < 0.3 else None
    weight = None
    if rng.random() < 0.3:
        weight = rng.uniform(0, 1, size=shape) * (rng.random(shape) < 0.8)
        weight *= one_of(rng, [1.0, 1.0, 1e-20, 1e20, 3e38]) if wide else 1.0
    return {
        "pred": torch.tensor(pred, dtype=dtype, requires_grad=True),
        "target": torch.tensor(target, dtype=dtype),
        "variance": torch.tensor(variance, dtype=dtype),
        "mask": mask,
        "sample_weight": None if weight is None else torch.tensor(weight, dtype=dtype),
    }


def _settings(rng, kind, batch):
    """Return the arguments of the loss, and those of its reference."""
    settings, reference = {}, {}
    if len(batch["target"].shape) > 1 and rng.random() < 0.3:
        settings["per_output"] = reference["per_output"] = True
    if kind == "cutoff":
        finite = batch["variance"][batch["variance"].isfinite()]
        middle = float(finite.double().median()) if finite.numel() else 1.0
        settings["threshold"] = reference["threshold"] = middle * 1.5 or 1.0
    if kind == "biv":
        name = one_of(rng, list(BASES))
        settings["base"], reference["base"] = BASES[name][0], name
    if kind in ("iv", "biv"):
        number = float(one_of(rng, [0.0, 0.05, 1e-6, 3.0, 1e6]))
        policy = one_of(rng, ["number", "number", "fixed", "relative", "size", "fraction", "all"])
        settings["epsilon"] = {
            "number": number,
            "fixed": Fixed(number),
            "relative": Relative(0.5, 2 * number),
            "size": MinimumBatchSize(1.5),
            "fraction": MinimumBatchSize(fraction=float(rng.uniform(0.1, 0.99))),
            "all": MinimumBatchSize(fraction=1.0),
        }[policy]
        reference["epsilon"] = number
        if policy in ("size", "fraction", "all"):
            settings.pop("per_output", None), reference.pop("per_output", None)
            if policy == "size" and len(_used(batch)[1]) < 2:
                settings["epsilon"] = number
    return settings, reference


def _call(rng, kind, settings):
    """Return the loss as a function or as a module."""
    function, module = FUNCTIONS[kind]
    if rng.random() < 0.5:
        return module(**settings)
    return lambda *args, **kwargs: function(*args, **settings, **kwargs)


def _arguments(batch):
    chosen = {name: batch[name] for name in ("mask", "sample_weight") if batch[name] is not None}
    return (batch["pred"], batch["target"], batch["variance"]), chosen


def _arrays(batch):
    """Return the arrays that the reference takes."""
    return [
        None if batch[name] is None else batch[name].detach().double().numpy()
        for name in ("pred", "target", "variance", "mask", "sample_weight")
    ]


def _used(batch):
    """Return a mask of the elements in use, and their variances."""
    _, target, variance, mask, weight = _arrays(batch)
    used = ~np.isnan(target) & np.isfinite(np.broadcast_to(variance, target.shape))
    used &= True if mask is None else mask.astype(bool)
    used &= True if weight is None else weight > 0
    return used, np.broadcast_to(variance, target.shape)[used]


def _spoil(rng, batch):
    """Put an invalid value into an element in use, and return the name of its argument."""
    used, _ = _used(batch)
    if not used.any():
        return None
    place = tuple(one_of(rng, np.argwhere(used)))
    name = one_of(rng, ["variance", "target"])
    tensor = batch[name]
    if name == "variance" and tensor.shape != batch["target"].shape:
        place = (place[0], 0)
    tensor[place] = one_of(rng, [-1.0, math.nan]) if name == "variance" else math.inf
    return name


def _require_error(name, call, batch):
    plain, chosen = _arguments(batch)
    try:
        value = call(*plain, **chosen)
    except ValueError as error:
        assert name in str(error), f"the error does not name {name}: {error}"
    else:
        raise AssertionError(f"{name} should have raised an error; the loss is {value.item()}")


def _minimum_epsilon(policy, batch):
    """Return the ε of a policy, after checking it against its definition in float64."""
    _, variance = _used(batch)
    if not len(variance):
        return 0.0
    target_size = policy.size if policy.size is not None else policy.fraction * len(variance)
    resolved = float(policy.resolve(torch.from_numpy(variance.copy()).double()))
    assert math.isfinite(resolved), f"epsilon is {resolved}"
    assert resolved >= 0, f"epsilon is {resolved}"
    reached = _size(variance, resolved) >= target_size * (1 - 1.1e-6)
    assert reached, "the minimum batch size is not reached"
    if resolved:
        assert _size(variance, resolved * 0.999) <= target_size * (1 - 1e-7), (
            f"epsilon is too large: {resolved}"
        )
    return resolved


def _size(variance, epsilon):
    with np.errstate(divide="ignore"):
        return reference_batch_size(1.0 / (np.abs(variance) + epsilon))


def _compare(kind, call, batch, reference, *, floor):
    plain, chosen = _arguments(batch)
    loss = call(*plain, **chosen)
    loss.backward()
    pred, target, variance, mask, weight = _arrays(batch)
    name = reference.pop("base", "mse")
    _, values, slopes = BASES[name]
    used, _ = _used(batch)
    if mask is not None:
        mask = mask.astype(bool)
    difference = pred - target
    if name == "root" and (difference[used] == 0).any():
        return  # the root has no derivative at 0
    rest = (target, np.abs(variance))
    chosen = {"mask": mask, "sample_weight": weight}
    index = np.arange(pred.size, dtype=float).reshape(pred.shape)  # passed as the prediction

    def weighted(elements):
        """Return the reference loss for given elementwise losses."""
        return reference_loss(
            kind, index, *rest, base=lambda k, _: elements.flat[int(k)], **chosen, **reference
        )

    terms, slope = np.zeros(pred.shape), np.zeros(pred.shape)
    for place in zip(*np.nonzero(used), strict=True):
        terms[place] = values(difference[place])
        slope[place] = slopes(difference[place]) if difference[place] else 0.0
    expected = weighted(terms)
    gradient = np.zeros(pred.shape)
    for place in zip(*np.nonzero(used & (slope != 0)), strict=True):
        alone = np.zeros(pred.shape)
        alone[place] = slope[place]
        gradient[place] = weighted(alone)
    exact = batch["pred"].dtype == torch.float64
    largest = 1e300 if exact else 6e4 if batch["pred"].dtype == torch.float16 else 1e36
    if abs(expected) > largest or np.abs(gradient).max(initial=0.0) > largest:
        return  # beyond the range of the dtype
    rtol, atol = (1e-9, 1e-290) if exact else (3e-5, 1e-35)
    if floor and not exact:
        rtol = 1e-2  # ε is only as exact as the tolerance of the batch size
    grad = batch["pred"].grad
    assert loss.ndim == 0
    description = f"{name}, {reference}, {batch['pred'].dtype}"
    assert np.isclose(loss.item(), expected, rtol=rtol, atol=atol), (
        f"the loss {kind} differs from its definition ({description}): {loss.item()!r}, not "
        f"{expected!r}"
    )
    rtol = {torch.float16: 2e-3, torch.bfloat16: 2e-2}.get(batch["pred"].dtype, rtol)
    atol = {torch.float16: 1e-6}.get(batch["pred"].dtype, atol)
    close = np.isclose(grad.double().numpy(), gradient, rtol=rtol, atol=atol)
    assert close.all(), (
        f"the gradient of {kind} differs from its definition ({description}): "
        f"{grad.double().numpy()[~close][0]!r}, not {gradient[~close][0]!r}"
    )
