"""R² of a fit on a user's table, both ways."""

from __future__ import annotations

import warnings

from biv import metrics
from biv._utils.arrays import FloatArray
from biv.metrics import Score


def r2_scores(pred: FloatArray, y: FloatArray, variance: FloatArray) -> tuple[Score, Score]:
    """R² to the true labels, by weights and with all labels alike.

    A score is NaN if the labels do not vary more than their noise explains. What is shown of it
    says so, and hence nothing warns of it here.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="noise_corrected_r2 is NaN")
        weighted = metrics.noise_corrected_r2(pred, y, variance)
        return weighted, metrics.noise_corrected_r2(pred, y, variance, weighted=False)
