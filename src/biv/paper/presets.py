"""How many rows a data set has, and how much of the paper's protocol is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class RowCounts(NamedTuple):
    """How many rows of a data set are trained on and tested on, and how many there are."""

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
    """How much of the paper's protocol is run.

    Attributes:
        name: "paper", "laptop", "smoke" or "thumbnail".
        epochs: Passes over the data.
        share: Of the rows of the data set that are used.
        test_every: Steps of a batch of 256 between two tests.
        only_faces: Whether it is for images alone.
    """

    name: str
    epochs: int
    share: float
    test_every: int
    only_faces: bool = False


PRESETS = {
    "paper": Preset("paper", epochs=100, share=1.0, test_every=1),  # NOTE[DIFF] 10
    "laptop": Preset("laptop", epochs=60, share=1.0, test_every=7),
    "smoke": Preset("smoke", epochs=20, share=0.12, test_every=1),
    "thumbnail": Preset("thumbnail", epochs=20, share=1.0, test_every=12, only_faces=True),
}


class FaceScale(NamedTuple):
    """A preset on UTKFace, by the names of a :class:`Run`.

    A network for images takes thousands of times as long as one for a table.
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
    # The paper's, but for the resolution: what a processor can train.
    "thumbnail": FaceScale(16_000, 4_000, pixels=32, epochs=20, test_every=12),
}
