"""The frozen type that every data set comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of features and labels, in raw units; the arrays are read-only.

    Attributes:
        x: Features, (N, D); of images, bytes, (N, channels, height, width).
        y: Labels, (N,).
        variance: σ² of each label, (N,), in squared label units; None if the labels are clean.
        feature_names: One a column of `x`, or a channel.
        source: Where the data come from, and whom to cite.
        licence: What may be done with them.

    Example:
        >>> data = Dataset(np.zeros((3, 2)), np.zeros(3), np.ones(3), ("a", "b"), "a sketch", "CC0")
        >>> data
        Dataset(3 rows, 2 features, labels with variances; a sketch)
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
            raise ValueError(f"y must have shape ({n},), one label a row of x; got {self.y.shape}")
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
