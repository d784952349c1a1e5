"""Columns that a model should not learn from: identifiers, and copies of the label."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils.rank_correlation import rank_correlation

Floats = npt.NDArray[np.float64]

DISTINCT = 0.95  # share of the filled cells; with more distinct texts, a column is an identifier
MIN_CELLS = 20  # filled cells that this is judged on
MIN_INTEGERS, DISTINCT_IDS = 100, 0.5  # the same for integers, and for those named like ids
ID = re.compile(r"id$|^id(?![a-z])")
COPY = 0.9995  # |Spearman correlation| with the label
MIN_ROWS, MIN_VALUES = 50, 20  # of a copy
RANKED_ROWS = 20_000  # a correlation is computed on at most this many rows


def is_identifier(distinct: int, filled: int) -> bool:
    """Return whether a text column with these numbers of texts and filled cells identifies rows.

    Example:
        >>> is_identifier(95, 100), is_identifier(94, 100), is_identifier(5, 5)
        (True, False, False)
    """
    return filled >= MIN_CELLS and distinct >= DISTINCT * filled


def integer_ids(columns: Iterable[tuple[Any, Floats]]) -> Iterator[Any]:
    """Yield the names of integer columns that look like identifiers.

    Of at least 100 known cells, all are integers and 95% are distinct; 50% are enough where the
    name ends with "id" or begins with the word "id".

    Example:
        >>> cells = np.arange(400.0) // 1.5
        >>> list(integer_ids([("kepid", cells), ("population", cells), ("row", np.arange(400.0))]))
        ['kepid', 'row']
    """
    for name, values in columns:
        known = values[~np.isnan(values)]
        if len(known) < MIN_INTEGERS or (known != np.floor(known)).any():
            continue
        share = DISTINCT_IDS if ID.search(str(name).lower()) else DISTINCT
        if len(np.unique(known)) >= share * len(known):
            yield name


def label_copies(columns: Iterable[tuple[Any, Floats]], y: Floats) -> dict[Any, float]:
    """Return the columns that order the rows as the label does, each with its correlation.

    A copy has a |Spearman correlation| of at least 0.9995 with the label, over at least 50 rows
    where both are known and at least 20 distinct values of each. The label in other units is one.

    Args:
        columns: Names and values, (N,) each; NaN where a value is missing.
        y: Labels, (N,); NaN where one is missing.

    Example:
        >>> radius = np.linspace(1.0, 9.0, 100)
        >>> label_copies([("in other units", -11.2 * radius), ("its sine", np.sin(radius))], radius)
        {'in other units': -1.0}
    """
    found = {}
    for name, values in columns:
        known = np.flatnonzero(np.isfinite(values) & np.isfinite(y))
        if len(known) < MIN_ROWS:
            continue
        known = known[:: -(-len(known) // RANKED_ROWS)]
        one, two = values[known], y[known]
        if min(len(np.unique(one)), len(np.unique(two))) < MIN_VALUES:
            continue
        correlation = rank_correlation(one, two)
        if abs(correlation) >= COPY:
            found[name] = round(correlation, 6)
    return found
