"""Correlation of error bars with the labels, which makes weighted scores one-sided."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from biv._utils.rank_correlation import rank_correlation

Floats = npt.NDArray[np.float64]

MIN_CORRELATION = 0.3  # smallest rank correlation that is reported


def label_correlation(y: Floats, variance: Floats | None) -> float:
    """Return Spearman's rank correlation of labels with their finite variances; 0 without any.

    Examples
    --------
    >>> label_correlation(np.array([1.0, 2.0, 4.0]), np.array([1.0, 4.0, 16.0]))
    1.0
    """
    if variance is None:
        return 0.0
    used = np.isfinite(variance)
    return round(rank_correlation(variance[used], y[used]), 12)


def larger_labels(correlation: float) -> str:
    """Return in words how σ² depends on the label.

    Examples
    --------
    >>> larger_labels(-0.44)
    'Larger labels have smaller error bars (rank correlation -0.44)'
    """
    size = "larger" if correlation > 0 else "smaller"
    return f"Larger labels have {size} error bars (rank correlation {correlation:+.2f})"


def chance_and_example(correlation: float) -> tuple[str, str]:
    """Return which labels get small error bars by chance if these are computed from noisy labels.

    The second item is an example of such error bars.

    Examples
    --------
    >>> chance_and_example(0.8)
    ('small', '√n of a count n is')
    """
    if correlation > 0:
        return "small", "√n of a count n is"
    return "large", "the error bar of the logarithm of a count is"


def is_correlated_with_label(y: Floats, variance: Floats | None) -> bool:
    """Return whether the correlation is so strong that an unweighted score is needed too."""
    return abs(label_correlation(y, variance)) >= MIN_CORRELATION
