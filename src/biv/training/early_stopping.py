"""The choice of the epoch: the best so far, and when to stop waiting for a better one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

PATIENCE = 4  # epochs without a better score before training stops
TOLERANCE = 0.01  # by what share a score must be better to be waited for


class DivergedError(ValueError):
    """No prediction was finite after a whole epoch: a run that failed, not bad data."""


class Snapshots(Protocol):
    """A training whose best epoch can be kept."""

    @property
    def epoch(self) -> int:
        """Number of epochs done."""

    def snapshot(self) -> Any:
        """Return what predicts, as it is now."""


class EarlyStopping:
    """Remembers the best epoch so far, and says when to stop waiting for a better one.

    Args:
        patience: Number of epochs without a score better by 1% after which to stop.

    Attributes:
        scores: Score after every epoch.
        epoch: Best epoch, from 1 on.
        best: Snapshot of that epoch; None as long as no score is finite.
        predicted: Predictions of that epoch.
        wanted: Score that must be reached for the patience to begin anew.
        passed_at: Epoch at which it last began anew.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.scores: list[float] = []
        self.epoch = self.passed_at = 0
        self.wanted = float("inf")
        self.best: Any = None
        self.predicted = torch.empty(0)

    def update(self, training: Snapshots, score: float, predicted: Tensor) -> None:
        """Take note of the epoch that has just ended.

        Args:
            training: What is trained; a snapshot of it is kept if it is the best so far.
            score: Its score, the lower the better; infinite if a prediction is not finite.
            predicted: Its predictions of rows that it has not learned from, (N, D).
        """
        self.scores.append(score)
        if np.isfinite(score) and score <= min(self.scores):
            self.epoch, self.best, self.predicted = training.epoch, training.snapshot(), predicted
        if np.isfinite(score) and score <= self.wanted:
            self.wanted, self.passed_at = score - TOLERANCE * abs(score), training.epoch

    @property
    def should_stop(self) -> bool:
        """Whether no epoch was better for as long as `patience`."""
        return self.best is not None and len(self.scores) - self.passed_at >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Return all but the patience, which may be another when training resumes."""
        own = {name: value for name, value in vars(self).items() if name != "patience"}
        return own | {"scores": list(self.scores)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from where :meth:`state_dict` was taken."""
        vars(self).update(state)
