"""Labels from the ratings of many people, without their biases."""

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
from biv.labels._repeats import columns, group_means, group_sums, repeats

ROUNDS, CLOSE = 5_000, 1e-10  # of the conjugate gradients that solve for raters' biases
MAX_RATERS = 5_000  # of more, the uncertainty of their biases is simulated: no matrix of gigabytes
SIMULATIONS = 64


@errors_point_to("error-bars")
def ratings(items: Any, values: Any, raters: Any = None) -> GroupedLabels:
    r"""Crowd ratings: the mean rating of each item, its variance shrunk where raters are few.

    Without `raters` this is :func:`repeats`. If it is known who gave each rating, the biases of
    strict and lenient raters are removed first: ratings follow :math:`y_i + b_j` + noise, fitted by
    least squares, with the biases b of all ratings adding up to 0. The variance of a label then
    includes the covariance of the estimated biases. For noise of variance σ² it is exactly

    .. math:: \sigma^2 \left( \frac{1}{n_i} + (h_i - c)^\top L^+ (h_i - c) \right), \qquad
              L = D_r - N^\top D_i^{-1} N

    with N the item × rater matrix of counts, D_i and D_r the diagonal matrices of its row and
    column sums, h_i the row of N divided by n_i, and c the raters' shares of all ratings. (The
    biases' adding up to 0 over all ratings is what c stands for; h_i^⊤ L⁺ h_i is the variance if
    the unweighted sum over the raters is 0.) The first σ² is that of the item, shrunk as in
    :func:`repeats`, and the second is pooled over all items.

    The raters and items must form one connected graph: if two groups of raters have no item in
    common, nothing tells which group is stricter. Where raters have few items in common, labels
    share much of their error, and the variance of each label says nothing about that.

    Up to 5,000 raters, L is inverted: 1,000 raters take about three seconds, and 5,000 about half a
    minute and 1 GB. Beyond that, the second term is estimated from 64 simulated sets of ratings,
    which leaves it uncertain by 18% and takes 64 times as long as the fit of the biases.

    Args:
        items: What was rated, (ratings,): numbers or text.
        values: The ratings, (ratings,).
        raters: Who rated, (ratings,), if their biases are to be taken out.

    Returns:
        y and variance, each (items,), with `items` and `counts`.

    Raises:
        ValueError: No item has two ratings, or the raters fall into groups without a common item.

    Identities: without raters, :func:`repeats`; a number added to all ratings of one rater, who
    gave a share q of them, adds q times it to every label, and changes no variance; if every rater
    rates every item once, the variance is that of the mean, σ²/n.

    Example:
        >>> items, raters = ["a", "b", "c"] * 2, ["strict"] * 3 + ["kind"] * 3
        >>> ratings(items, [1.0, 3.0, 5.0, 3.0, 5.0, 6.0], raters).y.round(2)
        array([2. , 4. , 5.5])
    """
    if raters is None:
        return repeats(items, values)
    given, numbers = columns(items, values, "values")
    who, _ = columns(raters, values, "values", "raters")
    names, place = np.unique(given, return_inverse=True)
    people, rater = np.unique(who, return_inverse=True)
    if (groups := _groups(place, rater, len(names), len(people))) > 1:
        raise ValueError(
            "the rater-item graph must be connected, so that biases can be compared; got "
            f"{groups} groups without a common item: have some items rated by both, or leave out "
            "raters"
        )
    left = len(numbers) - len(names) - (len(people) - 1)  # degrees of freedom of the residuals
    if left < 1:
        raise ValueError(
            f"{len(numbers)} ratings of {len(names)} items by {len(people)} raters are too few to "
            "tell their biases from their noise"
        )
    bias = _biases(place, rater, numbers, len(names), len(people))
    means, counts = group_means(place, numbers - bias[rater], len(names))
    squares = group_sums(place, (numbers - bias[rater] - means[place]) ** 2, len(names))
    pooled = squares.sum() / left * variance_of_t(np.float64(left))
    uncertain, share = _uncertainty(place, rater, counts, len(people))
    # Fitting the biases makes an item's residuals smaller: to a share of their sum of squares.
    several = share > CLOSE
    squares = np.where(several, squares, 0.0) / np.where(several, share, 1.0)
    own = moderated(squares, np.where(several, counts - 1, 0), left)
    return GroupedLabels(means, own / counts + pooled * uncertain, names, counts)


