"""Columns of a fit: identifiers to leave out, copies of the label to warn of, exceptions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy.typing as npt

from biv._utils.messages import shortened
from biv._utils.warnings import warn
from biv.preprocessing.encoder import MISSING, Categorical, FeatureEncoder, Numeric, columns_of
from biv.preprocessing.leakage import is_identifier, label_copies

MANY_CATEGORIES = 100  # more than these and than half of the filled cells: maybe an identifier


def column_names(X: Any, features: int, keep: Any) -> Sequence[Any]:
    """Return the names of the columns of a frame, or their indices in an array.

    Parameters
    ----------
    X : DataFrame or array-like
        Features.
    features : int
        Number of columns.
    keep : sequence of str
        Names of columns to keep.

    Returns
    -------
    sequence
        Names or indices.

    Raises
    ------
    ValueError
        `keep` is not a list, or names a column that X does not have.
    """
    names = list(X.columns) if hasattr(X, "columns") else []
    known, got = frozenset(names), shortened(keep)
    if not isinstance(keep, str):
        with suppress(TypeError):  # keep is not a list, or a name in it cannot be hashed
            missing = [name for name in keep if name not in known]
            if not missing:
                return names or range(features)
            got = f"{shortened(missing[0])}, which is not a column of X"
    raise ValueError(f"keep must be a list of column names of a frame; got {got}")


class ManyCategoriesWarning(UserWarning):
    """Warning of a column with so many categories that it may be an identifier."""


def without_identifiers(encoder: FeatureEncoder, table: Any, keep: Sequence[Any]) -> FeatureEncoder:
    """Return the encoder without columns of text that look like identifiers, except `keep`.

    Raises
    ------
    ValueError
        No column is left.
    """
    left_out = {}
    for place, rule in enumerate(encoder.columns):
        if not isinstance(rule, Categorical):
            continue
        name, filled = table.columns[place], int(table.iloc[:, place].notna().sum())
        quoted = shortened(name)
        count = len(rule.values) - (MISSING in rule.values)
        if is_identifier(count, filled) and name not in keep:
            left_out[place] = (
                f"column {quoted} was left out: {count:,} distinct texts in {filled:,} filled "
                f"cells, so it looks like an identifier (keep=[{quoted}] keeps it)"
            )
        elif count > max(MANY_CATEGORIES, filled / 2):
            warn(
                f"column {quoted} has {count} categories in {filled} filled cells, and each "
                "becomes a feature: check whether it is an identifier, or numbers read as text",
                ManyCategoriesWarning,
            )
    if len(left_out) == len(encoder.columns):
        raise ValueError(f"all columns of X look like identifiers; {'; '.join(left_out.values())}")
    for message in left_out.values():
        warn(message)
    return encoder.ignoring(left_out)


def warn_of_copies(
    encoder: FeatureEncoder,
    names: Sequence[Any],
    table: Any,
    y: npt.NDArray[Any],
    keep: Sequence[Any],
) -> None:
    """Warn of numeric columns that order the rows as a label does, except `keep`."""
    numbers = [k for k, rule in enumerate(encoder.columns) if isinstance(rule, Numeric)]
    checked = [k for k in numbers if names[k] not in keep]
    columns = [(names[place], values) for place, values in columns_of(table, checked)]
    for label in y.T:
        for name, correlation in label_copies(columns, label).items():
            quoted = shortened(name)
            kept = "" if isinstance(names, range) else f", or name it in keep=[{quoted}]"
            warn(
                f"column {quoted} of X repeats the label (rank correlation {correlation:+.4f}): "
                f"leave it out if it was computed from the label{kept}"
            )
