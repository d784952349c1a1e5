"""Checks of predictions and labels, and selection of the elements that are used."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from biv._utils import arrays, validation
from biv.losses import weights


def used_elements(
    target: Any,
    variance: Any,
    *pred: Any,
    sample_weight: Any = None,
    largest_variance: float = arrays.LARGEST**2,
) -> tuple[Tensor, ...]:
    """Return the used elements of each argument, as flat float64 tensors.

    The order is predictions (if passed), targets, variances and sample weights (if passed).
    """
    arguments = {"pred": pred[0]} if pred else {}
    arguments |= {"target": target, "variance": variance}
    arguments |= {} if sample_weight is None else {"sample_weight": sample_weight}
    columns = {
        name: arrays.to_tensor(name, value).detach().cpu().double()
        for name, value in arguments.items()
    }
    y = columns["target"]
    v = columns["variance"] = validation.expanded("variance", columns["variance"], "target", y)
    if pred:
        validation.check_same_shape("pred", columns["pred"], "target", y)
    known = ~y.isnan()
    if sample_weight is not None:
        s = validation.expanded("sample_weight", columns["sample_weight"], "target", y)
        validation.check_elements("sample_weight", s, s >= 0, "non-negative and not NaN")
        columns["sample_weight"], known = s, known & (s > 0)
    validation.check_elements("variance", v, (v >= 0) | ~known, "non-negative and not NaN")
    used = known & v.isfinite()
    for name, column in columns.items():
        validation.check_elements(name, column, column.isfinite() | ~used, "finite")
        limit = largest_variance if name == "variance" else arrays.LARGEST
        if name != "sample_weight":
            expected = f"at most {limit:g} in magnitude, so that its powers are finite"
            validation.check_elements(name, column, (column.abs() <= limit) | ~used, expected)
    if not bool(used.any()):
        raise ValueError(
            "target must hold at least one element that is not NaN and has finite variance; "
            f"got none of {y.numel()}"
        )
    selected = {name: column[used] for name, column in columns.items()}
    sizes = [float(selected[name].abs().max()) for name in ("pred", "target") if name in selected]
    largest = max(*sizes, math.sqrt(float(selected["variance"].max())))
    if 0 < largest < 1 / arrays.LARGEST:
        raise ValueError(
            f"target and its errors must not all be below {1 / arrays.LARGEST:g}, because their "
            f"powers would underflow; got at most {largest:g}: choose another unit"
        )
    return tuple(selected.values())


def score_each_output(score: Callable[..., Any], columns: dict[str, Any]) -> list[Any]:
    """Return a list with the score of each output, the last of two or more dimensions."""
    tensors = {
        name: arrays.to_tensor(name, values).detach()
        for name, values in columns.items()
        if values is not None
    }
    target = tensors["target"]
    if target.ndim < 2:
        raise ValueError(
            "target must have its outputs in the last dimension, (N, D), with per_output=True; "
            f"got shape {tuple(target.shape)}"
        )
    for name, tensor in tensors.items():
        if name in ("pred", "other"):
            validation.check_same_shape(name, tensor, "target", target)
        else:
            tensors[name] = validation.expanded(name, tensor, "target", target)
    scores = []
    for k in range(target.shape[-1]):
        try:
            scores.append(score(**{name: tensor[..., k] for name, tensor in tensors.items()}))
        except ValueError as error:
            raise ValueError(f"output {k}: {error}") from None
    return scores


def relative_weights(variance: Tensor, epsilon: float | Tensor) -> Tensor:
    """Return 1/(σ²+ε) divided by its largest value."""
    return weights.relative_weights(variance, epsilon, weights.smallest_variance(variance))
