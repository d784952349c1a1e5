"""Batches of an epoch for all members of a stack: rows, labels and normalised weights."""

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
    """Batches of all R members at one step, with B rows and D outputs each.

    Attributes
    ----------
    rows : Tensor of shape (R, B)
        Row indices in the pool of features.
    target : Tensor of shape (R, D, B)
        Labels.
    share : Tensor of shape (R, D, B)
        Weight divided by the denominator of the loss: the loss is Σ share·ℓ.
    effective_size : Tensor of shape (R,)
        Kish's effective batch size; 0 if all weights are 0.
    """

    rows: Tensor
    target: Tensor
    share: Tensor
    effective_size: Tensor

    def losses(self, pred: Tensor, bases: Sequence[Base]) -> tuple[Tensor, Tensor]:
        """Return Σ share·ℓ per member, (R,), and its gradient by the predictions, (R, D, B).

        The gradient of the squared error is computed by hand for all members at once. Any other ℓ
        is differentiated by autograd, member by member, so that the result of a member does not
        depend on its neighbours.
        """
        error = torch.where(self.share > 0, pred - self.target, 0.0)
        gradient = self.share * error
        losses = (gradient * error).sum((1, 2))
        gradient *= 2.0
        for member, base in enumerate(bases):
            if base != "mse":
                columns = pred[member], self.target[member], self.share[member]
                losses[member], gradient[member] = _loss(base, *columns)
        return losses, gradient


