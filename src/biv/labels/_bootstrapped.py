"""Labels that are bootstrapped targets of reinforcement learning."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from biv._utils import validation
from biv._utils.arrays import to_tensor
from biv._utils.pages import errors_point_to
from biv.labels._noisy_labels import (
    NoisyLabels,
    pair,
    require_non_negative,
)


@errors_point_to("error-bars")
def bootstrapped(
    reward: Any,
    next_value: Any,
    next_variance: Any,
    *,
    gamma: float,
    terminal: Any = None,
    reward_variance: Any = None,
) -> NoisyLabels:
    r"""Return bootstrapped targets of reinforcement learning, r + γV(s′), and their variances.

    .. math:: y = r + \gamma V, \qquad
              \operatorname{variance} = \gamma^2 \sigma_V^2 + \sigma_r^2

    After a terminal state nothing follows. There y = r, and the variance is that of the reward, or
    0 if no `reward_variance` is passed. A variance of 0 makes the label a trusted one.

    Parameters
    ----------
    reward : array-like of any shape, such as (N,)
        r, the reward of each transition.
    next_value : array-like of the shape of `reward`
        V, the value of the next state by a critic, or by the mean of several critics.
    next_variance : array-like of the shape of `reward`
        σ_V², the variance of V, in squared units of the reward. :func:`ensemble` computes it from
        several critics.
    gamma : float in (0, 1]
        γ, the discount factor.
    terminal : array-like of bool or of 0 and 1, of the shape of `reward`, or None, default=None
        True where the episode ended; `next_value` and `next_variance` are ignored there. None means
        that no episode ended. Pass it for any task with terminal states.
    reward_variance : array-like of the shape of `reward`, or None, default=None
        σ_r², the variance of the reward, in squared units of the reward. Pass it if the reward is
        noisy, or to add any other variance of the targets.

    Returns
    -------
    NoisyLabels
        y, in units of the reward, and `variance`, in squared units of the reward. Both have the
        shape of `reward`.

    Raises
    ------
    ValueError
        The shapes differ, a variance is negative or NaN, or `gamma` is not in (0, 1].

    Notes
    -----
    γ = 1 gives y = r + V and, without noise of the reward, the variance of V. A
    terminal state gives y = r and `reward_variance`, or 0.

    The variance is that of V(s′) for the s′ that was reached. **Where s′ is random**, the target
    scatters about its mean by that randomness too. Among the targets of one state and action, those
    that led to a state with a certain V get larger weights, and the mean that is learned is biased
    towards them. If you can estimate by how much the targets of a state and action scatter, add
    that to `reward_variance`, or give all of them the same variance.
    ``examples/bootstrapped_targets.py`` shows the harm, and how far averaging removes it.

    Examples
    --------
    >>> import biv
    >>> y, variance = biv.labels.bootstrapped([1.0, 1.0], [10.0, 10.0], [4.0, 4.0], gamma=0.5,
    ...                                       terminal=[False, True])
    >>> y, variance
    (array([6., 1.]), array([1., 0.]))
    """
    r, value = to_tensor("reward", reward), to_tensor("next_value", next_value)
    v = to_tensor("next_variance", next_variance)
    for name, tensor in (("next_value", value), ("next_variance", v)):
        if tensor.shape != r.shape:
            raise ValueError(
                f"{name} must have the shape of reward, {tuple(r.shape)}; got {tuple(tensor.shape)}"
            )
    discount = validation.real_number(
        "gamma", gamma, validation.Range(0.0, limit=1.0, open_below=True, closed=True)
    )
    ends = torch.zeros(r.shape, dtype=torch.bool, device=r.device)
    if terminal is not None:
        # A copy, because torch does not accept read-only arrays.
        flags = terminal if isinstance(terminal, Tensor) else np.array(terminal)
        ends = torch.as_tensor(flags, device=r.device).bool()
        if ends.shape != r.shape:
            raise ValueError(
                f"terminal must have the shape of reward, {tuple(r.shape)}; got {tuple(ends.shape)}"
            )
    v = torch.where(ends, 0.0, v)
    require_non_negative("next_variance", v)
    value = torch.where(ends, 0.0, value)
    y, variance = r + discount * value, discount**2 * v.double()
    sources = {"reward": r, "next_value": value, "next_variance": v}
    if reward_variance is not None:
        added = to_tensor("reward_variance", reward_variance)
        require_non_negative("reward_variance", added)
        variance, sources = variance + added, sources | {"reward_variance": added}
    return pair(reward, y, variance, sources, v)
