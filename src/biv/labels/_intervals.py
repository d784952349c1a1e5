"""Labels from values with a ±, an interval, or unequal error bars."""

from __future__ import annotations

import math
from typing import Any

import torch

from biv._utils import validation
from biv._utils.arrays import to_tensor
from biv._utils.pages import errors_point_to
from biv.labels._noisy_labels import (
    NoisyLabels,
    pair,
    require_non_negative,
)

LEAST_LEVEL = 1e-6  # of an interval; (1 + level)/2 has ten digits of it
UNIT = validation.Range(0.0, limit=1.0, open_below=True)


@errors_point_to("error-bars")
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
    require_non_negative("half_width", half)
    share = 1.0 / 3.0 if level is None else 1.0 / _quantile(level) ** 2
    return pair(y, values, half.double() ** 2 * share, {"y": values, "half_width": half}, half)


@errors_point_to("error-bars")
def interval(low: Any, high: Any, *, level: float = 0.95) -> NoisyLabels:
    r"""A confidence interval's two ends: its middle, and the variance that its width stands for.

    variance = ((high − low)/2z)², z the normal quantile of (1 + level)/2: 1.96 of 95%. Intervals
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
            f"low and high must be of one shape; got {tuple(below.shape)} and {tuple(above.shape)}"
        )
    validation.check_elements("high", above, ~(above < below), "at least as large as low")
    half = (above.double() - below.double()) / 2
    sources = {"low": below, "high": above}
    return pair(low, (below + above) / 2, (half / _quantile(level)) ** 2, sources, half)


@errors_point_to("error-bars")
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

    Two percentiles do not determine the tails. For a median and ends at 68% the variance is right
    to 15% for lognormal noise with σ up to 0.4 and for gamma noise, the exponential distribution
    included; **for strongly skewed noise with a heavy tail it is too small**: by a factor of 1.5
    for a lognormal distribution with σ = 0.7 (p = 2m) and of 2.4 with σ = 1 (p = 2.7m). If error
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
        require_non_negative(name, one)
        if one.shape != value.shape:
            raise ValueError(
                f"{name} must have the shape of y, {tuple(value.shape)}; got {tuple(one.shape)}"
            )
    if centre not in ("median", "mode"):
        raise ValueError(f"centre must be 'median' or 'mode'; got {centre!r}")
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
    return pair(y, mean, torch.where(limit, math.inf, variance), sources, below + above)


def _quantile(level: float) -> float:
    """Of a standard normal distribution: within ± this much of 0 with this probability."""
    share = float(validation.real_number("level", level, UNIT))
    half = torch.tensor((1 + share) / 2, dtype=torch.float64)
    quantile = float(torch.special.ndtri(half))
    if share < LEAST_LEVEL or math.isinf(quantile):
        raise ValueError(
            f"level must be at least {LEAST_LEVEL:g}, and below 1 by 1e-15 or more; got "
            f"{share:.17g}"
        )
    return quantile
