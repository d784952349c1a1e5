"""The weights and denominators of L2, IV, BIV and Cutoff."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from biv._utils import validation
from biv._utils.pages import argument_hint
from biv.epsilon import EpsilonPolicy, Fixed
from biv.losses import weights

ORDINARY_SAMPLE_WEIGHTS = 1e-18, 1e18  # range of the largest sample weight that float32 can sum


def sum_elements(elements: Tensor, per_output: bool) -> Tensor:
    """Return the sum of all elements, or of each output, as a tensor of shape () or (D,).

    The outputs are the last dimension. A tensor with fewer than two dimensions has one output.
    """
    if per_output and elements.ndim > 1:
        return elements.flatten(0, -2).sum(dim=0)
    return elements.sum()


class Scope(NamedTuple):
    """Values shared by all elements with one normaliser, computed before the weights.

    Attributes
    ----------
    epsilon : float or Tensor
        ε; of shape (D,) if each output has its own normaliser and ε depends on the batch.
    smallest_variance : Tensor
        Smallest variance, +inf if no element is used; of shape (D,) if each output has its own
        normaliser.
    sample_weight_divisor : Tensor or None, default=None
        Number that sample weights are divided by, which does not change any loss. It is 1 unless
        their sums would overflow or lose digits, and None without sample weights.
    """

    epsilon: float | Tensor
    smallest_variance: Tensor
    sample_weight_divisor: Tensor | None = None

    @classmethod
    def over(
        cls,
        weighting: Weighting,
        variance: Tensor,
        largest_sample_weight: Tensor | None = None,
        *,
        validate_args: bool,
        per_output: bool = False,
    ) -> Scope:
        """Return the scope of these variances."""
        check_values = validate_args and validation.values_are_readable()
        if per_output and variance.ndim > 1:
            rows = variance.flatten(0, -2)
            epsilon = _epsilon_per_output(weighting.policy, rows, check_values=check_values)
            scope = cls(epsilon, smallest_per_output(rows))
        else:
            if check_values:
                weighting.policy.check(variance)
            scope = cls(weighting.policy.resolve(variance), weights.smallest_variance(variance))
        if largest_sample_weight is not None:
            scope = scope._replace(
                sample_weight_divisor=_sample_weight_divisor(largest_sample_weight)
            )
        if check_values:
            weighting.check(scope)
            if largest_sample_weight is not None and not weighting.is_relative:
                _check_products_finite(scope, largest_sample_weight)
        return scope

    def cast(self, dtype: torch.dtype) -> Scope:
        """Return the scope with its ε per output in a dtype, so that it promotes no weight."""
        if isinstance(self.epsilon, Tensor) and self.epsilon.ndim:
            return self._replace(epsilon=self.epsilon.to(dtype))
        return self


def _sample_weight_divisor(largest: Tensor) -> Tensor:
    """Return the divisor that brings the largest sample weight into the ordinary range."""
    tiny, huge = ORDINARY_SAMPLE_WEIGHTS
    divisor = (largest / huge).clamp(min=1.0) * (largest / tiny).clamp(max=1.0)
    return torch.where(largest > 0, divisor, 1.0)


def smallest_per_output(rows: Tensor) -> Tensor:
    """Return the smallest variance of each output, of shape (D,); +inf if there are no rows."""
    return rows.amin(dim=0) if len(rows) else rows.new_full(rows.shape[1:], torch.inf)


def _epsilon_per_output(
    policy: EpsilonPolicy, rows: Tensor, *, check_values: bool
) -> float | Tensor:
    if not policy.reads_batch:
        return policy.resolve(rows)
    epsilons = []
    for output in rows.unbind(dim=1):
        if check_values:
            policy.check(output)
        epsilon = policy.resolve(output)
        epsilons.append(torch.as_tensor(epsilon, dtype=rows.dtype, device=rows.device))
    return torch.stack(epsilons) if epsilons else rows.new_zeros(0)


class Weighting(ABC):
    """Weights and denominator of a loss."""

    policy: EpsilonPolicy
    variance_is_optional = False
    is_relative = True  # whether a common factor of all weights leaves the loss unchanged

    @property
    def has_plain_weights(self) -> bool:
        """Whether :meth:`plain_weights` is implemented for these settings."""
        return False

    def plain_weights(self, variance: Tensor) -> Tensor:
        """Return the weights of a batch in which every label is used.

        It needs no scope and makes fewer passes over the data. The weights are absolute, so that
        they may overflow, and the denominator is their sum.
        """
        raise NotImplementedError

    @abstractmethod
    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
        """Return the weights in a dtype; they are 0 where the variance is +inf."""

    def denominator_terms(self, variance: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        """Return the term that each element adds to the denominator."""
        return w

    def check(self, scope: Scope) -> None:  # noqa: B027
        """Raise ValueError if the loss of these labels would not be finite."""

    def additive(self) -> Weighting:
        """Return the same loss with weights that do not depend on the batch."""
        return self


@dataclass(frozen=True)
class L2(Weighting):
    """Weight 1, normalised by Σ w."""

    policy = Fixed(0.0)
    variance_is_optional = True

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: ARG002
        return variance.isfinite().to(dtype)


@dataclass(frozen=True)
class Cutoff(Weighting):
    """Weight 1 where σ² < C, normalised by Σ w."""

    threshold: float | Tensor
    policy = Fixed(0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", weights.positive_threshold(self.threshold))

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: ARG002
        return (variance < self.threshold).to(dtype)


@dataclass(frozen=True)
class IV(Weighting):
    """Weight 1/(σ²+ε), divided by the number of elements used."""

    policy: EpsilonPolicy
    is_relative = False

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
        return 1.0 / (variance.to(dtype) + scope.epsilon)

    def denominator_terms(self, variance: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        return variance.isfinite()

    def check(self, scope: Scope) -> None:
        _check_weights_finite(
            scope, "pass an epsilon > 0, or use the BIV loss, which is finite there"
        )


@dataclass(frozen=True)
class BIV(Weighting):
    """Weight 1/(σ²+ε), normalised by Σ w.

    It is computed as w/max(w), so that it does not overflow at any scale of σ². If ε and the
    smallest variance are both 0, w/max(w) is its limit: 1 where σ² is 0, and 0 elsewhere.
    """

    policy: EpsilonPolicy

    @property
    def has_plain_weights(self) -> bool:
        """Whether ε does not depend on the batch."""
        return not self.policy.reads_batch

    def plain_weights(self, variance: Tensor) -> Tensor:
        return 1.0 / (variance + self.policy.resolve(variance))

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
        smallest = scope.smallest_variance.to(dtype)
        return weights.relative_weights(variance.to(dtype), scope.epsilon, smallest)

    def additive(self) -> Weighting:
        return AbsoluteBIV(self.policy)


@dataclass(frozen=True)
class AbsoluteBIV(Weighting):
    """BIV with weights that are not divided by their maximum, so that pairs can be added."""

    policy: EpsilonPolicy

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
        return 1.0 / (variance.to(dtype) + scope.epsilon)

    def check(self, scope: Scope) -> None:
        if self.policy.reads_batch:
            raise ValueError(
                "epsilon must be a number, so that the pairs of different batches can be added; "
                f"got {self.policy}: use window(), which resolves it once for all batches"
                f"{argument_hint('epsilon')}"
            )
        _check_weights_finite(scope, "pass an epsilon > 0, or use window(), which is finite there")


def _check_products_finite(scope: Scope, largest: Tensor) -> None:
    least = (scope.smallest_variance + scope.epsilon).to(largest.dtype)
    if bool((largest / _sample_weight_divisor(largest) / least).isinf().any()):
        raise ValueError(
            "sample_weight / (variance + epsilon) must be finite; got a sample_weight of "
            f"{float(largest):g} and a smallest variance + epsilon of {float(least.min()):g}: "
            "pass a larger epsilon, or smaller sample weights"
        )


def _check_weights_finite(scope: Scope, remedy: str) -> None:
    least = scope.smallest_variance + scope.epsilon
    infinite = (1.0 / least).isinf()
    if bool(infinite.any()):
        variance = scope.smallest_variance[infinite][0].item()
        raise ValueError(
            "variance must be positive if epsilon is 0, because 1/(variance + epsilon) must be "
            f"finite; got variance {variance:g} and epsilon "
            f"{float(least[infinite][0]) - variance:g}: {remedy}{argument_hint('epsilon')}"
        )
