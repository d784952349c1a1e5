"""Checksums of the files of a model folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()


def verify(path: Path, checksums: Mapping[str, str]) -> bool:
    """Return whether a file exists; if it has a checksum, check its content against that.

    Raises:
        ValueError: The file has another content, or has a checksum and does not exist.
    """
    wanted = checksums.get(path.name)
    if not path.is_symlink() and not path.exists():
        if wanted is not None:
            raise ValueError(f"{path} is missing: train the model again, or restore a copy")
        return False
    if not path.is_file():
        raise ValueError(f"{path} must be a regular file")
    if wanted is not None and sha256(path) != wanted:
        raise ValueError(
            f"{path} is damaged: its checksum does not match: train the model again, or restore a "
            "copy"
        )
    return True
