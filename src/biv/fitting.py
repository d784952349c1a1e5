"""The labels of one fit: scaled for the networks, and what is found out about their error bars."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv import errorbars, metrics
from biv.datasets import LabelScaler
from biv.errorbars import ErrorBars, Factor
from biv.training import Triplets
from biv.weights import effective_batch_size, inverse_variance_weights

Array = npt.NDArray[Any]


@dataclass
class Fitting:
    """The rows of one fit, and what becomes of their variances on the way.

    Attributes:
        x: Features as the networks want them.
        labels: (N, D), in units of y, as everything here is.
        weight: Importance of each row, or None.
        bars: As the user gave them, or None.
    """

    x: Tensor
    labels: Array
    weight: Array | None
    bars: ErrorBars | None

    def __post_init__(self) -> None:
        if self.weight is not None:  # what is of no importance is not there, here as in every loss
            gone = self.weight == 0
            self.labels = np.where(gone[:, None], np.nan, self.labels)
            if self.bars is not None:
                left_out = np.where(gone[:, None], np.inf, self.bars.variance)
                self.bars = ErrorBars(left_out, self.bars.name)
        self.factors: list[Factor] | None = None
        self.fill: Array | None = None
        if self.bars is not None and self.has_unknown:
            self.fill = errorbars.medians(self.bars)

    @property
    def has_unknown(self) -> bool:
        """Whether a label has no variance."""
        return self.bars is not None and bool(self.bars.unknown.any())

    @property
    def variance(self) -> Array | None:
        """(N, D), after what has been found out so far."""
        if self.bars is None:
            return None
        bars = self.bars
        if self.factors is not None:
            bars = ErrorBars(errorbars.multiplied(bars.variance, self.factors), bars.name)
        return bars.variance if self.fill is None else bars.filled(self.fill)

    def rows(self) -> Triplets:
        """What to train on, every output scaled to unit variance; `scalers` says by what."""
        variance = self.variance
        self.scalers = [
            _label_scaler(column, None if variance is None else variance[:, k])
            for k, column in enumerate(self.labels.T)
        ]
        return Triplets(
            self.x,
            single(np.stack([s.label(self.labels[:, k]) for k, s in enumerate(self.scalers)], 1)),
            None if variance is None else single(self._scaled(variance)),
            None if self.weight is None else single(self.weight[:, None]),
        )

    def _scaled(self, variance: Array) -> Array:
        return np.stack([s.variance(variance[:, k]) for k, s in enumerate(self.scalers)], axis=1)

    def raw(self, normalised: Tensor) -> Array:
        """Predictions, in units of y."""
        return raw(self.scalers, normalised.double().numpy())

    def _judged(self, out_of_fold: Array, k: int) -> tuple[Array, Array, Array]:
        """Predictions, labels and variances of one output where all three are known."""
        assert self.bars is not None
        variance = self.variance
        assert variance is not None
        f, y, v = out_of_fold[:, k], self.labels[:, k], variance[:, k]
        used = np.isfinite(f) & np.isfinite(y) & np.isfinite(v) & ~self.bars.unknown[:, k]
        return f[used], y[used], v[used]

    def calibrate(self, out_of_fold: Array) -> None:
        """Take the variances for what the residuals say that they are."""
        factors = self._factors(out_of_fold)
        for factor in factors:
            if np.isnan(factor.value):
                raise ValueError(
                    "calibrate_variance=True needs error bars that differ between labels: else "
                    "their factor cannot be told from the model's own error"
                )
            if factor.value <= 0:
                warnings.warn(
                    "the error bars explain nothing of the residuals (the slope is "
                    f"{factor.value:.3g}, {factor.low:.3g} to {factor.high:.3g}): every label "
                    "counts alike",
                    UserWarning,
                    stacklevel=2,
                )
        self.factors = factors

    def _factors(self, out_of_fold: Array) -> list[Factor]:
        outputs = range(self.labels.shape[1])
        return [errorbars.factor(*self._judged(out_of_fold, k)) for k in outputs]

    def estimate(self, out_of_fold: Array) -> None:
        """Give labels of unknown variance what their residuals have more than the model's error."""
        if self.bars is None or self.fill is None:
            return
        fill = self.fill.copy()
        for k in range(len(fill)):
            residual = (out_of_fold - self.labels)[self.bars.unknown[:, k], k]
            residual = residual[np.isfinite(residual)]
            if len(residual):
                tau2 = metrics.residual_variance(*self._judged(out_of_fold, k))
                fill[k] = errorbars.common_variance(residual, tau2)
        self.fill = fill

    def residual_variance(self, out_of_fold: Array) -> float:
        """τ², in units of the label variance."""
        variance = self.variance
        f, y = (
            np.stack([s.label(values[:, k]) for k, s in enumerate(self.scalers)], axis=1)
            for values in (out_of_fold, self.labels)
        )
        v = np.zeros_like(y) if variance is None else self._scaled(variance)
        known = np.isfinite(f)
        return metrics.residual_variance(f[known], y[known], v[known])

    def story(self, out_of_fold: Array, tau2: float) -> Story:
        """What the fitted attributes tell."""
        known = int((~np.isnan(self.labels)).any(axis=1).sum())
        if self.bars is None:
            return Story(float(known), None, None, None)
        variance = self.variance
        assert variance is not None
        factors = self._factors(out_of_fold) if self.factors is None else self.factors
        size = effective_batch_size(inverse_variance_weights(self._scaled(variance), tau2))
        judged = [self._judged(out_of_fold, k) for k in range(variance.shape[1])]
        scaled = [
            (s.label(f), s.label(y), s.variance(v))
            for s, (f, y, v) in zip(self.scalers, judged, strict=True)
        ]
        columns = [np.concatenate(column) for column in zip(*scaled, strict=True)]
        used = columns[2] + tau2 > 0
        chi = metrics.reduced_chi_squared(*(c[used] for c in columns), epsilon=tau2)
        fill = None if self.fill is None else self.fill.tolist()
        return Story(float(size), factors, (chi.value, chi.stderr), fill)

    def tell(self) -> None:
        """Say what was put in the place of unknown variances."""
        if self.bars is None or self.fill is None:
            return
        count = int(self.bars.unknown.sum())
        taken = ", ".join(f"{value:.4g}" for value in self.fill)
        warnings.warn(
            f"the variance of {count} of {self.bars.variance.size} labels is unknown, and was "
            f"taken to be {taken}",
            UserWarning,
            stacklevel=4,
        )


