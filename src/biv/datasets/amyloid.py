"""Amyloid data: how fast variants of the amyloid-β peptide form fibrils, with real error bars."""

from __future__ import annotations

import gzip
from importlib import resources

import numpy as np
import numpy.typing as npt

from biv.datasets.download import CsvTable
from biv.tables.dataset import Dataset

ALPHABET = "*ACDEFGHIKLMNPQRSTVWY"  # a stop codon, and the twenty amino acids
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
    """Load 16,066 variants of the amyloid-β peptide, which are included in the package.

    The label is the nucleation score, a measure of how fast the variant forms fibrils. It has a
    real error bar.

    Returns
    -------
    Dataset
        `x` has shape (16066, 882): the 42 positions of the sequence, one-hot over 21 letters. `y`
        has shape (16066,) and no unit. `variance` is the square of the standard error that was
        published with each score.

    Examples
    --------
    >>> import biv
    >>> data = biv.datasets.load_amyloid()
    >>> data.x.shape, round(float(data.variance.min()), 4), round(float(data.variance.max()), 2)
    ((16066, 882), 0.0016, 4.01)
    """
    file = resources.files("biv.datasets") / "data" / "amyloid.csv.gz"
    text = gzip.decompress(file.read_bytes()).decode("utf-8")
    table = CsvTable(file.name, text.splitlines())
    variance = table.numbers("dy") ** 2
    return Dataset(_one_hot(table), table.numbers("y"), variance, FEATURE_NAMES, SOURCE, LICENCE)


def _one_hot(table: CsvTable) -> npt.NDArray[np.float32]:
    sequences = np.frombuffer("".join(table.text("x")).encode("ascii"), dtype=np.uint8)
    letters = np.frombuffer(ALPHABET.encode("ascii"), dtype=np.uint8)
    hot: npt.NDArray[np.bool_] = sequences.reshape(len(table), LENGTH, 1) == letters
    return hot.reshape(len(table), -1).astype(np.float32)
