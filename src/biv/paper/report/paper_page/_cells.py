"""Numbers in cells of tables."""

from __future__ import annotations

import math


def format_finite(value: float, form: str) -> str:
    """Return a number with a true minus sign, or nothing where it is not finite."""
    return format(value, form).replace("-", "−") if math.isfinite(value) else ""
