"""Is it worth it? Ways of using the error bars, and of not using them, by cross-validation."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv import metrics
from biv._utils import validation
from biv.estimator import error_bars
from biv.estimator.error_bars import ErrorBars
from biv.estimator.parameters import UNKNOWN
from biv.losses.weights import inverse_variance_weights
from biv.metrics import Score
from biv.tables import LabelledTable
from biv.workflows.checks import require_learnable
from biv.workflows.comparison_record import Effect
from biv.workflows.evidence import OutOfFoldPredictions, TableEvidence
from biv.workflows.inspection import OutOfFoldFit, inspect_fit
from biv.workflows.label_correlation import is_correlated_with_label, label_correlation
from biv.workflows.method_comparison import INTERVAL, MethodComparison, MethodResult
from biv.workflows.methods import BIV, L2, SHUFFLED, RowSubset, estimated_variance, methods

Floats = npt.NDArray[np.float64]

MIN_ROWS = 30
ROWS = 10_000  # compared at most, unless more are asked for
FOLDS = 5
FAILURES = (ValueError, RuntimeError, ArithmeticError)  # of a method that has no answer here


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
            with the label (:mod:`biv.workflows.label_correlation`), both are looked at.
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
        raise ValueError(f"unknown must be one of {', '.join(UNKNOWN)}; got {unknown!r}")
    require_learnable(table, unknown=unknown)
    places = _usable(table, rows, seed)
    data = RowSubset(table.features, table.y, table.variance, table.weight).at(places)
    if len(data.y) < max(MIN_ROWS, 2 * folds):
        raise ValueError(
            f"{folds} folds need at least {max(MIN_ROWS, 2 * folds)} rows with a label whose "
            f"error bar is not infinite; got {len(data.y)}"
        )
    taken = _taken(table.variance, data, unknown, seed)
    if taken is not None:
        data = data._replace(variance=np.where(np.isnan(data.variance), taken, data.variance))
    order = np.random.default_rng(seed).permutation(len(data.y))
    parts = [np.sort(part) for part in np.array_split(order, folds)]
    done, failed = _gathered(_outcomes(data, parts, seed, jobs, after_task), parts)
    for name in (BIV, L2, SHUFFLED):
        if name in failed:
            raise ValueError(f"{name} gave no result: {failed[name]}")
    predictions = {name: method.predicted for name, method in done.items()}
    scores = _Scores(data, parts, predictions, weighted)
    ranked = sorted(predictions, key=lambda name: scores.difference(name, BIV).value)
    best = next(name for name in ranked if name != SHUFFLED)
    label_variance = metrics.label_variance(data.y, data.variance)
    alike = None
    if weighted and is_correlated_with_label(data.y, data.variance):
        all_alike = _Scores(data, parts, predictions, weighted=False)
        alike = _effect(all_alike.difference(L2, BIV), label_variance)
    return MethodComparison(
        rows=len(data.y),
        rows_in_all=len(table),
        unknown=int(np.isnan(table.variance).sum()),
        folds=folds,
        label_variance=label_variance,
        methods=[
            MethodResult(
                n, scores.mse[n], scores.difference(n, best), done[n].seconds, done[n].chosen
            )
            for n in ranked
        ],
        failed=failed,
        gain=scores.effect(BIV, L2),
        control=scores.effect(BIV, SHUFFLED),
        weighted=weighted,
        correlation=label_correlation(data.y, data.variance),
        alike=alike,
        target=table.target.name,
        evidence=_evidence(table, places, data, predictions[BIV], label_variance, seed),
        unknown_variance=taken,
    )


class _Done(NamedTuple):
    """One method on all folds: predictions of every row, what it chose, and its duration."""

    predicted: Floats
    chosen: str
    seconds: float


def _gathered(
    outcomes: Iterable[_Outcome], parts: list[Any]
) -> tuple[dict[str, _Done], dict[str, str]]:
    """Return the methods that have an answer on every fold, and why the others have none."""
    by_method: dict[str, list[_Outcome]] = {name: [] for name in methods()}
    for outcome in outcomes:
        by_method[outcome.method].append(outcome)
    done, failed = {}, {}
    for name, unordered in by_method.items():
        each = sorted(unordered, key=lambda outcome: outcome.fold)
        whole = np.empty(sum(map(len, parts)))
        for outcome in each:
            if outcome.predicted is None:
                failed[name] = outcome.said
                break
            whole[parts[outcome.fold]] = outcome.predicted
        else:
            done[name] = _Done(whole, each[0].said, sum(outcome.seconds for outcome in each))
    return done, failed


def _taken(variance: Floats, data: RowSubset, unknown: str, seed: int) -> float | None:
    """The variance of labels whose error bar is unknown; None if all are known."""
    if not np.isnan(variance).any():
        return None
    if unknown == "estimate" and np.isnan(data.variance).any():
        return estimated_variance(data, seed)
    return float(error_bars.medians(ErrorBars(variance[:, None], "y_var"))[0])


def _evidence(
    table: LabelledTable,
    places: Any,
    data: RowSubset,
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
    fit = OutOfFoldFit(
        tau2=tau2,
        epsilon=tau2,
        variance_factor=factor,
        variance_factor_interval=interval,
        places=places,
        predicted=predicted,
    )
    std = np.full(len(places), np.sqrt(tau2))
    return TableEvidence.of(
        table,
        OutOfFoldPredictions(places, predicted, std, variance),
        label_variance=label_variance,
        tau2=tau2,
        epsilon=None,
        seen=inspect_fit(table, fit, seed=seed),
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
    data: RowSubset, parts: list[Any], seed: int, jobs: int, after_task: Callable[[], object]
) -> Iterable[_Outcome]:
    from joblib import Parallel, delayed

    tasks = [(name, fold) for name in methods() for fold in range(len(parts))]
    run = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    for outcome in run(delayed(_task)(data, parts[f], name, f, seed) for name, f in tasks):
        after_task()
        yield outcome


def _task(data: RowSubset, left_out: Any, name: str, fold: int, seed: int) -> _Outcome:
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
        self, data: RowSubset, parts: list[Any], predictions: dict[str, Floats], weighted: bool
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