class Story(NamedTuple):
    """What was found out about the labels; see the attributes of :class:`BIVRegressor`."""

    effective_sample_size: float
    factors: list[Factor] | None
    reduced_chi_squared: tuple[float, float] | None
    unknown_variance: list[float] | None

    @classmethod
    def from_told(cls, told: dict[str, Any]) -> Story:
        """Back from JSON, which has no NaN."""
        factors = told["factors"]
        if factors is not None:
            factors = [Factor(*(np.nan if x is None else x for x in f)) for f in factors]
        chi = told["reduced_chi_squared"]
        return cls(
            told["effective_sample_size"],
            factors,
            None if chi is None else (chi[0], np.nan if chi[1] is None else chi[1]),
            told["unknown_variance"],
        )


def _label_scaler(labels: Array, variance: Array | None) -> LabelScaler:
    """Labels that do not vary have nothing to scale by: they are moved to 0 only."""
    known = labels[~np.isnan(labels)]
    if len(known) and np.ptp(known) == 0:
        return LabelScaler(float(known[0]), 1.0)
    return LabelScaler.fit(labels, variance, ddof=0)


def raw(scalers: Sequence[LabelScaler], normalised: Array) -> Array:
    """Predictions of every output, (N, D), in units of y."""
    columns = [scaler.label_raw(normalised[:, k]) for k, scaler in enumerate(scalers)]
    return np.stack(columns, axis=1)


def single(values: Array) -> Tensor:
    """As networks compute: float32."""
    return torch.tensor(values, dtype=torch.float32)
