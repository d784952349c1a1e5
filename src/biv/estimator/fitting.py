"""The labels of one fit: scaled for the networks, and what is found out about their error bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv import metrics
from biv._utils.pages import named
from biv._utils.typed_json import NonNegative
from biv._utils.warnings import warn
from biv._utils.wording import Message, Setting
from biv.estimator import error_bars, findings
from biv.estimator.error_bars import ErrorBars, Factor
from biv.losses.weights import effective_batch_size, inverse_variance_weights
from biv.preprocessing import LabelScaler
from biv.training import Triplets
from biv.training.held_out import HeldOutScore

Array = npt.NDArray[Any]

FEWEST_LABELS = 2
LARGEST_SCALED = 1e36  # of a finite σ², in units of the label variance


@dataclass
class Fitting:
    """The rows of one fit, and what becomes of their variances on the way.

    Attributes:
        x: Features as the networks want them.
        labels: (N, D), in units of y, as everything here is.
        weight: Importance of each row, or None.
        bars: As the user gave them, or None.
        unknown: What to do with labels of unknown variance.
    """

    x: Tensor
    labels: Array
    weight: Array | None
    bars: ErrorBars | None
    unknown: str

    def __post_init__(self) -> None:
        gone = np.isnan(self.labels)
        if self.weight is not None:  # what is of no importance is not there, here as in every loss
            gone = gone | (self.weight == 0)[:, None]
        if self.bars is not None:
            gone = gone | np.isinf(self.bars.variance)
            self.bars = ErrorBars(np.where(gone, np.inf, self.bars.variance), self.bars.name)
        self.labels = np.where(gone, np.nan, self.labels)
        self.factors: list[Factor] | None = None
        self.fill: Array | None = None
        if self.bars is not None and self.unknown != "raise":
            self.fill = error_bars.medians(self.bars)

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
            bars = ErrorBars(error_bars.multiplied(bars.variance, self.factors), bars.name)
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
        each = [s.variance(variance[:, k]) for k, s in enumerate(self.scalers)]
        # Networks get float32, where more would be infinite: labels to ignore.
        return np.stack([np.where(v < np.inf, np.minimum(v, LARGEST_SCALED), v) for v in each], 1)

    def raw(self, normalised: Tensor) -> Array:
        """Predictions, in units of y."""
        return raw(self.scalers, normalised.double().numpy())

    def _judged(
        self, out_of_fold: Array, k: int, *, as_given: bool = False
    ) -> tuple[Array, Array, Array]:
        """Predictions, labels and variances of one output where all three are known."""
        assert self.bars is not None
        variance = self.bars.variance if as_given else self.variance
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
                    Message(
                        "{calibrate} needs error bars that differ between labels: else their "
                        "factor cannot be told from the model's own error{page}",
                        calibrate=Setting("calibrate_variance", True),
                        page=named("checking"),
                    )
                )
            if factor.value <= 0:
                warn(
                    "the error bars explain nothing of the residuals (the slope is "
                    f"{factor.value:.3g}, {factor.low:.3g} to {factor.high:.3g}): every label "
                    "counts alike"
                )
        self.factors = factors
        if self.fill is not None:  # the medians of what was multiplied
            self.fill = self.fill * [max(factor.value, 0.0) for factor in factors]

    def _factors(self, out_of_fold: Array) -> list[Factor]:
        outputs = range(self.labels.shape[1])
        return [error_bars.factor(*self._judged(out_of_fold, k)) for k in outputs]

    def estimate(self, out_of_fold: Array) -> None:
        """Give labels of unknown variance what their residuals have more than the model's error."""
        assert self.bars is not None
        assert self.fill is not None
        fill = self.fill.copy()
        for k, unknown in enumerate(self.bars.unknown.T):
            if unknown.any():
                residual = (out_of_fold - self.labels)[unknown, k]
                f, y, v = self._judged(out_of_fold, k)
                tau2 = metrics.residual_variance(f, y, v)
                fill[k] = error_bars.common_variance(residual, tau2, v)
        self.fill = fill

    def residual_variance(self, out_of_fold: Array) -> float:
        """τ² of all outputs together, in units of their label variances."""
        return metrics.residual_variance(*self._normalised(out_of_fold))

    def _normalised(self, out_of_fold: Array) -> tuple[Array, Array, Array]:
        """Predictions, labels and variances as the networks have them."""
        variance = self.variance
        f, y = (
            np.stack([s.label(values[:, k]) for k, s in enumerate(self.scalers)], axis=1)
            for values in (out_of_fold, self.labels)
        )
        return f, y, np.zeros_like(y) if variance is None else self._scaled(variance)

    def score(self, out_of_fold: Array) -> float:
        """Return the mean noise-corrected error of the outputs, in units of label variances.

        Its weights depend on the labels alone, so that the scores of two trainings are comparable.
        """
        f, y, v = self._normalised(out_of_fold)
        weight = None if self.weight is None else self.weight[:, None]
        return HeldOutScore(y, v, weight)(f)

    def _tau2(self, out_of_fold: Array) -> list[float]:
        """Of each output, in its squared units."""
        variance = np.zeros_like(self.labels) if self.variance is None else self.variance
        columns = zip(out_of_fold.T, self.labels.T, variance.T, strict=True)
        return [metrics.residual_variance(f, y, v) for f, y, v in columns]

    def story(self, out_of_fold: Array) -> Story:
        """What the fitted attributes tell."""
        tau2 = self._tau2(out_of_fold)
        variance = self.variance
        if variance is None:
            known = (~np.isnan(self.labels)).sum(axis=0)
            return Story(tau2, float(known.mean()), None, None, None)
        sizes = [
            float(effective_batch_size(inverse_variance_weights(column, own)))
            for column, own in zip(variance.T, tau2, strict=True)
        ]
        factors = self._factors(out_of_fold) if self.factors is None else self.factors
        fill = None if self.fill is None else self.fill.tolist()
        return Story(tau2, float(np.mean(sizes)), factors, self._chi_squared(out_of_fold), fill)

    def _chi_squared(self, out_of_fold: Array) -> list[tuple[float, float]]:
        """Of each output, by the error bars alone; NaN if all are 0."""
        found = []
        for k in range(self.labels.shape[1]):
            f, y, v = self._judged(out_of_fold, k)
            used = v > 0
            chi = metrics.Score(np.nan, np.nan)
            if used.any():
                chi = metrics.reduced_chi_squared(f[used], y[used], v[used])
            found.append((chi.value, chi.stderr))
        return found

    def tell(self, out_of_fold: Array) -> None:
        """Warn of what was put in the place of unknown variances, and of error bars far off."""
        if self.bars is None:
            return
        if self.fill is not None and (count := int(self.bars.unknown.sum())):
            taken = ", ".join(f"{value:.4g}" for value in self.fill)
            warn(
                f"the variance of {count} of {self.bars.variance.size} labels is unknown, and was "
                f"taken to be {taken}"
            )
        for k in range(self.labels.shape[1]):
            finding = findings.judge(
                *self._judged(out_of_fold, k, as_given=True),
                self.bars.taken,
                calibrated=None if self.factors is None else self.factors[k].value,
            )
            if finding.is_grave:
                warn(finding.text, findings.ErrorBarWarning)


