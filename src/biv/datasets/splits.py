"""Split the rows of a data set at random into disjoint parts."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from biv._utils import validation

Rows = npt.NDArray[np.intp]


class Split(NamedTuple):
    """Indices of the training rows and the test rows.

    Attributes
    ----------
    train : ndarray of int
        Indices of the training rows.
    test : ndarray of int
        Indices of the test rows.

    Examples
    --------
    >>> import numpy as np
    >>> from biv.datasets import Split
    >>> x, split = np.arange(40).reshape(20, 2), Split(np.arange(15), np.arange(15, 20))
    >>> x[split.train].shape, x[split.test].shape
    ((15, 2), (5, 2))
    """

    train: Rows
    test: Rows


def split_rows(rows: int, *, train: int, test: int, generator: np.random.Generator) -> Split:
    """Split rows at random into test rows and training rows.

    The rows are shuffled. The first ones become test rows and the next ones training rows. With
    the same seed and the same `test`, training sets of different sizes therefore have the same test
    rows, and each training set contains the smaller ones.

    Parameters
    ----------
    rows : int
        Number of rows of the data set.
    train : int
        Number of training rows, >= 1.
    test : int
        Number of test rows, >= 0. Rows beyond `train` + `test` are left out.
    generator : numpy.random.Generator
        Generator that the order is drawn from. The same seed gives the same split.

    Returns
    -------
    Split
        Indices of the training rows and of the test rows.

    Raises
    ------
    ValueError
        `train` + `test` is larger than `rows`.

    Examples
    --------
    >>> import numpy as np
    >>> from biv.datasets import split_rows
    >>> split = split_rows(10, train=6, test=3, generator=np.random.default_rng(0))
    >>> len(split.train), len(split.test), len(set(split.train) & set(split.test))
    (6, 3, 0)
    """
    available = validation.integer("rows", rows, at_least=0)
    n_train = validation.integer("train", train, at_least=1)
    n_test = validation.integer("test", test, at_least=0)
    if n_train + n_test > available:
        raise ValueError(
            f"train + test must be at most the number of rows, {available}; "
            f"got {n_train} + {n_test} = {n_train + n_test}"
        )
    order: npt.NDArray[Any] = validation.generator(generator).permutation(available)
    return Split(order[n_test : n_test + n_train], order[:n_test])
