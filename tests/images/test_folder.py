"""Any folder of images with a table of names, labels and error bars."""

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
    monkeypatch.setattr(decode, "_image", None)  # decoding would fail
    doubled = {name: (2 * y, err) for name, (y, err) in ROWS.items()}
    after = read(folder, table(folder / "labels.csv", doubled))
    assert np.array_equal(after.y, 2 * before.y)


def test_files_that_the_table_does_not_name_are_reported(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    assert len(read(folder, table(tmp_path / "labels.csv"))) == 6
    some = dict(list(ROWS.items())[:4])
    with pytest.warns(
        UserWarning, match=r"2 of 6 files .*: 2 not named in the table \('right/5.png'\)"
    ):
        data = read(folder, table(tmp_path / "labels.csv", some))
    assert len(data) == 4


def test_images_that_cannot_be_read_are_reported_with_their_labels(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"left/3.png": b"broken"})
    with pytest.warns(UserWarning, match=r"1 of 6 files .*: 1 not an image \('left/3.png'\)"):
        data = read(folder, table(tmp_path / "labels.csv"))
    assert data.y.tolist() == [1, 2, 3, 4, 5]


def test_images_without_a_label_are_left_out_and_said(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS)
    rows = ROWS | {"left/3.png": (np.nan, 0.1), "gone.png": (np.nan, 0.1)}
    with pytest.warns(UserWarning, match=r"1 of 6 files .*: 1 without a label in the table"):
        data = read(folder, table(tmp_path / "labels.csv", rows))
    assert len(data) == 5


@pytest.mark.parametrize(
    ("labels", "combined"),
    [
        ([(10, 50.0), (20, 0.1), (21, 0.1)], (20.5, 0.005)),  # by inverse variance, nearly
        ([(1, 1.0), (4, 0.5)], ((1 + 4 * 4) / 5, 0.2)),
        ([(1, 0.0), (3, 0.0), (9, 1.0)], (2.0, 0.0)),
        ([(1, np.inf), (3, 1.0)], (3.0, 1.0)),
        ([(1, np.inf), (3, np.inf)], (2.0, np.inf)),
        ([(1, np.nan), (3, 2.0)], (3.0, 4.0)),
        ([(1, np.nan), (3, np.nan)], (2.0, np.nan)),
    ],
)
@pytest.mark.parametrize("way", ["named twice", "there twice"])
def test_labels_of_one_image_are_combined(tmp_path, labels, combined, way):
    same = encoded(disc(5))
    names = ["a.png"] * 3 if way == "named twice" else ["a.png", "b.png", "c.png"]
    files = dict.fromkeys(names[: len(labels)], same) | {"z.png": encoded(disc(8))}
    rows = "".join(f"{n},{y},{err}\n" for n, (y, err) in zip(names, labels, strict=False))
    (tmp_path / "labels.csv").write_text(HEADER + rows + "z.png,7,1\n")
    said = "1 images have several labels" if way == "named twice" else "with the bytes of another"
    with pytest.warns(UserWarning, match=said):
        data = read(write_folder(tmp_path / "photos", files), tmp_path / "labels.csv")
    assert data.names == ("a.png", "z.png")
    np.testing.assert_allclose(data.y, [combined[0], 7.0], rtol=1e-4)
    np.testing.assert_allclose(data.variance, [combined[1], 1.0], rtol=1e-4)


def test_what_is_no_image_twice_is_none(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"left/3.png": b"", "left/5.png": b""})
    with pytest.warns(UserWarning, match="2 of 6 files"):
        data = read(folder, table(tmp_path / "labels.csv"))
    assert data.y.tolist() == [2, 3, 4, 5]


def test_warnings_name_the_line_that_reads(tmp_path):
    folder = write_folder(tmp_path / "photos", PHOTOS | {"left/3.png": b"broken"})
    rows = "".join(f"{name},{y},{err}\n" for name, (y, err) in ROWS.items())
    (tmp_path / "labels.csv").write_text(HEADER + rows + rows)
    with pytest.warns(UserWarning, match="have several labels|1 of 6 files") as said:
        read(folder, tmp_path / "labels.csv")
    assert len(said) == 2
    with pytest.warns(UserWarning, match="1 of 6 files") as of_images:
        read_images(folder, size=24)
    assert {w.filename for w in (*said, *of_images)} == {__file__}


def test_without_a_table_images_have_no_labels(tmp_path):
    data = read_images(write_folder(tmp_path / "photos", PHOTOS), size=24)
    assert len(data) == 6
    assert np.isnan(data.y).all()
    assert data.variance is None
    with pytest.raises(ValueError, match="image and target must name the columns"):
        read_images(tmp_path / "photos", table(tmp_path / "labels.csv"))


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
def test_names_that_mean_the_same(tmp_path, write, prefix):
    """Unicode in either form, and the folder's own name before them or not."""
    files = {"u\u0308ber.png": encoded(disc(4)), "gr\u00fcn.png": encoded(disc(6))}
    rows = {f"{prefix}\u00fcber.png": (1.0, 1.0), f"{prefix}gru\u0308n.png": (2.0, 1.0)}
    data = read(write(tmp_path, files), table(tmp_path / "labels.csv", rows))
    assert sorted(data.y) == [1, 2]
    assert data.y[[n.endswith("n.png") for n in data.names].index(True)] == 2


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (HEADER + "left/4.png,1,2\n", FileNotFoundError, r"1 of 1 images .* 'left/4.png'; it has 'left/3.png', "),
        (HEADER + "../3.png,1,2\n", ValueError, "row 1, column 'name' must be .* below the folder"),
        (HEADER + "/etc/3.png,1,2\n", ValueError, "row 1, column 'name' must be .* below the folder"),
        (HEADER + ",1,2\n", ValueError, "row 1, column 'name' must be the name of a file"),
        (HEADER + "left/3.png,1,-2\n", ValueError, "row 1, column 'err' must be non-negative"),
        (HEADER + "left/3.png,old,2\n", ValueError, "row 1, column 'y' must be a number"),
        (HEADER + "left/3.png,,2\n", ValueError, "must have rows with a 'y'; got none"),
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
    monkeypatch.setattr(decode.hashlib, "sha256", watched(decode.hashlib.sha256, read_bytes))
    with pytest.warns(UserWarning, match="1 not named in the table"):
        first = read(folder, labels)
    assert b"1" not in read_bytes
    (folder / "stray.bin").write_bytes(b"22")
    monkeypatch.setattr(decode, "_image", None)  # decoding would fail
    with pytest.warns(UserWarning, match="1 not named in the table"):
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
