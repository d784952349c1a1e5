"""Amyloid: how fast variants of the amyloid-β peptide form fibrils, with real error bars."""

from __future__ import annotations

import gzip
from importlib import resources

import numpy as np
import numpy.typing as npt

from biv.datasets.download import CsvTable
from biv.tables.dataset import Dataset

ALPHABET = "*ACDEFGHIKLMNPQRSTVWY"  # a stop, and the twenty amino acids
LENGTH = 42
FEATURE_NAMES = tuple(
    f"{position}{letter}" for position in range(1, LENGTH + 1) for letter in ALPHABET
)
SOURCE = (
    "Seuma, Faure, Badia, Lehner and Bolognesi, The genetic landscape for amyloid beta fibril "
    "nucleation accurately discriminates familial Alzheimer's disease mutations, eLife 2021; "
    "as found in the Python package mavenn 1.1.4"
)
LICENCE = "CC BY 4.0 (data), MIT (mavenn)"


def load_amyloid() -> Dataset:
    """16,066 variants of the amyloid-β peptide, shipped: sequence, nucleation score, its error.

    Features are the 42 positions one-hot over 21 letters, (N, 882); the label is the nucleation
    score; its variance is the square of the standard error that was measured with it.

    Example:
        >>> data = load_amyloid()
        >>> data.x.shape, round(float(data.variance.min()), 4), round(float(data.variance.max()), 2)
        ((16066, 882), 0.0016, 4.01)
    """
    shipped = resources.files("biv.datasets") / "data" / "amyloid.csv.gz"
    text = gzip.decompress(shipped.read_bytes()).decode("utf-8")
    table = CsvTable(shipped.name, text.splitlines())
    variance = table.numbers("dy") ** 2
    return Dataset(_one_hot(table), table.numbers("y"), variance, FEATURE_NAMES, SOURCE, LICENCE)


def _one_hot(table: CsvTable) -> npt.NDArray[np.float32]:
    sequences = np.frombuffer("".join(table.text("x")).encode("ascii"), dtype=np.uint8)
    letters = np.frombuffer(ALPHABET.encode("ascii"), dtype=np.uint8)
    hot: npt.NDArray[np.bool_] = sequences.reshape(len(table), LENGTH, 1) == letters
    return hot.reshape(len(table), -1).astype(np.float32)
