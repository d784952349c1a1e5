"""Labels from the ratings of many people, with the raters' biases removed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils.pages import errors_point_to
from biv.labels._moderation import moderated, variance_of_t
from biv.labels._noisy_labels import (
    Array,
    GroupedLabels,
)
from biv.labels._repeats import checked_columns, group_means, group_sums, repeats

MAX_ITERATIONS, TOLERANCE = 5_000, 1e-10  # of the conjugate gradients that solve for the biases
MAX_RATERS = 5_000  # beyond, the biases' uncertainty is simulated: the matrix would take gigabytes
SIMULATIONS = 64


@errors_point_to("error-bars")
def ratings(items: Any, values: Any, raters: Any = None) -> GroupedLabels:
    r"""Return labels from crowd ratings: one mean rating per item, with raters' biases removed.

    Without `raters` the result is that of :func:`repeats`. With `raters`, the biases of strict and
    lenient raters are removed. A rating of item i by rater j is modelled as :math:`y_i + b_j` +
    noise and fitted by least squares, with biases b that sum to 0 over all ratings. The variance of
    a label then includes the variance of the estimated biases:

    .. math:: \operatorname{variance} = \frac{\sigma_i^2}{n_i}
              + \sigma_\text{pooled}^2 \, (h_i - c)^\top L^+ (h_i - c),
              \qquad L = R - N^\top I^{-1} N

    where N is the item × rater matrix of counts, I and R are the diagonal matrices of its row sums
    (ratings per item) and column sums (ratings per rater), and L⁺ is the pseudoinverse of L. n_i is
    the number of ratings of item i, h_i is row i of N divided by n_i, and c holds each rater's
    fraction of all ratings. σ_i² is the variance of one rating of item i, shrunk as in
    :func:`repeats`, and σ²_pooled is that variance pooled over all items.

    Parameters
    ----------
    items : array-like of shape (ratings,)
        Item of each rating: numbers or text.
    values : array-like of shape (ratings,)
        The ratings, in label units.
    raters : array-like of shape (ratings,) or None, default=None
        Rater of each rating: numbers or text. Pass it whenever you know who gave each rating.

    Returns
    -------
    GroupedLabels
        y and `variance` (in squared label units) of shape (items,), with `items` and `counts`.

    Raises
    ------
    ValueError
        No item has two ratings, the raters fall into groups without a common item, or there are
        too few ratings to separate biases from noise.

    Notes
    -----
    If a rater gave a fraction q of all ratings, a number added to that rater's ratings adds q times
    the number to every label and changes no variance. If every rater rates every item once, the
    variance is that of the mean, σ²/n. The vector c is there because the biases sum to 0 over all
    ratings; :math:`h_i^\top L^+ h_i` is the variance if they sum to 0 over the raters instead.

    Raters and items must form one connected graph. If two groups of raters have no item in common,
    nothing shows which group is stricter. Where raters have few items in common, labels share much
    of their error, which the variances of single labels do not show.

    Up to 5,000 raters, L is inverted. 1,000 raters take about three seconds, and 5,000 about half a
    minute and 1 GB. Beyond that, the second term is estimated from 64 simulated sets of ratings.
    That leaves it uncertain by 18% and takes 64 times as long as the fit of the biases.

    Examples
    --------
    >>> import biv
    >>> items, raters = ["a", "b", "c"] * 2, ["strict"] * 3 + ["kind"] * 3
    >>> labels = biv.labels.ratings(items, [1.0, 3.0, 5.0, 3.0, 5.0, 6.0], raters)
    >>> labels.y.round(2), labels.variance.round(2)
    (array([2. , 4. , 5.5]), array([0.17, 0.17, 0.17]))
    """
    if raters is None:
        return repeats(items, values)
    item_keys, numbers = checked_columns(items, values, "values")
    rater_keys, _ = checked_columns(raters, values, "values", "raters")
    item_names, item = np.unique(item_keys, return_inverse=True)
    rater_names, rater = np.unique(rater_keys, return_inverse=True)
    n_items, n_raters = len(item_names), len(rater_names)
    if (n_parts := _count_components(item, rater, n_items, n_raters)) > 1:
        raise ValueError(
            "the rater-item graph must be connected, so that biases can be compared; got "
            f"{n_parts} groups of raters without a common item: add ratings of the same items by "
            "both groups, or leave out raters"
        )
    freedom = len(numbers) - n_items - (n_raters - 1)  # degrees of freedom of the residuals
    if freedom < 1:
        raise ValueError(
            "there must be at least as many ratings as items and raters together, to separate "
            f"biases from noise; got {len(numbers)} ratings of {n_items} items by {n_raters} raters"
        )
    bias = _biases(item, rater, numbers, n_items, n_raters)
    means, counts = group_means(item, numbers - bias[rater], n_items)
    squares = group_sums(item, (numbers - bias[rater] - means[item]) ** 2, n_items)
    pooled = squares.sum() / freedom * variance_of_t(np.float64(freedom))
    bias_variance, remaining = _bias_effects(item, rater, counts, n_raters)
    # Fitting the biases reduces an item's sum of squared residuals to the fraction `remaining`.
    has_residuals = remaining > TOLERANCE
    squares = np.where(has_residuals, squares, 0.0) / np.where(has_residuals, remaining, 1.0)
    item_variance = moderated(squares, np.where(has_residuals, counts - 1, 0), freedom)
    variance = item_variance / counts + pooled * bias_variance
    return GroupedLabels(means, variance, item_names, counts)


def _biases(
    item: npt.NDArray[np.intp],
    rater: npt.NDArray[np.intp],
    numbers: Array,
    n_items: int,
    n_raters: int,
) -> Array:
    """Solve L b = r by conjugate gradients, with r the raters' sums of deviations from item means.

    Because the solver starts at 0 and is preconditioned by the raters' counts, the biases sum to 0
    over all ratings.
    """

    def deviations(values: Array) -> Array:
        means, _ = group_means(item, values, n_items)
        return group_sums(rater, values - means[item], n_raters)

    rated = np.bincount(rater, minlength=n_raters)
    bias, direction = np.zeros(n_raters), np.zeros(n_raters)
    residual, size, first = deviations(numbers), 1.0, 0.0
    for _ in range(MAX_ITERATIONS):
        scaled = residual / rated
        before, size = size, float(residual @ scaled)
        first = first or size
        if size <= TOLERANCE**2 * first:
            break
        direction = scaled + size / before * direction
        image = deviations(direction[rater])
        step = size / float(direction @ image)
        bias += step * direction
        residual -= step * image
    return bias


def _bias_effects(
    item: npt.NDArray[np.intp],
    rater: npt.NDArray[np.intp],
    counts: npt.NDArray[np.int64],
    n_raters: int,
) -> tuple[Array, Array]:
    """Return the effects of fitting biases on each item, for noise of variance 1.

    The first array is the variance that the biases add to the label. The second is the expected sum
    of squared residuals of the item, as a fraction of n - 1.
    """
    if n_raters > MAX_RATERS:
        added, squares = _simulated_effects(item, rater, counts, n_raters)
    else:
        order = np.argsort(item, kind="stable")
        by_item = np.split(rater[order], np.cumsum(counts)[:-1])
        rows = [np.unique(group, return_counts=True) for group in by_item]
        rated = np.bincount(rater, minlength=n_raters)
        # L is singular. The outer product makes it regular.
        matrix = np.diag(rated) + np.outer(rated, rated) / len(rater)
        for group, n in rows:
            matrix[np.ix_(group, group)] -= np.outer(n, n) / n.sum()
        inverse: Array = np.linalg.inv(matrix.astype(np.float64, copy=False))
        added = np.array(
            [n @ inverse[np.ix_(group, group)] @ n / n.sum() ** 2 for group, n in rows]
        )
        squares = (
            counts - 1 - group_sums(item, inverse.diagonal()[rater], len(counts)) + counts * added
        )
        added = added - 1 / len(rater)  # the contribution of the outer product
    return added, squares / np.maximum(counts - 1, 1)


def _simulated_effects(
    item: npt.NDArray[np.intp],
    rater: npt.NDArray[np.intp],
    counts: npt.NDArray[np.int64],
    n_raters: int,
) -> tuple[Array, Array]:
    """Estimate the variance added to labels and the residual sums of squares by simulation."""
    rng, n_items = np.random.default_rng(0), len(counts)
    added, squares = np.zeros(n_items), np.zeros(n_items)
    for _ in range(SIMULATIONS):
        noise = rng.normal(size=len(item))
        fitted = _biases(item, rater, noise, n_items, n_raters)[rater]
        shift, _ = group_means(item, fitted, n_items)
        means, _ = group_means(item, noise, n_items)
        added += shift**2 / SIMULATIONS
        squares += (
            group_sums(item, (noise - means[item] - fitted + shift[item]) ** 2, n_items)
            / SIMULATIONS
        )
    return added, squares


def _count_components(
    item: npt.NDArray[np.intp], rater: npt.NDArray[np.intp], n_items: int, n_raters: int
) -> int:
    """Return the number of connected components of the graph of items and raters."""
    part = np.arange(n_raters)
    while True:
        lowest = np.full(n_items, n_raters)
        np.minimum.at(lowest, item, part[rater])
        new = part.copy()
        np.minimum.at(new, rater, lowest[item])
        if np.array_equal(new, part):
            return len(np.unique(part))
        part = new
