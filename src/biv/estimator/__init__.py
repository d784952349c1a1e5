"""Scikit-learn estimator for labels with error bars."""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        "BIVRegressor needs scikit-learn: run pip install scikit-learn, or install biv[sklearn]"
    ) from error

from biv.estimator.findings import ErrorBarWarning
from biv.estimator.regressor import BIVRegressor

__all__ = ["BIVRegressor", "ErrorBarWarning"]
