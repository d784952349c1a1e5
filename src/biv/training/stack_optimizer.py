"""Torch's own optimizer over the members of a stack, whose state lies side by side."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from biv.models.stacked import Stacked
from biv.training.schedule import Schedule

MOMENTS = {"adam": ("exp_avg", "exp_avg_sq"), "adamw": ("exp_avg", "exp_avg_sq")}


class StackOptimizer:
    """One flat parameter per member, with a learning rate of its own.

    A member that is not to be updated is a parameter without a gradient: an optimizer leaves it,
    and its state, as they are.

    Args:
        stacked: Networks.
        rates: Learning rate of each.
        schedule: Optimizer and its settings.
    """

    def __init__(self, stacked: Stacked, rates: Sequence[float], schedule: Schedule) -> None:
        self._buffer = stacked.parameters
        self._parameters = [nn.Parameter(slab) for slab in stacked.parameters]
        self._gradients = list(stacked.gradients)
        by_rate = {
            rate: [p for p, own in zip(self._parameters, rates, strict=True) if own == rate]
            for rate in rates
        }
        groups = [{"params": own, "lr": rate} for rate, own in by_rate.items()]
        optimizer = schedule.make_optimizer(groups, fused=True)
        # Without the hooks around it, of which there are none and which cost more than the update.
        self._update = partial(inspect.unwrap(type(optimizer).step), optimizer)
        momentum = ("momentum_buffer",) if schedule.momentum else ()
        names = MOMENTS.get(schedule.optimizer, momentum)
        self._moments = {name: torch.zeros_like(stacked.parameters) for name in names}
        self._updates = [torch.zeros(()) for _ in rates]
        for member, parameter in enumerate(self._parameters):
            # As the optimizer would begin them itself, but side by side, to be looked at at once.
            own = {name: buffer[member] for name, buffer in self._moments.items()}
            counted = {} if schedule.optimizer == "sgd" else {"step": self._updates[member]}
            optimizer.state[parameter].update(counted | own)

    def step(self, goes_on: Sequence[bool]) -> None:
        """Update the members that are still trained by their gradients."""
        for parameter, gradient, own in zip(
            self._parameters, self._gradients, goes_on, strict=True
        ):
            wanted = gradient if own else None
            if parameter.grad is not wanted:
                parameter.grad = wanted
        self._update()

    def finite(self) -> list[bool]:
        """Return whether the parameters and moments of each member are finite."""
        buffers = (self._buffer, *self._moments.values())
        # A sum is not finite if a term is not; where it has merely overflowed, terms are looked at.
        total = sum(buffer.sum(1) for buffer in buffers)
        assert isinstance(total, Tensor)
        return [
            math.isfinite(value) or all(bool(buffer[member].isfinite().all()) for buffer in buffers)
            for member, value in enumerate(total.tolist())
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return moments and numbers of updates; the parameters belong to the networks."""
        return {
            "moments": {name: buffer.clone() for name, buffer in self._moments.items()},
            "updates": torch.stack(self._updates),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from where :meth:`state_dict` was taken."""
        for name, buffer in self._moments.items():
            buffer.copy_(state["moments"][name])
        for count, own in zip(self._updates, state["updates"], strict=True):
            count.copy_(own)
