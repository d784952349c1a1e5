"""Is it worth it? Ways of using the error bars, and of not using them, by cross-validation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv import metrics
from biv._utils import validation
from biv._utils.pages import named
from biv.estimator import error_bars
from biv.estimator.error_bars import ErrorBars, is_impossible
from biv.estimator.findings import FEWEST_JUDGED, TOO_LARGE, FindingRecord
from biv.estimator.regressor import UNKNOWN
from biv.losses.weights import inverse_variance_weights
from biv.metrics import Score
from biv.tables import LabelledTable
from biv.workflows.checks import require_learnable
from biv.workflows.comparison_record import ComparisonRecord, Effect, MethodRecord
from biv.workflows.evidence import Judged, TableEvidence
from biv.workflows.inspection import QuickFit, examine
from biv.workflows.methods import BIV, BLIND, L2, SHUFFLED, Rows, estimated_variance, methods
from biv.workflows.relation import goes_with_label, label_correlation

Floats = npt.NDArray[np.float64]

FEWEST_ROWS = 30
ROWS = 10_000  # compared at most, unless more are asked for
FOLDS = 5
INTERVAL = 1.96  # standard errors to each side: 95 %
CLOSE, CLOSE_TO_BEST = 0.02, 0.25  # above the lowest error: of the label variance, or of itself
FAILURES = (ValueError, RuntimeError, ArithmeticError)  # of a method that has no answer here


@dataclass(frozen=True)
class MethodResult:
    """One method.

    Attributes:
        name: Of the method.
        mse: The noise-corrected mean squared error of rows left out, to their true labels.
        to_best: By how much it exceeds that of the best, paired.
        seconds: Of all folds.
        chosen: What it chose itself, in the first fold.
    """

    name: str
    mse: Score
    to_best: Score
    seconds: float
    chosen: str

    @property
    def shown_worse(self) -> bool:
        """Whether the best is shown to be better."""
        return self.to_best.value > INTERVAL * self.to_best.stderr


@dataclass(frozen=True)
class MethodComparison:
    """Methods, the best first, and what follows from them.

    The order is that of the paired differences, which vary less than the errors and weigh labels by
    1/(σ²+ε), not by its square. Where two methods are close, their errors may be in another order.

    Attributes:
        rows: How many were compared.
        rows_in_all: Out of so many with a label.
        unknown: Rows whose error bar is unknown.
        folds: Of the cross-validation.
        label_variance: In squared units of the label.
        methods: The best first.
        failed: Methods that have no answer here, with the reason.
        gain: How much lower BIV's error is than L2's.
        control: How much lower BIV's error is than with the same variances on the wrong rows.
        weighted: Whether reliable labels counted more in the scores.
        correlation: Of σ² with the label, by ranks.
        alike: How much lower BIV's error is than L2's if all labels count alike, as a share of the
            label variance; None unless error bars go with the label, where the two may disagree.
        target: The label's name.
        evidence: What a report shows of the table and of BIV's predictions.
        unknown_variance: σ² of the labels whose error bar is unknown; None if there are none.
    """

    rows: int
    rows_in_all: int
    unknown: int
    folds: int
    label_variance: float
    methods: list[MethodResult]
    failed: dict[str, str]
    gain: Effect
    control: Effect
    weighted: bool
    correlation: float
    alike: Effect | None = None
    target: str = ""
    evidence: TableEvidence | None = None
    unknown_variance: float | None = None

    @property
    def best(self) -> MethodResult:
        """The best of the methods that may be used; the control is none of them."""
        return next(method for method in self.methods if method.name != SHUFFLED)

    def as_good(self, method: MethodResult) -> bool:
        """Whether a method may be used instead of the best: not shown to be worse, and close to it.

        An error far above the lowest one is no equal because the rows are too few to be sure.
        """
        close = max(CLOSE * self.label_variance, CLOSE_TO_BEST * self.best.mse.value)
        return not method.shown_worse and method.to_best.value <= close

    @property
    def finding(self) -> FindingRecord | None:
        """What the residuals of rows left out say about the error bars."""
        return None if self.evidence is None else self.evidence.finding

    @property
    def useful(self) -> bool | None:
        """Whether the error bars make the model better; None if these rows do not tell."""
        if self.void or self.disputed or self.rows < FEWEST_JUDGED:
            return None
        if self.gain.low > 0 and self.control.low > 0:
            return True
        return False if self.gain.high < 0 else None

    @property
    def void(self) -> str:
        """Why nothing follows from these errors; empty if something does.

        Error bars of other rows leave the comparison valid: that they do not help is its result.
        """
        finding = self.finding
        if finding is not None and finding.voids_scores and finding.kind != "nothing":
            return finding.text
        if any(is_impossible(*method.mse) for method in self.methods):
            return TOO_LARGE + named("error-bars")
        return ""

    @property
    def disputed(self) -> bool:
        """Whether reliable labels and all labels alike say the opposite."""
        if self.alike is None:
            return False
        return (self.gain.low > 0 > self.alike.high) or (self.gain.high < 0 < self.alike.low)

    def recommendation(self) -> str:
        """In plain words: use the error bars or not, and with what."""
        if why := self.void:
            return f"Nothing follows from these errors: {why}."
        return f"{self._whether()} {self._with_what()}"

    def _whether(self) -> str:
        if self.rows < FEWEST_JUDGED:
            return (
                f"{self.rows} rows are too few to tell whether the error bars are worth using: at "
                f"least {FEWEST_JUDGED} are needed."
            )
        if self.disputed:
            return (
                "These labels do not decide it. Error bars go with the label (rank correlation "
                f"{self.correlation:+.2f}): with them the networks' error is {self.gain} by the "
                f"reliable labels, but {self.alike} with all labels alike (there, of the label "
                "variance). If error bars were computed from noisy labels, as √n of a count n is, "
                "believe the latter; if noisy labels are off to one side, as at a limit of "
                "detection, the former."
            )
        if self.useful:
            return (
                f"Use the error bars: with them the networks' error is {self.gain} than without, "
                f"and {self.control} than with the same ones on the wrong rows.{self._both_ways()}"
            )
        if self.useful is False:
            return f"Do not use the error bars: with them the networks' error is {self.gain}."
        if self.gain.low > 0:
            return (
                f"With the error bars the networks' error is {self.gain} than without, but "
                f"{self.control} than with the same error bars on the wrong rows: that they know "
                "which labels are good is not shown."
            )
        return (
            f"These {self.rows:,} rows do not show that error bars matter to the networks: with "
            f"them, the error is {self.gain}."
        )

    def _both_ways(self) -> str:
        """Where weighted scores are not of all labels alike, what the others say."""
        if self.alike is None:
            return ""
        return (
            f" Error bars go with the label (rank correlation {self.correlation:+.2f}), so that "
            f"this is of one end of the labels; with all labels alike the error is {self.alike} "
            "(there, of the label variance)."
        )

    def _with_what(self) -> str:
        best = self.best
        others = [m for m in self.methods if m.name != SHUFFLED and m is not best]
        alike = [m.name for m in others if self.as_good(m)]
        open_ = [m for m in others if not m.shown_worse and m.name not in alike]
        use = "makes no use of" if best.name in BLIND else "uses"
        whose = "By the reliable labels, the" if self.disputed else "The"
        text = f"{whose} lowest error is that of {best.name}, which {use} them"
        if best.name != BIV and BIV in alike:
            text += "; BIV's cannot be told from it"
            alike.remove(BIV)
        text += "."
        if alike:
            text += f" Close to it, and not shown to be worse: {'; '.join(alike)}."
        if open_:
            errors = "; ".join(
                f"{m.name} ({m.mse.value / self.label_variance:.3g} of the label variance)"
                for m in open_
            )
            text += f" Far above it, though these rows are too few to be sure: {errors}."
        return text

    def record(self) -> ComparisonRecord:
        """Return it as files and reports keep it."""
        scale = self.label_variance
        return ComparisonRecord(
            target=self.target,
            rows=self.rows,
            rows_in_all=self.rows_in_all,
            rows_of_unknown_variance=self.unknown,
            unknown_variance=self.unknown_variance,
            folds=self.folds,
            label_variance=scale,
            methods=[
                MethodRecord(
                    method=m.name,
                    mse=m.mse.value,
                    mse_stderr=m.mse.stderr,
                    mse_over_label_variance=m.mse.value / scale,
                    above_best=m.to_best.value,
                    above_best_stderr=m.to_best.stderr,
                    as_good_as_best=self.as_good(m),
                    shown_worse_than_best=m.shown_worse,
                    seconds=m.seconds,
                    chosen=m.chosen,
                )
                for m in self.methods
            ],
            failed=self.failed,
            gain=self.gain,
            control=self.control,
            weighted_scores=self.weighted,
            rank_correlation_with_label=self.correlation,
            gain_all_labels_alike=self.alike,
            finding=self.finding,
            use_error_bars=self.useful,
            recommendation=self.recommendation(),
        )


class _Outcome(NamedTuple):
    """What came of one method on one fold; predictions of its rows, or why there are none."""

    method: str
    fold: int
    predicted: Floats | None
    said: str
    seconds: float


def compare(
    table: LabelledTable,
    *,
    folds: int = FOLDS,
    rows: int | None = ROWS,
    weighted: bool = True,
    unknown: str = "raise",
    seed: int = 0,
    jobs: int = 1,
    after_task: Callable[[], object] = lambda: None,
) -> MethodComparison:
    """Cross-validate all methods on the same folds, and score them against the noisy labels.

    The scores are noise-corrected (:func:`biv.metrics.noise_corrected_mse`), with one ε for all
    methods: the residual variance of BIV. Differences are paired. Their standard error is that of
    independent rows, or of folds as wholes if that is more, since the rows of a fold share a model.
    Both are of one draw of folds and seeds: another may differ by more than they say.

    Args:
        table: With error bars; rows where that is infinite, or the weight 0, are left out, as they
            are from :func:`train_folder`.
        folds: Of the cross-validation.
        rows: Compare on so many at most, drawn by lot; None for all.
        weighted: Whether reliable labels count more in the scores, which are less noisy then, but
            do not tell of all rows if σ² goes with the label or with a model's error. Where it goes
            with the label (:mod:`biv.workflows.relation`), both are looked at.
        unknown: What to do where an error bar is unknown, as `unknown_variance` of
            :class:`BIVRegressor`: "raise" an error, take the "median" of the others, or "estimate"
            one variance, which a fit on all rows does once for all methods and folds.
        seed: Of the folds and of all methods.
        jobs: Processes.
        after_task: Is called after each method on each fold.

    Raises:
        ValueError: There are no error bars, or one is unknown, there are too few rows, or BIV or
            L2 has no answer.
    """
    if table.variance is None:
        raise ValueError("there are no error bars to compare with and without: name their column")
    folds = validation.integer("folds", folds, at_least=2)
    if unknown not in UNKNOWN:
        raise ValueError(f"unknown must be one of {', '.join(UNKNOWN)}; found {unknown!r}")
    require_learnable(table, unknown=unknown)
    places = _usable(table, rows, seed)
    data = Rows(table.features, table.y, table.variance, table.weight).at(places)
    if len(data.y) < max(FEWEST_ROWS, 2 * folds):
        raise ValueError(
            f"{folds} folds need at least {max(FEWEST_ROWS, 2 * folds)} rows with a label whose "
            f"error bar is not infinite; found {len(data.y)}"
        )
    taken = _taken(table.variance, data, unknown, seed)
    if taken is not None:
        data = data._replace(variance=np.where(np.isnan(data.variance), taken, data.variance))
    order = np.random.default_rng(seed).permutation(len(data.y))
    parts = [np.sort(part) for part in np.array_split(order, folds)]
    outcomes = list(_outcomes(data, parts, seed, jobs, after_task))
    predictions, failed, seconds, chosen = {}, {}, {}, {}
    for name in methods():
        own = sorted((o for o in outcomes if o.method == name), key=lambda o: o.fold)
        without = [o for o in own if o.predicted is None]
        if without:
            failed[name] = without[0].said
            continue
        whole = np.empty(len(data.y))
        for outcome in own:
            assert outcome.predicted is not None
            whole[parts[outcome.fold]] = outcome.predicted
        predictions[name], chosen[name] = whole, own[0].said
        seconds[name] = sum(outcome.seconds for outcome in own)
    for name in (BIV, L2, SHUFFLED):
        if name in failed:
            raise ValueError(f"{name} has no answer here: {failed[name]}")
    scores = _Scores(data, parts, predictions, weighted)
    ranked = sorted(predictions, key=lambda name: scores.difference(name, BIV).value)
    best = next(name for name in ranked if name != SHUFFLED)
    label_variance = metrics.label_variance(data.y, data.variance)
    alike = None
    if weighted and goes_with_label(data.y, data.variance):
        all_alike = _Scores(data, parts, predictions, weighted=False)
        alike = _effect(all_alike.difference(L2, BIV), label_variance)
    return MethodComparison(
        len(data.y),
        len(table),
        int(np.isnan(table.variance).sum()),
        folds,
        label_variance,
        [
            MethodResult(n, scores.mse[n], scores.difference(n, best), seconds[n], chosen[n])
            for n in ranked
        ],
        failed,
        scores.effect(BIV, L2),
        scores.effect(BIV, SHUFFLED),
        weighted,
        label_correlation(data.y, data.variance),
        alike,
        table.target.name,
        _evidence(table, places, data, predictions[BIV], label_variance, seed),
        taken,
    )


def _taken(variance: Floats, data: Rows, unknown: str, seed: int) -> float | None:
    """The variance of labels whose error bar is unknown; None if all are known."""
    if not np.isnan(variance).any():
        return None
    if unknown == "estimate" and np.isnan(data.variance).any():
        return estimated_variance(data, seed)
    return float(error_bars.medians(ErrorBars(variance[:, None], "y_var"))[0])


def _evidence(
    table: LabelledTable,
    places: Any,
    data: Rows,
    predicted: Floats,
    label_variance: float,
    seed: int,
) -> TableEvidence:
    """Of BIV's predictions for rows that were left out."""
    y, variance = data.y, data.variance
    tau2 = metrics.residual_variance(predicted, y, variance)
    factor, interval = None, None
    if variance.max() > variance.min():
        factor, stderr = metrics.variance_factor(predicted, y, variance)
        interval = (factor - INTERVAL * stderr, factor + INTERVAL * stderr)
    fit = QuickFit(len(places), tau2, tau2, float("nan"), factor, interval, places, predicted)
    std = np.full(len(places), np.sqrt(tau2))
    return TableEvidence.of(
        table,
        Judged(places, predicted, std, variance),
        label_variance=label_variance,
        tau2=tau2,
        epsilon=None,
        seen=examine(table, fit, seed=seed),
    )


