"""Computation of weights and of the pair (Σ wℓ, denominator), from which every loss is made.

A batch, an accumulation window and a group of ranks differ only in the elements that are summed
before the one division.
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
from biv.losses._weighting import Scope, Weighting, sum_elements

Base: TypeAlias = str | Callable[[Tensor, Tensor], Tensor]

BASES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": lambda pred, target: (pred - target).square(),
    "mae": lambda pred, target: (pred - target).abs(),
    "huber": lambda pred, target: F.huber_loss(pred, target, reduction="none"),
}


# Values that replace an unused element. Logarithms, ratios and roots of them and of their
# difference are finite, which they would not be at 0 and 0.
NEUTRAL_PRED, NEUTRAL_TARGET = 0.5, 1.0

_PLAIN_TYPES = (Tensor, torch.nn.Parameter)


class LossSums(NamedTuple):
    """Pair of sums whose quotient is a loss.

    Pairs that were computed with the same ε can be added, with + or sum(). The quotient of the sum
    is the loss of all their elements together.

    Attributes
    ----------
    numerator : Tensor of shape () or (D,)
        Σ wℓ, the weighted sum of the elementwise losses. With `per_output`, it has shape (D,) for
        D outputs.
    denominator : Tensor of the same shape
        Σ w; for IV, the number of elements that are used.

    Examples
    --------
    >>> first = LossSums(torch.tensor(6.0), torch.tensor(2.0))
    >>> second = LossSums(torch.tensor(4.0), torch.tensor(3.0))
    >>> (first + second).value()
    tensor(2.)
    """

    numerator: Tensor
    denominator: Tensor

    def __add__(self, other: object) -> LossSums:
        if not isinstance(other, LossSums):
            return NotImplemented
        return LossSums(self.numerator + other.numerator, self.denominator + other.denominator)

    def __radd__(self, other: object) -> LossSums:
        return self if other == 0 else NotImplemented  # sum() starts at 0

    def value(self) -> Tensor:
        """Return numerator / denominator; if no element is used, return 0 with zero gradients.

        With `per_output`, return the mean over the outputs that have used elements.

        Returns
        -------
        Tensor of shape ()
            The loss.
        """
        each = self.numerator / torch.where(self.denominator == 0, 1.0, self.denominator)
        if not each.ndim:
            return each
        return each.sum() / (self.denominator != 0).sum().clamp(min=1)


class Labels(NamedTuple):
    """Checked labels of one batch, all of the same shape.

    The variance of every unused element is set to +inf, because every weighting gives it weight 0.
    An element is unused if it is masked out, or has a NaN target, an infinite variance or a sample
    weight of 0.

    Attributes
    ----------
    target : Tensor
        Labels, in the dtype of the computation.
    variance : Tensor
        Variances in the dtype of the argument, so that a cutoff compares the values passed.
    sample_weight : Tensor or None
        Sample weights, in the dtype of the computation.
    """

    target: Tensor
    variance: Tensor
    sample_weight: Tensor | None

    @property
    def largest_sample_weight(self) -> Tensor | None:
        """Largest sample weight, 0 for an empty batch; None without sample weights."""
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
        """Return checked labels; values are checked only if `validate_args`.

        The variances of elements that are unused for another reason are not checked.
        """
        check_values = validate_args and validation.values_are_readable()
        validation.floating_tensor("target", target)
        dtype = arrays.at_least_float32(target.dtype)
        used = ~target.isnan()
        if mask is not None:
            used = used & _expand_to_target("mask", validation.bool_tensor("mask", mask), target)
        if check_values:
            valid = target.isfinite() | ~used
            validation.check_elements("target", target, valid, "finite, or NaN where it is missing")
        if sample_weight is not None:
            element_weight = _weight_argument("sample_weight", sample_weight, target)
            if check_values:
                valid = (sample_weight >= 0) & sample_weight.isfinite()
                valid = valid | ~_used_entries(sample_weight, used)
                validation.check_elements("sample_weight", sample_weight, valid, "finite and >= 0")
            dtype = torch.promote_types(dtype, element_weight.dtype)
            used = used & (element_weight > 0)
            sample_weight = torch.where(used, element_weight.to(dtype), 0.0)
        if variance is None:
            expanded = target.new_zeros(()).expand(target.shape)
        else:
            expanded = _weight_argument("variance", variance, target)
            if check_values:
                valid = (variance >= 0) | ~_used_entries(variance, used)
                validation.check_elements("variance", variance, valid, "non-negative and not NaN")
            dtype = torch.promote_types(dtype, expanded.dtype)
            if sample_weight is not None:
                sample_weight = torch.where(expanded.isfinite(), sample_weight, 0.0)
        return cls(target.to(dtype), torch.where(used, expanded, torch.inf), sample_weight)

    def promoted_variance(self) -> Tensor:
        """Return the variance in the dtype of the computation."""
        return self.variance.to(self.target.dtype)


def _weight_argument(name: str, value: object, target: Tensor) -> Tensor:
    tensor = validation.floating_tensor(name, value)
    validation.check_no_grad(name, tensor)
    return _expand_to_target(name, tensor, target)


def _expand_to_target(name: str, value: Tensor, target: Tensor) -> Tensor:
    validation.check_same_device(name, value, "target", target)
    return validation.expanded(name, value, "target", target)


def _used_entries(argument: Tensor, used: Tensor) -> Tensor:
    """Return which entries of an argument, in its own shape, belong to a used element."""
    return used if argument.shape == used.shape else used.any(dim=1, keepdim=True)


class Weighted(NamedTuple):
    """Labels with their weights, which are 0 for unused elements.

    The denominator has shape (), or (D,) if each output has its own.
    """

    target: Tensor
    weights: Tensor
    denominator: Tensor

    @classmethod
    def from_labels(
        cls, weighting: Weighting, labels: Labels, scope: Scope, *, per_output: bool = False
    ) -> Weighted:
        """Compute the weights of one batch in a scope that may include other batches."""
        dtype = labels.target.dtype
        w = weighting.weights(labels.variance, scope.cast(dtype), dtype)
        divisor = scope.sample_weight_divisor
        divisor = None if divisor is None else divisor.to(dtype)
        if labels.sample_weight is not None:
            s = labels.sample_weight
            w = w * (s if divisor is None else s / divisor)
        elif divisor is not None:
            w = w / divisor
        terms = weighting.denominator_terms(labels.variance, w)
        denominator = sum_elements(terms, per_output).to(w.dtype)
        if divisor is not None and not weighting.is_relative:
            denominator = denominator / divisor
        return cls(labels.target, w, denominator)

    def with_common_denominator(self) -> Weighted:
        """Return weights for the same loss with one denominator for all outputs."""
        if not self.denominator.ndim:
            return self
        has_elements = self.denominator != 0
        w = self.weights / torch.where(has_elements, self.denominator, 1.0)
        return Weighted(self.target, w, has_elements.sum().to(w.dtype))

    def sums(self, base: Base, pred: Tensor) -> LossSums:
        """Return the pair of this batch alone."""
        return LossSums(self.numerator(base, pred), self.denominator)

    def numerator(self, base: Base, pred: Tensor) -> Tensor:
        """Return Σ wℓ; elements of weight 0 affect neither the sum nor its gradient."""
        used = self.weights > 0
        dtype = torch.promote_types(pred.dtype, self.weights.dtype)
        pred = torch.where(used, pred.to(dtype), NEUTRAL_PRED)
        target = torch.where(used, self.target.to(dtype), NEUTRAL_TARGET)
        loss = elementwise(base, pred, target)
        return sum_elements(self.weights * loss, self.denominator.ndim > 0)


def elementwise(base: Base, pred: Tensor, target: Tensor) -> Tensor:
    """Return ℓ(pred, target) without a reduction."""
    loss = resolve_base(base)(pred, target)
    if not isinstance(loss, Tensor) or loss.shape != pred.shape:
        raise ValueError(
            f"base must return one loss per element, a tensor of shape {tuple(pred.shape)} "
            f"(as with reduction='none'); got {validation.describe(loss)}{argument_hint('base')}"
        )
    return loss


def resolve_base(base: object) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the elementwise loss with this name, or the callable itself."""
    if isinstance(base, str) and base in BASES:
        return BASES[base]
    if callable(base):
        return base
    names = ", ".join(repr(name) for name in BASES)
    raise ValueError(
        f"base must be one of {names} or a callable that returns elementwise losses; "
        f"got {validation.describe(base)}{argument_hint('base')}"
    )


