"""The stacked engine: many trainings at once, each as if it were alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from biv._utils import validation
from biv._utils.pages import page_hint
from biv.models.stacked import Stacked
from biv.training import evaluation
from biv.training.batches import StackBatch, StackBatches
from biv.training.checkpoint import digest, fingerprint, require_like, require_room, require_same
from biv.training.data import Member
from biv.training.history import History
from biv.training.numerics import numerical_settings
from biv.training.schedule import Schedule
from biv.training.stack_curves import StackCurves
from biv.training.stack_optimizer import StackOptimizer

Factory = Callable[[torch.Generator], nn.Module]

HELP = page_hint("networks")


class Stack:
    """R members in training; :func:`biv.training.train_stack` drives it, epoch by epoch.

    A member's parameters, optimiser state and curves are to the bit what they would be in any other
    stack on the same machine.

    Args:
        model: Makes a network from a generator; see :class:`biv.models.Stacked` for what it may be
            made of.
        members: One or more, of equal shapes and equally many steps per epoch.
        schedule: Schedule of all members.
        threads: Number of threads to compute on. With more than one, the last digits of a member
            may depend on what it is stacked with.

    Attributes:
        step: Number of batches that every member has seen.
    """

    def __init__(
        self,
        model: Factory,
        members: Sequence[Member],
        schedule: Schedule,
        *,
        threads: int = 1,
    ) -> None:
        if not members:
            raise ValueError(f"a stack must have at least one member; got none{HELP}")
        self.members, self.schedule = list(members), schedule
        self._order = _placed(self.members)
        self._place = [self._order.index(member) for member in range(len(members))]
        self._placed = [self.members[member] for member in self._order]
        self._batches = StackBatches(self._placed, schedule)
        if isinstance(model, nn.Module) or not callable(model):
            raise TypeError(
                "model must make a network from a torch.Generator, as MLP(features=19) does; got "
                f"{validation.describe(model)}: wrap it in a function, or use train_reference{HELP}"
            )
        modules = [model(m.generators()[0]) for m in self._placed]
        self._stacked = Stacked(modules, dtype=self._batches.pool.dtype)
        _check_shapes(self._stacked, self._batches)
        self._fingerprint = fingerprint(
            repr(self._stacked.module(0)),
            digest(self._stacked.parameters),
            self.members,
            schedule,
        )
        self._bases = [m.loss.base for m in self._placed]
        rates = [float(m.learning_rate) for m in self._placed]
        self._optimizer = StackOptimizer(self._stacked, rates, schedule)
        averages = schedule.averaging is not None
        self._averages = self._stacked.parameters.clone() if averages else None
        self._blocks = evaluation.blocks(slice(0, len(self._placed)))
        self.threads = validation.integer("threads", threads, at_least=1)
        self._tests = evaluation.shared_tests(self._placed) if schedule.test_every else []
        self._curves = StackCurves(len(self._placed))
        self.step = 0

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch."""
        return self._batches.steps

    @property
    def epoch(self) -> int:
        """Epochs done."""
        return self.step // self.steps_per_epoch

    @property
    def all_frozen(self) -> bool:
        """Whether every member has diverged."""
        return self._curves.all_frozen

    @torch.no_grad()
    def run_epoch(self, after_step: Callable[[], object] = lambda: None) -> None:
        """Train all members for one epoch, and test them when it is due."""
        every = self.schedule.test_every
        with numerical_settings(self.threads):
            for batch in self._batches.epoch():
                self._train(batch)
                if every and self.step % every == 0:
                    self._test()
                after_step()

    def _train(self, batch: StackBatch) -> None:
        losses = torch.cat([self._backward(members, batch) for members in self._blocks])
        values, sizes = losses.tolist(), batch.effective_size.tolist()
        finite = [math.isfinite(value) for value in values]
        frozen_at = self._curves.frozen_at
        self._optimizer.step(
            [
                f and size > 0 and at is None
                for f, size, at in zip(finite, sizes, frozen_at, strict=True)
            ]
        )
        self.step += 1
        self._curves.record("train_loss", values)
        self._curves.record("size", sizes)
        finite = [a and b for a, b in zip(finite, self._optimizer.finite(), strict=True)]
        self._curves.freeze_others(finite, self.step)
        self._average()

    def _average(self) -> None:
        """Move the averages towards the parameters, but of members that have diverged."""
        if self._averages is None:
            return
        share = self.schedule.share_of_step(self.step)
        if not any(self._curves.frozen_at):
            self._averages.lerp_(self._stacked.parameters, share)
            return
        for member, at in enumerate(self._curves.frozen_at):
            if at is None:
                self._averages[member].lerp_(self._stacked.parameters[member], share)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The averages in the place of the parameters, if there are any."""
        if self._averages is None:
            yield
            return
        last = self._stacked.parameters.clone()
        self._stacked.parameters.copy_(self._averages)
        try:
            yield
        finally:
            self._stacked.parameters.copy_(last)

    def _backward(self, members: slice, batch: StackBatch) -> Tensor:
        """The losses of a block, (members,); its gradients are written where they belong."""
        part = batch
        if len(self._blocks) > 1:
            part = StackBatch(*(column[members] for column in batch))
        block = self._stacked.block(members, part.rows.shape[1])
        x = self._batches.features(part.rows)
        frozen = self._curves.frozen_at[members]
        bases = [
            base if at is None else "mse"  # a loss of the caller's is not shown what diverged
            for base, at in zip(self._bases[members], frozen, strict=True)
        ]
        losses, gradient = part.losses(block.forward(x), bases)
        block.backward(gradient)
        return losses

    def _test(self) -> None:
        if not self._tests:
            return
        losses = torch.full((len(self._placed),), torch.nan, dtype=torch.float64)
        tested = torch.zeros(len(self._placed), dtype=torch.bool)
        with self._averaged():
            for test in self._tests:
                tested[test.members] = True
                losses[test.members] = test.losses(self._stacked).double()
        self._curves.record_test(losses.tolist(), self.step)
        self._curves.freeze_others((losses.isfinite() | ~tested).tolist(), self.step)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """What every member, or its average, predicts for the same rows, (R, N, D)."""
        everyone, columns = slice(0, len(self._placed)), evaluation.Columns(self._table(x))
        with numerical_settings(self.threads), self._averaged():
            pred = evaluation.predict(self._stacked, everyone, columns)
        return pred[self._place].transpose(1, 2)

    @torch.no_grad()
    def predict_each(self, tables: Sequence[Tensor]) -> list[Tensor]:
        """What every member, or its average, predicts for rows of its own, (N, D) each."""
        if len(tables) != len(self.members):
            raise ValueError(f"tables must be one a member, {len(self.members)}; got {len(tables)}")
        placed = [self._table(tables[member]) for member in self._order]
        with numerical_settings(self.threads), self._averaged():
            each = evaluation.predict_each(self._stacked, placed)
        return [each[place] for place in self._place]

    def _table(self, x: Tensor) -> Tensor:
        table = torch.as_tensor(x, dtype=self._batches.pool.dtype)
        if table.ndim != 2 or table.shape[1] != self._batches.pool.shape[1]:
            raise ValueError(
                f"x must have shape (rows, {self._batches.pool.shape[1]}); got {tuple(table.shape)}"
            )
        return table

    def module(self, member: int) -> nn.Module:
        """A member as an ordinary module, its parameters (or their average) as they are now."""
        return self._stacked.module(self._place[member], self._last_or_average())

    def snapshot(self) -> Tensor:
        """The parameters of all members, or their averages, as they are now."""
        return self._last_or_average().clone()

    def modules(self, snapshot: Tensor) -> list[nn.Module]:
        """All members as ordinary modules, as they were then."""
        return [self._stacked.module(place, snapshot) for place in self._place]

    def _last_or_average(self) -> Tensor:
        return self._stacked.parameters if self._averages is None else self._averages

    def histories(self) -> list[History]:
        """Return the curves of every member up to now; to the end, if all have diverged."""
        tested = [member.test is not None for member in self._placed]
        steps = self.schedule.epochs * self.steps_per_epoch
        placed = self._curves.histories(tested, steps, self.schedule.test_every)
        return [placed[place] for place in self._place]

    def summary(self) -> str:
        """Return the last losses, their mean over the members still trained, in a few words."""
        words = [
            f"{what} {last:.3f}"
            for what, name in (("train", "train_loss"), ("test", "test_loss"))
            if (last := self._curves.last(name)) is not None
        ]
        if diverged := sum(self._curves.frozen_at[place] is not None for place in self._place):
            words.append(f"{diverged} diverged")
        return ", ".join(words)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the rest of the training depends on; at the end of an epoch only."""
        if self.step % self.steps_per_epoch:
            raise ValueError(
                f"a state can be taken at the end of an epoch of {self.steps_per_epoch} steps; "
                f"got {self.step} steps done"
            )
        return {
            "training": self._fingerprint,
            "step": self.step,
            "parameters": self._stacked.parameters.clone(),
            "averages": None if self._averages is None else self._averages.clone(),
            **self._optimizer.state_dict(),
            "orders": [generator.get_state() for generator in self._batches.orders],
            **self._curves.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where :meth:`state_dict` was taken.

        Raises:
            ValueError: It was taken of other members, data, networks or settings, or after more
                epochs than are scheduled.
        """
        require_same(self._fingerprint, state["training"])
        require_like(self.state_dict(), state)
        require_room(state["step"], self.steps_per_epoch, self.schedule.epochs)
        self.step = state["step"]
        self._stacked.parameters.copy_(state["parameters"])
        if self._averages is not None:
            self._averages.copy_(state["averages"])
        self._optimizer.load_state_dict(state)
        for generator, own in zip(self._batches.orders, state["orders"], strict=True):
            generator.set_state(own)
        self._curves.load_state_dict(state)


def _placed(members: Sequence[Member]) -> list[int]:
    """The order of the members in the stack: those with the same test rows side by side.

    A lone member is there twice, since a single matrix is multiplied in another way.
    """
    tables = [None if m.test is None else id(m.test.x) for m in members]
    order = sorted(range(len(members)), key=lambda member: tables.index(tables[member]))
    return order if len(order) > 1 else order * 2


def _check_shapes(stacked: Stacked, batches: StackBatches) -> None:
    features = batches.pool.shape[1]
    try:
        found = tuple(stacked.module(0)(batches.pool[:1]).shape)
    except RuntimeError as error:
        raise ValueError(f"the network must take {features} features: {error}{HELP}") from error
    if found != (1, batches.outputs):
        raise ValueError(
            f"the network must give (rows, {batches.outputs}), as y has; got {found} for one row"
            f"{HELP}"
        )
