"""The pair that every function of this package returns, and checks of what it is made from."""

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
    """Labels and σ² of each.

    Attributes:
        y: Labels.
        variance: Of their errors, in squared units of y; of the same shape.
    """

    y: Any
    variance: Any


class GroupedLabels(NoisyLabels):
    """Labels of items that were measured several times: a pair like every other, and two notes.

    Attributes:
        y: Labels, (items,).
        variance: Of their errors.
        items: What they are labels of, each once, in order.
        counts: How many values each is made of.
    """

    items: npt.NDArray[Any]
    counts: npt.NDArray[np.int64]

    def __new__(
        cls, y: Array, variance: Array, items: npt.NDArray[Any], counts: npt.NDArray[np.int64]
    ) -> Self:
        """The pair, and the notes beside it."""
        pair = super().__new__(cls, y, variance)
        pair.items, pair.counts = items, counts
        return pair

    def _replace(self, **changes: Any) -> Self:
        """As of any named tuple; the notes stay."""
        y, variance = super()._replace(**changes)
        return type(self)(y, variance, self.items, self.counts)

    def __getnewargs__(self) -> Any:
        """For copies and pickles."""
        return self.y, self.variance, self.items, self.counts


def pair(
    given: Any,
    y: Tensor,
    variance: Tensor,
    sources: dict[str, Tensor],
    positive: Tensor | None = None,
) -> NoisyLabels:
    """As they were given: tensors of their dtype, or arrays of float64.

    Args:
        given: What to be like.
        y: Labels.
        variance: Of their errors.
        sources: What these were computed from: where all is finite, so must they be. An infinite
            variance stands for a label to ignore, and none may become one by an overflow.
        positive: Above 0 where the variance must be: one of 0 stands for a label to trust.
    """
    if variance.ndim:
        validation.check_same_shape("the error bars", variance, "the labels", y)
    variance = variance.expand(y.shape)
    if isinstance(given, Tensor):
        variance = variance.to(y.dtype)
    lost = ~(y.isfinite() & variance.isfinite())
    for source in sources.values():
        lost = lost & source.isfinite()
    if positive is not None:
        lost = lost | ((positive > 0) & (variance == 0))
    if bool(lost.any()):
        place = tuple(lost.nonzero()[0].tolist())
        raise ValueError(
            f"{' and '.join(sources)} must give labels and variances that {variance.dtype} has "
            f"room for; got y = {y[place]:g} with variance {variance[place]:g} at index {place}: "
            "choose another unit or a wider dtype"
        )
    if isinstance(given, Tensor):
        return NoisyLabels(y, variance)
    return NoisyLabels(to_kind_of(given, y.double()), to_kind_of(given, variance.contiguous()))


def largest(values: Tensor, axis: int) -> Tensor:
    return values.abs().amax(dim=axis)


def width(values: Tensor, axis: int) -> Tensor:
    return values.amax(dim=axis) - values.amin(dim=axis)


def count_along(name: str, values: Tensor, axis: int, least: int) -> int:
    if not -values.ndim <= axis < values.ndim:
        raise ValueError(f"axis must be one of {name}, {values.ndim}; got {axis}")
    if values.shape[axis] < least:
        raise ValueError(
            f"{name} must be {least} or more along axis {axis}; got {values.shape[axis]}"
        )
    return values.shape[axis]


def require_non_negative(name: str, values: Tensor) -> None:
    validation.check_elements(name, values, values >= 0, "non-negative and not NaN")
