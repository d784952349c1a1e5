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

LEAST_LEVEL = 1e-6  # smallest level: float64 holds (1 + level)/2 with ten digits of the level
UNIT = validation.Range(0.0, limit=1.0, open_below=True)


@errors_point_to("error-bars")
def plus_minus(y: Any, half_width: Any, *, level: float | None = None) -> NoisyLabels:
    r"""Return labels from values written as y ± h.

    With a level, the error is normal and within ±h with that probability:

    .. math:: \operatorname{variance} = (h/z)^2

    where z is the normal quantile of (1 + level)/2. ``level=0.6827`` means that h is one standard
    deviation. Without a level, the truth is uniformly distributed within ±h, as for a reading off a
    scale or a rounded number: variance = h²/3.

    Parameters
    ----------
    y : array-like of any shape
        Values, in label units.
    half_width : array-like of the shape of `y`, or float
        h, the number after the ±, in label units, >= 0. An infinite h makes a label to ignore.
    level : float in (0, 1) or None, default=None
        Probability that the truth lies within ±h. None means that it certainly does, at any place
        with equal probability. Set it if the source of the data states one, such as 0.95.

    Returns
    -------
    NoisyLabels
        y as it was given, and `variance` in squared label units. Both have the shape of `y`.

    Raises
    ------
    ValueError
        `half_width` is negative or NaN, has another shape than `y`, or is so large or small that
        the dtype cannot hold its square. Or `level` is not in (0, 1).

    Notes
    -----
    A level of erf(√½) = 0.6827, one standard deviation, gives h². No level gives (2h)²/12, the
    variance of a uniform distribution.

    Examples
    --------
    >>> import biv
    >>> biv.labels.plus_minus([10.0], [2.0], level=0.6827).variance.round(3)
    array([4.])
    >>> biv.labels.plus_minus([10.0], 0.5).variance.round(4)
    array([0.0833])
    """
    values, half = to_tensor("y", y), to_tensor("half_width", half_width)
    require_non_negative("half_width", half)
    factor = 1.0 / 3.0 if level is None else 1.0 / _quantile(level) ** 2
    return pair(y, values, half.double() ** 2 * factor, {"y": values, "half_width": half}, half)


@errors_point_to("error-bars")
def interval(low: Any, high: Any, *, level: float = 0.95) -> NoisyLabels:
    r"""Return labels from confidence intervals: their midpoints, and variances from their widths.

    .. math:: \operatorname{variance} = \left(\frac{\mathrm{high} - \mathrm{low}}{2z}\right)^2

    where z is the normal quantile of (1 + level)/2, 1.96 for 95%. Intervals of a ratio or of
    another positive number are often symmetric in the logarithm. If so, first take the
    logarithm of both ends, and learn the logarithm.

    Parameters
    ----------
    low : array-like of any shape
        Lower ends, in label units.
    high : array-like of the shape of `low`
        Upper ends, in label units, at least as large as `low`.
    level : float in (0, 1), default=0.95
        Probability that the truth lies between the ends. Change it if the intervals were made for
        another level, such as 0.9.

    Returns
    -------
    NoisyLabels
        y, the midpoints, and `variance` in squared label units. Both have the shape of `low`.

    Raises
    ------
    ValueError
        The shapes differ, an upper end is below its lower end, or `level` is not in (0, 1).

    Notes
    -----
    The result is that of :func:`plus_minus` for the midpoint and half the width, at that level.

    Examples
    --------
    >>> import biv
    >>> y, variance = biv.labels.interval([8.04], [11.96])
    >>> y.round(2), variance.round(2)
    (array([10.]), array([1.]))
    """
    below, above = to_tensor("low", low), to_tensor("high", high)
    if below.shape != above.shape:
        raise ValueError(
            f"low and high must have the same shape; got {tuple(below.shape)} and "
            f"{tuple(above.shape)}"
        )
    validation.check_elements("high", above, ~(above < below), "at least as large as low")
    half = (above.double() - below.double()) / 2
    sources = {"low": below, "high": above}
    return pair(low, (below + above) / 2, (half / _quantile(level)) ** 2, sources, half)


