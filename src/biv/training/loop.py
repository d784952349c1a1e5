"""One network in training, in ordinary PyTorch: any module, any rows, any device."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biv._utils import validation
from biv.losses.weights import effective_batch_size
from biv.training.checkpoint import fingerprint, require_like, require_room, require_same
from biv.training.compute import HERE, PLAIN, Compute
from biv.training.data import Member, as_features
from biv.training.history import History
from biv.training.schedule import Schedule

NEVER = np.arange(0)


class Loop:
    """One network in training, epoch by epoch; see :func:`biv.training.train_module`.

    Attributes:
        step: Number of batches that it has seen.
        diverged_at: Step after which something was not finite; it is trained no further.
        average: Average of its parameters, if the schedule asks for one.
    """

    def __init__(
        self, model: nn.Module, member: Member, schedule: Schedule, compute: Compute = PLAIN
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module; got {validation.describe(model)}")
        self.model, self.member = model.to(compute.place), member
        if len(member) % schedule.batch_size == 1 and len(member) > 1 and _looks_at_batches(model):
            schedule = replace(schedule, drop_last=True)  # no statistics can be taken of one row
        self.schedule, self.compute = schedule, compute
        self.steps_per_epoch = schedule.steps_per_epoch(len(member))
        self.average = Average(model, schedule)
        self.step = 0
        self.diverged_at: int | None = None
        _, self._order = member.generators()
        group = {"params": list(model.parameters()), "lr": member.learning_rate}
        self._optimizer = schedule.make_optimizer([group], fused=compute.fused)
        total = schedule.epochs * self.steps_per_epoch
        self.losses, self.sizes = np.full((2, total), np.nan)
        self.every = schedule.test_every if member.test is not None else None
        self.test_step = np.arange(self.every, total + 1, self.every) if self.every else NEVER
        self.scores = np.full(len(self.test_step), np.nan)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.step // self.steps_per_epoch

    @property
    def all_frozen(self) -> bool:
        """Whether it has diverged, and is trained no further."""
        return self.diverged_at is not None

    def run_epoch(self, after_step: Callable[[], object] = lambda: None) -> None:
        """Train for one epoch, and test when it is due; stop where it diverges."""
        order = self.member.order(self._order)
        for rows in torch.split(order, self.schedule.batch_size)[: self.steps_per_epoch]:
            finite = self._train(rows)
            if finite and self.every and self.step % self.every == 0:
                finite = self._test()
            after_step()
            if not finite:
                self.diverged_at = self.step
                return

    def _train(self, rows: Tensor) -> bool:
        train, loss_function = self.member.train, self.member.loss
        y, variance, weight = train.labels(rows)
        counts = loss_function.weights(y, variance, sample_weight=weight)
        self.model.train()
        self._optimizer.zero_grad()
        loss = self._backward(rows)
        self.losses[self.step] = loss
        self.sizes[self.step] = effective_batch_size(counts).item()
        finite = math.isfinite(loss)
        if finite and bool((counts > 0).any()):
            self._optimizer.step()
        self.step += 1
        finite = finite and all_finite(self.model, self._optimizer)
        if finite:
            self.average.follow(self.step)
        return finite

    def _backward(self, rows: Tensor) -> float:
        """The loss of a batch; its gradients are added to the parameters'."""
        train, loss_function, moved = self.member.train, self.member.loss, self.compute.moved
        micro = self.compute.micro_batch or len(rows)
        parts = torch.tensor_split(rows, -(-len(rows) // micro))  # of nearly equal lengths
        labels = [tuple(c if c is None else moved(c) for c in train.labels(p)) for p in parts]
        whole: Callable[..., Tensor] = loss_function
        if len(parts) > 1:  # what a label counts is decided by those of the whole batch
            columns = zip(*labels, strict=True)
            whole = loss_function.window(next(columns), next(columns), sample_weights=next(columns))
        total = 0.0
        for part, (y, variance, weight) in zip(parts, labels, strict=True):
            loss = whole(self._forward(train.x[part]), y, variance, sample_weight=weight)
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.item()
        return total

    def _forward(self, x: Tensor) -> Tensor:
        return forward(self.model, x, self.compute)

    def _test(self) -> bool:
        test = self.member.test
        assert test is not None
        assert self.every
        score = F.mse_loss(self.predict(test.x), test.y).item()
        self.scores[self.step // self.every - 1] = score
        return math.isfinite(score)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """What the network, or its average, predicts in evaluation mode, (N, D), on the CPU."""
        # A table is small; images are passed as many at a time as in training.
        size = self.compute.micro_batch or self.schedule.batch_size
        self.model.eval()
        with self.average.in_place():
            found = [self._forward(part) for part in torch.split(x, size if x.ndim > 2 else len(x))]
        return torch.cat(found).to(self.member.train.y)

    def history(self) -> History:
        """The curves, NaN beyond where it is."""
        return History(self.losses, self.sizes, self.scores, self.test_step, self.diverged_at)

    def summary(self) -> str:
        """The last losses, in a few words."""
        words = [f"train {self.losses[self.step - 1]:.3f}"] if self.step else []
        if self.every and self.step >= self.every:
            words.append(f"test {self.scores[self.step // self.every - 1]:.3f}")
        return ", ".join(words if self.diverged_at is None else [*words, "diverged"])

    @cached_property
    def _training(self) -> dict[str, str]:
        # Not the first parameters: those of a checkpoint take their place.
        known = fingerprint(repr(self.model), None, [self.member], self.schedule)
        return known | {"the precision": str(self.compute.bfloat16)}

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the training depends on; at the end of an epoch only.

        What dropout and its like draw from, torch's global generator, is part of it.
        """
        if self.step % self.steps_per_epoch and self.diverged_at is None:
            raise ValueError(
                f"a state can be taken at the end of an epoch of {self.steps_per_epoch} steps; "
                f"got {self.step} steps done"
            )
        state = {
            "training": self._training,
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "averages": self.average.averages,
            "order": self._order.get_state(),
            "draws": _draws(self.compute.place),
            "losses": torch.from_numpy(self.losses[: self.step]),
            "sizes": torch.from_numpy(self.sizes[: self.step]),
            "scores": torch.from_numpy(self.scores),
            "diverged_at": self.diverged_at,
        }
        return copy.deepcopy(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where :meth:`state_dict` was taken.

        Raises:
            ValueError: It was taken of another member, network or setting, or after more epochs
                than are scheduled.
        """
        require_same(self._training, state["training"])
        require_like(self.state_dict(), state)
        require_room(state["step"], self.steps_per_epoch, self.schedule.epochs)
        self.step, self.diverged_at = state["step"], state["diverged_at"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        for average, own in zip(self.average.averages, state["averages"], strict=True):
            average.copy_(own)
        self._order.set_state(state["order"])
        torch.set_rng_state(state["draws"]["cpu"])
        if "cuda" in state["draws"] and self.compute.place.type == "cuda":
            torch.cuda.set_rng_state(state["draws"]["cuda"], self.compute.place)
        for name in ("losses", "sizes", "scores"):
            known = state[name].numpy()[: len(getattr(self, name))]
            getattr(self, name)[: len(known)] = known


def forward(model: nn.Module, x: Tensor, compute: Compute) -> Tensor:
    """What a module makes of rows, in full precision."""
    with compute.precision():
        pred: Tensor = model(compute.moved(x))
    return pred.float() if compute.bfloat16 else pred


@torch.no_grad()
def predict_module(
    model: nn.Module, x: Any, *, batch_size: int = 256, compute: Compute = HERE
) -> Tensor:
    """What a module predicts in evaluation mode, (N, D), on the CPU, some rows at a time.

    Args:
        model: Takes rows of x; it is in the mode it was in afterwards, and on the device of
            `compute`.
        x: Features, (N, F), or images, (N, C, H, W): a tensor, or an array as data sets have it.
        batch_size: Rows at a time.
        compute: Device and precision.

    Example:
        >>> predict_module(torch.nn.Linear(3, 1), np.zeros((1000, 3))).shape
        torch.Size([1000, 1])
    """
    rows = as_features(x)
    size = validation.integer("batch_size", batch_size, at_least=1)
    training = model.training
    model.to(compute.place).eval()
    try:
        return torch.cat([forward(model, part, compute).cpu() for part in torch.split(rows, size)])
    finally:
        model.train(training)


def _looks_at_batches(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def _draws(place: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if place.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(place)
    return states


class Average:
    """The average over time of a model's parameters and buffers, if the schedule asks for one."""

    def __init__(self, model: nn.Module, schedule: Schedule) -> None:
        self.schedule = schedule
        # Running statistics belong to the parameters they were taken with.
        held = (value.detach() for value in (*model.parameters(), *model.buffers()))
        wanted = schedule.averaging is not None
        self.parameters = [v for v in held if v.is_floating_point()] if wanted else []
        self.averages = [p.clone() for p in self.parameters]

    def follow(self, step: int) -> None:
        """Move towards the parameters after a step, from 1 on."""
        for average, parameter in zip(self.averages, self.parameters, strict=True):
            average.lerp_(parameter, self.schedule.share_of_step(step))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model has the averages for a while."""
        last = [parameter.clone() for parameter in self.parameters]
        self.keep()
        try:
            yield
        finally:
            for parameter, own in zip(self.parameters, last, strict=True):
                parameter.copy_(own)

    def keep(self) -> None:
        """The model has the averages from now on."""
        for parameter, average in zip(self.parameters, self.averages, strict=True):
            parameter.copy_(average)


def all_finite(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Whether all parameters and moments are."""
    moments = [value for state in optimizer.state.values() for value in state.values()]
    held = [*model.parameters(), *(m for m in moments if isinstance(m, Tensor))]
    # A sum is not finite if a term is not; where it has merely overflowed, terms are looked at.
    return all(bool(value.sum().isfinite()) or bool(value.isfinite().all()) for value in held)
