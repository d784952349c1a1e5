r"""Scores against noisy labels: how good is a model where no clean label was ever seen?

In all of them σ² is the variance of each label's noise; elements whose σ² is infinite or whose
target is NaN do not count; arrays and tensors are taken alike, at equal shapes or σ² of (N, 1)
beside (N, D). The noise is taken to be independent of the predictions: score predictions on labels
that the model was **not** fitted on.

σ² is taken to be known. If each σ² was estimated from a few repeats of its label, those that are
small by chance get the largest weights: with three repeats, a model whose mean squared error is
0.10 scores about 0.4, and the factor by which σ² seems to be off falls far below 1. Shrink such
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
