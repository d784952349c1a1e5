"""Inspect the error bars of a table: their sizes, their worth, and rows to look at."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from biv import metrics
from biv._utils import typed_json
from biv.estimator import findings
from biv.estimator.columns import ManyCategoriesWarning
from biv.estimator.findings import Finding, FindingRecord
from biv.estimator.regressor import BIVRegressor
from biv.losses.weights import effective_batch_size, inverse_variance_weights
from biv.tables import LabelledTable
from biv.tables.schema import Schema
from biv.workflows.checks import naming_cells, require_learnable
from biv.workflows.evidence_parts import QUANTILES, RemarkRecord, relative_efficiency
from biv.workflows.remarks import Remark, remarks_on, sample
from biv.workflows.scores import r2_scores

Floats = npt.NDArray[np.float64]

FITTED_ROWS = 20_000  # largest number of rows of the quick fit
QUICK_EPOCHS, QUICK_FOLDS = 25, 4


@dataclass(frozen=True, kw_only=True)
class OutOfFoldFit:
    """Out-of-fold predictions of a fit, and what was estimated from them.

    Attributes
    ----------
    tau2 : float
        Variance of the model's own error, in squared label units.
    epsilon : float
        Suggested ε, in squared label units.
    variance_factor : float or None
        Estimated factor by which the variances should be multiplied; None if unknown.
    variance_factor_interval : (float, float) or None
        Its 95% interval.
    places : (n,) integer array
        Positions of the predicted rows in the table.
    predicted : (n,) array
        Predictions for these rows by members that were not trained on them.
    """

    tau2: float
    epsilon: float
    variance_factor: float | None
    variance_factor_interval: tuple[float, float] | None
    places: npt.NDArray[np.int64]
    predicted: Floats

    @property
    def rows(self) -> int:
        """Number of predicted rows."""
        return len(self.places)


@dataclass(frozen=True, kw_only=True)
class QuickFit(OutOfFoldFit):
    """The small cross-fitted ensemble of an inspection.

    Attributes
    ----------
    r2, r2_stderr : float
        Weighted R² to the true labels, out of fold, and its standard error.
    r2_alike, r2_alike_stderr : float
        Unweighted R², which does not depend on small error bars, and its standard error.
    """

    r2: float
    r2_stderr: float
    r2_alike: float
    r2_alike_stderr: float


AnyFit = TypeVar("AnyFit", bound=OutOfFoldFit)


@dataclass(frozen=True)
class Inspection(Generic[AnyFit]):
    """Result of inspecting a table's error bars.

    Attributes
    ----------
    table : LabelledTable
        The table.
    variance : (N,) array
        σ², with the median in place of unknown ones; +inf for ignored labels.
    label_variance : float
        Variance of the labels without their noise, in squared label units.
    quantiles : dict of float to float
        Quantiles of σ², by their level.
    effective_sample_size : float
        Kish's effective sample size for the weights 1/σ².
    fit : QuickFit or OutOfFoldFit
        The fit whose predictions were used.
    worth : float
        Number of labels without weights that teach as much as one label with weights 1/(σ²+τ²).
    remarks : list of Remark
        Remarks on rows and columns.
    finding : Finding
        Finding about the error bars.
    """

    table: LabelledTable
    variance: Floats
    label_variance: float
    quantiles: dict[float, float]
    effective_sample_size: float
    fit: AnyFit
    worth: float
    remarks: list[Remark]
    finding: Finding

    @property
    def gain(self) -> float:
        """Fraction by which the weights 1/(σ²+τ²) lower the variance of an estimate."""
        return 1 - 1 / self.worth

    def record(self: Inspection[QuickFit]) -> InspectionRecord:
        """Return the inspection as `biv inspect --json` prints it, without the rows."""
        names = [field.name for field in fields(QuickFitRecord)]
        return InspectionRecord(
            files={str(path): count for path, count in self.table.files.items()},
            rows=len(self.table),
            rows_without_label=self.table.unlabelled,
            columns=self.table.schema,
            label_mean=float(np.mean(self.table.y)),
            noisy_label_variance=float(np.var(self.table.y)),
            label_variance=self.label_variance,
            variance_quantiles={f"{q:g}": v for q, v in self.quantiles.items()},
            effective_sample_size=self.effective_sample_size,
            quick_fit=QuickFitRecord(**{name: getattr(self.fit, name) for name in names}),
            expected_variance_reduction=self.gain,
            suggested_epsilon=self.fit.epsilon / self.label_variance,
            suggested_epsilon_absolute=self.fit.epsilon,
            finding=self.finding.record(),
            remarks=[remark.record() for remark in self.remarks],
        )


@dataclass(frozen=True, kw_only=True)
class QuickFitRecord:
    """Numbers of a :class:`QuickFit`, without its rows."""

    rows: int
    tau2: float
    epsilon: float
    r2: float
    variance_factor: float | None
    variance_factor_interval: tuple[float, float] | None
    r2_stderr: float
    r2_alike: float
    r2_alike_stderr: float


@dataclass(frozen=True, kw_only=True)
class InspectionRecord:
    """Content of `biv inspect --json`; see :class:`Inspection`."""

    files: dict[str, int]
    rows: int
    rows_without_label: int
    columns: Schema
    label_mean: float
    noisy_label_variance: float
    label_variance: float
    variance_quantiles: dict[str, float]
    effective_sample_size: float
    quick_fit: QuickFitRecord
    expected_variance_reduction: float
    suggested_epsilon: float
    suggested_epsilon_absolute: float
    finding: FindingRecord
    remarks: list[RemarkRecord]

    def to_json(self) -> dict[str, Any]:
        """Return the record as `biv inspect --json` prints it."""
        return dict(typed_json.to_json(self))


def inspect(table: LabelledTable, *, seed: int = 0, progress: bool = False) -> Inspection[QuickFit]:
    r"""Inspect the error bars of a table with the help of a quick fit.

    Parameters
    ----------
    table : LabelledTable
        Table with error bars. Unknown ones are replaced by the median.
    seed : int, default=0
        Seed of the quick fit.
    progress : bool, default=False
        Whether to show a progress bar on a terminal.

    Returns
    -------
    Inspection
        Statistics of the error bars, remarks, and the finding about them.

    Raises
    ------
    ValueError
        If the table has no error bars, or no model can be trained on it.

    Notes
    -----
    If residuals have the variances v = σ² + τ², weights 1/v lower the variance of a mean, or of a
    coefficient, by the fraction

    .. math:: 1 - \frac{1/\overline{1/v}}{\overline v},

    which is one minus the ratio of the harmonic mean of v to its mean. τ² is that of the quick fit.
    """
    if table.variance is None:
        raise ValueError("the table has no error bars to inspect: name their column")
    require_learnable(table, unknown="median")
    fit, messages = _quick_fit(table, _fill_median(table.variance), seed, progress)
    return inspect_fit(table, fit, messages, seed=seed)


def _fill_median(variance: Floats) -> Floats:
    """Return the variances with the median in place of unknown ones."""
    median = float(np.median(variance[np.isfinite(variance)]))
    return np.where(np.isnan(variance), median, variance)


def inspect_fit(
    table: LabelledTable,
    fit: AnyFit,
    messages: Sequence[str] = (),
    *,
    seed: int = 0,
    calibrated: bool = False,
) -> Inspection[AnyFit]:
    """Inspect the error bars of a table with the help of an existing fit.

    Parameters
    ----------
    table : LabelledTable
        Table with error bars.
    fit : OutOfFoldFit
        Fit of the table.
    messages : sequence of str, default=()
        Warnings of the fit, which become remarks.
    seed : int, default=0
        Seed that draws the rows used for rank correlations, if there are many.
    calibrated : bool, default=False
        Whether the fit has multiplied the variances by its factor.
    """
    assert table.variance is not None
    variance = _fill_median(table.variance)
    finite = variance[np.isfinite(variance)]
    label_variance = metrics.label_variance(table.y, variance)
    remarks = [
        *remarks_on(
            table, variance, label_variance, fit.places, fit.predicted, fit.tau2, seed=seed
        ),
        *(Remark("fit", text) for text in messages),
    ]
    return Inspection(
        table,
        variance,
        label_variance,
        {q: float(np.quantile(finite, q)) for q in QUANTILES},
        float(effective_batch_size(inverse_variance_weights(variance, 0.0))),
        fit,
        relative_efficiency(finite + fit.tau2),
        remarks,
        _finding(table, fit, calibrated=calibrated),
    )


def _quick_fit(
    table: LabelledTable, variance: Floats, seed: int, progress: bool
) -> tuple[QuickFit, list[str]]:
    places = sample(len(table), FITTED_ROWS, seed)
    y, fitted_variance = table.y[places], variance[places]
    model = BIVRegressor(
        members=QUICK_FOLDS,
        folds=QUICK_FOLDS,
        max_epochs=QUICK_EPOCHS,
        keep=tuple(table.features.columns),
        random_state=seed,
        verbose=progress,
    )
    with warnings.catch_warnings(record=True) as caught, naming_cells(table, places):
        warnings.simplefilter("always")
        model.fit(
            table.features.iloc[places],
            y,
            y_var=fitted_variance,
            sample_weight=None if table.weight is None else table.weight[places],
        )
    # Warnings that training ended early do not matter here, and the finding covers error bars.
    remarks = [str(w.message) for w in caught if w.category is ManyCategoriesWarning]
    r2, alike = r2_scores(model.out_of_fold_, y, fitted_variance)
    return (
        QuickFit(
            tau2=float(model.tau2_),
            epsilon=float(model.epsilon_ or 0.0),
            variance_factor=model.variance_factor_,
            variance_factor_interval=model.variance_factor_interval_,
            places=places,
            predicted=model.out_of_fold_,
            r2=r2.value,
            r2_stderr=r2.stderr,
            r2_alike=alike.value,
            r2_alike_stderr=alike.stderr,
        ),
        remarks,
    )


def _finding(table: LabelledTable, fit: OutOfFoldFit, *, calibrated: bool) -> Finding:
    assert table.variance is not None
    reading = "variance" if table.target.std is None else "std"
    return findings.judge(
        fit.predicted,
        table.y[fit.places],
        table.variance[fit.places],
        None if table.target.interval is not None else reading,  # ends are neither σ nor σ²
        calibrated=fit.variance_factor if calibrated else None,
    )
