"""Early stopping: choose the best epoch, and stop if no better one follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

PATIENCE = 4  # number of epochs without improvement after which training stops
TOLERANCE = 0.01  # relative improvement of the score that restarts the patience


class DivergedError(ValueError):
    """Error raised if no epoch ended with finite predictions."""


class Snapshots(Protocol):
    """Training whose best epoch can be kept."""

    @property
    def epoch(self) -> int:
        """Number of epochs done."""

    def snapshot(self) -> Any:
        """Return a copy of the current parameters."""


class EarlyStopping:
    """Snapshot of the best epoch so far, and the decision whether to stop.

    Parameters
    ----------
    patience : int
        Number of epochs without an improvement by 1% after which to stop.

    Attributes
    ----------
    scores : list of float
        Score after every epoch.
    epoch : int
        Best epoch, counted from 1.
    best : object
        Snapshot of that epoch; None as long as no score is finite.
    predicted : Tensor of shape (N, D)
        Predictions of that epoch.
    target_score : float
        Highest score that counts as an improvement.
    improved_at : int
        Last epoch that reached `target_score`.
    """

    def __init__(self, patience: int) -> None:
        self.patience = patience
        self.scores: list[float] = []
        self.epoch = self.improved_at = 0
        self.target_score = float("inf")
        self.best: Any = None
        self.predicted = torch.empty(0)

    def update(self, training: Snapshots, score: float, predicted: Tensor) -> None:
        """Record the epoch that has just ended.

        Parameters
        ----------
        training : Snapshots
            Training; its snapshot is kept if the epoch is the best so far.
        score : float
            Score of the epoch, the lower the better; infinite if a prediction is not finite.
        predicted : Tensor of shape (N, D)
            Predictions of held-out rows.
        """
        self.scores.append(score)
        if np.isfinite(score) and score <= min(self.scores):
            self.epoch, self.best, self.predicted = training.epoch, training.snapshot(), predicted
        if np.isfinite(score) and score <= self.target_score:
            self.target_score = score - TOLERANCE * abs(score)
            self.improved_at = training.epoch

    @property
    def should_stop(self) -> bool:
        """Whether the last `patience` epochs brought no improvement."""
        return self.best is not None and len(self.scores) - self.improved_at >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """Return everything except the patience, which may change when training resumes."""
        # The keys are those of checkpoints that earlier versions wrote.
        return {
            "scores": list(self.scores),
            "epoch": self.epoch,
            "passed_at": self.improved_at,
            "wanted": self.target_score,
            "best": self.best,
            "predicted": self.predicted,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from where :meth:`state_dict` was taken."""
        self.scores = state["scores"]
        self.epoch, self.improved_at = state["epoch"], state["passed_at"]
        self.target_score = state["wanted"]
        self.best, self.predicted = state["best"], state["predicted"]
