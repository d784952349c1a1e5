"""What a score that cannot be says of the error bars."""

from __future__ import annotations

TOO_LARGE = (
    "An error below 0 cannot be: the error bars are larger than the labels' noise. Is the column σ "
    "and not σ² (--target-std), and in the units of the label?"
)
