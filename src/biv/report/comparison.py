"""What a comparison found, as text."""

from __future__ import annotations

import textwrap

from biv.estimator.findings import SILENT
from biv.report.markdown import aligned
from biv.workflows import Comparison

WIDTH = 100


def text(found: Comparison) -> str:
    """A table, the lowest error first, and the recommendation."""
    scale = found.label_variance
    rows = [("method", "error", "± ", "above the best", "seconds", "chosen")]
    for method in found.methods:
        difference = method.to_best
        above = "" if method is found.best else f"{difference.value / scale:+.4f}"
        if above:
            above += f" ± {difference.stderr / scale:.4f}{' *' if method.shown_worse else ''}"
        rows.append(
            (
                method.name,
                f"{method.mse.value / scale:.4f}",
                f"{method.mse.stderr / scale:.4f}",
                above,
                f"{method.seconds:.0f}",
                method.chosen,
            )
        )
    of = "" if found.rows == found.rows_in_all else f" of {found.rows_in_all:,}"
    under = (
        f"Mean squared errors to the true labels, in units of the label variance ({scale:.4g}), of "
        f"rows left out: {found.rows:,}{of} rows, {found.folds} folds. ± is a standard error; "
        "differences are paired; * is beyond 1.96 of them. Intervals are 95 %, of one draw of "
        "folds: where it is close, try another --seed."
    )
    if found.weighted:
        under += (
            " Methods are in the order of their differences, which weigh labels by 1/(σ²+ε) and "
            "vary less than errors, which weigh them by its square."
        )
    else:
        under += " All labels count alike in them."
    if found.unknown_variance is not None:
        under += (
            f" {found.unknown:,} of the rows in all have no error bar: their σ² was taken to be "
            f"{found.unknown_variance:.4g}."
        )
    lines = [aligned(rows), "", textwrap.fill(under, WIDTH)]
    for name, reason in found.failed.items():
        lines.append(textwrap.fill(f"{name} has no answer here: {reason}", WIDTH))
    said = [found.recommendation()]
    if found.finding is not None and found.finding["kind"] not in SILENT and not found.void:
        said.append(f"Finding about the error bars: {found.finding['text']}.")
    for sentence in said:
        lines += ["", textwrap.fill(sentence, WIDTH, break_on_hyphens=False)]
    return "\n".join(lines)
