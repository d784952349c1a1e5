"""The result of a comparison of methods, and what it recommends."""

from __future__ import annotations

from dataclasses import dataclass

from biv._utils.pages import page_hint
from biv.estimator.error_bars import is_impossible
from biv.estimator.findings import MIN_JUDGED, SILENT, FindingRecord
from biv.metrics import Score
from biv.workflows.comparison_record import ComparisonRecord, Effect, MethodRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.label_correlation import chance_and_example, larger_labels
from biv.workflows.methods import BIV, BLIND, SHUFFLED

INTERVAL = 1.96  # standard errors to each side: 95%
CLOSE, CLOSE_TO_BEST = 0.02, 0.25  # "close": above the lowest error by such a fraction of the
# label variance, or of that error


@dataclass(frozen=True)
class MethodResult:
    """Result of one method.

    Attributes
    ----------
    name : str
        Name of the method.
    mse : Score
        Noise-corrected mean squared error to the true labels of held-out rows, in squared label
        units.
    to_best : Score
        Paired difference to the error of the best method.
    seconds : float
        Duration of all folds.
    chosen : str
        Setting that the method chose itself, in the first fold.
    """

    name: str
    mse: Score
    to_best: Score
    seconds: float
    chosen: str

    @property
    def shown_worse(self) -> bool:
        """Whether the best method is significantly better."""
        return self.to_best.value > INTERVAL * self.to_best.stderr


