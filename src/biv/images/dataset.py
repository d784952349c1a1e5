"""Images as a dataset, and the statistics of their pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv.tables.dataset import Dataset

CHANNELS = ("red", "green", "blue")
MAX_CHANNELS = 4  # of an ordinary image


class Skipped(NamedTuple):
    """A file that is not among the images, and why."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset(Dataset):
    """A :class:`~biv.tables.Dataset` of images, mapped to memory.

    x has shape (N, 3, size, size) and holds bytes.

    Attributes:
        names: The file of each row.
        skipped: The files that are not among them, and why.
    """

    names: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    def __repr__(self) -> str:
        labels = "clean labels" if self.variance is None else "labels with variances"
        left_out = f", {len(self.skipped)} files left out" if self.skipped else ""
        return (
            f"ImageDataset({len(self)} images of {self.x.shape[2]}×{self.x.shape[3]}, {labels}"
            f"{left_out}; {self.source})"
        )


class Pixels(NamedTuple):
    """The statistics of pixels, channel by channel, by which a network standardises them."""

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def fit(cls, x: npt.NDArray[Any]) -> Pixels:
        """Of images, (N, C, H, W), bytes; of the training rows, but in the paper's protocol.

        Exact: sums of bytes are whole numbers. A constant channel has std 1.

        Example:
            >>> Pixels.fit(np.array([0, 2], dtype=np.uint8).reshape(2, 1, 1, 1))
            Pixels(mean=(1.0,), std=(1.0,))
        """
        if x.ndim != 4 or x.dtype != np.uint8 or not x.size:
            raise ValueError(f"x must be bytes (N, C, H, W); got {x.dtype} {x.shape}")
        if x.shape[1] > MAX_CHANNELS >= x.shape[3]:
            raise ValueError(
                f"x must have its channels first, (N, C, H, W); got {x.shape}: use "
                "x.transpose(0, 3, 1, 2)"
            )
        counts = np.zeros((x.shape[1], 256), dtype=np.int64)
        for start in range(0, len(x), 256):
            for channel, own in enumerate(counts):
                own += np.bincount(x[start : start + 256, channel].ravel(), minlength=256)
        values, total = np.arange(256.0), counts.sum(axis=1)
        mean = counts @ values / total
        variance = counts @ values**2 / total - mean**2
        std = np.where(variance > 0, np.sqrt(np.maximum(variance, 0)), 1.0)
        return cls(tuple(mean.tolist()), tuple(std.tolist()))
