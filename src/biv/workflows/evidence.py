"""What a report on a table shows: sums over all rows, and as many single rows as can be seen.

A model folder keeps it beside the model, so that a report can be made when the table is elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
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
POINTS = 1_500  # rows of a cloud at most
JUDGED = 65_536  # rows that a model is judged on at most
LOOKED_AT = 20  # rows


class OutOfFoldPredictions(NamedTuple):
    """Rows of a table that a model predicts and has not learned from.

    Attributes:
        places: Of these rows in the table.
        predicted: For each.
        std: How far off the model says each may be; the label's own noise is not in it.
        variance: σ² of each label, 0 where there are no error bars; +inf if it is to be ignored.
    """

    places: npt.NDArray[np.int64]
    predicted: Floats
    std: Floats
    variance: Floats


@dataclass(frozen=True, kw_only=True)
class TableEvidence:
    """All that a report draws of a table and of predictions for it.

    Attributes:
        target: The label's name.
        rows: With a label.
        looked_at: Of these, whose error bars are looked at; of a stream, those held out.
        judged: Rows that predictions are judged on.
        label_variance: Of the labels without their noise.
        tau2: The variance of the model's own error.
        epsilon: In the same units, if there is one.
        bars: Of σ² where it is known: quantiles, a histogram, effective sample sizes, what
            weighting is worth, and which share of the labels holds which share of the weight; None
            without error bars.
        cloud: Some rows: label, σ, prediction and its standard deviation.
        residuals: Mean squared residuals in bins of σ²; empty without error bars.
        coverage: How often labels lie within the intervals that are predicted, by their level.
        look_at: The rows that are furthest off.
        remarks: What else there is to look at.
        finding: What residuals say about the error bars; None without any.
    """

    target: str
    rows: Count
    looked_at: Count
    judged: Count
    label_variance: Positive
    tau2: NonNegative
    epsilon: NonNegative | None
    bars: ErrorBarSummary | None
    cloud: RowSample
    residuals: BinnedResiduals
    coverage: IntervalCoverage
    look_at: list[Outlier]
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
        """From a fit, by its predictions for rows that the networks making them had not seen.

        Args:
            model: Fitted on the table, or judged on it: ``out_of_fold_`` is of its rows.
            table: Of labels.
            seed: Of the rows that are judged, where there are many.
            wording: How its texts name settings.
        """
        places = sample(len(table), JUDGED, seed)
        known = model._fitted.new_variance(table.y, table.variance, None)
        noise = np.zeros(len(table)) if known is None else known[:, 0]
        predicted = np.asarray(model.out_of_fold_, dtype=np.float64)[places]
        _, std = model.predict(table.features.iloc[places], return_std=True)
        tau2, epsilon = float(model.tau2_), model.epsilon_
        seen = None
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
            seen = inspect_fit(table, fit, seed=seed, calibrated=calibrated)
        return cls.of(
            table,
            OutOfFoldPredictions(places, predicted, std, noise[places]),
            label_variance=float(model._fitted.labels[0].std) ** 2,
            tau2=tau2,
            epsilon=None if epsilon is None else float(epsilon),
            seen=seen,
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
        seen: Inspection[OutOfFoldFit] | None,
        wording: Wording = ADVICE_OPTIONS,
    ) -> TableEvidence:
        """From a table and what a model says of rows that it has not learned from.

        Args:
            table: Of labels.
            judged: The rows.
            label_variance: Of the labels without their noise.
            tau2: Of the model.
            epsilon: Of its loss.
            seen: What there is to say of the error bars; None without any.
            wording: How its texts name settings.
        """
        used = np.isfinite(judged.variance) & np.isfinite(judged.predicted)
        places = judged.places[used]
        predicted, std, variance = (column[used] for column in judged[1:])
        y, given = table.y[places], table.variance
        unknown = np.zeros(len(table), dtype=bool) if given is None else np.isnan(given)
        off = np.abs(y - predicted) / np.sqrt(np.maximum(variance + std**2, np.finfo(float).tiny))
        shown = _spread_out(len(places))
        square = (y - predicted) ** 2
        known = ~unknown[places]
        return cls(
            target=table.target.name,
            rows=len(table),
            looked_at=len(table),
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
            if seen is None
            else BinnedResiduals.of(variance[known], square[known]),
            coverage=IntervalCoverage.of(off),
            look_at=[
                Outlier(
                    where=table.where(int(places[k])),
                    y=float(y[k]),
                    sigma=float(np.sqrt(variance[k])),
                    sigma_unknown=bool(unknown[places[k]]),
                    predicted=float(predicted[k]),
                    off=float(off[k]),
                )
                for k in np.argsort(-off, kind="stable")[:LOOKED_AT]
            ],
            remarks=[] if seen is None else [remark.record(wording) for remark in seen.remarks],
            finding=None if seen is None else seen.finding.record(wording),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as evidence.json holds it."""
        return {"format": FORMAT, **typed_json.to_json(self)}

    @classmethod
    def read(cls, path: Path) -> TableEvidence:
        """Return the evidence that a file holds.

        Raises:
            ValueError: The file is damaged, or of another version.
        """
        found = typed_json.read(path, cls, FORMAT)
        with typed_json.errors_name_file(path):
            found._check()
        return found

    def _check(self) -> None:
        """Check what types do not say.

        Raises:
            ValueError: Lists that belong together differ in length, or something is missing.
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
        wanted = {f"{q:g}" for q in QUANTILES}
        if set(self.bars.quantiles) != wanted:
            raise ValueError(f"bars.quantiles must have {', '.join(sorted(wanted))}")
        edges = self.bars.edges
        rising = len(edges) > 1 and edges == sorted(edges) and edges[-1] > 0
        if not rising or len(edges) != len(self.bars.histogram) + 1:
            raise ValueError("bars.edges must rise, and be one more than bars.histogram")


def _require_equal_lengths(name: str, record: object) -> None:
    lengths = {key: len(values) for key, values in msgspec.to_builtins(record).items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        found = ", ".join(f"{length} in {key}" for key, length in lengths.items())
        raise ValueError(f"{name} must have lists of one length, and none empty; got {found}")


def _spread_out(count: int) -> npt.NDArray[np.int64]:
    """Places of all rows, or of so many as a cloud shows, evenly spread over the table."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(np.int64))
