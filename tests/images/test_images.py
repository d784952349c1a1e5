"""Images: which files become rows, their pixels, and the cache."""

import errno
import io
import os
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from PIL import Image

from biv._utils import atomic_files
from biv.datasets import load_utkface
from biv.datasets.download import cache_dir
from biv.images import Pixels, decode
from helpers.pictures import cache_entries, disc, encoded, faces, load, png, write_folder, write_tar

pytestmark = pytest.mark.usefixtures("image_cache")


# Ages.


@pytest.mark.parametrize(
    ("name", "age"),
    [
        ("100_1_0_20170112213001988.jpg.chip.jpg", 100),
        ("1_0_2_20161219161843814.jpg.chip.jpg", 1),
        ("61_1_20170109142408075.jpg.chip.jpg", 61),  # no ethnicity
        ("39_1_20170116174525125.jpg.chip.jpg", 39),
        ("24_0_1_20170116220224657 .jpg.chip.jpg", 24),
        ("55_0_0_20170116232725357jpg.chip.jpg", 55),
        ("44_1_4_20170116235150272.pg.chip.jpg", 44),
        ("part1/33_1_1_20170116.jpg", 33),
    ],
)
def test_ages_are_read_from_irregular_names_too(tmp_path, name, age):
    data = load(write_folder(tmp_path / "UTKFace", {name: encoded(disc(5))}))
    assert data.y.tolist() == [age]
    assert data.names == (name,)


@pytest.mark.parametrize(
    "name", ["face.jpg", "_1_0.jpg", "131_0_0_1.jpg", "1234_0_0_1.jpg", ".DS_Store", "-3_0_0.jpg"]
)
def test_a_name_without_an_age_is_reported(tmp_path, name):
    files = faces(2) | {name: encoded(disc(9))}
    with pytest.warns(
        UserWarning,
        match=r"left out 1 of 3 files of .*: no age at the beginning of its name \(1 file: ",
    ):
        data = load_utkface(write_folder(tmp_path / "UTKFace", files), size=24)
    assert data.y.tolist() == [10, 11]
    assert data.skipped == ((name, "no age at the beginning of its name"),)


# Pixels.


def test_pixels_equal_those_of_the_files(tmp_path):
    data = load(write_folder(tmp_path / "UTKFace", faces(3)))
    assert data.x.shape == (3, 3, 24, 24)
    assert data.x.dtype == np.uint8
    for row in range(3):
        assert np.array_equal(data.x[row].transpose(1, 2, 0), disc(3 + row, shift=row))
    assert data.feature_names == ("red", "green", "blue")
    assert data.variance is None
    assert "non-commercial" in data.licence
    assert repr(data).startswith("ImageDataset(3 images of 24×24, clean labels; UTKFace")
    with pytest.raises(ValueError, match="read-only"):
        data.x[0] = 0


def test_images_are_mapped_to_memory_with_channels_last(tmp_path):
    data = load(write_folder(tmp_path / "UTKFace", faces(3)))
    assert data.x.strides == (24 * 24 * 3, 1, 24 * 3, 3)
    base = data.x
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


@pytest.mark.parametrize("size", [8, 24, 50])
def test_images_are_resized_as_by_pillow(tmp_path, size):
    data = load(write_folder(tmp_path / "UTKFace", faces(1)), size=size)
    original = Image.fromarray(disc(3))
    expected = np.asarray(original.resize((size, size), Image.Resampling.BILINEAR))
    assert np.array_equal(data.x[0].transpose(1, 2, 0), expected)


def test_the_middle_of_an_oblong_image_is_cropped(tmp_path):
    wide = np.concatenate([np.zeros((24, 10, 3), np.uint8), disc(5), disc(9)[:, :10]], axis=1)
    data = load(write_folder(tmp_path / "UTKFace", {"7_0_0_1.png": encoded(wide)}))
    assert np.array_equal(data.x[0].transpose(1, 2, 0), disc(5))


def test_the_exif_orientation_is_applied(tmp_path):
    out = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    Image.fromarray(disc(5)).save(out, format="PNG", exif=exif)
    data = load(write_folder(tmp_path / "UTKFace", {"7_0_0_1.png": out.getvalue()}))
    assert np.array_equal(data.x[0].transpose(1, 2, 0), disc(5)[::-1, ::-1])


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "1", "CMYK", "LA"])
def test_images_of_any_kind_with_8_bits_become_rgb(tmp_path, mode):
    out = io.BytesIO()
    grey = Image.fromarray(disc(5)[..., 0]).convert("RGB").convert(mode)
    grey.save(out, format="TIFF")
    data = load(write_folder(tmp_path / "UTKFace", {"7_0_0_1.tif": out.getvalue()}))
    assert data.x.shape == (1, 3, 24, 24)
    if mode in ("L", "RGBA", "CMYK", "LA"):
        assert np.array_equal(data.x[0][0], data.x[0][2])


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_images_with_more_than_8_bits_are_reported(tmp_path, dtype):
    deep = io.BytesIO()
    Image.fromarray(np.full((24, 24), 3000, dtype=dtype)).save(deep, format="TIFF")
    files = faces(1) | {"7_0_0_1.tif": deep.getvalue()}
    data = load(write_folder(tmp_path / "UTKFace", files))
    assert data.skipped == (("7_0_0_1.tif", "more than 8 bits per channel"),)