def _usable(table: LabelledTable, rows: int | None, seed: int) -> npt.NDArray[np.int64]:
    """Places of rows that can be learned from and judged by, so many at most."""
    assert table.variance is not None
    used = ~np.isinf(table.variance)
    if table.weight is not None:
        used &= table.weight > 0
    places = np.flatnonzero(used)
    if rows is not None and len(places) > rows:
        places = np.sort(np.random.default_rng(seed).choice(places, rows, replace=False))
    return places


def _outcomes(
    data: Rows, parts: list[Any], seed: int, jobs: int, after_task: Callable[[], object]
) -> Iterable[_Outcome]:
    from joblib import Parallel, delayed

    tasks = [(name, fold) for name in methods() for fold in range(len(parts))]
    run = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    for outcome in run(delayed(_task)(data, parts[f], name, f, seed) for name, f in tasks):
        after_task()
        yield outcome


def _task(data: Rows, left_out: Any, name: str, fold: int, seed: int) -> _Outcome:
    from threadpoolctl import threadpool_limits

    kept = np.setdiff1d(np.arange(len(data.y)), left_out)
    start = time.perf_counter()
    try:
        with warnings.catch_warnings(), threadpool_limits(1):
            warnings.simplefilter("ignore")
            predicted, said = methods()[name](
                data.at(kept), data.features.iloc[left_out], seed + fold
            )
        if not np.isfinite(predicted).all():
            raise ValueError("it diverged")
    except FAILURES as error:
        return _Outcome(name, fold, None, str(error), time.perf_counter() - start)
    return _Outcome(name, fold, predicted, said, time.perf_counter() - start)