def _biases(
    place: npt.NDArray[np.intp],
    rater: npt.NDArray[np.intp],
    numbers: Array,
    items: int,
    people: int,
) -> Array:
    """Solve L b = r by conjugate gradients, r the raters' sums of deviations from item means.

    Started at 0 and preconditioned by the raters' counts, the biases of all ratings add up to 0.
    """

    def deviations(values: Array) -> Array:
        means, _ = group_means(place, values, items)
        return group_sums(rater, values - means[place], people)

    rated = np.bincount(rater, minlength=people)
    bias, direction = np.zeros(people), np.zeros(people)
    residual, size, first = deviations(numbers), 1.0, 0.0
    for _ in range(ROUNDS):
        scaled = residual / rated
        before, size = size, float(residual @ scaled)
        first = first or size
        if size <= CLOSE**2 * first:
            break
        direction = scaled + size / before * direction
        image = deviations(direction[rater])
        step = size / float(direction @ image)
        bias += step * direction
        residual -= step * image
    return bias


def _uncertainty(
    place: npt.NDArray[np.intp],
    rater: npt.NDArray[np.intp],
    counts: npt.NDArray[np.int64],
    people: int,
) -> tuple[Array, Array]:
    """What fitted biases do to each item, for noise of variance 1.

    Returns the variance that they add to its label, and the expected sum of squares of its
    residuals as a share of n - 1.
    """
    if people > MAX_RATERS:
        added, squares = _simulated(place, rater, counts, people)
    else:
        order = np.argsort(place, kind="stable")
        by_item = np.split(rater[order], np.cumsum(counts)[:-1])
        rows = [np.unique(who, return_counts=True) for who in by_item]
        rated = np.bincount(rater, minlength=people)
        matrix = np.diag(rated) + np.outer(rated, rated) / len(rater)  # L is singular without it
        for who, times in rows:
            matrix[np.ix_(who, who)] -= np.outer(times, times) / times.sum()
        inverse: Array = np.linalg.inv(matrix.astype(np.float64, copy=False))
        added = np.array([n @ inverse[np.ix_(who, who)] @ n / n.sum() ** 2 for who, n in rows])
        squares = (
            counts - 1 - group_sums(place, inverse.diagonal()[rater], len(counts)) + counts * added
        )
        added = added - 1 / len(rater)  # what the regular matrix has more than L
    return added, squares / np.maximum(counts - 1, 1)


def _simulated(
    place: npt.NDArray[np.intp],
    rater: npt.NDArray[np.intp],
    counts: npt.NDArray[np.int64],
    people: int,
) -> tuple[Array, Array]:
    """The variance added to labels, and their residuals' sums of squares, of simulated noise."""
    rng, items = np.random.default_rng(0), len(counts)
    added, squares = np.zeros(items), np.zeros(items)
    for _ in range(SIMULATIONS):
        noise = rng.normal(size=len(place))
        fitted = _biases(place, rater, noise, items, people)[rater]
        shift, _ = group_means(place, fitted, items)
        means, _ = group_means(place, noise, items)
        added += shift**2 / SIMULATIONS
        squares += (
            group_sums(place, (noise - means[place] - fitted + shift[place]) ** 2, items)
            / SIMULATIONS
        )
    return added, squares


def _groups(
    place: npt.NDArray[np.intp], rater: npt.NDArray[np.intp], items: int, people: int
) -> int:
    """How many parts the graph of items and raters falls into."""
    part = np.arange(people)
    while True:
        lowest = np.full(items, people)
        np.minimum.at(lowest, place, part[rater])
        new = part.copy()
        np.minimum.at(new, rater, lowest[place])
        if np.array_equal(new, part):
            return len(np.unique(part))
        part = new
