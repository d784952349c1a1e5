"""What a training is given: labelled rows, one member's settings, and the stack's schedule."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biv._utils import validation
from biv._utils.pages import helps_with
from biv.losses.modules import BIVLoss, VarianceLoss

OPTIMIZERS = ("adam", "adamw", "sgd")


@dataclass(frozen=True, eq=False)
class Triplets:
    """Rows to learn from or to test on: x, y and, of noisy labels, their variances.

    NumPy arrays become float32 tensors; a tensor keeps its dtype, and the others follow x. Members
    that are given the *same tensor* as x share it in memory.

    Attributes:
        x: Features, (N, F), finite; or images, (N, C, H, W), whose bytes are kept as they are, in
            place, for :func:`biv.training.train_module`.
        y: Labels, (N, D), or (N,) for D = 1; NaN where one is missing.
        variance: σ² of each, as y, or (N, 1); None for clean labels.
        sample_weight: How much each matters, as y, or (N, 1); None for all alike.

    Example:
        >>> rows = Triplets(np.zeros((5, 3)), np.zeros(5), np.ones(5))
        >>> rows.x.dtype, rows.y.shape, len(rows)
        (torch.float32, torch.Size([5, 1]), 5)
    """

    x: Tensor
    y: Tensor
    variance: Tensor | None = None
    sample_weight: Tensor | None = None

    @helps_with("networks")
    def __post_init__(self) -> None:
        x = as_features(self.x)
        object.__setattr__(self, "x", x)
        dtype = x.dtype if x.is_floating_point() else torch.float32
        for name in ("y", "variance", "sample_weight"):
            value = getattr(self, name)
            if value is None and name != "y":
                continue
            column = _tensor(name, value, dtype).to(dtype)
            column = column.unsqueeze(1) if column.ndim == 1 else column
            if column.ndim != 2 or len(column) != len(x):
                raise ValueError(
                    f"{name} must have one row a row of x, {len(x)}; found {tuple(column.shape)}"
                )
            if name != "y":
                column = validation.expanded(name, column, "y", self.y)
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def width(self) -> str:
        """How many features, in words."""
        return "×".join(map(str, self.x.shape[1:]))

    def labels(self, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """y, variance and importance of these rows."""
        variance, weight = self.variance, self.sample_weight
        return (
            self.y[rows],
            None if variance is None else variance[rows],
            None if weight is None else weight[rows],
        )

    def __repr__(self) -> str:
        given = [name for name in ("variance", "sample_weight") if getattr(self, name) is not None]
        shape = f"{len(self)} rows, {self.width} features, {self.y.shape[1]} labels each"
        return f"Triplets({', '.join([shape, *given])})"


def as_features(value: Any) -> Tensor:
    """Rows of finite numbers, or images as bytes, which are not copied."""
    if getattr(value, "ndim", 0) == 4 and getattr(value, "dtype", None) in (np.uint8, torch.uint8):
        if isinstance(value, Tensor):
            return value
        if min(value.strides) < 0:  # which tensors do not have
            value = value.copy()
        with warnings.catch_warnings():  # a cache is mapped read-only, and is never written to
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(value)
    x = _tensor("x", value, torch.float32)
    if x.ndim not in (2, 4):
        raise ValueError(
            "x must have shape (rows, features), or of images (rows, channels, height, width); "
            f"found {tuple(x.shape)}"
        )
    validation.all_elements("x", x, x.isfinite(), "finite")
    return x


def _tensor(name: str, value: Any, dtype: torch.dtype) -> Tensor:
    """A tensor as it is, if it can be computed with; anything else as a copy in `dtype`."""
    if isinstance(value, Tensor):
        validation.constant(name, validation.floating_tensor(name, value))
        if value.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"{name} must be float32 or float64; found {value.dtype}")
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers; found {validation.describe(value)}")
    array = np.array(array, dtype=np.float64)
    return torch.tensor(array, dtype=dtype)


@dataclass(frozen=True, eq=False)
class Member:
    """One training: its data, its loss, its learning rate and its randomness.

    Attributes:
        train: What it learns from.
        rows: Which of these, by their numbers, int64; None for all. Members that share `train` and
            differ in `rows` share it in memory.
        test: Rows with clean labels to be scored on, by the mean squared error; or None.
        loss: Of :mod:`biv.losses.modules`, local. ε and cutoffs in the units of the variances.
        learning_rate: Of the optimiser.
        seed: Of the network's first parameters.
        order_seed: Of the order of the rows; None is `seed`.
        name: For messages.

    Raises:
        ValueError: Nothing is left to learn from, because the cutoff keeps no row, say.

    Example:
        >>> rows = Triplets(np.zeros((5, 3)), np.zeros(5), np.ones(5))
        >>> len(Member(rows)), len(Member(rows, rows=torch.tensor([0, 2]), seed=1))
        (5, 2)
    """

    train: Triplets
    test: Triplets | None = None
    loss: VarianceLoss = field(default_factory=BIVLoss)
    learning_rate: float = 1e-3
    seed: int = 0
    order_seed: int | None = None
    name: str = ""
    rows: Tensor | None = None

    @helps_with("networks")
    def __post_init__(self) -> None:
        for name, kind in (("train", Triplets), ("loss", VarianceLoss)):
            if not isinstance(getattr(self, name), kind):
                found = validation.describe(getattr(self, name))
                raise TypeError(f"{name} must be of {kind.__name__}; found {found}")
        rate = float(
            validation.real_number("learning_rate", self.learning_rate, validation.POSITIVE)
        )
        object.__setattr__(self, "learning_rate", rate)
        for name, seed in zip(("seed", "order_seed"), self.seeds, strict=True):
            validation.integer(name, seed, at_least=0)
        if self.loss.process_group is not None:
            raise ValueError("the loss of a member must be local: process_group must be None")
        if self.test is not None:
            self._check_test(self.test)
        train = self.train
        weights = self.loss.weights(train.y, train.variance, sample_weight=train.sample_weight)
        rows: object = self.rows
        if isinstance(rows, np.ndarray) and rows.dtype.kind == "i":
            object.__setattr__(self, "rows", torch.tensor(rows, dtype=torch.int64))
        if self.rows is not None:
            self._check_rows(self.rows)
            weights = weights[self.rows]
        if not bool((weights > 0).any()):
            raise ValueError(f"{self._label()}{self.loss!r} keeps none of {self._rows()}")

    def __len__(self) -> int:
        """How many rows it learns from."""
        return len(self.train if self.rows is None else self.rows)

    def order(self, generator: torch.Generator) -> Tensor:
        """The numbers of these rows, shuffled."""
        drawn = torch.randperm(len(self), generator=generator)
        return drawn if self.rows is None else self.rows[drawn]

    def _check_rows(self, rows: object) -> None:
        if not isinstance(rows, Tensor) or rows.dtype != torch.int64 or rows.ndim != 1:
            raise TypeError(f"rows must be a column of int64; found {validation.describe(rows)}")
        last = len(self.train) - 1
        validation.all_elements("rows", rows, (rows >= 0) & (rows <= last), f"in [0, {last}]")

    def _check_test(self, test: Triplets) -> None:
        if test.x.dtype != self.train.x.dtype or test.x.shape[1:] != self.train.x.shape[1:]:
            raise ValueError(
                f"the test rows must be like the training rows, {self.train.width} features of "
                f"{self.train.x.dtype}; found {test.width} of {test.x.dtype}"
            )
        if test.variance is not None or test.sample_weight is not None:
            raise ValueError(
                "test labels must be clean, without variance or sample_weight: score predictions "
                "on noisy labels with biv.metrics.noise_corrected_mse"
            )
        if test.y.shape[1] != self.train.y.shape[1] or not len(test):
            raise ValueError(
                f"the test rows must be one at least, of {self.train.y.shape[1]} labels each; "
                f"found y of shape {tuple(test.y.shape)}"
            )
        validation.all_elements("y of the test rows", test.y, test.y.isfinite(), "finite")

    def _label(self) -> str:
        return f"member {self.name!r}: " if self.name else ""

    def _rows(self) -> str:
        rows, variance = f"{len(self)} training rows", self.train.variance
        if variance is None or not len(variance):
            return rows
        return f"{rows}, whose variances lie in [{variance.min():g}, {variance.max():g}]"

    @property
    def seeds(self) -> tuple[int, int]:
        """Of the network's first parameters, and of the order of the rows."""
        return self.seed, self.seed if self.order_seed is None else self.order_seed

    def generators(self) -> tuple[torch.Generator, torch.Generator]:
        """For the network's first parameters, and for the order of the rows."""
        first, second = (torch.Generator().manual_seed(seed) for seed in self.seeds)
        return first, second


