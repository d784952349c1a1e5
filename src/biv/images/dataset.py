"""Images as a data set, and the statistics of their pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv.tables.dataset import Dataset

CHANNELS = ("red", "green", "blue")
MAX_CHANNELS = 4  # largest number of channels of an ordinary image


class Skipped(NamedTuple):
    """Name of a file that was left out, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, eq=False, repr=False)
class ImageDataset(Dataset):
    """A :class:`~biv.tables.Dataset` of images, mapped to memory.

    `x` has shape (N, 3, size, size) and dtype uint8. The other attributes of a data set are `y`,
    `variance` (None if the labels are clean), `feature_names` (the channels), `source` and
    `licence`. :func:`read_images` and :func:`biv.datasets.load_utkface` return it.

    Attributes
    ----------
    names : tuple of str, default=()
        Name of the file of each row.
    skipped : tuple of Skipped, default=()
        Files that were left out, as pairs (name, reason).

    Examples
    --------
    >>> import numpy as np
    >>> from biv.images import ImageDataset
    >>> x = np.zeros((4, 3, 32, 32), dtype=np.uint8)
    >>> ImageDataset(x, np.arange(4.0), None, ("red", "green", "blue"), "a sketch", "CC0")
    ImageDataset(4 images of 32×32, clean labels; a sketch)
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
    """Mean and standard deviation of the pixels of each channel.

    A network standardises images with them; see :class:`biv.models.Standardise`.

    Attributes
    ----------
    mean : tuple of float
        Mean of each channel, on the scale from 0 to 255.
    std : tuple of float
        Standard deviation of each channel, on the same scale.

    Examples
    --------
    >>> from biv.images import Pixels
    >>> Pixels(mean=(127.5,), std=(50.0,))
    Pixels(mean=(127.5,), std=(50.0,))
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def fit(cls, x: npt.NDArray[Any]) -> Pixels:
        """Return the statistics of images.

        They are computed from exact sums of bytes. A constant channel has a standard deviation
        of 1.

        Parameters
        ----------
        x : ndarray of shape (N, C, H, W) and dtype uint8
            Images with channels first. Pass the training rows only; the paper's protocol passes
            all rows.

        Returns
        -------
        Pixels
            Mean and standard deviation of each channel.

        Raises
        ------
        ValueError
            `x` has another dtype or shape, or is empty.

        Examples
        --------
        >>> import numpy as np
        >>> from biv.images import Pixels
        >>> Pixels.fit(np.array([0, 2], dtype=np.uint8).reshape(2, 1, 1, 1))
        Pixels(mean=(1.0,), std=(1.0,))
        """
        if x.ndim != 4 or x.dtype != np.uint8 or not x.size:
            raise ValueError(
                f"x must have shape (N, C, H, W) and dtype uint8; got shape {x.shape} and dtype "
                f"{x.dtype}"
            )
        if x.shape[1] > MAX_CHANNELS >= x.shape[3]:
            raise ValueError(
                f"x must have channels first, (N, C, H, W); got shape {x.shape}: use "
                "x.transpose(0, 3, 1, 2)"
            )
        counts = np.zeros((x.shape[1], 256), dtype=np.int64)
        for start in range(0, len(x), 256):
            for channel, channel_counts in enumerate(counts):
                channel_counts += np.bincount(
                    x[start : start + 256, channel].ravel(), minlength=256
                )
        values, total = np.arange(256.0), counts.sum(axis=1)
        mean = counts @ values / total
        variance = counts @ values**2 / total - mean**2
        std = np.where(variance > 0, np.sqrt(np.maximum(variance, 0)), 1.0)
        return cls(tuple(mean.tolist()), tuple(std.tolist()))
