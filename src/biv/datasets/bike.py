"""Bike Sharing: the number of bicycles rented in an hour, from the time and the weather."""

from __future__ import annotations

import csv
from importlib import resources

import numpy as np
import numpy.typing as npt

from biv.datasets.dataset import Dataset

DAYS = 731  # 2011 and 2012 together; the date's angle runs twice around over them
WEATHER = {"clear": 1, "cloudy/misty": 2, "light rain/snow": 3, "heavy rain/snow": 4}
FEATURE_NAMES = (
    "year",
    "date_sin",
    "date_cos",
    "hour_sin",
    "hour_cos",
    *(f"weekday_{day}" for day in ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
    "holiday",
    "working_day",
    "weather",
    "temperature",
    "felt_temperature",
    "humidity",
    "wind",
)
SOURCE = (
    "UCI Machine Learning Repository, Bike Sharing (doi:10.24432/C5W894); Fanaee-T and Gama, "
    "Event labeling combining ensemble detectors and background knowledge, 2013"
)
LICENCE = "CC BY 4.0"

Column = npt.NDArray[np.float64]


def load_bike_2011() -> Dataset:
    """The 2011 half of Bike Sharing, shipped with the package: 8,645 hours, 19 features.

    Labels are clean: add noise with :mod:`biv.noise`. The year is constant.

    Example:
        >>> data = load_bike_2011()
        >>> data.x.shape, float(data.y.max())
        ((8645, 19), 651.0)
    """
    table = resources.files("biv.datasets") / "data" / "bike-2011.csv"
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))

    def column(name: str) -> Column:
        return np.array([float(row[name]) for row in rows])

    features = bike_features(
        year=np.zeros(len(rows)),
        day=column("day"),
        hour=column("hr"),
        weekday=column("weekday"),
        holiday=column("holiday"),
        working_day=column("workingday"),
        weather=np.array([float(WEATHER[row["weathersit"]]) for row in rows]),
        temperature=column("temp"),
        felt_temperature=column("atemp"),
        humidity=column("hum"),
        wind=column("windspeed"),
    )
    return Dataset(features, column("bikers"), None, FEATURE_NAMES, SOURCE, LICENCE)


def bike_features(
    *, year: Column, day: Column, hour: Column, weekday: Column, **as_they_are: Column
) -> Column:
    """The paper's 19 features, (N, 19): dates and hours as angles, weekdays one-hot.

    Args:
        year: 0 for 2011, 1 for 2012.
        day: 1 on 1 January 2011 and counting on.
        hour: 0 to 23.
        weekday: 0, Sunday, to 6.
        as_they_are: The remaining columns, in the order of `FEATURE_NAMES`.
    """
    date_angle = 4 * np.pi * (day - 1) / DAYS
    hour_angle = 2 * np.pi * hour / 24
    one_hot = [(weekday == day).astype(np.float64) for day in range(7)]
    return np.column_stack(
        [
            year,
            np.sin(date_angle),
            np.cos(date_angle),
            np.sin(hour_angle),
            np.cos(hour_angle),
            *one_hot,
            *as_they_are.values(),
        ]
    )
