"""What follows from a training run, a comparison or an inspection, in sentences.

The text of a command and the HTML page about the same result both render these sentences, so that
they give the same answer to the same question.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from biv.estimator.findings import SILENT, FindingRecord
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.evidence_parts import RemarkRecord
from biv.workflows.label_correlation import MIN_CORRELATION, chance_and_example, larger_labels
from biv.workflows.training_record import FitRecord

UNSEEN = "held-out rows"
NO_ERROR_BARS = (
    "There were no error bars: all labels had the same weight, and their noise is part of every "
    "error."
)
VOID = "Until this is resolved, scores that rest on them mean nothing."
COMPARE = "`biv compare` measures how much weighting helps."
RELATED = (
    "If the error bars were computed from the noisy labels, use error bars that do not follow the "
    "noise, or let `biv compare` decide (see: biv docs error-bars)."
)
UNDEFINED = "the labels vary no more than their noise explains"
LEAST_GAP = 0.02  # smallest difference of two R² that is mentioned
LITTLE = 1.1  # gain in labels, as a factor, below which weighting changes next to nothing
IMPOSSIBLE = 3.0  # standard errors above 1 from which an R² is no accident
SENTENCE_END = re.compile(r"(?<=[.?]) (?=[A-Z0-9-])")

ABOUT_ERROR_BARS = {  # by the kind of the finding
    "few": "There are too few labels to tell whether the error bars are right.",
    "equal": "All error bars are equal, so weighting by them changes nothing.",
    "undecided": "It is undecided whether the error bars are right.",
    "consistent": "The error bars look right.",
    "factor": "The error bars seem to have the wrong size.",
    "shape": "The error bars seem to be wrong, and not by a common factor.",
    "too large": "The error bars are larger than the noise of the labels.",
    "misread": "The error bars seem to be misread.",
    "nothing": "The error bars seem unrelated to the noise of the labels.",
    "placeholders": "Some error bars seem to be placeholders.",
    "follows": "The error bars seem to be computed from the noisy labels.",
}


class Conclusions(NamedTuple):
    """What follows from a result.

    Attributes
    ----------
    verdict : str
        The answer, in one or two sentences.
    reasons : list of str
        Why, the most important reason first.
    advice : list of str
        What to do next.
    """

    verdict: str
    reasons: list[str]
    advice: list[str]

    @property
    def details(self) -> list[str]:
        """Reasons and advice."""
        return [*self.reasons, *self.advice]


def from_training(
    result: FitRecord, evidence: TableEvidence | None, comparison: ComparisonRecord | None
) -> Conclusions:
    """Return what follows from a training run: how good the model is, and what is known of σ²."""
    finding = result.finding
    if not result.has_error_bars:
        return Conclusions(f"{quality_of_model(result)} {NO_ERROR_BARS}", [], [])
    recommended = [] if comparison is None else _sentences(comparison.recommendation)
    about, claim, advice = parts_of_finding(finding, comparison)
    if finding is not None and finding.voids_scores:
        verdict = f"{about} {VOID}"
        return Conclusions(verdict, [*claim, *recommended], advice)
    counted = which_labels_count(
        (result.r2, result.r2_stderr),
        (result.r2_all_labels_alike, result.r2_all_labels_alike_stderr),
        result.rank_correlation_with_label,
        finding,
    )
    if recommended:
        verdict = f"{recommended[0]} {quality_of_model(result)}"
        return Conclusions(verdict, [*recommended[1:], *claim, *counted], advice)
    worth, tau2 = _worth(evidence)
    reasons = [*claim, *counted, *expected_worth(worth, tau2, finding)]
    if is_gain_expected(worth, finding):
        advice = [*advice, COMPARE]
    return Conclusions(f"{quality_of_model(result)} {about}".strip(), reasons, advice)


def from_comparison(comparison: ComparisonRecord) -> Conclusions:
    """Return what follows from a comparison of methods: which one to use."""
    verdict, *sentences = _sentences(comparison.recommendation)
    _, claim, advice = parts_of_finding(comparison.finding, comparison)
    return Conclusions(verdict, [*(comparison.reasons or sentences), *claim], advice)


def from_inspection(
    finding: FindingRecord,
    *,
    worth: float,
    tau2: float,
    r2: tuple[float, float],
    r2_alike: tuple[float, float],
    correlation: float,
) -> Conclusions:
    """Return what follows from an inspection: whether the error bars are right and worth using.

    Parameters
    ----------
    finding : FindingRecord
        What the residuals say about the error bars.
    worth : float
        Number of labels without weights that teach as much as one label with weights.
    tau2 : float
        Variance of the model's own error, in squared label units.
    r2, r2_alike : (float, float)
        Weighted and unweighted R² of a fit, each with its standard error.
    correlation : float
        Rank correlation of σ² with the label.
    """
    verdict, reasons, advice = parts_of_finding(finding)
    if finding.voids_scores:
        return Conclusions(f"{verdict} {VOID}", reasons, advice)
    reasons += which_labels_count(r2, r2_alike, correlation, finding)
    reasons += expected_worth(worth, tau2, finding)
    if finding.kind != "few" and abs(correlation) >= MIN_CORRELATION:
        advice = [*advice, RELATED]
    if is_gain_expected(worth, finding):
        hopes = {"consistent": "Weighting by them should help.",
                 "factor": "Weighting by them may still help."}  # fmt: skip
        verdict += f" {hopes.get(finding.kind, 'If they are, weighting by them should help.')}"
        advice = [*advice, COMPARE]
    elif can_expect_gain(finding) and finding.kind != "equal":
        verdict += " Weighting by them changes next to nothing."
    return Conclusions(verdict, reasons, advice)


def quality_of_model(result: FitRecord) -> str:
    """Return in one sentence how well a model predicts rows that it has not seen."""
    labels = "true labels" if result.has_error_bars else "noisy labels"
    r2, stderr = result.r2, result.r2_stderr or 0.0
    if r2 is None:
        return f"R² of the model is undefined: {UNDEFINED}."
    shown = f"R² {r2_in_words(r2, stderr)} on {UNSEEN}"
    if r2 < 2 * stderr:
        return f"The model predicts next to nothing of these labels ({shown})."
    if r2 > 1 + IMPOSSIBLE * stderr:
        return (
            "How good the model is cannot be measured with these error bars "
            f"({shown}; above 1 is impossible)."
        )
    return f"The model explains {_percent(r2)} of the variance of the {labels} ({shown})."


def _percent(r2: float) -> str:
    if r2 > 0.999:
        return "more than 99.9%"
    return f"{r2:.1%}" if r2 > 0.985 else f"{r2:.0%}"


def parts_of_finding(
    finding: FindingRecord | None, comparison: ComparisonRecord | None = None
) -> tuple[str, list[str], list[str]]:
    """Return what a finding means, what it rests on, and what it advises; each may be empty.

    The last two are empty if the recommendation of a comparison already says the same.
    """
    if finding is None:
        return "", [], []
    first, *others = _sentences(f"{finding.text}.")
    if first.startswith("--"):
        first = f"The column of {first}"
    elif re.match("[a-z]+ ", first):
        first = first[0].upper() + first[1:]
    about = ABOUT_ERROR_BARS.get(finding.kind, "")
    if comparison is not None and (
        finding.kind == "few" or finding.text in comparison.recommendation
    ):
        return about, [], []
    if finding.kind == "equal":
        return about, ["Residuals cannot show whether their size is right."], []
    rest = [" ".join(others)] if others else []
    if finding.kind in (*SILENT, "nothing"):  # what follows the claim is part of it
        return about, [" ".join([first, *rest])], []
    return about, [first], rest


def _sentences(text: str) -> list[str]:
    return SENTENCE_END.split(text)


def _worth(evidence: TableEvidence | None) -> tuple[float | None, float]:
    if evidence is None or evidence.bars is None:
        return math.nan, 0.0
    return evidence.bars.worth, evidence.tau2


def can_expect_gain(finding: FindingRecord | None) -> bool:
    """Return whether a gain from weighting can be expected in spite of the finding."""
    return finding is None or finding.kind in (*SILENT, "factor")


def is_gain_expected(worth: float | None, finding: FindingRecord | None) -> bool:
    """Return whether weighting is expected to change the model; `worth` as `expected_worth`."""
    return can_expect_gain(finding) and (worth is None or worth >= LITTLE)


def expected_worth(worth: float | None, tau2: float, finding: FindingRecord | None) -> list[str]:
    """Return what weighting should be worth by the error bars alone, if they may be right.

    Parameters
    ----------
    worth : float or None
        Number of labels without weights that teach as much as one label with weights; None if a
        label without noise is worth more than any number, NaN if it is unknown.
    tau2 : float
        Variance of the model's own error, in squared label units.
    finding : FindingRecord or None
        What the residuals say about the error bars.
    """
    if not can_expect_gain(finding) or (worth is not None and math.isnan(worth)):
        return []
    if finding is not None and finding.kind == "equal":
        return []
    if worth is None or math.isinf(worth):
        return ["Some labels have no noise at all: weighting lets the model learn most from them."]
    if worth < LITTLE:
        return [
            "The error bars differ too little beside the model's own error "
            f"(τ = {math.sqrt(max(tau2, 0.0)):.3g}) for weights to matter."
        ]
    times = f"{worth:.2g}" if worth < 100 else "more than 100"
    gain = f"as much as having {times} times as many labels."
    if finding is not None and finding.kind == "factor":
        return [
            "If the error bars were right as they are and label noise were the only limit, "
            f"weighting would help {gain}"
        ]
    return [
        f"If the error bars are right and label noise is the only limit, weighting helps {gain}"
    ]


def which_labels_count(
    weighted: tuple[float | None, float | None],
    alike: tuple[float | None, float | None],
    correlation: float,
    finding: FindingRecord | None,
) -> list[str]:
    """Return how scores depend on which labels count most; an empty list if they do not.

    Parameters
    ----------
    weighted, alike : (float or None, float or None)
        Weighted and unweighted R², each with its standard error.
    correlation : float
        Rank correlation of σ² with the label.
    finding : FindingRecord or None
        What the residuals say about the error bars.
    """
    kind = None if finding is None else finding.kind
    is_related = kind != "few" and abs(correlation) >= MIN_CORRELATION
    related = larger_labels(correlation)
    (r2, stderr), (other, other_stderr) = weighted, alike
    differs = r2 is not None and other is not None
    if differs and scores_disagree(r2, stderr or 0.0, other, other_stderr or 0.0):  # type: ignore[arg-type]
        text = (
            f"R² depends on the weights: {r2:.3f} weighted (labels with small error bars count "
            f"most), {other:.3f} unweighted."
        )
        if is_related:
            return [
                f"{related}, and {text} Which one to trust depends on how σ was obtained "
                "(see: biv docs checking)."
            ]
        return [
            f"{text} Trust the unweighted R² if each σ comes from a few repeats, so that some are "
            "small by chance (see: biv docs checking)."
        ]
    if not is_related:
        return []
    extreme, example = chance_and_example(correlation)
    pulled = (
        f"labels that are {extreme} by chance get small error bars, and weighting pulls "
        "predictions towards these labels"
    )
    precise = "low" if correlation > 0 else "high"
    text = f"{related}, so the weighted scores mostly describe {precise} labels."
    if kind == "follows":
        return [f"{text} With such error bars, {pulled}."]
    return [
        f"{text} If σ was computed from the noisy labels, as {example}, {pulled} "
        "(see: biv docs error-bars)."
    ]


def scores_disagree(r2: float, stderr: float, alike: float, alike_stderr: float) -> bool:
    """Return whether the weighted R² is lower than the unweighted one.

    If each σ² is unbiased but scatters, as it does if it comes from a few repeats, the unweighted
    score is right, and the weighted one is too low. A score above 1 is right in no case.
    """
    close = max(LEAST_GAP, 2 * math.hypot(stderr, alike_stderr))
    return alike - r2 > close and alike <= 1 + 2 * alike_stderr


def remarks_in_words(remarks: Sequence[RemarkRecord]) -> list[tuple[str, str]]:
    """Return what to look at: sentences, each with its rows ("" if it has none)."""
    questions = ("zero", "duplicated")
    return [(f"{r.text}{'?' if r.kind in questions else '.'}", r.rows) for r in remarks]


def r2_in_words(value: float | None, stderr: float | None = None) -> str:
    """Return R², with its standard error if that is given; an undefined one is NaN or None."""
    if value is None or math.isnan(value):
        return f"undefined ({UNDEFINED})"
    return f"{value:.3f}" + ("" if stderr is None else f" ± {stderr:.3f}")
