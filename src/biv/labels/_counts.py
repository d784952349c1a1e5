"""Labels from polls and counts of events."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from biv._utils import validation
from biv._utils.arrays import to_tensor
from biv._utils.pages import errors_point_to
from biv.labels._noisy_labels import (
    NoisyLabels,
    pair,
)


@errors_point_to("error-bars")
def poll(
    share: Any, count: Any, *, population: float | None = None, design_effect: float = 1.0
) -> NoisyLabels:
    r"""Return labels from polls: the share of an answer, and its sampling variance.

    .. math:: \operatorname{variance} = \frac{p(1-p)}{m}\left(1-\frac{n}{N}\right),
              \qquad m = \frac{n}{\mathrm{deff}},
              \qquad p = \frac{m \cdot \mathrm{share} + 1}{m + 2}

    where n is `count`, N is `population`, deff is `design_effect`, and m is the effective sample
    size. In the variance, p is Laplace's estimate of the share. It is shrunk towards one half, so
    that a share of 0 or 1 in a small sample is not taken for certain. Errors that do not depend on
    the sample size (who answers, how the question is asked) are not included.

    Parameters
    ----------
    share : array-like of any shape
        Fraction of the respondents who gave the answer, in [0, 1].
    count : array-like of the shape of `share`, or float
        n, the number of respondents.
    population : float or None, default=None
        N, the size of the population. Set it if the respondents are more than a small part of it.
    design_effect : float, default=1.0
        deff, the factor by which clusters or weights increase the variance over that of a simple
        random sample, >= 1. Set it to the value that the pollster publishes.

    Returns
    -------
    NoisyLabels
        y, the share, and `variance`. Both have the shape of `share` and no unit.

    Raises
    ------
    ValueError
        `share` is not in [0, 1], or `count` is not positive or exceeds `population`.

    Notes
    -----
    A share and its complement have the same variance. The variance is 0 if everyone was asked.
    Without a population, n answers with a design effect of d are worth n/d answers without one.

    Examples
    --------
    >>> import biv
    >>> biv.labels.poll([0.5, 0.0], [98, 8]).variance.round(5)
    array([0.00255, 0.01125])
    """
    p, n = to_tensor("share", share), to_tensor("count", count).double()
    validation.check_elements("share", p, (p >= 0) & (p <= 1), "in [0, 1]")
    validation.check_elements("count", n, (n > 0) & n.isfinite(), "positive and finite")
    effect = validation.real_number("design_effect", design_effect, validation.Range(1.0))
    effective = n / effect
    shrunk = (effective * p.double() + 1) / (effective + 2)
    variance = shrunk * (1 - shrunk) / effective
    if population is not None:
        validation.real_number("population", population, validation.POSITIVE)
        validation.check_elements(
            "count", n, n <= population, f"at most the population, {population:g}"
        )
        variance = variance * (1 - n / population)
    return pair(share, p, variance, {"share": p, "count": n})


@errors_point_to("error-bars")
def counts(events: Any, exposure: Any = 1.0) -> NoisyLabels:
    r"""Return labels from counts: the rate of a Poisson process, events per exposure.

    .. math:: y = \frac{k}{\mathrm{exposure}}, \qquad
              \operatorname{variance} = \frac{k + 1}{\mathrm{exposure}^2}

    The variance of k is λ, its expectation, which is estimated by k. The 1 that is added keeps a
    count of 0 from being certain. With it, the mean of (k − λ)²/(k + 1) is 1 + 1/λ unless λ is
    small, while k alone would give infinity.

    Parameters
    ----------
    events : array-like of any shape
        k, the numbers of events, >= 0.
    exposure : array-like of the shape of `events`, or float, default=1.0
        Time, area or number of trials in which the events were counted, > 0. Set it if that differs
        between labels, or to get a rate per unit.

    Returns
    -------
    NoisyLabels
        y, in events per unit of exposure, and `variance`, in the square of that unit. Both have the
        shape of `events`.

    Raises
    ------
    ValueError
        `events` is negative or infinite, or `exposure` is not positive and finite.

    Notes
    -----
    Scaling the exposure by c divides y by c and the variance by c².

    Examples
    --------
    >>> import biv
    >>> biv.labels.counts([24.0, 0.0], exposure=2.0)
    NoisyLabels(y=array([12.,  0.]), variance=array([6.25, 0.25]))
    """
    k, time = _events("events", events), _positive("exposure", exposure)
    variance = (k.double() + 1) / time.double() ** 2
    return pair(events, k / time, variance, {"events": k, "exposure": time}, time)


@errors_point_to("error-bars")
def log_counts(events: Any, exposure: Any = 1.0) -> NoisyLabels:
    r"""Return labels from counts: the logarithm of a Poisson rate, by the delta method.

    .. math:: y = \log \frac{k + 1/2}{\mathrm{exposure}}, \qquad
              \operatorname{variance} = \frac{1}{k + 1/2}

    The derivative of the logarithm is 1/λ and the variance of a count is λ, so that the variance of
    its logarithm is about 1/λ. Adding ½ removes most of the bias and keeps the logarithm of 0
    events finite. Below about five events the approximation is rough.

    Parameters
    ----------
    events : array-like of any shape
        k, the numbers of events, >= 0.
    exposure : array-like of the shape of `events`, or float, default=1.0
        Time, area or number of trials, > 0. Set it as for :func:`counts`.

    Returns
    -------
    NoisyLabels
        y, a natural logarithm, and `variance`, without unit. Both have the shape of `events`.

    Raises
    ------
    ValueError
        `events` is negative or infinite, or `exposure` is not positive and finite.

    Notes
    -----
    Scaling the exposure by c subtracts log c from y and keeps the variance.

    Examples
    --------
    >>> import biv
    >>> biv.labels.log_counts([99.5]).variance
    array([0.01])
    """
    k, time = _events("events", events), _positive("exposure", exposure)
    y, variance = ((k + 0.5) / time).log(), 1 / (k.double() + 0.5)
    return pair(events, y, variance, {"events": k, "exposure": time}, time)


@errors_point_to("error-bars")
def log_count_ratio(events: Any, others: Any) -> NoisyLabels:
    r"""Return labels from two counts: the logarithm of their ratio, by the delta method.

    .. math:: y = \log \frac{a + 1/2}{b + 1/2}, \qquad
              \operatorname{variance} = \frac{1}{a + 1/2} + \frac{1}{b + 1/2}

    Use it for enrichment scores, odds and relative rates. The exponential of a label with a large
    variance is far from symmetric, so let the model learn the logarithm.

    Parameters
    ----------
    events : array-like of any shape
        a, the counts of the numerator, >= 0.
    others : array-like of the shape of `events`
        b, the counts of the denominator, >= 0.

    Returns
    -------
    NoisyLabels
        y, a natural logarithm, and `variance`, without unit. Both have the shape of `events`.

    Raises
    ------
    ValueError
        A count is negative or infinite.

    Notes
    -----
    y is the difference of the two :func:`log_counts`, and the variance is the sum of theirs.
    Exchanging the two counts reverses the sign of y and changes nothing else.

    Examples
    --------
    >>> import biv
    >>> y, variance = biv.labels.log_count_ratio([19.5], [19.5])
    >>> y, variance
    (array([0.]), array([0.1]))
    """
    a, b = _events("events", events), _events("others", others)
    variance = 1 / (a.double() + 0.5) + 1 / (b.double() + 0.5)
    y, sources = ((a + 0.5) / (b + 0.5)).log(), {"events": a, "others": b}
    return pair(events, y, variance, sources, variance)


@errors_point_to("error-bars")
def count_ratio(events: Any, others: Any) -> NoisyLabels:
    r"""Return labels from two counts: their ratio a/b, by the delta method.

    .. math:: y = \frac{a}{b}, \qquad \operatorname{variance} =
              \left(\frac{a+2}{b}\right)^2
              \left(\frac{1}{a+2} + \frac{1}{b} + \frac{1}{b^2}\right)

    This is (a/b)²(1/a + 1/b) with a correction for small counts: a is increased by two, and the
    expansion of 1/b has one more term. For b below 20, :func:`log_count_ratio` gives the better
    label.

    Parameters
    ----------
    events : array-like of any shape
        a, the counts of the numerator, >= 0.
    others : array-like of the shape of `events`
        b, the counts of the denominator, > 0.

    Returns
    -------
    NoisyLabels
        y and `variance`, without unit. Both have the shape of `events`.

    Raises
    ------
    ValueError
        A count is negative or infinite, or a denominator is 0.

    Notes
    -----
    For large counts, the variance is the squared ratio times the variance of
    :func:`log_count_ratio`.

    The mean of (y − truth)²/variance is 0.78 for two counts with expectation 5, 0.92 at 10 and 0.99
    at 50. It is at most 1.06 if both expectations are 5 or more. If the denominator has an
    expectation of 2, it can be 1.42. The ratio itself is biased upwards, by 29% if b has an
    expectation of 5, 13% at 10 and 6% at 20.

    Examples
    --------
    >>> import biv
    >>> y, variance = biv.labels.count_ratio([100.0], [50.0])
    >>> y, variance.round(4)
    (array([2.]), array([0.1257]))
    """
    a, b = _events("events", events), _events("others", others)
    validation.check_elements("others", b, b > 0, "positive")
    up, down = a.double() + 2, b.double()
    variance = (up / down) ** 2 * (1 / up + 1 / down + 1 / down**2)
    return pair(events, a / b, variance, {"events": a, "others": b}, b)


def _events(name: str, values: Any) -> Tensor:
    tensor = to_tensor(name, values)
    valid = (tensor >= 0) & tensor.isfinite()
    validation.check_elements(name, tensor, valid, "non-negative and finite")
    return tensor


def _positive(name: str, values: Any) -> Tensor:
    tensor = to_tensor(name, values)
    valid = (tensor > 0) & tensor.isfinite()
    validation.check_elements(name, tensor, valid, "positive and finite")
    return tensor