@dataclass(frozen=True)
class MethodComparison:
    """Comparison of methods, the best first, and what follows from it.

    Attributes
    ----------
    rows : int
        Number of rows that were compared on.
    rows_in_all : int
        Number of rows with a label.
    unknown : int
        Number of rows whose error bar is unknown.
    folds : int
        Number of folds of the cross-validation.
    label_variance : float
        Variance of the labels without their noise, in squared label units.
    methods : list of MethodResult
        Results, the best first.
    failed : dict of str to str
        Methods that gave no result, with the reason.
    gain : Effect
        Reduction of BIV's error below L2's.
    control : Effect
        Reduction of BIV's error below that with the same variances on the wrong rows.
    weighted : bool
        Whether the scores are weighted, so that reliable labels count more.
    correlation : float
        Rank correlation of σ² with the label.
    alike : Effect or None
        Reduction of BIV's error below L2's in the unweighted score, as a fraction of the label
        variance; None unless σ² is correlated with the label, when the two may disagree.
    target : str
        Name of the label.
    evidence : TableEvidence or None
        Data that a report shows about the table and BIV's predictions.
    unknown_variance : float or None
        σ² used for labels whose error bar is unknown; None if there are none.

    Notes
    -----
    Methods are in the order of the paired differences, which vary less than the errors and weight
    labels by 1/(σ²+ε), not by its square. If two methods are close, the order of their errors may
    differ.
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
        """The best method except for the shuffled control, which nobody should use."""
        return next(method for method in self.methods if method.name != SHUFFLED)

    def as_good(self, method: MethodResult) -> bool:
        """Return whether a method is close to the best one and not significantly worse.

        A method far above the best is not as good, even if the rows are too few to show it.
        """
        close = max(CLOSE * self.label_variance, CLOSE_TO_BEST * self.best.mse.value)
        return not method.shown_worse and method.to_best.value <= close

    @property
    def finding(self) -> FindingRecord | None:
        """Finding about the error bars by the residuals of held-out rows."""
        return None if self.evidence is None else self.evidence.finding

    @property
    def useful(self) -> bool | None:
        """Whether the error bars improve the model; None if these rows do not show it."""
        if self.void or self.disputed or self.rows < MIN_JUDGED:
            return None
        if self.gain.low > 0 and self.control.low > 0:
            return True
        return False if self.gain.high < 0 else None

    @property
    def void(self) -> str:
        """Reason why nothing follows from these errors; empty if something does.

        The finding "nothing" does not void a comparison: its result is then that the error bars do
        not help.
        """
        finding = self.finding
        if finding is not None and finding.voids_scores and finding.kind != "nothing":
            return finding.text
        if any(is_impossible(*method.mse) for method in self.methods):
            why = "some are below 0, which is impossible unless the error bars are too large"
            if finding is not None and finding.kind not in SILENT:  # which has its own advice
                return why
            return f"{why}. Check their units, and whether they are σ or σ²" + page_hint(
                "error-bars"
            )
        return ""

    @property
    def disputed(self) -> bool:
        """Whether the weighted and the unweighted errors contradict each other."""
        if self.alike is None:
            return False
        return (self.gain.low > 0 > self.alike.high) or (self.gain.high < 0 < self.alike.low)

    def recommendation(self) -> str:
        """Return in plain words whether to use the error bars, and with which method.

        The first sentence is the verdict; the others are what it rests on.
        """
        if why := self.void:
            return f"Nothing follows from these errors: {why}."
        return " ".join([self._verdict(), *self.reasons()])

    def reasons(self) -> list[str]:
        """Return what the verdict rests on: one text per point, each of some sentences."""
        return [] if self.void else [*self._effects(), self._ranking()]

    def _verdict(self) -> str:
        if self.rows < MIN_JUDGED:
            return (
                f"{self.rows} rows are too few to tell whether the error bars are worth using: at "
                f"least {MIN_JUDGED} are needed."
            )
        best = self.best.name
        if self.disputed:
            text = "These scores do not decide whether to use the error bars"
            against = self._follows_labels and self.alike is not None and self.alike.high < 0
            return f"{text}, but the residuals speak against it." if against else f"{text}."
        if self.useful is False:
            if best in BLIND:
                return f"Do not use the error bars: use {best}, which ignores them."
            return (
                f"Do not use the error bars with BIV, which they make worse: use {_quoted(best)}."
            )
        if self.useful:
            names = [name for name in self._equals() if name not in BLIND]
            if not names:
                return (
                    f"The error bars improve the networks, but use {_quoted(best)}: it ignores "
                    "them and has the lowest error."
                )
            caution = ", but check them first" if self._is_suspicious else ""
            return f"Use the error bars, with {_either(names)}{caution}."
        if self._all_equal:
            why = "All error bars are equal, so weighting by them changes nothing"
        elif self.gain.low > 0:
            why = "It is not shown that the error bars tell which labels are good"
        else:
            why = f"These {self.rows:,} rows do not show whether BIV is better than L2"
        names = self._equals()
        if self._is_suspicious:
            names = [name for name in names if name in BLIND] or names
        return f"{why}: use {_either(names)}."

    @property
    def _is_suspicious(self) -> bool:
        """Whether the residuals say that something is wrong with the error bars."""
        return self.finding is not None and self.finding.kind not in SILENT

    @property
    def _follows_labels(self) -> bool:
        return self.finding is not None and self.finding.kind == "follows"

    @property
    def _all_equal(self) -> bool:
        return self.finding is not None and self.finding.kind == "equal"

    def _equals(self) -> list[str]:
        """Return the best method, and BIV if it may be used instead."""
        return [
            m.name for m in self.methods if m is self.best or (m.name == BIV and self.as_good(m))
        ]

    def _effects(self) -> list[str]:
        """Return what the error bars change, one text per point."""
        if self.rows < MIN_JUDGED or self._all_equal:
            return []
        if self.disputed:
            return [
                "Judged by the weighted paired difference, using the error bars "
                f"{self.gain.in_words} of L2's error. {self._unweighted_effect()} The scores "
                "differ because the error bars are correlated with the label (rank correlation "
                f"{self.correlation:+.2f}).",
                self._which_score_to_trust(),
            ]
        text = (
            f"By paired differences, BIV's error is {self.gain} than that of L2, which ignores the "
            "error bars"
        )
        if self.useful:
            text += f", and {self.control} than BIV's with the same error bars on the wrong rows"
        elif self.useful is None and self.gain.low > 0:
            text += f", but {self.control} than BIV's with the same error bars on the wrong rows"
        if self.useful and self.alike is not None:
            precise = "low" if self.correlation > 0 else "high"
            return [
                f"{text}.",
                f"{larger_labels(self.correlation)}, so the weighted score mostly describes "
                f"{precise} labels. {self._unweighted_effect()}",
            ]
        return [f"{text}."]

    def _unweighted_effect(self) -> str:
        assert self.alike is not None
        return (
            "Judged by the unweighted score, using the error bars "
            f"{self.alike.in_words} of the label variance."
        )

    def _which_score_to_trust(self) -> str:
        if self._follows_labels:
            return (
                "Trust the unweighted score, since the error bars seem to be computed from the "
                "noisy labels."
            )
        _, example = chance_and_example(self.correlation)
        return (
            "Trust the unweighted score if the error bars were computed from the noisy labels, as "
            f"{example}. Trust the weighted score if noisy labels are biased, as at a limit of "
            "detection."
        )

    def _ranking(self) -> str:
        """Return which methods have the lowest errors, in sentences."""
        best = self.best
        others = [m for m in self.methods if m.name != SHUFFLED and m is not best]
        close = sorted((m for m in others if self.as_good(m)), key=lambda m: m.name != BIV)
        far = [m for m in others if not m.shown_worse and m not in close]
        score = "weighted paired differences" if self.weighted else "paired differences"
        use = "ignores" if best.name in BLIND else "uses"
        text = f"Judged by {score}, {best.name} is best; it {use} the error bars."
        if close:
            names = "; ".join(m.name for m in close)
            text += f" Close to the best, and not shown to be worse: {names}."
        if far:
            errors = "; ".join(
                f"{m.name} ({m.mse.value / self.label_variance:.3g} of the label variance)"
                for m in far
            )
            text += f" Far above the best, but too uncertain to rule out: {errors}."
        return text

    def record(self) -> ComparisonRecord:
        """Return the comparison as files and reports keep it."""
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
            reasons=self.reasons(),
        )


def _either(names: list[str]) -> str:
    return " or ".join(_quoted(name) for name in names)


def _quoted(name: str) -> str:
    """Return a name in quotes if it has a comma, as "linear, weighted" has."""
    return f"'{name}'" if "," in name else name
