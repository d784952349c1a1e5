"""BIV weights for other libraries' models, which accept `sample_weight`."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

import biv


def lightgbm():
    module = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    return module.LGBMRegressor(n_estimators=100, n_jobs=1, verbose=-1)


def xgboost():
    module = pytest.importorskip("xgboost", reason="XGBoost is not installed")
    return module.XGBRegressor(n_estimators=100, max_depth=4, n_jobs=1)


MODELS = {
    "HistGradientBoosting": HistGradientBoostingRegressor,
    "RandomForest": lambda: RandomForestRegressor(n_estimators=40, random_state=0),
    "LightGBM": lightgbm,
    "XGBoost": xgboost,
}


def biv_weights(y, y_var):
    """Return the weights as the README computes them."""
    weights = biv.inverse_variance_weights(y_var, 0.05 * biv.metrics.label_variance(y, y_var))
    return weights / weights.mean()


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("unit", [1.0, 1e4])
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_weights_lower_the_error_of_other_models(make, unit):
    """The weights have no unit, so that the unit of the labels does not matter."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 3))
    truth = x[:, 0] + np.sin(2 * x[:, 1])
    y_var = np.where(rng.random(3000) < 0.3, 0.02, 9.0)
    y, y_var = unit * biv.noise.corrupt(truth, y_var, rng), unit**2 * y_var
    half = slice(0, 2000)
    errors = [
        np.mean(
            (
                make().fit(x[half], y[half], sample_weight=weights).predict(x[2000:]) / unit
                - truth[2000:]
            )
            ** 2
        )
        for weights in (None, biv_weights(y[half], y_var[half]))
    ]
    assert errors[1] < 0.5 * errors[0]
