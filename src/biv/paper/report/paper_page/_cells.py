"""Format the numbers of table cells."""

from __future__ import annotations

import math


def format_finite(value: float, form: str) -> str:
    """Format a number with a typographic minus sign; return an empty string if it is not finite."""
    return format(value, form).replace("-", "−") if math.isfinite(value) else ""
