r"""Scores that estimate the error to the true labels from noisy labels and their variances.

Throughout, σ² is the noise variance of a label. Elements whose σ² is infinite or whose target is
NaN are left out. All functions accept arrays and tensors of equal shapes, or σ² of shape (N, 1) for
labels of shape (N, D).

All scores assume that the noise is independent of the predictions. Score predictions only on labels
that the model was **not** fitted on.

All scores also assume that σ² is known. If each σ² is estimated from a few repeats of its label,
variances that are small by chance get the largest weights. With three repeats, a model whose mean
squared error is 0.10 scores about 0.4, and :func:`variance_factor` falls far below 1. Shrink such
variances with :func:`biv.labels.repeats` first, or score with ``weighted=False``, which stays
unbiased.
"""

from biv.metrics._scores import Score
from biv.metrics.calibration import READINGS, misread, variance_factor
from biv.metrics.moments import (
    LabelMoments,
    grouped_label_moments,
    label_moments,
    label_variance,
    residual_variance,
)
from biv.metrics.sample_size import effective_sample_size, steady_epsilon
from biv.metrics.scores import (
    noise_corrected_difference,
    noise_corrected_mse,
    noise_corrected_r2,
    reduced_chi_squared,
)

__all__ = [
    "READINGS",
    "LabelMoments",
    "Score",
    "effective_sample_size",
    "grouped_label_moments",
    "label_moments",
    "label_variance",
    "misread",
    "noise_corrected_difference",
    "noise_corrected_mse",
    "noise_corrected_r2",
    "reduced_chi_squared",
    "residual_variance",
    "steady_epsilon",
    "variance_factor",
]
