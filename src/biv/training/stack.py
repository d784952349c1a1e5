"""Training of many networks at once, as one batched computation."""

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
from biv.training.checkpoint import (
    digest,
    fingerprint,
    require_in_schedule,
    require_like,
    require_same,
)
from biv.training.data import Member
from biv.training.history import History
from biv.training.numerics import numerical_settings
from biv.training.schedule import Schedule
from biv.training.stack_curves import StackCurves
from biv.training.stack_optimizer import StackOptimizer

Factory = Callable[[torch.Generator], nn.Module]

HELP = page_hint("networks")


class Stack:
    """Training of R networks at once, epoch by epoch; :func:`train_stack` is the simpler interface.

    Use it to look at the networks between epochs.

    Parameters
    ----------
    model : callable
        Function that takes a ``torch.Generator`` and returns a new network.
        :class:`biv.models.Stacked` lists the layers it may have.
    members : sequence of Member
        At least one member. All have the same number of features, of outputs and of steps per
        epoch.
    schedule : Schedule
        Epochs, batches, tests and optimizer of all members.
    threads : int, default=1
        Number of threads to compute with. Increase it for large networks. With more than one, the
        last digits of a member may depend on the other members.

    Attributes
    ----------
    step : int
        Number of batches that every member has been trained on.

    Raises
    ------
    TypeError
        If `model` does not make networks.
    ValueError
        If there are no members, their shapes or numbers of steps differ, or the network does not
        fit the data.

    Notes
    -----
    With one thread, a member's parameters, optimizer state and curves are bit for bit the same in
    any stack on the same machine.

    Examples
    --------
    >>> from biv.models import MLP
    >>> from biv.training import Triplets
    >>> rows = Triplets(torch.zeros(8, 3), torch.zeros(8), torch.ones(8))
    >>> stack = Stack(MLP(features=3), [Member(rows, seed=k) for k in range(2)], Schedule())
    >>> stack.run_epoch()
    >>> stack.epoch, stack.predict(torch.zeros(5, 3)).shape
    (1, torch.Size([2, 5, 1]))
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
        self._order = _stack_order(self.members)
        self._place = [self._order.index(member) for member in range(len(members))]
        self._ordered = [self.members[member] for member in self._order]
        self._batches = StackBatches(self._ordered, schedule)
        if isinstance(model, nn.Module) or not callable(model):
            raise TypeError(
                "model must be a function that makes a network from a torch.Generator, such as "
                f"MLP(features=19); got {validation.describe(model)}. Train a single network with "
                f"train_module{HELP}"
            )
        modules = [model(m.generators()[0]) for m in self._ordered]
        self._stacked = Stacked(modules, dtype=self._batches.pool.dtype)
        _check_shapes(self._stacked, self._batches)
        self._fingerprint = fingerprint(
            repr(self._stacked.module(0)),
            digest(self._stacked.parameters),
            self.members,
            schedule,
        )
        self._bases = [m.loss.base for m in self._ordered]
        rates = [float(m.learning_rate) for m in self._ordered]
        self._optimizer = StackOptimizer(self._stacked, rates, schedule)
        averages = schedule.averaging is not None
        self._averages = self._stacked.parameters.clone() if averages else None
        self._blocks = evaluation.blocks(slice(0, len(self._ordered)))
        self.threads = validation.integer("threads", threads, at_least=1)
        self._tests = evaluation.shared_tests(self._ordered) if schedule.test_every else []
        self._curves = StackCurves(len(self._ordered))
        self.step = 0

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch."""
        return self._batches.steps

    @property
    def epoch(self) -> int:
        """Number of epochs done."""
        return self.step // self.steps_per_epoch

    @property
    def all_frozen(self) -> bool:
        """Whether every member has diverged."""
        return self._curves.all_frozen

    @torch.no_grad()
    def run_epoch(self, after_step: Callable[[], object] = lambda: None) -> None:
        """Train all members for one epoch, and test them when a test is due.

        Parameters
        ----------
        after_step : callable, optional
            Function that is called without arguments after every step. Pass one to show progress.
        """
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
        self._curves.freeze_diverged(finite, self.step)
        self._average()

    def _average(self) -> None:
        """Move the averages of members that have not diverged towards their parameters."""
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
        """Replace the parameters by their averages, if any, within a ``with`` block."""
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
        """Return the losses of a block of members, and write its gradients into the buffer."""
        part = batch
        if len(self._blocks) > 1:
            part = StackBatch(*(column[members] for column in batch))
        block = self._stacked.block(members, part.rows.shape[1])
        x = self._batches.features(part.rows)
        frozen = self._curves.frozen_at[members]
        bases = [
            base if at is None else "mse"  # never call a user's loss with values that diverged
            for base, at in zip(self._bases[members], frozen, strict=True)
        ]
        losses, gradient = part.losses(block.forward(x), bases)
        block.backward(gradient)
        return losses

    def _test(self) -> None:
        if not self._tests:
            return
        losses = torch.full((len(self._ordered),), torch.nan, dtype=torch.float64)
        tested = torch.zeros(len(self._ordered), dtype=torch.bool)
        with self._averaged():
            for test in self._tests:
                tested[test.members] = True
                losses[test.members] = test.losses(self._stacked).double()
        self._curves.record_test(losses.tolist(), self.step)
        self._curves.freeze_diverged((losses.isfinite() | ~tested).tolist(), self.step)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Return the predictions of every member for the same rows.

        Parameters
        ----------
        x : torch.Tensor of shape (N, F)
            Features.

        Returns
        -------
        torch.Tensor of shape (R, N, D)
            Predictions, by the averages of the parameters if the schedule asks for averaging.
        """
        all_members, columns = slice(0, len(self._ordered)), evaluation.Columns(self._table(x))
        with numerical_settings(self.threads), self._averaged():
            pred = evaluation.predict(self._stacked, all_members, columns)
        return pred[self._place].transpose(1, 2)

    @torch.no_grad()
    def predict_each(self, tables: Sequence[Tensor]) -> list[Tensor]:
        """Return the predictions of every member for its own rows.

        Parameters
        ----------
        tables : sequence of torch.Tensor of shape (N_r, F)
            Features, one table of N_r rows per member.

        Returns
        -------
        list of torch.Tensor of shape (N_r, D)
            Predictions, one tensor per member.
        """
        if len(tables) != len(self.members):
            raise ValueError(
                f"there must be one table per member, {len(self.members)}; got {len(tables)}"
            )
        ordered = [self._table(tables[member]) for member in self._order]
        with numerical_settings(self.threads), self._averaged():
            each = evaluation.predict_each(self._stacked, ordered)
        return [each[place] for place in self._place]

    def _table(self, x: Tensor) -> Tensor:
        table = torch.as_tensor(x, dtype=self._batches.pool.dtype)
        if table.ndim != 2 or table.shape[1] != self._batches.pool.shape[1]:
            raise ValueError(
                f"x must have shape (rows, {self._batches.pool.shape[1]}); got {tuple(table.shape)}"
            )
        return table

    def module(self, member: int) -> nn.Module:
        """Return a member as an ordinary module, with its current parameters or their average.

        Parameters
        ----------
        member : int
            Index of the member.

        Returns
        -------
        nn.Module
            The module.
        """
        return self._stacked.module(self._place[member], self._last_or_average())

    def snapshot(self) -> Tensor:
        """Return a copy of the current parameters of all members, or of their averages.

        Returns
        -------
        Tensor
            One row of parameters per member, for :meth:`modules`.
        """
        return self._last_or_average().clone()

    def modules(self, snapshot: Tensor) -> list[nn.Module]:
        """Return all members as ordinary modules, with the parameters of a snapshot.

        Parameters
        ----------
        snapshot : Tensor
            Parameters that :meth:`snapshot` returned.

        Returns
        -------
        list of nn.Module
            One module per member.
        """
        return [self._stacked.module(place, snapshot) for place in self._place]

    def _last_or_average(self) -> Tensor:
        return self._stacked.parameters if self._averages is None else self._averages

    def histories(self) -> list[History]:
        """Return the curves of every member up to the current step.

        If all members have diverged, the curves are filled up with NaN to the end of the schedule.

        Returns
        -------
        list of History
            Curves of each member.
        """
        tested = [member.test is not None for member in self._ordered]
        steps = self.schedule.epochs * self.steps_per_epoch
        ordered = self._curves.histories(tested, steps, self.schedule.test_every)
        return [ordered[place] for place in self._place]

    def summary(self) -> str:
        """Return the last losses, averaged over members still trained, as text.

        Returns
        -------
        str
            The text, for a progress bar.
        """
        parts = [
            f"{title} {last:.3f}"
            for title, name in (("train", "train_loss"), ("test", "test_loss"))
            if (last := self._curves.last(name)) is not None
        ]
        if diverged := sum(self._curves.frozen_at[place] is not None for place in self._place):
            parts.append(f"{diverged} diverged")
        return ", ".join(parts)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the rest of the training depends on; call it between epochs.

        Returns
        -------
        dict
            The state, for :meth:`load_state_dict`.

        Raises
        ------
        ValueError
            If an epoch is not complete.
        """
        if self.step % self.steps_per_epoch:
            raise ValueError(
                "the state can only be taken at the end of an epoch, after a multiple of "
                f"{self.steps_per_epoch} steps; got {self.step} steps"
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
        """Resume from where :meth:`state_dict` was taken.

        Parameters
        ----------
        state : dict
            State that :meth:`state_dict` returned.

        Raises
        ------
        ValueError
            If the state is from other members, data, networks or settings, or from after the last
            epoch of the schedule.
        """
        require_same(self._fingerprint, state["training"])
        require_like(self.state_dict(), state)
        require_in_schedule(state["step"], self.steps_per_epoch, self.schedule.epochs)
        self.step = state["step"]
        self._stacked.parameters.copy_(state["parameters"])
        if self._averages is not None:
            self._averages.copy_(state["averages"])
        self._optimizer.load_state_dict(state)
        for generator, saved in zip(self._batches.orders, state["orders"], strict=True):
            generator.set_state(saved)
        self._curves.load_state_dict(state)


def _stack_order(members: Sequence[Member]) -> list[int]:
    """Return the order of the members in the stack; those with the same test rows are neighbours.

    A lone member is listed twice, because the product of a single matrix rounds differently.
    """
    tables = [None if m.test is None else id(m.test.x) for m in members]
    order = sorted(range(len(members)), key=lambda member: tables.index(tables[member]))
    return order if len(order) > 1 else order * 2


def _check_shapes(stacked: Stacked, batches: StackBatches) -> None:
    features = batches.pool.shape[1]
    try:
        shape = tuple(stacked.module(0)(batches.pool[:1]).shape)
    except RuntimeError as error:
        raise ValueError(f"the network must accept {features} features: {error}{HELP}") from error
    if shape != (1, batches.outputs):
        raise ValueError(
            f"the network must return predictions of shape (rows, {batches.outputs}), like y; got "
            f"{shape} for one row{HELP}"
        )
