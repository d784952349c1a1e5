"""A comparison of methods, as text for a terminal."""

from __future__ import annotations

from biv.report import conclusions, terminal
from biv.report.markdown import aligned
from biv.workflows.comparison_record import ComparisonRecord
from biv.workflows.methods import SHUFFLED


def text(compared: ComparisonRecord) -> str:
    """Return which method to use, why, and a table of the methods, the best first."""
    lines = [
        *terminal.headline(conclusions.from_comparison(compared)),
        "",
        aligned(_rows(compared)),
        "",
        *(terminal.paragraph(note) for note in _notes(compared)),
        "",
        terminal.read_more("checking"),
    ]
    return "\n".join(lines)


def _rows(compared: ComparisonRecord) -> list[tuple[str, ...]]:
    scale = compared.label_variance
    best = next((m for m in compared.methods if m.method != SHUFFLED), None)
    rows: list[tuple[str, ...]] = [
        ("method", "error", "± ", "difference to best", "seconds", "chosen")
    ]
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


def _notes(compared: ComparisonRecord) -> list[str]:
    """Return what the numbers of the table are."""
    of = "" if compared.rows == compared.rows_in_all else f" of {compared.rows_in_all:,}"
    notes = [
        "Errors are mean squared errors to the true labels, divided by the label variance "
        f"({compared.label_variance:.4g}), on held-out rows ({compared.rows:,}{of} rows, "
        f"{compared.folds} folds). ± is one standard error. * marks a paired difference of more "
        "than 1.96 standard errors. Intervals are 95%, for one draw of folds; if a result is "
        "close, try another --seed."
    ]
    if compared.weighted_scores:
        notes.append(
            "Methods are in the order of their differences. Errors use the weights 1/(σ²+ε)²; "
            "differences use 1/(σ²+ε), which makes them less noisy. Differences may therefore "
            "have another size and order than the errors. These weights use the same ε for all "
            "methods. Chosen settings are in squared label units."
        )
    else:
        notes.append("Errors and differences are unweighted: all labels count equally.")
    if compared.unknown_variance is not None:
        count = compared.rows_of_unknown_variance
        notes.append(
            f"{count:,} of {compared.rows_in_all:,} rows {'has' if count == 1 else 'have'} no "
            f"error bar; their σ² was set to {compared.unknown_variance:.4g}."
        )
    notes += [f"{name} gave no result: {why}." for name, why in compared.failed.items()]
    return notes
