"""The type of every data set: features, labels and their variances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Dataset:
    """Immutable rows of features, labels and variances, in the units of their source.

    The arrays are read-only views. `len(data)` is the number of rows.

    Parameters
    ----------
    x : ndarray of shape (N, D), or (N, channels, height, width) for images
        Features. Images are bytes.
    y : ndarray of shape (N,)
        Labels.
    variance : ndarray of shape (N,) or None
        Variance σ² of each label's noise, in squared label units; None if there are no error bars.
    feature_names : tuple of str
        One name per column of `x`, or per channel for images.
    source : str
        Where the data come from and what to cite.
    licence : str
        Licence of the data.

    Raises
    ------
    ValueError
        If the shapes do not match.

    Examples
    --------
    >>> data = Dataset(np.zeros((3, 2)), np.zeros(3), np.ones(3), ("a", "b"), "a sketch", "CC0")
    >>> data
    Dataset(3 rows, 2 features, labels with variances; a sketch)
    >>> data.variance
    array([1., 1., 1.])
    """

    x: npt.NDArray[Any]
    y: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64] | None
    feature_names: tuple[str, ...]
    source: str
    licence: str

    def __post_init__(self) -> None:
        n, d = self.x.shape[:2]
        if self.y.shape != (n,):
            raise ValueError(
                f"y must have shape ({n},), one label per row of x; got {self.y.shape}"
            )
        if self.variance is not None and self.variance.shape != (n,):
            raise ValueError(f"variance must have shape ({n},); got {self.variance.shape}")
        if len(self.feature_names) != d:
            raise ValueError(
                f"feature_names must name the {d} columns of x; got {len(self.feature_names)}"
            )
        for name in ("x", "y", "variance"):
            array = getattr(self, name)
            if array is not None:
                view = array.view()  # the caller's own array stays writable
                view.flags.writeable = False
                object.__setattr__(self, name, view)

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        labels = "clean labels" if self.variance is None else "labels with variances"
        return f"Dataset({len(self)} rows, {self.x.shape[1]} features, {labels}; {self.source})"
