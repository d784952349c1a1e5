"""The readable reference: one network, ordinary PyTorch, no haste."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from biv import _checks
from biv.training.data import Member, Schedule
from biv.training.history import History
from biv.training.progress import progress_bar
from biv.weights import effective_batch_size


def train_reference(
    model: nn.Module, member: Member, schedule: Schedule, *, progress: bool = True
) -> History:
    """Train any module on one member, in place; what :func:`train_stack` does to forty at once.

    The module ends in evaluation mode. What draws while it is trained, as dropout does, draws from
    torch's global generator: ``torch.manual_seed`` makes that repeatable.

    Args:
        model: (rows, features) to (rows, outputs). Its parameters are taken as they are: draw them
            from ``member.generators()[0]`` to begin where the stack does.
        member: Data, loss, learning rate, seed.
        schedule: Epochs, batches, tests, optimiser.
        progress: Whether to show a bar on a terminal, after two seconds.

    Example:
        >>> from biv.models import MLP
        >>> from biv.training import Triplets
        >>> x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        >>> member = Member(Triplets(x, x.sum(dim=1), torch.ones(64)))
        >>> network = MLP(features=3)(member.generators()[0])
        >>> history = train_reference(network, member, Schedule(epochs=2, batch_size=16))
        >>> history.train_loss.shape
        (8,)
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be an nn.Module; found {_checks.describe(model)}")
    train, test, loss_function = member.train, member.test, member.loss
    _, order = member.generators()
    group = {"params": list(model.parameters()), "lr": member.learning_rate}
    optimizer = schedule.make_optimizer([group], fused=False)
    total = schedule.epochs * schedule.steps_per_epoch(len(train))
    losses, sizes = np.full((2, total), np.nan)
    every = schedule.test_every if test is not None else None
    test_step = np.arange(every, total + 1, every) if every else np.arange(0)
    scores = np.full(len(test_step), np.nan)
    average = _Average(model, schedule)
    diverged_at = None

    with progress_bar(total, member.name or "training", enabled=progress) as bar:
        for step, rows in enumerate(_batches(len(train), schedule, order)):
            x, y = train.x[rows], train.y[rows]
            variance = None if train.variance is None else train.variance[rows]
            weight = None if train.sample_weight is None else train.sample_weight[rows]
            model.train()
            loss = loss_function(model(x), y, variance, sample_weight=weight)
            counts = loss_function.weights(y, variance, sample_weight=weight)
            losses[step], sizes[step] = loss.item(), effective_batch_size(counts).item()
            if bool((counts > 0).any()) and bool(loss.isfinite()):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            finite = bool(loss.isfinite()) and _is_finite(model, optimizer)
            if finite:
                average.follow(step + 1)
            if finite and test is not None and every and (step + 1) % every == 0:
                with average.in_place():
                    score = _mean_squared_error(model, test.x, test.y)
                scores[(step + 1) // every - 1] = score
                finite = bool(np.isfinite(score))
            bar.set_postfix_str(f"train {losses[step]:.3f}", refresh=False)
            bar.update()
            if not finite:
                diverged_at = step + 1
                break
    average.keep()
    model.eval()
    return History(losses, sizes, scores, test_step, diverged_at)


class _Average:
    """The average of a model's parameters over time, if the schedule asks for one."""

    def __init__(self, model: nn.Module, schedule: Schedule) -> None:
        self.schedule = schedule
        wanted = schedule.averaging is not None
        self.parameters = [p.detach() for p in model.parameters()] if wanted else []
        self.averages = [p.clone() for p in self.parameters]

    def follow(self, step: int) -> None:
        for average, parameter in zip(self.averages, self.parameters, strict=True):
            average.lerp_(parameter, self.schedule.share_of_step(step))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        last = [parameter.clone() for parameter in self.parameters]
        self.keep()
        yield
        for parameter, own in zip(self.parameters, last, strict=True):
            parameter.copy_(own)

    def keep(self) -> None:
        for parameter, average in zip(self.parameters, self.averages, strict=True):
            parameter.copy_(average)


def _batches(rows: int, schedule: Schedule, order: torch.Generator) -> Iterator[Tensor]:
    steps = schedule.steps_per_epoch(rows)
    for _ in range(schedule.epochs):
        yield from torch.split(torch.randperm(rows, generator=order), schedule.batch_size)[:steps]


def _mean_squared_error(model: nn.Module, x: Tensor, y: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return F.mse_loss(model(x), y).item()


def _is_finite(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    moments = [value for state in optimizer.state.values() for value in state.values()]
    held = [*model.parameters(), *(m for m in moments if isinstance(m, Tensor))]
    return all(bool(value.isfinite().all()) for value in held)
