"""Cross-fitting: train an ensemble on all rows, and choose its epoch on held-out noisy labels."""

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

SCORED_ROWS = 1 << 17  # most rows that are scored after an epoch
HELP = page_hint("networks")


@dataclass(frozen=True, eq=False)
class CrossFit:
    """A cross-fitted ensemble and its out-of-fold predictions, as returned by :func:`cross_fit`.

    Attributes
    ----------
    modules : list of torch.nn.Module
        Members, with the parameters of the chosen epoch.
    epoch : int
        Chosen epoch, counted from 1.
    scores : ndarray of shape (epochs,)
        Estimated mean squared error of the ensemble after every epoch, in squared units of y.
    out_of_fold : torch.Tensor of shape (N, D)
        Mean prediction of each row by the members that were not trained on it, in units of y.
    tau2 : float
        Residual variance τ² of the model, estimated from `out_of_fold`, in squared units of y.

    Examples
    --------
    >>> from biv.models import MLP
    >>> x = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))
    >>> rows = Triplets(x, x.sum(dim=1), torch.full((40,), 0.01))
    >>> fitted = cross_fit(MLP(features=3), rows, Schedule(epochs=2), members=4, folds=4)
    >>> len(fitted.modules), len(fitted.scores), fitted.out_of_fold.shape
    (4, 2, torch.Size([40, 1]))
    """

    modules: list[nn.Module]
    epoch: int
    scores: npt.NDArray[np.float64]
    out_of_fold: Tensor
    tau2: float

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Return the predictions of every member.

        Parameters
        ----------
        x : torch.Tensor of shape (N, F)
            Features.

        Returns
        -------
        torch.Tensor of shape (members, N, D)
            Predictions; their mean over the members is the prediction of the ensemble.
        """
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
    r"""Train an ensemble whose members each leave out one fold of the rows.

    Every row has an out-of-fold prediction f: the mean prediction of the m members that were not
    trained on it. After each epoch, the out-of-fold predictions are scored by the noise-corrected
    error, and the epoch with the lowest score is chosen. No clean labels are needed, and the
    ensemble as a whole is trained on all rows.

    Parameters
    ----------
    model : callable
        Function that takes a ``torch.Generator`` and returns a new network. Networks that a
        :class:`Stack` does not support are trained one after another.
    rows : Triplets
        Rows to train on; labels without variances are taken to be clean.
    schedule : Schedule
        Batches, optimizer and largest number of epochs. Set its ``averaging`` to make scores
        steadier and members better. Its ``test_every`` is not used.
    loss : VarianceLoss, default=None
        Loss of all members; None takes ``BIVLoss()`` if there are variances, else ``L2Loss()``.
        Set it to choose another loss or ε.
    learning_rate : float, default=0.002
        Learning rate of all members. Decrease it if they diverge.
    members : int, default=8
        Number M of members, a multiple of `folds`. Increase it for a lower error at more cost.
    folds : int, default=8
        Number of folds. Increase it for small tables, so that each member has more rows.
    patience : int, default=4
        Number of epochs without an improvement of the score by 1% after which training stops.
        Increase it if the scores fluctuate.
    seed : int, default=0
        Seed of the folds and of the members. Vary it to see how much the result depends on chance.
    threads : int, default=1
        Number of threads to train with. Increase it for large networks; the result changes by
        rounding at most.
    progress : bool, default=True
        Whether to show a progress bar on a terminal, after two seconds. Set it to False to keep a
        terminal clean.
    checkpoint : str or pathlib.Path, default=None
        File that the training is saved to, and resumed from if it exists, as in
        :func:`train_stack`. It requires networks that can be stacked. Set it for long runs.
    checkpoint_seconds : float, default=60.0
        Seconds between two saves. Decrease it to lose less when the process is killed.
    after_epoch : callable, optional
        Function that is called with the ensemble after every epoch and must not change it. Pass one
        to watch the training.

    Returns
    -------
    CrossFit
        Members, scores and out-of-fold predictions.

    Raises
    ------
    ValueError
        If there are fewer rows than folds, `members` is not a multiple of `folds`, `checkpoint` is
        given for networks that cannot be stacked, or no epoch ended with finite predictions.

    Notes
    -----
    The score is

    .. math::
        \frac{\sum_k w_k [(f_k - \tilde y_k)^2 - \sigma_k^2 - (1/m - 1/M)\,s_k^2]}{\sum_k w_k},
        \qquad w_k = \frac{1}{\sigma_k^2 + \epsilon}

    over the labels that are used, averaged over the outputs. ε is a tenth of the label variance, or
    more if the score would otherwise depend on few labels. New rows are predicted by all M members,
    whose mean varies less than the mean of m members. The error of the mean of all M is lower by
    s²(1/m − 1/M), where s² is the variance between the members that left the row out. This is
    subtracted if m > 1. A sample weight multiplies w. The weights are the same in all epochs, so
    that σ² cancels when two epochs are compared. At most 131,072 evenly spaced rows are scored.

    Examples
    --------
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
    parts = _make_folds(len(rows), folds, seed)
    members, folds = validation.integer("members", members, at_least=1), len(parts)
    if members % folds:
        raise ValueError(f"members must be a multiple of folds, {folds}; got {members}{HELP}")
    validation.integer("patience", patience, at_least=1)
    stack_members = _make_members(rows, parts, loss, learning_rate, members, seed)
    stack = make_ensemble(model, stack_members, schedule, threads)
    score = _OutOfFoldScore(rows, parts, members)
    stopping = EarlyStopping(patience)
    checkpointing = _Checkpointing(stack, stopping, checkpoint, checkpoint_seconds)
    total, done = schedule.epochs * stack.steps_per_epoch, stack.epoch * stack.steps_per_epoch
    with (
        checkpointing,
        progress_bar(total, f"{members} members", enabled=progress, done=done) as bar,
        numerical_settings(),
    ):
        while stack.epoch < schedule.epochs and not stack.all_frozen and not stopping.should_stop:
            stack.run_epoch(bar.update)
            stopping.update(stack, *score(stack))
            after_epoch(stack)
            bar.set_postfix_str(f"out of fold {stopping.scores[-1]:.3f}", refresh=False)
            checkpointing.save_if_due()
    if stopping.best is None:
        raise DivergedError(
            "the training diverged: no epoch ended with finite predictions of all members. Choose "
            f"a smaller learning_rate; got {learning_rate:g}{HELP}"
        )
    modules, predicted = stack.modules(stopping.best), stopping.predicted
    if not score.uses_all_rows:
        predicted = _out_of_fold(modules, rows, parts)
    variance = torch.zeros_like(rows.y) if rows.variance is None else rows.variance
    tau2 = metrics.residual_variance(predicted, rows.y, variance)
    return CrossFit(modules, stopping.epoch, np.array(stopping.scores), predicted, tau2)