class StoryTold(TypedDict):
    """A :class:`Story` as JSON has it."""

    tau2: list[NonNegative]
    effective_sample_size: NonNegative
    factors: list[tuple[float | None, float | None, float | None]] | None
    reduced_chi_squared: list[tuple[float | None, float | None]] | None
    unknown_variance: list[NonNegative] | None


class Story(NamedTuple):
    """What was found out about the labels; see the attributes of :class:`BIVRegressor`."""

    tau2: list[float]
    effective_sample_size: float
    factors: list[Factor] | None
    reduced_chi_squared: list[tuple[float, float]] | None
    unknown_variance: list[float] | None

    @classmethod
    def joined(cls, stories: Sequence[Story]) -> Story:
        """Return the findings of several outputs as those of one fit."""
        sizes = [(s.effective_sample_size, len(s.tau2)) for s in stories]

        def all_of(name: str) -> Any:
            each = [getattr(story, name) for story in stories]
            return None if each[0] is None else [value for values in each for value in values]

        return cls(
            all_of("tau2"),
            float(np.average([size for size, _ in sizes], weights=[count for _, count in sizes])),
            *map(all_of, cls._fields[2:]),
        )

    @classmethod
    def from_told(cls, told: StoryTold) -> Story:
        """Back from JSON, which has no NaN."""

        def rows(kind: Any, values: Any) -> Any:
            if values is None:
                return None
            return [kind(np.nan if x is None else x for x in row) for row in values]

        return cls(
            told["tau2"],
            told["effective_sample_size"],
            rows(lambda row: Factor(*row), told["factors"]),
            rows(tuple, told["reduced_chi_squared"]),
            told["unknown_variance"],
        )


def usable(labels: Array, weight: Array | None, bars: ErrorBars | None) -> npt.NDArray[np.bool_]:
    """Return which labels there is something to learn from, (N, D).

    Raises:
        ValueError: An output has fewer than two.
    """
    used = ~np.isnan(labels)
    if bars is not None:
        used &= ~np.isinf(bars.variance)
    if weight is not None:
        used &= (weight > 0)[:, None]
    if (few := used.sum(axis=0).min()) < FEWEST_LABELS:
        raise ValueError(
            f"every output must have at least {FEWEST_LABELS} labels to learn from, which are not "
            f"missing and have a finite variance and a positive sample_weight; found {few}"
        )
    return used


def _label_scaler(labels: Array, variance: Array | None) -> LabelScaler:
    """Labels that do not vary have no scale but their size."""
    known = labels[~np.isnan(labels)]
    if np.ptp(known) == 0:
        return LabelScaler(float(known[0]), abs(float(known[0])) or 1.0)
    return LabelScaler.fit(labels, variance, ddof=0)


def raw(scalers: Sequence[LabelScaler], normalised: Array) -> Array:
    """Predictions of every output, (N, D), in units of y."""
    columns = [scaler.label_raw(normalised[:, k]) for k, scaler in enumerate(scalers)]
    return np.stack(columns, axis=1)


def single(values: Array) -> Tensor:
    """As networks compute: float32."""
    return torch.tensor(values, dtype=torch.float32)
