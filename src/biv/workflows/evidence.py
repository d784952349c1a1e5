"""Data that a report shows about a table: statistics of all rows, and a sample of single rows.

A model folder keeps them beside the model, so that a report can be made without the table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from biv._utils import typed_json
from biv._utils.typed_json import Count, NonNegative, Positive
from biv._utils.wording import ADVICE_OPTIONS, Wording
from biv.estimator.findings import FindingRecord
from biv.estimator.regressor import BIVRegressor
from biv.tables import LabelledTable
from biv.workflows.evidence_parts import (
    QUANTILES,
    BinnedResiduals,
    ErrorBarSummary,
    IntervalCoverage,
    Outlier,
    RemarkRecord,
    RowSample,
)
from biv.workflows.inspection import Inspection, OutOfFoldFit, inspect_fit
from biv.workflows.remarks import sample

Floats = npt.NDArray[np.float64]

FORMAT = "biv evidence 1"
POINTS = 1_500  # largest number of points of a scatter plot
JUDGED = 65_536  # largest number of rows that a model is judged on
OUTLIERS_LISTED = 20  # number of outliers that are listed


class OutOfFoldPredictions(NamedTuple):
    """Predictions for rows of a table that the model was not trained on.

    Attributes
    ----------
    places : (n,) integer array
        Positions of these rows in the table.
    predicted : (n,) array
        Predicted labels.
    std : (n,) array
        Predicted standard deviations, without the noise of the labels.
    variance : (n,) array
        σ² of the labels; 0 without error bars, +inf for an ignored label.
    """

    places: npt.NDArray[np.int64]
    predicted: Floats
    std: Floats
    variance: Floats


class TableEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Data that a report shows about a table and predictions for it.

    Attributes
    ----------
    target : str
        Name of the label.
    rows : int
        Number of rows with a label.
    rows_summarised : int
        Number of rows whose error bars are summarised; in streamed training, the held-out rows.
    judged : int
        Number of rows that predictions are judged on.
    label_variance : float
        Variance of the labels without their noise, in squared label units.
    tau2 : float
        Variance of the model's own error, in squared label units.
    epsilon : float or None
        ε in squared label units, if the loss has one.
    bars : ErrorBarSummary or None
        Statistics of the known σ²; None without error bars.
    cloud : RowSample
        Label, σ, prediction and its standard deviation of some rows.
    residuals : BinnedResiduals
        Mean squared residuals in bins of σ²; empty without error bars.
    coverage : IntervalCoverage
        Fraction of the labels within their predicted intervals, by level.
    outliers : list of Outlier
        Rows that are furthest from their predictions.
    remarks : list of RemarkRecord
        Other remarks on the table.
    finding : FindingRecord or None
        Finding about the error bars; None without any.
    """

    target: str
    rows: Count
    rows_summarised: Count = msgspec.field(name="looked_at")
    judged: Count
    label_variance: Positive
    tau2: NonNegative
    epsilon: NonNegative | None
    bars: ErrorBarSummary | None
    cloud: RowSample
    residuals: BinnedResiduals
    coverage: IntervalCoverage
    outliers: list[Outlier] = msgspec.field(name="look_at")
    remarks: list[RemarkRecord]
    finding: FindingRecord | None = None

    @classmethod
    def from_model(
        cls,
        model: BIVRegressor,
        table: LabelledTable,
        *,
        seed: int = 0,
        wording: Wording = ADVICE_OPTIONS,
    ) -> TableEvidence:
        """Collect the evidence of a fit from its out-of-fold predictions.

        Parameters
        ----------
        model : BIVRegressor
            Fitted model whose ``out_of_fold_`` is about the rows of `table`.
        table : LabelledTable
            Table with the labels.
        seed : int, default=0
            Seed that draws the rows that are judged, if there are many.
        wording : Wording
            How texts name settings.
        """
        places = sample(len(table), JUDGED, seed)
        known = model._fitted.new_variance(table.y, table.variance, None)
        noise = np.zeros(len(table)) if known is None else known[:, 0]
        predicted = np.asarray(model.out_of_fold_, dtype=np.float64)[places]
        _, std = model.predict(table.features.iloc[places], return_std=True)
        tau2, epsilon = float(model.tau2_), model.epsilon_
        inspection = None
        if table.variance is not None:
            fit = OutOfFoldFit(
                tau2=tau2,
                epsilon=tau2 if epsilon is None else float(epsilon),
                variance_factor=model.variance_factor_,
                variance_factor_interval=model.variance_factor_interval_,
                places=places,
                predicted=predicted,
            )
            calibrated = model.calibrate_variance
            inspection = inspect_fit(table, fit, seed=seed, calibrated=calibrated)
        return cls.of(
            table,
            OutOfFoldPredictions(places, predicted, std, noise[places]),
            label_variance=float(model._fitted.labels[0].std) ** 2,
            tau2=tau2,
            epsilon=None if epsilon is None else float(epsilon),
            inspection=inspection,
            wording=wording,
        )

    @classmethod
    def of(
        cls,
        table: LabelledTable,
        judged: OutOfFoldPredictions,
        *,
        label_variance: float,
        tau2: float,
        epsilon: float | None,
        inspection: Inspection[OutOfFoldFit] | None,
        wording: Wording = ADVICE_OPTIONS,
    ) -> TableEvidence:
        """Collect the evidence of a table from out-of-fold predictions.

        Parameters
        ----------
        table : LabelledTable
            Table with the labels.
        judged : OutOfFoldPredictions
            Predictions for some of its rows.
        label_variance : float
            Variance of the labels without their noise, in squared label units.
        tau2 : float
            Variance of the model's own error, in squared label units.
        epsilon : float or None
            ε of the loss, in squared label units.
        inspection : Inspection or None
            Inspection of the error bars; None without any.
        wording : Wording
            How texts name settings.
        """
        used = np.isfinite(judged.variance) & np.isfinite(judged.predicted)
        places = judged.places[used]
        predicted, std, variance = (column[used] for column in judged[1:])
        y, given = table.y[places], table.variance
        unknown = np.zeros(len(table), dtype=bool) if given is None else np.isnan(given)
        standardised = np.abs(y - predicted) / np.sqrt(
            np.maximum(variance + std**2, np.finfo(float).tiny)
        )
        shown = _spread_out(len(places))
        square = (y - predicted) ** 2
        known = ~unknown[places]
        return cls(
            target=table.target.name,
            rows=len(table),
            rows_summarised=len(table),
            judged=len(places),
            label_variance=label_variance,
            tau2=tau2,
            epsilon=epsilon,
            bars=None
            if given is None
            else ErrorBarSummary.of(given[~unknown], label_variance, tau2, epsilon),
            cloud=RowSample(
                y=y[shown].tolist(),
                sigma=np.sqrt(variance[shown]).tolist(),
                predicted=predicted[shown].tolist(),
                std=std[shown].tolist(),
            ),
            residuals=BinnedResiduals()
            if inspection is None
            else BinnedResiduals.of(variance[known], square[known]),
            coverage=IntervalCoverage.of(standardised),
            outliers=[
                Outlier(
                    where=table.where(int(places[k])),
                    y=float(y[k]),
                    sigma=float(np.sqrt(variance[k])),
                    sigma_unknown=bool(unknown[places[k]]),
                    predicted=float(predicted[k]),
                    standardised_residual=float(standardised[k]),
                )
                for k in np.argsort(-standardised, kind="stable")[:OUTLIERS_LISTED]
            ],
            remarks=[]
            if inspection is None
            else [remark.record(wording) for remark in inspection.remarks],
            finding=None if inspection is None else inspection.finding.record(wording),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as evidence.json holds it."""
        return {"format": FORMAT, **typed_json.to_json(self)}

    @classmethod
    def read(cls, path: Path) -> TableEvidence:
        """Read the evidence from a file.

        Raises
        ------
        ValueError
            If the file is damaged, or of another version.
        """
        evidence = typed_json.read(path, cls, FORMAT)
        with typed_json.errors_name_file(path):
            evidence._check()
        return evidence

    def _check(self) -> None:
        """Check the relations between fields.

        Raises
        ------
        ValueError
            If lists that belong together differ in length, or something is missing.
        """
        _require_equal_lengths("cloud", self.cloud)
        _require_equal_lengths("coverage", self.coverage)
        if not {0.68, 0.95} <= set(self.coverage.level):
            raise ValueError("coverage.level must hold 0.68 and 0.95")
        if self.bars is None:
            return
        bins = self.residuals
        if not (bins.variance and bins.mean and bins.stderr):
            raise ValueError("residuals must have variance, mean and stderr")
        _require_equal_lengths("residuals", bins)
        _require_equal_lengths("bars.weight_shares", self.bars.weight_shares)
        required = {f"{q:g}" for q in QUANTILES}
        if set(self.bars.quantiles) != required:
            raise ValueError(f"bars.quantiles must have {', '.join(sorted(required))}")
        edges = self.bars.edges
        rising = len(edges) > 1 and edges == sorted(edges) and edges[-1] > 0
        if not rising or len(edges) != len(self.bars.histogram) + 1:
            raise ValueError(
                "bars.edges must increase, and have one element more than bars.histogram"
            )


def _require_equal_lengths(name: str, record: object) -> None:
    lengths = {key: len(values) for key, values in msgspec.to_builtins(record).items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        listed = ", ".join(f"{length} in {key}" for key, length in lengths.items())
        raise ValueError(f"{name} must have non-empty lists of equal length; got {listed}")


def _spread_out(count: int) -> npt.NDArray[np.int64]:
    """Return positions of all rows, or of at most 1,500 that are evenly spread over the table."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(np.int64))
