"""Sizes of the data sets, and the presets, which run all or a part of the paper's protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class RowCounts(NamedTuple):
    """Number of training rows, of test rows and of all rows of a data set."""

    train: int
    test: int
    all: int


ROWS = {
    "bike": RowCounts(7_000, 3_379, 17_379),
    "bike2011": RowCounts(5_500, 2_200, 8_645),
    "utkface": RowCounts(16_000, 4_000, 23_318),  # NOTE[DIFF] 18: distinct files of 23,708
}


@dataclass(frozen=True)
class Preset:
    """A reduced or full version of the paper's protocol.

    Attributes
    ----------
    name : str
        "paper", "laptop", "smoke" or "thumbnail".
    epochs : int
        Number of passes over the training rows.
    fraction : float
        Fraction of the data set's rows that is used.
    test_every : int
        Number of steps between two evaluations, at batch size 256.
    only_faces : bool, default=False
        Whether the preset exists for images only.
    """

    name: str
    epochs: int
    fraction: float
    test_every: int
    only_faces: bool = False


PRESETS = {
    "paper": Preset("paper", epochs=100, fraction=1.0, test_every=1),  # NOTE[DIFF] 10
    "laptop": Preset("laptop", epochs=60, fraction=1.0, test_every=7),
    "smoke": Preset("smoke", epochs=20, fraction=0.12, test_every=1),
    "thumbnail": Preset("thumbnail", epochs=20, fraction=1.0, test_every=12, only_faces=True),
}


class FaceScale(NamedTuple):
    """A preset on UTKFace; the fields are those of :class:`Run`.

    UTKFace has its own presets because a network for images takes thousands of times as long to
    train as one for a table.
    """

    train_rows: int
    test_rows: int
    pixels: int
    epochs: int
    batch_size: int = 256
    test_every: int = 1


FACES = {
    "paper": FaceScale(16_000, 4_000, pixels=200, epochs=20),
    "laptop": FaceScale(4_000, 1_000, pixels=64, epochs=12, batch_size=128, test_every=15),
    "smoke": FaceScale(256, 64, pixels=32, epochs=3, batch_size=32),
    # The paper's settings at a lower resolution, so that it can be trained without a GPU.
    "thumbnail": FaceScale(16_000, 4_000, pixels=32, epochs=20, test_every=12),
}
