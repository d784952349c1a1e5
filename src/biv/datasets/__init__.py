"""Data sets to learn and compare on, each a frozen :class:`Dataset`."""

from biv.datasets.bike import load_bike_2011
from biv.datasets.dataset import Dataset

__all__ = ["Dataset", "load_bike_2011"]
