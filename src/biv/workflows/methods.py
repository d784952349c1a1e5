"""Methods that use or ignore error bars: each is fitted to some rows and predicts others."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv import metrics
from biv.epsilon import Fixed
from biv.estimator.regressor import BIVRegressor
from biv.losses import registry
from biv.losses.weights import inverse_variance_weights
from biv.preprocessing import FeatureScaler
from biv.preprocessing.encoder import FeatureEncoder
from biv.training.held_out import HeldOutScore

Floats = npt.NDArray[np.float64]

NETWORKS: dict[str, Any] = {"members": 4, "folds": 4, "max_epochs": 60}
CUTOFFS = (0.25, 0.5, 0.75)  # C is one of these quantiles of σ², or its mean
WEIGHTS_EPSILON = 0.05  # ε for other models' sample weights, as a fraction of the label variance
RIDGE = 1.0

BIV, L2, SHUFFLED = "BIV", "L2", "BIV, shuffled variances"
BLIND = (L2, "boosting (scikit-learn)", "LightGBM")  # methods that ignore the error bars


class RowSubset(NamedTuple):
    """Some rows of a table, each with a finite variance."""

    features: Any
    y: Floats
    variance: Floats
    weight: Floats | None

    def at(self, places: Any) -> RowSubset:
        """Return the rows at some positions."""
        weight = None if self.weight is None else self.weight[places]
        return RowSubset(self.features.iloc[places], self.y[places], self.variance[places], weight)


Method = Callable[[RowSubset, Any, int], "tuple[Floats, str]"]


def _networks(loss: str) -> Method:
    def fit_predict(train: RowSubset, new: Any, seed: int) -> tuple[Floats, str]:
        return _network(train, new, seed, loss=loss)[:2]

    return fit_predict


def _network(
    train: RowSubset, new: Any, seed: int, **settings: Any
) -> tuple[Floats, str, BIVRegressor]:
    kept = tuple(train.features.columns)  # reading the table has left out the others
    model = BIVRegressor(**NETWORKS, keep=kept, random_state=seed, **settings)
    model.fit(train.features, train.y, y_var=train.variance, sample_weight=train.weight)
    chosen = "" if model.epsilon_ is None else f"ε {model.epsilon_:.3g}"
    return model.predict(new), chosen, model


def estimated_variance(rows: RowSubset, seed: int) -> float:
    """Estimate one variance for all labels of unknown variance (NaN), from residuals."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _, _, model = _network(rows, rows.features, seed, unknown_variance="estimate")
    return float(model.unknown_variance_)


def _shuffled(train: RowSubset, new: Any, seed: int) -> tuple[Floats, str]:
    """Train BIV with shuffled variances and the ε of the right ones."""
    _, _, unshuffled = _network(train, new, seed, loss="biv")
    order = np.random.default_rng(seed).permutation(len(train.y))
    shuffled = train._replace(variance=train.variance[order])
    epsilon = Fixed(unshuffled.epsilon_ or 0.0)
    return _network(shuffled, new, seed, loss="biv", epsilon=epsilon)[:2]


def _thresholds(loss: str) -> Method:
    """Return the method that chooses the threshold C by the error on held-out training rows."""

    def fit_predict(train: RowSubset, new: Any, seed: int) -> tuple[Floats, str]:
        return _best_threshold(loss, train, new, seed)

    return fit_predict


def _best_threshold(loss: str, train: RowSubset, new: Any, seed: int) -> tuple[Floats, str]:
    variance = train.variance
    thresholds = {float(np.quantile(variance, q)) for q in CUTOFFS} | {float(variance.mean())}
    weight = None if train.weight is None else train.weight[:, None]
    score = HeldOutScore(train.y[:, None], variance[:, None], weight)  # the same for all C
    tried = []
    for threshold in sorted(t for t in thresholds if t > variance.min()):
        predicted, _, model = _network(train, new, seed, loss=loss, threshold=threshold)
        tried.append((score(model.out_of_fold_[:, None]), predicted, f"C {threshold:.3g}"))
    if not tried:
        raise ValueError("all variances are equal, so no cutoff can tell labels apart")
    _, predicted, chosen = min(tried, key=lambda trial: trial[0])
    return predicted, chosen


def _weights(train: RowSubset, epsilon: float | None = None) -> Floats:
    """Return weights of mean 1, so that penalties and limits on leaves keep their meaning."""
    if epsilon is None:
        epsilon = WEIGHTS_EPSILON * metrics.label_variance(train.y, train.variance)
    weight = inverse_variance_weights(train.variance, epsilon)
    weight = weight if train.weight is None else weight * train.weight
    return np.asarray(weight / weight.mean())


def _linear(train: RowSubset, new: Any, seed: int) -> tuple[Floats, str]:  # noqa: ARG001
    """Fit a ridge regression with weights 1/(σ²+τ²), where τ² is estimated by a first fit."""
    from sklearn.linear_model import Ridge

    encoder = FeatureEncoder.fit(train.features)
    matrix = encoder(train.features)
    scaler = FeatureScaler.fit(matrix, ddof=0)
    x, x_new = scaler(matrix), scaler(encoder(new))
    model = Ridge(RIDGE).fit(x, train.y, sample_weight=_weights(train))
    tau2 = metrics.residual_variance(model.predict(x), train.y, train.variance)
    # A fit that is better than the noise allows has τ² = 0; a small τ² keeps weights finite.
    tau2 = max(tau2, 1e-6 * metrics.label_variance(train.y, train.variance))
    model.fit(x, train.y, sample_weight=_weights(train, tau2))
    return model.predict(x_new), f"τ² {tau2:.3g}"


def _trees(make: Callable[[int], Any], *, weighted: bool) -> Method:
    def fit_predict(train: RowSubset, new: Any, seed: int) -> tuple[Floats, str]:
        encoder = FeatureEncoder.fit(train.features)
        weight = _weights(train) if weighted else train.weight
        model = make(seed).fit(encoder(train.features), train.y, sample_weight=weight)
        return np.asarray(model.predict(encoder(new)), dtype=np.float64), ""

    return fit_predict


def _hist(seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=seed)


def _lightgbm(seed: int) -> Any:
    from lightgbm import LGBMRegressor

    return LGBMRegressor(random_state=seed, n_jobs=1, verbose=-1)


def methods() -> dict[str, Method]:
    """Return all methods by name; LightGBM is one of them if it is installed."""
    losses = map(registry.get, registry.names())
    by_name: dict[str, Method] = {
        loss.title: (_thresholds if "threshold" in loss.user_settings else _networks)(loss.name)
        for loss in sorted(
            losses, key=lambda loss: loss.title == BIV
        )  # BIV last: of equals, the first is the best
    }
    by_name |= {
        SHUFFLED: _shuffled,
        "linear, weighted": _linear,
        "boosting (scikit-learn)": _trees(_hist, weighted=False),
        "boosting (scikit-learn), weighted": _trees(_hist, weighted=True),
    }
    if importlib.util.find_spec("lightgbm"):
        by_name["LightGBM"] = _trees(_lightgbm, weighted=False)
        by_name["LightGBM, weighted"] = _trees(_lightgbm, weighted=True)
    return by_name
