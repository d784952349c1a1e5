"""The losses as modules: thin shells that remember their settings, across ranks and windows too."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from biv._utils import validation
from biv.epsilon import EpsilonPolicy, as_policy
from biv.losses import _distributed, _reduction, _weighting
from biv.losses._distributed import Normaliser
from biv.losses._reduction import Base, Labels, LossFormula, LossSums, Weighted
from biv.losses._weighting import Weighting

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


Entry = TypeVar("Entry", Tensor, Tensor | None)


class VarianceLoss(nn.Module, ABC):
    r"""What the four modules share: :class:`L2Loss`, :class:`IVLoss`, :class:`BIVLoss` and
    :class:`CutoffLoss`. Their settings are attributes, which may be changed between batches.

    .. math:: \frac{\sum_k s_k w_k\,\ell(f_k, \tilde y_k)}{D}

    over the elements used, with weights w and a denominator D of each loss's own, and s the
    `sample_weight`, 1 if there is none.

    Args:
        process_group: None is local: this process normalises by its own batch alone. A group, such
            as ``torch.distributed.group.WORLD`` **after** ``init_process_group`` (before, it is
            None), normalises over the batches of all its ranks. The value on one rank is its share
            times the number of ranks, so that averaging over ranks, as DistributedDataParallel
            does with the gradients, gives those of the one big batch. Every rank must call the
            loss, be it with zero rows.
        per_output: Whether each output, an index of the last of two or more dimensions, has a
            normaliser of its own: the loss is then the mean of the outputs' losses. An output with
            nothing left in the batch (or in the window, or on all ranks) does not count in the
            mean.
        validate_args: Whether to look at the values. With a group, all ranks stop when one finds
            its input bad; without validation the others get NaN instead. A policy that reads the
            batch must learn how many rows the ranks have, and so synchronises with a device even
            without validation.
    """  # noqa: D205

    _formula: LossFormula | None = None

    def __init__(
        self,
        *,
        process_group: ProcessGroup | None = None,
        per_output: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__()
        _distributed.require_group(process_group)
        self.process_group = process_group
        self.per_output = per_output
        self.validate_args = validate_args
        self.base: Base = "mse"

    @abstractmethod
    def weighting(self) -> Weighting:
        """How labels are weighed; called again after an attribute has been assigned."""

    @property
    def formula(self) -> LossFormula:
        """The whole loss, by the settings as they are now."""
        formula = self._formula
        if formula is None:
            formula = LossFormula(self.weighting(), self.base, self.validate_args, self.per_output)
            object.__setattr__(self, "_formula", formula)
        return formula

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        object.__setattr__(self, "_formula", None)  # a setting may have changed

    def forward(
        self,
        pred: Tensor,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """The loss of a batch; the function of the same name has the equation.

        Args:
            pred: f, predictions, of any shape.
            target: ỹ, labels, of the same shape; NaN where one is missing.
            variance: σ² of each label, not σ, of the same shape, or (N, 1) beside (N, D): 0 is a
                trusted label, +inf one to ignore. :class:`L2Loss` can do without.
            mask: True for the elements to use; shaped as `variance` may be.
            sample_weight: How much each element matters, >= 0; shaped likewise.

        Returns:
            A 0-d tensor; 0, with zero gradients, where nothing is left to learn from.
        """
        formula = self.formula
        if self.process_group is None:
            return formula.value(pred, target, variance, mask, sample_weight)
        with self._failing_together(formula, [pred]):
            _reduction.require_pred(pred, target)
            labels = formula.labels(target, variance, mask, sample_weight)
        normaliser, (weighed,) = self._normalise(formula, [labels])
        return normaliser.loss(weighed.numerator(formula.base, pred))

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

        A policy that reads the batch is an error here: :meth:`window` resolves it on the whole.

        Example:
            >>> pred, target = torch.tensor([1.0, 2.0, 4.0]), torch.zeros(3)
            >>> variance = torch.tensor([1.0, 2.0, 4.0])
            >>> loss = BIVLoss(epsilon=0.0)
            >>> pairs = [loss.sums(pred[k], target[k], variance[k]) for k in ([0], [1, 2])]
            >>> (pairs[0] + pairs[1]).value() == loss(pred, target, variance)
            tensor(True)
        """
        formula = replace(self.formula, weighting=self.formula.weighting.additive())
        return formula.sums(pred, target, variance, mask, sample_weight)

    def weights(
        self,
        target: Tensor,
        variance: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        sample_weight: Tensor | None = None,
    ) -> Tensor:
        """How much each element of this process's batch counts, up to a common factor.

        0 where one does not count at all. Of :class:`BIVLoss`, relative to the largest; with
        `per_output`, of sum 1 in each output (of IV, in proportion to its loss).

        Example:
            >>> target, variance = torch.zeros(3), torch.tensor([1.0, 2.0, 4.0])
            >>> BIVLoss(epsilon=0.0).weights(target, variance)
            tensor([1.0000, 0.5000, 0.2500])
        """
        return self.formula.weigh(target, variance, mask, sample_weight).weights

    def window(
        self,
        targets: Iterable[Tensor],
        variances: Iterable[Tensor | None] | None = None,
        *,
        masks: Iterable[Tensor | None] | None = None,
        sample_weights: Iterable[Tensor | None] | None = None,
    ) -> WindowLoss:
        """One loss over several micro-batches, for gradient accumulation.

        Calling what is returned on each micro-batch of the window gives losses, and gradients, that
        **add up** to those of the window as one batch. Do not divide them by the number of
        micro-batches, and pass each micro-batch once, with the mask and importance it has here.
        ε policies are resolved once, on the whole window, and with a process group
        on the windows of all ranks.

        Args:
            targets: The labels of each micro-batch; a rank that has none passes one without rows.
            variances: Their variances; :class:`L2Loss` can do without.
            masks: Their masks, if any.
            sample_weights: Their importances, if any.

        Example:
            >>> model, loss = torch.nn.Linear(3, 1), BIVLoss()
            >>> batches = [(torch.randn(n, 3), torch.randn(n, 1), torch.rand(n, 1))
            ...            for n in (4, 4, 2)]
            >>> for window in _distributed.accumulation_windows(batches, 2):
            ...     whole = loss.window([y for _, y, _ in window], [v for _, _, v in window])
            ...     for x, y, v in window:
            ...         whole(model(x), y, v).backward()
            ...     # optimizer.step(); optimizer.zero_grad()
        """
        formula = self.formula
        columns = {"variances": variances, "masks": masks, "sample_weights": sample_weights}
        seen: list[Tensor] = []
        with self._failing_together(formula, seen):
            seen += _column("targets", targets)
            labels = [formula.labels(*batch) for batch in _rows(seen, columns)]
            if formula.per_output:
                for target in seen:
                    _distributed.require_outputs(target, _distributed.outputs_of(seen[0]))
        normaliser, _ = self._normalise(formula, labels)
        return WindowLoss(formula, normaliser)

    def extra_repr(self) -> str:
        """The settings, as they would be given again."""
        settings = self._settings() | ({"per_output": True} if self.per_output else {})
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())

    def _settings(self) -> dict[str, object]:
        return {}

    @contextmanager
    def _failing_together(self, formula: LossFormula, tensors: Sequence[object]) -> Iterator[None]:
        """Tell the other ranks of an error here, so that none waits for a rank that has gone."""
        try:
            yield
        except Exception:
            if self.process_group is not None:
                devices = [value.device for value in tensors if isinstance(value, Tensor)]
                _distributed.stop_together(
                    formula.weighting,
                    self.process_group,
                    devices[0] if devices else torch.device("cpu"),
                    validate_args=formula.validate_args,
                )
            raise

    def _normalise(
        self, formula: LossFormula, batches: Sequence[Labels]
    ) -> tuple[Normaliser, list[Weighted]]:
        return _distributed.normalise(
            formula.weighting,
            batches,
            self.process_group,
            validate_args=formula.validate_args,
            per_output=formula.per_output,
        )

    def __deepcopy__(self, memo: dict[int, object]) -> VarianceLoss:
        # A process group cannot be copied, nor should it: the copy belongs to the same one.
        state = self.__dict__.copy()
        group = state.pop("process_group")
        twin = type(self).__new__(type(self))
        twin.__dict__.update(copy.deepcopy(state, memo), process_group=group)
        return twin


