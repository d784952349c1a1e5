"""Labels that are targets of reinforcement learning."""

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
                f"{name} must have the shape of reward, {tuple(r.shape)}; got {tuple(tensor.shape)}"
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
                f"terminal must have the shape of reward, {tuple(r.shape)}; got {tuple(ends.shape)}"
            )
    v = torch.where(ends, 0.0, v)
    require_non_negative("next_variance", v)
    value = torch.where(ends, 0.0, value)
    y, variance = r + discount * value, discount**2 * v.double()
    sources = {"reward": r, "next_value": value, "next_variance": v}
    if reward_variance is not None:
        own = to_tensor("reward_variance", reward_variance)
        require_non_negative("reward_variance", own)
        variance, sources = variance + own, sources | {"reward_variance": own}
    return pair(reward, y, variance, sources, v)
