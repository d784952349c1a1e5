"""Training of an ensemble: as a stack, or one network after another if they cannot be stacked."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from biv._utils.pages import page_hint
from biv.models.stacked import can_be_stacked
from biv.training.data import Member
from biv.training.early_stopping import Snapshots
from biv.training.loop import Loop
from biv.training.numerics import numerical_settings
from biv.training.schedule import Schedule
from biv.training.stack import Factory, Stack

CHUNK = 16_384  # rows that are predicted at a time, to limit memory
HELP = page_hint("networks")


class Ensemble(Snapshots, Protocol):
    """Training of all members of an ensemble."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches per epoch."""

    @property
    def all_frozen(self) -> bool:
        """Whether every member has diverged."""

    def run_epoch(self, after_step: Callable[[], object], /) -> None:
        """Train all members for one epoch."""

    def predict(self, x: Tensor, /) -> Tensor:
        """Return the predictions of every member, or its average, (members, N, D)."""

    def predict_each(self, tables: Sequence[Tensor], /) -> list[Tensor]:
        """Return the predictions of every member, or its average, for its own rows, (N, D) each."""

    def modules(self, snapshot: Any, /) -> list[nn.Module]:
        """Return all members as ordinary modules, with the parameters of a snapshot."""


class _LoopEnsemble:
    """Ensemble of networks that cannot be stacked, trained one after another."""

    def __init__(
        self, model: Factory, members: Sequence[Member], schedule: Schedule, threads: int
    ) -> None:
        self.threads = threads
        modules = [model(m.generators()[0]) for m in members]
        if len({id(module) for module in modules}) < len(modules):
            raise ValueError(
                f"model must make a new network at each call; got the same one twice{HELP}"
            )
        self.loops = [Loop(module, m, schedule) for module, m in zip(modules, members, strict=True)]
        self.steps_per_epoch = self.loops[0].steps_per_epoch
        self.epoch = 0
        # Dropout and similar layers draw from this state instead of torch's global generator.
        self.random_state = torch.Generator().manual_seed(members[0].seed).get_state()
        row, outputs = members[0].train.x[:1], members[0].train.y.shape[1]
        if (shape := tuple(self.loops[0].predict(row).shape)) != (1, outputs):
            raise ValueError(
                f"the network must return predictions of shape (rows, {outputs}), like y; got "
                f"{shape} for one row{HELP}"
            )

    @property
    def all_frozen(self) -> bool:
        return all(loop.diverged_at is not None for loop in self.loops)

    def run_epoch(self, after_step: Callable[[], object]) -> None:
        # Only the generator of the CPU is forked, because the networks are trained there.
        with numerical_settings(self.threads), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(self.random_state)
            for loop in self.loops:
                if loop.diverged_at is None:
                    loop.run_epoch()
            self.random_state = torch.get_rng_state()
        for _ in range(self.steps_per_epoch):
            after_step()
        self.epoch += 1

    def predict(self, x: Tensor) -> Tensor:
        return torch.stack(self.predict_each([x] * len(self.loops)))

    def predict_each(self, tables: Sequence[Tensor]) -> list[Tensor]:
        return [
            torch.cat([loop.predict(part) for part in torch.split(table, CHUNK)])
            for loop, table in zip(self.loops, tables, strict=True)
        ]

    def snapshot(self) -> list[nn.Module]:
        modules = []
        for loop in self.loops:
            with loop.average.in_place():
                modules.append(copy.deepcopy(loop.model).eval())
        return modules

    def modules(self, snapshot: list[nn.Module]) -> list[nn.Module]:
        return snapshot


def make_ensemble(
    model: Factory, members: Sequence[Member], schedule: Schedule, threads: int
) -> Ensemble:
    """Return a stack if the networks can be stacked, else an ensemble of separate loops."""
    network: object = model(torch.Generator()) if callable(model) else None
    if isinstance(network, nn.Module) and not can_be_stacked(network):
        return _LoopEnsemble(model, members, schedule, threads)
    return Stack(model, members, schedule, threads=threads)
