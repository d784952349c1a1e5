"""The shipped data."""

import csv
import dataclasses
import hashlib
from datetime import date
from importlib import resources

import numpy as np
import pytest

from biv.datasets import Dataset, load_bike_2011
from biv.datasets.bike import bike_features

SHIPPED = resources.files("biv.datasets") / "data"


def test_shape_and_names():
    data = load_bike_2011()
    assert data.x.shape == (8645, 19) == (len(data), len(data.feature_names))
    assert data.variance is None
    assert data.y.min() == 1
    assert "CC BY" in data.licence
    assert "Fanaee-T" in data.source


def test_features():
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


def test_it_is_the_2011_half_of_the_original(data_dir):
    with (data_dir / "bike" / "hour.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["yr"] == "0"]

    def column(name):
        return np.array([float(row[name]) for row in rows])

    start = date(2011, 1, 1)
    day = np.array([(date.fromisoformat(row["dteday"]) - start).days + 1.0 for row in rows])
    expected = bike_features(
        year=column("yr"),
        day=day,
        hour=column("hr"),
        weekday=column("weekday"),
        holiday=column("holiday"),
        working_day=column("workingday"),
        weather=column("weathersit"),
        temperature=column("temp"),
        felt_temperature=column("atemp"),
        humidity=column("hum"),
        wind=column("windspeed"),
    )
    data = load_bike_2011()
    np.testing.assert_array_equal(data.x, expected)
    np.testing.assert_array_equal(data.y, column("cnt"))


def test_shipped_bytes_are_those_attributed():
    digest = hashlib.sha256((SHIPPED / "bike-2011.csv").read_bytes()).hexdigest()
    assert digest in (SHIPPED / "ATTRIBUTION.md").read_text()


def test_frozen():
    data = load_bike_2011()
    with pytest.raises(ValueError, match="read-only"):
        data.y[0] = 0
    mine = np.ones(3)
    Dataset(np.ones((3, 1)), mine, None, ("a",), "", "")
    mine[0] = 2  # the caller's own array is left alone
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.y = None


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"y": np.ones(2)}, r"y must have shape \(3,\).*found \(2,\)"),
        ({"variance": np.ones((3, 1))}, r"variance must have shape \(3,\); found \(3, 1\)"),
        ({"feature_names": ("a",)}, "feature_names must name the 2 columns of x; found 1"),
    ],
)
def test_inconsistent_data(replaced, message):
    good = {
        "x": np.ones((3, 2)),
        "y": np.ones(3),
        "variance": None,
        "feature_names": ("a", "b"),
        "source": "",
        "licence": "",
    }
    assert len(Dataset(**good)) == 3
    with pytest.raises(ValueError, match=message):
        Dataset(**good | replaced)
