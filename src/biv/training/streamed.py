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
from biv.training.cross_fitting import CHUNK, Choice, DivergedError
from biv.training.data import Schedule
from biv.training.held_out import HeldOutScore
from biv.training.loop import Average, all_finite
from biv.training.ranks import Ranks

T = TypeVar("T")

INCOMPLETE = "is not a complete checkpoint: start again without it"
PULSE = 64  # steps between two looks at what all ranks must agree on


class Batches(Protocol):
    """Where batches come from: :class:`biv.tables.stream.Stream`, or a table in memory."""

    @property
    def steps_per_epoch(self) -> int:
        """How many batches an epoch has."""

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """This rank's part of each, from step `first` on."""


@dataclass(frozen=True, eq=False)
class Judge:
    """Scores a network on noisy labels that it has not learned from.

    Attributes:
        rows: The same on every rank; each predicts some of them.
        ranks: All of them.
    """

    rows: Batch
    ranks: Ranks

    @cached_property
    def held_out(self) -> HeldOutScore:
        """The score of every epoch, with the same weights in all of them."""
        return HeldOutScore(self.rows.y, self.rows.variance, self.rows.weight)

    @torch.no_grad()
    def predict(self, model: nn.Module) -> Tensor:
        """All rows, (N, 1), on every rank."""
        rank, size = self.ranks.rank, self.ranks.size
        edges = [len(self.rows) * k // size for k in range(size + 1)]
        own = torch.tensor(self.rows.x[edges[rank] : edges[rank + 1]])
        place = next(model.parameters()).device
        parts = [model(part.to(place)).cpu() for part in torch.split(own, CHUNK)]
        return torch.cat([torch.from_numpy(part) for part in self.ranks.gather(_joined(parts))])

    def score(self, predicted: Tensor) -> tuple[float, float]:
        """The noise-corrected squared error, and τ²; infinite where a prediction is."""
        if not bool(predicted.isfinite().all()):
            return math.inf, math.inf
        y = self.rows.y
        variance = np.zeros_like(y) if self.rows.variance is None else self.rows.variance
        tau2 = metrics.residual_variance(predicted.numpy(), y, variance)
        return self.held_out(predicted), tau2


def _joined(parts: list[Tensor]) -> Any:
    return torch.cat(parts).numpy() if parts else np.empty((0, 1), dtype=np.float32)


@dataclass(eq=False)
class StreamedTraining:
    """A network in training; every rank holds the same one, and learns from its own rows.

    The loss is normalised over the rows of all ranks, and gradients are averaged over them, so that
    a step is that of the whole batch.

    Attributes:
        model: Initialised alike on all ranks.
        loss: Makes the loss from an ε, in units of the label variance; over `ranks.aside`.
        stream: This rank's rows.
        judge: Of the rows that nobody learns from.
        schedule: Epochs, optimiser and averaging; batches are those of `stream`.
        learning_rate: Of the optimiser.
        epsilon: Of the first epoch.
        follows: Whether later ones take the τ² that `judge` finds after each.
        patience: Epochs without a better score before it stops.
        ranks: All of them.
        device: Of the network.
    """

    model: nn.Module
    loss: Callable[[float], VarianceLoss]
    stream: Batches
    judge: Judge
    schedule: Schedule
    learning_rate: float
    epsilon: float
    follows: bool = False
    patience: int = 4
    ranks: Ranks = field(default_factory=Ranks)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def __post_init__(self) -> None:
        self.model.to(self.device)
        group = {"params": list(self.model.parameters()), "lr": self.learning_rate}
        self._optimizer = self.schedule.make_optimizer([group], fused=True)
        self.average = Average(self.model, self.schedule)
        self.choice = Choice(self.patience)
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
        """Epochs done."""
        return self.step // self.stream.steps_per_epoch

    def snapshot(self) -> dict[str, Tensor]:
        """The parameters that predict, as they are now."""
        with torch.no_grad(), self.average.in_place():
            return copy.deepcopy(self.model.state_dict())

    def run(
        self,
        checkpoint: Path | None = None,
        *,
        seconds: float = 60.0,
        about: Mapping[str, Any] | None = None,
        progress: bool = True,
    ) -> None:
        """To the last epoch, or to the one after which nothing gets better.

        Args:
            checkpoint: Written by the first rank, now and then.
            seconds: How often.
            about: Is written with it.
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
            while self.step < total and not self.choice.made:
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
                        self._judge()
                    bar.set_postfix_str(self._summary(), refresh=False)
                    if due and file is not None:
                        self._save(file, about)
                        saved = time.monotonic()
        if self.choice.best is None:
            self._diverged()
        if file is not None:
            self._save(file, about)

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

    def _judge(self) -> None:
        self.model.eval()
        with torch.no_grad(), self.average.in_place():
            predicted = self.judge.predict(self.model)
        score, tau2 = self.judge.score(predicted)
        self.choice.consider(self, score, predicted)
        if self.follows and math.isfinite(tau2):
            self.epsilon = tau2
        self.epsilons.append(self.epsilon)

    def _diverged(self) -> None:
        if self.choice.best is None:
            raise DivergedError(
                "no prediction was finite after a whole epoch: choose a smaller learning rate; "
                f"found {self.learning_rate:g}"
            )

    def _summary(self) -> str:
        words = [f"loss {self.losses[-1]:.3f}"]
        if self.choice.scores:
            words.append(f"held out {self.choice.scores[-1]:.4f}")
        return ", ".join(words)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the training depends on.

        The position in the data is the step: what it reads follows from that and the seed.
        """
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "averages": self.average.averages,
            "choice": self.choice.state_dict(),
            "losses": list(self.losses),
            "epsilons": list(self.epsilons),
            "draws": torch.get_rng_state(),
        }
        return copy.deepcopy(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where :meth:`state_dict` was taken."""
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        for average, own in zip(self.average.averages, state["averages"], strict=True):
            average.copy_(own)
        vars(self.choice).update(state["choice"])
        self.losses, self.epsilons = list(state["losses"]), list(state["epsilons"])
        self.epsilon = self.epsilons[-1]
        torch.set_rng_state(state["draws"])

    def _save(self, file: CheckpointFile, about: Mapping[str, Any] | None) -> None:
        if self.ranks.is_first:
            file.save({"streamed": self.state_dict(), "about": dict(about or {})})


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of a streamed training, and what was written with it.

    Raises:
        ValueError: The file is no such checkpoint.
    """
    found = load_checkpoint(path)
    if "streamed" not in found:
        raise ValueError(f"{path} is of another kind of training: move it away to start anew")
    with typed_json.damaged(path, INCOMPLETE):
        require_like({"streamed": {}, "about": {}}, found)
    return found["streamed"], found["about"]
