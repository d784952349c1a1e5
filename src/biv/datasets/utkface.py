"""UTKFace: a person's age, from an aligned and cropped photograph of the face."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np

from biv._utils.cache import cache_dir
from biv._utils.pages import errors_point_to
from biv.images.archive import ARCHIVES
from biv.images.dataset import CHANNELS, ImageDataset
from biv.images.decode import decode, warn_of

SOURCE = "UTKFace, aligned and cropped (Zhang, Song and Qi, CVPR 2017)"
LICENCE = "non-commercial research only; the images belong to their owners"
PLACES = ("utkface/UTKFace", *(f"utkface/UTKFace{ending}" for ending in ARCHIVES))
# Age, then sex, ethnicity and date, of which some names lack one: 61_1_20170109142408075.jpg.
AGE = re.compile(r"(\d{1,3})_\d")
OLDEST = 130


@errors_point_to("images")
def load_utkface(
    path: str | Path | None = None, *, size: int = 200, progress: bool = True
) -> ImageDataset:
    """UTKFace: images, (N, 3, size, size) of bytes, and ages, (N,); labels are clean.

    It may not be shipped nor downloaded for you: ask its authors for it, or find it where they have
    put it, under their licence. The crops are decoded once, to a cache that is mapped to memory
    (see ``biv.images.dataset``, which also has the rule by which files are left out), and
    opened at once from then on. Files that repeat another's bytes are left out; so are files
    without an age, 0 to 130, at the beginning of their name.

    Args:
        path: A folder of crops or the original archive (.tar.gz, .zip …). By default ``utkface/
            UTKFace`` or ``utkface/UTKFace.tar.gz`` below ``BIV_DATA_DIR`` or the user's cache.
        size: Of a side, in pixels; the crops have 200.
        progress: Whether to show bars on a terminal.

    Raises:
        FileNotFoundError: It is not there; the message says where to put it.
        ValueError: The archive is refused, or has no images.

    Warns:
        UserWarning: Files were left out; ``skipped`` of what is returned has all, with reasons.
    """
    source = _find() if path is None else Path(path)
    found = decode(source, size=size, reason_against=_reason, rule="utkface", progress=progress)
    warn_of(found.skipped, source, len(found.names) + len(found.skipped))
    ages = np.array([_age(name) for name in found.names], dtype=np.float64)
    return ImageDataset(found.x, ages, None, CHANNELS, SOURCE, LICENCE, found.names, found.skipped)


def _find() -> Path:
    folders = [Path(os.environ["BIV_DATA_DIR"])] if os.environ.get("BIV_DATA_DIR") else []
    folders.append(cache_dir())
    for folder in folders:
        for place in PLACES:
            if (folder / place).exists():
                return folder / place
    raise FileNotFoundError(
        f"UTKFace is neither in BIV_DATA_DIR ({os.environ.get('BIV_DATA_DIR') or 'not set'}) nor "
        f"in the cache ({cache_dir()}). Its licence allows non-commercial research; get the "
        "aligned and cropped faces from https://susanqq.github.io/UTKFace/, put the folder or the "
        "archive at <folder>/utkface/UTKFace or <folder>/utkface/UTKFace.tar.gz, and set "
        "BIV_DATA_DIR=<folder>"
    )


def _age(name: str) -> int | None:
    found = AGE.match(name.rsplit("/", 1)[-1])
    age = int(found[1]) if found else None
    return age if age is not None and age <= OLDEST else None


def _reason(name: str) -> str | None:
    return "without an age at the beginning of its name" if _age(name) is None else None
