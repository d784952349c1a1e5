"""Training of one network in ordinary PyTorch: any module, any rows, any device."""

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
from biv.training.checkpoint import fingerprint, require_in_schedule, require_like, require_same
from biv.training.compute import DEFAULT_COMPUTE, REFERENCE_COMPUTE, Compute
from biv.training.data import Member, as_features
from biv.training.history import History
from biv.training.schedule import Schedule

NO_STEPS = np.arange(0)


class Loop:
    """Training of one network, epoch by epoch; see :func:`biv.training.train_module`.

    Attributes
    ----------
    step : int
        Number of batches done.
    diverged_at : int or None
        Step at which the training diverged and was stopped; None if it has not.
    average : Average
        Average of the parameters, if the schedule asks for one.
    """

    def __init__(
        self,
        model: nn.Module,
        member: Member,
        schedule: Schedule,
        compute: Compute = REFERENCE_COMPUTE,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module; got {validation.describe(model)}")
        self.model, self.member = model.to(compute.resolved_device), member
        if len(member) % schedule.batch_size == 1 and len(member) > 1 and _has_batch_norm(model):
            schedule = replace(schedule, drop_last=True)  # one row has no batch statistics
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
        self.test_step = np.arange(self.every, total + 1, self.every) if self.every else NO_STEPS
        self.scores = np.full(len(self.test_step), np.nan)

    @property
    def epoch(self) -> int:
        """Number of epochs done."""
        return self.step // self.steps_per_epoch

    @property
    def all_frozen(self) -> bool:
        """Whether the network has diverged and is trained no further."""
        return self.diverged_at is not None

    def run_epoch(self, after_step: Callable[[], object] = lambda: None) -> None:
        """Train for one epoch, and test when a test is due; stop if the training diverges."""
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
            self.average.update(self.step)
        return finite

    def _backward(self, rows: Tensor) -> float:
        """Return the loss of a batch, and add its gradients to those of the parameters."""
        train, loss_function = self.member.train, self.member.loss
        to_device = self.compute.to_device
        micro = self.compute.micro_batch or len(rows)
        parts = torch.tensor_split(rows, -(-len(rows) // micro))  # of nearly equal lengths
        labels = [tuple(c if c is None else to_device(c) for c in train.labels(p)) for p in parts]
        part_loss: Callable[..., Tensor] = loss_function
        if len(parts) > 1:  # weights are normalised over the whole batch
            columns = zip(*labels, strict=True)
            part_loss = loss_function.window(
                next(columns), next(columns), sample_weights=next(columns)
            )
        total = 0.0
        for part, (y, variance, weight) in zip(parts, labels, strict=True):
            loss = part_loss(self._forward(train.x[part]), y, variance, sample_weight=weight)
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
        """Return predictions in evaluation mode, by the average if there is one; (N, D), on CPU."""
        # A table fits into memory as a whole; images are passed in batches, as in training.
        size = self.compute.micro_batch or self.schedule.batch_size
        self.model.eval()
        with self.average.in_place():
            parts = torch.split(x, size if x.ndim > 2 else len(x))
            pred = [self._forward(part) for part in parts]
        return torch.cat(pred).to(self.member.train.y)

    def history(self) -> History:
        """Return the curves; they are NaN after the last step done."""
        return History(self.losses, self.sizes, self.scores, self.test_step, self.diverged_at)

    def summary(self) -> str:
        """Return the last losses as text, for a progress bar."""
        parts = [f"train {self.losses[self.step - 1]:.3f}"] if self.step else []
        if self.every and self.step >= self.every:
            parts.append(f"test {self.scores[self.step // self.every - 1]:.3f}")
        return ", ".join(parts if self.diverged_at is None else [*parts, "diverged"])

    @cached_property
    def _training(self) -> dict[str, str]:
        # Without the first parameters, which those of a checkpoint replace.
        known = fingerprint(repr(self.model), None, [self.member], self.schedule)
        return known | {"the precision": str(self.compute.bfloat16)}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the rest of the training depends on; call it between epochs.

        The state of torch's global generator, which dropout draws from, is part of it.
        """
        if self.step % self.steps_per_epoch and self.diverged_at is None:
            raise ValueError(
                "the state can only be taken at the end of an epoch, after a multiple of "
                f"{self.steps_per_epoch} steps; got {self.step} steps"
            )
        state = {
            "training": self._training,
            "step": self.step,
            "model": self.model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "averages": self.average.averages,
            "order": self._order.get_state(),
            "draws": _random_states(self.compute.resolved_device),
            "losses": torch.from_numpy(self.losses[: self.step]),
            "sizes": torch.from_numpy(self.sizes[: self.step]),
            "scores": torch.from_numpy(self.scores),
            "diverged_at": self.diverged_at,
        }
        return copy.deepcopy(state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from where :meth:`state_dict` was taken.

        Raises
        ------
        ValueError
            If the state is from another member, network or setting, or from after the last epoch
            of the schedule.
        """
        require_same(self._training, state["training"])
        require_like(self.state_dict(), state)
        require_in_schedule(state["step"], self.steps_per_epoch, self.schedule.epochs)
        self.step, self.diverged_at = state["step"], state["diverged_at"]
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        for average, saved in zip(self.average.averages, state["averages"], strict=True):
            average.copy_(saved)
        self._order.set_state(state["order"])
        torch.set_rng_state(state["draws"]["cpu"])
        if "cuda" in state["draws"] and self.compute.resolved_device.type == "cuda":
            torch.cuda.set_rng_state(state["draws"]["cuda"], self.compute.resolved_device)
        for name in ("losses", "sizes", "scores"):
            known = state[name].numpy()[: len(getattr(self, name))]
            getattr(self, name)[: len(known)] = known


def forward(model: nn.Module, x: Tensor, compute: Compute) -> Tensor:
    """Return the output of a module for rows, as float32 if it was computed in bfloat16."""
    with compute.precision():
        pred: Tensor = model(compute.to_device(x))
    return pred.float() if compute.bfloat16 else pred


@torch.no_grad()
def predict_module(
    model: nn.Module, x: Any, *, batch_size: int = 256, compute: Compute = DEFAULT_COMPUTE
) -> Tensor:
    """Return the predictions of a module in evaluation mode, computed batch by batch.

    Parameters
    ----------
    model : torch.nn.Module
        Network that maps rows of x to predictions of shape (rows, outputs). It is moved to the
        device of `compute`; its training or evaluation mode is restored.
    x : array-like or torch.Tensor of shape (N, F) or (N, C, H, W)
        Features or images.
    batch_size : int, default=256
        Number of rows per batch. Decrease it if a batch does not fit into memory.
    compute : Compute, default=Compute()
        Device and precision. Change it to choose the device.

    Returns
    -------
    torch.Tensor of shape (N, D)
        Predictions, on the CPU.

    Raises
    ------
    ValueError
        If `x` has another shape or is not finite, or `batch_size` is below 1.

    Examples
    --------
    >>> predict_module(torch.nn.Linear(3, 1), np.zeros((1000, 3))).shape
    torch.Size([1000, 1])
    """
    rows = as_features(x)
    size = validation.integer("batch_size", batch_size, at_least=1)
    training = model.training
    model.to(compute.resolved_device).eval()
    try:
        return torch.cat([forward(model, part, compute).cpu() for part in torch.split(rows, size)])
    finally:
        model.train(training)


def _has_batch_norm(model: nn.Module) -> bool:
    return any(isinstance(module, nn.modules.batchnorm._BatchNorm) for module in model.modules())


def _random_states(place: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if place.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(place)
    return states


class Average:
    """Average over the steps of a model's parameters and buffers, if the schedule asks for one."""

    def __init__(self, model: nn.Module, schedule: Schedule) -> None:
        self.schedule = schedule
        # Running statistics of batch normalisation are averaged with the parameters they belong to.
        values = (value.detach() for value in (*model.parameters(), *model.buffers()))
        averaged = schedule.averaging is not None
        self.parameters = [v for v in values if v.is_floating_point()] if averaged else []
        self.averages = [p.clone() for p in self.parameters]

    def update(self, step: int) -> None:
        """Move the average towards the parameters after a step, counted from 1."""
        for average, parameter in zip(self.averages, self.parameters, strict=True):
            average.lerp_(parameter, self.schedule.share_of_step(step))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averages within a ``with`` block."""
        last = [parameter.clone() for parameter in self.parameters]
        self.keep()
        try:
            yield
        finally:
            for parameter, value in zip(self.parameters, last, strict=True):
                parameter.copy_(value)

    def keep(self) -> None:
        """Replace the parameters of the model by their averages."""
        for parameter, average in zip(self.parameters, self.averages, strict=True):
            parameter.copy_(average)


def all_finite(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    """Return whether all parameters and the optimizer's state are finite."""
    moments = [value for state in optimizer.state.values() for value in state.values()]
    tensors = [*model.parameters(), *(m for m in moments if isinstance(m, Tensor))]
    # A finite sum shows that all terms are finite. An infinite sum may merely have overflowed.
    return all(bool(value.sum().isfinite()) or bool(value.isfinite().all()) for value in tensors)
