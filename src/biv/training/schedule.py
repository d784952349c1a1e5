"""Number of epochs, size of batches and settings of the optimizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from biv._utils import validation
from biv._utils.pages import errors_point_to

OPTIMIZERS = ("adam", "adamw", "sgd")


@dataclass(frozen=True)
class Schedule:
    r"""Epochs, batches, tests and optimizer of a training run.

    The defaults are the paper's values, except for `drop_last`.

    Parameters
    ----------
    epochs : int, default=100
        Number of passes over the training rows. Choose it so that the training takes no longer than
        you can wait.
    batch_size : int, default=256
        Number of rows per step. Decrease it for small tables, so that an epoch has several steps.
    epoch_rows : int, default=None
        Number of rows per epoch, rounded up to whole batches and drawn anew in every epoch; None
        takes all rows. Set it if one pass over the table takes too long.
    drop_last : bool, default=False
        Whether to leave out an incomplete last batch of an epoch. Set it to True to follow the
        paper.
    test_every : int, default=1
        Number of steps between two evaluations of the test rows; None never evaluates them.
        Increase it if the tests take too long.
    optimizer : {"adam", "adamw", "sgd"}, default="adam"
        Name of torch's optimizer. Change it if another one suits your network better.
    weight_decay : float, default=0.0
        Weight decay of the optimizer. Increase it if the networks overfit.
    momentum : float, default=0.0
        Momentum of "sgd", in [0, 1). Set it, for example to 0.9, with that optimizer only.
    averaging : float, default=None
        Parameter η ≥ 0 of a running average of the parameters, which then replaces them in tests
        and predictions; None uses the last parameters. η = 0 gives the mean of all steps; η > 0
        mainly averages the last 1/(η + 1) of them. Set it, for example to 4, to make test errors
        steadier.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If an argument is out of range, or `momentum` is given with another optimizer than "sgd".

    Notes
    -----
    After step n, the average :math:`\bar\theta` moves towards the parameters :math:`\theta_n` [1]_:

    .. math:: \bar\theta_n = \bar\theta_{n-1}
              + \frac{\eta + 1}{n + \eta}\,(\theta_n - \bar\theta_{n-1}).

    References
    ----------
    .. [1] O. Shamir and T. Zhang, "Stochastic gradient descent for non-smooth optimization", ICML,
       2013.

    Examples
    --------
    >>> drop, keep = Schedule(batch_size=32, drop_last=True), Schedule(batch_size=32)
    >>> drop.steps_per_epoch(100), keep.steps_per_epoch(100)
    (3, 4)
    """

    epochs: int = 100
    batch_size: int = 256
    epoch_rows: int | None = None
    drop_last: bool = False
    test_every: int | None = 1
    optimizer: str = "adam"
    weight_decay: float = 0.0
    momentum: float = 0.0
    averaging: float | None = None

    @errors_point_to("networks")
    def __post_init__(self) -> None:
        validation.integer("epochs", self.epochs, at_least=0)
        validation.integer("batch_size", self.batch_size, at_least=1)
        for name in ("epoch_rows", "test_every"):
            if getattr(self, name) is not None:
                validation.integer(name, getattr(self, name), at_least=1)
        validation.check_one_of("optimizer", self.optimizer, OPTIMIZERS)
        validation.real_number("weight_decay", self.weight_decay, validation.NON_NEGATIVE)
        validation.real_number("momentum", self.momentum, validation.Range(0.0, limit=1.0))
        if self.averaging is not None:
            validation.real_number("averaging", self.averaging, validation.NON_NEGATIVE)
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"momentum must be 0 unless optimizer is 'sgd'; got {self.momentum:g} with "
                f"{self.optimizer!r}"
            )

    def steps_per_epoch(self, rows: int) -> int:
        """Return the number of batches per epoch.

        Parameters
        ----------
        rows : int
            Number of training rows.

        Returns
        -------
        int
            Number of batches, at least 1.

        Raises
        ------
        ValueError
            If there is no batch, because the only one is incomplete and `drop_last` is True.
        """
        steps = rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)
        if self.epoch_rows is not None:
            steps = min(steps, -(-self.epoch_rows // self.batch_size))
        if not steps:
            raise ValueError(
                f"there must be at least {self.batch_size} training rows, one batch; got {rows}. "
                "Choose a smaller batch_size, or drop_last=False"
            )
        return steps

    def share_of_step(self, step: int) -> float:
        """Return the fraction by which the average moves after a step.

        Parameters
        ----------
        step : int
            Number of the step, counted from 1.

        Returns
        -------
        float
            Fraction between 0 and 1.
        """
        eta = float(self.averaging or 0.0)
        return (eta + 1.0) / (step + eta)

    def make_optimizer(self, groups: list[dict[str, Any]], *, fused: bool) -> torch.optim.Optimizer:
        """Return torch's optimizer for parameter groups, each of which has its own ``lr``.

        Parameters
        ----------
        groups : list of dict
            Groups with the keys "params" and "lr".
        fused : bool
            Whether the optimizer updates all parameters in one pass.

        Returns
        -------
        torch.optim.Optimizer
            SGD, Adam or AdamW.
        """
        if self.optimizer == "sgd":
            return torch.optim.SGD(
                groups, momentum=self.momentum, weight_decay=self.weight_decay, fused=fused
            )
        kind = torch.optim.AdamW if self.optimizer == "adamw" else torch.optim.Adam
        return kind(groups, weight_decay=self.weight_decay, fused=fused)
