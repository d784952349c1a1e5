"""The folder in which downloads and decoded images are kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """The folder for downloads: `BIV_CACHE_DIR`, or biv in the user's cache."""
    if chosen := os.environ.get("BIV_CACHE_DIR"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "biv"
