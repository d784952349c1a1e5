"""Checks of the arguments of `fit`, `predict` and `score`; errors name the invalid cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import _check_sample_weight, check_array, validate_data

from biv._utils import arrays
from biv._utils.messages import shortened
from biv.preprocessing.encoder import has_categories

Array = npt.NDArray[Any]

MIN_ROWS = 2
SMALLEST_IMPORTANCE = 1e-18  # if the largest weight is smaller, or above 1/1e-18, all are rescaled


def read_features(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """Return a frame with categories as it is, and anything else as an array.

    Parameters
    ----------
    estimator : BaseEstimator
        Estimator whose number and names of features are set or compared.
    X : array-like of shape (N, F)
        Rows of features.
    reset : bool
        True in a fit, which sets the number and names of the features.

    Returns
    -------
    DataFrame or ndarray of shape (N, F)
        Checked features.

    Raises
    ------
    ValueError
        A cell is not a number or category, or is infinite, or the columns differ from the fit.
    """
    _refuse_containers("X", X)
    if has_categories(X):
        with arrays.errors_name_argument("X"):
            validate_data(estimator, X, skip_check_array=True, reset=reset)
        if reset and len(X) < MIN_ROWS:
            raise ValueError(f"X must have at least {MIN_ROWS} rows; got {len(X)}")
        return X
    with arrays.errors_name_argument("X"):
        if not hasattr(X, "iloc"):
            X = arrays.cells_to_float(
                "X", X, ": pass a pandas DataFrame, in which columns of text are categories"
            )
        try:
            return validate_data(
                estimator,
                X,
                reset=reset,
                dtype=np.float64,
                ensure_all_finite="allow-nan",
                ensure_min_samples=MIN_ROWS if reset else 1,
            )
        except ValueError as error:
            raise _with_place_of_infinity(error, X) from None


def _refuse_containers(name: str, values: Any) -> None:
    """Raise for masked arrays, whose mask would be lost, and for tensors that NumPy cannot read."""
    arrays.reject_masked_array(name, values)
    arrays.check_tensor(name, values)


def _with_place_of_infinity(error: ValueError, X: Any) -> ValueError:
    """Return scikit-learn's error about an infinite number, with the row and column appended."""
    if "infinity" not in str(error):
        return error
    frame = hasattr(X, "iloc")
    numbers = X.to_numpy(np.float64, na_value=np.nan) if frame else np.asarray(X, np.float64)
    places = np.argwhere(np.isinf(numbers))
    if not len(places):  # the error is about a column whose name contains "infinity"
        return error
    row, place = places[0]
    column = X.columns[place] if hasattr(X, "columns") else int(place)
    where = f"row {row}, column {shortened(column)}"
    return ValueError(f"{str(error).rstrip('.')}: got an infinite number in {where}")


def read_labels(y: Any) -> Array:
    """Return labels, (N,) or (N, D), in which a missing label is NaN.

    Raises
    ------
    ValueError
        A label is not a number, or is infinite.
    """
    if y is None:
        # scikit-learn's own checks expect this message.
        raise ValueError("requires y to be passed, but the target y is None")
    _refuse_containers("y", y)
    with arrays.errors_name_argument("y"):
        labels: Array = check_array(
            arrays.cells_to_float("y", y),
            ensure_2d=False,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            input_name="y",
        )
    return labels


def read_sample_weight(sample_weight: Any, rows: Array) -> Array:
    """Return checked weights, (N,), rescaled if float32 or their sums could not hold them."""
    _refuse_containers("sample_weight", sample_weight)
    with arrays.errors_name_argument("sample_weight"):
        sample_weight = arrays.cells_to_float("sample_weight", sample_weight)
        weight: Array = _check_sample_weight(sample_weight, rows, ensure_non_negative=True)
    largest = weight.max(initial=0.0)
    ordinary = SMALLEST_IMPORTANCE < largest < 1 / SMALLEST_IMPORTANCE
    return weight if ordinary or not largest else weight / largest
