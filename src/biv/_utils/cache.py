"""The folder of cached downloads and decoded images."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache folder: `BIV_CACHE_DIR`, or "biv" in the user's cache folder."""
    if chosen := os.environ.get("BIV_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "biv"
