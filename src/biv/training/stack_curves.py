"""The curves of all members of a stack, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv.training.history import History

NAMES = ("train_loss", "size", "test_loss")


class StackCurves:
    """Curves of all members of a stack; NaN after the step at which a member diverged.

    Parameters
    ----------
    members : int
        Number of members.

    Attributes
    ----------
    frozen_at : list of (int or None)
        Step at which each member diverged; None if it has not.
    """

    def __init__(self, members: int) -> None:
        self.frozen_at: list[int | None] = [None] * members
        self._rows: dict[str, list[list[float]]] = {name: [] for name in NAMES}
        self._test_steps: list[int] = []

    @property
    def all_frozen(self) -> bool:
        """Whether every member has diverged."""
        return None not in self.frozen_at

    def record(self, name: str, values: Sequence[float]) -> None:
        """Add a value of each member to a curve."""
        row = [
            value if at is None else math.nan
            for value, at in zip(values, self.frozen_at, strict=True)
        ]
        self._rows[name].append(row)

    def record_test(self, losses: Sequence[float], step: int) -> None:
        """Add the test loss of each member after a step."""
        self.record("test_loss", losses)
        self._test_steps.append(step)

    def freeze_diverged(self, finite: Sequence[bool], step: int) -> None:
        """Freeze the members that are not finite, and store the step at which they diverged."""
        for member, is_finite in enumerate(finite):
            if not is_finite and self.frozen_at[member] is None:
                self.frozen_at[member] = step

    def last(self, name: str) -> float | None:
        """Return the mean of the last values over members still trained; None if there are none."""
        rows = self._rows[name]
        return torch.tensor(rows[-1]).nanmean().item() if rows else None

    def _curve(self, name: str) -> Tensor:
        """Return a curve of all members, (steps or evaluations, R)."""
        rows = self._rows[name]
        return torch.tensor(rows, dtype=torch.float64).view(len(rows), len(self.frozen_at))

    def histories(
        self, tested: Sequence[bool], steps: int, test_every: int | None
    ) -> list[History]:
        """Return the curves of every member, filled up with NaN if all have diverged.

        Parameters
        ----------
        tested : sequence of bool
            Whether each member has test rows.
        steps : int
            Number of steps of the whole training run.
        test_every : int or None
            Number of steps between two evaluations; None if there are none.
        """
        curves = {name: self._curve(name).numpy() for name in NAMES}
        test_steps = np.array(self._test_steps, dtype=np.int64)
        if self.all_frozen:
            if any(tested) and test_every:
                test_steps = np.arange(test_every, steps + 1, test_every)
            lengths = {"train_loss": steps, "size": steps, "test_loss": len(test_steps)}
            curves = {name: _padded(curve, lengths[name]) for name, curve in curves.items()}
        return [
            History(
                train_loss=curves["train_loss"][:, place].copy(),
                effective_batch_size=curves["size"][:, place].copy(),
                test_loss=curves["test_loss"][: None if has_test else 0, place].copy(),
                test_step=test_steps[: None if has_test else 0].copy(),
                diverged_at=self.frozen_at[place],
            )
            for place, has_test in enumerate(tested)
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return all values recorded so far."""
        return {
            "curves": {name: self._curve(name) for name in NAMES},
            "test_steps": list(self._test_steps),
            "frozen_at": list(self.frozen_at),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from where :meth:`state_dict` was taken."""
        self._rows = {name: rows.tolist() for name, rows in state["curves"].items()}
        self._test_steps = list(state["test_steps"])
        self.frozen_at = list(state["frozen_at"])


def _padded(curve: npt.NDArray[np.float64], rows: int) -> npt.NDArray[np.float64]:
    return np.concatenate([curve, np.full((rows - len(curve), curve.shape[1]), np.nan)])
