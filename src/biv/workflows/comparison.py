"""Compare methods that use or ignore the error bars, by cross-validation."""

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
ROWS = 10_000  # default for the largest number of rows
FOLDS = 5
FAILURES = (ValueError, RuntimeError, ArithmeticError)  # raised by methods that fail on a table


class _Outcome(NamedTuple):
    """Result of one method on one fold.

    `predicted` is None if the method failed; `note` is then the reason, and otherwise the setting
    that the method chose.
    """

    method: str
    fold: int
    predicted: Floats | None
    note: str
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

    Parameters
    ----------
    table : LabelledTable
        Table with error bars. Rows with an infinite error bar or a weight of 0 are left out, as in
        :func:`train_folder`.
    folds : int, default=5
        Number of folds of the cross-validation.
    rows : int or None, default=10000
        Largest number of rows, which are drawn at random; None compares on all rows.
    weighted : bool, default=True
        Whether reliable labels count more in the scores. Such scores are less noisy, but do not
        describe all rows if σ² is related to the label or to a model's error. If σ² is correlated
        with the label (:mod:`biv.workflows.label_correlation`), unweighted scores are computed too.
    unknown : {"raise", "median", "estimate"}, default="raise"
        Treatment of unknown error bars, as `unknown_variance` of :class:`BIVRegressor`. "estimate"
        fits all rows once, and uses the estimated variance for all methods and folds.
    seed : int, default=0
        Seed of the folds and of all methods.
    jobs : int, default=1
        Number of processes.
    after_task : callable, optional
        Called after each method on each fold.

    Returns
    -------
    MethodComparison
        Errors of the methods, and what follows from them.

    Raises
    ------
    ValueError
        If there are no error bars, one is unknown and `unknown` is "raise", there are too few rows,
        or BIV or L2 fails.

    Notes
    -----
    The scores are noise-corrected (:func:`biv.metrics.noise_corrected_mse`), with one ε for all
    methods: the residual variance of BIV. Differences are paired. Their standard error is that of
    independent rows or that of independent folds, whichever is larger, since the rows of a fold
    share a model. Both describe one draw of folds and seeds; another may differ by more.
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
    fill = _fill_variance(table.variance, data, unknown, seed)
    if fill is not None:
        data = data._replace(variance=np.where(np.isnan(data.variance), fill, data.variance))
    order = np.random.default_rng(seed).permutation(len(data.y))
    parts = [np.sort(part) for part in np.array_split(order, folds)]
    done, failed = _gather(_outcomes(data, parts, seed, jobs, after_task), parts)
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
        unknown_variance=fill,
    )


class _Done(NamedTuple):
    """Result of one method on all folds: a prediction per row, its setting, and its duration."""

    predicted: Floats
    chosen: str
    seconds: float


def _gather(
    outcomes: Iterable[_Outcome], parts: list[Any]
) -> tuple[dict[str, _Done], dict[str, str]]:
    """Return the methods that succeeded on every fold, and why the others failed."""
    by_method: dict[str, list[_Outcome]] = {name: [] for name in methods()}
    for outcome in outcomes:
        by_method[outcome.method].append(outcome)
    done, failed = {}, {}
    for name, unordered in by_method.items():
        by_fold = sorted(unordered, key=lambda outcome: outcome.fold)
        predicted = np.empty(sum(map(len, parts)))
        for outcome in by_fold:
            if outcome.predicted is None:
                failed[name] = outcome.note
                break
            predicted[parts[outcome.fold]] = outcome.predicted
        else:
            seconds = sum(outcome.seconds for outcome in by_fold)
            done[name] = _Done(predicted, by_fold[0].note, seconds)
    return done, failed


def _fill_variance(variance: Floats, data: RowSubset, unknown: str, seed: int) -> float | None:
    """Return the variance for labels whose error bar is unknown; None if all are known."""
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
    """Return the evidence from BIV's predictions for held-out rows."""
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
        inspection=inspect_fit(table, fit, seed=seed),
    )


def _usable(table: LabelledTable, rows: int | None, seed: int) -> npt.NDArray[np.int64]:
    """Return positions of rows with a finite error bar and a positive weight, at most `rows`."""
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
            predicted, note = methods()[name](
                data.at(kept), data.features.iloc[left_out], seed + fold
            )
        if not np.isfinite(predicted).all():
            raise ValueError("the training diverged")
    except FAILURES as error:
        return _Outcome(name, fold, None, str(error), time.perf_counter() - start)
    return _Outcome(name, fold, predicted, note, time.perf_counter() - start)


class _Scores:
    """Errors to the true labels, and their differences, with the same weights for all methods."""

    def __init__(
        self, data: RowSubset, parts: list[Any], predictions: dict[str, Floats], weighted: bool
    ) -> None:
        self.data, self.parts, self.predictions = data, parts, predictions
        self.options: dict[str, Any] = {"weighted": weighted, "sample_weight": data.weight}
        if weighted:
            tau2 = metrics.residual_variance(predictions[BIV], data.y, data.variance)
            self.options["epsilon"] = metrics.steady_epsilon(tau2, data.variance)
        self.mse = {
            name: metrics.noise_corrected_mse(predicted, data.y, data.variance, **self.options)
            for name, predicted in predictions.items()
        }

    def difference(self, name: str, other: str) -> Score:
        """Return by how much the error of one method exceeds that of another."""
        one, two = self.predictions[name], self.predictions[other]
        y, variance = self.data.y, self.data.variance
        score = metrics.noise_corrected_difference(one, two, y, variance, **self.options)
        weight = np.ones_like(y) if self.data.weight is None else self.data.weight
        if self.options["weighted"]:
            epsilon = self.options["epsilon"]
            weight = weight * np.asarray(inverse_variance_weights(variance, epsilon))
        influence = weight * ((one - y) ** 2 - (two - y) ** 2 - score.value) / weight.sum()
        by_fold = np.array([influence[part].sum() for part in self.parts])
        count = len(by_fold)
        stderr_of_folds = float(np.sqrt(count / (count - 1) * (by_fold**2).sum()))
        return Score(score.value, max(score.stderr, stderr_of_folds))

    def effect(self, name: str, other: str) -> Effect:
        """Return the reduction of one error below another, as a fraction of the other."""
        # The standard error is the denominator if it is larger: the error may then be 0.
        return _effect(self.difference(other, name), max(self.mse[other]))


def _effect(difference: Score, base: float) -> Effect:
    value, stderr = difference
    ends = (value, value - INTERVAL * stderr, value + INTERVAL * stderr)
    return Effect(*(min(end / base, 1.0) for end in ends))  # an error cannot fall below 0
