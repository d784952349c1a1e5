"""The numbers at the top of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping

from biv.report.conclusions import UNSEEN
from biv.report.parts import Figure, Figures, quoted
from biv.workflows.evidence import TableEvidence
from biv.workflows.training_record import FitRecord


def files_in_words(files: Mapping[str, int]) -> str:
    """Return the name of the only file, or the number of files."""
    if len(files) == 1:
        return quoted(next(iter(files)))
    return f"{len(files)} files"


def label_figures(evidence: TableEvidence) -> Figures:
    """Return what labels and error bars amount to."""
    bars = evidence.bars
    if bars is None:
        return Figures(_label_figures(evidence, 0.0, 0))
    return Figures(_label_figures(evidence, bars.effective_sample_size.with_tau2, bars.count))


def model_figures(evidence: TableEvidence, result: FitRecord) -> Figures:
    """Return the same with the scores of the model."""
    found = [
        _r2_figure(evidence, result),
        *_label_figures(evidence, result.effective_sample_size, evidence.rows),
    ]
    if result.epsilon is not None:
        note = f"{result.relative_epsilon:.3g} of the label variance"
        found.append(Figure("ε", f"{result.epsilon:.4g}", note))
    return Figures(found)


def _label_figures(evidence: TableEvidence, size: float, count: int) -> list[Figure]:
    """Return the figures, with an effective sample size of a number of labels."""
    bars, scale = evidence.bars, evidence.label_variance
    note = "with their noise" if bars is None else "without the labels' noise"
    found = [Figure("label variance", f"{scale:.4g}", note)]
    if bars is not None:
        found += [
            Figure("median σ²", f"{bars.median / scale:.3g}", "of the label variance"),
            Figure("effective sample size", f"{size:,.0f}", f"of {count:,} labels, by 1/(σ²+τ²)"),
        ]
    tau = f"{math.sqrt(max(evidence.tau2, 0.0)):.4g}"
    return [*found, Figure("the model's own error, τ", tau, "in units of the label")]


def _r2_figure(evidence: TableEvidence, result: FitRecord) -> Figure:
    label = "R² to the true labels" if evidence.bars else "R²"
    if result.r2 is None:
        return Figure(label, "undefined", f"of {UNSEEN}{_alike(result)}")
    return Figure(
        label, f"{result.r2:.3f}", f"± {result.r2_stderr:.3f}, of {UNSEEN}{_alike(result)}"
    )


def _alike(result: FitRecord) -> str:
    """Return the same score without trust in the small error bars; old models have none."""
    value, stderr = result.r2_all_labels_alike, result.r2_all_labels_alike_stderr
    if not result.has_error_bars or value is None:
        return ""
    return f"; {value:.3f} ± {stderr:.3f} with all labels alike"
