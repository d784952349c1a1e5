"""Bike Sharing data: the number of bicycles rented in an hour, from the time and the weather."""

from __future__ import annotations

from datetime import date
from importlib import resources

import numpy as np
import numpy.typing as npt

from biv.datasets.download import CsvTable, RemoteFile, find_file
from biv.tables.dataset import Dataset

DAYS = 731  # days of 2011 and 2012; NOTE[DIFF] 12: the date's angle makes two turns in them
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
    """Load the whole Bike Sharing data: 17,379 hours of 2011 and 2012, with clean labels.

    The file is read from ``BIV_DATA_DIR/bike/hour.csv`` if that exists, otherwise from the user's
    cache. If it is in neither, it is downloaded once from UCI into the cache. Its SHA-256 is
    checked in every case. Add noise with :mod:`biv.noise`.

    Returns
    -------
    Dataset
        `x` has shape (17379, 19): year, date and hour as angles, weekday, holiday, and weather. `y`
        has shape (17379,): bicycles rented per hour. `variance` is None.

    Raises
    ------
    FileNotFoundError
        The file is not available and cannot be downloaded. The message explains what to do.
    ValueError
        The file has another SHA-256.

    Examples
    --------
    >>> import biv
    >>> data = biv.datasets.load_bike()  # doctest: +SKIP
    >>> data.x.shape, data.y.max()  # doctest: +SKIP
    ((17379, 19), 977.0)
    """
    path = find_file(WHOLE)
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
    """Load the 2011 half of the Bike Sharing data, which is included in the package.

    The labels are clean. Add noise with :mod:`biv.noise`.

    Returns
    -------
    Dataset
        `x` has shape (8645, 19), with the columns of :func:`load_bike`; the year is constant. `y`
        has shape (8645,): bicycles rented per hour. `variance` is None.

    Examples
    --------
    >>> import biv
    >>> data = biv.datasets.load_bike_2011()
    >>> data.x.shape, float(data.y.max())
    ((8645, 19), 651.0)
    """
    file = resources.files("biv.datasets") / "data" / "bike-2011.csv"
    table = CsvTable(file.name, file.read_text(encoding="utf-8").splitlines())
    return _dataset(
        table,
        label="bikers",
        year=np.zeros(len(table)),
        day=table.numbers("day"),
        weather=table.numbers("weathersit", WEATHER.__getitem__),
    )


def _dataset(table: CsvTable, *, label: str, year: Column, day: Column, weather: Column) -> Dataset:
    """Return the data set from the columns that both files have, and those that differ."""
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
    *, year: Column, day: Column, hour: Column, weekday: Column, **unchanged: Column
) -> Column:
    """Return the paper's features, (N, 19), with dates and hours as angles and weekdays one-hot.

    Parameters
    ----------
    year : ndarray
        0 for 2011, 1 for 2012.
    day : ndarray
        Number of the day; 1 January 2011 is 1.
    hour : ndarray
        0 to 23.
    weekday : ndarray
        0 (Sunday) to 6.
    **unchanged : ndarray
        The other columns, in the order of `FEATURE_NAMES`.
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
            *unchanged.values(),
        ]
    )
