"""Columns that a model should not learn from: identifiers, and copies of the label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils.rank_correlation import rank_correlation

Floats = npt.NDArray[np.float64]

DISTINCT = 0.95  # a column is an identifier if at least this fraction of its filled cells differ
MIN_CELLS = 20  # smallest number of filled cells for this rule
# The smallest number of cells for integers, and the fraction for those that are named like ids.
MIN_INTEGERS, DISTINCT_IDS = 100, 0.5
ID = re.compile(r"id$|^id(?![a-z])")
COPY = 0.9995  # smallest |Spearman correlation| of a copy with the label
MIN_ROWS, MIN_VALUES = 50, 20  # smallest numbers of rows and of distinct values of a copy
RANKED_ROWS = 20_000  # the correlation is computed on at most this many rows


def is_identifier(distinct: int, filled: int) -> bool:
    """Return whether a text column identifies rows, by its numbers of distinct and filled cells.

    Examples
    --------
    >>> is_identifier(95, 100), is_identifier(94, 100), is_identifier(5, 5)
    (True, False, False)
    """
    return filled >= MIN_CELLS and distinct >= DISTINCT * filled


def integer_ids(columns: Iterable[tuple[Any, Floats]]) -> Iterator[Any]:
    """Yield the names of integer columns that look like identifiers.

    Such a column has at least 100 known cells. All of them are integers, and 95% are distinct. If
    the name ends with "id" or begins with the word "id", 50% are enough.

    Examples
    --------
    >>> cells = np.arange(400.0) // 1.5
    >>> list(integer_ids([("kepid", cells), ("population", cells), ("row", np.arange(400.0))]))
    ['kepid', 'row']
    """
    for name, values in columns:
        known = values[~np.isnan(values)]
        if len(known) < MIN_INTEGERS or (known != np.floor(known)).any():
            continue
        fraction = DISTINCT_IDS if ID.search(str(name).lower()) else DISTINCT
        if len(np.unique(known)) >= fraction * len(known):
            yield name


def label_copies(columns: Iterable[tuple[Any, Floats]], y: Floats) -> dict[Any, float]:
    """Return the columns that order the rows as the label does, each with its correlation.

    A copy, such as the label in other units, has a |Spearman correlation| of at least 0.9995 with
    the label. It is computed over the rows where both are known. There must be at least 50 of them,
    with at least 20 distinct values of each.

    Parameters
    ----------
    columns : iterable of (name, ndarray of shape (N,))
        Names and values of the columns, with NaN where a value is missing.
    y : ndarray of shape (N,)
        Labels, with NaN where one is missing.

    Examples
    --------
    >>> radius = np.linspace(1.0, 9.0, 100)
    >>> label_copies([("in other units", -11.2 * radius), ("its sine", np.sin(radius))], radius)
    {'in other units': -1.0}
    """
    copies = {}
    for name, values in columns:
        known = np.flatnonzero(np.isfinite(values) & np.isfinite(y))
        if len(known) < MIN_ROWS:
            continue
        known = known[:: -(-len(known) // RANKED_ROWS)]
        column, labels = values[known], y[known]
        if min(len(np.unique(column)), len(np.unique(labels))) < MIN_VALUES:
            continue
        correlation = rank_correlation(column, labels)
        if abs(correlation) >= COPY:
            copies[name] = round(correlation, 6)
    return copies
