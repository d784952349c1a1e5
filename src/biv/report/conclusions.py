"""What follows from what was found: one function per question, in sentences.

The text of a command and the page about the same result both render these sentences, so that the
same question has the same answer in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from biv.estimator.findings import SILENT, FindingRecord
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.evidence_parts import RemarkRecord
from biv.workflows.label_correlation import MIN_CORRELATION
from biv.workflows.training_record import FitRecord

WIDTH = 100  # characters of a line of text
UNSEEN = "rows that the networks had not seen"
NO_ERROR_BARS = (
    "There were no error bars: all labels counted alike, and their noise is in every error here."
)
VOID = "The scores rest on these error bars: until this is resolved, they mean nothing."
LEAST_GAP = 0.02  # smallest difference of two R² that is mentioned
LITTLE = 1.1  # gain in labels, as a factor, below which weighting changes next to nothing


def of_training(
    result: FitRecord, evidence: TableEvidence | None, comparison: ComparisonRecord | None
) -> list[str]:
    """Return what there is to say about a trained model, the most important sentence first."""
    if not result.has_error_bars:
        said = [NO_ERROR_BARS]
    elif comparison is not None:
        said = [*recommendation(comparison), *finding_in_words(result.finding, comparison)]
    else:
        said = [
            *expected_worth(*_worth(evidence), result.finding),
            *finding_in_words(result.finding),
        ]
    said += caveats(result)
    if scores_are_void(result):
        first = [*finding_in_words(result.finding), VOID]
        return [*first, *(sentence for sentence in said if sentence not in first)]
    if result.r2 is None or result.r2 < 2 * (result.r2_stderr or 0.0):
        r2 = r2_in_words(result.r2, result.r2_stderr)
        said.insert(0, f"The model predicts next to nothing of these labels: R² {r2} on {UNSEEN}.")
    return said


def of_comparison(comparison: ComparisonRecord) -> list[str]:
    """Return what follows from a comparison of methods: the recommendation first."""
    return [*recommendation(comparison), *finding_in_words(comparison.finding, comparison)]


def recommendation(comparison: ComparisonRecord) -> list[str]:
    """Return the recommendation: its first sentence, and what that rests on."""
    first, stop, rest = comparison.recommendation.partition(". ")
    return [first + stop.strip(), *([rest] if rest else [])]


def finding_in_words(
    finding: FindingRecord | None, comparison: ComparisonRecord | None = None
) -> list[str]:
    """Return whether the error bars are right, unless a recommendation has said it."""
    if finding is None or (comparison is not None and finding.text in comparison.recommendation):
        return []
    return [f"Finding about the error bars: {finding.text}."]


def scores_are_void(result: FitRecord) -> bool:
    """Return whether the error bars are so wrong that scores by them mean nothing."""
    return result.finding is not None and result.finding.voids_scores


def _worth(evidence: TableEvidence | None) -> tuple[float | None, float]:
    if evidence is None or evidence.bars is None:
        return math.nan, 0.0
    return evidence.bars.worth, evidence.tau2


def can_expect_gain(finding: FindingRecord | None) -> bool:
    """Return whether the finding allows to expect a gain from weighting by these error bars."""
    return finding is None or finding.kind in (*SILENT, "factor")


def expected_worth(worth: float | None, tau2: float, finding: FindingRecord | None) -> list[str]:
    """Return what weighting should be worth by the error bars alone, if they may be right.

    Args:
        worth: How many times as many labels without weights teach as much; None where a label
            without noise beats any number, NaN where it is unknown.
        tau2: Variance of the model's own error.
        finding: What the residuals say about the error bars.
    """
    if not can_expect_gain(finding) or (worth is not None and math.isnan(worth)):
        return []
    if worth is None or math.isinf(worth):
        return ["Some labels have no noise at all: weighting lets the model learn most from them."]
    if worth < LITTLE:
        return [
            f"Beside the model's own error (τ = {math.sqrt(max(tau2, 0.0)):.3g}) these error bars "
            "differ too little to matter: weighting by them changes next to nothing."
        ]
    times = f"{worth:.2g}" if worth < 100 else "more than a hundred"
    return [
        f"If these error bars are right, weighting by them is worth {times} times as many labels "
        f"({1 - 1 / worth:.0%} lower variance), as far as label noise limits the model: "
        "`biv compare` measures it."
    ]


def caveats(result: FitRecord) -> list[str]:
    """Return what must be said beside the scores; nothing if they can be taken as they are."""
    if scores_are_void(result):
        return [VOID]
    said = []
    r2, alike = result.r2, result.r2_all_labels_alike
    if r2 is not None and alike is not None:
        said += disagreement(
            r2, result.r2_stderr or 0.0, alike, result.r2_all_labels_alike_stderr or 0.0
        )
    is_judged = result.finding is None or result.finding.kind != "few"
    if is_judged and abs(result.rank_correlation_with_label) >= MIN_CORRELATION:
        said.append(
            "Error bars go with the label (rank correlation "
            f"{result.rank_correlation_with_label:+.2f}), so that these scores tell of one end of "
            "the labels more than of the other. With all labels alike, the squared error is "
            f"{result.mse_all_labels_alike:.4g} ± {result.mse_all_labels_alike_stderr:.2g}, "
            "if the large error bars are right. Were error bars computed from the noisy labels, as "
            "√n of a count n is, then weighting pulls predictions to one side: biv compare tells "
            "whether to use them."
        )
    return said


def disagreement(r2: float, stderr: float, alike: float, alike_stderr: float) -> list[str]:
    """Return how σ was obtained, where R² is lower by the reliable labels than with all alike.

    Where each σ² is unbiased but scatters, as it does if it comes from a few repeats, the score
    with all labels alike is right, and the other too low. It is not right if it is above 1.
    """
    close = max(LEAST_GAP, 2 * math.hypot(stderr, alike_stderr))
    if not alike - r2 > close or alike > 1 + 2 * alike_stderr:
        return []
    return [
        f"How was σ obtained? R² is {r2:.3f} by the labels of small error bars, but {alike:.3f} "
        "with all labels alike, and the second is right if each σ comes from a few repeats, of "
        "which some are small by chance (see: biv docs checking)."
    ]


def remarks_in_words(remarks: Sequence[RemarkRecord]) -> list[tuple[str, str]]:
    """Return what there is to look at: sentences, each with its rows ("" if nowhere)."""
    questions = ("zero", "duplicated")
    return [(f"{r.text}{'?' if r.kind in questions else '.'}", r.rows) for r in remarks]


def r2_in_words(value: float | None, stderr: float | None = None) -> str:
    """Return R², with its standard error if that is given; an undefined one is NaN or None."""
    if value is None or math.isnan(value):
        return "undefined (the labels vary no more than their noise explains)"
    return f"{value:.3f}" + ("" if stderr is None else f" ± {stderr:.3f}")
