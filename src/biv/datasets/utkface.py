"""UTKFace data: a person's age, from an aligned and cropped photograph of the face."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from biv._utils.cache import cache_dir
from biv._utils.pages import errors_point_to
from biv.images.archive import ARCHIVES
from biv.images.dataset import CHANNELS, ImageDataset
from biv.images.decode import decode, warn_about_skipped

SOURCE = "UTKFace, aligned and cropped (Zhang, Song and Qi, CVPR 2017)"
LICENCE = "non-commercial research only; the images belong to their owners"
PLACES = ("utkface/UTKFace", *(f"utkface/UTKFace{ending}" for ending in ARCHIVES))
# The age comes first, then sex, ethnicity and date; some names lack one of these, such as
# 61_1_20170109142408075.jpg.
AGE = re.compile(r"(\d{1,3})_\d")
OLDEST = 130


@errors_point_to("images")
def load_utkface(
    path: str | Path | None = None, *, size: int = 200, progress: bool = True
) -> ImageDataset:
    """Load UTKFace: photographs of faces, with ages as clean labels.

    The licence does not allow the package to include or download the images. Get them from their
    authors first. They are decoded once, to a cache that is mapped to memory. Later calls open the
    cache. Files with the same bytes as another file are left out, and so are files whose name does
    not begin with an age from 0 to 130. The module ``biv.images.decode`` lists further rules.

    Parameters
    ----------
    path : str, Path or None, default=None
        Folder of crops, or the original archive (.tar.gz, .zip and others). By default it is
        ``utkface/UTKFace`` or ``utkface/UTKFace.tar.gz`` below ``BIV_DATA_DIR`` or the user's
        cache. Pass it if the images are in another place.
    size : int, default=200
        Length of a side, in pixels, to which the images are resized. The original crops have 200.
        Decrease it to train faster.
    progress : bool, default=True
        If True, show progress bars on a terminal. Set it to False in a script with its own output.

    Returns
    -------
    ImageDataset
        `x` has shape (N, 3, size, size) and dtype uint8. `y` has shape (N,): ages in years.
        `variance` is None. `skipped` lists the files that were left out.

    Raises
    ------
    FileNotFoundError
        The images are not found. The message explains where to put them.
    ValueError
        The archive is refused, or has no images.

    Warns
    -----
    UserWarning
        Files were left out. The attribute `skipped` of the result lists all of them, with reasons.

    Examples
    --------
    >>> import biv
    >>> data = biv.datasets.load_utkface(size=64)  # doctest: +SKIP
    >>> data.x.shape[1:], data.y.min()  # doctest: +SKIP
    ((3, 64, 64), 1.0)
    """
    source = _find_source() if path is None else Path(path)
    decoded = decode(source, size=size, skip_reason=_skip_reason, rule="utkface", progress=progress)
    warn_about_skipped(decoded.skipped, source, len(decoded.names) + len(decoded.skipped))
    ages = np.array([_age(name) for name in decoded.names], dtype=np.float64)
    return ImageDataset(
        decoded.x, ages, None, CHANNELS, SOURCE, LICENCE, decoded.names, decoded.skipped
    )


def _find_source() -> Path:
    folders = [Path(os.environ["BIV_DATA_DIR"])] if os.environ.get("BIV_DATA_DIR") else []
    folders.append(cache_dir())
    for folder in folders:
        for place in PLACES:
            if (folder / place).exists():
                return folder / place
    raise FileNotFoundError(
        f"UTKFace is neither in BIV_DATA_DIR ({os.environ.get('BIV_DATA_DIR') or 'not set'}) nor "
        f"in the cache ({cache_dir()}). Its licence allows non-commercial research. Get the "
        "aligned and cropped faces from https://susanqq.github.io/UTKFace/, copy the folder or the "
        "archive to <folder>/utkface/UTKFace or <folder>/utkface/UTKFace.tar.gz, and set "
        "BIV_DATA_DIR=<folder>"
    )


def _age(name: str) -> int | None:
    match = AGE.match(name.rsplit("/", 1)[-1])
    age = int(match[1]) if match else None
    return age if age is not None and age <= OLDEST else None


def _skip_reason(name: str) -> str | None:
    return "no age at the beginning of its name" if _age(name) is None else None