@errors_point_to("error-bars")
def asymmetric(
    y: Any, minus: Any, plus: Any, *, level: float = 0.6827, centre: str = "median"
) -> NoisyLabels:
    r"""Return labels from values with two different error bars, y₋ₘ⁺ᵖ.

    The label is the mean of the truth's distribution, and not y itself, because a squared error is
    lowest at the mean. The variance is the variance of that distribution. Two readings of y are
    possible.

    If y is a median (the usual case), the ends are percentiles, with equal probability below the
    lower end and above the upper end. The truth is taken to be :math:`y + sZ + bZ^2` for a standard
    normal Z, with :math:`s = (p + m)/2z` and :math:`b = (p - m)/2z^2`, where z is the normal
    quantile of (1 + level)/2. This distribution has exactly these percentiles, and

    .. math:: \text{mean} = y + b, \qquad \text{variance} = s^2 + 2b^2.

    If y is a mode, the likeliest value, as a likelihood fit gives it, the density on each side
    is half a Gaussian, with :math:`\sigma_- = m/z` and :math:`\sigma_+ = p/z`, and

    .. math:: \text{mean} = y + \sqrt{2/\pi}\,(\sigma_+ - \sigma_-), \qquad
              \text{variance} = (1 - 2/\pi)(\sigma_+ - \sigma_-)^2 + \sigma_+ \sigma_-.

    Parameters
    ----------
    y : array-like of any shape
        Values, in label units.
    minus : array-like of the shape of `y`
        m, the distance from y down to the lower end, in label units, >= 0.
    plus : array-like of the shape of `y`
        p, the distance from y up to the upper end, in label units, >= 0.
    level : float in (0, 1), default=0.6827
        Probability that the truth lies between the ends. The default is that of one standard
        deviation. Change it if the ends are other percentiles, such as 0.9 for 5% and 95%.
    centre : {"median", "mode"}, default="median"
        Meaning of y. Choose "mode" if y is the value of the highest likelihood.

    Returns
    -------
    NoisyLabels
        y, the means, and `variance` in squared label units. Both have the shape of `y`. Where an
        end is infinite, as for an upper limit, y is kept and the variance is infinite, which
        makes it a label to ignore.

    Raises
    ------
    ValueError
        The shapes differ, `minus` or `plus` is negative or NaN, or `level` or `centre` is invalid.

    Notes
    -----
    Equal error bars give the result of :func:`plus_minus` at that level. Exchanging `minus` and
    `plus` keeps the variance and reverses the sign of the shift from y.

    Two percentiles do not determine the tails. For a median and ends at 68%, the variance is right
    to 15% for lognormal noise with σ up to 0.4 and for gamma noise, including the exponential
    distribution. **For strongly skewed noise with a heavy tail it is too small**: by a factor of
    1.5 for a lognormal distribution with σ = 0.7 (p = 2m), and of 2.4 with σ = 1 (p = 2.7m). If the
    error bars are equal in the logarithm, as those of a ratio, learn the logarithm instead, which
    is exact for lognormal noise. If you have the samples that the error bars were made from, use
    :func:`samples`.

    Examples
    --------
    >>> import biv
    >>> y, variance = biv.labels.asymmetric([0.80], [0.08], [0.14])
    >>> y.round(3), variance.round(4)
    (array([0.83]), array([0.0139]))
    """
    value, below, above = to_tensor("y", y), to_tensor("minus", minus), to_tensor("plus", plus)
    for name, tensor in (("minus", below), ("plus", above)):
        require_non_negative(name, tensor)
        if tensor.shape != value.shape:
            raise ValueError(
                f"{name} must have the shape of y, {tuple(value.shape)}; got {tuple(tensor.shape)}"
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
    unlimited = m.isinf() | p.isinf()
    mean = value + torch.where(unlimited, 0.0, shift).to(value.dtype)
    sources = {"y": value, "minus": below, "plus": above}
    return pair(y, mean, torch.where(unlimited, math.inf, variance), sources, below + above)


def _quantile(level: float) -> float:
    """Return z such that a standard normal variable is within ±z with probability `level`."""
    probability = float(validation.real_number("level", level, UNIT))
    upper = torch.tensor((1 + probability) / 2, dtype=torch.float64)
    quantile = float(torch.special.ndtri(upper))
    if probability < LEAST_LEVEL or math.isinf(quantile):
        raise ValueError(
            f"level must be at least {LEAST_LEVEL:g}, and below 1 by 1e-15 or more; got "
            f"{probability:.17g}"
        )
    return quantile
