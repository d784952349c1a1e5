"""Labels from the states of a filter or smoother."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from biv._utils import validation
from biv._utils.arrays import to_real_numbers
from biv._utils.pages import errors_point_to
from biv.labels._noisy_labels import (
    Array,
    NoisyLabels,
)

# Attribute names that libraries use; the first that exists is read.
MEANS = ("mean", "x", "loc")
COVARIANCES = ("covariance", "covariance_matrix", "cov", "P")


@errors_point_to("error-bars")
def posterior(states: Any, component: int | Sequence[float] = 0) -> NoisyLabels:
    r"""Return labels from the states of a Kalman filter, smoother or Gaussian process.

    For a state with mean m and covariance P, and weights h,

    .. math:: y = h^\top m, \qquad \operatorname{variance} = h^\top P h.

    The variances are calibrated if the filter is, that is, if its model and its noise are right.
    Labels of one track are correlated, which a loss over single labels cannot take into account.
    Such labels are worth less than the same number of independent labels.

    Parameters
    ----------
    states : state or sequence of states
        A state is an object with a mean (`mean`, `x` or `loc`) and a covariance (`covariance`,
        `covariance_matrix`, `cov` or `P`), or a pair (mean, covariance).
    component : int or sequence of float, default=0
        Index of the number in the state that is the label. Pass one weight per number, h, if the
        label is a linear combination of several.

    Returns
    -------
    NoisyLabels
        y, of shape (states,), and `variance`, in squared units of y. A single state gives two
        numbers.

    Raises
    ------
    TypeError
        A state has no mean or no covariance.
    ValueError
        The shapes of a mean and its covariance do not fit, or a label or variance is not finite, or
        a variance is negative.

    Notes
    -----
    An integer `component` is the same as a weight of 1 at that index and 0 elsewhere. Scaling the
    weights by c scales y by c and the variance by c².

    Examples
    --------
    >>> import biv
    >>> state = (np.array([3.0, 1.0]), np.array([[4.0, 0.0], [0.0, 9.0]]))
    >>> biv.labels.posterior([state, state], component=1)
    NoisyLabels(y=array([1., 1.]), variance=array([9., 9.]))
    """
    single = _is_state(states)
    pairs = [_mean_and_covariance(state) for state in ([states] if single else states)]
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
                "means and covariances must give finite labels and variances; got "
                f"y = {labels[-1]:g} with variance {variances[-1]:g} in state {len(labels) - 1}"
            )
    if min(variances) < 0:
        row = int(np.argmin(variances))
        raise ValueError(
            f"covariances must not be negative; got a variance of {variances[row]:g} in state {row}"
        )
    if single:
        return NoisyLabels(np.float64(labels[0]), np.float64(variances[0]))
    return NoisyLabels(np.array(labels), np.array(variances))


def _is_state(states: Any) -> bool:
    if isinstance(states, tuple) and len(states) == 2 and not _is_state(states[0]):
        shapes = [np.ndim(part) for part in states]
        return shapes in ([1, 2], [0, 0], [2, 2])
    return any(hasattr(states, name) for name in COVARIANCES)


def _mean_and_covariance(state: Any) -> tuple[Array, Array]:
    if isinstance(state, tuple) and len(state) == 2:
        mean, covariance = state
    else:
        mean, covariance = (
            next((getattr(state, n) for n in names if hasattr(state, n)), None)
            for names in (MEANS, COVARIANCES)
        )
        if mean is None or covariance is None:
            raise TypeError(
                f"a state must have a mean ({', '.join(MEANS)}) and a covariance "
                f"({', '.join(COVARIANCES)}), or be a pair of them; "
                f"got {validation.describe(state)}"
            )
    m = to_real_numbers("mean", mean).reshape(-1)  # a column vector, in some libraries
    p = np.atleast_2d(to_real_numbers("covariance", covariance))
    if p.shape != (len(m), len(m)):
        raise ValueError(
            f"the covariance of a mean with {len(m)} numbers must have shape ({len(m)}, {len(m)}); "
            f"got {p.shape}"
        )
    return m, p


def _weights(component: int | Sequence[float], size: int) -> Array:
    if np.ndim(component) == 0:
        index = validation.integer("component", component, at_least=-size)
        if index >= size:
            raise ValueError(
                f"component must be less than {size}, the size of a state; got {index}"
            )
        unit: Array = np.eye(size)[index]
        return unit
    h = to_real_numbers("component", component)
    if h.shape != (size,):
        raise ValueError(f"component must be an integer or {size} weights; got shape {h.shape}")
    return h
