"""The key figures at the top of the page."""

from __future__ import annotations

import math
from collections.abc import Mapping

from biv.report.conclusions import UNSEEN
from biv.report.parts import KeyNumber, KeyNumbers, quoted
from biv.workflows.evidence import TableEvidence
from biv.workflows.training_record import FitRecord


def files_in_words(files: Mapping[str, int]) -> str:
    """Return the name of the file if there is only one, else the number of files."""
    if len(files) == 1:
        return quoted(next(iter(files)))
    return f"{len(files)} files"


def label_figures(evidence: TableEvidence) -> KeyNumbers:
    """Return the key figures of the labels and their error bars."""
    bars = evidence.bars
    if bars is None:
        return KeyNumbers(_label_figures(evidence, 0.0, 0))
    return KeyNumbers(_label_figures(evidence, bars.effective_sample_size.with_tau2, bars.count))


def model_figures(evidence: TableEvidence, result: FitRecord) -> KeyNumbers:
    """Return the key figures of a model and of its labels."""
    figures = [
        _r2_figure(evidence, result),
        *_label_figures(evidence, result.effective_sample_size, evidence.rows),
    ]
    if result.epsilon is not None:
        note = f"{result.relative_epsilon:.3g} × label variance"
        figures.append(KeyNumber("ε", f"{result.epsilon:.4g}", note))
    return KeyNumbers(figures)


def _label_figures(evidence: TableEvidence, size: float, count: int) -> list[KeyNumber]:
    """Return the figures, where `size` is the effective sample size of `count` labels."""
    bars, scale = evidence.bars, evidence.label_variance
    note = "including label noise" if bars is None else "excluding label noise"
    figures = [KeyNumber("label variance", f"{scale:.4g}", note)]
    if bars is not None:
        figures += [
            KeyNumber("median σ²", f"{bars.median / scale:.3g}", "× label variance"),
            KeyNumber(
                "effective sample size",
                f"{size:,.0f}",
                f"of {count:,} labels, with weights 1/(σ²+τ²)",
            ),
        ]
    tau = f"{math.sqrt(max(evidence.tau2, 0.0)):.4g}"
    return [*figures, KeyNumber("the model's own error, τ", tau, "in label units")]


def _r2_figure(evidence: TableEvidence, result: FitRecord) -> KeyNumber:
    label = "R² to the true labels" if evidence.bars else "R²"
    if result.r2 is None:
        return KeyNumber(label, "undefined", f"on {UNSEEN}{_unweighted(result)}")
    return KeyNumber(
        label, f"{result.r2:.3f}", f"± {result.r2_stderr:.3f}, on {UNSEEN}{_unweighted(result)}"
    )


def _unweighted(result: FitRecord) -> str:
    """Return the score in which all labels count equally, or "" for models of old versions."""
    value, stderr = result.r2_all_labels_alike, result.r2_all_labels_alike_stderr
    if not result.has_error_bars or value is None:
        return ""
    return f"; unweighted: {value:.3f} ± {stderr:.3f}"
