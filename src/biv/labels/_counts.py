"""Labels from polls and counts."""

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
    validation.check_elements("share", p, (p >= 0) & (p <= 1), "in [0, 1]")
    validation.check_elements("count", n, (n > 0) & n.isfinite(), "positive and finite")
    effect = validation.real_number("design_effect", design_effect, validation.Range(1.0))
    effective = n / effect
    towards_half = (effective * p.double() + 1) / (effective + 2)
    variance = towards_half * (1 - towards_half) / effective
    if population is not None:
        validation.real_number("population", population, validation.POSITIVE)
        validation.check_elements(
            "count", n, n <= population, f"at most the population, {population:g}"
        )
        variance = variance * (1 - n / population)
    return pair(share, p, variance, {"share": p, "count": n})


@errors_point_to("error-bars")
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
    return pair(events, k / time, variance, {"events": k, "exposure": time}, time)


@errors_point_to("error-bars")
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
    return pair(events, y, variance, {"events": k, "exposure": time}, time)


@errors_point_to("error-bars")
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
    return pair(events, y, variance, sources, variance)


@errors_point_to("error-bars")
def count_ratio(events: Any, others: Any) -> NoisyLabels:
    r"""The ratio of two counts a/b, by the delta method.

    .. math:: y = \frac{a}{b}, \qquad \operatorname{variance} =
              \left(\frac{a+2}{b}\right)^2
              \left(\frac{1}{a+2} + \frac{1}{b} + \frac{1}{b^2}\right)

    This is (a/b)²(1/a + 1/b) with a correction for small counts: a is increased by two, and the
    expansion of 1/b has one more term. The mean of (y − truth)²/variance is 0.78 for two counts
    with expectation 5, 0.92 at 10 and 0.99 at 50, and at most 1.06 if both expectations are 5 or
    more. If the denominator has an expectation of 2, it can be 1.42. The ratio itself is biased
    upwards, by 29% if b has an expectation of 5, 13% at 10 and 6% at 20. For b below 20, the
    logarithm (:func:`log_count_ratio`) is the better label.

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
    validation.check_elements("others", b, b > 0, "positive")
    up, down = a.double() + 2, b.double()
    variance = (up / down) ** 2 * (1 / up + 1 / down + 1 / down**2)
    return pair(events, a / b, variance, {"events": a, "others": b}, b)


def _events(name: str, values: Any) -> Tensor:
    tensor = to_tensor(name, values)
    good = (tensor >= 0) & tensor.isfinite()
    validation.check_elements(name, tensor, good, "non-negative and finite")
    return tensor


def _positive(name: str, values: Any) -> Tensor:
    tensor = to_tensor(name, values)
    good = (tensor > 0) & tensor.isfinite()
    validation.check_elements(name, tensor, good, "positive and finite")
    return tensor
