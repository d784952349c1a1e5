"""A trained model, as text for a terminal."""

from __future__ import annotations

import textwrap

from biv._utils.messages import format_bytes, format_duration
from biv.report import conclusions
from biv.report.conclusions import WIDTH, r2_in_words
from biv.workflows import ModelFolder
from biv.workflows.training_record import FitRecord, TrainingRecord


def text(folder: ModelFolder) -> str:
    """Return the scores of a model and what follows from them; the latter first if it voids them.

    Args:
        folder: Model folder.
    """
    about, result = folder.about, folder.about.result
    said = [
        textwrap.fill(sentence, WIDTH, break_on_hyphens=False)
        for sentence in conclusions.of_training(result, folder.evidence, folder.comparison)
    ]
    numbers = [_best_epoch(about), *_scores(about, result)]
    lines = [*said, *numbers] if conclusions.scores_are_void(result) else [*numbers, *said]
    return "\n".join(
        [
            *lines,
            f"{format_duration(about.seconds)}, "
            f"{format_bytes(about.peak_memory_bytes)} of memory at the most.",
        ]
    )


def _best_epoch(about: TrainingRecord) -> str:
    result = about.result
    best = f"Epoch {result.epoch} of {result.epochs} was the best"
    most = about.settings["max_epochs"]
    assert isinstance(most, int)
    if result.epoch == result.epochs < most:
        best += " (the last few had gained less than 1%; more --patience may find a better one)"
    return f"{best}. On rows that a network has not seen:"


def _scores(about: TrainingRecord, result: FitRecord) -> list[str]:
    labels = "the true labels" if result.has_error_bars else "the labels     "
    lines = [
        f"  R² to {labels}       {r2_in_words(result.r2, result.r2_stderr)}",
        f"  mean squared error to them  {result.mse:.4g} ± {result.mse_stderr:.2g}; the "
        f"label variance is {result.label_variance:.4g}",
    ]
    if result.epsilon is not None:
        lines.append(
            f"  ε                           {result.epsilon:.4g}, "
            f"{result.relative_epsilon:.3g} of the label variance"
        )
    if result.has_error_bars:
        alike = r2_in_words(result.r2_all_labels_alike, result.r2_all_labels_alike_stderr)
        lines += [
            f"  effective sample size       {result.effective_sample_size:,.0f} of "
            f"{about.rows:,} labels, by 1/(σ²+τ²)",
            f"  with all labels alike       R² {alike}, mean squared error "
            f"{result.mse_all_labels_alike:.4g} ± {result.mse_all_labels_alike_stderr:.2g}",
        ]
        if about.settings["calibrate_variance"]:
            lines.append(f"  σ² was multiplied by        {result.variance_factor:.2f}")
    return lines
