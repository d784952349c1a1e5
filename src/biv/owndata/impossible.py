"""A score that cannot be, and what it says of the error bars."""

from __future__ import annotations

TOO_LARGE = (
    "An error below 0 cannot be: the error bars are larger than the labels' noise. Is the column σ "
    "and not σ² (--target-std), and in the units of the label?"
)
SURE = 3.0  # standard errors


def is_impossible(mse: float, stderr: float) -> bool:
    """Whether a mean squared error to the true labels is below 0, and not by chance."""
    return mse < -SURE * stderr
