"""Bike Sharing as benchmarks of tables have it: the hour and the day as numbers as well."""

import numpy as np

from biv.datasets.bike import DAYS, FEATURE_NAMES


def features(data):
    """The data set's own, then the hour and the number of the day."""
    feature = dict(zip(FEATURE_NAMES, data.x.T, strict=True))
    hour = _turn(feature["hour_sin"], feature["hour_cos"]) * 24
    day = _turn(feature["date_sin"], feature["date_cos"]) * DAYS / 2
    day += DAYS / 2 * ((feature["year"] == 1) & (day < DAYS / 2 - 1))  # the second turn
    return np.column_stack([data.x, hour.round(), day.round()])


def _turn(sine, cosine):
    """The share of a whole turn, in [0, 1)."""
    return np.arctan2(sine, cosine) / (2 * np.pi) % (1 - 1e-9)
