"""A trained model, as text for a terminal."""

from __future__ import annotations

import math

from biv._utils.messages import format_bytes, format_duration
from biv.report import conclusions, terminal
from biv.report.conclusions import UNDEFINED, UNSEEN, r2_in_words
from biv.workflows import ModelFolder
from biv.workflows.training_record import FitRecord, TrainingRecord

MSE = "MSE, squared label units"


def text(folder: ModelFolder) -> str:
    """Return the verdict on a model, why, and its scores.

    Parameters
    ----------
    folder : ModelFolder
        The trained model.
    """
    about, result = folder.about, folder.about.result
    verdict = conclusions.from_training(result, folder.evidence, folder.comparison)
    lines = [
        *terminal.headline(verdict),
        "",
        *_scores(result),
        *terminal.fields(_facts(about, result)),
        "",
        terminal.read_more("checking"),
    ]
    return "\n".join(lines)


def _scores(result: FitRecord) -> list[str]:
    mse = f"{result.mse:.4g} ± {result.mse_stderr:.2g}"
    if not result.has_error_bars:
        return [
            f"Scores on {UNSEEN}:",
            *terminal.fields(
                [
                    ("R² to the labels", r2_in_words(result.r2, result.r2_stderr)),
                    (MSE, mse),
                ]
            ),
        ]
    alike = f"{result.mse_all_labels_alike:.4g} ± {result.mse_all_labels_alike_stderr:.2g}"
    r2, r2_alike = (
        "undefined" if _is_undefined(value) else r2_in_words(value, stderr)
        for value, stderr in (
            (result.r2, result.r2_stderr),
            (result.r2_all_labels_alike, result.r2_all_labels_alike_stderr),
        )
    )
    lines = [
        f"Scores on {UNSEEN}:",
        *terminal.columns(
            [
                ("", "weighted", "unweighted"),
                ("R² to the true labels", r2, r2_alike),
                (MSE, mse, alike),
            ]
        ),
    ]
    if "undefined" in (r2, r2_alike):
        lines.append(f"(undefined: {UNDEFINED})")
    return lines


def _is_undefined(value: float | None) -> bool:
    return value is None or math.isnan(value)


def _facts(about: TrainingRecord, result: FitRecord) -> list[tuple[str, str]]:
    facts = [("label variance", f"{result.label_variance:.4g}")]
    if result.has_error_bars:
        size = f"{result.effective_sample_size:,.0f} of {about.rows:,} labels"
        size += ", with the weights 1/(σ²+τ²)"
        facts.append(("effective sample size", size))
        facts.append(("model's own error τ²", f"{result.tau2:.4g}"))
    if result.epsilon is not None:
        relative = f"{result.relative_epsilon:.3g} of the label variance"
        facts.append(("ε", f"{result.epsilon:.4g}, {relative}"))
    if result.has_error_bars and about.settings["calibrate_variance"]:
        facts.append(("σ² was multiplied by", f"{result.variance_factor:.2f}"))
    cost = f"{format_duration(about.seconds)}, {format_bytes(about.peak_memory_bytes)}"
    return [*facts, ("best epoch", _best_epoch(about)), ("time, peak memory", cost)]


def _best_epoch(about: TrainingRecord) -> str:
    result = about.result
    best, most = f"{result.epoch} of {result.epochs}", about.settings["max_epochs"]
    assert isinstance(most, int)
    if result.epoch == result.epochs < most:
        best += (
            " (training stopped because gains fell below 1%, but the error was still falling; try "
            "a larger --patience)"
        )
    return best
