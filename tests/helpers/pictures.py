"""Images that tests make: a disc whose radius, and so whose brightness, is the label."""

import io
import tarfile
import warnings
import zipfile
import zlib

import numpy as np
from PIL import Image

from biv.datasets import load_utkface


def disc(radius, size=24, shift=0):
    """(size, size, 3) bytes: a disc on a gradient, which tells one image from another."""
    rows, columns = np.mgrid[:size, :size]
    inside = (rows - size / 2) ** 2 + (columns - size / 2) ** 2 < radius**2
    image = np.zeros((size, size, 3), dtype=np.uint8)
    image[..., 0] = np.where(inside, 220, 20)
    image[..., 1] = (rows * 5 + shift) % 256
    image[..., 2] = columns * 5
    return image


def encoded(pixels, form="PNG"):
    """The bytes of a file; PNG keeps every pixel as it is."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format=form)
    return out.getvalue()


def faces(count=6, size=24):
    """Files by UTKFace's names: bytes by name, ages 10, 11, …"""
    return {
        f"{10 + n}_{n % 2}_0_2017010{n}.jpg.chip.jpg": encoded(disc(3 + n, size, shift=n))
        for n in range(count)
    }


def write_folder(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def write_tar(path, files, mode="w:gz"):
    with tarfile.open(path, mode) as archive:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def cache_entries(cache):
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


def load(source, size=24):
    """Without a word about what is left out, which some tests look at instead."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_utkface(source, size=size)


def png(width, height, *, bits=8, kind=2, pixels=b""):
    """The bytes of a PNG file that says that it is so large, whatever its pixels unpack to."""
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    header = size + bytes([bits, kind, 0, 0, 0])

    def chunk(name, content):
        body = name + content
        return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
