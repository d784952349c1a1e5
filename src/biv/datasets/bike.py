"""Bike Sharing: the number of bicycles rented in an hour, from the time and the weather."""

from __future__ import annotations

from datetime import date
from importlib import resources

import numpy as np
import numpy.typing as npt

from biv.datasets.download import CsvTable, RemoteFile, find
from biv.tables.dataset import Dataset

DAYS = 731  # 2011 and 2012; NOTE[DIFF] 12: the date's angle runs twice around over all of them
FIRST_DAY = date(2011, 1, 1).toordinal()
WEATHER = {"clear": 1.0, "cloudy/misty": 2.0, "light rain/snow": 3.0, "heavy rain/snow": 4.0}
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
WHOLE = RemoteFile(
    path="bike/hour.csv",
    url="https://archive.ics.uci.edu/static/public/275/bike+sharing+dataset.zip",
    member="hour.csv",
    sha256="e03de4ee4ef4dc376ac6e04bf829673c6269e8eba5c60fa121640fa2f829504f",
)

Column = npt.NDArray[np.float64]


def load_bike() -> Dataset:
    """Bike Sharing, whole: 17,379 hours of 2011 and 2012, 19 features; labels are clean.

    Read from ``BIV_DATA_DIR/bike/hour.csv`` if it is there, else from the user's cache, else
    downloaded once from UCI into that cache, and checked against its SHA-256 in every case.

    Raises:
        FileNotFoundError: It is not on hand and cannot be downloaded; the message says what to do.
        ValueError: The file found is not the one that was meant.
    """
    path = find(WHOLE)
    table = CsvTable(str(path), path.read_text(encoding="utf-8").splitlines())

    def day(cell: str) -> float:
        return date.fromisoformat(cell).toordinal() - FIRST_DAY + 1.0

    return _dataset(
        table,
        label="cnt",
        year=table.numbers("yr"),
        day=table.numbers("dteday", day),
        weather=table.numbers("weathersit"),
    )


def load_bike_2011() -> Dataset:
    """The 2011 half of Bike Sharing, shipped with the package: 8,645 hours, 19 features.

    Labels are clean: add noise with :mod:`biv.noise`. The year is constant.

    Example:
        >>> data = load_bike_2011()
        >>> data.x.shape, float(data.y.max())
        ((8645, 19), 651.0)
    """
    shipped = resources.files("biv.datasets") / "data" / "bike-2011.csv"
    table = CsvTable(shipped.name, shipped.read_text(encoding="utf-8").splitlines())
    return _dataset(
        table,
        label="bikers",
        year=np.zeros(len(table)),
        day=table.numbers("day"),
        weather=table.numbers("weathersit", WEATHER.__getitem__),
    )


def _dataset(table: CsvTable, *, label: str, year: Column, day: Column, weather: Column) -> Dataset:
    """What the two files have in common."""
    features = _features(
        year=year,
        day=day,
        hour=table.numbers("hr"),
        weekday=table.numbers("weekday"),
        holiday=table.numbers("holiday"),
        working_day=table.numbers("workingday"),
        weather=weather,
        temperature=table.numbers("temp"),
        felt_temperature=table.numbers("atemp"),
        humidity=table.numbers("hum"),
        wind=table.numbers("windspeed"),
    )
    return Dataset(features, table.numbers(label), None, FEATURE_NAMES, SOURCE, LICENCE)


def _features(
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
