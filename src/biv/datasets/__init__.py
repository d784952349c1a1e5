"""Data sets to learn and compare on, each a frozen :class:`Dataset`; splits and scaling."""

from biv.datasets.amyloid import load_amyloid
from biv.datasets.bike import load_bike, load_bike_2011
from biv.datasets.dataset import Dataset
from biv.datasets.imagefolder import read_images
from biv.datasets.images import ImageDataset, Pixels
from biv.datasets.scaling import FeatureScaler, LabelScaler
from biv.datasets.splits import Split, split_rows
from biv.datasets.tables import LabelledTable, Target, read_table
from biv.datasets.utkface import load_utkface

__all__ = [
    "Dataset",
    "FeatureScaler",
    "ImageDataset",
    "LabelScaler",
    "LabelledTable",
    "Pixels",
    "Split",
    "Target",
    "load_amyloid",
    "load_bike",
    "load_bike_2011",
    "load_utkface",
    "read_images",
    "read_table",
    "split_rows",
]
