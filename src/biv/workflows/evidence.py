"""What a report on a table shows: sums over all rows, and as many single rows as can be seen.

A model folder keeps it beside the model, so that a report can be made when the table is elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
from msgspec import Meta

from biv._utils import typed_json
from biv._utils.typed_json import Count, NonNegative, Number, Positive
from biv.estimator import findings
from biv.estimator.findings import FindingTold
from biv.estimator.model_file import plain
from biv.estimator.regressor import BIVRegressor
from biv.losses.weights import effective_batch_size, inverse_variance_weights
from biv.tables import LabelledTable
from biv.workflows.inspection import (
    QUANTILES,
    Inspection,
    QuickFit,
    examine,
    sample,
    worth_of_weights,
)

Floats = npt.NDArray[np.float64]

FORMAT = "biv evidence 1"
POINTS = 1_500  # rows of a cloud at most
JUDGED = 65_536  # rows that a model is judged on at most
BINS, RESIDUAL_BINS, FEWEST_IN_BIN = 50, 20, 20
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.68, 0.8, 0.9, 0.95, 0.99)
LOOKED_AT = 20  # rows
WIDE = 30.0  # times the smallest, that the largest is: then a logarithmic axis is better


class Judged(NamedTuple):
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


Squarable = Annotated[float, Meta(ge=-1e150, le=1e150)]
Deviation = Annotated[float, Meta(ge=0, le=1e150)]
Share = Annotated[float, Meta(ge=0, le=1)]


class Cloud(TypedDict):
    """Some rows: label, σ, prediction and its standard deviation."""

    y: list[Squarable]
    sigma: list[Deviation]
    predicted: list[Squarable]
    std: list[Deviation]


class Residuals(TypedDict, total=False):
    """Mean squared residuals in bins of σ², with standard errors."""

    variance: list[NonNegative]
    mean: list[NonNegative]
    stderr: list[NonNegative]


class Coverage(TypedDict):
    """Which share of the labels lies in intervals of a level."""

    level: list[Share]
    found: list[Share]


class Bars(TypedDict):
    """Error bars; see :func:`error_bars`."""

    count: Count
    zeros: Count
    quantiles: dict[str, NonNegative]
    effective_sample_size: dict[str, NonNegative]
    worth: Positive | None
    log: bool
    edges: list[NonNegative]
    histogram: list[Count]
    weight_shares: dict[str, list[NonNegative]]


class Outlier(TypedDict):
    """A row that is far from its prediction."""

    where: str
    y: Number
    sigma: NonNegative
    sigma_unknown: bool
    predicted: Number
    off: NonNegative


class RemarkTold(TypedDict):
    """A remark as JSON has it."""

    kind: str
    text: str
    rows: str


@dataclass(frozen=True)
class Evidence:
    """All that a report draws of a table and of predictions for it, in what JSON has.

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
    bars: Bars | None
    cloud: Cloud
    residuals: Residuals
    coverage: Coverage
    look_at: list[Outlier]
    remarks: list[RemarkTold]
    finding: FindingTold | None = None

    @classmethod
    def of_model(
        cls,
        model: BIVRegressor,
        table: LabelledTable,
        *,
        seed: int = 0,
        names: Mapping[str, str] = findings.OPTIONS,
    ) -> Evidence:
        """From a fit, by its predictions for rows that the networks making them had not seen.

        Args:
            model: Fitted on the table, or judged on it: ``out_of_fold_`` is of its rows.
            table: Of labels.
            seed: Of the rows that are judged, where there are many.
            names: Of the options that the finding names.
        """
        places = sample(len(table), JUDGED, seed)
        known = model._fitted.new_variance(table.y, table.variance, None)
        noise = np.zeros(len(table)) if known is None else known[:, 0]
        predicted = np.asarray(model.out_of_fold_, dtype=np.float64)[places]
        _, std = model.predict(table.features.iloc[places], return_std=True)
        tau2, epsilon = float(model.tau2_), model.epsilon_
        seen = None
        if table.variance is not None:
            fit = QuickFit(
                len(places),
                tau2,
                tau2 if epsilon is None else float(epsilon),
                float("nan"),
                model.variance_factor_,
                model.variance_factor_interval_,
                places,
                predicted,
            )
            calibrated = model.calibrate_variance
            seen = examine(table, fit, seed=seed, calibrated=calibrated, names=names)
        return cls.of(
            table,
            Judged(places, predicted, std, noise[places]),
            label_variance=float(model._fitted.labels[0].std) ** 2,
            tau2=tau2,
            epsilon=None if epsilon is None else float(epsilon),
            seen=seen,
        )

    @classmethod
    def of(
        cls,
        table: LabelledTable,
        judged: Judged,
        *,
        label_variance: float,
        tau2: float,
        epsilon: float | None,
        seen: Inspection | None,
    ) -> Evidence:
        """From a table and what a model says of rows that it has not learned from.

        Args:
            table: Of labels.
            judged: The rows.
            label_variance: Of the labels without their noise.
            tau2: Of the model.
            epsilon: Of its loss.
            seen: What there is to say of the error bars; None without any.
        """
        used = np.isfinite(judged.variance) & np.isfinite(judged.predicted)
        places = judged.places[used]
        predicted, std, variance = (column[used] for column in judged[1:])
        y, given = table.y[places], table.variance
        unknown = np.zeros(len(table), dtype=bool) if given is None else np.isnan(given)
        off = np.abs(y - predicted) / np.sqrt(np.maximum(variance + std**2, np.finfo(float).tiny))
        shown = _spread_out(len(places))
        return cls(
            table.target.name,
            len(table),
            len(table),
            len(places),
            label_variance,
            tau2,
            epsilon,
            None if given is None else error_bars(given[~unknown], label_variance, tau2, epsilon),
            {
                "y": y[shown].tolist(),
                "sigma": np.sqrt(variance[shown]).tolist(),
                "predicted": predicted[shown].tolist(),
                "std": std[shown].tolist(),
            },
            {}
            if seen is None
            else binned_residuals(
                variance[~unknown[places]], ((y - predicted) ** 2)[~unknown[places]]
            ),
            coverage(off),
            [
                {
                    "where": table.where(int(places[k])),
                    "y": float(y[k]),
                    "sigma": float(np.sqrt(variance[k])),
                    "sigma_unknown": bool(unknown[places[k]]),
                    "predicted": float(predicted[k]),
                    "off": float(off[k]),
                }
                for k in np.argsort(-off, kind="stable")[:LOOKED_AT]
            ],
            []
            if seen is None
            else [{"kind": r.kind, "text": r.text, "rows": r.rows} for r in seen.remarks],
            None if seen is None else seen.finding.told(),
        )

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"format": FORMAT, **plain(asdict(self))}

    @classmethod
    def read(cls, path: Path) -> Evidence:
        """Return the evidence that a file holds.

        Raises:
            ValueError: The file is damaged, or of another version.
        """
        found = typed_json.read(path, cls, FORMAT)
        with typed_json.damaged(path):
            found._check()
        return found

    def _check(self) -> None:
        """Check what types do not say.

        Raises:
            ValueError: Lists that belong together differ in length, or something is missing.
        """
        for name in ("cloud", "coverage", "residuals"):
            _require_equal_lengths(name, getattr(self, name))
        if not {0.68, 0.95} <= set(self.coverage["level"]):
            raise ValueError("coverage.level must hold 0.68 and 0.95")
        if self.bars is None:
            return
        if set(self.residuals) != {"variance", "mean", "stderr"}:
            raise ValueError("residuals must have variance, mean and stderr")
        for name, found, keys in (
            ("quantiles", self.bars["quantiles"], {f"{q:g}" for q in QUANTILES}),
            ("effective_sample_size", self.bars["effective_sample_size"], {"1/σ²", "1/(σ²+τ²)"}),
        ):
            if set(found) != keys:
                raise ValueError(f"bars.{name} must have {', '.join(sorted(keys))}")
        shares, edges = self.bars["weight_shares"], self.bars["edges"]
        _require_equal_lengths("bars.weight_shares", shares)
        if "labels" not in shares:
            raise ValueError("bars.weight_shares must have labels")
        rising = len(edges) > 1 and edges == sorted(edges) and edges[-1] > 0
        if not rising or len(edges) != len(self.bars["histogram"]) + 1:
            raise ValueError("bars.edges must rise, and be one more than bars.histogram")


