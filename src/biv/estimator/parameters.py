"""Constraints on the parameters of :class:`biv.BIVRegressor`, in one table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from torch import nn

from biv._utils import validation
from biv._utils.messages import shortened
from biv._utils.pages import argument_hint, errors_point_to
from biv._utils.validation import NON_NEGATIVE, POSITIVE, describe
from biv.epsilon import EpsilonPolicy, Fixed, Relative
from biv.losses import registry

MODELS = ("ensemble", "paper")
UNKNOWN = ("raise", "median", "estimate")
MAX_MEMBERS = 10_000

Check = Callable[[str, Any], object]


def _optional(check: Check) -> Check:
    """Return a check that also allows None."""
    return lambda name, value: None if value is None else check(name, value)


def _loss(name: str, value: object) -> None:
    validation.check_one_of(name, value, registry.names())


def _model(name: str, value: object) -> None:
    if not callable(value) or isinstance(value, nn.Module):
        validation.check_one_of(name, value, MODELS, " or a function that returns an nn.Module")


def _epsilon(name: str, value: object) -> None:
    if isinstance(value, str):
        if value != "auto":
            raise ValueError(
                f"{name} must be 'auto', a number or a policy; got {shortened(value)}"
                f"{argument_hint(name)}"
            )
    elif not isinstance(value, EpsilonPolicy):
        validation.real_number(name, value, NON_NEGATIVE)


def _path(name: str, value: object) -> None:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError(f"{name} must be a path; got {describe(value)}")


def _jobs(name: str, value: object) -> None:
    if not isinstance(value, Integral) or value == 0:
        raise ValueError(f"{name} must be a non-zero integer or None; got {shortened(value)}")


def _boolean(name: str, value: object) -> None:
    if not isinstance(value, (bool, np.bool_, Integral)):
        raise TypeError(f"{name} must be True or False; got {describe(value)}")


CONSTRAINTS: Mapping[str, Check] = {
    "loss": _loss,
    "epsilon": _epsilon,
    "threshold": _optional(partial(validation.real_number, allowed=POSITIVE)),
    "model": _model,
    "members": partial(validation.integer, at_least=1, at_most=MAX_MEMBERS),
    "folds": partial(validation.integer, at_least=2),
    "max_epochs": partial(validation.integer, at_least=1),
    "patience": _optional(partial(validation.integer, at_least=1)),
    "batch_size": _optional(partial(validation.integer, at_least=1)),
    "learning_rate": _optional(partial(validation.real_number, allowed=POSITIVE)),
    "weight_decay": partial(validation.real_number, allowed=NON_NEGATIVE),
    "unknown_variance": partial(validation.check_one_of, allowed=UNKNOWN),
    "calibrate_variance": partial(validation.check_one_of, allowed=(False, True)),
    "checkpoint": _optional(_path),
    "n_jobs": _optional(_jobs),
    "verbose": _boolean,
}
"""Check of every parameter, except `keep` and `random_state`, which :meth:`fit` checks."""


@errors_point_to("estimator")
def check_parameters(parameters: Mapping[str, Any]) -> None:
    """Check each parameter of a :class:`biv.BIVRegressor`, and that they fit together.

    Raises
    ------
    TypeError
        A parameter has an invalid type.
    ValueError
        A parameter has an invalid value.
    """
    for name, check in CONSTRAINTS.items():
        check(name, parameters[name])
    members, folds = parameters["members"], parameters["folds"]
    if members % folds:
        raise ValueError(f"members must be a multiple of folds ({folds}); got {members}")


def check_units(parameters: Mapping[str, Any], outputs: int) -> None:
    """Check that no parameter is in squared units of y if several outputs may differ in units.

    Raises
    ------
    ValueError
        `threshold` or `epsilon` is in squared units of y.
    """
    for name, advice in (
        ("threshold", "leave it out"),
        ("epsilon", "pass a number, which is relative"),
    ):
        value = parameters[name]
        absolute = name == "threshold" or isinstance(value, (Fixed, Relative))
        if outputs > 1 and value is not None and absolute:
            raise ValueError(
                f"{name}={value!r} is in squared units of one output; got {outputs} outputs: "
                f"{advice}"
            )


def thread_count(n_jobs: int | None) -> int:
    """Return the number of threads that `n_jobs` stands for, as in scikit-learn.

    Examples
    --------
    >>> thread_count(None), thread_count(1)
    (1, 1)
    """
    CONSTRAINTS["n_jobs"]("n_jobs", n_jobs)
    cores = os.cpu_count() or 1
    jobs = 1 if n_jobs is None else int(n_jobs)
    return min(jobs, cores) if jobs > 0 else max(cores + 1 + jobs, 1)
