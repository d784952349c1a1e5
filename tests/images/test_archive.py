"""What is read of folders and archives, and which archives are refused."""

import errno
import io
import os
import tarfile
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from biv.images import decode
from biv.images.archive import Archive
from helpers.pictures import (
    cache_entries,
    disc,
    encoded,
    faces,
    load,
    write_folder,
    write_tar,
    write_zip,
)

pytestmark = pytest.mark.usefixtures("image_cache")


# Folders.


def test_a_file_that_is_too_long_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr("biv.images.archive.LARGEST_FILE", 2000)
    files = faces(2) | {"1_0_0_1.png": encoded(disc(1)) + b"\0" * 3000}
    data = load(write_folder(tmp_path / "UTKFace", files))
    assert data.skipped == (("1_0_0_1.png", "longer than 2,000 bytes"),)


def test_what_is_not_a_file_is_reported(tmp_path):
    folder = write_folder(tmp_path / "UTKFace", faces(2))
    (folder / "1_0_0_1.jpg").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "2_0_0_1.jpg")
    (folder / "3_0_0_1").symlink_to(folder)  # in circles
    (folder / "4_0_0_1.jpg").symlink_to(folder / "4_0_0_1.jpg")  # to itself
    odd = ("1_0_0_1.jpg", "2_0_0_1.jpg", "3_0_0_1", "4_0_0_1.jpg")
    assert dict(load(folder).skipped) == dict.fromkeys(odd, "not a file")


def test_a_link_to_a_file_is_a_file(tmp_path):
    folder = write_folder(tmp_path / "UTKFace", faces(2))
    (tmp_path / "elsewhere.png").write_bytes(encoded(disc(9)))
    (folder / "1_0_0_1.jpg").symlink_to(tmp_path / "elsewhere.png")
    assert sorted(load(folder).y) == [1, 10, 11]


def test_what_cannot_be_read_is_reported(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "UTKFace", faces(2) | {"1_0_0_1.png": encoded(disc(9))})
    write_folder(folder / "3_0_0_1", {"4_0_0_1.png": encoded(disc(8))})
    opened, access = Path.open, os.access

    def forbidden(path, *arguments, **named):
        if path.name == "1_0_0_1.png":
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *arguments, **named)

    def closed(path, mode):
        return not path.endswith("3_0_0_1") and access(path, mode)

    monkeypatch.setattr(Path, "open", forbidden)
    monkeypatch.setattr(os, "access", closed)
    data = load(folder)
    assert data.y.tolist() == [10, 11]
    assert dict(data.skipped) == {
        "1_0_0_1.png": "that cannot be read (Permission denied)",
        "3_0_0_1": "a folder that cannot be read",
    }


def test_a_file_that_goes_away_meanwhile_is_reported(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "UTKFace", faces(3))
    survey = decode._survey

    def and_then(*arguments):
        found = survey(*arguments)
        next(path for path in folder.iterdir() if path.name.startswith("11_")).unlink()
        return found

    monkeypatch.setattr(decode, "_survey", and_then)
    data = load(folder)
    assert data.y.tolist() == [10, 12]
    assert data.skipped[0].reason == "that cannot be read (No such file or directory)"
    assert np.array_equal(data.x[1].transpose(1, 2, 0), disc(5, shift=2))


# Archives.


@pytest.mark.parametrize(
    "write",
    [
        lambda folder, files: write_folder(folder / "UTKFace", files),
        lambda folder, files: write_tar(folder / "UTKFace.tar.gz", files),
        lambda folder, files: write_tar(folder / "UTKFace.tar", files, "w"),
        lambda folder, files: write_zip(folder / "UTKFace.zip", files),
    ],
)
def test_an_archive_is_as_good_as_a_folder_whatever_its_order(tmp_path, write):
    files = faces(5) | {"notes.txt": b"hello"}
    shuffled = {f"UTKFace/{name}": files[name] for name in sorted(files, reverse=True)}
    data = load(write(tmp_path, shuffled))
    assert data.y.tolist() == [10, 11, 12, 13, 14]
    assert np.array_equal(data.x[4].transpose(1, 2, 0), disc(7, shift=4))
    assert data.skipped == (("UTKFace/notes.txt", "without an age at the beginning of its name"),)


@pytest.mark.parametrize("name", ["../1_0_0_1.png", "/tmp/1_0_0_1.png", "a/../../1_0_0_1.png",
                                  "..\\1_0_0_1.png", "C:\\1_0_0_1.png"])  # fmt: skip
@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_an_entry_outside_the_folder_refuses_the_archive(tmp_path, image_cache, write, name):
    archive = write(tmp_path / "UTKFace.x", faces(2) | {name: encoded(disc(5))})
    with pytest.raises(ValueError, match=r"is refused: its entry .* lies outside its folder"):
        load(archive)
    assert cache_entries(image_cache) == []
    assert sorted(tmp_path.iterdir()) == [archive, image_cache.parent]


def test_a_colon_in_a_name_is_no_drive(tmp_path):
    archive = write_tar(tmp_path / "UTKFace.tar", {"30_0_0_2017 10:30.png": encoded(disc(5))})
    assert load(archive).y.tolist() == [30]