@pytest.mark.parametrize(("kind", "channels"), [(0, 1), (2, 3), (4, 2), (6, 4)])
def test_16_bit_colours_are_reported(tmp_path, kind, channels):
    rows = b"".join(b"\0" + b"\x0b\xb8" * (24 * channels) for _ in range(24))
    deep = png(24, 24, bits=16, kind=kind, pixels=rows)
    data = load(write_folder(tmp_path / "UTKFace", faces(1) | {"7_0_0_1.png": deep}))
    assert data.skipped == (("7_0_0_1.png", "more than 8 bits per channel"),)


def test_statistics_of_pixels_equal_those_of_numpy():
    x = np.random.default_rng(0).integers(0, 256, (300, 3, 5, 4), dtype=np.uint8)
    x[:, 2] = 7
    pixels = Pixels.fit(x)
    np.testing.assert_allclose(pixels.mean, x.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(pixels.std, [*x.std(axis=(0, 2, 3))[:2], 1.0])
    for wrong in (x.astype(float), x[0], x[:0]):
        with pytest.raises(
            ValueError, match=r"x must have shape \(N, C, H, W\) and dtype uint8; got shape"
        ):
            Pixels.fit(wrong)
    with pytest.raises(ValueError, match=r"channels first, .*: use x.transpose\(0, 3, 1, 2\)"):
        Pixels.fit(np.zeros((2, 32, 32, 3), np.uint8))


# Files that are left out.


def test_files_that_are_not_images_are_left_out_and_reported(tmp_path):
    complete = encoded(disc(12, size=100), "JPEG")
    files = faces(3) | {
        "0_0_0_empty.jpg": b"",
        "0_0_0_text.jpg": b"not an image at all",
        "0_0_0_cut.jpg": complete[: len(complete) // 2],
        "0_0_0_cut.png": encoded(disc(4, size=100))[:200],
    }
    data = load(write_folder(tmp_path / "UTKFace", files))
    assert data.y.tolist() == [10, 11, 12]
    for row in range(3):  # the gaps are closed
        assert np.array_equal(data.x[row].transpose(1, 2, 0), disc(3 + row, shift=row))
    reasons = dict(data.skipped)
    assert reasons["0_0_0_empty.jpg"] == reasons["0_0_0_text.jpg"] == "not an image"
    assert reasons["0_0_0_cut.jpg"].startswith("truncated or damaged (")
    assert reasons["0_0_0_cut.png"].startswith("truncated or damaged (")
    assert "4 files left out" in repr(data)


def test_the_warning_is_repeated_when_the_cache_is_opened(tmp_path):
    folder = write_folder(tmp_path / "UTKFace", faces(2) | {"readme.txt": b"hello"})
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"left out 1 of 3 files .*readme.txt"):
            load_utkface(folder, size=8)


def test_the_warning_counts_files_by_reason(tmp_path):
    files = faces(3) | {f"{n}.txt": b"" for n in "abcde"} | {"1_0_0_1.jpg": b"1"}
    files["40_0_0_1.png"] = files["50_0_0_1.png"] = encoded(disc(5))
    expected = (
        r"left out 7 of 11 files .*: no age at the beginning of its name \(5 files, such as 'a.txt'\); "
        r"not an image \(1 file: '1_0_0_1.jpg'\); "
        r"same bytes as another file \(1 file: '50_0_0_1.png'\)\. "
    )
    with pytest.warns(UserWarning, match=expected) as warned:
        load_utkface(write_folder(tmp_path / "UTKFace", files), size=8)
    assert warned[0].filename == __file__


def test_the_first_by_name_of_equal_files_is_kept(tmp_path):
    same = encoded(disc(5))
    files = {"9_0_0_1.png": same, "30_0_0_1.png": same, "31_0_0_1.png": encoded(disc(6))}
    data = load(write_folder(tmp_path / "UTKFace", files))
    assert data.names == ("30_0_0_1.png", "31_0_0_1.png")
    assert data.skipped == (("9_0_0_1.png", "has the bytes of 30_0_0_1.png"),)


@pytest.mark.parametrize("side", [9_000, 100_000])
def test_an_image_of_too_many_pixels_is_not_decoded(tmp_path, side):
    files = faces(2) | {"1_0_0_bomb.png": png(side, side)}
    data = load(write_folder(tmp_path / "UTKFace", files))
    assert len(data) == 2
    assert data.skipped[0].reason == "more than 67,108,864 pixels"


@pytest.mark.parametrize("files", [{}, {"readme.txt": b"hello"}, {"1_0_0_1.jpg": b"hello"}])
def test_a_folder_without_images_is_an_error_and_leaves_no_cache(tmp_path, image_cache, files):
    folder = tmp_path / "UTKFace"
    folder.mkdir()
    with pytest.raises(ValueError, match="has no images"):
        load(write_folder(folder, files))
    assert cache_entries(image_cache) == []


def test_warning_filters_are_restored(tmp_path):
    """Filters belong to the process, so threads that change and restore them may leave changes."""
    folder = write_folder(tmp_path / "UTKFace", faces(100) | {"notes.txt": b""})
    before = list(warnings.filters)
    with pytest.warns(UserWarning, match="left out 1 of 101 files"):
        load_utkface(folder, size=8)
    assert list(warnings.filters) == before


def test_scripts_are_not_run_as_images(tmp_path):
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 24 24\n%%EndComments\nshowpage\n"
    data = load(write_folder(tmp_path / "UTKFace", faces(1) | {"1_0_0_1.png": script}))
    assert data.skipped == (("1_0_0_1.png", "not an image"),)


# The cache.


def test_an_existing_cache_is_opened(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "UTKFace", faces(4))
    first = load(folder)
    monkeypatch.setattr(decode, "_image", None)  # decoding would fail
    second = load(folder)
    assert np.array_equal(first.x, second.x)
    assert first.names == second.names


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "99_0_0_1.png").write_bytes(encoded(disc(11))),
        lambda folder: next(folder.iterdir()).unlink(),
        lambda folder: next(folder.iterdir()).rename(folder / "98_0_0_1.png"),
        lambda folder: next(folder.iterdir()).write_bytes(encoded(disc(1, shift=77))),
    ],
)
def test_a_change_of_files_makes_another_cache(tmp_path, image_cache, change):
    folder = write_folder(tmp_path / "UTKFace", faces(4))
    before = load(folder)
    change(folder)
    after = load(folder)
    assert len(cache_entries(image_cache)) == 2
    assert before.names != after.names or not np.array_equal(before.x, after.x)


