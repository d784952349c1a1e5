"""Training labels of one fit and their error bars, which pilots may correct."""

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
    """Noisy labels with their error bars and the corrections of these.

    Attributes
    ----------
    y : ndarray of shape (N, D)
        Labels in units of y; NaN where a label is not used.
    bars : ErrorBars or None
        Error bars as the user passed them; +inf where a label is not used.
    weight : ndarray of shape (N,) or None, default=None
        Sample weight of each row.
    factors : list of Factor or None, default=None
        Factor of each output by which the variances are multiplied.
    fill : ndarray of shape (D,) or None, default=None
        Variance of each output that replaces unknown variances.
    """

    y: Array
    bars: ErrorBars | None
    weight: Array | None = None
    factors: list[Factor] | None = None
    fill: Array | None = None

    @classmethod
    def from_arrays(
        cls, y: Array, bars: ErrorBars | None, weight: Array | None, fill: Array | None = None
    ) -> TrainingLabels:
        """Return the labels at the beginning of a fit.

        Parameters
        ----------
        y : ndarray of shape (N, D)
            Labels; NaN where one is missing.
        bars : ErrorBars or None
            Error bars.
        weight : ndarray of shape (N,) or None
            Sample weight of each row. A row of weight 0 is not used.
        fill : ndarray of shape (D,) or None, default=None
            Variance of each output that replaces unknown variances.

        Returns
        -------
        TrainingLabels
            Labels without corrections of the variances.
        """
        unused = np.isnan(y)
        if weight is not None:
            unused = unused | (weight == 0)[:, None]
        if bars is not None:
            unused = unused | np.isinf(bars.variance)
            bars = ErrorBars(np.where(unused, np.inf, bars.variance), bars.name)
        return cls(np.where(unused, np.nan, y), bars, weight, fill=fill)

    @property
    def has_unknown(self) -> bool:
        """Whether the variance of a label is unknown."""
        return self.bars is not None and bool(self.bars.unknown.any())

    @property
    def variance(self) -> Array | None:
        """Corrected σ² of each label, (N, D); None without error bars."""
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

        Parameters
        ----------
        out_of_fold : ndarray of shape (N, D)
            Out-of-fold predictions.

        Returns
        -------
        TrainingLabels
            Calibrated labels.

        Raises
        ------
        ValueError
            The error bars of an output are too few or all equal.
        """
        factors = self._factors(out_of_fold)
        for factor in factors:
            if np.isnan(factor.value):
                raise ValueError(
                    Message(
                        "{calibrate} needs error bars that differ between labels; got equal ones, "
                        "or too few: their factor cannot be separated from the model's own error"
                        "{page}",
                        calibrate=Setting("calibrate_variance", True),
                        page=page_hint("checking"),
                    )
                )
            if factor.value <= 0:
                warn(
                    "the error bars do not explain the residuals (slope "
                    f"{factor.value:.3g}, {factor.low:.3g} to {factor.high:.3g}): all labels get "
                    "the same weight"
                )
        fill = self.fill
        if fill is not None:  # medians of the variances, which are multiplied likewise
            fill = fill * [max(factor.value, 0.0) for factor in factors]
        return replace(self, factors=factors, fill=fill)

    def with_estimates(self, out_of_fold: Array) -> TrainingLabels:
        """Return labels whose unknown variances are estimated from their residuals.

        The estimate is the mean squared residual of these labels minus τ².
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
        """Return the diagnostics that the fitted attributes report."""
        variance = self.variance
        noise = np.zeros_like(self.y) if variance is None else variance
        columns = zip(out_of_fold.T, self.y.T, noise.T, strict=True)
        tau2 = [metrics.residual_variance(f, y, v) for f, y, v in columns]
        if variance is None:
            known = (~np.isnan(self.y)).sum(axis=0)
            return LabelDiagnostics(tau2, float(known.mean()), None, None, None)
        sizes = [
            float(effective_batch_size(inverse_variance_weights(column, epsilon)))
            for column, epsilon in zip(variance.T, tau2, strict=True)
        ]
        factors = self._factors(out_of_fold) if self.factors is None else self.factors
        fill = None if self.fill is None else self.fill.tolist()
        chi_squared = self._chi_squared(out_of_fold)
        return LabelDiagnostics(tau2, float(np.mean(sizes)), factors, chi_squared, fill)

    def _chi_squared(self, out_of_fold: Array) -> list[tuple[float, float]]:
        """Return the reduced χ² of each output by the error bars alone; NaN if all are 0."""
        outputs = []
        for k in range(self.y.shape[1]):
            f, y, v = self._known(out_of_fold, k)
            used = v > 0
            chi = metrics.Score(np.nan, np.nan)
            if used.any():
                chi = metrics.reduced_chi_squared(f[used], y[used], v[used])
            outputs.append((chi.value, chi.stderr))
        return outputs

    def warn_about_error_bars(self, out_of_fold: Array) -> None:
        """Warn of variances that were filled in and of error bars that residuals contradict."""
        if self.bars is None:
            return
        if self.fill is not None and (count := int(self.bars.unknown.sum())):
            values = ", ".join(f"{value:.4g}" for value in self.fill)
            warn(
                f"the variance of {count} of {self.bars.variance.size} labels is unknown and was "
                f"set to {values}"
            )
        for k in range(self.y.shape[1]):
            finding = findings.judge(
                *self._known(out_of_fold, k, as_given=True),
                self.bars.passed_as,
                calibrated=None if self.factors is None else self.factors[k].value,
            )
            if finding.is_grave:
                warn(finding.text, findings.ErrorBarWarning)


def usable(y: Array, weight: Array | None, bars: ErrorBars | None) -> npt.NDArray[np.bool_]:
    """Return a mask of the labels that a fit can use, (N, D).

    Raises
    ------
    ValueError
        An output has fewer than two.
    """
    used = ~np.isnan(y)
    if bars is not None:
        used &= ~np.isinf(bars.variance)
    if weight is not None:
        used &= (weight > 0)[:, None]
    if (few := used.sum(axis=0).min()) < MIN_LABELS:
        raise ValueError(
            f"every output must have at least {MIN_LABELS} usable labels, which are not missing "
            f"and have a finite variance and a positive sample_weight; got {few}"
        )
    return used
