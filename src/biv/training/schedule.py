"""How long and in what steps networks are trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from biv._utils import validation
from biv._utils.pages import errors_point_to

OPTIMIZERS = ("adam", "adamw", "sgd")


@dataclass(frozen=True)
class Schedule:
    """How long and in what steps all members of a stack are trained; the paper's by default.

    Attributes:
        epochs: Number of passes over the training rows.
        batch_size: Rows per step.
        epoch_rows: Number of rows of an epoch, in whole batches, if the table has more; they are
            drawn anew each time. None takes all.
        drop_last: Whether an incomplete last batch of an epoch is left out, as in the paper, or
            trained on.
        test_every: Steps between two scores of the whole test set; None never scores it.
        optimizer: "adam", "adamw" or "sgd", as torch has them.
        weight_decay: Weight decay of the optimizer.
        momentum: Momentum of "sgd".
        averaging: η of an average of the parameters over time, by which members are tested and
            predict; None takes the last ones. After step n, it moves towards the parameters by
            (η + 1)/(n + η) of the way (Shamir and Zhang, 2013): 0 is the mean of all steps, and
            η > 0 rests on the last 1/(η + 1) of them or so.

    Example:
        >>> whole, kept = Schedule(batch_size=32, drop_last=True), Schedule(batch_size=32)
        >>> whole.steps_per_epoch(100), kept.steps_per_epoch(100)
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
            raise ValueError(f"momentum is for 'sgd'; got it with {self.optimizer!r}")

    def steps_per_epoch(self, rows: int) -> int:
        """Return the number of batches that `rows` give.

        Raises:
            ValueError: None at all, because the only batch is incomplete and dropped.
        """
        steps = rows // self.batch_size if self.drop_last else -(-rows // self.batch_size)
        if self.epoch_rows is not None:
            steps = min(steps, -(-self.epoch_rows // self.batch_size))
        if not steps:
            raise ValueError(
                f"{rows} training rows give no batch of {self.batch_size}: choose a smaller "
                "batch_size, or drop_last=False"
            )
        return steps

    def share_of_step(self, step: int) -> float:
        """Return how far an average moves towards the parameters after this step, from 1 on."""
        eta = float(self.averaging or 0.0)
        return (eta + 1.0) / (step + eta)

    def make_optimizer(self, groups: list[dict[str, Any]], *, fused: bool) -> torch.optim.Optimizer:
        """Return torch's optimizer over groups that bring their own ``lr``."""
        if self.optimizer == "sgd":
            return torch.optim.SGD(
                groups, momentum=self.momentum, weight_decay=self.weight_decay, fused=fused
            )
        kind = torch.optim.AdamW if self.optimizer == "adamw" else torch.optim.Adam
        return kind(groups, weight_decay=self.weight_decay, fused=fused)
