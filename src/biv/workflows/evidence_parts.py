"""Parts of a table's evidence: records, each with the function that computes it from arrays.

Field names are those of evidence.json. Where JSON names a field by its formula, such as 1/(σ²+ε),
the record is a msgspec Struct, which can rename its fields; a dataclass cannot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import UNSET, Meta, Struct, UnsetType

from biv._utils.typed_json import Count, NonNegative, Number, Positive
from biv.losses.weights import effective_batch_size, inverse_variance_weights

Floats = npt.NDArray[np.float64]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
BINS, RESIDUAL_BINS, MIN_IN_BIN = 50, 20, 20
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.68, 0.8, 0.9, 0.95, 0.99)
WIDE = 30.0  # ratio of the largest to the smallest value above which an axis is logarithmic

Squarable = Annotated[float, Meta(ge=-1e150, le=1e150)]
Deviation = Annotated[float, Meta(ge=0, le=1e150)]
Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True, kw_only=True)
class RowSample:
    """A sample of the rows that predictions are judged on.

    Attributes
    ----------
    y : list of float
        Labels.
    sigma : list of float
        Their error bars, σ; 0 if there are none.
    predicted : list of float
        Predictions.
    std : list of float
        Predicted standard deviations, without the noise of the labels.
    """

    y: list[Squarable]
    sigma: list[Deviation]
    predicted: list[Squarable]
    std: list[Deviation]


@dataclass(frozen=True, kw_only=True)
class BinnedResiduals:
    """Mean squared residuals of rows with nearly the same σ²; empty without error bars.

    Attributes
    ----------
    variance : list of float
        Mean σ² of each bin.
    mean : list of float
        Mean squared residual of each bin.
    stderr : list of float
        Standard error of that mean.
    """

    variance: list[NonNegative] = field(default_factory=list)
    mean: list[NonNegative] = field(default_factory=list)
    stderr: list[NonNegative] = field(default_factory=list)

    @classmethod
    def of(cls, variance: Floats, square: Floats) -> BinnedResiduals:
        """Sort rows by σ² and divide them into at most 20 bins of at least 20 rows.

        Parameters
        ----------
        variance : (N,) array
            σ² of the labels.
        square : (N,) array
            Squared residuals.

        Examples
        --------
        >>> BinnedResiduals.of(np.array([1.0, 2.0, 3.0]), np.array([2.0, 2.0, 5.0])).mean
        [3.0]
        """
        order = np.argsort(variance, kind="stable")
        parts = np.array_split(order, max(1, min(RESIDUAL_BINS, len(order) // MIN_IN_BIN)))
        return cls(
            variance=[float(variance[part].mean()) for part in parts],
            mean=[float(square[part].mean()) for part in parts],
            stderr=[float(square[part].std() / np.sqrt(len(part))) for part in parts],
        )


class IntervalCoverage(Struct, frozen=True, kw_only=True):
    """Fraction of the labels within their predicted intervals, by the level of the intervals."""

    level: list[Share]
    observed: list[Share] = msgspec.field(name="found")

    @classmethod
    def of(cls, standardised: Floats, levels: Sequence[float] = LEVELS) -> IntervalCoverage:
        """Count labels within central intervals of a normal distribution.

        Parameters
        ----------
        standardised : (N,) array
            Distance of each label from its prediction, in standard deviations.
        levels : sequence of float
            Levels of the intervals.

        Examples
        --------
        >>> IntervalCoverage.of(np.array([0.1, 1.0, 3.0]), levels=(0.68, 0.95)).observed
        [0.3333333333333333, 0.6666666666666666]
        """
        widths = [NormalDist().inv_cdf((1 + level) / 2) for level in levels]
        observed = [float(np.mean(standardised <= width)) for width in widths]
        return cls(level=list(levels), observed=observed)

    def at(self, level: float) -> float:
        """Return the fraction of the labels within the intervals of one level."""
        return self.observed[self.level.index(level)]


class WeightShares(Struct, frozen=True, kw_only=True):
    """Cumulative fraction of the weight over the fraction of the labels, most precise first.

    Attributes
    ----------
    labels : list of float
        Fraction of the labels.
    equal : list of float
        Fraction of the weight without weighting.
    with_epsilon : list of float
        The same for the weights 1/(σ²+ε), if there is an ε.
    with_tau2 : list of float
        The same for the weights 1/(σ²+τ²), if there is no ε.
    plain : list of float
        The same for the weights 1/σ², if every σ² is positive.
    """

    labels: list[NonNegative]
    equal: list[NonNegative] = msgspec.field(name="all alike")
    with_epsilon: list[NonNegative] | UnsetType = msgspec.field(name="1/(σ²+ε)", default=UNSET)
    with_tau2: list[NonNegative] | UnsetType = msgspec.field(name="1/(σ²+τ²)", default=UNSET)
    plain: list[NonNegative] | UnsetType = msgspec.field(name="1/σ²", default=UNSET)

    @classmethod
    def of(
        cls,
        finite: Floats,
        *,
        epsilon: float | None = None,
        tau2: float | None = None,
        points: int = 101,
    ) -> WeightShares:
        """Compute the curves.

        Parameters
        ----------
        finite : (N,) array
            Finite variances.
        epsilon : float or None, default=None
            ε of the loss, if it has one.
        tau2 : float or None, default=None
            Variance of the model's own error, if the loss has no ε.
        points : int, default=101
            Number of points of each curve.

        Examples
        --------
        >>> shares = WeightShares.of(np.array([1.0, 3.0]), epsilon=0.0, points=3)
        >>> shares.labels, shares.with_epsilon
        ([0.0, 0.5, 1.0], [0.0, 0.75, 1.0])
        """
        labels = np.linspace(0, 1, points)

        def curve(weight: Any) -> list[float]:
            if not np.isfinite(weight).all():  # labels with σ² = 0 and ε = 0 hold all the weight
                weight = np.isinf(weight).astype(float)
            held = np.concatenate([[0.0], np.cumsum(np.sort(weight)[::-1]) / weight.sum()])
            fractions: list[float] = np.interp(
                labels * len(weight), np.arange(len(held)), held
            ).tolist()
            return fractions

        def inverse(added: float | None) -> list[float] | UnsetType:
            if added is None:
                return UNSET
            return curve(np.asarray(inverse_variance_weights(finite, added)))

        return cls(
            labels=labels.tolist(),
            equal=curve(np.ones_like(finite)),
            with_epsilon=inverse(epsilon),
            with_tau2=inverse(tau2),
            plain=inverse(0.0 if (finite > 0).all() else None),
        )

    def curves(self) -> dict[str, list[float]]:
        """Return the curves by the name of their weights, as charts show them."""
        curves: dict[str, list[float]] = msgspec.to_builtins(self)
        del curves["labels"]
        return {"unweighted": curves.pop("all alike"), **curves}


class EffectiveSampleSizes(Struct, frozen=True, kw_only=True):
    """Kish's effective sample size for the weights 1/σ² and for the weights 1/(σ²+τ²)."""

    plain: NonNegative = msgspec.field(name="1/σ²")
    with_tau2: NonNegative = msgspec.field(name="1/(σ²+τ²)")


