"""The losses as modules: thin shells that remember their settings, across ranks and windows too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from biv import distributed, sums
from biv.distributed import Normaliser
from biv.epsilon import EpsilonPolicy, as_policy
from biv.sums import Base, Labels, LossSums, Recipe, Weighted, Weighting

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


class VarianceLoss(nn.Module):
    """What the four modules share. Use one of :class:`L2Loss`, :class:`IVLoss`, :class:`BIVLoss`,
    :class:`CutoffLoss`.

    Args:
        process_group: None is local: this process normalises by its own batch alone. A group, such
            as ``torch.distributed.group.WORLD`` **after** ``init_process_group`` (before, it is
            None), normalises over the batches of all its ranks. The value on one rank is its share
            times the number of ranks, so that averaging over ranks, as DistributedDataParallel
            does with the gradients, gives those of the one big batch. Every rank must call the
            loss, be it with zero rows.
        validate_args: Whether to look at the values. With a group it also stops all ranks when one
            finds its input bad, rather than leave them waiting for it.
    """  # noqa: D205

    def __init__(
        self,
        weighting: Weighting,
        base: Base = "mse",
        *,
        process_group: ProcessGroup | None = None,
        validate_args: bool = True,
    ) -> None:
        super().__init__()
        distributed.require_group(process_group)
        self.recipe = Recipe(weighting, base, validate_args)
        self.process_group = process_group

    def forward(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch, a 0-d tensor; see the function of the same name."""
        if self.process_group is None:
            return self.recipe.sums(pred, target, variance, mask, sample_weight).value()
        with self._failing_together(pred):
            sums.require_pred(pred, target)
            labels = self.recipe.labels(target, variance, mask, sample_weight)
        normaliser, (weighed,) = self._normalise([labels])
        return normaliser.loss(weighed.numerator(self.recipe.base, pred))

    def sums(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> LossSums:
        """The pair (Σ wℓ, denominator) of this process's batch, to be added up by the caller.

        Pairs of different batches add up to the pair of the whole where ε is a number; a policy
        that reads the batch must be resolved on the whole beforehand.

        Example:
            >>> pred, target = torch.tensor([1.0, 2.0, 4.0]), torch.zeros(3)
            >>> variance = torch.tensor([1.0, 2.0, 4.0])
            >>> loss = BIVLoss(epsilon=0.0)
            >>> pairs = [loss.sums(pred[k], target[k], variance[k]) for k in ([0], [1, 2])]
            >>> (pairs[0] + pairs[1]).value() == loss(pred, target, variance)
            tensor(True)
        """
        recipe = replace(self.recipe, weighting=self.recipe.weighting.additive())
        return recipe.sums(pred, target, variance, mask, sample_weight)

    def window(
        self,
        targets: Sequence[Tensor],
        variances: Sequence[Tensor | None] | None = None,
        *,
        masks: Sequence[Tensor | None] | None = None,
        sample_weights: Sequence[Tensor | None] | None = None,
    ) -> WindowLoss:
        """One loss over several micro-batches, for gradient accumulation.

        Calling what is returned on each micro-batch of the window gives losses, and gradients, that
        **add up** to those of the window as one batch. Do not divide them by the number of
        micro-batches. ε policies are resolved once, on the whole window, and with a process group
        on the windows of all ranks.

        Args:
            targets: The labels of each micro-batch.
            variances: Their variances; :class:`L2Loss` can do without.
            masks: Their masks, if any.
            sample_weights: Their importances, if any.

        Example:
            >>> model, loss = torch.nn.Linear(3, 1), BIVLoss()
            >>> batches = [(torch.randn(n, 3), torch.randn(n, 1), torch.rand(n, 1))
            ...            for n in (4, 4, 2)]
            >>> for window in distributed.accumulation_windows(batches, 2):
            ...     whole = loss.window([y for _, y, _ in window], [v for _, _, v in window])
            ...     for x, y, v in window:
            ...         whole(model(x), y, v).backward()
            ...     # optimizer.step(); optimizer.zero_grad()
        """
        with self._failing_together(next(iter(targets), None)):
            columns = {
                "variances": variances,
                "masks": masks,
                "sample_weights": sample_weights,
            }
            labels = [self.recipe.labels(*batch) for batch in _rows(targets, columns)]
        normaliser, _ = self._normalise(labels)
        return WindowLoss(self.recipe, normaliser)

    def extra_repr(self) -> str:
        """The settings, as they would be given again."""
        return ", ".join(f"{name}={value!r}" for name, value in self._settings().items())

    def _settings(self) -> dict[str, object]:
        return {}

    @contextmanager
    def _failing_together(self, device_of: object) -> Iterator[None]:
        """Tell the other ranks of an error here, so that none waits for a rank that has gone."""
        try:
            yield
        except (TypeError, ValueError):
            if self.process_group is not None:
                device = device_of.device if isinstance(device_of, Tensor) else torch.device("cpu")
                distributed.stop_together(self.process_group, device)
            raise

    def _normalise(self, batches: Sequence[Labels]) -> tuple[Normaliser, list[Weighted]]:
        return distributed.normalise(
            self.recipe.weighting,
            batches,
            self.process_group,
            validate_args=self.recipe.validate_args,
        )


def _rows(
    targets: Sequence[Tensor], columns: dict[str, Sequence[Tensor | None] | None]
) -> list[tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]]:
    """One tuple a micro-batch; a column that was not given is None throughout."""
    count = len(targets)
    if not count:
        raise ValueError("targets must hold at least one micro-batch; found none")
    for name, column in columns.items():
        if column is not None and len(column) != count:
            raise ValueError(
                f"{name} must hold one entry a micro-batch, {count}; found {len(column)}"
            )
    filled = [[None] * count if column is None else column for column in columns.values()]
    return list(zip(targets, *filled, strict=True))


