"""Whether a table can be learned from at all, said in the words of its files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._utils.messages import shortened
from biv._utils.pages import see
from biv._utils.wording import Message, Setting
from biv.estimator.fitted import PREDICTABLE, RowError
from biv.preprocessing.leakage import integer_ids, label_copies
from biv.tables import LabelledTable, Target
from biv.tables.schema import Schema

Floats = npt.NDArray[np.float64]

MIN_ROWS = 2


@contextmanager
def naming_cells(table: LabelledTable, places: npt.NDArray[np.int64]) -> Iterator[None]:
    """Name the cell of a file that leaves a row without a finite prediction.

    Args:
        table: Its files.
        places: Of the rows that a model is fitted to inside.

    Raises:
        ValueError: A row has none.
    """
    try:
        yield
    except RowError as error:
        place = int(places[error.row])
        found = table.features[error.column].iloc[place]
        raise ValueError(
            f"{table.where(place)}, column {shortened(error.column)} must be {PREDICTABLE}; "
            f"got {found:g}"
        ) from error


def require_learnable(table: LabelledTable, *, unknown: str = "raise") -> None:
    """Refuse what no model can learn from.

    Args:
        table: Rows, labels, error bars.
        unknown: What is to become of a missing error bar; "raise" refuses it.

    Raises:
        ValueError: There are too few rows, all labels are equal, or the error bars say nothing.
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
            f"{source} must have at least {MIN_ROWS} labels of a finite error bar and a "
            f"positive weight; got {used.sum()}"
        )


def _require_error_bars(table: LabelledTable, variance: Floats, source: str, unknown: str) -> None:
    names = " and ".join(map(shortened, table.target.error_bars))
    if np.isnan(variance).all():
        raise ValueError(
            f"{source}: no error bar in column {names} is known: leave it out{see('variance')}"
        )
    if unknown == "raise" and np.isnan(variance).any():
        count = int(np.isnan(variance).sum())
        first = table.where(int(np.flatnonzero(np.isnan(variance))[0]))
        raise ValueError(
            Message(
                "{first}, column {names} must have an error bar; it is missing there and in "
                "{others} other rows: {median} puts the median in its place, and {estimate} what "
                "their residuals say{see}",
                first=first,
                names=names,
                others=count - 1,
                median=Setting("unknown_variance", "median"),
                estimate=Setting("unknown_variance", "estimate"),
                see=see("variance"),
            )
        )
    known = variance[~np.isnan(variance)]
    if not known.any():
        raise ValueError(
            f"{source}: every error bar in column {names} is 0: if the labels are without noise, "
            f"leave it out{see('variance')}"
        )
    if np.isinf(known).all():
        raise ValueError(f"{source}: every error bar in column {names} is infinite")


def column_remarks(schema: Schema, features: Any, keep: Sequence[str] = ()) -> Iterator[str]:
    """Name the columns that were left out, and integers that may be identifiers.

    Args:
        schema: What the columns mean.
        features: A pandas frame of them.
        keep: Columns that nothing is to be said about.
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


def refuse_copies(
    source: object,
    target: Target,
    features: Any,
    y: Floats,
    ends: Floats | None,
    keep: Sequence[str] = (),
) -> None:
    """Refuse numeric columns that repeat the label or an end of its interval, but for kept ones.

    Raises:
        ValueError: There is one (:func:`biv.preprocessing.leakage.label_copies`).
    """
    numbers = [n for n, dtype in features.dtypes.items() if dtype.kind == "f" and n not in keep]
    columns = [(name, features[name].to_numpy()) for name in numbers]
    labels = [(target.name, y)]
    if target.interval is not None and ends is not None:
        labels += zip(target.interval, ends.T, strict=True)
    for label, values in labels:
        if found := label_copies(columns, values):
            names = list(map(str, found))
            listed = ", ".join(f"{shortened(name)} ({found[name]:+.4f})" for name in names)
            raise ValueError(
                Message(
                    "{source}: columns to learn from must not repeat the label; by their rank "
                    "correlations with {label}, these do: {listed}. Leave them out with {ignore}, "
                    "or learn from them all the same with {keep}",
                    source=source,
                    label=shortened(label),
                    listed=listed,
                    ignore=Setting("ignore", names),
                    keep=Setting("keep", names),
                )
            )