@dataclass(frozen=True)
class LossFormula:
    """A loss with its settings.

    Attributes
    ----------
    weighting : Weighting
        Weights and denominator.
    base : str or callable, default="mse"
        Elementwise loss ℓ.
    validate_args : bool, default=True
        Whether to check values.
    per_output : bool, default=False
        Whether each output has its own normaliser; the loss is then the mean over outputs.
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
        """Return the checked labels of one batch."""
        if variance is None and not self.weighting.variance_is_optional:
            raise TypeError(
                "variance must be a torch.Tensor; got None: only the L2 loss works without one"
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
        """Return the weights of one batch that has its own normaliser."""
        labels = self.labels(target, variance, mask, sample_weight)
        return self._weigh(labels).with_common_denominator()

    def _weigh(self, labels: Labels, *, absolute: bool = False) -> Weighted:
        scope = Scope.over(
            self.weighting,
            labels.promoted_variance(),
            None if absolute else labels.largest_sample_weight,
            validate_args=self.validate_args,
            per_output=self.per_output,
        )
        return Weighted.from_labels(self.weighting, labels, scope, per_output=self.per_output)

    def sums(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> LossSums:
        """Return the pair of one batch, which can be added to the pairs of other batches."""
        check_pred(pred, target)
        labels = self.labels(target, variance, mask, sample_weight)
        weighted = self._weigh(labels, absolute=True)
        may_overflow = sample_weight is not None
        check_values = may_overflow and self.validate_args and validation.values_are_readable()
        if check_values and not bool(weighted.denominator.isfinite().all()):
            raise ValueError(
                "sample_weight must be small enough for the sum of all weights to be finite in "
                f"{weighted.weights.dtype}; got an overflow: divide it by its largest value"
            )
        return weighted.sums(self.base, pred)

    def value(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of one batch, a tensor of shape ()."""
        if mask is None and sample_weight is None and self.weighting.has_plain_weights:
            loss = self._value_if_plain(pred, target, variance)
            if loss is not None:
                return loss
        check_pred(pred, target)
        labels = self.labels(target, variance, mask, sample_weight)
        return self._weigh(labels).sums(self.base, pred).value()

    def _value_if_plain(
        self, pred: Tensor, target: Tensor, variance: Tensor | None
    ) -> Tensor | None:
        """Return the loss if no element has to be left out, otherwise None.

        This is a fast path, with as few passes over the data as torch's weighted MSE. It is tried
        first, and its result shows whether it applies: a NaN or an infinity among the labels and
        predictions, or a NaN or a zero among the variances, makes the result infinite or NaN. A
        variance of +inf gets weight 0, which is correct. The path is only used on the CPU, where
        reading a value does not synchronise with a device.
        """
        if variance is None or self.per_output or not _are_plain(pred, target, variance):
            return None
        if not isinstance(self.base, str) and not math.isfinite((target + variance).sum().item()):
            return None  # a user's base may hide a NaN, or have a gradient of 0 times NaN
        if self.validate_args and not bool(variance.amin() >= 0):
            return None
        w = self.weighting.plain_weights(variance)
        total = w.sum()
        # These weights are absolute. Far from 1, they could overflow or lose digits.
        if not 1e-15 < total.item() < 1e15:
            return None
        loss = (w * elementwise(self.base, pred, target)).sum() / total
        return loss if math.isfinite(loss.item()) else None


def _are_plain(pred: Tensor, target: Tensor, variance: Tensor) -> bool:
    """Return whether these are CPU tensors of one shape and dtype with readable values."""
    return (
        type(pred) in _PLAIN_TYPES  # fake tensors and other subclasses may hold no values
        and type(target) in _PLAIN_TYPES
        and type(variance) in _PLAIN_TYPES
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


def check_pred(pred: object, target: Tensor) -> None:
    """Check that a prediction has a floating-point dtype and the shape and device of the target."""
    tensor = validation.floating_tensor("pred", pred)
    validation.floating_tensor("target", target)
    validation.check_same_device("pred", tensor, "target", target)
    validation.check_same_shape("pred", tensor, "target", target)