def _require_equal_lengths(name: str, lists: Mapping[str, Any]) -> None:
    lengths = {key: len(values) for key, values in lists.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        found = ", ".join(f"{length} in {key}" for key, length in lengths.items())
        raise ValueError(f"{name} must have lists of one length, and none empty; found {found}")


def _spread_out(count: int) -> npt.NDArray[np.int64]:
    """Places of all rows, or of so many as a cloud shows, evenly spread over the table."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(np.int64))


def error_bars(variance: Floats, label_variance: float, tau2: float, epsilon: float | None) -> Bars:
    """Of all labels: how large σ² is, and what weights make of it.

    Example:
        >>> found = error_bars(np.array([1.0, 1.0, 3.0, np.inf]), 2.0, 0.0, 0.0)
        >>> found["count"], found["quantiles"]["0.5"], found["worth"]
        (3, 1.0, 1.2962962962962963)
    """
    finite = variance[np.isfinite(variance)]
    worth = worth_of_weights(finite + tau2)
    positive = finite[finite > 0]
    wide = len(positive) > 0 and positive.max() > WIDE * positive.min()
    shares = positive / label_variance
    edges = (
        np.geomspace(shares.min(), shares.max() * (1 + 1e-9), BINS + 1)
        if wide
        else np.linspace(0.0, shares.max(initial=1e-300) * (1 + 1e-9), BINS + 1)
    )
    return {
        "count": len(finite),
        "zeros": len(finite) - len(positive),
        "quantiles": {f"{q:g}": float(np.quantile(finite, q)) for q in QUANTILES},
        "effective_sample_size": {
            "1/σ²": float(effective_batch_size(inverse_variance_weights(finite, 0.0))),
            "1/(σ²+τ²)": float(effective_batch_size(inverse_variance_weights(finite, tau2))),
        },
        "worth": worth if np.isfinite(worth) else None,  # a label without noise beats any number
        "log": bool(wide),
        "edges": edges.tolist(),
        "histogram": np.histogram(shares, edges)[0].tolist(),
        "weight_shares": weight_shares(finite, tau2, "1/(σ²+τ²)")
        if epsilon is None
        else weight_shares(finite, epsilon),
    }


def weight_shares(
    finite: Floats, epsilon: float, name: str = "1/(σ²+ε)", points: int = 101
) -> dict[str, list[float]]:
    """Which share of the weight the best labels hold, by their share of the labels.

    Args:
        finite: Variances.
        epsilon: That is added to them.
        name: Of these weights.
        points: Of each curve.

    Example:
        >>> found = weight_shares(np.array([1.0, 3.0]), epsilon=0.0, points=3)
        >>> found["labels"], found["1/(σ²+ε)"]
        ([0.0, 0.5, 1.0], [0.0, 0.75, 1.0])
    """
    labels = np.linspace(0, 1, points)
    ways = {"all alike": np.ones_like(finite)}
    ways[name] = np.asarray(inverse_variance_weights(finite, epsilon))
    if (finite > 0).all():
        ways["1/σ²"] = np.asarray(inverse_variance_weights(finite, 0.0))
    found = {"labels": labels.tolist()}
    for way, weight in ways.items():
        if not np.isfinite(weight).all():  # ε is 0, and so is a variance: it has all the weight
            weight = np.isinf(weight).astype(float)
        held = np.concatenate([[0.0], np.cumsum(np.sort(weight)[::-1]) / weight.sum()])
        found[way] = np.interp(labels * len(weight), np.arange(len(held)), held).tolist()
    return found


def binned_residuals(variance: Floats, square: Floats) -> Residuals:
    """Mean squared residuals of rows with nearly the same σ², with standard errors.

    Example:
        >>> binned_residuals(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 5.0]))["mean"]
        [3.0]
    """
    order = np.argsort(variance, kind="stable")
    parts = np.array_split(order, max(1, min(RESIDUAL_BINS, len(order) // FEWEST_IN_BIN)))
    return {
        "variance": [float(variance[part].mean()) for part in parts],
        "mean": [float(square[part].mean()) for part in parts],
        "stderr": [float(square[part].std() / np.sqrt(len(part))) for part in parts],
    }


def coverage(off: Floats, levels: Sequence[float] = LEVELS) -> Coverage:
    """How many labels lie within central intervals of a normal distribution, by their level.

    Args:
        off: How far each label is from its prediction, in standard deviations.
        levels: Of the intervals.

    Example:
        >>> coverage(np.array([0.1, 1.0, 3.0]), levels=(0.68, 0.95))["found"]
        [0.3333333333333333, 0.6666666666666666]
    """
    widths = [NormalDist().inv_cdf((1 + level) / 2) for level in levels]
    return {"level": list(levels), "found": [float(np.mean(off <= width)) for width in widths]}
