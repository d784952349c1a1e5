"""The files of a folder or of an archive, one after another; nothing is unpacked to disk."""

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
BLOCK = 1 << 20  # bytes that are read at a time where nothing is kept of them
ARCHIVES = (".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".zip")
# What archives raise that are cut off, damaged, encrypted or compressed in an unknown way.
DAMAGED = (
    tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError,
    NotImplementedError, RuntimeError,
)  # fmt: skip
OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}

Reason = Callable[[str], str | None]
Content = bytes | str  # of a file, or why there is none


class ImageFiles(ABC):
    """Files by their names, below `source`.

    Attributes:
        source: The folder or the archive.
    """

    source: Path

    @abstractmethod
    def identity(self, reason_against: Reason) -> Hashable:
        """What changes when files do that there is nothing against, had without reading them."""

    @abstractmethod
    def contents(self, reason_against: Reason) -> Iterator[tuple[str, Content]]:
        """Every name with its bytes; or with what is against it, and then it is not read."""


def open_files(source: Path, ignore: Iterable[Path] = ()) -> ImageFiles:
    """A folder without the files to be ignored, or an archive.

    Raises:
        FileNotFoundError: It is neither.
    """
    if source.is_dir():
        return Folder(source, ignore)
    if source.is_file():
        return Archive(source)
    raise FileNotFoundError(f"{source} is neither a folder of images nor an archive of them")


class Folder(ImageFiles):
    """Subfolders too, but not those that are links, which may lead in circles."""

    def __init__(self, source: Path, ignore: Iterable[Path]) -> None:
        self.source = source
        known = {path.name: path.resolve() for path in ignore}
        found = (
            (name, entry)
            for name, entry in _entries(source)
            if known.get(entry.name) is None or Path(entry.path).resolve() != known[entry.name]
        )
        self._found = sorted(found, key=itemgetter(0))

    @property
    def names(self) -> set[str]:
        """Of all files."""
        return {name for name, _ in self._found}

    def identity(self, reason_against: Reason) -> Hashable:  # noqa: D102
        listed: list[Hashable] = [str(self.source.resolve())]
        for name, entry in self._found:
            fits = reason_against(name) is None
            state = _state(entry.stat(follow_symlinks=_is_file(entry))) if fits else ()
            listed.append((name, *state))
        return tuple(listed)

    def contents(self, reason_against: Reason) -> Iterator[tuple[str, Content]]:  # noqa: D102
        for name, entry in self._found:
            yield name, reason_against(name) or _read(entry)


def _entries(folder: Path, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All but folders, by their names below the first; faster than pathlib by far."""
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
        return "a folder that cannot be read"
    if not _is_file(entry):
        return "not a file"
    try:
        with Path(entry.path).open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
    except OSError as error:
        return f"that cannot be read ({error.strerror})"
    return content if len(content) <= LARGEST_FILE else f"longer than {LARGEST_FILE:,} bytes"


def _state(state: os.stat_result) -> tuple[int, int, int]:
    return state.st_size, state.st_mtime_ns, state.st_ctime_ns


class Archive(ImageFiles):
    """A zip file, or a tar file, compressed or not, of which every byte is looked at."""

    def __init__(self, source: Path) -> None:
        self.source = source

    def identity(self, reason_against: Reason) -> Hashable:  # noqa: ARG002, D102
        return str(self.source.resolve()), *_state(self.source.stat())

    def contents(self, reason_against: Reason) -> Iterator[tuple[str, Content]]:  # noqa: D102
        with self._whole():
            zipped = zipfile.is_zipfile(self.source)
            yield from (self._zipped if zipped else self._tarred)(reason_against)

    def _zipped(self, reason_against: Reason) -> Iterator[tuple[str, Content]]:
        with zipfile.ZipFile(self.source) as archive:
            for entry in archive.infolist():
                name = self._safe(entry.filename, entry.file_size)
                if not entry.is_dir():
                    yield name, reason_against(name) or archive.read(entry)

    def _tarred(self, reason_against: Reason) -> Iterator[tuple[str, Content]]:
        with self._decompressed() as stream:
            bounded = _Bounded(stream)
            with tarfile.open(fileobj=bounded, mode="r:") as archive:  # type: ignore[call-overload]
                for entry in archive:
                    name = self._safe(entry.name, entry.size)
                    if entry.isfile():
                        file = archive.extractfile(entry)
                        assert file is not None
                        yield name, reason_against(name) or file.read()
                    elif not entry.isdir():
                        yield name, reason_against(name) or "not a file"
            # To tarfile, a header that is cut off or damaged is the end, like a block of zeros.
            if bounded.last != bytes(tarfile.BLOCKSIZE):
                raise tarfile.ReadError("it has no end")
            while stream.read(BLOCK):  # until the checksum
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
                f"{self.source} is refused: its entry {shortened(name)} lies outside its folder"
            )
        if size > LARGEST_FILE:  # it is not read further than that, whatever it may unpack to
            raise ValueError(
                f"{self.source} is refused: its entry {shortened(name)} unpacks to more than "
                f"{LARGEST_FILE:,} bytes"
            )
        return path.as_posix()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except DAMAGED as error:
            said = message_of(error)
            raise ValueError(
                f"{self.source} is refused: it is no archive, or is cut off or damaged ({said})"
            ) from error


class _Bounded:
    """A stream that never reads much at once: tarfile believes the lengths of its headers.

    Attributes:
        last: What was read last.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.last = b""
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, size: Any = -1) -> bytes:
        if not 0 <= size <= LARGEST_FILE:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        self.last = self._stream.read(size)
        return self.last