@dataclass(frozen=True)
class Schedule:
    """How long and in what steps all members of a stack are trained; the paper's by default.

    Attributes:
        epochs: Passes over the training rows.
        batch_size: Rows a step.
        epoch_rows: Of a larger table, an epoch has so many rows, in whole batches and drawn anew
            each time; None takes all.
        drop_last: Whether an incomplete last batch of an epoch is left out, as in the paper, or
            trained on.
        test_every: Steps between two scores of the whole test set; None never scores it.
        optimizer: "adam", "adamw" or "sgd", torch's own.
        weight_decay: Of the optimiser.
        momentum: Of "sgd".
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

    @helps_with("networks")
    def __post_init__(self) -> None:
        validation.integer("epochs", self.epochs, at_least=0)
        validation.integer("batch_size", self.batch_size, at_least=1)
        for name in ("epoch_rows", "test_every"):
            if getattr(self, name) is not None:
                validation.integer(name, getattr(self, name), at_least=1)
        validation.one_of("optimizer", self.optimizer, OPTIMIZERS)
        validation.real_number("weight_decay", self.weight_decay, validation.NON_NEGATIVE)
        validation.real_number("momentum", self.momentum, validation.Range(0.0, limit=1.0))
        if self.averaging is not None:
            validation.real_number("averaging", self.averaging, validation.NON_NEGATIVE)
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(f"momentum is for 'sgd'; found it with {self.optimizer!r}")

    def steps_per_epoch(self, rows: int) -> int:
        """How many batches `rows` give.

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
        """How far an average moves towards the parameters after this step, from 1 on."""
        eta = float(self.averaging or 0.0)
        return (eta + 1.0) / (step + eta)

    def make_optimizer(self, groups: list[dict[str, Any]], *, fused: bool) -> torch.optim.Optimizer:
        """Torch's optimiser over groups that bring their own ``lr``."""
        if self.optimizer == "sgd":
            return torch.optim.SGD(
                groups, momentum=self.momentum, weight_decay=self.weight_decay, fused=fused
            )
        kind = torch.optim.AdamW if self.optimizer == "adamw" else torch.optim.Adam
        return kind(groups, weight_decay=self.weight_decay, fused=fused)
