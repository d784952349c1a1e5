"""Files that are read from folders and archives, and archives that are refused."""

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


def test_links_and_pipes_are_reported(tmp_path):
    folder = write_folder(tmp_path / "UTKFace", faces(2))
    (folder / "1_0_0_1.jpg").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "2_0_0_1.jpg")
    (folder / "3_0_0_1").symlink_to(folder)  # a cycle
    (folder / "4_0_0_1.jpg").symlink_to(folder / "4_0_0_1.jpg")  # to itself
    odd = ("1_0_0_1.jpg", "2_0_0_1.jpg", "3_0_0_1", "4_0_0_1.jpg")
    assert dict(load(folder).skipped) == dict.fromkeys(odd, "not a regular file")


def test_a_link_to_a_file_is_read_as_a_file(tmp_path):
    folder = write_folder(tmp_path / "UTKFace", faces(2))
    (tmp_path / "elsewhere.png").write_bytes(encoded(disc(9)))
    (folder / "1_0_0_1.jpg").symlink_to(tmp_path / "elsewhere.png")
    assert sorted(load(folder).y) == [1, 10, 11]


def test_unreadable_files_and_folders_are_reported(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "UTKFace", faces(2) | {"1_0_0_1.png": encoded(disc(9))})
    write_folder(folder / "3_0_0_1", {"4_0_0_1.png": encoded(disc(8))})
    open_path, access = Path.open, os.access

    def raise_permission_error(path, *arguments, **named):
        if path.name == "1_0_0_1.png":
            raise PermissionError(errno.EACCES, "Permission denied")
        return open_path(path, *arguments, **named)

    def deny_access(path, mode):
        return not path.endswith("3_0_0_1") and access(path, mode)

    monkeypatch.setattr(Path, "open", raise_permission_error)
    monkeypatch.setattr(os, "access", deny_access)
    data = load(folder)
    assert data.y.tolist() == [10, 11]
    assert dict(data.skipped) == {
        "1_0_0_1.png": "unreadable (Permission denied)",
        "3_0_0_1": "unreadable folder",
    }


def test_a_file_that_is_deleted_meanwhile_is_reported(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "UTKFace", faces(3))
    survey = decode._survey

    def survey_and_delete(*arguments):
        result = survey(*arguments)
        next(path for path in folder.iterdir() if path.name.startswith("11_")).unlink()
        return result

    monkeypatch.setattr(decode, "_survey", survey_and_delete)
    data = load(folder)
    assert data.y.tolist() == [10, 12]
    assert data.skipped[0].reason == "unreadable (No such file or directory)"
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
def test_an_archive_in_any_order_gives_the_rows_of_a_folder(tmp_path, write):
    files = faces(5) | {"notes.txt": b"hello"}
    shuffled = {f"UTKFace/{name}": files[name] for name in sorted(files, reverse=True)}
    data = load(write(tmp_path, shuffled))
    assert data.y.tolist() == [10, 11, 12, 13, 14]
    assert np.array_equal(data.x[4].transpose(1, 2, 0), disc(7, shift=4))
    assert data.skipped == (("UTKFace/notes.txt", "no age at the beginning of its name"),)


@pytest.mark.parametrize("name", ["../1_0_0_1.png", "/tmp/1_0_0_1.png", "a/../../1_0_0_1.png",
                                  "..\\1_0_0_1.png", "C:\\1_0_0_1.png"])  # fmt: skip
@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_an_archive_with_an_entry_outside_its_folder_is_refused(tmp_path, image_cache, write, name):
    archive = write(tmp_path / "UTKFace.x", faces(2) | {name: encoded(disc(5))})
    with pytest.raises(ValueError, match=r"is refused: its entry .* is outside its folder"):
        load(archive)
    assert cache_entries(image_cache) == []
    assert sorted(tmp_path.iterdir()) == [archive, image_cache.parent]


def test_a_colon_in_a_name_is_not_a_drive(tmp_path):
    archive = write_tar(tmp_path / "UTKFace.tar", {"30_0_0_2017 10:30.png": encoded(disc(5))})
    assert load(archive).y.tolist() == [30]


