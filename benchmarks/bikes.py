"""Features of Bike Sharing for the benchmarks, with the hour and the day as numbers too."""

import numpy as np

from biv.datasets.bike import DAYS, FEATURE_NAMES


def features(data):
    """Return the features of the data set, followed by the hour and the number of the day."""
    feature = dict(zip(FEATURE_NAMES, data.x.T, strict=True))
    hour = _fraction_of_turn(feature["hour_sin"], feature["hour_cos"]) * 24
    day = _fraction_of_turn(feature["date_sin"], feature["date_cos"]) * DAYS / 2
    day += DAYS / 2 * ((feature["year"] == 1) & (day < DAYS / 2 - 1))  # in the second year
    return np.column_stack([data.x, hour.round(), day.round()])


def _fraction_of_turn(sine, cosine):
    """Return an angle as a fraction of a full turn, in [0, 1)."""
    return np.arctan2(sine, cosine) / (2 * np.pi) % (1 - 1e-9)