class _Scores:
    """Errors to the true labels, and their differences, all by the same weights."""

    def __init__(
        self, data: Rows, parts: list[Any], predictions: dict[str, Floats], weighted: bool
    ) -> None:
        self.data, self.parts, self.predictions = data, parts, predictions
        self.how: dict[str, Any] = {"weighted": weighted, "sample_weight": data.weight}
        if weighted:
            tau2 = metrics.residual_variance(predictions[BIV], data.y, data.variance)
            self.how["epsilon"] = metrics.steady_epsilon(tau2, data.variance)
        self.mse = {
            name: metrics.noise_corrected_mse(own, data.y, data.variance, **self.how)
            for name, own in predictions.items()
        }

    def difference(self, name: str, other: str) -> Score:
        one, two = self.predictions[name], self.predictions[other]
        y, variance = self.data.y, self.data.variance
        found = metrics.noise_corrected_difference(one, two, y, variance, **self.how)
        weight = np.ones_like(y) if self.data.weight is None else self.data.weight
        if self.how["weighted"]:
            weight = weight * np.asarray(inverse_variance_weights(variance, self.how["epsilon"]))
        moved = weight * ((one - y) ** 2 - (two - y) ** 2 - found.value) / weight.sum()
        by_fold = np.array([moved[part].sum() for part in self.parts])
        count = len(by_fold)
        together = float(np.sqrt(count / (count - 1) * (by_fold**2).sum()))
        return Score(found.value, max(found.stderr, together))

    def effect(self, name: str, other: str) -> Effect:
        """How much lower the first is, as a share of the second."""
        # Of an error that may as well be 0, its standard error.
        return _effect(self.difference(other, name), max(self.mse[other]))


def _effect(difference: Score, base: float) -> Effect:
    value, stderr = difference
    ends = (value, value - INTERVAL * stderr, value + INTERVAL * stderr)
    return Effect(*(min(end / base, 1.0) for end in ends))  # no error is lower than 0
