"""Torch's optimizer over the members of a stack, with its state in one buffer."""

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
    """Optimizer with one flat parameter and one learning rate per member.

    A member that must not be updated has no gradient; the optimizer then leaves its parameter and
    its state unchanged.

    Parameters
    ----------
    stacked : Stacked
        Networks.
    rates : sequence of float
        Learning rate of each member.
    schedule : Schedule
        Optimizer and its settings.
    """

    def __init__(self, stacked: Stacked, rates: Sequence[float], schedule: Schedule) -> None:
        self._buffer = stacked.parameters
        self._parameters = [nn.Parameter(slab) for slab in stacked.parameters]
        self._gradients = list(stacked.gradients)
        by_rate = {
            rate: [p for p, other in zip(self._parameters, rates, strict=True) if other == rate]
            for rate in rates
        }
        groups = [{"params": members, "lr": rate} for rate, members in by_rate.items()]
        optimizer = schedule.make_optimizer(groups, fused=True)
        # Unwrapped, because the wrapper that runs hooks costs more time than the update itself.
        self._update = partial(inspect.unwrap(type(optimizer).step), optimizer)
        momentum = ("momentum_buffer",) if schedule.momentum else ()
        names = MOMENTS.get(schedule.optimizer, momentum)
        self._moments = {name: torch.zeros_like(stacked.parameters) for name in names}
        self._updates = [torch.zeros(()) for _ in rates]
        for member, parameter in enumerate(self._parameters):
            # The optimizer's usual initial state, but in one buffer, which one sum can check.
            moments = {name: buffer[member] for name, buffer in self._moments.items()}
            count = {} if schedule.optimizer == "sgd" else {"step": self._updates[member]}
            optimizer.state[parameter].update(count | moments)

    def step(self, active: Sequence[bool]) -> None:
        """Update the active members by their gradients."""
        for parameter, gradient, is_active in zip(
            self._parameters, self._gradients, active, strict=True
        ):
            new = gradient if is_active else None
            if parameter.grad is not new:
                parameter.grad = new
        self._update()

    def finite(self) -> list[bool]:
        """Return whether the parameters and moments of each member are finite."""
        buffers = (self._buffer, *self._moments.values())
        # A finite sum shows that all terms are finite. An infinite sum may merely have overflowed.
        total = sum(buffer.sum(1) for buffer in buffers)
        assert isinstance(total, Tensor)
        return [
            math.isfinite(value) or all(bool(buffer[member].isfinite().all()) for buffer in buffers)
            for member, value in enumerate(total.tolist())
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return the moments and the numbers of updates; the networks save the parameters."""
        return {
            "moments": {name: buffer.clone() for name, buffer in self._moments.items()},
            "updates": torch.stack(self._updates),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from where :meth:`state_dict` was taken."""
        for name, buffer in self._moments.items():
            buffer.copy_(state["moments"][name])
        for count, saved in zip(self._updates, state["updates"], strict=True):
            count.copy_(saved)
