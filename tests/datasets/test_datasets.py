"""The data sets that are included in the package, and the frozen Dataset."""

import dataclasses
import hashlib
from datetime import date
from importlib import resources

import numpy as np
import pytest

from biv.datasets import Dataset, load_amyloid, load_bike, load_bike_2011

FOLDER = resources.files("biv.datasets") / "data"


def test_bike_2011_has_the_documented_shape_and_source():
    data = load_bike_2011()
    assert data.x.shape == (8645, 19) == (len(data), len(data.feature_names))
    assert data.variance is None
    assert data.y.min() == 1
    assert "CC BY" in data.licence
    assert "Fanaee-T" in data.source


def test_bike_2011_has_the_features_of_the_paper():
    data = load_bike_2011()
    column = dict(zip(data.feature_names, data.x.T, strict=True))
    assert not column["year"].any()
    for angle in ("date", "hour"):
        np.testing.assert_allclose(column[f"{angle}_sin"] ** 2 + column[f"{angle}_cos"] ** 2, 1)
    weekdays = data.x[:, 5:12]
    np.testing.assert_array_equal(weekdays.sum(1), 1)
    assert column["weekday_sat"][0] == 1  # 1 January 2011
    assert set(column["weather"]) == {1, 2, 3, 4}
    assert column["date_cos"][0] == 1
    first_of_july = (date(2011, 7, 1) - date(2011, 1, 1)).days
    assert np.isclose(column["date_cos"], np.cos(4 * np.pi * first_of_july / 731)).sum() == 24
    assert column["hour_sin"][6] == pytest.approx(1)


def test_the_whole_bike_data_contains_the_2011_half(data_dir):
    assert (data_dir / "bike" / "hour.csv").exists()
    whole, half = load_bike(), load_bike_2011()
    assert whole.x.shape == (17_379, 19)
    assert whole.feature_names == half.feature_names
    of_2011 = whole.x[:, 0] == 0
    np.testing.assert_array_equal(whole.x[of_2011], half.x)
    np.testing.assert_array_equal(whole.y[of_2011], half.y)
    # The angle makes two turns in 731 days, so that the same day of the next year is close.
    column = dict(zip(whole.feature_names, whole.x.T, strict=True))
    last = np.arctan2(column["date_sin"][-1], column["date_cos"][-1]) % (2 * np.pi)
    assert last == pytest.approx(4 * np.pi * 730 / 731 - 2 * np.pi)


def test_amyloid_has_real_error_bars():
    data = load_amyloid()
    assert data.x.shape == (16_066, 42 * 21) == (len(data), len(data.feature_names))
    np.testing.assert_array_equal(data.x.sum(1), 42)
    assert data.variance.min() > 0
    assert data.variance.std() > 0
    # The first two rows of the file, copied by hand.
    assert data.y[0] == -0.11735164865782
    assert data.variance[0] == 0.387032689617072**2
    assert data.x[0, data.feature_names.index("1K")] == 1
    assert data.x[1, data.feature_names.index("1N")] == 1
    wild_type = "DAEFRHDSGYEVHHQKLVFFAEDVGSNKGAIIGLMVGGVVIA"
    columns = [data.feature_names.index(f"{i}{a}") for i, a in enumerate(wild_type, start=1)]
    mutations = 42 - data.x[:, columns].sum(1)
    assert set(mutations) == {1, 2}
    assert (mutations == 1).sum() == 499


def test_included_files_have_the_attributed_checksums():
    attribution = (FOLDER / "ATTRIBUTION.md").read_text(encoding="utf-8")
    for name in ("bike-2011.csv", "amyloid.csv.gz"):
        digest = hashlib.sha256((FOLDER / name).read_bytes()).hexdigest()
        assert f"## {name}" in attribution
        assert digest in attribution


def test_a_dataset_is_frozen():
    data = load_bike_2011()
    with pytest.raises(ValueError, match="read-only"):
        data.y[0] = 0
    y = np.ones(3)
    Dataset(np.ones((3, 1)), y, None, ("a",), "", "")
    y[0] = 2  # the caller's array stays writable
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.y = None


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"y": np.ones(2)}, r"y must have shape \(3,\).*got \(2,\)"),
        ({"variance": np.ones((3, 1))}, r"variance must have shape \(3,\); got \(3, 1\)"),
        ({"feature_names": ("a",)}, "feature_names must name the 2 columns of x; got 1"),
    ],
)
def test_inconsistent_arguments_are_rejected(replaced, message):
    valid = {
        "x": np.ones((3, 2)),
        "y": np.ones(3),
        "variance": None,
        "feature_names": ("a", "b"),
        "source": "",
        "licence": "",
    }
    assert len(Dataset(**valid)) == 3
    with pytest.raises(ValueError, match=message):
        Dataset(**valid | replaced)
