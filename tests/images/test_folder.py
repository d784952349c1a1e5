"""Folders of images with a table of names, labels and error bars."""

import numpy as np
import pytest
import torch

import biv
from biv.datasets import split_rows
from biv.images import Pixels, decode, read_images
from biv.models import ResNet18
from biv.preprocessing import LabelScaler
from biv.training import Member, Schedule, Triplets, train_module
from helpers.pictures import disc, encoded, write_folder, write_tar

PHOTOS = {f"{place}/{n}.png": encoded(disc(n, shift=ord(place[0]))) for place in ("left", "right")
          for n in (3, 5, 7)}  # fmt: skip
HEADER = "name,y,err\n"
ROWS = {name: (float(k), 0.1 * (k + 1)) for k, name in enumerate(sorted(PHOTOS))}


pytestmark = pytest.mark.usefixtures("image_cache")


def write_table(path, rows=None):
    lines = [f"{name},{y:g},{err:g}\n" for name, (y, err) in (rows or ROWS).items()]
    path.write_text(HEADER + "".join(reversed(lines)))
    return path


def read(folder, labels, **settings):
    settings = {"image": "name", "target": "y", "target_std": "err", "size": 24} | settings
    return read_images(folder, labels, **settings)


def test_labels_and_error_bars_belong_to_their_images(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    data = read(folder, write_table(folder / "labels.csv"))  # the table itself is not reported
    assert data.names == tuple(sorted(PHOTOS))
    assert data.skipped == ()
    assert data.y.tolist() == [ROWS[name][0] for name in data.names]
    np.testing.assert_allclose(data.variance, [ROWS[name][1] ** 2 for name in data.names])
    for name, x in zip(data.names, data.x, strict=True):
        place, n = name.removesuffix(".png").split("/")
        assert np.array_equal(x.transpose(1, 2, 0), disc(int(n), shift=ord(place[0])))


def test_archives_and_variances_are_read_too(tmp_path):
    archive = write_tar(tmp_path / "photos.tar.gz", PHOTOS)
    labels = write_table(tmp_path / "labels.csv")
    assert read(archive, labels, target_std=None, target_var="err").variance[0] == 0.1
    assert read(archive, labels, target_std=None).variance is None


def test_new_labels_of_the_same_images_use_the_same_cache(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    before = read(folder, write_table(folder / "labels.csv"))
    monkeypatch.setattr(decode, "_image", None)  # decoding would fail
    doubled = {name: (2 * y, err) for name, (y, err) in ROWS.items()}
    after = read(folder, write_table(folder / "labels.csv", doubled))
    assert np.array_equal(after.y, 2 * before.y)


def test_files_that_the_table_does_not_name_are_reported(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    assert len(read(folder, write_table(tmp_path / "labels.csv"))) == 6
    some = dict(list(ROWS.items())[:4])
    with pytest.warns(
        UserWarning,
        match=r"left out 2 of 6 files .*: not named in the table \(2 files, such as 'right/5.png'\)",
    ):
        data = read(folder, write_table(tmp_path / "labels.csv", some))
    assert len(data) == 4


def test_labels_of_unreadable_images_are_left_out_with_them(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"left/3.png": b"broken"})
    with pytest.warns(
        UserWarning, match=r"left out 1 of 6 files .*: not an image \(1 file: 'left/3.png'\)"
    ):
        data = read(folder, write_table(tmp_path / "labels.csv"))
    assert data.y.tolist() == [1, 2, 3, 4, 5]


def test_images_without_a_label_are_reported(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    rows = ROWS | {"left/3.png": (np.nan, 0.1), "gone.png": (np.nan, 0.1)}
    with pytest.warns(
        UserWarning, match=r"left out 1 of 6 files .*: no label in the table \(1 file: "
    ):
        data = read(folder, write_table(tmp_path / "labels.csv", rows))
    assert len(data) == 5


@pytest.mark.parametrize(
    ("labels", "combined"),
    [
        (
            [(10, 50.0), (20, 0.1), (21, 0.1)],
            (20.5, 0.005),
        ),  # the label with σ = 50 has almost no weight
        ([(1, 1.0), (4, 0.5)], ((1 + 4 * 4) / 5, 0.2)),
        ([(1, 0.0), (3, 0.0), (9, 1.0)], (2.0, 0.0)),
        ([(1, np.inf), (3, 1.0)], (3.0, 1.0)),
        ([(1, np.inf), (3, np.inf)], (2.0, np.inf)),
        ([(1, np.nan), (3, 2.0)], (3.0, 4.0)),
        ([(1, np.nan), (3, np.nan)], (2.0, np.nan)),
    ],
)
@pytest.mark.parametrize("case", ["named twice", "stored twice"])
def test_labels_of_one_image_are_combined(tmp_path, labels, combined, case):
    same = encoded(disc(5))
    names = ["a.png"] * 3 if case == "named twice" else ["a.png", "b.png", "c.png"]
    files = dict.fromkeys(names[: len(labels)], same) | {"z.png": encoded(disc(8))}
    rows = "".join(f"{n},{y},{err}\n" for n, (y, err) in zip(names, labels, strict=False))
    (tmp_path / "labels.csv").write_text(HEADER + rows + "z.png,7,1\n")
    repeated = "1 image has several labels"
    expected = repeated if case == "named twice" else "same bytes as another file"
    with pytest.warns(UserWarning, match=expected):
        data = read(write_folder(tmp_path / "photos", files), tmp_path / "labels.csv")
    assert data.names == ("a.png", "z.png")
    np.testing.assert_allclose(data.y, [combined[0], 7.0], rtol=1e-4)
    np.testing.assert_allclose(data.variance, [combined[1], 1.0], rtol=1e-4)


def test_equal_files_that_are_not_images_are_left_out(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"left/3.png": b"", "left/5.png": b""})
    with pytest.warns(UserWarning, match="left out 2 of 6 files"):
        data = read(folder, write_table(tmp_path / "labels.csv"))
    assert data.y.tolist() == [2, 3, 4, 5]


def test_warnings_point_to_the_line_of_the_caller(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"left/3.png": b"broken"})
    rows = "".join(f"{name},{y},{err}\n" for name, (y, err) in ROWS.items())
    (tmp_path / "labels.csv").write_text(HEADER + rows + rows)
    with pytest.warns(UserWarning, match="have several labels|left out 1 of 6 files") as warned:
        read(folder, tmp_path / "labels.csv")
    assert len(warned) == 2
    with pytest.warns(UserWarning, match="left out 1 of 6 files") as warned_again:
        read_images(folder, size=24)
    assert {w.filename for w in (*warned, *warned_again)} == {__file__}


def test_without_a_table_the_labels_are_nan(tmp_path):
    data = read_images(write_folder(tmp_path / "photos", PHOTOS), size=24)
    assert len(data) == 6
    assert np.isnan(data.y).all()
    assert data.variance is None
    with pytest.raises(
        ValueError, match="image and target must name columns of the table; got image=None"
    ):
        read_images(tmp_path / "photos", write_table(tmp_path / "labels.csv"))


@pytest.mark.parametrize(
    "write",
    [
        lambda folder, files: write_folder(folder / "photos", files),
        lambda folder, files: write_tar(
            folder / "photos.tgz", {f"photos/{n}": c for n, c in files.items()}
        ),
    ],
)
@pytest.mark.parametrize("prefix", ["", "photos/"])
def test_equivalent_names_of_a_file_are_recognized(tmp_path, write, prefix):
    """Unicode names in either form, with the folder's name before them or without it."""
    files = {"u\u0308ber.png": encoded(disc(4)), "gr\u00fcn.png": encoded(disc(6))}
    rows = {f"{prefix}\u00fcber.png": (1.0, 1.0), f"{prefix}gru\u0308n.png": (2.0, 1.0)}
    data = read(write(tmp_path, files), write_table(tmp_path / "labels.csv", rows))
    assert sorted(data.y) == [1, 2]
    assert data.y[[n.endswith("n.png") for n in data.names].index(True)] == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (HEADER + "left/4.png,1,2\n", FileNotFoundError, r"1 of 1 not found: 'left/4.png'; it has 'left/3.png', "),
        (HEADER + "../3.png,1,2\n", ValueError, "row 1, column 'name' must be .* below the folder"),
        (HEADER + "/etc/3.png,1,2\n", ValueError, "row 1, column 'name' must be .* below the folder"),
        (HEADER + ",1,2\n", ValueError, "row 1, column 'name' must be the name of a file"),
        (HEADER + "left/3.png,1,-2\n", ValueError, "row 1, column 'err' must be non-negative"),
        (HEADER + "left/3.png,old,2\n", ValueError, "row 1, column 'y' must be a number"),
        (HEADER + "left/3.png,,2\n", ValueError, "must have rows with a 'y'; got none"),
        ("file,y,err\nleft/3.png,1,2\n", ValueError, "must have a column 'name'"),
    ],
)  # fmt: skip
def test_invalid_tables_are_rejected(tmp_path, text, error, message):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(error, match=message):
        read(write_folder(tmp_path / "photos", PHOTOS), tmp_path / "labels.csv")


