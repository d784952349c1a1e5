"""What the error bars of a table look like, what they are worth, and which rows to look at."""

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

FITTED_ROWS = 20_000  # at most, for the quick fit
QUICK_EPOCHS, QUICK_FOLDS = 25, 4


@dataclass(frozen=True, kw_only=True)
class OutOfFoldFit:
    """A fit that is judged on rows it has not learned from.

    Attributes:
        tau2: Variance of its own error, in squared units of the label.
        epsilon: ε that it would take, in squared units of the label.
        variance_factor: Factor by which the variances seem to be too small; None if unknown.
        variance_factor_interval: Its 95% interval.
        places: Rows of the table that it is judged on.
        predicted: Predictions of these rows by members that have not learned from them.
    """

    tau2: float
    epsilon: float
    variance_factor: float | None
    variance_factor_interval: tuple[float, float] | None
    places: npt.NDArray[np.int64]
    predicted: Floats

    @property
    def rows(self) -> int:
        """Number of rows that it is judged on."""
        return len(self.places)


@dataclass(frozen=True, kw_only=True)
class QuickFit(OutOfFoldFit):
    """The small fit of an inspection, which is judged on the rows that it was fitted on.

    Attributes:
        r2: R² to the true labels, out of fold.
        r2_stderr: Standard error of `r2`.
        r2_alike: R² with all labels alike, which does not rest on the smallest error bars.
        r2_alike_stderr: Standard error of `r2_alike`.
    """

    r2: float
    r2_stderr: float
    r2_alike: float
    r2_alike_stderr: float


AnyFit = TypeVar("AnyFit", bound=OutOfFoldFit)


@dataclass(frozen=True)
class Inspection(Generic[AnyFit]):
    """What there is to say of a table's error bars.

    Attributes:
        table: The table.
        variance: σ², with the median where it was unknown; +inf where a label is to be ignored.
        label_variance: Of the labels without their noise.
        quantiles: Of σ², by their share.
        effective_sample_size: Kish's, of plain inverse-variance weights 1/σ².
        fit: The quick fit.
        worth: How many times as many labels without weights 1/(σ²+τ²) teach as much.
        remarks: What to look at.
        finding: What the residuals say about the error bars.
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
        """By how much weighting by 1/(σ²+τ²) lowers the variance of what is estimated."""
        return 1 - 1 / self.worth

    def record(self: Inspection[QuickFit]) -> InspectionRecord:
        """Return it as `biv inspect --json` prints it, without the rows."""
        names = [own.name for own in fields(QuickFitRecord)]
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
    """The numbers of a :class:`QuickFit`, without its rows."""

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
    """What `biv inspect --json` prints; see :class:`Inspection`."""

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
        """Return it as `biv inspect --json` prints it."""
        return dict(typed_json.to_json(self))


def inspect(table: LabelledTable, *, seed: int = 0, progress: bool = False) -> Inspection[QuickFit]:
    r"""Look at the error bars of a table.

    What weighting buys is, where residuals have the variances v = σ² + τ²,

    .. math:: 1 - \frac{1/\overline{1/v}}{\overline v},

    by which the variance of a mean, or of a coefficient, is lower with weights 1/v than without:
    one less the quotient of the harmonic mean and the mean. τ² is of a quick fit.

    Args:
        table: With error bars; where one is unknown, the median is taken.
        seed: Of the quick fit.
        progress: Whether to show a bar on a terminal.

    Raises:
        ValueError: The table has no error bars, or nothing can be learned from it.
    """
    if table.variance is None:
        raise ValueError("there are no error bars to look at: name their column")
    require_learnable(table, unknown="median")
    fit, warned = _quick_fit(table, _known(table.variance), seed, progress)
    return inspect_fit(table, fit, warned, seed=seed)


def _known(given: Floats) -> Floats:
    """With the median where a variance is unknown."""
    median = float(np.median(given[np.isfinite(given)]))
    return np.where(np.isnan(given), median, given)


def inspect_fit(
    table: LabelledTable,
    fit: AnyFit,
    warned: Sequence[str] = (),
    *,
    seed: int = 0,
    calibrated: bool = False,
) -> Inspection[AnyFit]:
    """What there is to say of the error bars of a table beside a fit that is there already.

    Args:
        table: With error bars.
        fit: Whichever.
        warned: What was said while it was fitted.
        seed: Of the rows that are looked at, where there are many.
        calibrated: Whether the fit has multiplied the variances by its factor.
    """
    assert table.variance is not None
    variance = _known(table.variance)
    finite = variance[np.isfinite(variance)]
    label_variance = metrics.label_variance(table.y, variance)
    remarks = [
        *remarks_on(
            table, variance, label_variance, fit.places, fit.predicted, fit.tau2, seed=seed
        ),
        *(Remark("fit", text) for text in warned),
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
    y, own = table.y[places], variance[places]
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
            y_var=own,
            sample_weight=None if table.weight is None else table.weight[places],
        )
    # That training was cut short is of no interest here; factors have a remark of their own.
    remarks = [str(w.message) for w in caught if w.category is ManyCategoriesWarning]
    r2, alike = r2_scores(model.out_of_fold_, y, own)
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
    taken = "variance" if table.target.std is None else "std"
    return findings.judge(
        fit.predicted,
        table.y[fit.places],
        table.variance[fit.places],
        None if table.target.interval is not None else taken,  # whose ends are no σ
        calibrated=fit.variance_factor if calibrated else None,
    )
