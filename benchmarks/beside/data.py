"""Draws of the shipped data, and how good a fit to one of them is."""

import time
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.datasets import make_friedman1

import bikes
import biv

ALPHAS, NOISE = (1.0, 0.25), 0.608  # the mean of σ², over the label variance: the paper's
TRAIN, TEST = 5_500, 2_200
AMYLOID, SMOOTH, SMALL = "amyloid", "smooth", "smooth and small"
DATA = (*map(str, ALPHAS), AMYLOID)
DATA_FEW = (*DATA, SMOOTH, SMALL)
EPSILON = 0.05  # relative to the label variance, for every loss and weight but BIVRegressor's
FEW, FEWER = 1_000, 200  # rows; a GP's hyperparameters are learned from so few
LEVELS = {"68%": 0.99446, "95%": 1.95996}  # how many standard deviations hold so much


class Rows(NamedTuple):
    """Features, labels and their variances; None if the labels are clean."""

    x: np.ndarray
    y: np.ndarray
    variance: np.ndarray | None


class Draw(NamedTuple):
    """Rows to learn from, rows to be judged on, and the label variance that errors are over."""

    train: Rows
    test: Rows
    scale: float


def bike(alpha, seed):
    """The shipped year, noise on the training labels; the hour and the day as numbers as well."""
    data = biv.datasets.load_bike_2011()
    x = bikes.features(data)
    x = biv.preprocessing.FeatureScaler.fit(x)(x)
    split = biv.datasets.split_rows(
        len(data), train=TRAIN, test=TEST, generator=np.random.default_rng([seed, 0])
    )
    rng = np.random.default_rng([seed, 1])
    scale = data.y.var(ddof=1)
    variance = biv.noise.Gamma(alpha, NOISE * scale).sample(TRAIN, rng)
    y = biv.noise.corrupt(data.y[split.train], variance, rng)
    return Draw(
        Rows(x[split.train], y, variance), Rows(x[split.test], data.y[split.test], None), scale
    )


def amyloid(seed):
    """Sequences one-hot, 0 and 1 as they are; real error bars, in the test rows too."""
    data = biv.datasets.load_amyloid()
    order = np.random.default_rng(seed).permutation(len(data))
    test, train, _ = (
        Rows(data.x[rows], data.y[rows], data.variance[rows])
        for rows in np.split(order, [len(data) // 5, len(data) // 5 + TRAIN])
    )
    return Draw(train, test, biv.metrics.label_variance(data.y, data.variance))


def smooth(seed, rows):
    """Friedman's function of five of ten features, which suits a GP; noise as on Bike, α = 1."""
    x, y = make_friedman1(rows + TEST, n_features=10, noise=0.0, random_state=seed)
    scale = y.var(ddof=1)
    rng = np.random.default_rng([seed, 1])
    variance = biv.noise.Gamma(1.0, NOISE * scale).sample(rows, rng)
    x = biv.preprocessing.FeatureScaler.fit(x)(x)
    train = Rows(x[:rows], biv.noise.corrupt(y[:rows], variance, rng), variance)
    return Draw(train, Rows(x[rows:], y[rows:], None), scale)


def draw(name, seed, most=None):
    """The rows of one data set under one seed; at most so many to learn from."""
    made = {
        AMYLOID: amyloid,
        SMOOTH: partial(smooth, rows=FEW),
        SMALL: partial(smooth, rows=FEWER),
    }
    whole = made[name](seed) if name in made else bike(float(name), seed)
    return whole if most is None else whole._replace(train=first(whole.train, most))


def first(rows, count):
    """Some of the rows, which are in random order."""
    return Rows(*(column[:count] for column in rows))


def judged(test, scale, predicted, std=None):
    """Errors to the true labels over the label variance, and how often intervals hold them.

    Where test labels are noisy, the noise is taken out of the errors, with weights that are the
    same for every method or with none, and their own noise is added to the intervals.
    """
    _, y, variance = test
    if variance is None:
        found = {"error": float(np.mean((predicted - y) ** 2)) / scale}
    else:
        score = biv.metrics.noise_corrected_mse
        weighted = score(predicted, y, variance, epsilon=EPSILON * scale)
        alike = score(predicted, y, variance, weighted=False)
        found = {"error": weighted.value / scale, "alike": alike.value / scale}
    if std is not None:
        spread = std if variance is None else np.sqrt(std**2 + variance)
        off = np.abs(predicted - y) / spread
        found |= {level: float(np.mean(off < width)) for level, width in LEVELS.items()}
    return found


class Unit(NamedTuple):
    """Training labels in units in which they have mean 0 and variance 1 without their noise."""

    scaler: biv.preprocessing.LabelScaler
    y: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, rows):
        """Statistics of these rows alone."""
        scaler = biv.preprocessing.LabelScaler.fit(rows.y, rows.variance)
        return cls(scaler, scaler.label(rows.y), scaler.variance(rows.variance))

    def weights(self):
        """1/(σ²+ε), of mean 1 as sample_weight expects it."""
        weight = biv.inverse_variance_weights(self.variance, EPSILON)
        return weight / weight.mean()

    def raw(self, predicted, std=None):
        """Predictions in the labels' own units."""
        predicted = self.scaler.label_raw(np.asarray(predicted, dtype=np.float64))
        return (predicted,) if std is None else (predicted, self.scaler.std * np.asarray(std))


def clock(fit, drawn, **more):
    """Fit, and say how long that took and how good it is.

    `fit` is given the training rows and returns a function that predicts.
    """
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of convergence, and of names of columns
        predict = fit(drawn.train)
        seconds = time.perf_counter() - start
        return judged(drawn.test, drawn.scale, *predict(drawn.test.x)) | {"seconds": seconds} | more