@dataclass(frozen=True, kw_only=True)
class ErrorBarSummary:
    """Statistics of the known σ² and of the weights computed from them.

    Attributes
    ----------
    count : int
        Number of finite σ².
    zeros : int
        Number of σ² that are 0.
    quantiles : dict of str to float
        Quantiles of σ², by their level as JSON has it: "0", "0.05", ..., "1".
    effective_sample_size : EffectiveSampleSizes
        Effective sample sizes for two kinds of weights.
    worth : float or None
        Number of labels without weights that teach as much as one label with weights 1/(σ²+τ²);
        None if a label without noise is worth more than any number.
    log : bool
        Whether an axis of σ² should be logarithmic.
    edges : list of float
        Edges of a histogram of σ², in units of the label variance.
    histogram : list of int
        Number of labels between the edges.
    weight_shares : WeightShares
        Cumulative weight of the labels.
    """

    count: Count
    zeros: Count
    quantiles: dict[str, NonNegative]
    effective_sample_size: EffectiveSampleSizes
    worth: Positive | None
    log: bool
    edges: list[NonNegative]
    histogram: list[Count]
    weight_shares: WeightShares

    @classmethod
    def of(
        cls, variance: Floats, label_variance: float, tau2: float, epsilon: float | None
    ) -> ErrorBarSummary:
        """Summarize the variances of all labels.

        Parameters
        ----------
        variance : (N,) array
            σ² of the labels; +inf for an ignored label.
        label_variance : float
            Variance of the labels without their noise.
        tau2 : float
            Variance of the model's own error.
        epsilon : float or None
            ε of the loss, if it has one.

        Examples
        --------
        >>> summary = ErrorBarSummary.of(np.array([1.0, 1.0, 3.0, np.inf]), 2.0, 0.0, 0.0)
        >>> summary.count, summary.median, summary.worth
        (3, 1.0, 1.2962962962962963)
        """
        finite = variance[np.isfinite(variance)]
        worth = relative_efficiency(finite + tau2)
        positive = finite[finite > 0]
        wide = len(positive) > 0 and positive.max() > WIDE * positive.min()
        shares = positive / label_variance
        edges = (
            np.geomspace(shares.min(), shares.max() * (1 + 1e-9), BINS + 1)
            if wide
            else np.linspace(0.0, shares.max(initial=1e-300) * (1 + 1e-9), BINS + 1)
        )
        return cls(
            count=len(finite),
            zeros=len(finite) - len(positive),
            quantiles={f"{q:g}": float(np.quantile(finite, q)) for q in QUANTILES},
            effective_sample_size=EffectiveSampleSizes(
                plain=float(effective_batch_size(inverse_variance_weights(finite, 0.0))),
                with_tau2=float(effective_batch_size(inverse_variance_weights(finite, tau2))),
            ),
            worth=worth if np.isfinite(worth) else None,
            log=bool(wide),
            edges=edges.tolist(),
            histogram=np.histogram(shares, edges)[0].tolist(),
            weight_shares=WeightShares.of(
                finite, epsilon=epsilon, tau2=tau2 if epsilon is None else None
            ),
        )

    @property
    def median(self) -> float:
        """Median σ²."""
        return self.quantiles["0.5"]


