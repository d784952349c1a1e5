"""Read labelled images, which are decoded once and then mapped to memory."""

from biv.images.dataset import ImageDataset, Pixels
from biv.images.folder import read_images

__all__ = ["ImageDataset", "Pixels", "read_images"]
