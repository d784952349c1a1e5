"""Weights from variances, and the effective batch size they leave."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from biv._utils import arrays, validation
from biv._utils.arrays import Array


def inverse_variance_weights(variance: Array, epsilon: float | Array = 0.0) -> Array:
    r"""Inverse-variance weights, :math:`w = 1 / (\sigma^2 + \epsilon)`.

    Args:
        variance: σ², the variance of each label's noise; an array or a tensor of any shape.
            0 is a trusted label, +inf a label to ignore.
        epsilon: ε, a minimum variance, **absolute**: in the units of `variance`, which are those of
            the label squared. 0.05 suits labels of unit variance. A number, or an array that
            broadcasts against `variance`.

    Returns:
        w, of the kind and shape of `variance`; float32 where `variance` is of half precision.

    Identities: σ² = +inf gives 0; σ² = 0 gives 1/ε, and +inf if ε = 0 too;
    scaling σ² and ε by c divides w by c.

    Example:
        >>> import numpy as np
        >>> inverse_variance_weights(np.array([0.0, 0.75, np.inf]), epsilon=0.25)
        array([4., 1., 0.])
    """
    tensor = arrays.variances("variance", variance)
    tensor = tensor.to(arrays.at_least_single(tensor.dtype))
    offset = _broadcastable_epsilon(epsilon, tensor)
    shifted = tensor + offset
    w = 1.0 / shifted
    if validation.values_are_readable():
        lost = (shifted > 0) & w.isinf()
        wanted = f"0, or large enough for 1/(variance + epsilon) to be finite in {w.dtype}"
        validation.all_elements("variance", tensor, ~lost, wanted)
    weights: Array = arrays.like(variance, w)
    return weights


def cutoff_weights(variance: Array, threshold: float | Tensor) -> Array:
    r"""Cutoff weights, :math:`w = \mathbf{1}\{\sigma^2 < C\}`: strictly below the threshold.

    Args:
        variance: σ², an array or a tensor of any shape.
        threshold: C > 0, in the units of `variance`.

    Returns:
        1 where σ² < C and 0 elsewhere, of the kind, shape and dtype of `variance`.

    Identities: C = +inf keeps every finite σ²; scaling σ² and C together changes nothing;
    :func:`biv.l2_loss` with these as `sample_weight` is :func:`biv.cutoff_loss`.

    Example:
        >>> import numpy as np
        >>> cutoff_weights(np.array([0.5, 1.0, 2.0]), threshold=1.0)
        array([1., 0., 0.])
    """
    tensor = arrays.variances("variance", variance)
    limit = positive_threshold(threshold)
    weights: Array = arrays.like(variance, (tensor < limit).to(tensor.dtype))
    return weights


def positive_threshold(threshold: object) -> float | Tensor:
    """C as a number above 0; +inf keeps every label of finite variance."""
    return validation.real_number(
        "threshold", threshold, validation.Range(0.0, open_below=True, closed=True)
    )


def effective_batch_size(weights: Array, dim: int | Sequence[int] | None = None) -> Array:
    r"""Kish's effective batch size, :math:`(\sum w)^2 / \sum w^2`.

    Args:
        weights: w >= 0, an array or a tensor. Infinite weights count as their limit: each as one,
            and the finite ones beside them as none.
        dim: The dimension or dimensions to reduce; all of them by default.

    Returns:
        A number in [1, N] where any of the N weights is positive, else 0.

    Identities: N for N equal weights; unchanged when all weights are scaled, at any scale;
    for :func:`inverse_variance_weights`, non-decreasing in ε.

    Example:
        >>> import numpy as np
        >>> float(effective_batch_size(np.array([1.0, 1.0, 0.0, 0.0])))
        2.0
        >>> float(effective_batch_size(np.array([np.inf, 1.0, 1.0])))
        1.0
    """
    tensor = arrays.to_tensor("weights", weights)
    if validation.values_are_readable():
        validation.all_elements("weights", tensor, tensor >= 0, "non-negative numbers")
    size: Array = arrays.like(weights, kish(tensor, reduced_dims(dim, tensor.ndim)))
    return size


def relative_weights(
    variance: Tensor, epsilon: float | Tensor, smallest_variance: Tensor
) -> Tensor:
    """1/(σ²+ε) over its value at the smallest variance: no scale of σ² overflows.

    With ε = 0 and a smallest variance of 0 this is the limit: 1 at the zeros and 0 elsewhere.
    """
    shifted = variance + epsilon
    least = smallest_variance + epsilon
    share = torch.where(shifted == least, 1.0, least / shifted)
    return torch.where(variance.isfinite(), share, 0.0)


def smallest(variance: Tensor) -> Tensor:
    """The smallest variance; +inf of none."""
    return variance.amin() if variance.numel() else variance.new_full((), torch.inf)


def kish(weights: Tensor, dims: tuple[int, ...], *, keepdim: bool = False) -> Tensor:
    """Kish's effective size of checked weights over `dims`."""
    weights = weights.to(arrays.at_least_single(weights.dtype))
    if 0 in (weights.shape[d] for d in dims):
        return weights.sum(dims, keepdim=keepdim)
    if not dims:  # a 0-d tensor: torch reads dim=() as "all", which is what we want of it
        return (weights > 0).to(weights.dtype)
    # Divided by the largest, so that neither sum overflows at any scale; inf/inf is 1 by its limit.
    largest = weights.amax(dims, keepdim=True)
    share = torch.where(weights == largest, 1.0, weights / largest)
    share = torch.where(largest > 0, share, 0.0)
    total = share.sum(dims, keepdim=keepdim)
    squares = share.square().sum(dims, keepdim=keepdim)
    size = total.square() / squares.clamp(min=1.0)
    # What Cauchy-Schwarz promises, rounding may miss by one digit.
    count = (share > 0).sum(dims, keepdim=keepdim).to(size.dtype)
    return size.clamp(min=count.clamp(max=1.0), max=count)


def reduced_dims(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """`dim` as a tuple of non-negative dimensions; None is all of them."""
    if dim is None:
        return tuple(range(ndim))
    try:
        asked = [operator.index(d) for d in (dim if isinstance(dim, Sequence) else (dim,))]
    except TypeError:
        raise TypeError(
            f"dim must be an integer, a sequence of them or None; got {validation.describe(dim)}"
        ) from None
    for d in asked:
        if not -ndim <= d < ndim:
            raise ValueError(f"dim must be in [{-ndim}, {ndim - 1}]; got {d}")
    dims = tuple(d % ndim for d in asked)
    if len(set(dims)) < len(dims) or not dims:
        raise ValueError(f"dim must name each dimension once; got {dim}")
    return dims


def _broadcastable_epsilon(epsilon: Any, variance: Tensor) -> float | Tensor:
    if not hasattr(epsilon, "ndim") or epsilon.ndim == 0:
        return validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE)
    tensor = arrays.to_tensor("epsilon", epsilon)
    if validation.values_are_readable():
        finite = (tensor >= 0) & ~tensor.isinf()
        validation.all_elements("epsilon", tensor, finite, "finite and >= 0")
    try:
        tensor.expand(variance.shape)
    except RuntimeError:
        raise ValueError(
            f"epsilon must broadcast against variance, {tuple(variance.shape)}; "
            f"got {tuple(tensor.shape)}"
        ) from None
    return tensor.to(variance.dtype)
