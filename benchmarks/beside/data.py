"""Draws of the included data, and scores of fits to them."""

import time
import warnings
from functools import partial
from typing import NamedTuple

import numpy as np
from sklearn.datasets import make_friedman1

import bikes
import biv

ALPHAS, NOISE = (1.0, 0.25), 0.608  # the paper's mean of σ², in units of the label variance
TRAIN, TEST = 5_500, 2_200
AMYLOID, SMOOTH, SMALL = "amyloid", "smooth", "smooth and small"
DATA = (*map(str, ALPHAS), AMYLOID)
DATA_FEW = (*DATA, SMOOTH, SMALL)
EPSILON = 0.05  # relative to the label variance; for all losses and weights except BIVRegressor's
FEW, FEWER = 1_000, 200  # rows; the hyperparameters of GPs are learned from FEW
LEVELS = {"68%": 0.99446, "95%": 1.95996}  # half widths of intervals in standard deviations


class Rows(NamedTuple):
    """Features, labels and their variances; None if the labels are clean."""

    x: np.ndarray
    y: np.ndarray
    variance: np.ndarray | None


class Draw(NamedTuple):
    """Training rows, test rows, and the label variance that errors are divided by."""

    train: Rows
    test: Rows
    scale: float


def bike(alpha, seed):
    """Return a draw of the included year of Bike Sharing, with noise on the training labels."""
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
    """Return a draw of amyloid: one-hot sequences, and real error bars also on the test rows."""
    data = biv.datasets.load_amyloid()
    order = np.random.default_rng(seed).permutation(len(data))
    test, train, _ = (
        Rows(data.x[rows], data.y[rows], data.variance[rows])
        for rows in np.split(order, [len(data) // 5, len(data) // 5 + TRAIN])
    )
    return Draw(train, test, biv.metrics.label_variance(data.y, data.variance))


def smooth(seed, rows):
    """Return a draw of Friedman's smooth function of ten features, with the noise of α = 1."""
    x, y = make_friedman1(rows + TEST, n_features=10, noise=0.0, random_state=seed)
    scale = y.var(ddof=1)
    rng = np.random.default_rng([seed, 1])
    variance = biv.noise.Gamma(1.0, NOISE * scale).sample(rows, rng)
    x = biv.preprocessing.FeatureScaler.fit(x)(x)
    train = Rows(x[:rows], biv.noise.corrupt(y[:rows], variance, rng), variance)
    return Draw(train, Rows(x[rows:], y[rows:], None), scale)


def draw(name, seed, most=None):
    """Return a draw of a data set by its name; `most` limits the number of training rows."""
    makers = {
        AMYLOID: amyloid,
        SMOOTH: partial(smooth, rows=FEW),
        SMALL: partial(smooth, rows=FEWER),
    }
    whole = makers[name](seed) if name in makers else bike(float(name), seed)
    return whole if most is None else whole._replace(train=first(whole.train, most))


def first(rows, count):
    """Return the first rows, which are in random order."""
    return Rows(*(column[:count] for column in rows))


def scores(test, scale, predicted, std=None):
    """Return errors to the true labels in units of the label variance, and interval coverages.

    If test labels are noisy, the errors are noise-corrected, with weights that are the same for
    every method and without weights, and the intervals are those of a noisy label.
    """
    _, y, variance = test
    if variance is None:
        result = {"error": float(np.mean((predicted - y) ** 2)) / scale}
    else:
        score = biv.metrics.noise_corrected_mse
        weighted = score(predicted, y, variance, epsilon=EPSILON * scale)
        alike = score(predicted, y, variance, weighted=False)
        result = {"error": weighted.value / scale, "alike": alike.value / scale}
    if std is not None:
        spread = std if variance is None else np.sqrt(std**2 + variance)
        deviation = np.abs(predicted - y) / spread
        result |= {level: float(np.mean(deviation < width)) for level, width in LEVELS.items()}
    return result


class ScaledLabels(NamedTuple):
    """Training labels scaled so that, without their noise, they have mean 0 and variance 1."""

    scaler: biv.preprocessing.LabelScaler
    y: np.ndarray
    variance: np.ndarray

    @classmethod
    def fit(cls, rows):
        """Scale the labels of training rows by their own statistics."""
        scaler = biv.preprocessing.LabelScaler.fit(rows.y, rows.variance)
        return cls(scaler, scaler.label(rows.y), scaler.variance(rows.variance))

    def weights(self):
        """Return the weights 1/(σ²+ε), scaled to a mean of 1 for use as sample_weight."""
        weight = biv.inverse_variance_weights(self.variance, EPSILON)
        return weight / weight.mean()

    def raw(self, predicted, std=None):
        """Return predictions in the original units of the labels."""
        predicted = self.scaler.label_raw(np.asarray(predicted, dtype=np.float64))
        return (predicted,) if std is None else (predicted, self.scaler.std * np.asarray(std))


def timed_scores(fit, drawn):
    """Return the scores of a fit and the seconds it took.

    `fit` takes training rows and returns a function that predicts.
    """
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of convergence and of column names
        predict = fit(drawn.train)
        seconds = time.perf_counter() - start
        return scores(drawn.test, drawn.scale, *predict(drawn.test.x)) | {"seconds": seconds}
