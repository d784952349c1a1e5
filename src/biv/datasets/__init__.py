"""Data sets for learning and comparing methods, and splits of their rows.

Every loader returns a frozen :class:`~biv.tables.Dataset`.
"""

from biv.datasets.amyloid import load_amyloid
from biv.datasets.bike import load_bike, load_bike_2011
from biv.datasets.splits import Split, split_rows
from biv.datasets.utkface import load_utkface
from biv.tables import Dataset, read_table

__all__ = [
    "Dataset",
    "Split",
    "load_amyloid",
    "load_bike",
    "load_bike_2011",
    "load_utkface",
    "read_table",
    "split_rows",
]
