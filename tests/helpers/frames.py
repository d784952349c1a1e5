"""Tables with error bars for training, and the error of a model trained on them."""

import numpy as np
import pandas as pd

SMALL = {"members": 4, "folds": 4, "max_epochs": 30, "random_state": 0}


def table(rows=600, seed=0):
    """Return features, labels, error bars and true labels; half of the labels are very noisy."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3))
    truth = 100 + 20 * (x[:, 0] + np.sin(2 * x[:, 1]))
    std = np.where(rng.random(rows) < 0.5, 1.0, 60.0)
    return x, truth + std * rng.normal(size=rows), std, truth


def error(model, seed=9):
    x, _, _, truth = table(2000, seed)
    return float(np.mean((model.predict(x) - truth) ** 2))


def frame(rows=400, seed=0):
    """Return a table of two numbers, a boolean and two categories, some with missing cells."""
    x, y, std, truth = table(rows, seed)
    rng = np.random.default_rng(seed + 50)
    town, wet = rng.choice(["Bern", "Genève", "Zürich"], rows), rng.random(rows) < 0.5
    shift = 15.0 * (town == "Bern") - 10.0 * wet
    features = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "wet": wet, "town": town})
    features.loc[::7, "a"] = np.nan
    features["kind"] = pd.Categorical(np.where(rng.random(rows) < 0.9, "one", None))
    return features, y + shift, std, truth + shift
