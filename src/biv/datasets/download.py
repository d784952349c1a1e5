"""Find data files in folders and caches, download them, and read them as CSV tables."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from biv._utils.atomic_files import WriteError, write_atomically
from biv._utils.cache import cache_dir
from biv._utils.messages import message_of, shortened

CHUNK = 1 << 16
TIMEOUT = 30.0  # seconds without data


class RemoteFile(NamedTuple):
    """A data file that is not included in the package.

    Attributes
    ----------
    path : str
        Path of the file below a data folder.
    url : str
        URL of a zip archive that contains it.
    member : str
        Name of the file in that archive.
    sha256 : str
        Expected SHA-256 of the file, in hexadecimal digits.
    """

    path: str
    url: str
    member: str
    sha256: str


def find_file(file: RemoteFile) -> Path:
    """Return the path of a file in `BIV_DATA_DIR` or the user's cache, after downloading if needed.

    Raises
    ------
    FileNotFoundError
        The file is in neither place and cannot be downloaded. The message explains what to do.
    ValueError
        The file that was found or downloaded has another SHA-256.
    """
    folder = os.environ.get("BIV_DATA_DIR")
    if folder and (Path(folder) / file.path).is_file():
        return _verified(Path(folder) / file.path, file)
    cached = cache_dir() / file.path
    if cached.is_file():
        return _verified(cached, file)
    try:
        content = _unzipped(_download(file.url), file)
    except OSError as error:
        raise FileNotFoundError(
            f"{file.path} is neither in BIV_DATA_DIR ({folder or 'not set'}) nor in the cache "
            f"({cached}), and could not be downloaded ({error}). Download {file.url} elsewhere, "
            f"unzip it, and copy its {file.member} to {cached}. Or copy it to "
            f"<folder>/{file.path} and set BIV_DATA_DIR=<folder>"
        ) from error
    _require_checksum(content, file, file.url)
    try:
        write_atomically(cached, content)
    except OSError as error:
        raise WriteError(
            error.errno,
            f"{error.strerror}: set BIV_CACHE_DIR to a folder with enough space",
            str(cached),
        ) from error
    return cached


def _verified(path: Path, file: RemoteFile) -> Path:
    _require_checksum(path.read_bytes(), file, str(path))
    return path


def _require_checksum(content: bytes, file: RemoteFile, source: str) -> None:
    digest = hashlib.sha256(content).hexdigest()
    if digest != file.sha256:
        raise ValueError(
            f"{source} must hold {file.member} with SHA-256 {file.sha256}; got {digest} "
            f"({len(content):,} bytes): remove it and try again"
        )


def _download(url: str) -> bytes:
    """Return the content of a URL, and show the progress on a terminal."""
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
        total = int(response.headers.get("Content-Length") or 0)
        content = io.BytesIO()
        while chunk := response.read(CHUNK):
            content.write(chunk)
            _show_progress(url, content.tell(), total)
    if total and content.tell() < total:
        raise OSError(f"the download ended after {content.tell():,} of {total:,} bytes")
    return content.getvalue()


def _show_progress(url: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        amount = f"{done / total:4.0%}" if total else f"{done / 1e6:.1f} MB"
        end = "\n" if done == total else ""
        print(f"\r\033[K{url} {amount}", end=end, file=sys.stderr, flush=True)


def _unzipped(archive: bytes, file: RemoteFile) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return opened.read(file.member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(
            f"{file.url} must be a zip archive with {file.member}; got {len(archive):,} bytes of "
            f"other content ({error})"
        ) from error


class CsvTable:
    """Columns of a CSV file with a header; errors name the file, the line and the cell."""

    def __init__(self, name: str, lines: Iterable[str]) -> None:
        self.name = name
        reader = csv.DictReader(lines)
        self.rows = list(reader)
        self.columns = tuple(reader.fieldnames or ())

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, column: str) -> list[str]:
        """Return the cells of a column as text."""
        if column not in self.columns:
            names = message_of(", ".join(self.columns))
            raise ValueError(f"{self.name} must have a column {column!r}; got {names}")
        return [row[column] for row in self.rows]

    def numbers(
        self, column: str, parse: Callable[[str], float] = float
    ) -> npt.NDArray[np.float64]:
        """Return the cells of a column as numbers."""
        values = np.empty(len(self.rows))
        for index, cell in enumerate(self.text(column)):
            try:
                values[index] = parse(cell)
            except (KeyError, TypeError, ValueError):
                raise ValueError(
                    f"{self.name}, line {index + 2}, column {column!r} must be a number; "
                    f"got {shortened(cell)}"
                ) from None
        return values
