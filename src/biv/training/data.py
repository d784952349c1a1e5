"""Labelled rows, and the settings of one network's training."""

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
    """Rows to train or test on: features, labels and the variances of noisy labels.

    An array becomes a float32 tensor and a tensor keeps its dtype; the labels take the dtype of
    `x`. Members whose `x` is the *same tensor* share it in memory.

    Parameters
    ----------
    x : array-like or torch.Tensor of shape (N, F) or (N, C, H, W)
        Finite features; or images, for :func:`biv.training.train_module`. Images of dtype uint8 are
        neither copied nor converted.
    y : array-like or torch.Tensor of shape (N,) or (N, D)
        Labels; NaN if a label is missing.
    variance : array-like or torch.Tensor of shape (N,), (N, 1) or (N, D), default=None
        Variance σ² of each label's noise, in squared units of `y`. None stands for clean labels;
        pass the variances of noisy labels.
    sample_weight : array-like or torch.Tensor of shape (N,), (N, 1) or (N, D), default=None
        Importance of each label, without unit. Set it if some rows matter more than others.

    Raises
    ------
    TypeError
        If a column does not hold numbers, or is a tensor of another dtype than float32 or float64.
    ValueError
        If the columns do not have the same number of rows, or `x` is not finite.

    Examples
    --------
    >>> rows = Triplets(np.zeros((5, 3)), np.zeros(5), np.ones(5))
    >>> rows
    Triplets(5 rows, 3 features, 1 labels each, variance)
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
                    f"{name} must have {len(x)} rows, one per row of x; got shape "
                    f"{tuple(column.shape)}"
                )
            if name != "y":
                column = validation.expanded(name, column, "y", self.y)
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.x)

    @property
    def width(self) -> str:
        """Number of features as text, such as "3×32×32" for images."""
        return "×".join(map(str, self.x.shape[1:]))

    def labels(self, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return y, variance and sample weight of some rows.

        Parameters
        ----------
        rows : torch.Tensor of shape (n,)
            Row indices.

        Returns
        -------
        tuple of (torch.Tensor or None)
            Three tensors of shape (n, D); None for a column that was not given.
        """
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
    """Return features as a tensor of finite numbers; images of bytes are returned uncopied."""
    if getattr(value, "ndim", 0) == 4 and getattr(value, "dtype", None) in (np.uint8, torch.uint8):
        if isinstance(value, Tensor):
            return value
        if min(value.strides) < 0:  # a tensor cannot have negative strides
            value = value.copy()
        with warnings.catch_warnings():  # a cache of images is read-only, and never written to
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return torch.from_numpy(value)
    x = _tensor("x", value, torch.float32)
    if x.ndim not in (2, 4):
        raise ValueError(
            "x must have shape (rows, features), or (rows, channels, height, width) for images; "
            f"got {tuple(x.shape)}"
        )
    validation.check_elements("x", x, x.isfinite(), "finite")
    return x


def _tensor(name: str, value: Any, dtype: torch.dtype) -> Tensor:
    """Return a tensor unchanged if its dtype is supported, and anything else as a copy."""
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
    """Data, loss, learning rate and seed of one network's training.

    Parameters
    ----------
    train : Triplets
        Rows to train on.
    test : Triplets, default=None
        Rows with clean labels, on which the mean squared error is measured. Set it if you have
        clean labels.
    loss : VarianceLoss, default=BIVLoss()
        Loss of :mod:`biv.losses.modules` without a process group. Its ε or threshold is in the
        units of ``train.variance``. Change it to compare losses.
    learning_rate : float, default=0.001
        Learning rate of the optimizer. Decrease it if the training diverges.
    seed : int, default=0
        Seed of the initial parameters. Vary it to obtain an ensemble.
    order_seed : int, default=None
        Seed of the order of the rows; None takes `seed`. Set it to vary the order alone.
    name : str, default=""
        Name used in messages and progress bars. Set it to tell members apart.
    rows : torch.Tensor of shape (n,), default=None
        Indices of the rows of `train` to train on, int64; None takes all. Set it to train on
        subsets of one table, which members then share in memory.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If the test rows do not fit the training rows or are noisy, or no label has a positive
        weight, for example because all variances exceed a cutoff.

    Examples
    --------
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
                value = validation.describe(getattr(self, name))
                raise TypeError(f"{name} must be a {kind.__name__}; got {value}")
        rate = float(
            validation.real_number("learning_rate", self.learning_rate, validation.POSITIVE)
        )
        object.__setattr__(self, "learning_rate", rate)
        for name, seed in zip(("seed", "order_seed"), self.seeds, strict=True):
            validation.integer(name, seed, at_least=0)
        if self.loss.process_group is not None:
            raise ValueError("the loss of a member must have process_group=None; got a group")
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
            raise ValueError(
                f"{self._label()}no label has a positive weight under {self.loss!r}; got "
                f"{self._rows()}"
            )

    def __len__(self) -> int:
        """Return the number of rows to train on."""
        return len(self.train if self.rows is None else self.rows)

    def order(self, generator: torch.Generator) -> Tensor:
        """Return the indices of the rows to train on, shuffled.

        Parameters
        ----------
        generator : torch.Generator
            Generator that shuffles.

        Returns
        -------
        Tensor of shape (rows,) and dtype int64
            Indices of rows.
        """
        order = torch.randperm(len(self), generator=generator)
        return order if self.rows is None else self.rows[order]

    def _check_rows(self, rows: object) -> None:
        if not isinstance(rows, Tensor) or rows.dtype != torch.int64 or rows.ndim != 1:
            raise TypeError(
                f"rows must be a one-dimensional int64 tensor; got {validation.describe(rows)}"
            )
        last = len(self.train) - 1
        validation.check_elements("rows", rows, (rows >= 0) & (rows <= last), f"in [0, {last}]")

    def _check_test(self, test: Triplets) -> None:
        if test.x.dtype != self.train.x.dtype or test.x.shape[1:] != self.train.x.shape[1:]:
            raise ValueError(
                f"the test rows must have {self.train.width} features of {self.train.x.dtype}, "
                f"like the training rows; got {test.width} of {test.x.dtype}"
            )
        if test.variance is not None or test.sample_weight is not None:
            raise ValueError(
                "test labels must be clean, without variance or sample_weight. To score "
                "predictions on noisy labels, use biv.metrics.noise_corrected_mse"
            )
        if test.y.shape[1] != self.train.y.shape[1] or not len(test):
            raise ValueError(
                f"there must be at least one test row, and y must have {self.train.y.shape[1]} "
                f"columns, like the training labels; got shape {tuple(test.y.shape)}"
            )
        validation.check_elements("y of the test rows", test.y, test.y.isfinite(), "finite")

    def _label(self) -> str:
        return f"member {self.name!r}: " if self.name else ""

    def _rows(self) -> str:
        rows, variance = f"{len(self)} training rows", self.train.variance
        if variance is None or not len(variance):
            return rows
        return f"{rows} with variances from {variance.min():g} to {variance.max():g}"

    @property
    def seeds(self) -> tuple[int, int]:
        """Seed of the initial parameters, and seed of the order of the rows."""
        return self.seed, self.seed if self.order_seed is None else self.order_seed

    def generators(self) -> tuple[torch.Generator, torch.Generator]:
        """Return new generators for the initial parameters and for the order of the rows.

        Returns
        -------
        tuple of torch.Generator
            Generator for the initial parameters, and generator for the order.
        """
        first, second = (torch.Generator().manual_seed(seed) for seed in self.seeds)
        return first, second
