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
    max_magnitude,
    pair,
    require_non_negative,
    value_range,
)

MIN_SAMPLES = 4  # with fewer, the variance of a t distribution is infinite


@errors_point_to("error-bars")
def samples(values: Any, axis: int = -1) -> NoisyLabels:
    r"""Return labels from Monte Carlo samples: their mean, and the variance of the truth about it.

    The truth is taken to be one more draw from the distribution that the samples come from, such
    as a posterior, an ensemble or runs of a simulator. For n samples with variance s²,

    .. math:: \operatorname{variance} = s^2 \left(1 + \frac{1}{n}\right) \frac{n-1}{n-3}

    which tends to s² for many samples. The factors account for the errors of the mean and of s².
    They make (y − truth)²/variance 1 on average, however much the spread differs between labels.

    Parameters
    ----------
    values : array-like of shape (..., samples)
        Samples of each label, in label units, at least four per label.
    axis : int, default=-1
        Axis that the samples are along. Change it if that is not the last one.

    Returns
    -------
    NoisyLabels
        y and `variance` (in squared label units), of the shape of `values` without that axis.

    Raises
    ------
    ValueError
        There are fewer than four samples, or `axis` does not exist.

    Notes
    -----
    Adding a number to the samples adds it to y. Scaling them by c scales y by c and the variance by
    c².

    With few samples, s² is often small by chance. A variance that makes the average of
    (y − truth)²/variance 1 is then **larger than the mean squared error**: on average by a factor
    of 3 for four samples, 2 for five, 1.4 for eight and 1.04 for fifty. If all labels have the same
    spread, :func:`ensemble` with variances of 0 avoids that, by shrinking s² towards their common
    variance. If the truth is the *mean* of the distribution, and the samples are noisy measurements
    of it, use :func:`repeats`.

    Examples
    --------
    >>> import biv
    >>> biv.labels.samples([[1.0, 2.0, 3.0, 4.0, 5.0]])
    NoisyLabels(y=array([3.]), variance=array([6.]))
    """
    tensor = to_tensor("values", values)
    count = count_along("values", tensor, axis, MIN_SAMPLES)
    spread = tensor.double().var(dim=axis, correction=1)
    factor = (1 + 1 / count) * (count - 1) / (count - 3)
    sources = {"values": max_magnitude(tensor, axis)}
    return pair(values, tensor.mean(dim=axis), spread * factor, sources, value_range(tensor, axis))


@errors_point_to("error-bars")
def ensemble(
    means: Any, variances: Any = None, axis: int = 0, *, correlation: float = 0.0
) -> NoisyLabels:
    r"""Return labels from the predictions of an ensemble, taken as a mixture.

    The truth is taken to be a draw from one more member like these. By the law of total variance,
    the variance of the truth is the mean of the members' variances plus the spread of their means:

    .. math:: \operatorname{variance} = \frac{1}{M} \sum_m \sigma_m^2
              + \left(\frac{1 + r}{1 - r} + \frac{1}{M}\right) \tilde s^2

    where M is the number of members, r is `correlation`, and s̃² is the variance between members.
    The sample variance s² of two or three means is unreliable. It is therefore shrunk towards what
    all labels of the call have in common, with a correction for the remaining uncertainty, as in
    :func:`repeats`, with M − 1 degrees of freedom per label. Without `variances`, each label is
    corrected by itself, as in :func:`samples`, and at least four members are needed.

    Parameters
    ----------
    means : array-like of shape (members, ...)
        Predictions of at least two members, in label units.
    variances : array-like of the shape of `means`, or None, default=None
        σ_m², the variance that each member states, in squared label units. Pass it if the members
        predict variances. If they do not, pass zeros to have the spread of the members shrunk.
    axis : int, default=0
        Axis that the members are along. Change it if that is not the first one.
    correlation : float in [0, 1), default=0.0
        r, the correlation between the members' means in the model of Notes. Set it if members were
        trained on the same data or share an architecture.

    Returns
    -------
    NoisyLabels
        y and `variance` (in squared label units), of the shape of `means` without that axis.

    Raises
    ------
    ValueError
        There are too few members, the shapes differ, a variance is negative or NaN, or
        `correlation` is not in [0, 1).

    Notes
    -----
    Without variances and correlation, the result is that of :func:`samples`. If all members agree
    on every label, the variance is the mean of their variances. A correlation of 1/3 makes the
    second term (2 + 1/M) s̃².

    **Correlated members.** The model of the members' means :math:`f_m` and of the truth is

    .. math:: f_m = \mu + e_m, \quad \text{truth} = \mu + e_0, \quad
              \operatorname{corr}(e_m, e_{m'}) = r, \quad \operatorname{corr}(e_m, e_0) = 0,

    where all :math:`e` have mean 0 and the same variance. The errors :math:`f_m - \text{truth}` of
    two members therefore have a correlation of (1 + r)/2.

    Members that were trained on the same data, or share an architecture, have r > 0. They agree
    with each other better than with the truth, and their spread does not show it. The variance for
    the default correlation of 0 is then too small. For five members it is too small by these
    factors:

    ========================================== ======= =======
    variances that the members state           r = 0.5 r = 0.9
    ========================================== ======= =======
    0                                          2.7     16
    0.1 × variance between independent members 2.4     9
    ========================================== ======= =======

    r cannot be estimated from the ensemble alone. With some held-out true labels, choose the r for
    which (y − truth)²/variance is 1 on average.

    Examples
    --------
    >>> import biv
    >>> y, variance = biv.labels.ensemble([[1.0, 4.0], [3.0, 6.0]], [[0.5, 0.5], [1.5, 1.5]])
    >>> y, variance
    (array([2., 5.]), array([7., 7.]))
    """
    tensor = to_tensor("means", means)
    r = validation.real_number("correlation", correlation, validation.Range(0.0, limit=1.0))
    if variances is None:
        drawn = samples(tensor, axis)
        count = tensor.shape[axis]
        factor = ((1 + r) / (1 - r) + 1 / count) / (1 + 1 / count)
        sources = {"means": max_magnitude(tensor, axis)}
        return pair(means, drawn.y, drawn.variance * factor, sources, value_range(tensor, axis))
    within = to_tensor("variances", variances)
    if within.shape != tensor.shape:
        raise ValueError(
            f"variances must have the shape of means, {tuple(tensor.shape)}; "
            f"got {tuple(within.shape)}"
        )
    require_non_negative("variances", within)
    count = count_along("means", tensor, axis, 2)
    between = _shrunk(tensor.double().var(dim=axis, correction=1), count - 1)
    variance = within.double().mean(dim=axis) + ((1 + r) / (1 - r) + 1 / count) * between
    sources = {"means": max_magnitude(tensor, axis), "variances": max_magnitude(within, axis)}
    positive = torch.maximum(
        value_range(tensor, axis).double(), max_magnitude(within, axis).double()
    )
    return pair(means, tensor.mean(dim=axis), variance, sources, positive)


def _shrunk(spread: Tensor, freedom: int) -> Tensor:
    """Moderate sample variances of equal degrees of freedom; keep NaN and infinity."""
    known = spread.isfinite()
    if not spread[known].any():
        return spread
    squares = freedom * spread[known].detach().cpu().numpy()
    result = spread.clone()
    result[known] = torch.from_numpy(moderated(squares, np.full(len(squares), freedom))).to(spread)
    return result
