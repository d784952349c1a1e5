"""Epsilon: how large the minimum variance in 1/(σ²+ε) is, and who decides it.

Three policies: :class:`Fixed` (a number in the units of the variance), :class:`Relative` (a share
of the variance of the labels) and :class:`MinimumBatchSize` (as little as keeps the effective batch
size from falling below a floor).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from biv._utils import arrays, search, validation
from biv._utils.arrays import Array
from biv._utils.pages import argument_hint, errors_point_to
from biv.losses import weights

MARGIN_OF_ROOM = 1e-4  # for rounding, at most this share of what ε can add to a size
SIZE_TOLERANCE = 1e-6  # a size counts as reached at size·(1 − SIZE_TOLERANCE)


def epsilon_for_batch_size(
    variance: Array, size: float, dim: int | Sequence[int] | None = None
) -> Array:
    r"""The smallest ε at which the effective batch size is at least `size`.

    .. math:: \epsilon^* = \min \{\epsilon \ge 0 :
              \mathrm{EBS}(1/(\sigma^2+\epsilon)) \ge \mathrm{size}\,(1 - 10^{-6})\}

    EBS is non-decreasing in ε and tends to the number of finite variances, so the root is bracketed
    and bisected; at any scale of the variances, zeros and infinities among them.

    Args:
        variance: σ² >= 0, an array or a tensor; elements of infinite variance do not count.
        size: The effective batch size wanted, at most the number of finite variances.
        dim: The dimension or dimensions that make up one batch; all of them by default. Every batch
            along the other dimensions gets an ε of its own.

    Returns:
        ε in the units of `variance`, of its kind; 0 where the size is reached without.

    Raises:
        ValueError: No ε reaches `size` in some batch.

    Identities: scaling σ² scales ε; equal variances, or size <= 1, give 0.

    Example:
        >>> import numpy as np
        >>> variance = np.array([0.0, 1.0, 2.0, 4.0])
        >>> epsilon = epsilon_for_batch_size(variance, 3)
        >>> round(float(epsilon), 3)
        1.059
        >>> w = weights.inverse_variance_weights(variance, epsilon)
        >>> round(float(weights.effective_batch_size(w)), 3)
        3.0
    """
    tensor = arrays.to_variances("variance", variance)
    tensor = tensor.reshape(1) if tensor.ndim == 0 else tensor
    wanted = validation.real_number("size", size, validation.POSITIVE)
    dims = weights.reduced_dims(dim, tensor.ndim)
    if validation.values_are_readable():
        _require_reachable(wanted, tensor.isfinite().sum(dims))
    found = _solve(tensor, dims, size=wanted)
    if validation.values_are_readable() and bool(found.isinf().any()):
        raise ValueError(
            f"variance must be small enough for epsilon to be finite in {found.dtype}; got up to "
            f"{float(tensor[tensor.isfinite()].max()):g}: choose another unit or a wider dtype"
        )
    result: Array = arrays.to_kind_of(variance, found)
    return result


def _require_reachable(size: float | Tensor, available: Tensor) -> None:
    # A size within the tolerance of the count is reached by some ε; more is not.
    unreachable = available <= size * (1 - SIZE_TOLERANCE)
    if bool(unreachable.any()):
        batch = f" in batch {tuple(unreachable.nonzero()[0].tolist())}" if available.ndim else ""
        raise ValueError(
            "size must be at most the number of elements of finite variance"
            f"{batch}, {int(available[unreachable][0])}: no epsilon reaches more; "
            f"got {float(size):g}{argument_hint('epsilon')}"
        )


def _solve(
    variance: Tensor,
    dims: tuple[int, ...],
    *,
    size: float | Tensor = math.inf,
    fraction: float = 1.0,
) -> Tensor:
    """Bracket and bisect, for min(size, fraction of all); so no size is out of reach."""
    dtype = arrays.at_least_float32(variance.dtype)
    if 0 in (variance.shape[d] for d in dims):
        return variance.sum(dims).to(dtype)
    # float64, which Apple's GPUs do not have: there the CPU does it.
    device = torch.device("cpu") if variance.device.type == "mps" else variance.device
    exact = variance.to(device, torch.float64) + 0.0  # of −0.0, the reciprocal is negative
    finite = exact.isfinite()
    count = finite.sum(dims, keepdim=True).double()
    scale = torch.where(finite, exact, 0.0).amax(dims, keepdim=True)
    # In units of the largest finite variance every scale is the same problem.
    relative = torch.where(finite, exact / torch.where(scale > 0, scale, 1.0), torch.inf)
    # A few units in the last place more than asked for, lest rounding leave it just unreached; but
    # where the size is the count or nearly so, little more is a much larger ε.
    wanted = (count * fraction).clamp(max=size)
    margin = min(16 * torch.finfo(dtype).eps, SIZE_TOLERANCE / 2)
    room = (count / wanted.clamp(min=1e-300) - 1.0 + SIZE_TOLERANCE) * MARGIN_OF_ROOM
    goal = wanted * (1.0 - SIZE_TOLERANCE + room.clamp(max=margin))

    smallest = relative.amin(dims, keepdim=True)

    def reached(epsilon: Tensor) -> Tensor:
        share = (smallest + epsilon) / (relative + epsilon)  # Kish's w / max(w), for ε > 0
        total, squares = share.sum(dims, keepdim=True), share.square().sum(dims, keepdim=True)
        return total.square() >= goal * squares

    # Kantorovich: EBS >= N·4Mm/(M+m)² for weights in [m, M]. Here M/m <= 1 + 1/ε, hence
    # EBS/N >= 1 − 1/(4ε²), and this `high` asks for twice the ε that suffices.
    slack = (count / goal - 1.0).clamp(min=SIZE_TOLERANCE / 4)
    high = 1.0 / slack.sqrt() + 1.0
    # So far below the smallest positive variance, ε changes no weight by a digit that counts.
    positive = torch.where(relative > 0, relative, 1.0).amin(dims, keepdim=True)
    low = (positive * 1e-20).clamp(min=1e-290, max=1.0)
    root = search.smallest_where(reached, low, high)
    none_needed = weights.kish(1.0 / relative, dims, keepdim=True) >= goal
    epsilon = torch.where(none_needed, 0.0, root * scale)
    return epsilon.squeeze(dims).to(variance.device, dtype)


class EpsilonPolicy(ABC):
    """Decides ε for everything that shares one normaliser: a batch, a window, all ranks.

    One of your own has to say :meth:`resolve`.

    Example:
        >>> class Median(EpsilonPolicy):
        ...     def resolve(self, variance):
        ...         return variance[variance.isfinite()].median()
        >>> Median().resolve(torch.tensor([1.0, 2.0, 4.0, torch.inf]))
        tensor(2.)
    """

    reads_batch: ClassVar[bool] = True
    """Whether ε depends on the variances; if so, ranks must exchange them."""

    @abstractmethod
    def resolve(self, variance: Tensor) -> float | Tensor:
        """ε, given every variance that shares the normaliser, +inf at elements not used."""

    def check(self, variance: Tensor) -> None:  # noqa: B027
        """Raise if these variances cannot be served; called where arguments are validated."""


@dataclass(frozen=True)
class Fixed(EpsilonPolicy):
    """The same ε for every batch.

    Args:
        value: ε >= 0, **absolute**: in the units of the variance. 0.05 suits labels of unit
            variance; for others see :class:`Relative`.

    Identity: a loss takes the number itself for the same.

    Example:
        >>> Fixed(0.05).resolve(torch.ones(8))
        0.05
    """

    value: float | Tensor
    reads_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        value = validation.real_number("epsilon", self.value, validation.NON_NEGATIVE)
        object.__setattr__(self, "value", value)

    def resolve(self, variance: Tensor) -> float | Tensor:  # noqa: ARG002
        """ε as given."""
        return self.value


@dataclass(frozen=True)
class Relative(EpsilonPolicy):
    """A share of the variance of the labels: ε = fraction × label variance.

    The bridge between a number that suits labels of unit variance (the paper's 0.05) and labels in
    units of their own.

    Args:
        fraction: >= 0.
        label_variance: The variance of the clean labels, or an estimate of it such as
            :func:`biv.metrics.label_variance`.

    Identities: the ε of ``Fixed(fraction * label_variance)``; with labels scaled to unit variance
    (:class:`biv.preprocessing.LabelScaler`), ε = fraction does the same.

    Example:
        >>> Relative(0.05, label_variance=400.0).resolve(torch.ones(8))
        20.0
    """

    fraction: float
    label_variance: float
    reads_batch: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("fraction", "label_variance"):
            value = float(
                validation.real_number(name, getattr(self, name), validation.NON_NEGATIVE)
            )
            object.__setattr__(self, name, value)
        if math.isinf(self.fraction * self.label_variance):
            raise ValueError(
                "fraction times label_variance must be finite; got "
                f"{self.fraction:g} times {self.label_variance:g}"
            )

    def resolve(self, variance: Tensor) -> float | Tensor:  # noqa: ARG002
        """Fraction × label variance."""
        return self.fraction * self.label_variance


@dataclass(frozen=True)
class MinimumBatchSize(EpsilonPolicy):
    """As little ε as keeps the effective batch size from falling below a floor.

    Args:
        size: The floor in elements. A batch with fewer usable elements (the last one of an epoch,
            say) is an error that says so; with ``validate_args=False``, while compiling and inside
            `torch.func`, such a batch gets as large an effective size as it can have.
        fraction: The floor as a share, in (0, 1], of the elements used; no batch is too small.

    The sizes are those of the weights 1/(σ²+ε) alone, over the elements used; `sample_weight` does
    not enter.

    Identities: ε is :func:`biv.epsilon_for_batch_size` of the batch; scaling σ² scales it; equal
    variances give 0; of N usable elements, `fraction` does what a size of fraction × N would.

    Example:
        >>> variance = torch.tensor([0.0, 1.0, 2.0, 4.0], dtype=torch.float64)
        >>> round(float(MinimumBatchSize(3).resolve(variance)), 3)
        1.059
        >>> round(float(MinimumBatchSize(fraction=0.75).resolve(variance)), 3)
        1.059
    """

    size: float | None = None
    fraction: float | None = None

    @errors_point_to("epsilon")
    def __post_init__(self) -> None:
        if (self.size is None) == (self.fraction is None):
            raise ValueError(
                f"give exactly one of size and fraction; got size={self.size}, "
                f"fraction={self.fraction}"
            )
        if self.size is not None:
            size = float(validation.real_number("size", self.size, validation.POSITIVE))
            if size < 1:
                raise ValueError(
                    f"size must be a finite number >= 1; got {size:g}: "
                    f"for a share of the batch use fraction={size:g}"
                )
            object.__setattr__(self, "size", size)
        else:
            share = validation.Range(0.0, open_below=True, limit=1.0, closed=True)
            fraction = float(validation.real_number("fraction", self.fraction, share))
            object.__setattr__(self, "fraction", fraction)

    def resolve(self, variance: Tensor) -> float | Tensor:
        """The smallest ε that keeps the floor."""
        flat = variance.flatten()
        if self.size is not None:
            return _solve(flat, (0,), size=self.size)
        assert self.fraction is not None  # one of the two is given
        return _solve(flat, (0,), fraction=self.fraction)

    def check(self, variance: Tensor) -> None:
        """Raise if the batch, not being empty, has fewer usable elements than `size`."""
        available = variance.isfinite().sum()
        if self.size is not None and 0 < available <= self.size * (1 - SIZE_TOLERANCE):
            raise ValueError(
                f"MinimumBatchSize(size={self.size:g}) needs at least as many usable elements; "
                f"got {int(available)} in this batch: use MinimumBatchSize(fraction=...), "
                f"a smaller size, or drop the incomplete batch{argument_hint('epsilon')}"
            )


def as_policy(epsilon: float | Tensor | EpsilonPolicy) -> EpsilonPolicy:
    """A policy as it is; a number as :class:`Fixed`."""
    if isinstance(epsilon, EpsilonPolicy):
        return epsilon
    try:
        return Fixed(epsilon)
    except TypeError as error:
        page = argument_hint("epsilon")
        said = f"{str(error).removesuffix(page)}: or give a policy"
        raise TypeError(f"{said}, MinimumBatchSize(fraction=0.5) say{page}") from None
