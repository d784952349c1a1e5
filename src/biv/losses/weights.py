"""Weights computed from variances, and their effective batch size."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from biv._utils import arrays, validation
from biv._utils.arrays import Array


def inverse_variance_weights(variance: Array, epsilon: float | Array = 0.0) -> Array:
    r"""Compute inverse-variance weights, :math:`w = 1 / (\sigma^2 + \epsilon)`.

    Parameters
    ----------
    variance : ndarray or Tensor of any shape
        Noise variance σ² of each label, in squared units of y. 0 marks a trusted label, +inf a
        label to ignore.
    epsilon : float, ndarray or Tensor, default=0.0
        ε >= 0, **absolute**: in the units of `variance`. It limits the weights to 1/ε. An array
        must broadcast against `variance`. Raise it if a few labels of very small variance would get
        nearly all the weight; 0.05 suits labels of unit variance.

    Returns
    -------
    ndarray or Tensor
        w, of the type and shape of `variance`; float32 if `variance` has half precision.

    Raises
    ------
    ValueError
        If a variance is negative or NaN, or so small that its weight overflows.

    Notes
    -----
    Identities:

    - σ² = +inf gives 0.
    - σ² = 0 gives 1/ε, and +inf if ε is 0 too.
    - Multiplying σ² and ε by c divides w by c.

    Examples
    --------
    >>> import numpy as np
    >>> inverse_variance_weights(np.array([0.0, 0.75, np.inf]), epsilon=0.25)
    array([4., 1., 0.])
    """
    tensor = arrays.to_variances("variance", variance)
    tensor = tensor.to(arrays.at_least_float32(tensor.dtype))
    offset = _broadcastable_epsilon(epsilon, tensor)
    shifted = tensor + offset
    w = 1.0 / shifted
    if validation.values_are_readable():
        overflow = (shifted > 0) & w.isinf()
        expected = f"0, or large enough for 1/(variance + epsilon) to be finite in {w.dtype}"
        validation.check_elements("variance", tensor, ~overflow, expected)
    weights: Array = arrays.to_kind_of(variance, w)
    return weights


def cutoff_weights(variance: Array, threshold: float | Tensor) -> Array:
    r"""Compute cutoff weights, :math:`w = \mathbf{1}\{\sigma^2 < C\}`.

    Parameters
    ----------
    variance : ndarray or Tensor of any shape
        Noise variance σ² of each label, in squared units of y.
    threshold : float or 0-d Tensor
        C > 0, in the units of `variance`. A label is kept if its σ² is strictly below C.

    Returns
    -------
    ndarray or Tensor
        1 where σ² < C and 0 elsewhere, of the type, shape and dtype of `variance`.

    Raises
    ------
    ValueError
        If a variance is negative or NaN, or `threshold` is not positive.

    Notes
    -----
    Identities:

    - C = +inf keeps every label with finite σ².
    - Multiplying σ² and C by the same number changes nothing.
    - :func:`biv.l2_loss` with these weights as `sample_weight` equals :func:`biv.cutoff_loss`.

    Examples
    --------
    >>> import numpy as np
    >>> cutoff_weights(np.array([0.5, 1.0, 2.0]), threshold=1.0)
    array([1., 0., 0.])
    """
    tensor = arrays.to_variances("variance", variance)
    limit = positive_threshold(threshold)
    weights: Array = arrays.to_kind_of(variance, (tensor < limit).to(tensor.dtype))
    return weights


def positive_threshold(threshold: object) -> float | Tensor:
    """Return the validated threshold, a number > 0 or +inf."""
    return validation.real_number(
        "threshold", threshold, validation.Range(0.0, open_below=True, closed=True)
    )


def effective_batch_size(weights: Array, dim: int | Sequence[int] | None = None) -> Array:
    r"""Compute Kish's effective batch size, :math:`(\sum w)^2 / \sum w^2`.

    If all labels are equally noisy, the mean of this many equally weighted labels has the same
    variance as the weighted mean.

    Parameters
    ----------
    weights : ndarray or Tensor of any shape
        w >= 0. Infinite weights are replaced by their limit: each infinite weight becomes 1, each
        finite weight of the same batch becomes 0.
    dim : int or sequence of int, default=None
        Dimension or dimensions to reduce; None reduces all of them. Set it if the array holds
        several batches.

    Returns
    -------
    ndarray or Tensor
        Number of labels, in [1, N] if any of the N weights is positive, otherwise 0.

    Raises
    ------
    ValueError
        If a weight is negative or NaN, or `dim` is out of range.

    Notes
    -----
    Identities:

    - N equal weights give N.
    - Multiplying all weights by a positive number changes nothing, at any scale.
    - With :func:`inverse_variance_weights`, it does not decrease as ε grows.

    Examples
    --------
    >>> import numpy as np
    >>> float(effective_batch_size(np.array([1.0, 1.0, 0.0, 0.0])))
    2.0
    >>> float(effective_batch_size(np.array([np.inf, 1.0, 1.0])))
    1.0
    """
    tensor = arrays.to_tensor("weights", weights)
    if validation.values_are_readable():
        validation.check_elements("weights", tensor, tensor >= 0, "non-negative numbers")
    size: Array = arrays.to_kind_of(weights, kish(tensor, reduced_dims(dim, tensor.ndim)))
    return size


def relative_weights(
    variance: Tensor, epsilon: float | Tensor, smallest_variance: Tensor
) -> Tensor:
    """Return 1/(σ²+ε) divided by its value at the smallest variance.

    The result is at most 1, so that it does not overflow at any scale of σ². If ε and the smallest
    variance are both 0, it is the limit: 1 where σ² is 0, and 0 elsewhere.
    """
    shifted = variance + epsilon
    least = smallest_variance + epsilon
    ratio = torch.where(shifted == least, 1.0, least / shifted)
    return torch.where(variance.isfinite(), ratio, 0.0)


def smallest_variance(variance: Tensor) -> Tensor:
    """Return the smallest variance; +inf if there are no elements."""
    return variance.amin() if variance.numel() else variance.new_full((), torch.inf)


def kish(weights: Tensor, dims: tuple[int, ...], *, keepdim: bool = False) -> Tensor:
    """Return Kish's effective batch size over `dims`; `weights` must be validated already."""
    weights = weights.to(arrays.at_least_float32(weights.dtype))
    if 0 in (weights.shape[d] for d in dims):
        return weights.sum(dims, keepdim=keepdim)
    if not dims:  # a 0-d tensor
        return (weights > 0).to(weights.dtype)
    # Dividing by the largest weight keeps both sums from overflowing. Infinite weights become 1.
    largest = weights.amax(dims, keepdim=True)
    ratio = torch.where(weights == largest, 1.0, weights / largest)
    ratio = torch.where(largest > 0, ratio, 0.0)
    total = ratio.sum(dims, keepdim=keepdim)
    squares = ratio.square().sum(dims, keepdim=keepdim)
    size = total.square() / squares.clamp(min=1.0)
    # The size is at most the number of positive weights (Cauchy-Schwarz), except for rounding.
    count = (ratio > 0).sum(dims, keepdim=keepdim).to(size.dtype)
    return size.clamp(min=count.clamp(max=1.0), max=count)


