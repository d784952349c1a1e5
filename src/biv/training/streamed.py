"""Training of one network by one or many processes, on batches that are read from files."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from biv import metrics
from biv._utils import typed_json
from biv._utils.progress import progress_bar
from biv.losses.modules import VarianceLoss
from biv.tables.stream import Batch
from biv.training.checkpoint import CheckpointFile, load_checkpoint, require_like
from biv.training.early_stopping import DivergedError, EarlyStopping
from biv.training.ensembles import CHUNK
from biv.training.held_out import HeldOutScore
from biv.training.loop import Average, all_finite
from biv.training.ranks import Ranks
from biv.training.schedule import Schedule

T = TypeVar("T")

INCOMPLETE_CHECKPOINT = "is not a complete checkpoint: start again without it"
SYNC_STEPS = 64  # steps between two exchanges of losses and saves between the ranks


class BatchSource(Protocol):
    """Source of batches, such as :class:`biv.tables.stream.Stream` or a table in memory."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch."""

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield this rank's part of each batch, from step `first` on."""


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Rows that no process trains on, and on whose noisy labels a network is scored.

    Attributes
    ----------
    rows : Batch
        The same rows on every rank; each rank predicts some of them.
    ranks : Ranks
        All processes.
    """

    rows: Batch
    ranks: Ranks

    @cached_property
    def _noise_corrected(self) -> HeldOutScore:
        """Score with the same weights in every epoch."""
        return HeldOutScore(self.rows.y, self.rows.variance, self.rows.weight)

    @torch.no_grad()
    def predict(self, model: nn.Module) -> Tensor:
        """Return predictions of all rows, (N, 1), on every rank."""
        rank, size = self.ranks.rank, self.ranks.size
        edges = [len(self.rows) * k // size for k in range(size + 1)]
        rank_rows = torch.tensor(self.rows.x[edges[rank] : edges[rank + 1]])
        device = next(model.parameters()).device
        parts = [model(part.to(device)).cpu() for part in torch.split(rank_rows, CHUNK)]
        return torch.cat([torch.from_numpy(part) for part in self.ranks.gather(_joined(parts))])

    def score(self, predicted: Tensor) -> tuple[float, float]:
        """Return the noise-corrected error and τ²; both infinite if a prediction is not finite."""
        if not bool(predicted.isfinite().all()):
            return math.inf, math.inf
        y = self.rows.y
        variance = np.zeros_like(y) if self.rows.variance is None else self.rows.variance
        tau2 = metrics.residual_variance(predicted.numpy(), y, variance)
        return self._noise_corrected(predicted), tau2


def _joined(parts: list[Tensor]) -> Any:
    return torch.cat(parts).numpy() if parts else np.empty((0, 1), dtype=np.float32)


@dataclass(eq=False)
class StreamedTraining:
    """Training of one network; every rank has a copy of it and trains it on its own rows.

    The loss is normalised over the rows of all ranks, and the gradients are averaged over the
    ranks, so that a step is that of the whole batch.

    Attributes
    ----------
    model : torch.nn.Module
        Network, with the same initial parameters on all ranks.
    loss : callable
        Function that makes the loss from an ε, in units of the label variance. The loss exchanges
        its normaliser over ``ranks.side_group``.
    stream : BatchSource
        Source of this rank's batches.
    held_out : HeldOutRows
        Rows for scoring.
    schedule : Schedule
        Epochs, optimizer and averaging; the batches are those of `stream`.
    learning_rate : float
        Learning rate of the optimizer.
    epsilon : float
        ε of the first epoch.
    update_epsilon : bool
        Whether each later epoch takes the τ² of `held_out` after the epoch before.
    patience : int
        Number of epochs without an improvement by 1% after which training stops.
    ranks : Ranks
        All processes.
    device : torch.device
        Device of the network.
    """

    model: nn.Module
    loss: Callable[[float], VarianceLoss]
    stream: BatchSource
    held_out: HeldOutRows
    schedule: Schedule
    learning_rate: float
    epsilon: float
    update_epsilon: bool = False
    patience: int = 4
    ranks: Ranks = field(default_factory=Ranks)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        self.model.to(self.device)
        group = {"params": list(self.model.parameters()), "lr": self.learning_rate}
        self._optimizer = self.schedule.make_optimizer([group], fused=True)
        self.average = Average(self.model, self.schedule)
        self.stopping = EarlyStopping(self.patience)
        self.step = 0
        self.losses: list[float] = []
        self.epsilons = [self.epsilon]
        self._pending: list[Tensor] = []
        self._network: nn.Module = self.model
        self._thread: ThreadPoolExecutor | None = None
        if self.ranks.group is not None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="biv-normaliser")
            self._network = DistributedDataParallel(self.model, process_group=self.ranks.group)

    @property
    def epoch(self) -> int:
        """Number of epochs done."""
        return self.step // self.stream.steps_per_epoch

    def snapshot(self) -> dict[str, Tensor]:
        """Return a copy of the current parameters, or of their average."""
        with torch.no_grad(), self.average.in_place():
            return copy.deepcopy(self.model.state_dict())

    def run(
        self,
        checkpoint: Path | None = None,
        *,
        seconds: float = 60.0,
        metadata: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> None:
        """Train to the last epoch, or until `patience` epochs brought no improvement.

        Parameters
        ----------
        checkpoint : pathlib.Path, default=None
            File that the first rank saves to.
        seconds : float, default=60.0
            Seconds between two saves.
        metadata : mapping, default=None
            Dictionary that is saved with each checkpoint.
        progress : bool, default=True
            Whether to show a progress bar on a terminal.

        Raises
        ------
        DivergedError
            If the training diverged before the end of the first epoch.
        """
        steps = self.stream.steps_per_epoch
        total = self.schedule.epochs * steps
        saved = time.monotonic()
        shown = progress and self.ranks.is_first
        file = None if checkpoint is None else CheckpointFile(checkpoint)
        with progress_bar(total, "training", enabled=shown, done=self.step) as bar:
            while self.step < total and not self.stopping.should_stop:
                loss = self.loss(self.epsilons[-1])
                for batch in self.stream.batches(self.epoch, self.step % steps):
                    self._train(batch, loss)
                    bar.update()
                    if self.step % SYNC_STEPS and self.step % steps:
                        continue
                    save_is_due = self._synchronise(time.monotonic() - saved >= seconds)
                    if not all_finite(self.model, self._optimizer):
                        self._require_best()
                        return
                    if self.step % steps == 0:
                        self._score()
                    bar.set_postfix_str(self._summary(), refresh=False)
                    if save_is_due and file is not None:
                        self._save(file, metadata)
                        saved = time.monotonic()
        if self.stopping.best is None:
            self._require_best()
        if file is not None:
            self._save(file, metadata)

    def _train(self, batch: Batch, loss: VarianceLoss) -> None:
        # Copied into memory that torch aligns: with other alignments, products of matrices may
        # differ in the last digit between processes.
        x, y, variance, weight = (
            None if column is None else torch.tensor(column, device=self.device)
            for column in tuple(batch)
        )
        assert y is not None
        targets, variances, importances = [y], [variance], [weight]
        # The ranks exchange the normaliser while they predict. Otherwise each would wait for the
        # slowest rank twice in every step: here, and when gradients are exchanged.
        window = self._in_background(
            lambda: loss.window(targets, variances, sample_weights=importances)
        )
        self._network.train()
        self._optimizer.zero_grad()
        predicted = self._network(x)
        value = window()(predicted, y, variance, sample_weight=weight)
        value.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.step += 1
        self.average.update(self.step)
        self._pending.append(value.detach())

    def _in_background(self, function: Callable[[], T]) -> Callable[[], T]:
        """Start a function that waits for other ranks; the returned function returns its result."""
        return function if self._thread is None else self._thread.submit(function).result

    def _synchronise(self, save_is_due: bool) -> bool:
        """Exchange the losses since the last call; return whether the first rank must save."""
        due = torch.tensor(float(save_is_due and self.ranks.is_first), dtype=torch.float64)
        values = torch.stack([*self._pending, due.to(self._pending[0])]).double().cpu()
        total = self.ranks.total(values)
        self.losses += (total[:-1] / self.ranks.size).tolist()
        self._pending = []
        return bool(total[-1] > 0)

    def _score(self) -> None:
        self.model.eval()
        with torch.no_grad(), self.average.in_place():
            predicted = self.held_out.predict(self.model)
        score, tau2 = self.held_out.score(predicted)
        self.stopping.update(self, score, predicted)
        if self.update_epsilon and math.isfinite(tau2):
            self.epsilon = tau2
        self.epsilons.append(self.epsilon)

    def _require_best(self) -> None:
        if self.stopping.best is None:
            raise DivergedError(
                "the training diverged: no epoch ended with finite predictions. Choose a smaller "
                f"learning rate; got {self.learning_rate:g}"
            )

    def _summary(self) -> str:
        parts = [f"loss {self.losses[-1]:.3f}"]
        if self.stopping.scores:
            parts.append(f"held out {self.stopping.scores[-1]:.4f}")
        return ", ".join(parts)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the rest of the training depends on.

        The step and the seed determine the position in the data.
        """
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "averages": self.average.averages,
            "choice": self.stopping.state_dict(),
            "losses": list(self.losses),
            "epsilons": list(self.epsilons),
            "draws": torch.get_rng_state(),
        }
        return copy.deepcopy(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from where :meth:`state_dict` was taken."""
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        for average, saved in zip(self.average.averages, state["averages"], strict=True):
            average.copy_(saved)
        self.stopping.load_state_dict(state["choice"])
        self.losses, self.epsilons = list(state["losses"]), list(state["epsilons"])
        self.epsilon = self.epsilons[-1]
        torch.set_rng_state(state["draws"])

    def _save(self, file: CheckpointFile, metadata: Mapping[str, Any] | None) -> None:
        if self.ranks.is_first:
            file.save({"streamed": self.state_dict(), "about": dict(metadata or {})})


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state of a streamed training, and the metadata that was saved with it.

    Raises
    ------
    ValueError
        If the file is not the checkpoint of a streamed training.
    """
    state = load_checkpoint(path)
    if "streamed" not in state:
        raise ValueError(
            f"{path} must be the checkpoint of a streamed training; got one of another kind. Move "
            "it away to start again"
        )
    with typed_json.errors_name_file(path, INCOMPLETE_CHECKPOINT):
        require_like({"streamed": {}, "about": {}}, state)
    return state["streamed"], state["about"]
