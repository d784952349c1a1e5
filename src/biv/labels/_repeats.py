"""Labels from repeated measurements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils.arrays import LARGEST, check_magnitude, to_tensor
from biv._utils.pages import errors_point_to
from biv.labels._moderation import moderated
from biv.labels._noisy_labels import (
    Array,
    GroupedLabels,
)


@errors_point_to("error-bars")
def repeats(items: Any, values: Any) -> GroupedLabels:
    r"""Return labels from repeated measurements: means of items, and their squared standard errors.

    For n values with sample variance s², the plain estimate is s²/n. It is unreliable for two or
    three values and does not exist for one. The variance of every item is therefore shrunk towards
    the others. The items' variances σ² are taken to follow a scaled inverse χ² distribution with d₀
    degrees of freedom and scale s₀², both fitted by marginal likelihood, which gives

    .. math:: \tilde s^2 = \frac{d_0 s_0^2 + (n-1) s^2}{d_0 + n - 1}, \qquad
              \operatorname{variance} = \frac{\tilde s^2}{n} \cdot \frac{\nu}{\nu - 2},
              \quad \nu = d_0 + n - 1

    If all items have the same spread, d₀ → ∞ and each item gets the pooled variance. If their
    spreads are very unequal, d₀ → 0 and each item keeps its own variance. The last factor turns the
    variance of a normal distribution into that of a t distribution, which the mean has when its
    variance is estimated. In this factor, ν is at most the sum of n − 1 over all items, and at
    least 4.

    Parameters
    ----------
    items : array-like of shape (values,)
        Name of the item that each value was measured of: numbers or text.
    values : array-like of shape (values,)
        The measurements, in label units. NaN is an error: leave out values that were not measured.

    Returns
    -------
    GroupedLabels
        y and `variance` (in squared label units) of shape (items,), with `items` and `counts`.

    Raises
    ------
    ValueError
        No item has two values, so that nothing is known about their spread; or the values of every
        item agree; or the two columns differ in length, or hold NaN or infinite values.

    Notes
    -----
    The order of the values does not matter. Adding a number to all values adds it to y. Scaling
    them by c scales y by c and the variance by c².

    The result is calibrated if the variances follow that distribution, and nearly so if there are
    two kinds of items whose variances differ by a factor of 10. It is **too small for two kinds
    that differ by far more**. If half of the items have 100 times the variance of the others, the
    mean of (y − truth)²/variance is 3.6 with two repeats, 1.9 with three and 1 with five. If you
    know the kinds, call `repeats` for each kind separately.

    References
    ----------
    Smyth, Linear models and empirical Bayes methods for assessing differential expression in
    microarray experiments, 2004.

    Examples
    --------
    >>> import biv
    >>> labels = biv.labels.repeats(["a", "a", "a", "b", "b"], [1.0, 2.0, 3.0, 5.0, 7.0])
    >>> labels.y.tolist(), labels.items.tolist(), labels.counts.tolist()
    ([2.0, 6.0], ['a', 'b'], [3, 2])
    >>> labels.variance.round(2)
    array([0.89, 1.33])
    """
    keys, numbers = checked_columns(items, values, "values")
    names, index = np.unique(keys, return_inverse=True)
    means, counts = group_means(index, numbers, len(names))
    squares = group_sums(index, (numbers - means[index]) ** 2, len(names))
    return GroupedLabels(means, moderated(squares, counts - 1) / counts, names, counts)


def checked_columns(
    keys: Any, values: Any, name: str, keys_name: str = "items"
) -> tuple[npt.NDArray[Any], Array]:
    """Return keys and values as columns of equal length, with finite values."""
    numbers = to_tensor(name, values).double().numpy()
    keys = np.asarray(keys)
    if numbers.ndim != 1 or keys.shape != numbers.shape:
        raise ValueError(
            f"{keys_name} and {name} must be one-dimensional and of equal length; got shapes "
            f"{keys.shape} and {numbers.shape}"
        )
    if not len(numbers):
        raise ValueError(f"{name} must not be empty")
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"{name} must be finite; got {numbers[row]} in row {row}")
    check_magnitude(name, numbers, LARGEST)
    return keys, numbers


def group_means(
    index: npt.NDArray[np.intp], numbers: Array, n_groups: int
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return the mean and the number of values of each group; `index` names each value's group."""
    counts = np.bincount(index, minlength=n_groups)
    return group_sums(index, numbers, n_groups) / counts, counts


def group_sums(index: npt.NDArray[np.intp], numbers: Array, n_groups: int) -> Array:
    """Return the sum of the values of each group."""
    sums: Array = np.bincount(index, numbers, n_groups).astype(np.float64, copy=False)
    return sums