def reduced_dims(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Return `dim` as a tuple of non-negative dimensions; None stands for all dimensions."""
    if dim is None:
        return tuple(range(ndim))
    try:
        requested = [operator.index(d) for d in (dim if isinstance(dim, Sequence) else (dim,))]
    except TypeError:
        raise TypeError(
            f"dim must be an integer, a sequence of integers or None; "
            f"got {validation.describe(dim)}"
        ) from None
    for d in requested:
        if not -ndim <= d < ndim:
            raise ValueError(f"dim must be in [{-ndim}, {ndim - 1}]; got {d}")
    dims = tuple(d % ndim for d in requested)
    if len(set(dims)) < len(dims) or not dims:
        raise ValueError(f"dim must name each dimension once; got {dim}")
    return dims


def _broadcastable_epsilon(epsilon: Any, variance: Tensor) -> float | Tensor:
    if not hasattr(epsilon, "ndim") or epsilon.ndim == 0:
        return validation.real_number("epsilon", epsilon, validation.NON_NEGATIVE)
    tensor = arrays.to_tensor("epsilon", epsilon)
    if validation.values_are_readable():
        is_valid = (tensor >= 0) & ~tensor.isinf()
        validation.check_elements("epsilon", tensor, is_valid, "finite and >= 0")
    try:
        tensor.expand(variance.shape)
    except RuntimeError:
        raise ValueError(
            f"epsilon must broadcast to the shape of variance, {tuple(variance.shape)}; "
            f"got {tuple(tensor.shape)}"
        ) from None
    return tensor.to(variance.dtype)
