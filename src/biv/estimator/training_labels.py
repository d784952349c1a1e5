"""The labels of one fit with their error bars, which change as pilots estimate them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from biv import metrics
from biv._utils.pages import page_hint
from biv._utils.warnings import warn
from biv._utils.wording import Message, Setting
from biv.estimator import error_bars, findings
from biv.estimator.diagnostics import LabelDiagnostics
from biv.estimator.error_bars import ErrorBars, Factor
from biv.losses.weights import effective_batch_size, inverse_variance_weights

Array = npt.NDArray[Any]

MIN_LABELS = 2


@dataclass(frozen=True, eq=False)
class TrainingLabels:
    """Noisy labels, (N, D), in units of y, and what is known of their variances so far.

    Attributes:
        y: Labels; NaN where a label does not count.
        bars: Error bars as the user gave them, +inf where a label does not count; or None.
        weight: Importance of each row, (N,), or None.
        factors: Factor that the variances of each output are multiplied by; None for none.
        fill: Variance of each output that unknown variances are replaced by, (D,), or None.
    """

    y: Array
    bars: ErrorBars | None
    weight: Array | None = None
    factors: list[Factor] | None = None
    fill: Array | None = None

    @classmethod
    def of(
        cls, y: Array, bars: ErrorBars | None, weight: Array | None, fill: Array | None = None
    ) -> TrainingLabels:
        """Return labels as a fit begins with them.

        Args:
            y: Labels, (N, D); NaN where one is missing.
            bars: Their error bars, or None.
            weight: Importance of each row, or None. A row of importance 0 does not count.
            fill: Variance of each output that unknown variances are replaced by, or None.
        """
        gone = np.isnan(y)
        if weight is not None:
            gone = gone | (weight == 0)[:, None]
        if bars is not None:
            gone = gone | np.isinf(bars.variance)
            bars = ErrorBars(np.where(gone, np.inf, bars.variance), bars.name)
        return cls(np.where(gone, np.nan, y), bars, weight, fill=fill)

    @property
    def has_unknown(self) -> bool:
        """Whether a label has no variance."""
        return self.bars is not None and bool(self.bars.unknown.any())

    @property
    def variance(self) -> Array | None:
        """σ² of each label, (N, D), multiplied and filled in; None without error bars."""
        if self.bars is None:
            return None
        bars = self.bars
        if self.factors is not None:
            bars = ErrorBars(error_bars.multiplied(bars.variance, self.factors), bars.name)
        return bars.variance if self.fill is None else bars.filled(self.fill)

    def _known(
        self, out_of_fold: Array, k: int, *, as_given: bool = False
    ) -> tuple[Array, Array, Array]:
        """Return predictions, labels and variances of one output where all three are known."""
        assert self.bars is not None
        variance = self.bars.variance if as_given else self.variance
        assert variance is not None
        f, y, v = out_of_fold[:, k], self.y[:, k], variance[:, k]
        used = np.isfinite(f) & np.isfinite(y) & np.isfinite(v) & ~self.bars.unknown[:, k]
        return f[used], y[used], v[used]

    def _factors(self, out_of_fold: Array) -> list[Factor]:
        outputs = range(self.y.shape[1])
        return [error_bars.factor(*self._known(out_of_fold, k)) for k in outputs]

    def calibrated(self, out_of_fold: Array) -> TrainingLabels:
        """Return labels whose variances are multiplied by the factor estimated from residuals.

        Args:
            out_of_fold: Predictions of rows by networks that have not seen them, (N, D).

        Raises:
            ValueError: The error bars of an output are all equal.
        """
        factors = self._factors(out_of_fold)
        for factor in factors:
            if np.isnan(factor.value):
                raise ValueError(
                    Message(
                        "{calibrate} needs error bars that differ between labels: else their "
                        "factor cannot be told from the model's own error{page}",
                        calibrate=Setting("calibrate_variance", True),
                        page=page_hint("checking"),
                    )
                )
            if factor.value <= 0:
                warn(
                    "the error bars explain nothing of the residuals (the slope is "
                    f"{factor.value:.3g}, {factor.low:.3g} to {factor.high:.3g}): every label "
                    "counts alike"
                )
        fill = self.fill
        if fill is not None:  # the medians of what was multiplied
            fill = fill * [max(factor.value, 0.0) for factor in factors]
        return replace(self, factors=factors, fill=fill)

    def with_estimates(self, out_of_fold: Array) -> TrainingLabels:
        """Return labels whose unknown variances are estimated from their residuals.

        The estimate is what the mean squared residual of these labels exceeds τ² by.
        """
        assert self.bars is not None
        assert self.fill is not None
        fill = self.fill.copy()
        for k, unknown in enumerate(self.bars.unknown.T):
            if unknown.any():
                residual = (out_of_fold - self.y)[unknown, k]
                f, y, v = self._known(out_of_fold, k)
                tau2 = metrics.residual_variance(f, y, v)
                fill[k] = error_bars.common_variance(residual, tau2, v)
        return replace(self, fill=fill)

    def diagnose(self, out_of_fold: Array) -> LabelDiagnostics:
        """Return the estimates that the fitted attributes report."""
        variance = self.variance
        noise = np.zeros_like(self.y) if variance is None else variance
        columns = zip(out_of_fold.T, self.y.T, noise.T, strict=True)
        tau2 = [metrics.residual_variance(f, y, v) for f, y, v in columns]
        if variance is None:
            known = (~np.isnan(self.y)).sum(axis=0)
            return LabelDiagnostics(tau2, float(known.mean()), None, None, None)
        sizes = [
            float(effective_batch_size(inverse_variance_weights(column, own)))
            for column, own in zip(variance.T, tau2, strict=True)
        ]
        factors = self._factors(out_of_fold) if self.factors is None else self.factors
        fill = None if self.fill is None else self.fill.tolist()
        chi_squared = self._chi_squared(out_of_fold)
        return LabelDiagnostics(tau2, float(np.mean(sizes)), factors, chi_squared, fill)

    def _chi_squared(self, out_of_fold: Array) -> list[tuple[float, float]]:
        """Return that of each output, by the error bars alone; NaN if all are 0."""
        each = []
        for k in range(self.y.shape[1]):
            f, y, v = self._known(out_of_fold, k)
            used = v > 0
            chi = metrics.Score(np.nan, np.nan)
            if used.any():
                chi = metrics.reduced_chi_squared(f[used], y[used], v[used])
            each.append((chi.value, chi.stderr))
        return each

    def warn_about_error_bars(self, out_of_fold: Array) -> None:
        """Warn of variances that were filled in, and of error bars that residuals contradict."""
        if self.bars is None:
            return
        if self.fill is not None and (count := int(self.bars.unknown.sum())):
            taken = ", ".join(f"{value:.4g}" for value in self.fill)
            warn(
                f"the variance of {count} of {self.bars.variance.size} labels is unknown, and was "
                f"taken to be {taken}"
            )
        for k in range(self.y.shape[1]):
            finding = findings.judge(
                *self._known(out_of_fold, k, as_given=True),
                self.bars.taken,
                calibrated=None if self.factors is None else self.factors[k].value,
            )
            if finding.is_grave:
                warn(finding.text, findings.ErrorBarWarning)


def usable(y: Array, weight: Array | None, bars: ErrorBars | None) -> npt.NDArray[np.bool_]:
    """Return which labels there is something to learn from, (N, D).

    Raises:
        ValueError: An output has fewer than two.
    """
    used = ~np.isnan(y)
    if bars is not None:
        used &= ~np.isinf(bars.variance)
    if weight is not None:
        used &= (weight > 0)[:, None]
    if (few := used.sum(axis=0).min()) < MIN_LABELS:
        raise ValueError(
            f"every output must have at least {MIN_LABELS} labels to learn from, which are not "
            f"missing and have a finite variance and a positive sample_weight; got {few}"
        )
    return used
