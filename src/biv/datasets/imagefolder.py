"""A folder of images, and a table with their names, labels and error bars."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from biv.datasets.imagefiles import Folder
from biv.datasets.images import CHANNELS, SHOWN, ImageDataset, decode, warn_of
from biv.datasets.tablefiles import Files
from biv.datasets.tables import Target

UNNAMED = "not named in the table"


class _Label(NamedTuple):
    y: float
    variance: float | None


def read_images(
    folder: str | Path,
    table: str | Path | Sequence[str | Path],
    *,
    image: str,
    target: str,
    target_var: str | None = None,
    target_std: str | None = None,
    target_interval: tuple[str, str] | None = None,
    level: float = 0.95,
    size: int = 200,
    progress: bool = True,
) -> ImageDataset:
    r"""Images out of a folder or an archive, labels and error bars out of a CSV or Parquet table.

    Images are decoded once, in parallel, to a cache that is mapped to memory, and opened at once
    from then on; :mod:`biv.datasets.images` has the rule by which files are left out, and
    :func:`read_table` what cells may hold. Rows are ordered by the names of the images.

    Args:
        folder: With its subfolders; or an archive (.tar.gz, .zip …).
        table: A row for each image.
        image: Column of the names of the files, relative to the folder: ``left/0001.jpg``.
        target: Column of the labels.
        target_var: Column of σ²; or
        target_std: of σ; or
        target_interval: the two of a confidence interval; or none of these.
        level: Of the interval.
        size: Of a side, in pixels: the square in the middle of each image is resized to it.
        progress: Whether to show bars on a terminal.

    Raises:
        ValueError: A column is missing, a cell is not what it should be, or an image is named
            twice; the archive is refused, or there are no images.
        FileNotFoundError: The table names files that are not there.

    Warns:
        UserWarning: Files were left out; ``skipped`` of what is returned has all, with reasons.

    Example:
        >>> import tempfile
        >>> from PIL import Image
        >>> photos = Path(tempfile.mkdtemp())
        >>> Image.new("RGB", (60, 40), "red").save(photos / "a.png")
        >>> Image.new("RGB", (40, 60), "blue").save(photos / "b.png")
        >>> _ = (photos / "labels.csv").write_text("file,y,err\nb.png,2.5,0.1\na.png,3.5,0.2\n")
        >>> data = read_images(
        ...     photos, photos / "labels.csv", image="file", target="y", target_std="err", size=32
        ... )
        >>> data.x.shape, data.names, data.y.tolist(), data.variance.round(2).tolist()
        ((2, 3, 32, 32), ('a.png', 'b.png'), [3.5, 2.5], [0.04, 0.01])
    """
    source = Path(folder)
    files = Files(table)
    chosen = Target(target, target_var, target_std, target_interval, level)
    labels = _labels(files, image, chosen)
    if source.is_dir():  # before the work, not after it
        _require_all(labels, Folder(source, files.paths).names, source, files)
    known = hashlib.sha256(repr(sorted(labels)).encode()).hexdigest()
    found = decode(
        source,
        size=size,
        reason_against=lambda name: None if name in labels else UNNAMED,
        rule=f"table {known}",
        ignore=files.paths,
        progress=progress,
    )
    _require_all(labels, [*found.names, *(one.name for one in found.skipped)], source, files)
    warn_of(found.skipped, source, len(found.names) + len(found.skipped))
    rows = [labels[name] for name in found.names]
    variance = None
    if chosen.error_bars:
        variance = np.array([row.variance for row in rows], dtype=np.float64)
    return ImageDataset(
        found.x,
        np.array([row.y for row in rows]),
        variance,
        CHANNELS,
        f"{source}, {files}",
        "that of the files",
        found.names,
        found.skipped,
    )


def _labels(files: Files, image: str, target: Target) -> dict[str, _Label]:
    """Of every image that the table names."""
    for name in (image, *target.names):
        files.require(name)
    if image in target.names:
        raise ValueError(f"{image!r} cannot hold the names of images and labels or error bars")
    found: dict[str, _Label] = {}
    seen: set[str] = set()
    unlabelled = 0
    for part in files.parts([image, *target.names]):
        names, y, variance = part.text(image), target.labels(part), target.variances(part)
        part.refuse(image, np.array([name is None for name in names]), "the name of a file")
        outside = np.array([_is_outside(name or "") for name in names])
        part.refuse(image, outside, "the name of a file below the folder")
        normal = [PurePosixPath((name or "").replace("\\", "/")).as_posix() for name in names]
        for row, name in enumerate(normal):
            if name in seen:
                raise ValueError(
                    f"{part.path}, row {part.start + row + 1}: {name!r} is named twice; combine "
                    "its labels first (biv.labels has ways to), or copy the image"
                )
            seen.add(name)
            if np.isnan(y[row]):
                unlabelled += 1
            else:
                found[name] = _Label(y[row], None if variance is None else variance[row])
    if not found:
        raise ValueError(f"{files} must have rows with a {target.name!r}; found none")
    if unlabelled:
        warnings.warn(
            f"{unlabelled} rows have no {target.name!r} and were left out",
            UserWarning,
            stacklevel=3,
        )
    return found


def _is_outside(name: str) -> bool:
    path = PurePosixPath(name.replace("\\", "/"))
    return path.is_absolute() or ".." in path.parts


def _require_all(
    labels: dict[str, _Label], there: Iterable[str], source: Path, files: Files
) -> None:
    if absent := sorted(set(labels) - set(there)):
        first = ", ".join(repr(name) for name in absent[:SHOWN])
        more = ", …" if len(absent) > SHOWN else ""
        raise FileNotFoundError(
            f"{len(absent)} of {len(labels)} images that {files} names are not in {source}: "
            f"{first}{more}"
        )
