"""Checksums of the files of a model folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def verify(path: Path, checksums: Mapping[str, str]) -> bool:
    """Return whether a file exists, after comparing its content with its checksum if it has one.

    Parameters
    ----------
    path : Path
        Path of the file.
    checksums : mapping of str to str
        SHA-256 checksums by file name.

    Raises
    ------
    ValueError
        If the content does not match the checksum, if the file has a checksum but does not exist,
        or if it is not a regular file.
    """
    expected = checksums.get(path.name)
    if not path.is_symlink() and not path.exists():
        if expected is not None:
            raise ValueError(f"{path} is missing. Train the model again, or restore a copy")
        return False
    if not path.is_file():
        raise ValueError(f"{path} must be a regular file")
    if expected is not None and sha256(path) != expected:
        raise ValueError(
            f"{path} is damaged: its checksum does not match. Train the model again, or restore a "
            "copy"
        )
    return True