def test_folders_with_equal_names_lengths_and_times_have_separate_caches(tmp_path):
    loaded = []
    for name, radius in (("a", 3), ("b", 9)):
        folder = write_folder(tmp_path / name, {"1_0_0_1.bmp": encoded(disc(radius), "BMP")})
        os.utime(folder / "1_0_0_1.bmp", (0, 0))
        loaded.append(load(folder).x)
    assert not np.array_equal(*loaded)
    (tmp_path / "b" / "1_0_0_1.bmp").write_bytes(encoded(disc(5), "BMP"))  # replaces the file
    os.utime(tmp_path / "b" / "1_0_0_1.bmp", (0, 0))
    assert np.array_equal(load(tmp_path / "b").x[0].transpose(1, 2, 0), disc(5))


def test_another_size_makes_another_cache(tmp_path, image_cache):
    folder = write_folder(tmp_path / "UTKFace", faces(2))
    assert load(folder, size=8).x.shape[2:] == (8, 8)
    assert load(folder, size=9).x.shape[2:] == (9, 9)
    assert len(cache_entries(image_cache)) == 2


def test_a_failure_leaves_no_partial_cache(tmp_path, image_cache, monkeypatch):
    def fail(*_):
        raise MemoryError

    monkeypatch.setattr(decode, "_image", fail)
    with pytest.raises(MemoryError):
        load(write_folder(tmp_path / "UTKFace", faces(4)))
    assert cache_entries(image_cache) == []


@pytest.mark.parametrize("where", ["posix_fallocate", "mkdir"])
def test_a_full_disk_is_an_error_that_explains_what_to_do(
    tmp_path, image_cache, monkeypatch, where
):
    def raise_disk_full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    folder = write_folder(tmp_path / "UTKFace", faces(4))
    if where == "mkdir":
        monkeypatch.setattr("pathlib.Path.mkdir", raise_disk_full)
    else:
        monkeypatch.setattr("os.posix_fallocate", raise_disk_full)
    with pytest.raises(
        OSError, match="could not be written: no space left on device: set BIV_CACHE_DIR"
    ):
        load(folder)
    assert cache_entries(image_cache) == []


