"""The weightings: what tells L2, IV, BIV and Cutoff apart, in two methods each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from biv import _checks, weights
from biv._pages import see
from biv.epsilon import EpsilonPolicy, Fixed


class Scope(NamedTuple):
    """What is resolved once over everything that shares a normaliser, before any weight."""

    epsilon: float | Tensor
    smallest_variance: Tensor

    @classmethod
    def over(cls, weighting: Weighting, variance: Tensor, *, validate_args: bool) -> Scope:
        """The scope of these variances; +inf as the smallest where nothing is left."""
        look = validate_args and _checks.values_are_readable()
        if look:
            weighting.policy.check(variance)
        scope = cls(weighting.policy.resolve(variance), weights.smallest(variance))
        if look:
            weighting.check(scope)
        return scope


class Weighting(ABC):
    """What tells one loss from another: its weights and its denominator."""

    policy: EpsilonPolicy
    variance_is_optional = False

    @abstractmethod
    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:
        """W in the dtype asked for; 0 where the variance is +inf."""

    def denominator(self, variance: Tensor, w: Tensor) -> Tensor:  # noqa: ARG002
        """Σ w, or what stands for it."""
        return w.sum()

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

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: ARG002, D102
        return variance.isfinite().to(dtype)


@dataclass(frozen=True)
class Cutoff(Weighting):
    """w = 1 where σ² < C, divided by Σ w."""

    threshold: float | Tensor
    policy = Fixed(0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "threshold", weights.positive_threshold(self.threshold))

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: ARG002, D102
        return (variance < self.threshold).to(dtype)


@dataclass(frozen=True)
class IV(Weighting):
    """w = 1/(σ²+ε), divided by the number of elements used."""

    policy: EpsilonPolicy

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: D102
        return 1.0 / (variance.to(dtype) + scope.epsilon)

    def denominator(self, variance: Tensor, w: Tensor) -> Tensor:  # noqa: D102
        return variance.isfinite().sum().to(w.dtype)

    def check(self, scope: Scope) -> None:  # noqa: D102
        _require_finite_weights(
            scope, "pass an epsilon > 0, or use the BIV loss, which has a limit"
        )


@dataclass(frozen=True)
class BIV(Weighting):
    """w = 1/(σ²+ε), divided by Σ w; computed as w/max(w), so that no scale of σ² overflows.

    With ε = 0 and a variance of 0, w/max(w) is its limit: 1 at the zeros and 0 elsewhere.
    """

    policy: EpsilonPolicy

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: D102
        smallest = scope.smallest_variance.to(dtype)
        return weights.relative_weights(variance.to(dtype), scope.epsilon, smallest)

    def additive(self) -> Weighting:  # noqa: D102
        return AbsoluteBIV(self.policy)


@dataclass(frozen=True)
class AbsoluteBIV(Weighting):
    """BIV in weights not divided by their largest, so that pairs of many batches add up."""

    policy: EpsilonPolicy

    def weights(self, variance: Tensor, scope: Scope, dtype: torch.dtype) -> Tensor:  # noqa: D102
        return 1.0 / (variance.to(dtype) + scope.epsilon)

    def check(self, scope: Scope) -> None:  # noqa: D102
        if self.policy.reads_batch:
            raise ValueError(
                "epsilon must be a number for pairs of different batches to add up; "
                f"found {self.policy}: use window(), which resolves it once on all of them"
                f"{see('epsilon')}"
            )
        _require_finite_weights(scope, "pass an epsilon > 0, or use window(), which has a limit")


def _require_finite_weights(scope: Scope, remedy: str) -> None:
    least = scope.smallest_variance + scope.epsilon
    if bool((1.0 / least).isinf()):
        raise ValueError(
            "variance must be positive where epsilon is 0, for 1/(variance + epsilon) to be "
            f"finite; found variance {scope.smallest_variance.item():g} and epsilon "
            f"{float(scope.epsilon):g}: {remedy}{see('epsilon')}"
        )