def _loss(base: Base, pred: Tensor, target: Tensor, share: Tensor) -> tuple[Tensor, Tensor]:
    with torch.enable_grad():
        leaf = pred.detach().clone().requires_grad_()
        kept = torch.where(share > 0, leaf, NEUTRAL_PRED)
        loss = (share * elementwise(base, kept, target)).sum()
        (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


class _PaddedLabels(NamedTuple):
    """Labels of a table, followed by a missing label that pads short batches."""

    y: Tensor
    variance: Tensor
    sample_weight: Tensor

    @classmethod
    def from_triplets(cls, train: Triplets) -> _PaddedLabels:
        y, variance, weight = train.y, train.variance, train.sample_weight
        return cls(
            _with_row(y, torch.nan),
            _with_row(torch.zeros_like(y) if variance is None else variance, torch.inf),
            _with_row(torch.ones_like(y) if weight is None else weight, 0.0),
        )


def _with_row(column: Tensor, value: float) -> Tensor:
    return torch.cat([column, column.new_full((1, column.shape[1]), value)])


class StackBatches:
    """Batches of all members, drawn and weighted one epoch at a time.

    Everything about a step that does not depend on the parameters is computed here, for all steps
    of the epoch at once. All batches have the same shape: a short batch is padded with rows of
    weight 0.

    Attributes
    ----------
    pool : Tensor of shape (rows, F)
        Features of all members. A tensor that members share is stored once. The last row is 0 and
        serves as padding.
    steps : int
        Number of batches per epoch.
    orders : list of torch.Generator
        Generators of the row orders, one per member.
    """

    def __init__(self, members: Sequence[Member], schedule: Schedule) -> None:
        self.members = members
        self.steps = _common(
            "number of steps per epoch",
            [schedule.steps_per_epoch(len(m)) for m in members],
            ": choose a batch_size that gives equal numbers, or train several stacks",
        )
        self.outputs = _common("number of columns of y", [m.train.y.shape[1] for m in members])
        if any(m.train.x.ndim != 2 for m in members):
            raise ValueError(
                "x of every member of a stack must have shape (rows, features); got images. Train "
                "them with train_module"
            )
        _common("number of features", [m.train.x.shape[1] for m in members])
        _common("dtype", [str(m.train.x.dtype) for m in members])
        # Rounding depends on the shape of a batch. The shape of a member's batches must therefore
        # not depend on the other members.
        self.size = _common(
            "batch shape",
            [min(schedule.batch_size, 1 << (len(m) - 1).bit_length()) for m in members],
            ": choose a batch_size of at most the smallest number of rows",
        )
        self.padded_size = aligned(self.size)
        self.pool, self.starts = _pooled([m.train.x for m in members])
        self._buffer: Tensor | None = None
        tables = {id(m.train): _PaddedLabels.from_triplets(m.train) for m in members}
        self.labels = [tables[id(m.train)] for m in members]
        self.orders = [m.generators()[1] for m in members]
        self.formulas = [m.loss.formula for m in members]
        self.formula_groups = _group_by_formula(self.formulas)

    def epoch(self) -> list[StackBatch]:
        """Draw and return the batches of the next epoch."""
        steps, size, count = self.steps, self.padded_size, len(self.members)
        orders = torch.stack([self._order(member) for member in range(count)], dim=1)
        lengths = torch.tensor([len(m.train) for m in self.members]).view(1, count, 1)
        padding = len(self.pool) - 1
        rows = torch.where(orders == lengths, padding, orders + self.starts.view(1, count, 1))
        shape = (steps, count, size, self.outputs)
        target, share = self.pool.new_empty(shape), self.pool.new_empty(shape)
        sizes = self.pool.new_empty(steps, count)
        for group in self.formula_groups:
            # A single batch would be reduced by other kernels, which round differently.
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
        """Return the row indices of each batch, (steps, padded size).

        The number of rows, which is the index of the missing label, pads short batches.
        """
        rows = len(self.members[member].train)
        drawn = self.members[member].order(self.orders[member])[: self.steps * self.size]
        order = torch.full((self.steps, self.size), rows)
        order.view(-1)[: len(drawn)] = drawn
        return F.pad(order, (0, self.padded_size - self.size), value=rows)

    def features(self, rows: Tensor) -> Tensor:
        """Return the features of rows of the pool, (R, F, B); the next call overwrites them."""
        if self._buffer is None or len(self._buffer) < rows.numel():
            self._buffer = self.pool.new_empty(rows.numel(), self.pool.shape[1])
        features = self._buffer[: rows.numel()]
        torch.index_select(self.pool, 0, rows.reshape(-1), out=features)
        return features.view(*rows.shape, -1).transpose(1, 2)


def _weigh(
    formula: LossFormula, y: Tensor, variance: Tensor, importance: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the weights (steps, members, B, D) and denominators (steps, members) of batches."""
    flat = y.flatten(0, 1), variance.flatten(0, 1), importance.flatten(0, 1)
    policy = formula.weighting.policy
    if policy.reads_batch:
        # Values cannot be checked inside vmap.
        for batch in zip(*flat, strict=True):
            labels = Labels.checked(batch[0], batch[1], None, batch[2]).promoted_variance()
            Scope.over(formula.weighting, labels, validate_args=True)

    def weigh(y: Tensor, variance: Tensor, importance: Tensor) -> tuple[Tensor, Tensor]:
        weighed = formula.weigh(y, variance, None, importance)
        return weighed.weights, weighed.denominator

    w, denominator = torch.func.vmap(weigh)(*flat)
    return w.view_as(y), denominator.view(y.shape[:2])


def _group_by_formula(formulas: Sequence[LossFormula]) -> list[list[int]]:
    """Return the members grouped by the formula that weights their labels."""
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
    """Return the concatenation of the distinct tables, and the start of each table in it.

    The last row of the concatenation is 0 and serves as padding.
    """
    begins: dict[int, int] = {}
    distinct: list[Tensor] = []
    for table in tables:
        if id(table) not in begins:
            begins[id(table)] = sum(len(t) for t in distinct)
            distinct.append(table)
    padding = distinct[0].new_zeros(1, distinct[0].shape[1])
    return torch.cat([*distinct, padding]), torch.tensor([begins[id(table)] for table in tables])


def _common(what: str, values: Sequence[T], hint: str = "") -> T:
    """Return the value that all members share; raise a ValueError if they differ."""
    if len(set(values)) > 1:
        first, other = 0, next(k for k, value in enumerate(values) if value != values[0])
        raise ValueError(
            f"the members of a stack must have the same {what}; got {values[first]} for "
            f"member {first} and {values[other]} for member {other}{hint}"
        )
    return values[0]
