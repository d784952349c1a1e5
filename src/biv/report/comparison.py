"""A comparison of methods, as text for a terminal."""

from __future__ import annotations

import textwrap

from biv.report import conclusions
from biv.report.conclusions import WIDTH
from biv.report.markdown import aligned
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.methods import SHUFFLED


def text(compared: ComparisonRecord) -> str:
    """Return a table, the lowest error first, and what follows from it."""
    lines = [aligned(_rows(compared)), "", textwrap.fill(_explanation(compared), WIDTH)]
    for name, reason in compared.failed.items():
        lines.append(textwrap.fill(f"{name} has no answer here: {reason}", WIDTH))
    # A recommendation and what it rests on are one paragraph.
    advice = " ".join(conclusions.recommendation(compared))
    for sentence in (advice, *conclusions.finding_in_words(compared.finding, compared)):
        lines += ["", textwrap.fill(sentence, WIDTH, break_on_hyphens=False)]
    return "\n".join(lines)


def _rows(compared: ComparisonRecord) -> list[tuple[str, ...]]:
    scale = compared.label_variance
    best = next((m for m in compared.methods if m.method != SHUFFLED), None)
    rows: list[tuple[str, ...]] = [("method", "error", "± ", "above the best", "seconds", "chosen")]
    for method in compared.methods:
        above = ""
        if method is not best:
            mark = " *" if method.is_worse else ""
            difference, stderr = method.above_best / scale, method.above_best_stderr / scale
            above = f"{difference:+.4f} ± {stderr:.4f}{mark}"
        rows.append(
            (
                method.method,
                f"{method.mse / scale:.4f}",
                f"{method.mse_stderr / scale:.4f}",
                above,
                f"{method.seconds:.0f}",
                method.chosen,
            )
        )
    return rows


def _explanation(compared: ComparisonRecord) -> str:
    """Return what the numbers of the table are."""
    of = "" if compared.rows == compared.rows_in_all else f" of {compared.rows_in_all:,}"
    words = (
        "Mean squared errors to the true labels, in units of the label variance "
        f"({compared.label_variance:.4g}), of rows left out: {compared.rows:,}{of} rows, "
        f"{compared.folds} folds. ± is a standard error; differences are paired; * is beyond 1.96 "
        "of them. Intervals are 95%, of one draw of folds: where it is close, try another --seed."
    )
    if compared.weighted_scores:
        words += (
            " Methods are in the order of their differences, which weigh labels by 1/(σ²+ε) and "
            "vary less than errors, which weigh them by its square."
        )
    else:
        words += " All labels count alike in them."
    if compared.unknown_variance is not None:
        words += (
            f" {compared.rows_of_unknown_variance:,} of the rows in all have no error bar: their "
            f"σ² was taken to be {compared.unknown_variance:.4g}."
        )
    return words