def _rows(
    targets: Sequence[Tensor], columns: dict[str, Iterable[Tensor | None] | None]
) -> list[tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]]:
    """One tuple a micro-batch; a column that was not given is None throughout."""
    count = len(targets)
    if not count:
        raise ValueError("targets must hold at least one micro-batch; got none")
    filled: list[Sequence[Tensor | None]] = []
    for name, given in columns.items():
        column = [None] * count if given is None else _column(name, given)
        if len(column) != count:
            raise ValueError(
                f"{name} must hold one entry a micro-batch, {count}; got {len(column)}"
            )
        filled.append(column)
    return list(zip(targets, *filled, strict=True))


def _column(name: str, given: Iterable[Entry]) -> list[Entry]:
    if isinstance(given, Tensor):  # which would pass for one micro-batch a row
        raise TypeError(
            f"{name} must be a list with one tensor a micro-batch; got {validation.describe(given)}"
        )
    return list(given)


@dataclass(frozen=True)
class WindowLoss:
    """The loss of one micro-batch of a window; see :meth:`biv.VarianceLoss.window`."""

    formula: LossFormula
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
        _reduction.require_pred(pred, target)
        scope, per_output = self.normaliser.scope, self.formula.per_output
        if per_output:
            _distributed.require_outputs(target, scope.smallest_variance.shape)
        labels = self.formula.labels(target, variance, mask, sample_weight)
        weighed = Weighted.of(self.formula.weighting, labels, scope, per_output=per_output)
        return self.normaliser.loss(weighed.numerator(self.formula.base, pred))


