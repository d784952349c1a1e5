r"""Labels and their variances from the processes that real labels come from.

Every function returns :class:`NoisyLabels`, a pair (y, variance): what to learn from and σ² of its
error, in squared units of y. A variance is what makes (y − truth)²/variance one on average, as far
as the process allows; where it is itself estimated from few values, it is larger than the plain
formula by what that uncertainty costs.

Arrays in, arrays out, in float64; tensors in, tensors out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from biv._utils import validation
from biv._utils.arrays import LARGEST, like, real_numbers, refuse_extremes, to_tensor
from biv._utils.pages import helps_with

if TYPE_CHECKING:
    from typing_extensions import Self

Array = npt.NDArray[np.float64]

FEWEST_SAMPLES = 4  # below, the variance of a t distribution is infinite
DEGREES = np.geomspace(0.5, 1e5, 60)  # of freedom that are tried; the last is endless
FEWEST_DEGREES, BISECTIONS = 4.0, 60
MOST_SPREADS = 10_000  # of more, the distribution of the variances is fitted to evenly spaced ones
ROUNDS, CLOSE = 5_000, 1e-10  # of the conjugate gradients that solve for raters' biases
MOST_RATERS = 5_000  # of more, the uncertainty of their biases is simulated: no matrix of gigabytes
SIMULATIONS = 64
ONE_SIGMA = math.erf(math.sqrt(0.5))  # the level of y ± σ, 68.27 %
LEAST_LEVEL = 1e-6  # of an interval; (1 + level)/2 has ten digits of it
UNIT = validation.Range(0.0, limit=1.0, open_below=True)
MEANS = ("mean", "x", "loc")  # what libraries call the two, the first that is there
COVARIANCES = ("covariance", "covariance_matrix", "cov", "P")


class NoisyLabels(NamedTuple):
    """Labels and σ² of each.

    Attributes:
        y: Labels.
        variance: Of their errors, in squared units of y; of the same shape.
    """

    y: Any
    variance: Any


class GroupedLabels(NoisyLabels):
    """Labels of items that were measured several times: a pair like every other, and two notes.

    Attributes:
        y: Labels, (items,).
        variance: Of their errors.
        items: What they are labels of, each once, in order.
        counts: How many values each is made of.
    """

    items: npt.NDArray[Any]
    counts: npt.NDArray[np.int64]

    def __new__(
        cls, y: Array, variance: Array, items: npt.NDArray[Any], counts: npt.NDArray[np.int64]
    ) -> Self:
        """The pair, and the notes beside it."""
        pair = super().__new__(cls, y, variance)
        pair.items, pair.counts = items, counts
        return pair

    def _replace(self, **changes: Any) -> Self:
        """As of any named tuple; the notes stay."""
        y, variance = super()._replace(**changes)
        return type(self)(y, variance, self.items, self.counts)

    def __getnewargs__(self) -> Any:
        """For copies and pickles."""
        return self.y, self.variance, self.items, self.counts


@helps_with("error-bars")
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
    given, numbers = _columns(items, values, "values")
    names, place = np.unique(given, return_inverse=True)
    means, counts = _means(place, numbers, len(names))
    squares = _sums(place, (numbers - means[place]) ** 2, len(names))
    return GroupedLabels(means, _moderated(squares, counts - 1) / counts, names, counts)


@helps_with("error-bars")
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
    which leaves it uncertain by 18 % and takes 64 times as long as the fit of the biases.

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
    given, numbers = _columns(items, values, "values")
    who, _ = _columns(raters, values, "values", "raters")
    names, place = np.unique(given, return_inverse=True)
    people, rater = np.unique(who, return_inverse=True)
    if (groups := _groups(place, rater, len(names), len(people))) > 1:
        raise ValueError(
            "the rater-item graph must be connected, so that biases can be compared; found "
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
    means, counts = _means(place, numbers - bias[rater], len(names))
    squares = _sums(place, (numbers - bias[rater] - means[place]) ** 2, len(names))
    pooled = squares.sum() / left * _student(np.float64(left))
    uncertain, share = _uncertainty(place, rater, counts, len(people))
    # Fitting the biases makes an item's residuals smaller: to a share of their sum of squares.
    several = share > CLOSE
    squares = np.where(several, squares, 0.0) / np.where(several, share, 1.0)
    own = _moderated(squares, np.where(several, counts - 1, 0), left)
    return GroupedLabels(means, own / counts + pooled * uncertain, names, counts)


def _columns(
    items: Any, values: Any, name: str, label: str = "items"
) -> tuple[npt.NDArray[Any], Array]:
    numbers = to_tensor(name, values).double().numpy()
    given = np.asarray(items)
    if numbers.ndim != 1 or given.shape != numbers.shape:
        raise ValueError(
            f"{label} and {name} must be two columns of equal length; found shapes "
            f"{given.shape} and {numbers.shape}"
        )
    if not len(numbers):
        raise ValueError(f"{name} must not be empty")
    if not np.isfinite(numbers).all():
        row = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"{name} must be finite; found {numbers[row]} in row {row}")
    refuse_extremes(name, numbers, LARGEST)
    return given, numbers


def _means(
    place: npt.NDArray[np.intp], numbers: Array, groups: int
) -> tuple[Array, npt.NDArray[np.int64]]:
    counts = np.bincount(place, minlength=groups)
    return _sums(place, numbers, groups) / counts, counts


def _sums(place: npt.NDArray[np.intp], numbers: Array, groups: int) -> Array:
    sums: Array = np.bincount(place, numbers, groups).astype(np.float64, copy=False)
    return sums


def _moderated(squares: Array, freedom: npt.NDArray[np.int64], total: int | None = None) -> Array:
    """Variances of single values from sums of squares, each shrunk towards the common variance.

    The result is the expectation of the variance given the sums of squares. However alike the
    variances seem, it rests on no more than `total` degrees of freedom, by default their sum.
    """
    several = freedom > 0
    if not several.any():
        raise ValueError("an item must have two values at least, to say how far they spread")
    if not squares.any():
        raise ValueError("the values of every item must not all agree: their spread is 0")
    prior, scale = _prior(squares[several], freedom[several].astype(np.float64))
    nu = prior + freedom
    shrunk = (prior * scale + squares) / nu
    result: Array = shrunk * _student(np.minimum(nu, total or freedom.sum()))
    return result


def _student(nu: Any) -> Any:
    """The variance of a t distribution, with its degrees of freedom taken for 4 at least."""
    nu = np.maximum(nu, FEWEST_DEGREES)
    return nu / (nu - 2.0)


def _prior(squares: Array, d: Array) -> tuple[float, float]:
    """Degrees of freedom and scale of the variances' distribution, by marginal likelihood.

    s² = squares/d is s₀² times an F variable of (d, d₀) degrees of freedom.
    """
    if (step := len(d) // MOST_SPREADS) > 1:
        chosen = np.lexsort((squares, d))[step // 2 :: step]
        squares, d = squares[chosen], d[chosen]
    prior, mean = DEGREES[:, None], squares.sum() / d.sum()
    low, high = np.full(prior.shape, 1e-12), np.full(prior.shape, 1e12)  # of s₀² over the mean
    for _ in range(BISECTIONS):
        middle = np.sqrt(low * high)
        share = squares / (prior * middle * mean + squares)
        rises = ((d + prior) * share - d).sum(axis=1, keepdims=True) > 0  # falls as s₀² grows
        low, high = np.where(rises, middle, low), np.where(rises, high, middle)
    scale = np.sqrt(low * high) * mean
    half, own = torch.from_numpy(d / 2), torch.from_numpy(prior / 2)
    beta = torch.lgamma(half) + torch.lgamma(own) - torch.lgamma(half + own)
    terms = (
        -d / 2 * np.log(prior * scale)
        - beta.numpy()
        - (d + prior) / 2 * np.log1p(squares / (prior * scale))
    )
    best = int(terms.sum(axis=1).argmax())
    return float(DEGREES[best]), float(scale[best, 0])


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
        means, _ = _means(place, values, items)
        return _sums(rater, values - means[place], people)

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
    if people > MOST_RATERS:
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
        squares = counts - 1 - _sums(place, inverse.diagonal()[rater], len(counts)) + counts * added
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
        shift, _ = _means(place, fitted, items)
        means, _ = _means(place, noise, items)
        added += shift**2 / SIMULATIONS
        squares += (
            _sums(place, (noise - means[place] - fitted + shift[place]) ** 2, items) / SIMULATIONS
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


@helps_with("error-bars")
def plus_minus(y: Any, half_width: Any, *, level: float | None = None) -> NoisyLabels:
    r"""A value and its ±: a number of standard deviations, or a range with nothing beyond it.

    With a level, the error is normal and within ± with that probability: variance = (h/z)², z the
    normal quantile of (1 + level)/2. ``level=0.6827`` says that ± is the standard deviation. With
    none, the truth is anywhere within ± alike, as with a reading off a scale or a rounded number:
    variance = h²/3.

    Args:
        y: Values, of any shape.
        half_width: h, what stands behind the ±, as y, or one number.
        level: Probability that the truth lies within, or None for all of it and evenly so.

    Returns:
        y and variance, of the shape of `y`.

    Identities: a level of erf(√½), one σ, gives h²; none gives (2h)²/12, the variance of a uniform
    distribution.

    Example:
        >>> plus_minus([10.0], [2.0], level=0.6827).variance.round(3)
        array([4.])
        >>> plus_minus([10.0], 0.5).variance.round(4)
        array([0.0833])
    """
    values, half = to_tensor("y", y), to_tensor("half_width", half_width)
    _non_negative("half_width", half)
    share = 1.0 / 3.0 if level is None else 1.0 / _quantile(level) ** 2
    return _pair(y, values, half.double() ** 2 * share, {"y": values, "half_width": half}, half)


@helps_with("error-bars")
def interval(low: Any, high: Any, *, level: float = 0.95) -> NoisyLabels:
    r"""A confidence interval's two ends: its middle, and the variance that its width stands for.

    variance = ((high − low)/2z)², z the normal quantile of (1 + level)/2: 1.96 of 95 %. Intervals
    of a ratio or another positive number are often symmetric in the logarithm: take logarithms
    first, and learn those.

    Args:
        low: Lower ends, of any shape.
        high: Upper ends, of the same shape, not below the lower ones.
        level: Probability that the truth lies between them.

    Returns:
        y and variance, of the shape of `low`.

    Identity: :func:`plus_minus` of the middle and half the width, at that level.

    Example:
        >>> y, variance = interval([8.04], [11.96])
        >>> y.round(2), variance.round(2)
        (array([10.]), array([1.]))
    """
    below, above = to_tensor("low", low), to_tensor("high", high)
    if below.shape != above.shape:
        raise ValueError(
            f"low and high must be of one shape; found {tuple(below.shape)} and "
            f"{tuple(above.shape)}"
        )
    validation.all_elements("high", above, ~(above < below), "at least as large as low")
    half = (above.double() - below.double()) / 2
    sources = {"low": below, "high": above}
    return _pair(low, (below + above) / 2, (half / _quantile(level)) ** 2, sources, half)


@helps_with("error-bars")
def asymmetric(
    y: Any, minus: Any, plus: Any, *, level: float = 0.6827, centre: str = "median"
) -> NoisyLabels:
    r"""A value whose error bars differ, y₋ₘ⁺ᵖ: the mean and variance of what they say of the truth.

    Mostly y is a median, and the ends are percentiles, of which as many of the truth's values lie
    below as above. With z the normal quantile of (1 + level)/2, the truth is then taken to be
    :math:`y + sZ + bZ^2` of a standard normal Z, with :math:`s = (p + m)/2z` and
    :math:`b = (p - m)/2z^2`, which has just these percentiles, and

    .. math:: \text{mean} = y + b, \qquad \text{variance} = s^2 + 2b^2.

    If y is a mode, the likeliest value, with a normal fall to each side of its own, as a fit by
    likelihood gives it, then with :math:`\sigma_- = m/z` and :math:`\sigma_+ = p/z`

    .. math:: \text{mean} = y + \sqrt{2/\pi}\,(\sigma_+ - \sigma_-), \qquad
              \text{variance} = (1 - 2/\pi)(\sigma_+ - \sigma_-)^2 + \sigma_+ \sigma_-.

    The label to learn is that mean, and not y: a squared error is lowest at means.

    Two percentiles do not determine the tails. For a median and ends at 68 % the variance is right
    to 15 % for lognormal noise with σ up to .4 and for gamma noise, the exponential distribution
    included; **for strongly skewed noise with a heavy tail it is too small**: by a factor of 1.5
    for a lognormal distribution with σ = .7 (p = 2m) and of 2.4 with σ = 1 (p = 2.7m). If error
    bars are equal in the logarithm, as those of a ratio, take logarithms instead and learn those,
    which is exact for lognormal noise. If you have the samples that the error bars were made from,
    use :func:`samples`.

    Args:
        y: Values, of any shape.
        minus: m, how far the lower end is below y, >= 0, as y.
        plus: p, how far the upper end is above y, >= 0, as y.
        level: Probability that the truth lies between the ends; by default that of one σ.
        centre: What y is: "median" or "mode".

    Returns:
        y, the means, and variance, of the shape of `y`. Where an end is infinite, as that of a
        limit, y stays and the variance is infinite: a label to ignore.

    Identities: equal ones are :func:`plus_minus` at that level; exchanging `minus` and `plus`
    leaves the variance as it is and turns the shift round.

    Example:
        >>> y, variance = asymmetric([0.80], [0.08], [0.14])
        >>> y.round(3), variance.round(4)
        (array([0.83]), array([0.0139]))
    """
    value, below, above = to_tensor("y", y), to_tensor("minus", minus), to_tensor("plus", plus)
    for name, one in (("minus", below), ("plus", above)):
        _non_negative(name, one)
        if one.shape != value.shape:
            raise ValueError(
                f"{name} must have the shape of y, {tuple(value.shape)}; found {tuple(one.shape)}"
            )
    if centre not in ("median", "mode"):
        raise ValueError(f"centre must be 'median' or 'mode'; found {centre!r}")
    z = _quantile(level)
    m, p = below.double() / z, above.double() / z
    if centre == "median":
        shift = (p - m) / (2 * z)
        variance = (p + m).square() / 4 + 2 * shift.square()
    else:
        shift = math.sqrt(2 / math.pi) * (p - m)
        variance = (1 - 2 / math.pi) * (p - m).square() + p * m
    limit = m.isinf() | p.isinf()
    mean = value + torch.where(limit, 0.0, shift).to(value.dtype)
    sources = {"y": value, "minus": below, "plus": above}
    return _pair(y, mean, torch.where(limit, math.inf, variance), sources, below + above)


@helps_with("error-bars")
def samples(values: Any, axis: int = -1) -> NoisyLabels:
    r"""Monte-Carlo samples of the label: their mean, and how far the truth may be from it.

    The truth is taken for one more draw from the distribution that the samples are of (a posterior,
    an ensemble, runs of a simulator). Of n samples with variance s²,

    .. math:: \operatorname{variance} = s^2 \left(1 + \frac{1}{n}\right) \frac{n-1}{n-3}

    which is s² for many samples. The factors account for the errors of the mean and of s², and make
    (y − truth)²/variance one on average, however much the labels differ in their spread. For few
    samples, whose s² is often small by chance, this takes a variance that is **larger than the mean
    squared error**: on average by a factor of 3 for four samples, 2 for five, 1.4 for eight and
    1.04 for fifty. Where labels spread alike, :func:`ensemble` with variances of 0 avoids that by
    shrinking s² towards their common variance. Where the *mean* of the distribution is the truth,
    and the samples are noisy measurements of it, use :func:`repeats`.

    Args:
        values: (..., samples), four at least.
        axis: Which axis the samples are along.

    Returns:
        y and variance, of the shape of `values` without that axis.

    Identity: adding a number to the samples adds it to y, and scaling them by c scales y by c and
    the variance by c².

    Example:
        >>> samples([[1.0, 2.0, 3.0, 4.0, 5.0]]).y
        array([3.])
    """
    tensor = to_tensor("values", values)
    count = _count("values", tensor, axis, FEWEST_SAMPLES)
    spread = tensor.double().var(dim=axis, correction=1)
    factor = (1 + 1 / count) * (count - 1) / (count - 3)
    sources = {"values": _largest(tensor, axis)}
    return _pair(values, tensor.mean(dim=axis), spread * factor, sources, _width(tensor, axis))


@helps_with("error-bars")
def ensemble(
    means: Any, variances: Any = None, axis: int = 0, *, correlation: float = 0.0
) -> NoisyLabels:
    r"""Predictions of an ensemble, with or without a variance of each member: a mixture.

    The truth is taken to be drawn by one more member like these. Its variance is the mean of the
    members' variances plus the spread of their means, by the law of total variance:

    .. math:: \operatorname{variance} = \frac{1}{M} \sum_m \sigma_m^2
              + \left(\frac{1 + r}{1 - r} + \frac{1}{M}\right) \tilde s^2

    with r the `correlation`, 0 by default, and s̃² the variance between members. The sample variance
    s² of two or three means is worth little, so that s̃² is shrunk towards what all labels of the
    call have in common, with a correction for what remains uncertain, as in :func:`repeats`: with
    M − 1 degrees of freedom per label. Without variances the result is that of :func:`samples`,
    which corrects each label by itself, and needs four members.

    **Correlated members.** Members that were trained on the same data, or share an architecture,
    share part of their errors, and agree with each other better than with the truth. Their spread
    does not show it: the variance for the default correlation of 0 is then too small, for five
    members by a factor of 2.7 at r = .5 and 16 at r = .9 where their own variances are 0, and of
    2.4 and 9 where these are a tenth of what independent members would spread by. r is the
    correlation of the members' means about the mean of the distribution that the truth is drawn
    from; the errors of two members then have a correlation of (1 + r)/2, their own variances apart.
    It cannot be told from the ensemble: with some held-out true labels, choose r such that
    (y − truth)²/variance is 1 on average.

    Args:
        means: (members, ...), two at least.
        variances: σ_m², as `means`; or None.
        axis: Which axis the members are along.
        correlation: r, of the members with each other, in [0, 1).

    Returns:
        y and variance, of the shape of `means` without that axis.

    Identities: without variances and correlation, :func:`samples`; if all members agree on every
    label, the mean of their variances; a correlation of 1/3 makes the second term (2 + 1/M) s̃².

    Example:
        >>> y, variance = ensemble([[1.0, 4.0], [3.0, 6.0]], [[0.5, 0.5], [1.5, 1.5]])
        >>> y, variance
        (array([2., 5.]), array([7., 7.]))
    """
    tensor = to_tensor("means", means)
    r = validation.real_number("correlation", correlation, validation.Range(0.0, limit=1.0))
    if variances is None:
        drawn = samples(tensor, axis)
        count = tensor.shape[axis]
        factor = ((1 + r) / (1 - r) + 1 / count) / (1 + 1 / count)
        sources = {"means": _largest(tensor, axis)}
        return _pair(means, drawn.y, drawn.variance * factor, sources, _width(tensor, axis))
    own = to_tensor("variances", variances)
    if own.shape != tensor.shape:
        raise ValueError(
            f"variances must have the shape of means, {tuple(tensor.shape)}; "
            f"found {tuple(own.shape)}"
        )
    _non_negative("variances", own)
    count = _count("means", tensor, axis, 2)
    spread = _shrunk(tensor.double().var(dim=axis, correction=1), count - 1)
    variance = own.double().mean(dim=axis) + ((1 + r) / (1 - r) + 1 / count) * spread
    sources = {"means": _largest(tensor, axis), "variances": _largest(own, axis)}
    positive = torch.maximum(_width(tensor, axis).double(), _largest(own, axis).double())
    return _pair(means, tensor.mean(dim=axis), variance, sources, positive)


def _shrunk(spread: Tensor, freedom: int) -> Tensor:
    """Sample variances of equal degrees of freedom, moderated; NaN and infinity stay."""
    known = spread.isfinite()
    if not spread[known].any():
        return spread
    squares = freedom * spread[known].detach().cpu().numpy()
    result = spread.clone()
    result[known] = torch.from_numpy(_moderated(squares, np.full(len(squares), freedom))).to(spread)
    return result


@helps_with("error-bars")
def posterior(states: Any, component: int | Sequence[float] = 0) -> NoisyLabels:
    r"""What a filter or smoother believes: a component of its mean, and the variance of that.

    With mean m and covariance P of a state, and weights h, y = h·m and variance = hᵀPh. It is
    calibrated if the filter is: with the right model and noise. Labels of one track are correlated,
    which no loss over single labels knows of: they are worth less than as many apart.

    Args:
        states: A state, or a sequence of them: objects with a mean (`mean`, `x` or `loc`) and a
            covariance (`covariance`, `covariance_matrix`, `cov` or `P`), or pairs of the two.
        component: Which number of the state is the label; or weights, of several together.

    Returns:
        y and variance, (states,); two numbers for a single state.

    Identities: a component is a weight of 1 there and 0 elsewhere; scaling the weights by c scales
    y by c and the variance by c².

    Example:
        >>> state = (np.array([3.0, 1.0]), np.array([[4.0, 0.0], [0.0, 9.0]]))
        >>> posterior([state, state], component=1)
        NoisyLabels(y=array([1., 1.]), variance=array([9., 9.]))
    """
    one = _is_state(states)
    pairs = [_state(state) for state in ([states] if one else states)]
    if not pairs:
        raise ValueError("states must not be empty")
    labels, variances = [], []
    for mean, covariance in pairs:
        h = _weights(component, len(mean))
        with np.errstate(over="ignore", invalid="ignore"):
            labels.append(float(h @ mean))
            variances.append(float(h @ covariance @ h))
        if not math.isfinite(labels[-1] + variances[-1]):
            raise ValueError(
                "means and covariances must be such that labels and variances are finite; found "
                f"y = {labels[-1]:g} with variance {variances[-1]:g} in state {len(labels) - 1}"
            )
    if min(variances) < 0:
        row = int(np.argmin(variances))
        raise ValueError(
            f"covariances must not be negative; found a variance of {variances[row]:g} in state "
            f"{row}"
        )
    if one:
        return NoisyLabels(np.float64(labels[0]), np.float64(variances[0]))
    return NoisyLabels(np.array(labels), np.array(variances))


def _is_state(states: Any) -> bool:
    if isinstance(states, tuple) and len(states) == 2 and not _is_state(states[0]):
        shapes = [np.ndim(part) for part in states]
        return shapes in ([1, 2], [0, 0], [2, 2])
    return any(hasattr(states, name) for name in COVARIANCES)


def _state(state: Any) -> tuple[Array, Array]:
    if isinstance(state, tuple) and len(state) == 2:
        mean, covariance = state
    else:
        found = [
            next((getattr(state, n) for n in names if hasattr(state, n)), None)
            for names in (MEANS, COVARIANCES)
        ]
        if found[0] is None or found[1] is None:
            raise TypeError(
                f"a state must have a mean ({', '.join(MEANS)}) and a covariance "
                f"({', '.join(COVARIANCES)}), or be a pair of them; "
                f"found {validation.describe(state)}"
            )
        mean, covariance = found
    m = real_numbers("mean", mean).reshape(-1)  # a column vector, in some libraries
    p = np.atleast_2d(real_numbers("covariance", covariance))
    if p.shape != (len(m), len(m)):
        raise ValueError(
            f"a covariance must have shape ({len(m)}, {len(m)}), as its mean has {len(m)} numbers; "
            f"found {p.shape}"
        )
    return m, p


def _weights(component: int | Sequence[float], size: int) -> Array:
    if np.ndim(component) == 0:
        place = validation.integer("component", component, at_least=-size)
        if place >= size:
            raise ValueError(f"component must be one of {size}, from 0 on; found {place}")
        one: Array = np.eye(size)[place]
        return one
    h = real_numbers("component", component)
    if h.shape != (size,):
        raise ValueError(f"component must be a number or {size} weights; found shape {h.shape}")
    return h


@helps_with("error-bars")
def poll(
    share: Any, count: Any, *, population: float | None = None, design_effect: float = 1.0
) -> NoisyLabels:
    r"""Polls: a share of those asked, and its sampling variance.

    .. math:: \operatorname{variance} = \frac{p(1-p)}{m}\left(1-\frac{n}{N}\right),
              \qquad m = \frac{n}{\mathrm{deff}},
              \qquad p = \frac{m \cdot \mathrm{share} + 1}{m + 2}

    where m is the effective sample size. The p of the variance is Laplace's estimate, which is
    shrunk towards one half so that a share of 0 or 1 in a small sample is not taken for certain.
    Errors that do not depend on the sample size (who answers, how the question is asked) are not
    included.

    Args:
        share: In [0, 1], of any shape.
        count: n, how many were asked, as `share` or one number.
        population: N, how many there are in all, if those asked are not few of them.
        design_effect: deff, the factor by which clusters or weights increase the variance over that
            of a simple random sample; 1 or more.

    Returns:
        y, the share, and variance, of the shape of `share`.

    Identities: a share and one less it have the same variance; it is 0 where all were asked;
    without a population, n answers with a design effect d are worth n/d answers without one.

    Example:
        >>> poll([0.5, 0.0], [98, 8]).variance.round(5)
        array([0.00255, 0.01125])
    """
    p, n = to_tensor("share", share), to_tensor("count", count).double()
    validation.all_elements("share", p, (p >= 0) & (p <= 1), "in [0, 1]")
    validation.all_elements("count", n, (n > 0) & n.isfinite(), "positive and finite")
    effect = validation.real_number("design_effect", design_effect, validation.Range(1.0))
    effective = n / effect
    towards_half = (effective * p.double() + 1) / (effective + 2)
    variance = towards_half * (1 - towards_half) / effective
    if population is not None:
        validation.real_number("population", population, validation.POSITIVE)
        validation.all_elements(
            "count", n, n <= population, f"at most the population, {population:g}"
        )
        variance = variance * (1 - n / population)
    return _pair(share, p, variance, {"share": p, "count": n})


@helps_with("error-bars")
def counts(events: Any, exposure: Any = 1.0) -> NoisyLabels:
    r"""Counts: the rate of a Poisson process, events over exposure.

    variance = (k + 1)/exposure²: of k events, k is what the variance is estimated by, and one more
    keeps 0 events from being certain (its mean of (k − λ)²/(k + 1) is 1 + 1/λ for λ that are not
    small, while k alone gives infinity).

    Args:
        events: k, 0 or more, of any shape.
        exposure: Time, area or trials behind each, as `events` or one number.

    Returns:
        y and variance, of the shape of `events`.

    Identity: scaling the exposure by c divides y by c and the variance by c².

    Example:
        >>> counts([24.0, 0.0], exposure=2.0)
        NoisyLabels(y=array([12.,  0.]), variance=array([6.25, 0.25]))
    """
    k, time = _events("events", events), _positive("exposure", exposure)
    variance = (k.double() + 1) / time.double() ** 2
    return _pair(events, k / time, variance, {"events": k, "exposure": time}, time)


@helps_with("error-bars")
def log_counts(events: Any, exposure: Any = 1.0) -> NoisyLabels:
    r"""The logarithm of a Poisson rate, by the delta method.

    y = log((k + ½)/exposure), variance = 1/(k + ½), as the derivative of the logarithm is 1/λ and
    the variance λ. The half takes out most of the bias, and keeps 0 events finite; below some five
    events it is rough.

    Args:
        events: k, 0 or more, of any shape.
        exposure: As for :func:`counts`.

    Returns:
        y and variance, of the shape of `events`.

    Identity: scaling the exposure by c takes log c off y, and leaves the variance.

    Example:
        >>> log_counts([99.5]).variance
        array([0.01])
    """
    k, time = _events("events", events), _positive("exposure", exposure)
    y, variance = ((k + 0.5) / time).log(), 1 / (k.double() + 0.5)
    return _pair(events, y, variance, {"events": k, "exposure": time}, time)


@helps_with("error-bars")
def log_count_ratio(events: Any, others: Any) -> NoisyLabels:
    r"""The logarithm of the ratio of two counts, by the delta method.

    y = log((a + ½)/(b + ½)), variance = 1/(a + ½) + 1/(b + ½): enrichment scores, odds, relative
    rates. Exponentials of labels with large variances are far from symmetric: learn the logarithm.

    Args:
        events: a, 0 or more, of any shape.
        others: b, as `events`.

    Returns:
        y and variance, of the shape of `events`.

    Identities: y is the difference of the two :func:`log_counts`, and the variance their sum;
    exchanged counts change its sign alone.

    Example:
        >>> y, variance = log_count_ratio([19.5], [19.5])
        >>> y, variance
        (array([0.]), array([0.1]))
    """
    a, b = _events("events", events), _events("others", others)
    variance = 1 / (a.double() + 0.5) + 1 / (b.double() + 0.5)
    y, sources = ((a + 0.5) / (b + 0.5)).log(), {"events": a, "others": b}
    return _pair(events, y, variance, sources, variance)


@helps_with("error-bars")
def count_ratio(events: Any, others: Any) -> NoisyLabels:
    r"""The ratio of two counts a/b, by the delta method.

    .. math:: y = \frac{a}{b}, \qquad \operatorname{variance} =
              \left(\frac{a+2}{b}\right)^2
              \left(\frac{1}{a+2} + \frac{1}{b} + \frac{1}{b^2}\right)

    This is (a/b)²(1/a + 1/b) with a correction for small counts: a is increased by two, and the
    expansion of 1/b has one more term. The mean of (y − truth)²/variance is .78 for two counts with
    expectation 5, .92 at 10 and .99 at 50, and at most 1.06 if both expectations are 5 or more.
    With an expectation of 2 in the denominator it can be 1.42. The ratio itself is biased upwards,
    by 29 % where b is expected to be 5, 13 % at 10 and 6 % at 20: for b below twenty, the logarithm
    (:func:`log_count_ratio`) is the better label.

    Args:
        events: a, 0 or more, of any shape.
        others: b, more than 0, as `events`.

    Returns:
        y and variance, of the shape of `events`.

    Identity: for large counts, the squared ratio times the variance of its logarithm, that of
    :func:`log_count_ratio`.

    Example:
        >>> count_ratio([100.0], [100.0]).y
        array([1.])
    """
    a, b = _events("events", events), _events("others", others)
    validation.all_elements("others", b, b > 0, "positive")
    up, down = a.double() + 2, b.double()
    variance = (up / down) ** 2 * (1 / up + 1 / down + 1 / down**2)
    return _pair(events, a / b, variance, {"events": a, "others": b}, b)


@helps_with("error-bars")
def bootstrapped(
    reward: Any,
    next_value: Any,
    next_variance: Any,
    *,
    gamma: float,
    terminal: Any = None,
    reward_variance: Any = None,
) -> NoisyLabels:
    r"""Bootstrapped targets of reinforcement learning: r + γV(s′), and γ² times V's variance.

    .. math:: y = r + \gamma V, \qquad
              \operatorname{variance} = \gamma^2 \sigma_V^2 + \sigma_r^2

    After a terminal state nothing follows: y = r, and the variance is that of the reward, 0 if it
    is known. A variance of 0 makes such a label the most trusted of its batch.

    The variance is that of V(s′) for the s′ that was reached. **Where chance decides on s′**, the
    target scatters about its mean by that too, and of the targets of one state and action those
    count more that led to where critics are sure: what is learned is then no longer the mean over
    the chances. If you can tell how far targets of a state and action scatter, add it by
    `reward_variance`, or give all of them one variance; ``examples/bootstrapped_targets.py`` shows
    the harm, and what averaging does for it.

    Args:
        reward: r, of any shape, (N,) say.
        next_value: V, what a critic, or the mean of several, says of the next state; as `reward`.
        next_variance: σ_V², of that, as `reward`: of several critics, see :func:`ensemble`.
        gamma: γ, the discount, in (0, 1].
        terminal: Whether the episode ended, truth values or 0 and 1, as `reward`; None if it never
            did. What a critic says of a terminal state is not looked at.
        reward_variance: σ_r², of the reward, if it is noisy, and of whatever else targets scatter
            by; as `reward`.

    Returns:
        y and variance, of the shape of `reward`.

    Identities: γ = 1 gives r + V and V's variance; a terminal state gives r and `reward_variance`,
    or 0.

    Example:
        >>> y, variance = bootstrapped([1.0, 1.0], [10.0, 10.0], [4.0, 4.0], gamma=0.5,
        ...                            terminal=[False, True])
        >>> y, variance
        (array([6., 1.]), array([1., 0.]))
    """
    r, value = to_tensor("reward", reward), to_tensor("next_value", next_value)
    v = to_tensor("next_variance", next_variance)
    for name, tensor in (("next_value", value), ("next_variance", v)):
        if tensor.shape != r.shape:
            raise ValueError(
                f"{name} must have the shape of reward, {tuple(r.shape)}; "
                f"found {tuple(tensor.shape)}"
            )
    discount = validation.real_number(
        "gamma", gamma, validation.Range(0.0, limit=1.0, open_below=True, closed=True)
    )
    ends = torch.zeros(r.shape, dtype=torch.bool, device=r.device)
    if terminal is not None:
        given = terminal if isinstance(terminal, Tensor) else np.array(terminal)  # may be read-only
        ends = torch.as_tensor(given, device=r.device).bool()
        if ends.shape != r.shape:
            raise ValueError(
                f"terminal must have the shape of reward, {tuple(r.shape)}; "
                f"found {tuple(ends.shape)}"
            )
    v = torch.where(ends, 0.0, v)
    _non_negative("next_variance", v)
    value = torch.where(ends, 0.0, value)
    y, variance = r + discount * value, discount**2 * v.double()
    sources = {"reward": r, "next_value": value, "next_variance": v}
    if reward_variance is not None:
        own = to_tensor("reward_variance", reward_variance)
        _non_negative("reward_variance", own)
        variance, sources = variance + own, sources | {"reward_variance": own}
    return _pair(reward, y, variance, sources, v)


def _pair(
    given: Any,
    y: Tensor,
    variance: Tensor,
    sources: dict[str, Tensor],
    positive: Tensor | None = None,
) -> NoisyLabels:
    """As they were given: tensors of their dtype, or arrays of float64.

    Args:
        given: What to be like.
        y: Labels.
        variance: Of their errors.
        sources: What these were computed from: where all is finite, so must they be. An infinite
            variance stands for a label to ignore, and none may become one by an overflow.
        positive: Above 0 where the variance must be: one of 0 stands for a label to trust.
    """
    if variance.ndim:
        validation.same_shape("the error bars", variance, "the labels", y)
    variance = variance.expand(y.shape)
    if isinstance(given, Tensor):
        variance = variance.to(y.dtype)
    lost = ~(y.isfinite() & variance.isfinite())
    for source in sources.values():
        lost = lost & source.isfinite()
    if positive is not None:
        lost = lost | ((positive > 0) & (variance == 0))
    if bool(lost.any()):
        place = tuple(lost.nonzero()[0].tolist())
        raise ValueError(
            f"{' and '.join(sources)} must give labels and variances that {variance.dtype} has "
            f"room for; found y = {y[place]:g} with variance {variance[place]:g} at index {place}: "
            "choose another unit or a wider dtype"
        )
    if isinstance(given, Tensor):
        return NoisyLabels(y, variance)
    return NoisyLabels(like(given, y.double()), like(given, variance.contiguous()))


def _largest(values: Tensor, axis: int) -> Tensor:
    return values.abs().amax(dim=axis)


def _width(values: Tensor, axis: int) -> Tensor:
    return values.amax(dim=axis) - values.amin(dim=axis)


def _quantile(level: float) -> float:
    """Of a standard normal distribution: within ± this much of 0 with this probability."""
    share = float(validation.real_number("level", level, UNIT))
    half = torch.tensor((1 + share) / 2, dtype=torch.float64)
    quantile = float(torch.special.ndtri(half))
    if share < LEAST_LEVEL or math.isinf(quantile):
        raise ValueError(
            f"level must be at least {LEAST_LEVEL:g}, and below 1 by 1e-15 or more; found "
            f"{share:.17g}"
        )
    return quantile


def _count(name: str, values: Tensor, axis: int, least: int) -> int:
    if not -values.ndim <= axis < values.ndim:
        raise ValueError(f"axis must be one of {name}, {values.ndim}; found {axis}")
    if values.shape[axis] < least:
        raise ValueError(
            f"{name} must be {least} or more along axis {axis}; found {values.shape[axis]}"
        )
    return values.shape[axis]


def _non_negative(name: str, values: Tensor) -> None:
    validation.all_elements(name, values, values >= 0, "non-negative and not NaN")


def _events(name: str, values: Any) -> Tensor:
    tensor = to_tensor(name, values)
    good = (tensor >= 0) & tensor.isfinite()
    validation.all_elements(name, tensor, good, "non-negative and finite")
    return tensor


def _positive(name: str, values: Any) -> Tensor:
    tensor = to_tensor(name, values)
    good = (tensor > 0) & tensor.isfinite()
    validation.all_elements(name, tensor, good, "positive and finite")
    return tensor