class Outlier(Struct, frozen=True, kw_only=True):
    """A row whose label is far from its prediction.

    Attributes
    ----------
    where : str
        File and row.
    y : float
        Label.
    sigma : float
        Error bar of the label, σ.
    sigma_unknown : bool
        Whether σ was missing in the table and this value was used instead.
    predicted : float
        Prediction.
    standardised_residual : float
        Distance of label and prediction, divided by √(σ² + std²), where std is the predicted
        standard deviation.
    """

    where: str
    y: Number
    sigma: NonNegative
    sigma_unknown: bool
    predicted: Number
    standardised_residual: NonNegative = msgspec.field(name="off")


@dataclass(frozen=True, kw_only=True)
class RemarkRecord:
    """A remark of an inspection: its kind, its text and the rows that it is about."""

    kind: str
    text: str
    rows: str


def relative_efficiency(noise: Floats) -> float:
    """Return the variance of an unweighted mean of labels over that of their weighted mean.

    It is the mean of the noise variances divided by their harmonic mean: 1 if all are equal, +inf
    if one is 0.

    Examples
    --------
    >>> relative_efficiency(np.array([1.0, 3.0]))
    1.3333333333333333
    """
    with np.errstate(divide="ignore"):
        return float(noise.mean() * np.mean(1 / noise))
