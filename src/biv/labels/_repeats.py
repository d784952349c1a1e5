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
    r"""Repeated measurements: the mean of each item's values, and its squared standard error.

    Of n values with sample variance s², the plain answer is s²/n; of two or three values it is
    worth little, and of one there is none. So the spread of every item borrows from the others:
    with variances σ² that follow a scaled inverse χ² distribution of d₀ degrees of freedom and
    scale s₀², both of the largest marginal likelihood,

    .. math:: \tilde s^2 = \frac{d_0 s_0^2 + (n-1) s^2}{d_0 + n - 1}, \qquad
              \operatorname{variance} = \frac{\tilde s^2}{n} \cdot \frac{\nu}{\nu - 2},
              \quad \nu = d_0 + n - 1

    (as Smyth, 2004). Items of equal spread give d₀ → ∞, the pooled variance; of very unequal spread
    d₀ → 0, and many repeats speak for themselves. The last factor turns the variance of a normal
    distribution into that of a t distribution, which the mean has when its variance is estimated;
    in it, ν is at most the sum of n − 1 over all items, and at least 4.

    The result is calibrated if the variances follow that distribution, and nearly so if there are
    two kinds of items whose variances differ by a factor of 10. It is **too small for two kinds
    that differ by far more**: if half of the items have 100 times the variance of the others, the
    mean of (y − truth)²/variance is 3.6 with two repeats, 1.9 with three and 1 with five. Call
    `repeats` for each kind by itself then, if you know the kinds.

    Args:
        items: What each value was measured of, (values,): numbers or text.
        values: The measurements, (values,). NaN is an error: leave out what was not measured.

    Returns:
        y and variance, each (items,), with `items` and `counts`.

    Raises:
        ValueError: No item has two values, so that nothing is known about their spread.

    Identities: the order of the values does not matter; adding a number to all of them adds it to
    y; scaling them by c scales y by c and the variance by c².

    Example:
        >>> found = repeats(["a", "a", "a", "b", "b"], [1.0, 2.0, 3.0, 5.0, 7.0])
        >>> found.y.tolist(), found.items.tolist(), found.counts.tolist()
        ([2.0, 6.0], ['a', 'b'], [3, 2])
    """
    given, numbers = columns(items, values, "values")
    names, place = np.unique(given, return_inverse=True)
    means, counts = group_means(place, numbers, len(names))
    squares = group_sums(place, (numbers - means[place]) ** 2, len(names))
    return GroupedLabels(means, moderated(squares, counts - 1) / counts, names, counts)


def columns(
    items: Any, values: Any, name: str, label: str = "items"
) -> tuple[npt.NDArray[Any], Array]:
    numbers = to_tensor(name, values).double().numpy()
    given = np.asarray(items)
    if numbers.ndim != 1 or given.shape != numbers.shape:
        raise ValueError(
            f"{label} and {name} must be two columns of equal length; got shapes "
            f"{given.shape} and {numbers.shape}"
        )
    if not len(numbers):
        raise ValueError(f"{name} must not be empty")
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"{name} must be finite; got {numbers[row]} in row {row}")
    check_magnitude(name, numbers, LARGEST)
    return given, numbers


def group_means(
    place: npt.NDArray[np.intp], numbers: Array, groups: int
) -> tuple[Array, npt.NDArray[np.int64]]:
    counts = np.bincount(place, minlength=groups)
    return group_sums(place, numbers, groups) / counts, counts


def group_sums(place: npt.NDArray[np.intp], numbers: Array, groups: int) -> Array:
    sums: Array = np.bincount(place, numbers, groups).astype(np.float64, copy=False)
    return sums
