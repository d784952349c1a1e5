"""Labelled images: decoded once, and mapped to memory."""

from biv.images.dataset import ImageDataset, Pixels
from biv.images.folder import read_images

__all__ = ["ImageDataset", "Pixels", "read_images"]
