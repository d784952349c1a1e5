"""Read a folder of images, and a table with their names, labels and error bars."""

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
from biv.images.decode import REPEATED, SHOWN, decode, warn_about_skipped
from biv.tables.files import Files
from biv.tables.target import Target

LICENCE = "that of the files"
UNNAMED = "not named in the table"
UNLABELLED = "no label in the table"


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
    r"""Read images from a folder or an archive, and labels and error bars from a table.

    Images are decoded once, in parallel, to a cache that is mapped to memory. Later calls open the
    cache. Rows are ordered by the names of the images. Files that are not usable images, or that
    have no label, are left out and reported; the module ``biv.images.decode`` lists the rules. What
    cells of the table may hold is described at :func:`~biv.tables.read_table`.

    Each image has one label. If several rows name it, or name another file with the same bytes,
    their labels are combined into the inverse-variance-weighted mean, whose variance is 1/Σ(1/σ²);
    without error bars, into the plain mean.

    Parameters
    ----------
    folder : str or Path
        Folder of images, including its subfolders, or an archive (.tar.gz, .zip and others).
    table : str, Path, sequence of these, or None, default=None
        CSV or Parquet files with one row per image. Leave it out to predict: all images are then
        read, and their labels are NaN.
    image : str or None, default=None
        Column with the names of the files, relative to the folder, such as ``left/0001.jpg``.
        Required with a table.
    target : str or None, default=None
        Column of the labels. Required with a table.
    target_var : str or None, default=None
        Column of σ², in squared label units. Pass at most one of `target_var`, `target_std` and
        `target_interval`: the one that the table holds. A missing error bar becomes NaN, an
        unknown variance.
    target_std : str or None, default=None
        Column of σ, in label units.
    target_interval : pair of str or None, default=None
        Columns of the two ends of a confidence interval, in label units.
    level : float in (0, 1), default=0.95
        Probability that the interval contains the true label. Change it if it is another one.
    size : int, default=200
        Length of a side, in pixels, to which the square in the middle of each image is resized.
        Decrease it to train faster.
    progress : bool, default=True
        If True, show progress bars on a terminal. Set it to False in a script with its own output.

    Returns
    -------
    ImageDataset
        Images `x` of shape (N, 3, size, size) and dtype uint8, labels `y` of shape (N,),
        `variance` of shape (N,) or None, `names` and `skipped`.

    Raises
    ------
    ValueError
        A column is missing, a cell is invalid, the archive is refused, or there are no images.
    FileNotFoundError
        The folder does not exist, or the table names files that are not in it.

    Warns
    -----
    UserWarning
        Files were left out, or an image has several labels. The attribute `skipped` of the result
        lists all files that were left out, with reasons.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from biv.images import read_images
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
        raise ValueError(
            "image and target must name columns of the table; "
            f"got image={image!r} and target={target!r}"
        )
    files = Files(table)
    columns = Target(target, target_var, target_std, target_interval, level)
    labels = _read_labels(files, image, columns)
    names = _Names(labels, source)
    if source.is_dir():  # check this before decoding, which takes long
        names.require_files(Folder(source, files.paths).names, files)
    digest = hashlib.sha256(repr(sorted(labels)).encode()).hexdigest()
    decoded = decode(
        source,
        size=size,
        skip_reason=names.skip_reason,
        rule=f"table {digest}",
        ignore=files.paths,
        progress=progress,
    )
    names.require_files([*decoded.names, *(file.name for file in decoded.skipped)], files)
    warn_about_skipped(decoded.skipped, source, len(decoded.names) + len(decoded.skipped))
    labels_of = {name: list(labels[names.key(name)]) for name in decoded.names}
    for name, reason in decoded.skipped:
        first = reason.removeprefix(f"{REPEATED} ")
        if first in labels_of:  # False if the first file is not an image either
            labels_of[first] += labels[names.key(name)]
    y, variance = np.array([_combined(several) for several in labels_of.values()]).T
    return ImageDataset(
        decoded.x,
        y,
        variance if columns.error_bars else None,
        CHANNELS,
        f"{source}, {files}",
        LICENCE,
        decoded.names,
        decoded.skipped,
    )


def _unlabelled(source: Path, size: int, *, progress: bool) -> ImageDataset:
    decoded = decode(source, size=size, progress=progress)
    warn_about_skipped(decoded.skipped, source, len(decoded.names) + len(decoded.skipped))
    y = np.full(len(decoded.names), np.nan)
    return ImageDataset(
        decoded.x, y, None, CHANNELS, str(source), LICENCE, decoded.names, decoded.skipped
    )


class _Names:
    """Names of files as a table writes them.

    A table may name a file by its path below the folder, by that path after the folder's name, or,
    in an archive, by its path below the archive's top folder. Characters such as ü, which have two
    forms in Unicode, are equal in both.
    """

    def __init__(self, labels: dict[str, list[_Label]], source: Path) -> None:
        self._labels, self._source = labels, source

    def key(self, name: str) -> str:
        """Return the name of a file in the table, or its plain name if the table has none."""
        plain = unicodedata.normalize("NFC", name)
        variants = [plain, f"{self._source.name}/{plain}"]
        if not self._source.is_dir():
            variants.append(plain.partition("/")[2])
        return next((variant for variant in variants if variant in self._labels), plain)

    def skip_reason(self, name: str) -> str | None:
        """Return the reason why a file cannot be a row, or None if it can."""
        labels = self._labels.get(self.key(name))
        return UNNAMED if labels is None else None if labels else UNLABELLED

    def require_files(self, existing: Iterable[str], files: Files) -> None:
        """Raise an error if a file with a label does not exist."""
        present = sorted(existing)
        labelled = {name for name, labels in self._labels.items() if labels}
        absent = labelled - set(map(self.key, present))
        if absent:
            raise FileNotFoundError(
                f"{self._source} must have all images that {files} names; {len(absent)} of "
                f"{len(self._labels)} not found: {_first(sorted(absent))}; it has "
                f"{_first(present) or 'no files'}"
            )


def _first(names: Sequence[str]) -> str:
    more = ", …" if len(names) > SHOWN else ""
    return ", ".join(map(shortened, names[:SHOWN])) + more


def _read_labels(files: Files, image: str, target: Target) -> dict[str, list[_Label]]:
    """Return the labels of every image that the table names, one per row that has a label."""
    for name in (image, *target.names):
        files.require_column(name)
    if image in target.names:
        raise ValueError(
            f"column {shortened(image)} cannot hold both the names of images and labels or error "
            "bars"
        )
    labels: dict[str, list[_Label]] = {}
    for part in files.parts([image, *target.names]):
        cells, y, variance = part.text(image), target.labels(part), target.variances(part)
        part.refuse(image, np.array([cell is None for cell in cells]), "the name of a file")
        paths = [PurePosixPath((cell or "").replace("\\", "/")) for cell in cells]
        outside = np.array([path.is_absolute() or ".." in path.parts for path in paths])
        part.refuse(image, outside, "the name of a file below the folder")
        variance = np.zeros(len(y)) if variance is None else variance
        for path, label in zip(paths, map(_Label, y, variance), strict=True):
            image_labels = labels.setdefault(unicodedata.normalize("NFC", path.as_posix()), [])
            if not np.isnan(label.y):
                image_labels.append(label)
    if not any(labels.values()):
        raise ValueError(f"{files} must have rows with a {shortened(target.name)}; got none")
    if repeated := sum(len(image_labels) > 1 for image_labels in labels.values()):
        images = "1 image has" if repeated == 1 else f"{repeated} images have"
        warn(f"{images} several labels, which are combined by inverse variance")
    return labels


def _combined(labels: Sequence[_Label]) -> _Label:
    """Combine the labels of one image by inverse variance.

    If there are labels without noise, only these are used. Labels to ignore (σ² = +inf) and labels
    of unknown variance are used only if there are no others.
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
