"""Files of data: where they are found, how they are fetched, what is said when they cannot be."""

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
TIMEOUT = 30.0  # seconds without a byte


class RemoteFile(NamedTuple):
    """One file of data that is not shipped.

    Attributes:
        path: Where it lies below a folder of data.
        url: A zip archive that has it.
        member: Its name in that archive.
        sha256: What its bytes must amount to.
    """

    path: str
    url: str
    member: str
    sha256: str


def find(file: RemoteFile) -> Path:
    """The file in `BIV_DATA_DIR`, else in the user's cache, else downloaded there.

    Raises:
        FileNotFoundError: It is in neither and cannot be downloaded; the message says what to do.
        ValueError: What was found or downloaded is not the file that was meant.
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
            f"unzip it, and put its {file.member} at {cached}; or put it at "
            f"<folder>/{file.path} and set BIV_DATA_DIR=<folder>"
        ) from error
    _require_checksum(content, file, file.url)
    try:
        write_atomically(cached, content)
    except OSError as error:
        raise WriteError(
            error.errno, f"{error.strerror}: set BIV_CACHE_DIR to a folder with room", str(cached)
        ) from error
    return cached


def _verified(path: Path, file: RemoteFile) -> Path:
    _require_checksum(path.read_bytes(), file, str(path))
    return path


def _require_checksum(content: bytes, file: RemoteFile, source: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise ValueError(
            f"{source} must hold {file.member} with SHA-256 {file.sha256}; got {found} "
            f"({len(content):,} bytes): remove it and try again"
        )


def _download(url: str) -> bytes:
    """All of a URL, with its progress where someone is watching."""
    with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
        total = int(response.headers.get("Content-Length") or 0)
        content = io.BytesIO()
        while chunk := response.read(CHUNK):
            content.write(chunk)
            _show(url, content.tell(), total)
    if total and content.tell() < total:
        raise OSError(f"the download ended after {content.tell():,} of {total:,} bytes")
    return content.getvalue()


def _show(url: str, done: int, total: int) -> None:
    if sys.stderr.isatty():
        share = f"{done / total:4.0%}" if total else f"{done / 1e6:.1f} MB"
        end = "\n" if done == total else ""
        print(f"\r\033[K{url} {share}", end=end, file=sys.stderr, flush=True)


def _unzipped(archive: bytes, file: RemoteFile) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as opened:
            return opened.read(file.member)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(
            f"{file.url} must be a zip archive with {file.member}; got {len(archive):,} bytes "
            f"that are not ({error})"
        ) from error


class CsvTable:
    """A CSV file with a header, column by column; errors name the file, the line and the cell."""

    def __init__(self, name: str, lines: Iterable[str]) -> None:
        self.name = name
        reader = csv.DictReader(lines)
        self.rows = list(reader)
        self.columns = tuple(reader.fieldnames or ())

    def __len__(self) -> int:
        return len(self.rows)

    def text(self, column: str) -> list[str]:
        """The cells of a column as they are."""
        if column not in self.columns:
            names = message_of(", ".join(self.columns))
            raise ValueError(f"{self.name} must have a column {column!r}; got {names}")
        return [row[column] for row in self.rows]

    def numbers(
        self, column: str, parse: Callable[[str], float] = float
    ) -> npt.NDArray[np.float64]:
        """The cells of a column as numbers."""
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