def test_links_in_an_archive_lead_nowhere(tmp_path):
    path = write_tar(tmp_path / "UTKFace.tar", faces(1), "w")
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("1_0_0_1.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../etc/passwd"
        archive.addfile(link)
    assert load(path).skipped == (("1_0_0_1.jpg", "not a file"),)


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_an_entry_that_unpacks_to_too_much_refuses_the_archive(
    tmp_path, image_cache, monkeypatch, write
):
    monkeypatch.setattr("biv.images.archive.LARGEST_FILE", 1 << 20)
    archive = write(tmp_path / "UTKFace.x", faces(2) | {"1_0_0_1.png": b"\0" * (2 << 20)})
    assert archive.stat().st_size < 50_000
    with pytest.raises(ValueError, match=r"refused: its entry '1_0_0_1.png' unpacks to more than"):
        load(archive)
    assert cache_entries(image_cache) == []


def test_an_archive_that_lies_about_lengths_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("biv.images.archive.LARGEST_FILE", 1 << 16)
    content = write_zip(tmp_path / "whole.zip", {"1_0_0_1.png": b"\0" * (1 << 17)}).read_bytes()
    length = (1 << 17).to_bytes(4, "little")
    (tmp_path / "UTKFace.zip").write_bytes(content.replace(length, b"\x10\0\0\0"))
    with pytest.raises(ValueError, match="is refused"):
        load(tmp_path / "UTKFace.zip")


KINDS = {
    "tar": partial(write_tar, mode="w"),
    "tar.gz": write_tar,
    "tar.bz2": partial(write_tar, mode="w:bz2"),
    "tar.xz": partial(write_tar, mode="w:xz"),
    "zip": write_zip,
}


@pytest.mark.parametrize("write", KINDS.values(), ids=KINDS)
def test_an_archive_that_is_cut_off_anywhere_is_refused(tmp_path, image_cache, write):
    """Between two entries too; but for the zeros that may follow the last block."""
    files = {f"{n}_0_0_1.png": encoded(disc(n, size=4)) for n in range(1, 4)}
    content = write(tmp_path / "whole.x", files).read_bytes()
    archive = tmp_path / "UTKFace.x"
    for length in range(0, len(content), max(3, len(content) // 160)):
        archive.write_bytes(content[:length])
        if length and not any(content[length:]):  # what is gone says nothing
            continue
        with pytest.raises(ValueError, match="refused: it is no archive, or is cut off or damaged"):
            list(Archive(archive).contents(lambda _: None))
    archive.write_bytes(content[: min(700, len(content) // 2)])
    with pytest.raises(ValueError, match="is refused"):
        load(archive)
    assert cache_entries(image_cache) == []


@pytest.mark.parametrize("write", KINDS.values(), ids=KINDS)
def test_no_part_of_a_damaged_archive_passes_for_the_whole(tmp_path, write):
    """A bit changed here and there. Files may be read with other bytes where nothing checks them."""
    noisy = np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    files = {f"{n}_0_0_1.png": encoded(noisy + np.uint8(n)) for n in range(1, 5)}
    content = write(tmp_path / "whole.x", files).read_bytes()
    archive, refused = tmp_path / "UTKFace.x", 0
    for place in range(0, len(content), 31):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        archive.write_bytes(damaged)
        try:
            found = dict(Archive(archive).contents(lambda _: None))
        except ValueError as error:
            refused += "UTKFace.x is refused" in str(error)
        else:
            assert len(found) == 4
            checked = write not in (KINDS["tar"], KINDS["zip"])  # zip has names without a checksum
            assert not checked or found == files
    assert refused >= len(content) // 31 // (10 if write is KINDS["tar"] else 2)


def test_a_name_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("biv.images.archive.LARGEST_FILE", 1 << 20)
    long = {"1" * (2 << 20) + "_0_0_1.png": encoded(disc(5))}
    with pytest.raises(ValueError, match=r"is refused: .*a header of 2,\d+,\d+ bytes"):
        load(write_tar(tmp_path / "UTKFace.tar.gz", long))


def test_an_encrypted_archive_is_refused(tmp_path):
    content = bytearray(write_zip(tmp_path / "whole.zip", faces(1)).read_bytes())
    content[6] |= 1  # of the entry, and of the list at the end
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "UTKFace.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"is refused: .*encrypted"):
        load(tmp_path / "UTKFace.zip")


def test_an_archive_compressed_in_an_unknown_or_damaged_way_is_refused(tmp_path):
    path = tmp_path / "UTKFace.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("1_0_0_1.png", encoded(disc(5)))
    assert len(load(path)) == 1
    content = bytearray(path.read_bytes())
    broken = content.copy()
    broken[30 + len("1_0_0_1.png") + 4] = 0xFF  # LZMA's own settings
    path.write_bytes(broken)
    with pytest.raises(ValueError, match="is refused"):
        load(path)
    content[8] = content[content.index(b"PK\x01\x02") + 10] = 77
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is refused"):
        load(path)


def test_an_entry_that_cannot_be_unpacked_refuses_the_archive(tmp_path):
    content = bytearray(write_zip(tmp_path / "whole.zip", {"1_0_0_1.png": b"x" * 99}).read_bytes())
    content[30 + len("1_0_0_1.png")] = 0x07  # no such kind of block
    (tmp_path / "UTKFace.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"is refused: .*invalid block type"):
        load(tmp_path / "UTKFace.zip")


def test_two_entries_of_one_name_refuse_the_archive(tmp_path):
    path = write_tar(tmp_path / "UTKFace.tar", {"1_0_0_1.png": encoded(disc(1))}, "w")
    with tarfile.open(path, "a") as archive:
        content = encoded(disc(2))
        entry = tarfile.TarInfo("./1_0_0_1.png")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    with pytest.raises(ValueError, match="two entries of the name '1_0_0_1.png'"):
        load(path)
