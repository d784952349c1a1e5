"""Folders and archives of images: decoded once, in parallel, to a file that is mapped to memory.

What becomes of a file, by one rule for all:

- A file that cannot be a row is left out and reported, with the reason: it has no label, it cannot
  be read, it is not an image (BMP, GIF, JPEG, PNG, PPM, TIFF or WebP), it is cut off or damaged, it
  has more than 8 bits a channel, it is longer than 256 MiB, or it would decode to more than
  67,108,864 pixels (a decompression bomb).
- Of files with equal bytes, the first by name is kept; the others are reported.
- An archive that cannot be trusted is refused as a whole, with a ValueError: an entry lies outside
  its folder, unpacks to more than 256 MiB, or the archive is cut off or damaged anywhere. Archives
  are read entry by entry, and never unpacked to disk.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import math
import os
import re
import secrets
import shutil
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from biv._utils import validation
from biv._utils.atomic_files import (
    WriteError,
    lock_folder,
    make_folder,
    remove_leftover,
    write_atomically,
)
from biv._utils.cache import cache_dir
from biv._utils.messages import message_of, shortened
from biv._utils.progress import progress_bar
from biv._utils.warnings import warn
from biv.images.archive import LARGEST_FILE, ImageFiles, Reason, open_files
from biv.images.dataset import CHANNELS, Skipped

FORMAT = "biv images 1"


LARGEST_IMAGE = 64 << 20  # pixels


LARGEST_SIDE = 4096  # pixels, of what is asked for


STALE = 24 * 3600.0  # seconds after which what was begun and never finished is cleared away


SHOWN = 3  # files that a warning names


REPEATED, REPEATED_KIND = "has the bytes of", "with the bytes of another"


UNWANTED = "not wanted"


KINDS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")  # no interpreter among the decoders


class Decoded(NamedTuple):
    """Images in a cache.

    Attributes:
        x: (N, 3, size, size), bytes.
        names: Of their files, sorted.
        skipped: Files that are not among them, and why.
    """

    x: npt.NDArray[np.uint8]
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def decode(
    source: Path,
    *,
    size: int,
    reason_against: Reason = lambda _: None,
    rule: str = "",
    ignore: Iterable[Path] = (),
    progress: bool = True,
) -> Decoded:
    """All images of a folder or an archive, square and of one size, from the cache if it has them.

    An image is turned as its EXIF entry says, made RGB, cut to the square in its middle and resized
    to `size` with Pillow's antialiased bilinear filter. Files are ordered by name, whatever the
    folder or the archive.

    The cache is a folder below ``BIV_CACHE_DIR``, or the user's cache, named by a digest of the
    names, lengths and times of the files, the size and the rule; it appears whole or not at all.

    Args:
        source: A folder, with its subfolders, or an archive.
        size: Of a side, in pixels.
        reason_against: Why a file of this name cannot be a row, or None.
        rule: A name for this function, part of the cache's.
        ignore: Files of the folder that are known to be something else.
        progress: Whether to show a bar on a terminal.

    Raises:
        FileNotFoundError: There is no such folder or archive.
        ValueError: The archive is refused, or there are no images.
    """
    side = validation.integer("size", size, at_least=1)
    if side > LARGEST_SIDE:
        raise ValueError(f"size must be at most {LARGEST_SIDE} pixels; got {side}")
    if importlib.util.find_spec("PIL") is None:
        raise ModuleNotFoundError("images need Pillow: pip install pillow, or biv[images]")
    files = open_files(source, ignore)
    known = repr((FORMAT, side, rule, files.identity(reason_against)))
    key = hashlib.sha256(known.encode(errors="surrogateescape")).hexdigest()[:24]
    home = cache_dir() / "images" / key
    if not home.is_dir():
        _make(home, files, side, reason_against, progress=progress)
    return _open(home)


def _open(home: Path) -> Decoded:
    try:
        told = json.loads((home / "contents.json").read_text(encoding="utf-8"))
        count, side = len(told["names"]), int(told["size"])
        if told["format"] != FORMAT:
            raise ValueError(f"it is a {shortened(told['format'])}")
        pixels = home / "pixels.bin"
        if pixels.stat().st_size != count * side * side * len(CHANNELS):
            raise ValueError(f"{pixels.name} has another length")
        rows = np.memmap(pixels, dtype=np.uint8, mode="r", shape=(count, side, side, 3))
        skipped = tuple(Skipped(*one) for one in told["skipped"])
        return Decoded(np.asarray(rows).transpose(0, 3, 1, 2), tuple(told["names"]), skipped)
    except (OSError, KeyError, TypeError, ValueError) as error:
        said = message_of(error)
        raise ValueError(
            f"{home} is not a cache of images, or is damaged ({said}): remove that folder to have "
            "it made anew"
        ) from error


def _make(
    home: Path, files: ImageFiles, side: int, reason_against: Reason, *, progress: bool
) -> None:
    """Decode all files beside `home`, and put them there when they are complete."""
    beside = home.parent / f".{home.name}.{secrets.token_hex(4)}"
    try:
        make_folder(home.parent)
        _clear_stale(home.parent)
        with lock_folder(beside, wait=True):
            _make_beside(home, beside, files, side, reason_against, progress=progress)
    except WriteError as error:
        hint = f"{error.strerror}: set BIV_CACHE_DIR to a folder with room"
        raise WriteError(error.errno, hint, error.filename) from error


def _make_beside(
    home: Path,
    beside: Path,
    files: ImageFiles,
    side: int,
    reason_against: Reason,
    *,
    progress: bool,
) -> None:
    try:
        with progress_bar(
            None, f"reading {files.source.name}", enabled=progress, unit="file"
        ) as bar:
            names, skipped = _survey(files, reason_against, bar)
        if not names:
            raise ValueError(f"{files.source} has no images{_among(skipped)}")
        what = f"decoding {files.source.name}"
        with progress_bar(len(names), what, enabled=progress, unit="file") as bar:
            refused = _fill(beside / "pixels.bin", files, names, side, bar)
        kept = [name for name in names if name not in refused]
        skipped |= refused
        if not kept:
            raise ValueError(f"{files.source} has no images{_among(skipped)}")
        told = {
            "format": FORMAT,
            "source": files.source.name,
            "size": side,
            "names": kept,
            "skipped": sorted(skipped.items()),
        }
        write_atomically(beside / "contents.json", json.dumps(told, indent=0).encode())
        try:
            beside.replace(home)
        except OSError:
            if not home.is_dir():
                raise  # and if it is, another process was faster, with the same content
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _among(skipped: Mapping[str, str]) -> str:
    first = [f"{name!r}: {reason}" for name, reason in sorted(skipped.items())[:SHOWN]]
    return f" among {len(skipped)} files ({'; '.join(first)})" if first else ""


def _clear_stale(folder: Path) -> None:
    """Remove what was never finished; where nobody can know, what was begun long ago."""
    for begun in folder.iterdir():
        if re.fullmatch(r"\.[0-9a-f]{24}\..+", begun.name) and remove_leftover(begun) is None:
            with suppress(FileNotFoundError):  # which another process has finished, or removed
                if time.time() - begun.stat().st_mtime > STALE:
                    shutil.rmtree(begun, ignore_errors=True)


def _survey(
    files: ImageFiles, reason_against: Reason, bar: tqdm[Any]
) -> tuple[list[str], dict[str, str]]:
    """The names of distinct files that may be rows, in order, and of the others with reasons."""
    digests: dict[str, bytes] = {}
    skipped: dict[str, str] = {}
    for name, content in files.contents(reason_against):
        if name in digests or name in skipped:
            raise ValueError(f"{files.source} has two entries of the name {name!r}")
        if isinstance(content, str):
            skipped[name] = content
        else:
            digests[name] = hashlib.sha256(content).digest()
        bar.update()
    first: dict[bytes, str] = {}
    for name in sorted(digests):
        if digests[name] in first:
            skipped[name] = f"{REPEATED} {first[digests[name]]}"
        else:
            first[digests[name]] = name
    return list(first.values()), skipped


def _fill(
    path: Path, files: ImageFiles, names: list[str], side: int, bar: tqdm[Any]
) -> dict[str, str]:
    """Write every image to its place, then close the gaps; the files that are none, and why."""
    place = {name: row for row, name in enumerate(names)}
    rows = _mapped(path, (len(names), side, side, len(CHANNELS)))
    refused: dict[str, str] = {}

    def put(name: str, content: bytes) -> None:
        try:
            rows[place[name]] = _image(content, side)
        except _RefusedError as error:
            refused[name] = str(error)

    workers = os.cpu_count() or 1
    waiting: dict[Future[None], int] = {}  # and how many bytes each holds

    def finish(futures: Iterable[Future[None]]) -> None:
        for future in list(futures):
            future.result()
            del waiting[future]
            bar.update()

    with (
        warnings.catch_warnings(),  # here, since filters are of the process and not of a thread
        ThreadPoolExecutor(workers) as pool,  # Pillow lets go of the interpreter while it decodes
    ):
        warnings.simplefilter("ignore")  # of Pillow's: what it warns of is decided here
        for name, content in files.contents(lambda name: None if name in place else UNWANTED):
            if isinstance(content, bytes):
                waiting[pool.submit(put, name, content)] = len(content)
            elif name in place:  # it could be read a moment ago
                refused[name] = content
            while len(waiting) > 8 * workers or sum(waiting.values()) > LARGEST_FILE:
                finish(wait(waiting, return_when=FIRST_COMPLETED).done)
        finish(waiting)
    kept = [row for name, row in place.items() if name not in refused]
    for new, old in enumerate(kept):
        if new != old:
            rows[new] = rows[old]
    rows.flush()
    with path.open("r+b") as file:
        file.truncate(len(kept) * side * side * len(CHANNELS))
        os.fsync(file.fileno())
    return refused


def _mapped(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.uint8]]:
    """A new file of this shape, mapped to memory; where there is no room for it, an error."""
    try:
        with path.open("wb") as file:  # a mapped file would end the process, where the disk is full
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, math.prod(shape))
            file.truncate(math.prod(shape))
    except OSError as error:
        raise WriteError(error.errno, error.strerror, str(path)) from error
    return np.memmap(path, dtype=np.uint8, mode="r+", shape=shape)


class _RefusedError(Exception):
    """A file that is no image to be used, and why."""


def _image(content: bytes, side: int) -> npt.NDArray[np.uint8]:
    """Bytes of a file to (side, side, 3)."""
    from PIL import Image, ImageOps

    try:
        opened = Image.open(io.BytesIO(content), formats=KINDS)
    except Image.DecompressionBombError:
        raise _RefusedError(f"that would decode to more than {LARGEST_IMAGE:,} pixels") from None
    except Exception:
        raise _RefusedError("not an image") from None
    with opened:
        if opened.width * opened.height > LARGEST_IMAGE:
            raise _RefusedError(f"that would decode to more than {LARGEST_IMAGE:,} pixels")
        # Pillow has colours of 16 bits as such of 8, but its decoders' arguments tell.
        if opened.mode.startswith(("I", "F")) or ";16" in str(opened.tile):
            raise _RefusedError("of more than 8 bits a channel")
        try:
            ImageOps.exif_transpose(opened, in_place=True)
            upright = opened if opened.mode == "RGB" else opened.convert("RGB")
            if upright.size != (side, side):
                upright = ImageOps.fit(upright, (side, side), Image.Resampling.BILINEAR)
            return np.array(upright)
        except Exception as error:  # Pillow's decoders have many kinds
            raise _RefusedError(f"cut off or damaged ({message_of(error)})") from None


def warn_of(skipped: Sequence[Skipped], source: Path, total: int) -> None:
    """Warn about the files that were left out, if there are any, with a count per reason."""
    if skipped:
        warn(
            f"{len(skipped)} of {total} files of {source} are left out: {counted(skipped)}. "
            "`skipped` has them all"
        )


def counted(skipped: Sequence[Skipped]) -> str:
    """How many of each kind, each with an example, in words."""
    kinds: dict[str, list[str]] = {}
    for name, reason in skipped:
        kind = REPEATED_KIND if reason.startswith(REPEATED) else reason.partition(" (")[0]
        kinds.setdefault(kind, []).append(name)
    ordered = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    return "; ".join(f"{len(names)} {kind} ({names[0]!r})" for kind, names in ordered)
