"""Tools with their usual settings: BIVRegressor, scikit-learn and LightGBM; and all on few rows."""

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
from beside.data import EPSILON, FEW, ScaledLabels, draw, timed_scores
from beside.formulas import BATCH
from beside.gaussian import GP_FEW, GP_STEPS, exact_gp
from beside.losses import WIDTHS

SIZES = range(20, 601, 20)  # numbers of LightGBM's trees, as in quality.py


def ours(seed, **settings):
    """Return a fit of BIVRegressor, which scales labels and chooses settings itself."""

    def fit(rows):
        model = biv.BIVRegressor(random_state=seed, **settings)
        model.fit(rows.x, rows.y, y_var=rows.variance)
        return lambda x: model.predict(x, return_std=True)

    return fit


def estimator(model, *, weighted):
    """Return a fit of an estimator with sample_weight, to labels of unit variance."""

    def fit(rows):
        labels = ScaledLabels.fit(rows)
        model.fit(rows.x, labels.y, sample_weight=labels.weights() if weighted else None)
        return lambda x: labels.raw(model.predict(x))

    return fit


def regressors(name, seed, quick):
    """Return the results of BIVRegressor with three losses."""
    drawn, short = draw(name, seed, 500 if quick else None), {"max_epochs": 2} if quick else {}
    return {
        "**BIVRegressor()**": timed_scores(ours(seed, **short), drawn),
        "BIVRegressor(loss='l2')": timed_scores(ours(seed, loss="l2", **short), drawn),
        "BIVRegressor(loss='iv')": timed_scores(ours(seed, loss="iv", **short), drawn),
    }


def paper_network(seed):
    """Return scikit-learn's network with the paper's widths and early stopping."""
    return MLPRegressor(
        hidden_layer_sizes=WIDTHS, batch_size=BATCH, early_stopping=True, random_state=seed
    )


def scikit_learn(name, seed, quick):
    """Return the results of estimators of scikit-learn that take sample_weight."""
    drawn, results = draw(name, seed, 500 if quick else None), {}
    for model, label in (
        (Ridge(), "Ridge()"),
        (HistGradientBoostingRegressor(random_state=seed), "HistGradientBoostingRegressor()"),
        (paper_network(seed), "MLPRegressor, 100-50-20-10, early_stopping"),
    ):
        for weighted, suffix in ((False, "no weights"), (True, "weights 1/(σ²+ε)")):
            fit = estimator(sklearn.base.clone(model), weighted=weighted)
            results[f"{label}, {suffix}"] = timed_scores(fit, drawn)
    return results


def chosen_trees(seed):
    """Return a fit of LightGBM that chooses the number of trees on noisy labels of three folds."""
    import lightgbm

    def fit(rows):
        labels = ScaledLabels.fit(rows)
        weight, held_out = labels.weights(), np.zeros(len(SIZES))

        def grown(part):
            model = lightgbm.LGBMRegressor(
                n_estimators=max(SIZES), learning_rate=0.05, n_jobs=1, verbose=-1
            )
            return model.fit(rows.x[part], labels.y[part], sample_weight=weight[part])

        for part, others in KFold(3, shuffle=True, random_state=seed).split(rows.x):
            model = grown(part)
            for k, size in enumerate(SIZES):
                predicted = model.predict(rows.x[others], num_iteration=size)
                held_out[k] += biv.metrics.noise_corrected_mse(
                    predicted, labels.y[others], labels.variance[others], epsilon=EPSILON
                ).value
        model, size = grown(np.arange(len(rows.x))), SIZES[int(held_out.argmin())]
        return lambda x: labels.raw(model.predict(x, num_iteration=size))

    return fit


def trees(name, seed, quick):
    """Return the results of LightGBM."""
    import lightgbm

    drawn, results = draw(name, seed, 500 if quick else None), {}
    for weighted, suffix in ((False, "no weights"), (True, "weights 1/(σ²+ε)")):
        model = lightgbm.LGBMRegressor(n_jobs=1, verbose=-1)
        fit = estimator(model, weighted=weighted)
        results[f"LGBMRegressor(), {suffix}"] = timed_scores(fit, drawn)
    if not quick:
        fit = chosen_trees(seed)
        name_of_fit = "LightGBM, weights, rate 0.05, size chosen on noisy labels"
        results[name_of_fit] = timed_scores(fit, drawn)
    return results


def few_rows(name, seed, quick):
    """Return the results of all tools on the same few rows."""
    drawn = draw(name, seed, 200 if quick else FEW)
    kernel = ConstantKernel() * Matern(nu=2.5) + WhiteKernel()
    short = {"max_epochs": 2} if quick else {}
    boosted = HistGradientBoostingRegressor(random_state=seed)

    def scikit_learn_gp(rows):
        labels = ScaledLabels.fit(rows)
        model = GaussianProcessRegressor(
            kernel, alpha=labels.variance + 1e-6, optimizer=None if quick else "fmin_l_bfgs_b"
        ).fit(rows.x, labels.y)
        return lambda x: labels.raw(*model.predict(x, return_std=True))

    results = {
        "**BIVRegressor()**": timed_scores(ours(seed, **short), drawn),
        "BIVRegressor(loss='l2')": timed_scores(ours(seed, loss="l2", **short), drawn),
        "Ridge(), weights 1/(σ²+ε)": timed_scores(estimator(Ridge(), weighted=True), drawn),
        "HistGradientBoostingRegressor(), weights 1/(σ²+ε)": timed_scores(
            estimator(boosted, weighted=True), drawn
        ),
        "GaussianProcessRegressor(alpha=σ²), one length scale": timed_scores(
            scikit_learn_gp, drawn
        ),
    }
    if util.find_spec("gpytorch"):
        for kind, label in GP_FEW.items():
            results[label] = timed_scores(exact_gp(kind, steps=2 if quick else GP_STEPS), drawn)
    return results