@dataclass(frozen=True)
class WindowLoss:
    """The loss of one micro-batch of a window; see :meth:`VarianceLoss.window`."""

    recipe: Recipe
    normaliser: Normaliser

    def __call__(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """This micro-batch's share of the loss of the window, a 0-d tensor."""
        sums.require_pred(pred, target)
        labels = self.recipe.labels(target, variance, mask, sample_weight)
        weighed = Weighted.of(self.recipe.weighting, labels, self.normaliser.scope)
        return self.normaliser.loss(weighed.numerator(self.recipe.base, pred))


class L2Loss(VarianceLoss):
    """:func:`biv.l2_loss` as a module; other arguments as :class:`VarianceLoss` has them.

    Example:
        >>> L2Loss()(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0]))
        tensor(2.5000)
    """

    def __init__(
        self, *, process_group: ProcessGroup | None = None, validate_args: bool = True
    ) -> None:
        super().__init__(sums.L2(), process_group=process_group, validate_args=validate_args)


class IVLoss(VarianceLoss):
    """:func:`biv.iv_loss` as a module; other arguments as :class:`VarianceLoss` has them.

    Args:
        epsilon: ε, **absolute**, in the units of the variance; or a policy of :mod:`biv.epsilon`.

    Example:
        >>> IVLoss()(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.tensor([1.0, 2.0]))
        tensor(1.5000)
    """

    def __init__(
        self,
        epsilon: float | Tensor | EpsilonPolicy = 0.0,
        *,
        process_group: ProcessGroup | None = None,
        validate_args: bool = True,
    ) -> None:
        weighting = sums.IV(as_policy(epsilon))
        super().__init__(weighting, process_group=process_group, validate_args=validate_args)
        self.epsilon = epsilon

    def _settings(self) -> dict[str, object]:
        return {"epsilon": self.epsilon}


class BIVLoss(VarianceLoss):
    """:func:`biv.biv_loss` as a module; other arguments as :class:`VarianceLoss` has them.

    Args:
        epsilon: ε, **absolute**, in the units of the variance: 0.05 suits labels of unit variance.
            Or a policy of :mod:`biv.epsilon`, such as
            ``Relative(0.05, label_variance)`` or ``MinimumBatchSize(64)``.
        base: "mse", "mae", "huber", or a callable giving elementwise losses.

    Example:
        >>> loss = BIVLoss(epsilon=0.0)
        >>> loss(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.tensor([1.0, 2.0]))
        tensor(2.)
    """

    def __init__(
        self,
        epsilon: float | Tensor | EpsilonPolicy = 0.05,
        base: Base = "mse",
        *,
        process_group: ProcessGroup | None = None,
        validate_args: bool = True,
    ) -> None:
        weighting = sums.BIV(as_policy(epsilon))
        super().__init__(weighting, base, process_group=process_group, validate_args=validate_args)
        self.epsilon, self.base = epsilon, base

    def _settings(self) -> dict[str, object]:
        return {"epsilon": self.epsilon, "base": self.base}


class CutoffLoss(VarianceLoss):
    """:func:`biv.cutoff_loss` as a module; other arguments as :class:`VarianceLoss` has them.

    Args:
        threshold: C > 0, in the units of the variance; strictly below it a label is kept.

    Example:
        >>> loss = CutoffLoss(threshold=2.0)
        >>> loss(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.tensor([1.0, 2.0]))
        tensor(1.)
    """

    def __init__(
        self,
        threshold: float | Tensor,
        *,
        process_group: ProcessGroup | None = None,
        validate_args: bool = True,
    ) -> None:
        weighting = sums.Cutoff(threshold)
        super().__init__(weighting, process_group=process_group, validate_args=validate_args)
        self.threshold = threshold

    def _settings(self) -> dict[str, object]:
        return {"threshold": self.threshold}
