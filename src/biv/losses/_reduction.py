"""From labels to weights to the pair (Σ wℓ, denominator): what every loss is built on.

A batch, an accumulation window and a group of ranks differ only in what is summed before the one
division.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from biv._utils import arrays, validation
from biv._utils.pages import argument_hint, page_hint
from biv.losses._weighting import Scope, Weighting, total

Base: TypeAlias = str | Callable[[Tensor, Tensor], Tensor]

BASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": lambda pred, target: (pred - target).square(),
    "mae": lambda pred, target: (pred - target).abs(),
    "huber": lambda pred, target: F.huber_loss(pred, target, reduction="none"),
}


# What stands for an element that does not count. At these the usual losses are finite, unlike at
# 0 and 0: logarithms, ratios and roots of either and of their difference.
NEUTRAL_PRED, NEUTRAL_TARGET = 0.5, 1.0

_ORDINARY = (Tensor, torch.nn.Parameter)


class LossSums(NamedTuple):
    """The pair behind a loss. Pairs of one ε add up, with + or sum(); the loss is their quotient.

    With `per_output`, both are of shape (D,), and the loss is the mean of the D quotients.

    Example:
        >>> one = LossSums(torch.tensor(6.0), torch.tensor(2.0))
        >>> other = LossSums(torch.tensor(4.0), torch.tensor(3.0))
        >>> (one + other).value()
        tensor(2.)
    """

    numerator: Tensor
    denominator: Tensor

    def __add__(self, other: object) -> LossSums:
        if not isinstance(other, LossSums):
            return NotImplemented
        return LossSums(self.numerator + other.numerator, self.denominator + other.denominator)

    def __radd__(self, other: object) -> LossSums:
        return self if other == 0 else NotImplemented  # where sum() starts

    def value(self) -> Tensor:
        """Numerator / denominator; 0, still attached to the graph, where nothing is left.

        Outputs of which nothing is left do not count in the mean over outputs.
        """
        each = self.numerator / torch.where(self.denominator == 0, 1.0, self.denominator)
        if not each.ndim:
            return each
        return each.sum() / (self.denominator != 0).sum().clamp(min=1)


class Labels(NamedTuple):
    """One batch of labels, checked and of one shape.

    An element that must not count (masked out, a NaN target, an infinite variance, a sample weight
    of 0) has variance +inf here, to which every weighting gives weight 0: one mechanism for all.

    Attributes:
        target: In the dtype to compute in.
        variance: In the dtype it was given in, in which a cutoff is decided.
        sample_weight: In the dtype to compute in.
    """

    target: Tensor
    variance: Tensor
    sample_weight: Tensor | None

    @property
    def largest_importance(self) -> Tensor | None:
        """The largest sample weight in use, 0 of none; None if all elements matter alike."""
        s = self.sample_weight
        if s is None:
            return None
        return s.amax() if s.numel() else s.new_zeros(())

    @classmethod
    def checked(
        cls,
        target: Tensor,
        variance: Tensor | None,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
        validate_args: bool = True,
    ) -> Labels:
        """Labels from what a caller passed; values are looked at only if `validate_args`.

        The variance of an element that does not count anyway is not looked at.
        """
        look = validate_args and validation.values_are_readable()
        validation.floating_tensor("target", target)
        dtype = arrays.at_least_float32(target.dtype)
        used = ~target.isnan()
        if mask is not None:
            used = used & _beside_target("mask", validation.bool_tensor("mask", mask), target)
        if look:
            good = target.isfinite() | ~used
            validation.check_elements("target", target, good, "finite, or NaN where it is missing")
        if sample_weight is not None:
            importance = _weight_argument("sample_weight", sample_weight, target)
            if look:
                good = (sample_weight >= 0) & sample_weight.isfinite()
                good = good | ~_spoken_for(sample_weight, used)
                validation.check_elements("sample_weight", sample_weight, good, "finite and >= 0")
            dtype = torch.promote_types(dtype, importance.dtype)
            used = used & (importance > 0)
            sample_weight = torch.where(used, importance.to(dtype), 0.0)
        if variance is None:
            own = target.new_zeros(()).expand(target.shape)
        else:
            own = _weight_argument("variance", variance, target)
            if look:
                good = (variance >= 0) | ~_spoken_for(variance, used)
                validation.check_elements("variance", variance, good, "non-negative and not NaN")
            dtype = torch.promote_types(dtype, own.dtype)
            if sample_weight is not None:
                sample_weight = torch.where(own.isfinite(), sample_weight, 0.0)
        return cls(target.to(dtype), torch.where(used, own, torch.inf), sample_weight)

    def promoted(self) -> Tensor:
        """The variance in the dtype to compute in."""
        return self.variance.to(self.target.dtype)


def _weight_argument(name: str, value: object, target: Tensor) -> Tensor:
    tensor = validation.floating_tensor(name, value)
    validation.check_no_grad(name, tensor)
    return _beside_target(name, tensor, target)


def _beside_target(name: str, value: Tensor, target: Tensor) -> Tensor:
    validation.check_same_device(name, value, "target", target)
    return validation.expanded(name, value, "target", target)


def _spoken_for(argument: Tensor, used: Tensor) -> Tensor:
    """Which entries of an argument, in the shape it was given, belong to an element in use."""
    return used if argument.shape == used.shape else used.any(dim=1, keepdim=True)


class Weighted(NamedTuple):
    """Labels and the weights of each, 0 where an element does not count.

    The denominator is 0-d, or (D,) if each output has its own.
    """

    target: Tensor
    weights: Tensor
    denominator: Tensor

    @classmethod
    def of(
        cls, weighting: Weighting, labels: Labels, scope: Scope, *, per_output: bool = False
    ) -> Weighted:
        """Weigh one batch in a scope that may be wider than it."""
        dtype = labels.target.dtype
        w = weighting.weights(labels.variance, scope.cast(dtype), dtype)
        unit = None if scope.importance is None else scope.importance.to(dtype)
        if labels.sample_weight is not None:
            w = w * (labels.sample_weight if unit is None else labels.sample_weight / unit)
        elif unit is not None:
            w = w / unit
        denominator = total(weighting.counted(labels.variance, w), per_output).to(w.dtype)
        if unit is not None and not weighting.is_relative:
            denominator = denominator / unit
        return cls(labels.target, w, denominator)

    def joined(self) -> Weighted:
        """The same loss in weights that share one denominator, whatever each output has."""
        if not self.denominator.ndim:
            return self
        left = self.denominator != 0
        w = self.weights / torch.where(left, self.denominator, 1.0)
        return Weighted(self.target, w, left.sum().to(w.dtype))

    def sums(self, base: Base, pred: Tensor) -> LossSums:
        """The pair of this batch alone."""
        return LossSums(self.numerator(base, pred), self.denominator)

    def numerator(self, base: Base, pred: Tensor) -> Tensor:
        """Σ wℓ. Whatever an element of weight 0 holds, it reaches no sum and no gradient."""
        counts = self.weights > 0
        dtype = torch.promote_types(pred.dtype, self.weights.dtype)
        pred = torch.where(counts, pred.to(dtype), NEUTRAL_PRED)
        target = torch.where(counts, self.target.to(dtype), NEUTRAL_TARGET)
        return total(self.weights * elementwise(base, pred, target), self.denominator.ndim > 0)


def elementwise(base: Base, pred: Tensor, target: Tensor) -> Tensor:
    """ℓ(pred, target) without a reduction."""
    loss = resolve_base(base)(pred, target)
    if not isinstance(loss, Tensor) or loss.shape != pred.shape:
        raise ValueError(
            f"base must return one loss an element, a tensor of shape {tuple(pred.shape)} "
            f"(as reduction='none' does); got {validation.describe(loss)}{argument_hint('base')}"
        )
    return loss


def resolve_base(base: object) -> Callable[[Tensor, Tensor], Tensor]:
    """The elementwise loss of a name, or the callable itself."""
    if isinstance(base, str) and base in BASES:
        return BASES[base]
    if callable(base):
        return base
    names = ", ".join(repr(name) for name in BASES)
    raise ValueError(
        f"base must be one of {names} or a callable giving elementwise losses; "
        f"got {validation.describe(base)}{argument_hint('base')}"
    )


@dataclass(frozen=True)
class LossFormula:
    """A loss: how labels are weighed, what is averaged, and whether values are looked at.

    With `per_output` it is the mean of the losses of the outputs, each with its own normaliser.
    """

    weighting: Weighting
    base: Base = "mse"
    validate_args: bool = True
    per_output: bool = False

    def __post_init__(self) -> None:
        resolve_base(self.base)

    def labels(
        self,
        target: Tensor,
        variance: Tensor | None,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Labels:
        """The labels of one batch, checked."""
        if variance is None and not self.weighting.variance_is_optional:
            raise TypeError(
                "variance must be a torch.Tensor; got None: only the L2 loss can do without"
                f"{page_hint('loss')}"
            )
        return Labels.checked(target, variance, mask, sample_weight, self.validate_args)

    def weigh(
        self,
        target: Tensor,
        variance: Tensor | None,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Weighted:
        """The weights of one batch that shares its normaliser with no other."""
        return self._weigh(self.labels(target, variance, mask, sample_weight)).joined()

    def _weigh(self, labels: Labels, *, absolute: bool = False) -> Weighted:
        scope = Scope.over(
            self.weighting,
            labels.promoted(),
            None if absolute else labels.largest_importance,
            validate_args=self.validate_args,
            per_output=self.per_output,
        )
        return Weighted.of(self.weighting, labels, scope, per_output=self.per_output)

    def sums(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> LossSums:
        """The pair of one batch, which adds up with those of others."""
        require_pred(pred, target)
        labels = self.labels(target, variance, mask, sample_weight)
        weighed = self._weigh(labels, absolute=True)
        look = sample_weight is not None and self.validate_args and validation.values_are_readable()
        if look and not bool(weighed.denominator.isfinite().all()):
            raise ValueError(
                "sample_weight must be such that the sum of all weights is finite in "
                f"{weighed.weights.dtype}; got an overflow: divide it by its largest"
            )
        return weighed.sums(self.base, pred)

    def value(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """The loss of such a batch, a 0-d tensor."""
        if mask is None and sample_weight is None and self.weighting.has_plain_weights:
            loss = self._value_of_plain_labels(pred, target, variance)
            if loss is not None:
                return loss
        require_pred(pred, target)
        labels = self.labels(target, variance, mask, sample_weight)
        return self._weigh(labels).sums(self.base, pred).value()

    def _value_of_plain_labels(
        self, pred: Tensor, target: Tensor, variance: Tensor | None
    ) -> Tensor | None:
        """The loss where nothing has to be left out, in as few passes as torch's weighted MSE.

        It is tried first, and what cannot be plain shows in the result: a NaN, an infinity or a
        zero among the labels, variances or predictions leaves no finite value, but for σ² = +inf,
        whose weight is 0 as it should be. Then None is returned, and the general way is taken. Only
        on the CPU, where looking at a value waits for nothing.
        """
        if variance is None or self.per_output or not _are_ordinary(pred, target, variance):
            return None
        if not isinstance(self.base, str) and not math.isfinite((target + variance).sum().item()):
            return None  # a base of the user's may hide a NaN, or have a gradient of 0 times NaN
        if self.validate_args and not bool(variance.amin() >= 0):
            return None
        w = self.weighting.plain_weights(variance)
        total = w.sum()
        # Weights are absolute here; far from 1 they would cost digits or overflow.
        if not 1e-15 < total.item() < 1e15:
            return None
        loss = (w * elementwise(self.base, pred, target)).sum() / total
        return loss if math.isfinite(loss.item()) else None


def _are_ordinary(pred: Tensor, target: Tensor, variance: Tensor) -> bool:
    """Whether these are CPU tensors of one shape and one dtype, whose values may be looked at."""
    return (
        type(pred) in _ORDINARY  # fake tensors and other subclasses may hold no values
        and type(target) in _ORDINARY
        and type(variance) in _ORDINARY
        and pred.shape == target.shape == variance.shape
        and pred.dtype == target.dtype == variance.dtype
        and pred.dtype in (torch.float32, torch.float64)
        and pred.is_cpu
        and target.is_cpu
        and variance.is_cpu
        and pred.numel() > 0
        and pred.layout == target.layout == variance.layout == torch.strided
        and not variance.requires_grad
        and validation.values_are_readable()
    )


def require_pred(pred: object, target: Tensor) -> None:
    """A floating-point prediction of exactly the target's shape, on its device."""
    tensor = validation.floating_tensor("pred", pred)
    validation.floating_tensor("target", target)
    validation.check_same_device("pred", tensor, "target", target)
    validation.check_same_shape("pred", tensor, "target", target)
