"""Tools as people use them: BIVRegressor, scikit-learn, LightGBM; all of them on few rows."""

from importlib import util

import numpy as np
import sklearn
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.linear_model import Ridge
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPRegressor

import biv
from beside.data import EPSILON, FEW, Unit, clock, draw
from beside.formulas import BATCH
from beside.gaussian import GP_FEW, GP_STEPS, exact_gp
from beside.losses import WIDTHS

SIZES = range(20, 601, 20)  # of LightGBM, as in quality.py


def ours(seed, **settings):
    """BIVRegressor, which scales and chooses by itself."""

    def fit(rows):
        model = biv.BIVRegressor(random_state=seed, **settings)
        model.fit(rows.x, rows.y, y_var=rows.variance)
        return lambda x: model.predict(x, return_std=True)

    return fit


def estimator(model, *, weighted):
    """Whatever takes sample_weight, on labels of unit variance."""

    def fit(rows):
        unit = Unit.of(rows)
        model.fit(rows.x, unit.y, sample_weight=unit.weights() if weighted else None)
        return lambda x: unit.raw(model.predict(x))

    return fit


def regressors(name, seed, quick):
    """BIVRegressor with three losses."""
    drawn, short = draw(name, seed, 500 if quick else None), {"max_epochs": 2} if quick else {}
    return {
        "**BIVRegressor()**": clock(ours(seed, **short), drawn),
        "BIVRegressor(loss='l2')": clock(ours(seed, loss="l2", **short), drawn),
        "BIVRegressor(loss='iv')": clock(ours(seed, loss="iv", **short), drawn),
    }


def paper_network(seed):
    """scikit-learn's, of the paper's widths, stopped by the weighted R² of held-out labels."""
    return MLPRegressor(
        hidden_layer_sizes=WIDTHS, batch_size=BATCH, early_stopping=True, random_state=seed
    )


def scikit_learn(name, seed, quick):
    """What takes sample_weight there."""
    drawn, found = draw(name, seed, 500 if quick else None), {}
    for model, label in (
        (Ridge(), "Ridge()"),
        (HistGradientBoostingRegressor(random_state=seed), "HistGradientBoostingRegressor()"),
        (paper_network(seed), "MLPRegressor, 100-50-20-10, early_stopping"),
    ):
        for weighted, words in ((False, "no weights"), (True, "weights 1/(σ²+ε)")):
            fit = estimator(sklearn.base.clone(model), weighted=weighted)
            found[f"{label}, {words}"] = clock(fit, drawn)
    return found


def chosen_trees(seed):
    """600 trees of LightGBM at a rate of 0.05, cut where noisy labels of three folds are best."""
    import lightgbm

    def fit(rows):
        unit = Unit.of(rows)
        weight, held_out = unit.weights(), np.zeros(len(SIZES))

        def grown(part):
            model = lightgbm.LGBMRegressor(
                n_estimators=max(SIZES), learning_rate=0.05, n_jobs=1, verbose=-1
            )
            return model.fit(rows.x[part], unit.y[part], sample_weight=weight[part])

        for part, others in KFold(3, shuffle=True, random_state=seed).split(rows.x):
            model = grown(part)
            for k, size in enumerate(SIZES):
                predicted = model.predict(rows.x[others], num_iteration=size)
                held_out[k] += biv.metrics.noise_corrected_mse(
                    predicted, unit.y[others], unit.variance[others], epsilon=EPSILON
                ).value
        model, size = grown(np.arange(len(rows.x))), SIZES[int(held_out.argmin())]
        return lambda x: unit.raw(model.predict(x, num_iteration=size))

    return fit


def trees(name, seed, quick):
    """LightGBM."""
    import lightgbm

    drawn, found = draw(name, seed, 500 if quick else None), {}
    for weighted, words in ((False, "no weights"), (True, "weights 1/(σ²+ε)")):
        model = lightgbm.LGBMRegressor(n_jobs=1, verbose=-1)
        found[f"LGBMRegressor(), {words}"] = clock(estimator(model, weighted=weighted), drawn)
    if not quick:
        fit = chosen_trees(seed)
        found["LightGBM, weights, rate 0.05, size chosen on noisy labels"] = clock(fit, drawn)
    return found


def few_rows(name, seed, quick):
    """The tools on the same 1,000 rows."""
    drawn = draw(name, seed, 200 if quick else FEW)
    kernel = ConstantKernel() * Matern(nu=2.5) + WhiteKernel()
    short = {"max_epochs": 2} if quick else {}
    boosted = HistGradientBoostingRegressor(random_state=seed)

    def scikit_learn_gp(rows):
        unit = Unit.of(rows)
        model = GaussianProcessRegressor(
            kernel, alpha=unit.variance + 1e-6, optimizer=None if quick else "fmin_l_bfgs_b"
        ).fit(rows.x, unit.y)
        return lambda x: unit.raw(*model.predict(x, return_std=True))

    found = {
        "**BIVRegressor()**": clock(ours(seed, **short), drawn),
        "BIVRegressor(loss='l2')": clock(ours(seed, loss="l2", **short), drawn),
        "Ridge(), weights 1/(σ²+ε)": clock(estimator(Ridge(), weighted=True), drawn),
        "HistGradientBoostingRegressor(), weights 1/(σ²+ε)": clock(
            estimator(boosted, weighted=True), drawn
        ),
        "GaussianProcessRegressor(alpha=σ²), one length scale": clock(scikit_learn_gp, drawn),
    }
    if util.find_spec("gpytorch"):
        for kind, words in GP_FEW.items():
            found[words] = clock(exact_gp(kind, steps=2 if quick else GP_STEPS), drawn)
    return found
