"""Iterate over the files of a folder or an archive, without unpacking anything to disk."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import re
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import IO, Any

from biv._utils.messages import message_of, shortened

LARGEST_FILE = 256 << 20  # bytes
BLOCK = 1 << 20  # bytes per read where the content is not kept
ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".zip")
# Errors of archives that are truncated, damaged, encrypted or compressed in an unknown way.
DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError,
    NotImplementedError, RuntimeError,
)  # fmt: skip
OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}

# The reason why a file of this name cannot be a row, or None if it can.
SkipReason = Callable[[str], str | None]
Content = bytes | str  # the bytes of a file, or the reason why it was skipped


class ImageFiles(ABC):
    """Files of a folder or an archive, by their names below it.

    Attributes
    ----------
    source : Path
        The folder or the archive.
    """

    source: Path

    @abstractmethod
    def identity(self, skip_reason: SkipReason) -> Hashable:
        """Return a key that changes when a usable file changes, without reading the files."""

    @abstractmethod
    def contents(self, skip_reason: SkipReason) -> Iterator[tuple[str, Content]]:
        """Yield every name with its bytes, or with the reason why the file is skipped unread."""


def open_files(source: Path, ignore: Iterable[Path] = ()) -> ImageFiles:
    """Return the files of a folder, without those to ignore, or of an archive.

    Raises
    ------
    FileNotFoundError
        `source` is neither a folder nor a file.
    """
    if source.is_dir():
        return Folder(source, ignore)
    if source.is_file():
        return Archive(source)
    raise FileNotFoundError(f"{source} is neither a folder of images nor an archive of images")


class Folder(ImageFiles):
    """Files of a folder and its subfolders, except linked ones, which may form cycles."""

    def __init__(self, source: Path, ignore: Iterable[Path]) -> None:
        self.source = source
        ignored = {path.name: path.resolve() for path in ignore}
        entries = (
            (name, entry)
            for name, entry in _entries(source)
            if ignored.get(entry.name) is None or Path(entry.path).resolve() != ignored[entry.name]
        )
        self._entries = sorted(entries, key=itemgetter(0))

    @property
    def names(self) -> set[str]:
        """Return the names of all files."""
        return {name for name, _ in self._entries}

    def identity(self, skip_reason: SkipReason) -> Hashable:  # noqa: D102
        key: list[Hashable] = [str(self.source.resolve())]
        for name, entry in self._entries:
            usable = skip_reason(name) is None
            state = _state(entry.stat(follow_symlinks=_is_file(entry))) if usable else ()
            key.append((name, *state))
        return tuple(key)

    def contents(self, skip_reason: SkipReason) -> Iterator[tuple[str, Content]]:  # noqa: D102
        for name, entry in self._entries:
            yield name, skip_reason(name) or _read(entry)


def _entries(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all entries except folders, with their names below `folder`.

    ``os.scandir`` is much faster than pathlib here.
    """
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False) and os.access(entry.path, os.R_OK | os.X_OK):
                yield from _entries(Path(entry.path), f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, entry


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # a link to itself
        return False


def _read(entry: os.DirEntry[str]) -> Content:
    if entry.is_dir(follow_symlinks=False):
        return "unreadable folder"
    if not _is_file(entry):
        return "not a regular file"
    try:
        with Path(entry.path).open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        return f"unreadable ({error.strerror})"
    return content if len(content) <= LARGEST_FILE else f"longer than {LARGEST_FILE:,} bytes"


def _state(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns


class Archive(ImageFiles):
    """Files of a zip file or of a tar file, compressed or not. Every byte is read and checked."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def identity(self, skip_reason: SkipReason) -> Hashable:  # noqa: ARG002, D102
        return str(self.source.resolve()), *_state(self.source.stat())

    def contents(self, skip_reason: SkipReason) -> Iterator[tuple[str, Content]]:  # noqa: D102
        with self._errors_name_archive():
            zipped = zipfile.is_zipfile(self.source)
            yield from (self._zipped if zipped else self._tarred)(skip_reason)

    def _zipped(self, skip_reason: SkipReason) -> Iterator[tuple[str, Content]]:
        with zipfile.ZipFile(self.source) as archive:
            for entry in archive.infolist():
                name = self._safe(entry.filename, entry.file_size)
                if not entry.is_dir():
                    yield name, skip_reason(name) or archive.read(entry)

    def _tarred(self, skip_reason: SkipReason) -> Iterator[tuple[str, Content]]:
        with self._decompressed() as stream:
            bounded = _Bounded(stream)
            with tarfile.open(fileobj=bounded, mode="r:") as archive:  # type: ignore[call-overload]
                for entry in archive:
                    name = self._safe(entry.name, entry.size)
                    if entry.isfile():
                        file = archive.extractfile(entry)
                        assert file is not None
                        yield name, skip_reason(name) or file.read()
                    elif not entry.isdir():
                        yield name, skip_reason(name) or "not a regular file"
            # tarfile takes a truncated or damaged header for the end, like a block of zeros.
            if bounded.last != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("it has no end marker")
            while stream.read(BLOCK):  # the checksum follows the content
                pass

    @contextmanager
    def _decompressed(self) -> Iterator[IO[bytes]]:
        with self.source.open("rb") as file:
            first = file.read(max(map(len, OPENERS)))
            file.seek(0)
            for magic, opener in OPENERS.items():
                if first.startswith(magic):
                    with opener(file) as stream:
                        yield stream
                    return
            yield file

    def _safe(self, name: str, size: int) -> str:
        path = PurePosixPath(name.replace("\\", "/"))
        if path.is_absolute() or ".." in path.parts or re.match(r"[A-Za-z]:", name):
            raise ValueError(
                f"{self.source} is refused: its entry {shortened(name)} is outside its folder"
            )
        if size > LARGEST_FILE:  # reading stops at this size, whatever the content unpacks to
            raise ValueError(
                f"{self.source} is refused: its entry {shortened(name)} unpacks to more than "
                f"{LARGEST_FILE:,} bytes"
            )
        return path.as_posix()

    @contextmanager
    def _errors_name_archive(self) -> Iterator[None]:
        try:
            yield
        except DAMAGED as error:
            raise ValueError(
                f"{self.source} is refused: it is not an archive, or it is truncated or damaged "
                f"({message_of(error)})"
            ) from error


class _Bounded:
    """Stream with an upper limit per read, because tarfile trusts the lengths in its headers.

    Attributes
    ----------
    last : bytes
        Content of the last read.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.last = b""
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: Any = -1) -> bytes:
        if not 0 <= size <= LARGEST_FILE:
            raise tarfile.ReadError(f"a header has {size:,} bytes")
        self.last = self._stream.read(size)
        return self.last
