"""Decode folders and archives of images once, in parallel, to a file that is mapped to memory.

The same rules apply to every folder and archive:

- A file that cannot be a row is left out and reported with the reason: it has no label, cannot be
  read, is not an image (BMP, GIF, JPEG, PNG, PPM, TIFF or WebP), is truncated or damaged, has more
  than 8 bits per channel, is longer than 256 MiB, or would decode to more than 67,108,864 pixels (a
  decompression bomb).
- If several files have the same bytes, the first by name is kept and the others are reported.
- An archive is refused as a whole, with a ValueError, if an entry is outside its folder, if an
  entry unpacks to more than 256 MiB, or if it is truncated or damaged anywhere. Archives are read
  entry by entry and never unpacked to disk.
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
from biv.images.archive import LARGEST_FILE, ImageFiles, SkipReason, open_files
from biv.images.dataset import CHANNELS, Skipped

FORMAT = "biv images 1"
LARGEST_IMAGE = 64 << 20  # pixels of a file
LARGEST_SIDE = 4096  # largest `size`, in pixels
STALE = 24 * 3600.0  # age in seconds after which an unfinished cache is removed
SHOWN = 3  # number of files that an error names
REPEATED = "has the bytes of"  # part of the cache's format; the name of the first file follows
REPEATED_KIND = "same bytes as another file"
NOT_REQUESTED = "not requested"
# Formats whose decoders run no external program.
KINDS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")


class Decoded(NamedTuple):
    """Images in a cache.

    Attributes
    ----------
    x : ndarray
        Images of shape (N, 3, size, size) and dtype uint8.
    names : tuple of str
        Names of their files, sorted.
    skipped : tuple of Skipped
        Files that were left out, with reasons.
    """

    x: npt.NDArray[np.uint8]
    names: tuple[str, ...]
    skipped: tuple[Skipped, ...]


def decode(
    source: Path,
    *,
    size: int,
    skip_reason: SkipReason = lambda _: None,
    rule: str = "",
    ignore: Iterable[Path] = (),
    progress: bool = True,
) -> Decoded:
    """Return all images of a folder or an archive as squares of one size. The result is cached.

    An image is rotated as its EXIF orientation states, converted to RGB, cropped to the square in
    its middle and resized to `size` with Pillow's antialiased bilinear filter. Files are ordered by
    name.

    The cache is a folder below ``BIV_CACHE_DIR`` or the user's cache. Its name is a digest of the
    names, lengths and times of the files, the size and the rule. It is written completely or not at
    all.

    Parameters
    ----------
    source : Path
        A folder, with its subfolders, or an archive.
    size : int
        Length of a side, in pixels.
    skip_reason : callable
        Function that returns the reason why a file of a given name cannot be a row, or None.
    rule : str
        Name of `skip_reason`, which becomes part of the digest.
    ignore : iterable of Path
        Files of the folder that are not images, such as the table.
    progress : bool
        If True, show a progress bar on a terminal.

    Raises
    ------
    FileNotFoundError
        There is no such folder or archive.
    ValueError
        The archive is refused, or there are no images.
    """
    side = validation.integer("size", size, at_least=1)
    if side > LARGEST_SIDE:
        raise ValueError(f"size must be at most {LARGEST_SIDE} pixels; got {side}")
    if importlib.util.find_spec("PIL") is None:
        raise ModuleNotFoundError("reading images requires Pillow: install pillow, or biv[images]")
    files = open_files(source, ignore)
    state = repr((FORMAT, side, rule, files.identity(skip_reason)))
    digest = hashlib.sha256(state.encode(errors="surrogateescape")).hexdigest()[:24]
    folder = cache_dir() / "images" / digest
    if not folder.is_dir():
        _make_cache(folder, files, side, skip_reason, progress=progress)
    return _open_cache(folder)


def _open_cache(folder: Path) -> Decoded:
    try:
        contents = json.loads((folder / "contents.json").read_text(encoding="utf-8"))
        count, side = len(contents["names"]), int(contents["size"])
        if contents["format"] != FORMAT:
            raise ValueError(f"format must be {FORMAT!r}; got {shortened(contents['format'])}")
        pixels = folder / "pixels.bin"
        expected, length = count * side * side * len(CHANNELS), pixels.stat().st_size
        if length != expected:
            raise ValueError(f"{pixels.name} must have {expected:,} bytes; got {length:,}")
        rows = np.memmap(pixels, dtype=np.uint8, mode="r", shape=(count, side, side, 3))
        skipped = tuple(Skipped(*item) for item in contents["skipped"])
        return Decoded(np.asarray(rows).transpose(0, 3, 1, 2), tuple(contents["names"]), skipped)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder} is not a cache of images, or is damaged ({message_of(error)}): remove that "
            "folder, and it is made again"
        ) from error


def _make_cache(
    folder: Path, files: ImageFiles, side: int, skip_reason: SkipReason, *, progress: bool
) -> None:
    """Decode all files in a temporary folder, and rename it to `folder` when it is complete."""
    temporary = folder.parent / f".{folder.name}.{secrets.token_hex(4)}"
    try:
        make_folder(folder.parent)
        _remove_stale(folder.parent)
        with lock_folder(temporary, wait=True):
            _fill_cache(folder, temporary, files, side, skip_reason, progress=progress)
    except WriteError as error:
        hint = f"{error.strerror}: set BIV_CACHE_DIR to a folder with enough space"
        raise WriteError(error.errno, hint, error.filename) from error


def _fill_cache(
    folder: Path,
    temporary: Path,
    files: ImageFiles,
    side: int,
    skip_reason: SkipReason,
    *,
    progress: bool,
) -> None:
    try:
        with progress_bar(
            None, f"reading {files.source.name}", enabled=progress, unit="file"
        ) as bar:
            names, skipped = _survey(files, skip_reason, bar)
        if not names:
            raise ValueError(f"{files.source} has no images{_first_reasons(skipped)}")
        label = f"decoding {files.source.name}"
        with progress_bar(len(names), label, enabled=progress, unit="file") as bar:
            refused = _fill(temporary / "pixels.bin", files, names, side, bar)
        kept = [name for name in names if name not in refused]
        skipped |= refused
        if not kept:
            raise ValueError(f"{files.source} has no images{_first_reasons(skipped)}")
        contents = {
            "format": FORMAT,
            "source": files.source.name,
            "size": side,
            "names": kept,
            "skipped": sorted(skipped.items()),
        }
        write_atomically(temporary / "contents.json", json.dumps(contents, indent=0).encode())
        try:
            temporary.replace(folder)
        except OSError:
            if not folder.is_dir():  # otherwise, another process has made the same cache
                raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _first_reasons(skipped: Mapping[str, str]) -> str:
    first = [f"{name!r}: {reason}" for name, reason in sorted(skipped.items())[:SHOWN]]
    return f" among {len(skipped)} files ({'; '.join(first)})" if first else ""


def _remove_stale(folder: Path) -> None:
    """Remove temporary folders that no process uses; if that cannot be known, the old ones."""
    for temporary in folder.iterdir():
        unfinished = re.fullmatch(r"\.[0-9a-f]{24}\..+", temporary.name)
        if unfinished and remove_leftover(temporary) is None:
            with suppress(FileNotFoundError):  # another process may have renamed or removed it
                if time.time() - temporary.stat().st_mtime > STALE:
                    shutil.rmtree(temporary, ignore_errors=True)


def _survey(
    files: ImageFiles, skip_reason: SkipReason, bar: tqdm[Any]
) -> tuple[list[str], dict[str, str]]:
    """Return the names of distinct usable files, sorted, and the others with reasons."""
    digests: dict[str, bytes] = {}
    skipped: dict[str, str] = {}
    for name, content in files.contents(skip_reason):
        if name in digests or name in skipped:
            raise ValueError(f"{files.source} has two entries with the name {name!r}")
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
    """Decode every file to its row, then close the gaps; return unusable files with reasons."""
    row_of = {name: row for row, name in enumerate(names)}
    rows = _mapped(path, (len(names), side, side, len(CHANNELS)))
    refused: dict[str, str] = {}

    def put(name: str, content: bytes) -> None:
        try:
            rows[row_of[name]] = _image(content, side)
        except _RefusedError as error:
            refused[name] = str(error)

    workers = os.cpu_count() or 1
    pending: dict[Future[None], int] = {}  # with the number of bytes that each holds

    def finish(futures: Iterable[Future[None]]) -> None:
        for future in list(futures):
            future.result()
            del pending[future]
            bar.update()

    with (
        warnings.catch_warnings(),  # not in `put`: filters belong to the process, not to a thread
        ThreadPoolExecutor(workers) as pool,  # Pillow releases the GIL while it decodes
    ):
        warnings.simplefilter("ignore")  # Pillow warns of files that are handled here
        for name, content in files.contents(lambda name: None if name in row_of else NOT_REQUESTED):
            if isinstance(content, bytes):
                pending[pool.submit(put, name, content)] = len(content)
            elif name in row_of:  # it was readable in `_survey`
                refused[name] = content
            while len(pending) > 8 * workers or sum(pending.values()) > LARGEST_FILE:
                finish(wait(pending, return_when=FIRST_COMPLETED).done)
        finish(pending)
    kept = [row for name, row in row_of.items() if name not in refused]
    for new, old in enumerate(kept):
        if new != old:
            rows[new] = rows[old]
    rows.flush()
    with path.open("r+b") as file:
        file.truncate(len(kept) * side * side * len(CHANNELS))
        os.fsync(file.fileno())
    return refused


def _mapped(path: Path, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.uint8]]:
    """Return a new file of this shape, mapped to memory; raise if the disk has no space for it."""
    try:
        with path.open("wb") as file:
            # Allocate now: writing to a mapped file kills the process if the disk is full.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, math.prod(shape))
            file.truncate(math.prod(shape))
    except OSError as error:
        raise WriteError(error.errno, error.strerror, str(path)) from error
    return np.memmap(path, dtype=np.uint8, mode="r+", shape=shape)


class _RefusedError(Exception):
    """Raised for a file that cannot be used as an image; the message is the reason."""


def _image(content: bytes, side: int) -> npt.NDArray[np.uint8]:
    """Return an image of shape (side, side, 3) from the bytes of a file."""
    from PIL import Image, ImageOps

    try:
        opened = Image.open(io.BytesIO(content), formats=KINDS)
    except Image.DecompressionBombError:
        raise _RefusedError(f"more than {LARGEST_IMAGE:,} pixels") from None
    except Exception:
        raise _RefusedError("not an image") from None
    with opened:
        if opened.width * opened.height > LARGEST_IMAGE:
            raise _RefusedError(f"more than {LARGEST_IMAGE:,} pixels")
        # Pillow reports 16-bit colours as 8-bit ones; the arguments of its decoders show them.
        if opened.mode.startswith(("I", "F")) or ";16" in str(opened.tile):
            raise _RefusedError("more than 8 bits per channel")
        try:
            ImageOps.exif_transpose(opened, in_place=True)
            upright = opened if opened.mode == "RGB" else opened.convert("RGB")
            if upright.size != (side, side):
                upright = ImageOps.fit(upright, (side, side), Image.Resampling.BILINEAR)
            return np.array(upright)
        except Exception as error:  # Pillow's decoders raise many types
            raise _RefusedError(f"truncated or damaged ({message_of(error)})") from None


def warn_about_skipped(skipped: Sequence[Skipped], source: Path, total: int) -> None:
    """Warn about the files that were left out, if there are any, with a count per reason."""
    if skipped:
        warn(
            f"left out {len(skipped)} of {total} files of {source}: {count_by_reason(skipped)}. "
            "`skipped` lists all of them"
        )


def count_by_reason(skipped: Sequence[Skipped]) -> str:
    """Return the reasons as text, each with the number of files and an example."""
    kinds: dict[str, list[str]] = {}
    for name, reason in skipped:
        kind = REPEATED_KIND if reason.startswith(REPEATED) else reason.partition(" (")[0]
        kinds.setdefault(kind, []).append(name)
    ordered = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    return "; ".join(
        f"{kind} (1 file: {names[0]!r})"
        if len(names) == 1
        else f"{kind} ({len(names)} files, such as {names[0]!r})"
        for kind, names in ordered
    )
