"""The batches of an epoch for a whole stack: which rows, which labels, what each counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from biv.losses import weights
from biv.losses._reduction import (
    NEUTRAL_PRED,
    NEUTRAL_TARGET,
    Base,
    Labels,
    LossFormula,
    elementwise,
)
from biv.losses._weighting import Scope
from biv.models.stacked import aligned
from biv.training.data import Member, Triplets
from biv.training.schedule import Schedule

T = TypeVar("T")


class StackBatch(NamedTuple):
    """One step of every member.

    Attributes:
        rows: Row numbers in the pool of features, (R, B).
        target: Labels, (R, D, B).
        share: Weight over denominator, (R, D, B): the loss is Σ share·ℓ.
        effective_size: Kish's, (R,); 0 where nothing is left.
    """

    rows: Tensor
    target: Tensor
    share: Tensor
    effective_size: Tensor

    def losses(self, pred: Tensor, bases: Sequence[Base]) -> tuple[Tensor, Tensor]:
        """Σ share·ℓ of each member, (R,), and its gradient by the predictions, (R, D, B).

        By hand for the squared error, and member by member through autograd for another ℓ: a
        member's way does not depend on its neighbours'.
        """
        error = torch.where(self.share > 0, pred - self.target, 0.0)
        gradient = self.share * error
        losses = (gradient * error).sum((1, 2))
        gradient *= 2.0
        for member, base in enumerate(bases):
            if base != "mse":
                one = pred[member], self.target[member], self.share[member]
                losses[member], gradient[member] = _loss(base, *one)
        return losses, gradient


def _loss(base: Base, pred: Tensor, target: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = pred.detach().clone().requires_grad_()
        kept = torch.where(share > 0, leaf, NEUTRAL_PRED)
        loss = (share * elementwise(base, kept, target)).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


class _PaddedLabels(NamedTuple):
    """The labels of a table, and one more that is missing, to fill up short batches with."""

    y: Tensor
    variance: Tensor
    sample_weight: Tensor

    @classmethod
    def of(cls, train: Triplets) -> _PaddedLabels:
        y, variance, weight = train.y, train.variance, train.sample_weight
        return cls(
            _with_row(y, torch.nan),
            _with_row(torch.zeros_like(y) if variance is None else variance, torch.inf),
            _with_row(torch.ones_like(y) if weight is None else weight, 0.0),
        )


def _with_row(column: Tensor, value: float) -> Tensor:
    return torch.cat([column, column.new_full((1, column.shape[1]), value)])


class StackBatches:
    """Draws the orders of the members and weighs their labels, an epoch at a time.

    Everything about a step that does not depend on the parameters is computed here, for all steps
    of the epoch at once. All batches have one shape: a short one is filled up with
    rows of weight 0.

    Attributes:
        pool: The features of all members, (rows, F); a tensor that members share is in it once. The
            last row is 0.
        steps: How many batches an epoch has.
        orders: The generators that the orders are drawn from, one a member.
    """

    def __init__(self, members: Sequence[Member], schedule: Schedule) -> None:
        self.members = members
        self.steps = _common(
            "steps an epoch (choose a batch_size that gives them, or train in several stacks)",
            [schedule.steps_per_epoch(len(m)) for m in members],
        )
        self.outputs = _common("columns of y", [m.train.y.shape[1] for m in members])
        if any(m.train.x.ndim != 2 for m in members):
            raise ValueError("a stack learns from tables; train images with train_module")
        _common("features", [m.train.x.shape[1] for m in members])
        _common("dtype", [str(m.train.x.dtype) for m in members])
        # Rounding depends on the shape of a batch, so that shape must not depend on the neighbours.
        self.size = _common(
            "batch shapes: choose a batch_size that none has fewer rows than",
            [min(schedule.batch_size, 1 << (len(m) - 1).bit_length()) for m in members],
        )
        self.room = aligned(self.size)
        self.pool, self.starts = _pooled([m.train.x for m in members])
        self.gathered: Tensor | None = None
        tables = {id(m.train): _PaddedLabels.of(m.train) for m in members}
        self.labels = [tables[id(m.train)] for m in members]
        self.orders = [m.generators()[1] for m in members]
        self.formulas = [m.loss.formula for m in members]
        self.alike = _alike(self.formulas)

    def epoch(self) -> list[StackBatch]:
        """The batches of the next epoch."""
        steps, room, count = self.steps, self.room, len(self.members)
        orders = torch.stack([self._order(member) for member in range(count)], dim=1)
        lengths = torch.tensor([len(m.train) for m in self.members]).view(1, count, 1)
        blank = len(self.pool) - 1
        rows = torch.where(orders == lengths, blank, orders + self.starts.view(1, count, 1))
        shape = (steps, count, room, self.outputs)
        target, share = self.pool.new_empty(shape), self.pool.new_empty(shape)
        sizes = self.pool.new_empty(steps, count)
        for group in self.alike:
            if len(group) * steps == 1:
                group = group * 2
            drawn = [[column[orders[:, m]] for column in self.labels[m]] for m in group]
            labels = [torch.stack(columns, dim=1) for columns in zip(*drawn, strict=True)]
            w, denominator = _weigh(self.formulas[group[0]], *labels)
            target[:, group] = torch.where(w > 0, labels[0], NEUTRAL_TARGET)
            share[:, group] = w / torch.where(denominator == 0, 1.0, denominator)[..., None, None]
            sizes[:, group] = weights.kish(w, (2, 3))
        target, share = (part.transpose(2, 3).contiguous() for part in (target, share))
        return [StackBatch(*parts) for parts in zip(rows, target, share, sizes, strict=True)]

    def _order(self, member: int) -> Tensor:
        """The rows of each batch, (steps, room); one beyond the last where there are no more."""
        rows = len(self.members[member].train)
        drawn = self.members[member].order(self.orders[member])[: self.steps * self.size]
        order = torch.full((self.steps, self.size), rows)
        order.view(-1)[: len(drawn)] = drawn
        return F.pad(order, (0, self.room - self.size), value=rows)

    def features(self, rows: Tensor) -> Tensor:
        """The features of these rows of the pool, (R, F, B); overwritten by the next call."""
        if self.gathered is None or len(self.gathered) < rows.numel():
            self.gathered = self.pool.new_empty(rows.numel(), self.pool.shape[1])
        found = self.gathered[: rows.numel()]
        torch.index_select(self.pool, 0, rows.reshape(-1), out=found)
        return found.view(*rows.shape, -1).transpose(1, 2)


def _weigh(
    formula: LossFormula, y: Tensor, variance: Tensor, importance: Tensor
) -> tuple[Tensor, Tensor]:
    """Weights (steps, members, B, D) and denominators (steps, members) of batches weighed alike."""
    flat = y.flatten(0, 1), variance.flatten(0, 1), importance.flatten(0, 1)
    policy = formula.weighting.policy
    if policy.reads_batch:
        for batch in zip(*flat, strict=True):
            labels = Labels.checked(batch[0], batch[1], None, batch[2]).promoted()
            Scope.over(formula.weighting, labels, validate_args=True)

    def weigh(y: Tensor, variance: Tensor, importance: Tensor) -> tuple[Tensor, Tensor]:
        weighed = formula.weigh(y, variance, None, importance)
        return weighed.weights, weighed.denominator

    w, denominator = torch.func.vmap(weigh)(*flat)
    return w.view_as(y), denominator.view(y.shape[:2])


def _alike(formulas: Sequence[LossFormula]) -> list[list[int]]:
    """The members whose labels are weighed by one formula, in groups."""
    groups: list[list[int]] = []
    for member, formula in enumerate(formulas):
        for group in groups:
            if formula == formulas[group[0]]:
                group.append(member)
                break
        else:
            groups.append([member])
    return groups


def _pooled(tables: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """All tables below one another, each distinct tensor once, and where each begins.

    After them comes a row of 0, for what fills up a short batch.
    """
    begins: dict[int, int] = {}
    distinct: list[Tensor] = []
    for table in tables:
        if id(table) not in begins:
            begins[id(table)] = sum(len(t) for t in distinct)
            distinct.append(table)
    blank = distinct[0].new_zeros(1, distinct[0].shape[1])
    return torch.cat([*distinct, blank]), torch.tensor([begins[id(table)] for table in tables])


def _common(what: str, values: Sequence[T]) -> T:
    """The one value that all members have."""
    if len(set(values)) > 1:
        first, other = 0, next(k for k, value in enumerate(values) if value != values[0])
        raise ValueError(
            f"the members of a stack must have equal {what}; "
            f"got {values[first]} of member {first} and {values[other]} of member {other}"
        )
    return values[0]
