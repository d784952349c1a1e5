"""One network, trained by one or many processes on batches that come from elsewhere."""

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
PULSE = 64  # steps between two looks at what all ranks must agree on


class BatchSource(Protocol):
    """Where batches come from: :class:`biv.tables.stream.Stream`, or a table in memory."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch."""

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Yield this rank's part of each batch, from step `first` on."""


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """Rows that no process learns from, on whose noisy labels a network is scored.

    Attributes:
        rows: The same rows on every rank; each rank predicts some of them.
        ranks: All processes.
    """

    rows: Batch
    ranks: Ranks

    @cached_property
    def _noise_corrected(self) -> HeldOutScore:
        """The score of every epoch, with the same weights in all of them."""
        return HeldOutScore(self.rows.y, self.rows.variance, self.rows.weight)

    @torch.no_grad()
    def predict(self, model: nn.Module) -> Tensor:
        """Return predictions of all rows, (N, 1), on every rank."""
        rank, size = self.ranks.rank, self.ranks.size
        edges = [len(self.rows) * k // size for k in range(size + 1)]
        own = torch.tensor(self.rows.x[edges[rank] : edges[rank + 1]])
        place = next(model.parameters()).device
        parts = [model(part.to(place)).cpu() for part in torch.split(own, CHUNK)]
        return torch.cat([torch.from_numpy(part) for part in self.ranks.gather(_joined(parts))])

    def score(self, predicted: Tensor) -> tuple[float, float]:
        """Return the noise-corrected squared error and τ²; both infinite if a prediction is."""
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
    """A network in training; every rank holds the same one, and learns from its own rows.

    The loss is normalised over the rows of all ranks, and gradients are averaged over them, so that
    a step is that of the whole batch.

    Attributes:
        model: Network, initialized alike on all ranks.
        loss: Function that makes the loss from an ε, in units of the label variance; its
            normalizer is exchanged over `ranks.side_group`.
        stream: Source of this rank's batches.
        held_out: Rows that nobody learns from.
        schedule: Epochs, optimiser and averaging; batches are those of `stream`.
        learning_rate: Learning rate of the optimizer.
        epsilon: ε of the first epoch.
        update_epsilon: Whether later epochs take the τ² of `held_out` after the one before.
        patience: Number of epochs without a better score after which training stops.
        ranks: All processes.
        device: Device of the network.
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
        """Return the parameters that predict, as they are now."""
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
        """Train to the last epoch, or until no epoch was better for as long as `patience`.

        Args:
            checkpoint: File that the first rank saves to.
            seconds: Seconds between two saves.
            metadata: Dictionary that is saved with each checkpoint.
            progress: Whether to show a bar on a terminal.

        Raises:
            DivergedError: Something was not finite, and no epoch before it was whole.
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
                    if self.step % PULSE and self.step % steps:
                        continue
                    due = self._agree(time.monotonic() - saved >= seconds)
                    if not all_finite(self.model, self._optimizer):
                        self._diverged()
                        return
                    if self.step % steps == 0:
                        self._score()
                    bar.set_postfix_str(self._summary(), refresh=False)
                    if due and file is not None:
                        self._save(file, metadata)
                        saved = time.monotonic()
        if self.stopping.best is None:
            self._diverged()
        if file is not None:
            self._save(file, metadata)

    def _train(self, batch: Batch, loss: VarianceLoss) -> None:
        # Copied to where torch aligns memory: products of matrices that lie elsewhere may differ in
        # the last digit from one process to the next.
        x, y, variance, weight = (
            None if column is None else torch.tensor(column, device=self.device)
            for column in tuple(batch)
        )
        assert y is not None
        targets, variances, importances = [y], [variance], [weight]
        # Ranks agree on the normaliser while they predict: otherwise each would wait for the
        # slowest twice in every step, here and where gradients are exchanged.
        window = self._aside(lambda: loss.window(targets, variances, sample_weights=importances))
        self._network.train()
        self._optimizer.zero_grad()
        predicted = self._network(x)
        value = window()(predicted, y, variance, sample_weight=weight)
        value.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.step += 1
        self.average.follow(self.step)
        self._pending.append(value.detach())

    def _aside(self, work: Callable[[], T]) -> Callable[[], T]:
        """Begin what waits for other ranks; calling what is returned waits for its end."""
        return work if self._thread is None else self._thread.submit(work).result

    def _agree(self, due: bool) -> bool:
        """Exchange the losses since the last time; whether the first rank finds a save is due."""
        said = torch.tensor(float(due and self.ranks.is_first), dtype=torch.float64)
        own = torch.stack([*self._pending, said.to(self._pending[0])]).double().cpu()
        mean = self.ranks.total(own)
        self.losses += (mean[:-1] / self.ranks.size).tolist()
        self._pending = []
        return bool(mean[-1] > 0)

    def _score(self) -> None:
        self.model.eval()
        with torch.no_grad(), self.average.in_place():
            predicted = self.held_out.predict(self.model)
        score, tau2 = self.held_out.score(predicted)
        self.stopping.update(self, score, predicted)
        if self.update_epsilon and math.isfinite(tau2):
            self.epsilon = tau2
        self.epsilons.append(self.epsilon)

    def _diverged(self) -> None:
        if self.stopping.best is None:
            raise DivergedError(
                "no prediction was finite after a whole epoch: choose a smaller learning rate; "
                f"got {self.learning_rate:g}"
            )

    def _summary(self) -> str:
        words = [f"loss {self.losses[-1]:.3f}"]
        if self.stopping.scores:
            words.append(f"held out {self.stopping.scores[-1]:.4f}")
        return ", ".join(words)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the rest of the training depends on.

        The position in the data is the step: what it reads follows from that and the seed.
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
        for average, own in zip(self.average.averages, state["averages"], strict=True):
            average.copy_(own)
        self.stopping.load_state_dict(state["choice"])
        self.losses, self.epsilons = list(state["losses"]), list(state["epsilons"])
        self.epsilon = self.epsilons[-1]
        torch.set_rng_state(state["draws"])

    def _save(self, file: CheckpointFile, metadata: Mapping[str, Any] | None) -> None:
        if self.ranks.is_first:
            file.save({"streamed": self.state_dict(), "about": dict(metadata or {})})


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the state of a streamed training, and the content that was saved with it.

    Raises:
        ValueError: The file is no such checkpoint.
    """
    found = load_checkpoint(path)
    if "streamed" not in found:
        raise ValueError(f"{path} is of another kind of training: move it away to start anew")
    with typed_json.errors_name_file(path, INCOMPLETE_CHECKPOINT):
        require_like({"streamed": {}, "about": {}}, found)
    return found["streamed"], found["about"]
