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

MEANS = ("mean", "x", "loc")  # what libraries call the two, the first that is there
COVARIANCES = ("covariance", "covariance_matrix", "cov", "P")


@errors_point_to("error-bars")
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
                "means and covariances must be such that labels and variances are finite; got "
                f"y = {labels[-1]:g} with variance {variances[-1]:g} in state {len(labels) - 1}"
            )
    if min(variances) < 0:
        row = int(np.argmin(variances))
        raise ValueError(
            f"covariances must not be negative; got a variance of {variances[row]:g} in state {row}"
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
                f"got {validation.describe(state)}"
            )
        mean, covariance = found
    m = to_real_numbers("mean", mean).reshape(-1)  # a column vector, in some libraries
    p = np.atleast_2d(to_real_numbers("covariance", covariance))
    if p.shape != (len(m), len(m)):
        raise ValueError(
            f"a covariance must have shape ({len(m)}, {len(m)}), as its mean has {len(m)} numbers; "
            f"got {p.shape}"
        )
    return m, p


def _weights(component: int | Sequence[float], size: int) -> Array:
    if np.ndim(component) == 0:
        place = validation.integer("component", component, at_least=-size)
        if place >= size:
            raise ValueError(f"component must be one of {size}, from 0 on; got {place}")
        one: Array = np.eye(size)[place]
        return one
    h = to_real_numbers("component", component)
    if h.shape != (size,):
        raise ValueError(f"component must be a number or {size} weights; got shape {h.shape}")
    return h