def _make_folds(rows: int, folds: int, seed: int) -> list[Tensor]:
    """Return the rows of each fold; all folds have the same size, as a stack requires.

    They cover all rows. If the number of rows is not a multiple of `folds`, some rows are in two.
    """
    count = validation.integer("folds", folds, at_least=2)
    if rows < count:
        raise ValueError(f"there must be at least as many rows as folds, {count}; got {rows}")
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed))
    size = -(-rows // count)
    starts = [fold * (rows - size) // (count - 1) for fold in range(count)]
    return [order[start : start + size].sort().values for start in starts]


def _make_members(
    rows: Triplets,
    parts: Sequence[Tensor],
    loss: VarianceLoss,
    learning_rate: float,
    members: int,
    seed: int,
) -> list[Member]:
    training_rows = []
    for part in parts:
        in_training = torch.ones(len(rows), dtype=torch.bool)
        in_training[part] = False
        training_rows.append(in_training.nonzero().flatten())
    return [
        Member(
            rows,
            rows=training_rows[number * len(parts) // members],
            loss=loss,
            learning_rate=learning_rate,
            seed=seed * members + number,
        )
        for number in range(members)
    ]


class _OutOfFoldScore:
    """Score of out-of-fold predictions on noisy labels."""

    def __init__(self, rows: Triplets, parts: Sequence[Tensor], members: int) -> None:
        self.uses_all_rows = len(rows) <= SCORED_ROWS
        if not self.uses_all_rows:
            # Every step-th row of a fold is a random sample, because rows are in folds at random.
            step = -(-len(rows) // SCORED_ROWS)
            parts = [part[::step] for part in parts]
        scored, self.places = torch.unique(torch.cat(list(parts)), return_inverse=True)
        self.lengths = [len(part) for part in parts]
        self.y, variance, weight = rows.labels(scored)
        self.held_out = HeldOutScore(self.y, variance, weight)
        tables = [rows.x[part] for part in parts]
        self.tables = [tables[number * len(parts) // members] for number in range(members)]

    def __call__(self, stack: Ensemble) -> tuple[float, Tensor]:
        """Return the score and the out-of-fold predictions, (N, D)."""
        each = _by_row(stack.predict_each(self.tables), self.places.split(self.lengths), self.y)
        return self.score(each), each.mean(dim=0)

    def score(self, each: Tensor) -> float:
        """Return the score of predictions, (m, N, D); infinite if a member has diverged."""
        if not bool(each.isfinite().all()):
            return float("inf")
        if len(each) == 1:
            return self.held_out(each[0])
        factor = 1 / len(each) - 1 / len(self.tables)
        return self.held_out(each.mean(dim=0), factor * each.double().var(dim=0))


def _by_row(predicted: Sequence[Tensor], parts: Sequence[Tensor], like: Tensor) -> Tensor:
    """Return the predictions of each row by the m members that left it out, (m, N, D)."""
    per_fold = len(predicted) // len(parts)
    out = like.new_full((per_fold, *like.shape), torch.nan)
    for fold, part in enumerate(parts):
        out[:, part] = torch.stack(list(predicted[fold * per_fold : (fold + 1) * per_fold]))
    return out


@torch.no_grad()
def _out_of_fold(modules: Sequence[nn.Module], rows: Triplets, parts: Sequence[Tensor]) -> Tensor:
    """Return the mean prediction of each row by the modules that left it out, (N, D)."""
    predicted = [
        torch.cat(
            [
                module(rows.x[chunk])
                for chunk in torch.split(parts[k * len(parts) // len(modules)], CHUNK)
            ]
        )
        for k, module in enumerate(modules)
    ]
    return _by_row(predicted, parts, rows.y).mean(dim=0)


class _Checkpointing:
    """Checkpoint of an ensemble and its best epoch; does nothing if there is no file."""

    def __init__(
        self, stack: Ensemble, stopping: EarlyStopping, path: str | Path | None, seconds: float
    ) -> None:
        self.file = None if path is None else CheckpointFile(Path(path))
        self.stopping, self.seconds, self.saved_at = stopping, seconds, time.monotonic()
        if self.file is None:
            return
        if not isinstance(stack, Stack):
            raise ValueError(
                "checkpoint must be None for networks that cannot be stacked; got a path"
            )
        self.stack = stack
        state = resume(stack, self.file)
        if state is not None:
            with typed_json.errors_name_file(
                path, "is the checkpoint of another training run: move it away to start again"
            ):
                require_like({"choice": stopping.state_dict()}, state)
            stopping.load_state_dict(state["choice"])
        self.state = self._current_state()

    def _current_state(self) -> dict[str, Any]:
        return self.stack.state_dict() | {"choice": self.stopping.state_dict()}

    def save_if_due(self) -> None:
        """Save the state after an epoch, if `seconds` have passed since the last save."""
        if self.file is None:
            return
        self.state = self._current_state()
        if time.monotonic() - self.saved_at >= self.seconds:
            self.file.save(self.state)
            self.saved_at = time.monotonic()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        if self.file is not None:  # after an interruption: the last whole epoch
            self.file.save(self.state)
