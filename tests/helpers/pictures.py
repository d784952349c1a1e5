"""Images for tests: a disc whose radius, and therefore brightness, is the label."""

import io
import tarfile
import warnings
import zipfile
import zlib

import numpy as np
from PIL import Image

from biv.datasets import load_utkface


def disc(radius, size=24, shift=0):
    """Return (size, size, 3) bytes of a disc on a gradient, which differs between images."""
    rows, columns = np.mgrid[:size, :size]
    inside = (rows - size / 2) ** 2 + (columns - size / 2) ** 2 < radius**2
    image = np.zeros((size, size, 3), dtype=np.uint8)
    image[..., 0] = np.where(inside, 220, 20)
    image[..., 1] = (rows * 5 + shift) % 256
    image[..., 2] = columns * 5
    return image


def encoded(pixels, form="PNG"):
    """Return the bytes of a file; PNG does not change any pixel."""
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, format=form)
    return out.getvalue()


def faces(count=6, size=24):
    """Return bytes by UTKFace's file names, with the ages 10, 11, …"""
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
    """Load images without warnings about files that are left out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_utkface(source, size=size)


def png(width, height, *, bits=8, kind=2, pixels=b""):
    """Return a PNG file with this size in its header, whatever its pixels decompress to."""
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    header = size + bytes([bits, kind, 0, 0, 0])

    def chunk(name, content):
        body = name + content
        return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    parts = [(b"IHDR", header), (b"IDAT", zlib.compress(pixels)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)
