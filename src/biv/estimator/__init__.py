"""The scikit-learn estimator, and what a fit finds out about its labels."""

try:
    import sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(
        "BIVRegressor needs scikit-learn: pip install scikit-learn, or biv[sklearn]"
    ) from error

from biv.estimator.findings import ErrorBarWarning
from biv.estimator.regressor import BIVRegressor

__all__ = ["BIVRegressor", "ErrorBarWarning"]
