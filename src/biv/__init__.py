"""Regression when every training label comes with its own error bar."""

import importlib.util
from typing import Any

from biv import datasets, epsilon, labels, metrics, models, noise, training
from biv.distributed import accumulation_windows
from biv.epsilon import epsilon_for_batch_size
from biv.losses import biv_loss, cutoff_loss, iv_loss, l2_loss
from biv.modules import BIVLoss, CutoffLoss, IVLoss, L2Loss, VarianceLoss
from biv.sums import LossSums
from biv.weights import cutoff_weights, effective_batch_size, inverse_variance_weights

__version__ = "0.1.0"

__all__ = [
    "BIVLoss",
    "CutoffLoss",
    "IVLoss",
    "L2Loss",
    "LossSums",
    "VarianceLoss",
    "accumulation_windows",
    "biv_loss",
    "cutoff_loss",
    "cutoff_weights",
    "datasets",
    "effective_batch_size",
    "epsilon",
    "epsilon_for_batch_size",
    "inverse_variance_weights",
    "iv_loss",
    "l2_loss",
    "labels",
    "metrics",
    "models",
    "noise",
    "training",
]


def __dir__() -> list[str]:
    more = {"BIVRegressor"} if importlib.util.find_spec("sklearn") else set()
    return sorted(globals().keys() | more)


def __getattr__(name: str) -> Any:
    """`BIVRegressor` when it is asked for: it alone wants scikit-learn."""
    if name != "BIVRegressor":
        raise AttributeError(f"module 'biv' has no attribute {name!r}")
    try:
        from biv.estimator import BIVRegressor
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "sklearn":
            raise
        raise ImportError(
            "BIVRegressor needs scikit-learn: pip install scikit-learn, or biv[sklearn]"
        ) from error
    return BIVRegressor
