"""The readable reference: one network, ordinary PyTorch, no haste."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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

NEVER = np.arange(0)


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
    loop = Loop(model, member, schedule)
    total, what = schedule.epochs * loop.steps_per_epoch, member.name or "training"
    with progress_bar(total, what, enabled=progress) as bar:

        def show() -> None:
            bar.set_postfix_str(f"train {loop.losses[loop.step - 1]:.3f}", refresh=False)
            bar.update()

        while loop.epoch < schedule.epochs and loop.diverged_at is None:
            loop.run_epoch(show)
    loop.average.keep()
    model.eval()
    return loop.history()


class Loop:
    """One network in training, epoch by epoch; see :func:`train_reference`.

    Attributes:
        step: How many batches it has seen.
        diverged_at: The step after which something was not finite; it is trained no further.
        average: Of its parameters, if the schedule asks for one.
    """

    def __init__(self, model: nn.Module, member: Member, schedule: Schedule) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be an nn.Module; found {_checks.describe(model)}")
        self.model, self.member, self.schedule = model, member, schedule
        self.steps_per_epoch = schedule.steps_per_epoch(len(member))
        self.average = _Average(model, schedule)
        self.step = 0
        self.diverged_at: int | None = None
        _, self._order = member.generators()
        group = {"params": list(model.parameters()), "lr": member.learning_rate}
        self._optimizer = schedule.make_optimizer([group], fused=False)
        total = schedule.epochs * self.steps_per_epoch
        self.losses, self.sizes = np.full((2, total), np.nan)
        self.every = schedule.test_every if member.test is not None else None
        self.test_step = np.arange(self.every, total + 1, self.every) if self.every else NEVER
        self.scores = np.full(len(self.test_step), np.nan)

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.step // self.steps_per_epoch

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
        x, y = train.x[rows], train.y[rows]
        variance = None if train.variance is None else train.variance[rows]
        weight = None if train.sample_weight is None else train.sample_weight[rows]
        self.model.train()
        loss = loss_function(self.model(x), y, variance, sample_weight=weight)
        counts = loss_function.weights(y, variance, sample_weight=weight)
        self.losses[self.step] = loss.item()
        self.sizes[self.step] = effective_batch_size(counts).item()
        if bool((counts > 0).any()) and bool(loss.isfinite()):
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        self.step += 1
        finite = bool(loss.isfinite()) and _is_finite(self.model, self._optimizer)
        if finite:
            self.average.follow(self.step)
        return finite

    def _test(self) -> bool:
        test = self.member.test
        assert test is not None
        assert self.every
        score = F.mse_loss(self.predict(test.x), test.y).item()
        self.scores[self.step // self.every - 1] = score
        return bool(np.isfinite(score))

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """What the network, or its average, predicts, (N, D)."""
        self.model.eval()
        with self.average.in_place():
            predicted: Tensor = self.model(x)
        return predicted

    def history(self) -> History:
        """The curves, NaN beyond where it is."""
        return History(self.losses, self.sizes, self.scores, self.test_step, self.diverged_at)


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
        try:
            yield
        finally:
            for parameter, own in zip(self.parameters, last, strict=True):
                parameter.copy_(own)

    def keep(self) -> None:
        for parameter, average in zip(self.parameters, self.averages, strict=True):
            parameter.copy_(average)


def _is_finite(model: nn.Module, optimizer: torch.optim.Optimizer) -> bool:
    moments = [value for state in optimizer.state.values() for value in state.values()]
    held = [*model.parameters(), *(m for m in moments if isinstance(m, Tensor))]
    return all(bool(value.isfinite().all()) for value in held)
