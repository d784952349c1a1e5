"""Labels from samples, and from the predictions of an ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from biv._utils import validation
from biv._utils.arrays import to_tensor
from biv._utils.pages import errors_point_to
from biv.labels._moderation import moderated
from biv.labels._noisy_labels import (
    NoisyLabels,
    count_along,
    largest,
    pair,
    require_non_negative,
    width,
)

MIN_SAMPLES = 4  # below, the variance of a t distribution is infinite


@errors_point_to("error-bars")
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
    count = count_along("values", tensor, axis, MIN_SAMPLES)
    spread = tensor.double().var(dim=axis, correction=1)
    factor = (1 + 1 / count) * (count - 1) / (count - 3)
    sources = {"values": largest(tensor, axis)}
    return pair(values, tensor.mean(dim=axis), spread * factor, sources, width(tensor, axis))


@errors_point_to("error-bars")
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
    members by a factor of 2.7 at r = 0.5 and 16 at r = 0.9 where their own variances are 0, and of
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
        sources = {"means": largest(tensor, axis)}
        return pair(means, drawn.y, drawn.variance * factor, sources, width(tensor, axis))
    own = to_tensor("variances", variances)
    if own.shape != tensor.shape:
        raise ValueError(
            f"variances must have the shape of means, {tuple(tensor.shape)}; got {tuple(own.shape)}"
        )
    require_non_negative("variances", own)
    count = count_along("means", tensor, axis, 2)
    spread = _shrunk(tensor.double().var(dim=axis, correction=1), count - 1)
    variance = own.double().mean(dim=axis) + ((1 + r) / (1 - r) + 1 / count) * spread
    sources = {"means": largest(tensor, axis), "variances": largest(own, axis)}
    positive = torch.maximum(width(tensor, axis).double(), largest(own, axis).double())
    return pair(means, tensor.mean(dim=axis), variance, sources, positive)


def _shrunk(spread: Tensor, freedom: int) -> Tensor:
    """Sample variances of equal degrees of freedom, moderated; NaN and infinity stay."""
    known = spread.isfinite()
    if not spread[known].any():
        return spread
    squares = freedom * spread[known].detach().cpu().numpy()
    result = spread.clone()
    result[known] = torch.from_numpy(moderated(squares, np.full(len(squares), freedom))).to(spread)
    return result
