"""Checks that a model can be trained on a table; their errors name files, rows and columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils.messages import shortened
from biv._utils.pages import argument_hint
from biv._utils.wording import Message, Setting
from biv.estimator.fitted import PREDICTABLE, RowError
from biv.preprocessing.leakage import integer_ids, label_copies
from biv.tables import LabelledTable, Target
from biv.tables.schema import Schema

Floats = npt.NDArray[np.float64]

MIN_ROWS = 2


@contextmanager
def naming_cells(table: LabelledTable, row_indices: npt.NDArray[np.int64]) -> Iterator[None]:
    """Turn an error about a row without a finite prediction into one that names the file's cell.

    Parameters
    ----------
    table : LabelledTable
        The table.
    row_indices : (n,) integer array
        Rows of the table that the model in the body of `with` is fitted to.

    Raises
    ------
    ValueError
        If a row has no finite prediction.
    """
    try:
        yield
    except RowError as error:
        row = int(row_indices[error.row])
        value = table.features[error.column].iloc[row]
        raise ValueError(
            f"{table.where(row)}, column {shortened(error.column)} must be {PREDICTABLE}; "
            f"got {value:g}"
        ) from error


def require_learnable(table: LabelledTable, *, unknown: str = "raise") -> None:
    """Check that a model can be trained on a table.

    Parameters
    ----------
    table : LabelledTable
        Table in memory.
    unknown : {"raise", "median", "estimate"}, default="raise"
        Treatment of unknown error bars, as `unknown_variance` of :class:`BIVRegressor`.

    Raises
    ------
    ValueError
        If there are too few rows, all labels are equal, all weights are 0, all error bars are
        unknown, 0 or infinite, or one is unknown and `unknown` is "raise".
    """
    target, y = table.target, table.y
    source = ", ".join(map(str, list(table.files)[:3]))
    if len(table) < MIN_ROWS:
        raise ValueError(
            f"{source} must have at least {MIN_ROWS} rows with a label; got {len(table)}"
        )
    if np.ptp(y) == 0:
        raise ValueError(
            f"{source}: every label in column {shortened(target.name)} is {y[0]:g}: nothing can be "
            "learned"
        )
    if table.weight is not None and not table.weight.any():
        raise ValueError(f"{source}: every weight in column {shortened(target.weight)} is 0")
    used = np.ones(len(y), dtype=bool) if table.weight is None else table.weight > 0
    if table.variance is not None:
        _require_error_bars(table, table.variance, source, unknown)
        used &= ~np.isinf(table.variance)
    if used.sum() < MIN_ROWS:
        raise ValueError(
            f"{source} must have at least {MIN_ROWS} labels with a finite error bar and a "
            f"positive weight; got {used.sum()}"
        )


def _require_error_bars(table: LabelledTable, variance: Floats, source: str, unknown: str) -> None:
    names = " and ".join(map(shortened, table.target.error_bars))
    if np.isnan(variance).all():
        raise ValueError(
            f"{source}: no error bar in column {names} is known: leave the column out"
            f"{argument_hint('variance')}"
        )
    if unknown == "raise" and np.isnan(variance).any():
        n_others = int(np.isnan(variance).sum()) - 1
        others = "" if not n_others else " (and none in 1 other row)"
        if n_others > 1:
            others = f" (and none in {n_others:,} other rows)"
        raise ValueError(
            Message(
                "{first}, column {names} must have an error bar; got none{others}: {median} "
                "replaces missing error bars by the median of the known ones, and {estimate} by "
                "an estimate from the residuals{see}",
                first=table.where(int(np.flatnonzero(np.isnan(variance))[0])),
                names=names,
                others=others,
                median=Setting("unknown_variance", "median"),
                estimate=Setting("unknown_variance", "estimate"),
                see=argument_hint("variance"),
            )
        )
    known = variance[~np.isnan(variance)]
    if not known.any():
        raise ValueError(
            f"{source}: every error bar in column {names} is 0: if the labels have no noise, "
            f"leave the column out{argument_hint('variance')}"
        )
    if np.isinf(known).all():
        raise ValueError(f"{source}: every error bar in column {names} is infinite")


def column_remarks(schema: Schema, features: Any, keep: Sequence[str] = ()) -> Iterator[str]:
    """Yield a remark on each column that was left out and each integer that may be an identifier.

    Parameters
    ----------
    schema : Schema
        Schema of the table.
    features : pandas.DataFrame
        Feature columns.
    keep : sequence of str, default=()
        Columns that are not checked.
    """
    yield from schema.left_out()
    numbers = [c.name for c in schema.columns if c.kind == "number" and c.name not in keep]
    for name in integer_ids((name, features[name].to_numpy()) for name in numbers):
        yield Message(
            "column {name} holds mostly distinct integers: if it is an identifier, leave it out "
            "({ignore})",
            name=shortened(name),
            ignore=Setting("ignore", [name]),
        )


def require_no_copies(
    source: object,
    target: Target,
    features: Any,
    y: Floats,
    ends: Floats | None,
    keep: Sequence[str] = (),
) -> None:
    """Check that no numeric feature repeats the label or an end of the label's interval.

    Parameters
    ----------
    source : object
        Files that an error names.
    target : Target
        Columns of the label and its error bars.
    features : pandas.DataFrame
        Feature columns.
    y : (N,) array
        Labels.
    ends : (N, 2) array or None
        Lower and upper ends of the labels' intervals, if they have any.
    keep : sequence of str, default=()
        Columns that are not checked.

    Raises
    ------
    ValueError
        If there is such a column (see :func:`biv.preprocessing.leakage.label_copies`).
    """
    numbers = [n for n, dtype in features.dtypes.items() if dtype.kind == "f" and n not in keep]
    columns = [(name, features[name].to_numpy()) for name in numbers]
    labels = [(target.name, y)]
    if target.interval is not None and ends is not None:
        labels += zip(target.interval, ends.T, strict=True)
    for label, values in labels:
        if copies := label_copies(columns, values):
            names = list(map(str, copies))
            listed = ", ".join(f"{shortened(name)} ({copies[name]:+.4f})" for name in names)
            repeating, them = (
                ("1 feature repeats", "it")
                if len(names) == 1
                else (f"{len(names)} features repeat", "them")
            )
            raise ValueError(
                Message(
                    "{source}: features must not repeat the label; {features} it, judged by the "
                    "rank correlation with {label}: {listed}. Leave {them} out with {ignore}, or "
                    "use {them} nevertheless with {keep}",
                    source=source,
                    features=repeating,
                    them=them,
                    label=shortened(label),
                    listed=listed,
                    ignore=Setting("ignore", names),
                    keep=Setting("keep", names),
                )
            )
