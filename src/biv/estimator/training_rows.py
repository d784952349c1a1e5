"""Training rows of one fit as networks see them: labels of unit variance, in float32."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv import metrics
from biv.estimator.training_labels import TrainingLabels
from biv.preprocessing import LabelScaler
from biv.training import Triplets
from biv.training.held_out import HeldOutScore

Array = npt.NDArray[Any]

LARGEST_SCALED = 1e36  # upper limit of a finite σ², in units of the label variance


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Features and labels of one fit. Its methods take and return predictions in units of y.

    Attributes
    ----------
    x : Tensor of shape (N, F)
        Scaled features.
    labels : TrainingLabels
        Labels and error bars of shape (N, D), in units of y.
    """

    x: Tensor
    labels: TrainingLabels

    @cached_property
    def scalers(self) -> list[LabelScaler]:
        """Scaler of each output, to unit variance of the labels without their noise."""
        variance = self.labels.variance
        return [
            _label_scaler(column, None if variance is None else variance[:, k])
            for k, column in enumerate(self.labels.y.T)
        ]

    @cached_property
    def triplets(self) -> Triplets:
        """Scaled features, labels, variances and weights, for training."""
        variance, weight = self.labels.variance, self.labels.weight
        return Triplets(
            self.x,
            single(self._scaled_labels(self.labels.y)),
            None if variance is None else single(self._scaled_variance(variance)),
            None if weight is None else single(weight[:, None]),
        )

    def _scaled_labels(self, values: Array) -> Array:
        return np.stack([s.label(values[:, k]) for k, s in enumerate(self.scalers)], axis=1)

    def _scaled_variance(self, variance: Array) -> Array:
        each = [s.variance(variance[:, k]) for k, s in enumerate(self.scalers)]
        # A larger number would be infinite in float32, and the label would be ignored.
        return np.stack([np.where(v < np.inf, np.minimum(v, LARGEST_SCALED), v) for v in each], 1)

    def raw(self, scaled: Tensor) -> Array:
        """Return predictions of the networks, (N, D), in units of y."""
        return raw(self.scalers, scaled.double().numpy())

    def residual_variance(self, out_of_fold: Array) -> float:
        """Return τ² of all outputs together, in units of their label variances."""
        return metrics.residual_variance(*self._scaled(out_of_fold))

    def score(self, out_of_fold: Array) -> float:
        """Return the mean noise-corrected error of the outputs, in units of label variances.

        Its weights depend on the labels alone, so that scores of two training runs are comparable.
        """
        f, y, v = self._scaled(out_of_fold)
        weight = self.labels.weight
        return HeldOutScore(y, v, None if weight is None else weight[:, None])(f)

    def _scaled(self, out_of_fold: Array) -> tuple[Array, Array, Array]:
        """Return predictions, labels and variances in the scaled units of the networks."""
        variance = self.labels.variance
        f, y = self._scaled_labels(out_of_fold), self._scaled_labels(self.labels.y)
        return f, y, np.zeros_like(y) if variance is None else self._scaled_variance(variance)


def _label_scaler(labels: Array, variance: Array | None) -> LabelScaler:
    """Return a scaler; the scale of labels that are all equal is their absolute value, or 1."""
    known = labels[~np.isnan(labels)]
    if np.ptp(known) == 0:
        return LabelScaler(float(known[0]), abs(float(known[0])) or 1.0)
    return LabelScaler.fit(labels, variance, ddof=0)


def raw(scalers: Sequence[LabelScaler], scaled: Array) -> Array:
    """Return scaled predictions of every output, (N, D), in units of y."""
    columns = [scaler.label_raw(scaled[:, k]) for k, scaler in enumerate(scalers)]
    return np.stack(columns, axis=1)


def single(values: Array) -> Tensor:
    """Return values as a float32 tensor."""
    return torch.tensor(values, dtype=torch.float32)