def test_linked_folders_are_not_followed(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    (folder / "linked").symlink_to(folder / "left")
    (tmp_path / "labels.csv").write_text(HEADER + "linked/3.png,1,2\n")
    with pytest.raises(FileNotFoundError, match="1 of 1 not found: 'linked/3.png'"):
        read(folder, tmp_path / "labels.csv")


def test_files_without_a_label_are_not_read_and_do_not_affect_the_cache(tmp_path, monkeypatch):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"stray.bin": b"1"})
    labels = write_table(tmp_path / "labels.csv")
    read_bytes = []
    monkeypatch.setattr(decode.hashlib, "sha256", recording(decode.hashlib.sha256, read_bytes))
    with pytest.warns(UserWarning, match=r"not named in the table \(1 file: "):
        first = read(folder, labels)
    assert b"1" not in read_bytes
    (folder / "stray.bin").write_bytes(b"22")
    monkeypatch.setattr(decode, "_image", None)  # decoding would fail
    with pytest.warns(UserWarning, match=r"not named in the table \(1 file: "):
        assert read(folder, labels).names == first.names


def recording(function, calls):
    def wrapper(content=b""):
        calls.append(bytes(content))
        return function(content)

    return wrapper


def test_names_and_labels_must_be_different_columns(tmp_path):
    with pytest.raises(
        ValueError, match="column 'y' cannot hold both the names of images and labels"
    ):
        read(write_folder(tmp_path / "photos", PHOTOS), write_table(tmp_path / "l.csv"), image="y")


@pytest.mark.slow
def test_a_network_learns_the_size_of_a_disc_from_noisy_labels(tmp_path):
    """Go from files to predictions on unseen images, with noisy labels and error bars."""
    rng = np.random.default_rng(0)
    radius = rng.uniform(4, 11, 96)
    err = rng.choice([0.1, 2.0], 96)
    noisy = radius + err * rng.normal(size=96)
    files = {f"{n:03}.png": encoded(disc(r, shift=n)) for n, r in enumerate(radius)}
    rows = {name: (y, e) for name, y, e in zip(files, noisy, err, strict=True)}
    labels = write_table(tmp_path / "labels.csv", rows)
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
        pred = scaler.label_raw(network(torch.tensor(data.x[split.test])).numpy()[:, 0])
    assert np.mean((pred - radius[split.test]) ** 2) < 0.5 * radius.var()
