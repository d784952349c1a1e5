"""What the error bars of a table look like, what they are worth, and which rows to look at."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv import findings, metrics
from biv._checks import shortened
from biv.datasets import LabelledTable
from biv.estimator import BIVRegressor
from biv.features import FeatureEncoder
from biv.findings import Finding
from biv.leakage import ranks
from biv.modelfile import plain
from biv.owndata.learnable import naming_cells, require_learnable
from biv.owndata.relation import RELATED, label_correlation
from biv.owndata.scores import r2_scores
from biv.weights import effective_batch_size, inverse_variance_weights

Floats = npt.NDArray[np.float64]

FITTED_ROWS = 20_000  # at most, for the quick fit
QUICK_EPOCHS, QUICK_FOLDS = 25, 4
QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)
HUGE = 100.0  # times the label variance: such a label says next to nothing
COMMON, FEW_VALUES = 0.05, 10  # share of rows with one value, where there are more values than so
FAR_OFF = 5.0  # standard deviations
ROWS_SHOWN, COLUMNS_SHOWN = 5, 3


class Remark(NamedTuple):
    """Something to look at.

    Attributes:
        kind: In a word.
        text: In a sentence.
        rows: Where, the first few; empty if that is nowhere in particular.
    """

    kind: str
    text: str
    rows: str = ""


@dataclass(frozen=True)
class QuickFit:
    """A fit that is judged on rows it has not learned from; for an inspection, a small one.

    Attributes:
        rows: That it was fitted on.
        tau2: The variance of its own error, in squared units of the label.
        epsilon: That it would take, likewise.
        r2: Of rows that it has not seen, to their true labels.
        variance_factor: By which the variances seem to be too small.
        variance_factor_interval: Its 95 % interval.
        places: Which rows of the table.
        predicted: What members that have not seen them predict.
        r2_stderr: The standard error of `r2`.
        r2_alike: The same R² with all labels alike, which does not rest on the smallest error bars.
        r2_alike_stderr: Its standard error.
    """

    rows: int
    tau2: float
    epsilon: float
    r2: float
    variance_factor: float | None
    variance_factor_interval: tuple[float, float] | None
    places: npt.NDArray[np.int64]
    predicted: Floats
    r2_stderr: float = float("nan")
    r2_alike: float = float("nan")
    r2_alike_stderr: float = float("nan")


@dataclass(frozen=True)
class Inspection:
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
    fit: QuickFit
    worth: float
    remarks: list[Remark]
    finding: Finding

    @property
    def gain(self) -> float:
        """By how much weighting by 1/(σ²+τ²) lowers the variance of what is estimated."""
        return 1 - 1 / self.worth

    def told(self) -> dict[str, Any]:
        """In what JSON has, without the rows."""
        fit = {k: v for k, v in asdict(self.fit).items() if k not in ("places", "predicted")}
        relative = self.fit.epsilon / self.label_variance
        return dict(
            plain(
                {
                    "files": {str(path): count for path, count in self.table.files.items()},
                    "rows": len(self.table),
                    "rows_without_label": self.table.unlabelled,
                    "columns": self.table.schema.told(),
                    "label_mean": float(np.mean(self.table.y)),
                    "noisy_label_variance": float(np.var(self.table.y)),
                    "label_variance": self.label_variance,
                    "variance_quantiles": {f"{q:g}": v for q, v in self.quantiles.items()},
                    "effective_sample_size": self.effective_sample_size,
                    "quick_fit": fit,
                    "expected_variance_reduction": self.gain,
                    "suggested_epsilon": relative,
                    "suggested_epsilon_absolute": self.fit.epsilon,
                    "finding": self.finding.told(),
                    "remarks": [remark._asdict() for remark in self.remarks],
                }
            )
        )


def inspect(table: LabelledTable, *, seed: int = 0, progress: bool = False) -> Inspection:
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
    return examine(table, fit, warned, seed=seed)


def _known(given: Floats) -> Floats:
    """With the median where a variance is unknown."""
    median = float(np.median(given[np.isfinite(given)]))
    return np.where(np.isnan(given), median, given)


def examine(
    table: LabelledTable,
    fit: QuickFit,
    warned: Sequence[str] = (),
    *,
    seed: int = 0,
    calibrated: bool = False,
    names: Mapping[str, str] = findings.OPTIONS,
) -> Inspection:
    """What there is to say of the error bars of a table beside a fit that is there already.

    Args:
        table: With error bars.
        fit: Whichever.
        warned: What was said while it was fitted.
        seed: Of the rows that are looked at, where there are many.
        calibrated: Whether the fit has multiplied the variances by its factor.
        names: Of the options that the finding names.
    """
    given = table.variance
    assert given is not None
    variance = _known(given)
    finite = variance[np.isfinite(variance)]
    label_variance = metrics.label_variance(table.y, variance)
    remarks = [
        *_odd_values(table, given, label_variance),
        *_stray_labels(table),
        *_common_values(table, given),
        *_related(table, variance, seed),
        *_far_off(table, variance, fit),
        *(Remark("fit", text) for text in warned),
    ]
    return Inspection(
        table,
        variance,
        label_variance,
        {q: float(np.quantile(finite, q)) for q in QUANTILES},
        float(effective_batch_size(inverse_variance_weights(variance, 0.0))),
        fit,
        worth_of_weights(finite + fit.tau2),
        remarks,
        _finding(table, fit, names, calibrated=calibrated),
    )


def worth_of_weights(noise: Floats) -> float:
    """The mean over the harmonic mean: how much larger a variance is without weights than with.

    Of labels with these noise variances, whose mean, say, is taken. 1 if they are all alike, +inf
    if one has no noise at all.

    Example:
        >>> worth_of_weights(np.array([1.0, 3.0]))
        1.3333333333333333
    """
    with np.errstate(divide="ignore"):
        return float(noise.mean() * np.mean(1 / noise))


def sample(rows: int, most: int, seed: int) -> npt.NDArray[np.int64]:
    """All rows, or so many of them by lot, in order."""
    if rows <= most:
        return np.arange(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))


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
    told = [str(w.message) for w in caught if "categories in" in str(w.message)]
    r2, alike = r2_scores(model.out_of_fold_, y, own)
    return (
        QuickFit(
            len(places),
            float(model.tau2_),
            float(model.epsilon_ or 0.0),
            r2.value,
            model.variance_factor_,
            model.variance_factor_interval_,
            places,
            model.out_of_fold_,
            r2.stderr,
            *alike,
        ),
        told,
    )


def _rows(table: LabelledTable, which: Any) -> str:
    places = np.flatnonzero(which)
    return table.where(*places[:ROWS_SHOWN]) + (", ..." if len(places) > ROWS_SHOWN else "")


def _odd_values(table: LabelledTable, variance: Floats, label_variance: float) -> list[Remark]:
    finite = np.isfinite(variance)
    found = [
        ("unknown", np.isnan(variance), "{n} have no error bar"),
        ("ignored", np.isinf(variance), "{n} have an infinite error bar: they are ignored"),
        (
            "zero",
            variance == 0,
            "{n} have an error bar of 0, and are trusted as far as ε lets them: was that measured, "
            "or does 0 stand for unknown",
        ),
        (
            "huge",
            finite & (variance > HUGE * label_variance),
            "{n} have a σ² of more than {huge:g} times the label variance, and say next to nothing",
        ),
    ]
    return [
        Remark(kind, text.format(n=_labels(which.sum()), huge=HUGE), _rows(table, which))
        for kind, which, text in found
        if which.any()
    ]


def _labels(count: Any) -> str:
    return "1 label" if count == 1 else f"{int(count):,} labels"


def _common_values(table: LabelledTable, variance: Floats) -> list[Remark]:
    known = variance[np.isfinite(variance)]
    values, counts = np.unique(known, return_counts=True)
    if len(values) == 1:
        text = "all error bars are equal: weighting by them changes nothing"
        return [Remark("equal", text)]
    often = [k for k in np.argsort(-counts) if counts[k] >= max(COMMON * len(known), 3)]
    if len(values) <= FEW_VALUES or not often:
        return []
    shown = ", ".join(
        f"{values[k]:.4g} (σ {np.sqrt(values[k]):.4g}; {counts[k] / len(known):.0%})"
        for k in often[:COLUMNS_SHOWN]
    )
    more = ", ..." if len(often) > COLUMNS_SHOWN else ""
    text = (
        f"{_labels(counts[often].sum())} share a few values of σ², where the others differ: "
        f"{shown}{more}: do these stand for something"
    )
    return [Remark("duplicated", text, _rows(table, np.isin(variance, values[often])))]


def _stray_labels(table: LabelledTable) -> list[Remark]:
    """One value that many labels have, far from all others: -99 for a missing one, say."""
    values, counts = np.unique(table.y, return_counts=True)
    if len(values) <= FEW_VALUES:
        return []
    remarks = []
    for end, others in ((0, values[1:]), (-1, values[:-1])):
        gap = abs(values[end] - others[end])
        if counts[end] >= 3 and gap > np.ptp(others) / 2:
            which = table.y == values[end]
            text = (
                f"{_labels(counts[end])} are {values[end]:g}, where all others lie between "
                f"{others[0]:.4g} and {others[-1]:.4g}: does it stand for a missing label? Then "
                "leave the cell empty"
            )
            remarks.append(Remark("stray", text, _rows(table, which)))
    return remarks


def _related(table: LabelledTable, variance: Floats, seed: int) -> list[Remark]:
    used = np.flatnonzero(np.isfinite(variance))
    if len(used) < findings.FEWEST_JUDGED:  # of which many are correlated by chance
        return []
    used = used[sample(len(used), FITTED_ROWS, seed)]
    own = ranks(variance[used])
    remarks = []
    with_label = label_correlation(table.y, variance)
    if abs(with_label) >= RELATED:
        way = "grow" if with_label > 0 else "shrink"
        small, such = ("small", "√n") if with_label > 0 else ("large", "that of the logarithm")
        text = (
            f"error bars {way} with the label (rank correlation {with_label:+.2f}). Were they "
            f"computed from the noisy labels, as {such} of a count n is? Then labels that are "
            f"{small} by chance get small error bars, and weighting pulls predictions their way: "
            "let biv compare decide, or take error bars that do not follow the noise (biv docs "
            "error-bars)"
        )
        remarks.append(Remark("related to the label", text))
    frame = table.features.iloc[used]
    encoder = FeatureEncoder.fit(frame)
    names = encoder.names(list(frame.columns))
    ranked = [(float(own @ ranks(column)), n) for column, n in zip(encoder(frame).T, names)]  # noqa: B905
    ranked = sorted((r for r in ranked if abs(r[0]) >= RELATED), key=lambda r: -abs(r[0]))
    if ranked:
        shown = ", ".join(
            f"{shortened(name)} ({rank:+.2f})" for rank, name in ranked[:COLUMNS_SHOWN]
        )
        more = f" and {len(ranked) - COLUMNS_SHOWN} more" if len(ranked) > COLUMNS_SHOWN else ""
        text = (
            f"error bars go with features: {shown}{more}. Where they are large, there is less to "
            "learn from, with weights or without. A column of the same measurement, as another "
            "error bar or an end of its interval, is for --ignore"
        )
        remarks.append(Remark("related to features", text))
    return remarks


def _finding(
    table: LabelledTable, fit: QuickFit, names: Mapping[str, str], *, calibrated: bool
) -> Finding:
    assert table.variance is not None
    taken = "variance" if table.target.std is None else "std"
    return findings.judge(
        fit.predicted,
        table.y[fit.places],
        table.variance[fit.places],
        None if table.target.interval is not None else taken,  # whose ends are no σ
        names,
        calibrated=fit.variance_factor if calibrated else None,
    )


def _far_off(table: LabelledTable, variance: Floats, fit: QuickFit) -> list[Remark]:
    own = variance[fit.places]
    with np.errstate(invalid="ignore"):
        off = np.abs(table.y[fit.places] - fit.predicted) / np.sqrt(own + fit.tau2)
    off = np.where(np.isfinite(own) & np.isfinite(off), off, 0.0)
    worst = np.argsort(-off)[:ROWS_SHOWN]
    worst = worst[off[worst] > FAR_OFF]
    if not len(worst):
        return []
    text = (
        f"{_labels((off > FAR_OFF).sum())} of {len(off):,}: more than {FAR_OFF:g} standard "
        f"deviations from what a fit without them predicts, up to {off.max():.1f}"
    )
    more = ", ..." if (off > FAR_OFF).sum() > ROWS_SHOWN else ""
    return [Remark("far off", text, table.where(*fit.places[worst]) + more)]
