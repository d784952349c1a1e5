"""Cross-fitting: an ensemble that is chosen and judged on noisy labels, without wasting a row."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from biv import metrics
from biv._utils import typed_json, validation
from biv._utils.pages import page_hint
from biv._utils.progress import progress_bar
from biv.losses.modules import BIVLoss, L2Loss, VarianceLoss
from biv.training.checkpoint import CheckpointFile, require_like
from biv.training.data import Member, Triplets
from biv.training.early_stopping import PATIENCE, DivergedError, EarlyStopping
from biv.training.ensembles import CHUNK, Ensemble, make_ensemble
from biv.training.held_out import HeldOutScore
from biv.training.numerics import numerical_settings
from biv.training.schedule import Schedule
from biv.training.stack import Factory, Stack
from biv.training.train import resume

SCORED_ROWS = 1 << 17  # at most, after every epoch
HELP = page_hint("networks")


@dataclass(frozen=True, eq=False)
class CrossFit:
    """An ensemble, and what its members say of rows that they have not seen.

    Attributes:
        modules: Members, as they were at the chosen epoch.
        epoch: Chosen epoch, from 1 on.
        scores: Estimated mean squared error of the ensemble after every epoch.
        out_of_fold: Predictions of each row by the members that have not seen it, (N, D).
        tau2: Residual variance of the model, estimated from these.
    """

    modules: list[nn.Module]
    epoch: int
    scores: npt.NDArray[np.float64]
    out_of_fold: Tensor
    tau2: float

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Return the predictions of every member, (members, N, D)."""
        parts = torch.split(x, CHUNK)
        return torch.stack([torch.cat([module(p) for p in parts]) for module in self.modules])


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
    threads: int = 1,
    progress: bool = True,
    checkpoint: str | Path | None = None,
    checkpoint_seconds: float = 60.0,
    after_epoch: Callable[[Ensemble], object] = lambda _: None,
) -> CrossFit:
    r"""Train an ensemble whose members each leave out a fold of the rows.

    Every row is left out by some member, whose prediction of it is honest: not fitted on its label.
    After each epoch, these predictions f, the mean of the m members that left the row out, give the
    noise-corrected error

    .. math::
        \frac{\sum_k w_k [(f_k - \tilde y_k)^2 - \sigma_k^2 - (1/m - 1/M)\,s_k^2]}{\sum_k w_k},
        \qquad w_k = \frac{1}{\sigma_k^2 + \epsilon}

    over the labels that count, averaged over the outputs (`HeldOutScore`). New rows are
    predicted by all M members, whose mean varies less: with s² the variance between the members
    that left a row out, the error of an ensemble of M is lower than that of m by s²(1/m − 1/M),
    which is subtracted where m > 1. The weights are the same in all epochs, so that the error bars
    cancel where two epochs are compared. The epoch with the lowest score is chosen. No clean label
    is needed, and the ensemble as a whole has learned from all rows. At most 131,072 rows are
    scored, evenly spaced.

    Args:
        model: Makes a network from a generator; a stack where it can be (:class:`Stack`), else the
            members are trained one by one (:func:`train_reference`).
        rows: What there is to learn from; without variances the labels are taken to be clean.
        schedule: At most so many epochs; ``averaging`` makes scores steady and members better.
            ``test_every`` is not used.
        loss: Loss of all members; ``BIVLoss()`` if there are variances and ``L2Loss()`` if not,
            by default.
        learning_rate: Learning rate of all members.
        members: Number of members, a multiple of `folds`.
        folds: Number of parts that the rows are dealt into.
        patience: Epochs without a score better by 1% before training stops.
        seed: Seed of the folds and of the members.
        threads: Number of threads to train on; they change the result by rounding at most.
        progress: Whether to show a bar on a terminal, after two seconds.
        checkpoint: File to resume from to the same bits, as in :func:`train_stack`; only for
            networks that can be stacked.
        checkpoint_seconds: Seconds between two saves.
        after_epoch: Called with the ensemble after every epoch, which it must not change.

    Raises:
        ValueError: There are fewer rows than folds, or members are not a multiple of folds, or all
            members diverged (:class:`DivergedError`).

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
    members, folds = validation.integer("members", members, at_least=1), len(parts)
    if members % folds:
        raise ValueError(f"members must be a multiple of folds, {folds}; got {members}{HELP}")
    validation.integer("patience", patience, at_least=1)
    trained = _members(rows, parts, loss, learning_rate, members, seed)
    stack = make_ensemble(model, trained, schedule, threads)
    score = _OutOfFoldScore(rows, parts, members)
    stopping = EarlyStopping(patience)
    saved = _Checkpointing(stack, stopping, checkpoint, checkpoint_seconds)
    total, done = schedule.epochs * stack.steps_per_epoch, stack.epoch * stack.steps_per_epoch
    with (
        saved,
        progress_bar(total, f"{members} members", enabled=progress, done=done) as bar,
        numerical_settings(),
    ):
        while stack.epoch < schedule.epochs and not stack.all_frozen and not stopping.should_stop:
            stack.run_epoch(bar.update)
            stopping.update(stack, *score(stack))
            after_epoch(stack)
            bar.set_postfix_str(f"out of fold {stopping.scores[-1]:.3f}", refresh=False)
            saved.save_if_due()
    if stopping.best is None:
        raise DivergedError(
            "no member gave a finite prediction after a whole epoch: choose a smaller "
            f"learning_rate; got {learning_rate:g}{HELP}"
        )
    modules, predicted = stack.modules(stopping.best), stopping.predicted
    if not score.sees_all:
        predicted = _out_of_fold(modules, rows, parts)
    variance = torch.zeros_like(rows.y) if rows.variance is None else rows.variance
    tau2 = metrics.residual_variance(predicted, rows.y, variance)
    return CrossFit(modules, stopping.epoch, np.array(stopping.scores), predicted, tau2)


def _deal(rows: int, folds: int, seed: int) -> list[Tensor]:
    """Folds of equal size, since the members of a stack make equally many steps.

    They cover all rows; where their number does not divide that of the rows, some share a few.
    """
    count = validation.integer("folds", folds, at_least=2)
    if rows < count:
        raise ValueError(f"rows must be at least as many as folds, {count}; got {rows}")
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    size = -(-rows // count)
    starts = [fold * (rows - size) // (count - 1) for fold in range(count)]
    return [order[start : start + size].sort().values for start in starts]


def _members(
    rows: Triplets,
    parts: Sequence[Tensor],
    loss: VarianceLoss,
    learning_rate: float,
    members: int,
    seed: int,
) -> list[Member]:
    learned = []
    for part in parts:
        kept = torch.ones(len(rows), dtype=torch.bool)
        kept[part] = False
        learned.append(kept.nonzero().flatten())
    return [
        Member(
            rows,
            rows=learned[number * len(parts) // members],
            loss=loss,
            learning_rate=learning_rate,
            seed=seed * members + number,
        )
        for number in range(members)
    ]


class _OutOfFoldScore:
    """Scores predictions of rows by members that have not seen them, on noisy labels."""

    def __init__(self, rows: Triplets, parts: Sequence[Tensor], members: int) -> None:
        self.sees_all = len(rows) <= SCORED_ROWS
        if not self.sees_all:
            # Every so many rows, of parts that are in the order of the table and were dealt by lot.
            step = -(-len(rows) // SCORED_ROWS)
            parts = [part[::step] for part in parts]
        seen, self.places = torch.unique(torch.cat(list(parts)), return_inverse=True)
        self.lengths = [len(part) for part in parts]
        self.y, variance, weight = rows.labels(seen)
        self.held_out = HeldOutScore(self.y, variance, weight)
        tables = [rows.x[part] for part in parts]
        self.tables = [tables[number * len(parts) // members] for number in range(members)]

    def __call__(self, stack: Ensemble) -> tuple[float, Tensor]:
        """The score, and what the members that have left out a row predict for it, (N, D)."""
        each = _each(stack.predict_each(self.tables), self.places.split(self.lengths), self.y)
        return self.score(each), each.mean(dim=0)

    def score(self, each: Tensor) -> float:
        """Infinite where a member has diverged."""
        if not bool(each.isfinite().all()):
            return float("inf")
        if len(each) == 1:
            return self.held_out(each[0])
        fewer = 1 / len(each) - 1 / len(self.tables)
        return self.held_out(each.mean(dim=0), fewer * each.double().var(dim=0))


def _each(predicted: Sequence[Tensor], parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """What the members that have left out a row predict for it, (m, N, D)."""
    each = len(predicted) // len(parts)
    out = like.new_full((each, *like.shape), torch.nan)
    for fold, part in enumerate(parts):
        out[:, part] = torch.stack(list(predicted[fold * each : (fold + 1) * each]))
    return out


@torch.no_grad()
def _out_of_fold(modules: Sequence[nn.Module], rows: Triplets, parts: Sequence[Tensor]) -> Tensor:
    """The mean prediction of all rows by modules that have left them out, (N, D)."""
    predicted = [
        torch.cat(
            [
                module(rows.x[few])
                for few in torch.split(parts[k * len(parts) // len(modules)], CHUNK)
            ]
        )
        for k, module in enumerate(modules)
    ]
    return _each(predicted, parts, rows.y).mean(dim=0)


class _Checkpointing:
    """Keeps an ensemble and its best epoch in a file, if there is one, and resumes from there."""

    def __init__(
        self, stack: Ensemble, stopping: EarlyStopping, path: str | Path | None, seconds: float
    ) -> None:
        self.file = None if path is None else CheckpointFile(Path(path))
        self.stopping, self.seconds, self.at = stopping, seconds, time.monotonic()
        if self.file is None:
            return
        if not isinstance(stack, Stack):
            raise ValueError("checkpoint is for networks that can be stacked; got others")
        self.stack = stack
        state = resume(stack, self.file)
        if state is not None:
            with typed_json.errors_name_file(
                path, "is of another training: move it away to start anew"
            ):
                require_like({"choice": stopping.state_dict()}, state)
            stopping.load_state_dict(state["choice"])
        self.state = self._taken()

    def _taken(self) -> dict[str, Any]:
        return self.stack.state_dict() | {"choice": self.stopping.state_dict()}

    def save_if_due(self) -> None:
        """After an epoch."""
        if self.file is None:
            return
        self.state = self._taken()
        if time.monotonic() - self.at >= self.seconds:
            self.file.save(self.state)
            self.at = time.monotonic()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self.file is not None:  # also when interrupted: the last whole epoch
            self.file.save(self.state)
