"""The pair that every function of this package returns, and checks of its sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from biv._utils import validation
from biv._utils.arrays import to_kind_of

if TYPE_CHECKING:
    from typing_extensions import Self

Array = npt.NDArray[np.float64]


class NoisyLabels(NamedTuple):
    """Pair of labels and their variances, which can be unpacked as ``y, variance``.

    Attributes
    ----------
    y : array or Tensor
        Labels, of any shape.
    variance : array or Tensor
        σ², the variance of each label's error, in squared units of y. It has the shape of y.

    Examples
    --------
    >>> import biv
    >>> y, variance = biv.labels.counts([24.0, 0.0])
    >>> y.tolist(), variance.tolist()
    ([24.0, 0.0], [25.0, 1.0])
    """

    y: Any
    variance: Any


class GroupedLabels(NoisyLabels):
    """Pair of labels and variances of items that were measured several times.

    It unpacks as ``y, variance``, like every :class:`NoisyLabels`, and has two more attributes.

    Attributes
    ----------
    y : array
        Labels, one per item, of shape (items,).
    variance : array
        σ², the variance of each label's error, of shape (items,), in squared units of y.
    items : array
        Names of the items, sorted, each once, of shape (items,).
    counts : array
        Number of values of each item, of shape (items,).

    Examples
    --------
    >>> import biv
    >>> labels = biv.labels.repeats(["b", "a", "a"], [5.0, 1.0, 2.0])
    >>> labels.items.tolist(), labels.y.tolist(), labels.counts.tolist()
    (['a', 'b'], [1.5, 5.0], [2, 1])
    """

    items: npt.NDArray[Any]
    counts: npt.NDArray[np.int64]

    def __new__(
        cls, y: Array, variance: Array, items: npt.NDArray[Any], counts: npt.NDArray[np.int64]
    ) -> Self:
        """Make the pair and attach the two further attributes."""
        pair = super().__new__(cls, y, variance)
        pair.items, pair.counts = items, counts
        return pair

    def _replace(self, **changes: Any) -> Self:
        """Replace fields, as for any named tuple, and keep `items` and `counts`."""
        y, variance = super()._replace(**changes)
        return type(self)(y, variance, self.items, self.counts)

    def __getnewargs__(self) -> Any:
        """Return the arguments from which copies and pickles are made."""
        return self.y, self.variance, self.items, self.counts


def pair(
    template: Any,
    y: Tensor,
    variance: Tensor,
    sources: dict[str, Tensor],
    positive: Tensor | None = None,
) -> NoisyLabels:
    """Return the pair as tensors of the dtype of y, or as arrays of float64.

    Parameters
    ----------
    template : array-like or Tensor
        Argument of the caller, which decides between tensors and arrays.
    y : Tensor
        Labels.
    variance : Tensor
        Variances of their errors.
    sources : dict of str to Tensor
        Arguments that these were computed from, by name. Where all sources are finite, the results
        must be finite too: an infinite variance means a label to ignore, and an overflow must not
        make one.
    positive : Tensor or None
        Where it is above 0, the variance must not be 0: that would mean a label to trust, and an
        underflow must not make one.
    """
    if variance.ndim:
        validation.check_same_shape("the error bars", variance, "the labels", y)
    variance = variance.expand(y.shape)
    if isinstance(template, Tensor):
        variance = variance.to(y.dtype)
    invalid = ~(y.isfinite() & variance.isfinite())
    for source in sources.values():
        invalid = invalid & source.isfinite()
    if positive is not None:
        invalid = invalid | ((positive > 0) & (variance == 0))
    if bool(invalid.any()):
        index = tuple(invalid.nonzero()[0].tolist())
        raise ValueError(
            f"{' and '.join(sources)} must give labels and variances within the range of "
            f"{variance.dtype}; got y = {y[index]:g} with variance {variance[index]:g} at index "
            f"{index}: choose another unit or a wider dtype"
        )
    if isinstance(template, Tensor):
        return NoisyLabels(y, variance)
    return NoisyLabels(
        to_kind_of(template, y.double()), to_kind_of(template, variance.contiguous())
    )


def max_magnitude(values: Tensor, axis: int) -> Tensor:
    """Return the largest absolute value along the axis."""
    return values.abs().amax(dim=axis)


def value_range(values: Tensor, axis: int) -> Tensor:
    """Return the difference between the largest and the smallest value along the axis."""
    return values.amax(dim=axis) - values.amin(dim=axis)


def count_along(name: str, values: Tensor, axis: int, at_least: int) -> int:
    """Return the number of values along the axis, which must exist and have enough of them."""
    if not -values.ndim <= axis < values.ndim:
        dimensions = "dimension" if values.ndim == 1 else "dimensions"
        raise ValueError(f"axis {axis} is out of bounds for {name} with {values.ndim} {dimensions}")
    if values.shape[axis] < at_least:
        raise ValueError(
            f"{name} must have at least {at_least} values along axis {axis}; got "
            f"{values.shape[axis]}"
        )
    return values.shape[axis]


def require_non_negative(name: str, values: Tensor) -> None:
    """Raise a ValueError if any element is negative or NaN."""
    validation.check_elements(name, values, values >= 0, "non-negative and not NaN")
