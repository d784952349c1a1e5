"""Weighted and unweighted R² of a fit on a user's table."""

from __future__ import annotations

import warnings

from biv import metrics
from biv._utils.arrays import FloatArray
from biv.metrics import Score


def r2_scores(pred: FloatArray, y: FloatArray, variance: FloatArray) -> tuple[Score, Score]:
    """Return R² to the true labels, weighted and unweighted.

    A score is NaN if the labels vary no more than their noise explains. The warning about that is
    suppressed, because the texts that show the score explain it.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="noise_corrected_r2 is NaN")
        weighted = metrics.noise_corrected_r2(pred, y, variance)
        return weighted, metrics.noise_corrected_r2(pred, y, variance, weighted=False)
