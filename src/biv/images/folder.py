"""A folder of images, and a table with their names, labels and error bars."""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from biv._utils.messages import shortened
from biv._utils.pages import errors_point_to
from biv._utils.warnings import warn
from biv.images.archive import Folder
from biv.images.dataset import CHANNELS, ImageDataset
from biv.images.decode import REPEATED, SHOWN, decode, warn_of
from biv.tables.files import Files
from biv.tables.target import Target

UNNAMED = "not named in the table"
UNLABELLED = "without a label in the table"


class _Label(NamedTuple):
    y: float
    variance: float


@errors_point_to("images")
def read_images(
    folder: str | Path,
    table: str | Path | Sequence[str | Path] | None = None,
    *,
    image: str | None = None,
    target: str | None = None,
    target_var: str | None = None,
    target_std: str | None = None,
    target_interval: tuple[str, str] | None = None,
    level: float = 0.95,
    size: int = 200,
    progress: bool = True,
) -> ImageDataset:
    r"""Images out of a folder or an archive, labels and error bars out of a CSV or Parquet table.

    Images are decoded once, in parallel, to a cache that is mapped to memory, and opened at once
    from then on; ``biv.images.dataset`` has the rule by which files are left out, and
    :func:`~biv.tables.read_table` what cells may hold. Rows are ordered by the names of the images.

    An image has one label: where rows name it twice, or name another file of the same bytes, their
    labels are combined to the inverse-variance-weighted mean, whose variance is 1/Σ(1/σ²).

    Args:
        folder: With its subfolders; or an archive (.tar.gz, .zip …).
        table: A row for each image. Without one, all images are read, and their labels are missing
            (NaN): to predict them.
        image: Column of the names of the files, relative to the folder: ``left/0001.jpg``.
        target: Column of the labels.
        target_var: Column of σ²; or
        target_std: of σ; or
        target_interval: the two of a confidence interval; or none of these. A missing error bar is
            NaN, unknown.
        level: Of the interval.
        size: Of a side, in pixels: the square in the middle of each image is resized to it.
        progress: Whether to show bars on a terminal.

    Raises:
        ValueError: A column is missing, or a cell is not what it should be; the archive is refused,
            or there are no images.
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
    if table is None:
        return _unlabelled(source, size, progress=progress)
    if image is None or target is None:
        raise ValueError("image and target must name the columns of the table")
    files = Files(table)
    chosen = Target(target, target_var, target_std, target_interval, level)
    labels = _labels(files, image, chosen)
    names = _Names(labels, source)
    if source.is_dir():  # before the work, not after it
        names.require(Folder(source, files.paths).names, files)
    known = hashlib.sha256(repr(sorted(labels)).encode()).hexdigest()
    found = decode(
        source,
        size=size,
        reason_against=names.reason_against,
        rule=f"table {known}",
        ignore=files.paths,
        progress=progress,
    )
    names.require([*found.names, *(one.name for one in found.skipped)], files)
    warn_of(found.skipped, source, len(found.names) + len(found.skipped))
    own = {name: list(labels[names.key(name)]) for name in found.names}
    for name, reason in found.skipped:
        first = reason.removeprefix(f"{REPEATED} ")
        if first in own:  # unless it is no image either
            own[first] += labels[names.key(name)]
    y, variance = np.array([_combined(each) for each in own.values()]).T
    return ImageDataset(
        found.x,
        y,
        variance if chosen.error_bars else None,
        CHANNELS,
        f"{source}, {files}",
        "that of the files",
        found.names,
        found.skipped,
    )


def _unlabelled(source: Path, size: int, *, progress: bool) -> ImageDataset:
    found = decode(source, size=size, progress=progress)
    warn_of(found.skipped, source, len(found.names) + len(found.skipped))
    y = np.full(len(found.names), np.nan)
    licence = "that of the files"
    return ImageDataset(
        found.x, y, None, CHANNELS, str(source), licence, found.names, found.skipped
    )


class _Names:
    """Which file a table means: Unicode writes ü in two ways, and archives may begin with a folder.

    A file is meant by its name below the folder, by that with the folder's own name before it, or,
    in an archive, by its name below the one folder that everything lies in.
    """

    def __init__(self, labels: dict[str, list[_Label]], source: Path) -> None:
        self._labels, self._source = labels, source

    def key(self, name: str) -> str:
        """As the table has it, or as it is."""
        plain = unicodedata.normalize("NFC", name)
        ways = [plain, f"{self._source.name}/{plain}"]
        if not self._source.is_dir():
            ways.append(plain.partition("/")[2])
        return next((way for way in ways if way in self._labels), plain)

    def reason_against(self, name: str) -> str | None:
        """Why it cannot be a row."""
        labels = self._labels.get(self.key(name))
        return UNNAMED if labels is None else None if labels else UNLABELLED

    def require(self, there: Iterable[str], files: Files) -> None:
        """That all files with a label are there."""
        found = sorted(there)
        absent = {name for name, own in self._labels.items() if own} - set(map(self.key, found))
        if absent:
            raise FileNotFoundError(
                f"{len(absent)} of {len(self._labels)} images that {files} names are not in "
                f"{self._source}: {_few(sorted(absent))}; it has {_few(found) or 'no files'}"
            )


def _few(names: Sequence[str]) -> str:
    more = ", …" if len(names) > SHOWN else ""
    return ", ".join(map(shortened, names[:SHOWN])) + more


def _labels(files: Files, image: str, target: Target) -> dict[str, list[_Label]]:
    """Of every image that the table names, as often as it does; none where it has no label."""
    for name in (image, *target.names):
        files.require_column(name)
    if image in target.names:
        raise ValueError(
            f"{shortened(image)} cannot hold the names of images and labels or error bars"
        )
    found: dict[str, list[_Label]] = {}
    for part in files.parts([image, *target.names]):
        cells, y, variance = part.text(image), target.labels(part), target.variances(part)
        part.refuse(image, np.array([cell is None for cell in cells]), "the name of a file")
        paths = [PurePosixPath((cell or "").replace("\\", "/")) for cell in cells]
        outside = np.array([path.is_absolute() or ".." in path.parts for path in paths])
        part.refuse(image, outside, "the name of a file below the folder")
        known = np.zeros(len(y)) if variance is None else variance
        for path, label in zip(paths, map(_Label, y, known), strict=True):
            own = found.setdefault(unicodedata.normalize("NFC", path.as_posix()), [])
            if not np.isnan(label.y):
                own.append(label)
    if not any(found.values()):
        raise ValueError(f"{files} must have rows with a {shortened(target.name)}; got none")
    if repeated := sum(len(own) > 1 for own in found.values()):
        warn(f"{repeated} images have several labels, which are combined by inverse variance")
    return found


def _combined(labels: Sequence[_Label]) -> _Label:
    """The best label that several of one image give.

    Labels without noise are believed alone, labels to ignore (σ² = +inf) not at all, and labels of
    unknown variance where there are no others.
    """
    if len(labels) == 1:
        return labels[0]
    y, variance = np.array(labels).T
    known = ~np.isnan(variance)
    if not known.any():
        return _Label(float(y.mean()), np.nan)
    y, variance = y[known], variance[known]
    least = variance.min()
    if least == 0 or np.isinf(least):
        return _Label(float(y[variance == least].mean()), float(least))
    weight: npt.NDArray[np.float64] = least / variance
    return _Label(float(weight @ y / weight.sum()), float(least / weight.sum()))