class L2Loss(VarianceLoss):
    r""":func:`biv.l2_loss` as a module; its arguments are those of :class:`VarianceLoss`.

    .. math:: \frac{1}{K} \sum_k (f_k - \tilde y_k)^2

    Shapes: as :meth:`VarianceLoss.forward` has them, to a 0-d tensor.

    Example:
        >>> L2Loss()(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 0.0]))
        tensor(2.5000)
    """

    def weighting(self) -> Weighting:  # noqa: D102
        return _weighting.L2()


class IVLoss(VarianceLoss):
    r""":func:`biv.iv_loss` as a module; other arguments as :class:`VarianceLoss` has them.

    .. math:: \frac{1}{K} \sum_k \frac{(f_k - \tilde y_k)^2}{\sigma_k^2 + \epsilon}

    Shapes: as :meth:`VarianceLoss.forward` has them, to a 0-d tensor.

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
        per_output: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__(
            process_group=process_group, per_output=per_output, validate_args=validate_args
        )
        self.epsilon = epsilon
        _ = self.formula  # raises now what it would raise at the first batch

    def weighting(self) -> Weighting:  # noqa: D102
        return _weighting.IV(as_policy(self.epsilon))

    def _settings(self) -> dict[str, object]:
        return {"epsilon": self.epsilon}


class BIVLoss(VarianceLoss):
    r""":func:`biv.biv_loss` as a module; other arguments as :class:`VarianceLoss` has them.

    .. math:: \left(\sum_k \frac{1}{\sigma_k^2 + \epsilon}\right)^{-1}
              \sum_k \frac{\ell(f_k, \tilde y_k)}{\sigma_k^2 + \epsilon}

    Shapes: as :meth:`VarianceLoss.forward` has them, to a 0-d tensor.

    Args:
        epsilon: ε, **absolute**, in the units of the variance: 0.05 suits labels of unit variance.
            Or a policy of :mod:`biv.epsilon`, such as
            ``Relative(0.05, label_variance)`` or ``MinimumBatchSize(fraction=0.5)``.
        base: ℓ: "mse", "mae", "huber" (δ = 1, in label units), or a callable giving elementwise
            losses, such as ``torch.nn.SmoothL1Loss(reduction="none")``.

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
        per_output: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__(
            process_group=process_group, per_output=per_output, validate_args=validate_args
        )
        self.epsilon, self.base = epsilon, base
        _ = self.formula

    def weighting(self) -> Weighting:  # noqa: D102
        return _weighting.BIV(as_policy(self.epsilon))

    def _settings(self) -> dict[str, object]:
        return {"epsilon": self.epsilon, "base": self.base}


class CutoffLoss(VarianceLoss):
    r""":func:`biv.cutoff_loss` as a module; other arguments as :class:`VarianceLoss` has them.

    .. math:: \left(\sum_k \mathbf 1\{\sigma_k^2 < C\}\right)^{-1}
              \sum_k \mathbf 1\{\sigma_k^2 < C\}\,(f_k - \tilde y_k)^2

    Shapes: as :meth:`VarianceLoss.forward` has them, to a 0-d tensor.

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
        per_output: bool = False,
        validate_args: bool = True,
    ) -> None:
        super().__init__(
            process_group=process_group, per_output=per_output, validate_args=validate_args
        )
        self.threshold = threshold
        _ = self.formula

    def weighting(self) -> Weighting:  # noqa: D102
        return _weighting.Cutoff(self.threshold)

    def _settings(self) -> dict[str, object]:
        return {"threshold": self.threshold}
