"""The elements of arrays of predictions and labels that count, checked, as float64 tensors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from biv._utils import arrays, validation
from biv.losses import weights


def elements(
    target: Any,
    variance: Any,
    *pred: Any,
    sample_weight: Any = None,
    largest_variance: float = arrays.LARGEST**2,
) -> tuple[Tensor, ...]:
    """The predictions, if any, targets, variances and importances, if any, that count.

    As flat float64 tensors.
    """
    given = {"pred": pred[0]} if pred else {}
    given |= {"target": target, "variance": variance}
    given |= {} if sample_weight is None else {"sample_weight": sample_weight}
    columns = {
        name: arrays.to_tensor(name, value).detach().cpu().double() for name, value in given.items()
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
            wanted = f"at most {limit:g} in size, for its powers to be finite"
            validation.check_elements(name, column, (column.abs() <= limit) | ~used, wanted)
    if not bool(used.any()):
        raise ValueError(
            "target must hold at least one element that is not NaN and has finite variance; "
            f"got none of {y.numel()}"
        )
    found = {name: column[used] for name, column in columns.items()}
    sizes = [float(found[name].abs().max()) for name in ("pred", "target") if name in found]
    largest = max(*sizes, math.sqrt(float(found["variance"].max())))
    if 0 < largest < 1 / arrays.LARGEST:
        raise ValueError(
            f"target and its errors must not all be below {1 / arrays.LARGEST:g}, for their "
            f"powers not to vanish; got {largest:g} at most: choose another unit"
        )
    return tuple(found.values())


def of_each_output(score: Callable[..., Any], columns: dict[str, Any]) -> list[Any]:
    """A score of each output, the last of two or more dimensions, by itself."""
    tensors = {
        name: arrays.to_tensor(name, given).detach()
        for name, given in columns.items()
        if given is not None
    }
    target = tensors["target"]
    if target.ndim < 2:
        raise ValueError(
            "target must have its outputs in the last dimension, (N, D), with per_output=True; "
            f"got shape {tuple(target.shape)}"
        )
    for name, given in tensors.items():
        if name in ("pred", "other"):
            validation.check_same_shape(name, given, "target", target)
        else:
            tensors[name] = validation.expanded(name, given, "target", target)
    found = []
    for k in range(target.shape[-1]):
        try:
            found.append(score(**{name: given[..., k] for name, given in tensors.items()}))
        except ValueError as error:
            raise ValueError(f"output {k}: {error}") from None
    return found


def relative_weights(variance: Tensor, epsilon: float | Tensor) -> Tensor:
    return weights.relative_weights(variance, epsilon, weights.smallest_variance(variance))