def test_disk_space_is_allocated_before_writing(tmp_path):
    rows = decode._mapped(tmp_path / "pixels.bin", (100, 64, 64, 3))
    state = (tmp_path / "pixels.bin").stat()
    assert rows.shape == (100, 64, 64, 3)
    assert state.st_size == rows.nbytes <= state.st_blocks * 512


@pytest.mark.slow
def test_a_folder_left_by_a_killed_process_is_not_used_as_a_cache(
    tmp_path, image_cache, monkeypatch
):
    folder = write_folder(tmp_path / "UTKFace", faces(4))
    script = f"""
import os
from biv.datasets import load_utkface
from biv.images import decode
decode._image = lambda content, side: os._exit(9)
load_utkface({str(folder)!r}, size=24)
"""
    assert subprocess.run([sys.executable, "-c", script]).returncode == 9
    (leftover,) = cache_entries(image_cache)
    assert leftover.startswith(".")
    (image_cache / ".my.notes").mkdir()
    with monkeypatch.context() as patch:  # without locks, it may be in use
        patch.setattr(atomic_files, "_lock", lambda *_, **__: False)
        load(folder)
        assert leftover in cache_entries(image_cache)
        for name in (leftover, ".my.notes"):
            os.utime(image_cache / name, (0, time.time() - decode.STALE - 1))
        load(folder, size=8)
        assert leftover not in cache_entries(image_cache)
    (image_cache / leftover).mkdir()
    with atomic_files.lock_folder(image_cache / leftover):
        load(folder, size=9)
        assert leftover in cache_entries(image_cache)
    load(folder, size=10)
    assert sorted(cache_entries(image_cache))[0] == ".my.notes"
    assert leftover not in cache_entries(image_cache)


def test_two_processes_can_make_the_same_cache_at_once(tmp_path, image_cache, monkeypatch):
    folder = write_folder(tmp_path / "UTKFace", faces(4))
    barrier = threading.Barrier(2, timeout=30)
    fill = decode._fill

    def fill_and_wait(*arguments, **settings):
        refused = fill(*arguments, **settings)
        barrier.wait()
        return refused

    monkeypatch.setattr(decode, "_fill", fill_and_wait)
    loaded = []
    threads = [threading.Thread(target=lambda: loaded.append(load(folder))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(loaded[0].x, loaded[1].x)
    assert len(cache_entries(image_cache)) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda home: (home / "pixels.bin").write_bytes(b"short"),
        lambda home: (home / "pixels.bin").unlink(),
        lambda home: (home / "contents.json").write_text("{"),
        lambda home: (home / "contents.json").write_text("{}"),
        lambda home: (home / "contents.json").write_text("[]"),
        lambda home: (home / "contents.json").write_text(
            (home / "contents.json").read_text().replace("skipped", "left out")
        ),
        lambda home: (home / "contents.json").write_text(
            (home / "contents.json").read_text().replace("biv images 1", "biv images 0")
        ),
    ],
)
def test_a_damaged_cache_is_an_error_that_explains_what_to_do(tmp_path, image_cache, damage):
    folder = write_folder(tmp_path / "UTKFace", faces(2))
    load(folder)
    (home,) = image_cache.iterdir()
    damage(home)
    with pytest.raises(ValueError, match=r"is damaged .*: remove that folder"):
        load(folder)


@pytest.mark.parametrize(
    ("size", "error", "message"),
    [
        (0, ValueError, "size must be an integer >= 1"),
        (5000, ValueError, "size must be at most 4096 pixels; got 5000"),
        (1.5, TypeError, "size must be an integer"),
    ],
)
def test_an_invalid_size_is_rejected(tmp_path, size, error, message):
    with pytest.raises(error, match=message):
        load(write_folder(tmp_path / "UTKFace", faces(1)), size=size)


# Where the files are searched for.


def test_utkface_is_found_in_the_data_folder_or_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BIV_DATA_DIR", str(tmp_path / "data"))
    with pytest.raises(FileNotFoundError, match=r"UTKFace is neither in BIV_DATA_DIR .*licence"):
        load_utkface()
    (cache_dir() / "utkface").mkdir(parents=True)
    write_tar(cache_dir() / "utkface" / "UTKFace.tar.gz", faces(2))
    assert len(load_utkface(size=8)) == 2
    write_folder(tmp_path / "data" / "utkface" / "UTKFace", faces(3))
    assert len(load_utkface(size=8)) == 3
    with pytest.raises(FileNotFoundError, match="neither a folder of images nor an archive"):
        load_utkface(tmp_path / "nowhere")
