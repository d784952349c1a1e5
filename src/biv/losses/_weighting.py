"""The weightings: what tells L2, IV, BIV and Cutoff apart, in two methods each."""

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

ORDINARY_IMPORTANCE = 1e-18, 1e18  # of the largest sample weight: float32 can sum such


def total(elements: Tensor, per_output: bool) -> Tensor:
    """The sum of all elements, 0-d; or of each output, (D,), if there are two or more dimensions.

    The outputs are the last dimension; a tensor of fewer than two has one output.
    """
    if per_output and elements.ndim > 1:
        return elements.flatten(0, -2).sum(dim=0)
    return elements.sum()


class Scope(NamedTuple):
    """What is resolved once over everything that shares a normaliser, before any weight.

    With one normaliser per output, `smallest_variance` is (D,), and so is ε if it is read from the
    batch.

    Sample weights are divided by `importance`, a number of which every loss is independent. It is 1
    but where their sums would overflow or lose digits, and None where there are no sample weights.
    """

    epsilon: float | Tensor
    smallest_variance: Tensor
    importance: Tensor | None = None

    @classmethod
    def over(
        cls,
        weighting: Weighting,
        variance: Tensor,
        largest_importance: Tensor | None = None,
        *,
        validate_args: bool,
        per_output: bool = False,
    ) -> Scope:
        """The scope of these variances; +inf as the smallest where nothing is left."""
        look = validate_args and validation.values_are_readable()
        if per_output and variance.ndim > 1:
            rows = variance.flatten(0, -2)
            epsilon = _epsilon_of_each(weighting.policy, rows, look=look)
            scope = cls(epsilon, smallest_of_each(rows))
        else:
            if look:
                weighting.policy.check(variance)
            scope = cls(weighting.policy.resolve(variance), weights.smallest_variance(variance))
        if largest_importance is not None:
            scope = scope._replace(importance=_unit(largest_importance))
        if look:
            weighting.check(scope)
            if largest_importance is not None and not weighting.is_relative:
                _require_finite_products(scope, largest_importance)
        return scope

    def cast(self, dtype: torch.dtype) -> Scope:
        """The scope for weights of a dtype, which an ε per output would otherwise promote."""
        if isinstance(self.epsilon, Tensor) and self.epsilon.ndim:
            return self._replace(epsilon=self.epsilon.to(dtype))
        return self


def _unit(largest: Tensor) -> Tensor:
    """What to divide sample weights by, for the largest to be in the ordinary range: mostly 1."""
    tiny, huge = ORDINARY_IMPORTANCE
    unit = (largest / huge).clamp(min=1.0) * (largest / tiny).clamp(max=1.0)
    return torch.where(largest > 0, unit, 1.0)


def smallest_of_each(rows: Tensor) -> Tensor:
    """The smallest variance of each output, (D,); +inf of none."""
    return rows.amin(dim=0) if len(rows) else rows.new_full(rows.shape[1:], torch.inf)


def _epsilon_of_each(policy: EpsilonPolicy, rows: Tensor, *, look: bool) -> float | Tensor:
    if not policy.reads_batch:
        return policy.resolve(rows)
    found = []
    for output in rows.unbind(dim=1):
        if look:
            policy.check(output)
        found.append(torch.as_tensor(policy.resolve(output), dtype=rows.dtype, device=rows.device))
    return torch.stack(found) if found else rows.new_zeros(0)


class Weighting(ABC):
    """What tells one loss from another: its weights and its denominator."""

    policy: EpsilonPolicy
    variance_is_optional = False
    is_relative = True  # whether a common factor of all weights is free

    @property
    def has_plain_weights(self) -> bool:
        """Whether :meth:`plain_weights` may be called."""
        return False

    def plain_weights(self, variance: Tensor) -> Tensor:
        """Weights of a batch in which every label counts: without a scope, in fewer passes.

        They are absolute, so that they may overflow, and the denominator is their sum.
        """
        raise NotImplementedError

    @abstractmethod
    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
        """W in the dtype asked for; 0 where the variance is +inf."""

    def counted(self, variance: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        """What each element adds to the denominator: w, or what stands for it."""
        return w

    def check(self, scope: Scope) -> None:  # noqa: B027
        """Raise if these labels have no finite loss; called where arguments are validated."""

    def additive(self) -> Weighting:
        """The same loss in weights that do not depend on the batch, so that its pairs add up."""
        return self


@dataclass(frozen=True)
class L2(Weighting):
    """w = 1, divided by Σ w."""

    policy = Fixed(0.0)
    variance_is_optional = True

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: ARG002
        return variance.isfinite().to(dtype)


@dataclass(frozen=True)
class Cutoff(Weighting):
    """w = 1 where σ² < C, divided by Σ w."""

    threshold: float | Tensor
    policy = Fixed(0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", weights.positive_threshold(self.threshold))

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: ARG002
        return (variance < self.threshold).to(dtype)


@dataclass(frozen=True)
class IV(Weighting):
    """w = 1/(σ²+ε), divided by the number of elements used."""

    policy: EpsilonPolicy
    is_relative = False

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
        return 1.0 / (variance.to(dtype) + scope.epsilon)

    def counted(self, variance: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        return variance.isfinite()

    def check(self, scope: Scope) -> None:
        _require_finite_weights(
            scope, "pass an epsilon > 0, or use the BIV loss, which has a limit"
        )


@dataclass(frozen=True)
class BIV(Weighting):
    """w = 1/(σ²+ε), divided by Σ w; computed as w/max(w), so that no scale of σ² overflows.

    With ε = 0 and a variance of 0, w/max(w) is its limit: 1 at the zeros and 0 elsewhere.
    """

    policy: EpsilonPolicy

    @property
    def has_plain_weights(self) -> bool:
        """Whether ε is known without the batch."""
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
    """BIV in weights not divided by their largest, so that pairs of many batches add up."""

    policy: EpsilonPolicy

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
        return 1.0 / (variance.to(dtype) + scope.epsilon)

    def check(self, scope: Scope) -> None:
        if self.policy.reads_batch:
            raise ValueError(
                "epsilon must be a number for pairs of different batches to add up; "
                f"got {self.policy}: use window(), which resolves it once on all of them"
                f"{argument_hint('epsilon')}"
            )
        _require_finite_weights(scope, "pass an epsilon > 0, or use window(), which has a limit")


def _require_finite_products(scope: Scope, largest: Tensor) -> None:
    least = (scope.smallest_variance + scope.epsilon).to(largest.dtype)
    if bool((largest / _unit(largest) / least).isinf().any()):
        raise ValueError(
            "sample_weight / (variance + epsilon) must be finite; got a sample_weight of "
            f"{float(largest):g} beside a smallest variance + epsilon of {float(least.min()):g}: "
            "pass a larger epsilon, or smaller sample weights"
        )


def _require_finite_weights(scope: Scope, remedy: str) -> None:
    least = scope.smallest_variance + scope.epsilon
    infinite = (1.0 / least).isinf()
    if bool(infinite.any()):
        variance = scope.smallest_variance[infinite][0].item()
        raise ValueError(
            "variance must be positive where epsilon is 0, for 1/(variance + epsilon) to be "
            f"finite; got variance {variance:g} and epsilon "
            f"{float(least[infinite][0]) - variance:g}: {remedy}{argument_hint('epsilon')}"
        )
