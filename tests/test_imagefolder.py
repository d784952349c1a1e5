"""Any folder of images with a table of names, labels and error bars."""

import numpy as np
import pytest
import torch

import biv
from biv.datasets import LabelScaler, Pixels, images, read_images, split_rows
from biv.models import ResNet18
from biv.training import Member, Schedule, Triplets, train_module
from images import disc, encoded, write_folder, write_tar

PHOTOS = {f"{place}/{n}.png": encoded(disc(n, shift=ord(place[0]))) for place in ("left", "right")
          for n in (3, 5, 7)}  # fmt: skip
HEADER = "name,y,err\n"
ROWS = {name: (float(k), 0.1 * (k + 1)) for k, name in enumerate(sorted(PHOTOS))}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("BIV_CACHE_DIR", str(tmp_path / "cache"))


def table(path, rows=None):
    lines = [f"{name},{y:g},{err:g}\n" for name, (y, err) in (rows or ROWS).items()]
    path.write_text(HEADER + "".join(reversed(lines)))
    return path


def read(folder, labels, **settings):
    settings = {"image": "name", "target": "y", "target_std": "err", "size": 24} | settings
    return read_images(folder, labels, **settings)


def test_labels_and_error_bars_belong_to_their_images(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    data = read(folder, table(folder / "labels.csv"))  # the table itself is not a stray file
    assert data.names == tuple(sorted(PHOTOS))
    assert data.skipped == ()
    assert data.y.tolist() == [ROWS[name][0] for name in data.names]
    np.testing.assert_allclose(data.variance, [ROWS[name][1] ** 2 for name in data.names])
    for name, x in zip(data.names, data.x, strict=True):
        place, n = name.removesuffix(".png").split("/")
        assert np.array_equal(x.transpose(1, 2, 0), disc(int(n), shift=ord(place[0])))


def test_an_archive_and_other_kinds_of_error_bar(tmp_path):
    archive = write_tar(tmp_path / "photos.tar.gz", PHOTOS)
    labels = table(tmp_path / "labels.csv")
    assert read(archive, labels, target_std=None, target_var="err").variance[0] == 0.1
    assert read(archive, labels, target_std=None).variance is None


def test_new_labels_of_the_same_images_use_the_same_cache(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    before = read(folder, table(folder / "labels.csv"))
    monkeypatch.setattr(images, "_image", None)  # decoding would fail
    doubled = {name: (2 * y, err) for name, (y, err) in ROWS.items()}
    after = read(folder, table(folder / "labels.csv", doubled))
    assert np.array_equal(after.y, 2 * before.y)


def test_files_that_the_table_does_not_name_are_reported(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    assert len(read(folder, table(tmp_path / "labels.csv"))) == 6
    some = dict(list(ROWS.items())[:4])
    with pytest.warns(UserWarning, match=r"2 of 6 files .*'right/5.png': not named in the table"):
        data = read(folder, table(tmp_path / "labels.csv", some))
    assert len(data) == 4


def test_images_that_cannot_be_read_are_reported_with_their_labels(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"left/3.png": b"broken"})
    with pytest.warns(UserWarning, match=r"'left/3.png': not an image"):
        data = read(folder, table(tmp_path / "labels.csv"))
    assert data.y.tolist() == [1, 2, 3, 4, 5]


def test_rows_without_a_label_are_left_out_and_said(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    rows = ROWS | {"left/3.png": (np.nan, 0.1)}
    with pytest.warns(UserWarning, match="left out") as said:
        data = read(folder, table(tmp_path / "labels.csv", rows))
    assert len(data) == 5
    assert [str(one.message).split(" (")[0] for one in said] == [
        "1 rows have no 'y' and were left out",
        f"1 of 6 files of {folder} are left out",
    ]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (HEADER + "left/4.png,1,2\n", FileNotFoundError, r"1 of 1 images .* 'left/4.png'"),
        (HEADER + "left/3.png,1,2\nleft//3.png,1,2\n", ValueError, "row 2: 'left/3.png' is named twice"),
        (HEADER + "../3.png,1,2\n", ValueError, "row 1, column 'name' must be .* below the folder"),
        (HEADER + "/etc/3.png,1,2\n", ValueError, "row 1, column 'name' must be .* below the folder"),
        (HEADER + ",1,2\n", ValueError, "row 1, column 'name' must be the name of a file"),
        (HEADER + "left/3.png,1,-2\n", ValueError, "row 1, column 'err' must be 0 or more"),
        (HEADER + "left/3.png,old,2\n", ValueError, "row 1, column 'y' must be a number"),
        (HEADER + "left/3.png,,2\n", ValueError, "must have rows with a 'y'; found none"),
        ("file,y,err\nleft/3.png,1,2\n", ValueError, "must have a column 'name'"),
    ],
)  # fmt: skip
def test_bad_tables(tmp_path, text, error, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(error, match=message):
        read(write_folder(tmp_path / "photos", PHOTOS), tmp_path / "labels.csv")


def test_images_below_a_linked_folder_are_not_there(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    (folder / "linked").symlink_to(folder / "left")
    (tmp_path / "labels.csv").write_text(HEADER + "linked/3.png,1,2\n")
    with pytest.raises(FileNotFoundError, match="1 of 1 images .* 'linked/3.png'"):
        read(folder, tmp_path / "labels.csv")


def test_files_without_a_label_are_not_read_and_may_change(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"stray.bin": b"1"})
    labels = table(tmp_path / "labels.csv")
    read_bytes = []
    monkeypatch.setattr(images.hashlib, "sha256", watched(images.hashlib.sha256, read_bytes))
    with pytest.warns(UserWarning, match="'stray.bin': not named"):
        first = read(folder, labels)
    assert b"1" not in read_bytes
    (folder / "stray.bin").write_bytes(b"22")
    monkeypatch.setattr(images, "_image", None)  # decoding would fail
    with pytest.warns(UserWarning, match="'stray.bin': not named"):
        assert read(folder, labels).names == first.names


def watched(function, seen):
    def watching(content=b""):
        seen.append(bytes(content))
        return function(content)

    return watching


def test_names_and_labels_are_different_columns(tmp_path):
    with pytest.raises(ValueError, match="'y' cannot hold the names of images and labels"):
        read(write_folder(tmp_path / "photos", PHOTOS), table(tmp_path / "l.csv"), image="y")


@pytest.mark.slow
def test_a_network_learns_the_size_of_a_disc_from_noisy_labels(tmp_path):
    """From files to predictions, as a user would: noisy labels, error bars, an unseen test set."""
    rng = np.random.default_rng(0)
    radius = rng.uniform(4, 11, 96)
    err = rng.choice([0.1, 2.0], 96)
    noisy = radius + err * rng.normal(size=96)
    files = {f"{n:03}.png": encoded(disc(r, shift=n)) for n, r in enumerate(radius)}
    rows = {name: (y, e) for name, y, e in zip(files, noisy, err, strict=True)}
    labels = table(tmp_path / "labels.csv", rows)
    data = read(write_folder(tmp_path / "photos", files), labels, size=32)

    split = split_rows(len(data), train=64, test=32, generator=rng)
    scaler = LabelScaler.fit(data.y[split.train], data.variance[split.train])
    member = Member(
        Triplets(data.x, scaler.label(data.y), scaler.variance(data.variance)),
        rows=torch.tensor(split.train),
        loss=biv.BIVLoss(),
    )
    network = ResNet18(*Pixels.fit(data.x[split.train]))(member.generators()[0])
    train_module(network, member, Schedule(epochs=12, batch_size=16), progress=False)
    with torch.no_grad():
        found = scaler.label_raw(network(torch.tensor(data.x[split.test])).numpy()[:, 0])
    assert np.mean((found - radius[split.test]) ** 2) < 0.5 * radius.var()
