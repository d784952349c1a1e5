"""What is trained: labelled rows, and the settings of one member."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biv._utils import validation
from biv._utils.pages import errors_point_to
from biv.losses.modules import BIVLoss, VarianceLoss


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
        sample_weight: Importance of each, as y, or (N, 1); None for all alike.

    Example:
        >>> rows = Triplets(np.zeros((5, 3)), np.zeros(5), np.ones(5))
        >>> rows.x.dtype, rows.y.shape, len(rows)
        (torch.float32, torch.Size([5, 1]), 5)
    """

    x: Tensor
    y: Tensor
    variance: Tensor | None = None
    sample_weight: Tensor | None = None

    @errors_point_to("networks")
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
                    f"{name} must have one row a row of x, {len(x)}; got {tuple(column.shape)}"
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
        """Return y, variance and importance of these rows."""
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
            f"got {tuple(x.shape)}"
        )
    validation.check_elements("x", x, x.isfinite(), "finite")
    return x


def _tensor(name: str, value: Any, dtype: torch.dtype) -> Tensor:
    """A tensor as it is, if it can be computed with; anything else as a copy in `dtype`."""
    if isinstance(value, Tensor):
        validation.check_no_grad(name, validation.floating_tensor(name, value))
        if value.dtype not in (torch.float32, torch.float64):
            raise TypeError(f"{name} must be float32 or float64; got {value.dtype}")
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold numbers; got {validation.describe(value)}")
    array = np.array(array, dtype=np.float64)
    return torch.tensor(array, dtype=dtype)


@dataclass(frozen=True, eq=False)
class Member:
    """One training: its data, its loss, its learning rate and its randomness.

    Attributes:
        train: Rows that it learns from.
        rows: Which of these, by their numbers, int64; None for all. Members that share `train` and
            differ in `rows` share it in memory.
        test: Rows with clean labels to be scored on, by the mean squared error; or None.
        loss: Local loss of :mod:`biv.losses.modules`; ε and cutoffs in the units of the variances.
        learning_rate: Learning rate of the optimizer.
        seed: Seed of the network's first parameters.
        order_seed: Seed of the order of the rows; None is `seed`.
        name: Name for messages.

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

    @errors_point_to("networks")
    def __post_init__(self) -> None:
        for name, kind in (("train", Triplets), ("loss", VarianceLoss)):
            if not isinstance(getattr(self, name), kind):
                found = validation.describe(getattr(self, name))
                raise TypeError(f"{name} must be of {kind.__name__}; got {found}")
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
        """Return the number of rows that it learns from."""
        return len(self.train if self.rows is None else self.rows)

    def order(self, generator: torch.Generator) -> Tensor:
        """Return the numbers of these rows, shuffled."""
        drawn = torch.randperm(len(self), generator=generator)
        return drawn if self.rows is None else self.rows[drawn]

    def _check_rows(self, rows: object) -> None:
        if not isinstance(rows, Tensor) or rows.dtype != torch.int64 or rows.ndim != 1:
            raise TypeError(f"rows must be a column of int64; got {validation.describe(rows)}")
        last = len(self.train) - 1
        validation.check_elements("rows", rows, (rows >= 0) & (rows <= last), f"in [0, {last}]")

    def _check_test(self, test: Triplets) -> None:
        if test.x.dtype != self.train.x.dtype or test.x.shape[1:] != self.train.x.shape[1:]:
            raise ValueError(
                f"the test rows must be like the training rows, {self.train.width} features of "
                f"{self.train.x.dtype}; got {test.width} of {test.x.dtype}"
            )
        if test.variance is not None or test.sample_weight is not None:
            raise ValueError(
                "test labels must be clean, without variance or sample_weight: score predictions "
                "on noisy labels with biv.metrics.noise_corrected_mse"
            )
        if test.y.shape[1] != self.train.y.shape[1] or not len(test):
            raise ValueError(
                f"the test rows must be one at least, of {self.train.y.shape[1]} labels each; "
                f"got y of shape {tuple(test.y.shape)}"
            )
        validation.check_elements("y of the test rows", test.y, test.y.isfinite(), "finite")

    def _label(self) -> str:
        return f"member {self.name!r}: " if self.name else ""

    def _rows(self) -> str:
        rows, variance = f"{len(self)} training rows", self.train.variance
        if variance is None or not len(variance):
            return rows
        return f"{rows}, whose variances lie in [{variance.min():g}, {variance.max():g}]"

    @property
    def seeds(self) -> tuple[int, int]:
        """The seeds of the network's first parameters and of the order of the rows."""
        return self.seed, self.seed if self.order_seed is None else self.order_seed

    def generators(self) -> tuple[torch.Generator, torch.Generator]:
        """Return generators of the network's first parameters and of the order of the rows."""
        first, second = (torch.Generator().manual_seed(seed) for seed in self.seeds)
        return first, second
