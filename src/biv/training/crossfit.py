"""Cross-fitting: an ensemble that is chosen and judged on noisy labels, without wasting a row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from biv import _checks, metrics
from biv.modules import BIVLoss, L2Loss, VarianceLoss
from biv.training.data import Member, Schedule, Triplets
from biv.training.progress import progress_bar
from biv.training.stack import Factory, Stack

PATIENCE = 12  # epochs without a better score before training stops


@dataclass(frozen=True, eq=False)
class CrossFit:
    """An ensemble, and what its members say of rows that they have not seen.

    Attributes:
        modules: The members, as they were at the epoch chosen.
        epoch: Which that is, from 1 on.
        scores: The noise-corrected mean squared error of out-of-fold predictions after every epoch.
        out_of_fold: What members that have not seen a row predict for it, (N, D); NaN of the few
            rows that all have seen, where the folds do not divide their number.
        tau2: The model's own residual variance, estimated from these.
    """

    modules: list[nn.Module]
    epoch: int
    scores: npt.NDArray[np.float64]
    out_of_fold: Tensor
    tau2: float

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """What every member predicts, (members, N, D)."""
        return torch.stack([module(x) for module in self.modules])


def cross_fit(
    model: Factory,
    rows: Triplets,
    schedule: Schedule,
    *,
    loss: VarianceLoss | None = None,
    learning_rate: float = 2e-3,
    members: int = 8,
    folds: int = 8,
    patience: int = PATIENCE,
    seed: int = 0,
    progress: bool = True,
) -> CrossFit:
    r"""Train an ensemble whose members each leave out a fold of the rows.

    Every row is left out by some member, whose prediction of it is honest: not fitted on its label.
    After each epoch, these predictions f give the noise-corrected error

    .. math:: \frac{\sum_k w_k [(f_k - \tilde y_k)^2 - \sigma_k^2]}{\sum_k w_k}, \qquad
              w_k = (\sigma_k^2 + \epsilon)^{-2}

    (:func:`biv.metrics.noise_corrected_mse`); the epoch at which it is lowest is chosen. No clean
    label is needed, and the ensemble as a whole has learned from all rows.

    Args:
        model: Makes a network from a generator.
        rows: What there is to learn from; without variances the labels are taken to be clean.
        schedule: At most so many epochs; ``averaging`` makes scores steady and members better.
            ``test_every`` is not used.
        loss: Of all members, ``BIVLoss()`` if there are variances and ``L2Loss()`` if not, by
            default.
        learning_rate: Of all members.
        members: How many, a multiple of `folds`.
        folds: How many parts the rows are dealt into.
        patience: Epochs without a better score before training stops.
        seed: Of the folds, and of the members.
        progress: Whether to show a bar on a terminal, after two seconds.

    Raises:
        ValueError: There are fewer rows than folds, or members are not a multiple of folds, or all
            members diverged.

    Example:
        >>> from biv.models import MLP
        >>> x = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> rows = Triplets(x, x.sum(dim=1), torch.full((200,), 0.01))
        >>> schedule = Schedule(epochs=5, batch_size=32, averaging=4, test_every=None)
        >>> fitted = cross_fit(MLP(features=3), rows, schedule, members=4, folds=4)
        >>> fitted.predict(x).shape, fitted.out_of_fold.shape
        (torch.Size([4, 200, 1]), torch.Size([200, 1]))
    """
    if loss is None:
        loss = L2Loss() if rows.variance is None else BIVLoss()
    parts = _deal(len(rows), folds, seed)
    if _checks.integer("members", members, at_least=1) % folds:
        raise ValueError(f"members must be a multiple of folds, {folds}; found {members}")
    _checks.integer("patience", patience, at_least=1)
    stack = Stack(model, _members(rows, parts, loss, learning_rate, members, seed), schedule)
    judge = _Judge(rows, parts, members)
    best: CrossFit | None = None
    scores: list[float] = []
    total = schedule.epochs * stack.steps_per_epoch
    with progress_bar(total, f"{members} members", enabled=progress) as bar:
        while stack.epoch < schedule.epochs and not stack.all_frozen:
            stack.run_epoch(bar.update)
            predicted = judge.out_of_fold(stack)
            scores.append(judge.score(predicted))
            bar.set_postfix_str(f"out of fold {scores[-1]:.3f}", refresh=False)
            if np.isfinite(scores[-1]) and scores[-1] <= min(scores):
                modules = [stack.module(member) for member in range(members)]
                best = CrossFit(modules, stack.epoch, np.array(scores), predicted, 0.0)
            elif best is not None and stack.epoch - best.epoch >= patience:
                break
    if best is None:
        raise ValueError(
            "no member gave a finite prediction after a whole epoch: choose a smaller "
            f"learning_rate; found {learning_rate:g}"
        )
    tau2 = judge.residual_variance(best.out_of_fold)
    return CrossFit(best.modules, best.epoch, np.array(scores), best.out_of_fold, tau2)


def _deal(rows: int, folds: int, seed: int) -> list[Tensor]:
    """Folds of equal size, since the members of a stack make equally many steps."""
    count = _checks.integer("folds", folds, at_least=2)
    if rows < count:
        raise ValueError(f"rows must be at least as many as folds, {count}; found {rows}")
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    size = rows // count
    return [order[fold * size : (fold + 1) * size].sort().values for fold in range(count)]


def _members(
    rows: Triplets,
    parts: Sequence[Tensor],
    loss: VarianceLoss,
    learning_rate: float,
    members: int,
    seed: int,
) -> list[Member]:
    trained = []
    for part in parts:
        kept = torch.ones(len(rows), dtype=torch.bool)
        kept[part] = False
        trained.append(rows.take(kept))
    return [
        Member(
            trained[number % len(parts)],
            loss=loss,
            learning_rate=learning_rate,
            seed=seed * members + number,
        )
        for number in range(members)
    ]


class _Judge:
    """Scores predictions of rows by members that have not seen them, on noisy labels."""

    def __init__(self, rows: Triplets, parts: Sequence[Tensor], members: int) -> None:
        self.rows, self.parts = rows, parts
        self.tables = [rows.x[parts[number % len(parts)]] for number in range(members)]
        self.variance = torch.zeros_like(rows.y) if rows.variance is None else rows.variance

    def out_of_fold(self, stack: Stack) -> Tensor:
        each = stack.predict_each(self.tables)
        predicted = torch.full_like(self.rows.y, torch.nan)
        for fold, part in enumerate(self.parts):
            predicted[part] = torch.stack(each[fold :: len(self.parts)]).mean(dim=0)
        return predicted

    def score(self, predicted: Tensor) -> float:
        """Infinite where a member has diverged."""
        scored = torch.cat(list(self.parts))
        if not bool(predicted[scored].isfinite().all()):
            return float("inf")
        return metrics.noise_corrected_mse(*self._scored(predicted)).value

    def residual_variance(self, predicted: Tensor) -> float:
        return metrics.residual_variance(*self._scored(predicted))

    def _scored(self, predicted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scored = torch.cat(list(self.parts))
        return predicted[scored], self.rows.y[scored], self.variance[scored]