def test_links_in_an_archive_are_not_followed(tmp_path):
    path = write_tar(tmp_path / "UTKFace.tar", faces(1), "w")
    with tarfile.open(path, "a") as archive:
        link = tarfile.TarInfo("1_0_0_1.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "../../../etc/passwd"
        archive.addfile(link)
    assert load(path).skipped == (("1_0_0_1.jpg", "not a regular file"),)


@pytest.mark.parametrize("write", [write_tar, write_zip])
def test_an_archive_with_an_entry_that_is_too_large_is_refused(
    tmp_path, image_cache, monkeypatch, write
):
    monkeypatch.setattr("biv.images.archive.LARGEST_FILE", 1 << 20)
    archive = write(tmp_path / "UTKFace.x", faces(2) | {"1_0_0_1.png": b"\0" * (2 << 20)})
    assert archive.stat().st_size < 50_000
    with pytest.raises(ValueError, match=r"refused: its entry '1_0_0_1.png' unpacks to more than"):
        load(archive)
    assert cache_entries(image_cache) == []


def test_an_archive_with_wrong_lengths_is_refused(tmp_path, monkeypatch):
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
def test_an_archive_truncated_anywhere_is_refused(tmp_path, image_cache, write):
    """This includes the ends of entries, but not the zeros that may follow the last block."""
    files = {f"{n}_0_0_1.png": encoded(disc(n, size=4)) for n in range(1, 4)}
    content = write(tmp_path / "whole.x", files).read_bytes()
    archive = tmp_path / "UTKFace.x"
    for length in range(0, len(content), max(3, len(content) // 160)):
        archive.write_bytes(content[:length])
        if length and not any(content[length:]):  # only zeros are missing
            continue
        with pytest.raises(
            ValueError, match="refused: it is not an archive, or it is truncated or damaged"
        ):
            list(Archive(archive).contents(lambda _: None))
    archive.write_bytes(content[: min(700, len(content) // 2)])
    with pytest.raises(ValueError, match="is refused"):
        load(archive)
    assert cache_entries(image_cache) == []


@pytest.mark.parametrize("write", KINDS.values(), ids=KINDS)
def test_a_damaged_archive_is_refused_or_read_completely(tmp_path, write):
    """Change single bits. Without a checksum, files may be read with other bytes."""
    noisy = np.random.default_rng(0).integers(0, 256, (12, 12, 3), dtype=np.uint8)
    files = {f"{n}_0_0_1.png": encoded(noisy + np.uint8(n)) for n in range(1, 5)}
    content = write(tmp_path / "whole.x", files).read_bytes()
    archive, refused = tmp_path / "UTKFace.x", 0
    for place in range(0, len(content), 31):
        damaged = bytearray(content)
        damaged[place] ^= 0x10
        archive.write_bytes(damaged)
        try:
            contents = dict(Archive(archive).contents(lambda _: None))
        except ValueError as error:
            refused += "UTKFace.x is refused" in str(error)
        else:
            assert len(contents) == 4
            checked = write not in (
                KINDS["tar"],
                KINDS["zip"],
            )  # names in a zip file have no checksum
            assert not checked or contents == files
    assert refused >= len(content) // 31 // (10 if write is KINDS["tar"] else 2)


def test_an_archive_with_a_huge_name_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("biv.images.archive.LARGEST_FILE", 1 << 20)
    long = {"1" * (2 << 20) + "_0_0_1.png": encoded(disc(5))}
    with pytest.raises(ValueError, match=r"is refused: .*a header has 2,\d+,\d+ bytes"):
        load(write_tar(tmp_path / "UTKFace.tar.gz", long))


def test_an_encrypted_archive_is_refused(tmp_path):
    content = bytearray(write_zip(tmp_path / "whole.zip", faces(1)).read_bytes())
    content[6] |= 1  # the flag in the entry; the next line sets it in the directory
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "UTKFace.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"is refused: .*encrypted"):
        load(tmp_path / "UTKFace.zip")


def test_an_archive_with_unknown_or_damaged_compression_is_refused(tmp_path):
    path = tmp_path / "UTKFace.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("1_0_0_1.png", encoded(disc(5)))
    assert len(load(path)) == 1
    content = bytearray(path.read_bytes())
    broken = content.copy()
    broken[30 + len("1_0_0_1.png") + 4] = 0xFF  # the settings of LZMA
    path.write_bytes(broken)
    with pytest.raises(ValueError, match="is refused"):
        load(path)
    content[8] = content[content.index(b"PK\x01\x02") + 10] = 77
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is refused"):
        load(path)


def test_an_archive_with_a_damaged_entry_is_refused(tmp_path):
    content = bytearray(write_zip(tmp_path / "whole.zip", {"1_0_0_1.png": b"x" * 99}).read_bytes())
    content[30 + len("1_0_0_1.png")] = 0x07  # an invalid block type
    (tmp_path / "UTKFace.zip").write_bytes(content)
    with pytest.raises(ValueError, match=r"is refused: .*invalid block type"):
        load(tmp_path / "UTKFace.zip")


def test_an_archive_with_a_repeated_name_is_refused(tmp_path):
    path = write_tar(tmp_path / "UTKFace.tar", {"1_0_0_1.png": encoded(disc(1))}, "w")
    with tarfile.open(path, "a") as archive:
        content = encoded(disc(2))
        entry = tarfile.TarInfo("./1_0_0_1.png")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    with pytest.raises(ValueError, match="two entries with the name '1_0_0_1.png'"):
        load(path)
