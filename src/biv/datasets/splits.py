"""Seeded, disjoint splits of the rows of a data set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv._utils import validation

Rows = npt.NDArray[np.intp]


class Split(NamedTuple):
    """Which rows are trained on and which are tested on.

    Attributes:
        train: Their numbers, (rows trained on,).
        test: Their numbers, (rows tested on,).

    Example:
        >>> x, split = np.arange(40).reshape(20, 2), Split(np.arange(15), np.arange(15, 20))
        >>> x[split.train].shape, x[split.test].shape
        ((15, 2), (5, 2))
    """

    train: Rows
    test: Rows


def split_rows(rows: int, *, train: int, test: int, generator: np.random.Generator) -> Split:
    """Shuffle the rows and deal them out: the first to test, the next to training.

    Under one seed, training sets of different sizes are tested on the same rows, and the smaller
    is part of the larger.

    Args:
        rows: How many there are.
        train: How many to train on.
        test: How many to test on; what remains is left out.
        generator: Where the order is drawn from; the same seed gives the same split.

    Raises:
        ValueError: There are fewer rows than asked for.

    Example:
        >>> split = split_rows(10, train=6, test=3, generator=np.random.default_rng(0))
        >>> len(split.train), len(split.test), len(set(split.train) & set(split.test))
        (6, 3, 0)
    """
    available = validation.integer("rows", rows, at_least=0)
    first = validation.integer("train", train, at_least=1)
    second = validation.integer("test", test, at_least=0)
    if first + second > available:
        raise ValueError(
            f"train + test must be at most the number of rows, {available}; "
            f"got {first} + {second} = {first + second}"
        )
    order: npt.NDArray[Any] = validation.generator(generator).permutation(available)
    return Split(order[second : second + first], order[:second])
