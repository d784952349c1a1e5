"""Predictions beside the columns of a file, a part at a time, whatever its size."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from biv.datasets.files import complete_or_none
from biv.datasets.tablefiles import PARQUET, TEXT, Files, kind, require_arrow
from biv.owndata.modelfolder import ModelFolder


def write_predictions(
    folder: ModelFolder,
    files: Files,
    out: str | Path,
    *,
    name: str = "prediction",
    force: bool = False,
    after_part: Callable[[int], object] = lambda _: None,
) -> int:
    """Copy all rows to one file, with the predicted true label and its standard deviation.

    The cells are copied as they are. The file is complete or not there.

    Args:
        folder: The model.
        files: The columns that it learned from must be there, and others may be.
        out: A file of the same kind, CSV or Parquet.
        name: Of the column of predictions; that of their standard deviations is ``<name>_std``.
        force: Whether to replace a file that is there.
        after_part: Is told of so many rows written.

    Returns:
        How many rows there are.

    Raises:
        ValueError: A column is missing or there already, a cell is not what it should be, or `out`
            is there.
    """
    out, names = Path(out), [name, f"{name}_std"]
    for needed in folder.schema.names:
        files.require(needed)
    if taken := [n for n in names if n in files.columns]:
        raise ValueError(
            f"{files} has a column {taken[0]!r} already: choose another name with --name"
        )
    kinds = {kind(path) for path in files.paths}
    if kinds != {kind(out)}:
        wanted = " or ".join(", ".join(own) for own in kinds if own)
        raise ValueError(f"{out} must be of the kind of the files: {wanted}")
    if out.exists() and not force:
        raise ValueError(f"{out} is there already: --force replaces it")
    if not out.parent.is_dir():
        raise ValueError(f"{out.parent} is not a folder")
    rows = 0
    writer = _csv_writer if kind(out) is TEXT else _parquet_writer
    with complete_or_none(out) as path, writer(path, out, [*files.columns, *names]) as write:
        for part in files.parts(after_part=after_part):
            write(part.cells, *folder.predict(part))
            rows += len(part)
    return rows


@contextmanager
def _csv_writer(path: Path, out: Path, names: list[str]) -> Iterator[Any]:
    compressed = out.name.lower().endswith(".gz")
    opened: Any = gzip.open if compressed else open
    tabs = ".tsv" in out.name.lower()
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t" if tabs else ",", lineterminator="\n")
        writer.writerow(names)

        def write(cells: Any, mean: Any, std: Any) -> None:
            columns = [column.to_pylist() for column in cells.columns]
            writer.writerows(zip(*columns, mean.tolist(), std.tolist(), strict=True))

        yield write


@contextmanager
def _parquet_writer(path: Path, out: Path, names: list[str]) -> Iterator[Any]:
    assert kind(out) is PARQUET
    arrow = require_arrow()
    opened: list[Any] = []

    def write(cells: Any, mean: Any, std: Any) -> None:
        columns = [*cells.columns, arrow.array(mean), arrow.array(std)]
        table = arrow.Table.from_arrays(columns, names=names)
        if not opened:
            opened.append(arrow.parquet.ParquetWriter(path, table.schema))
        opened[0].write_table(table.cast(opened[0].schema))

    try:
        yield write
        if not opened:
            write_none = arrow.table({name: [] for name in names})
            arrow.parquet.write_table(write_none, path)
    finally:
        for writer in opened:
            writer.close()
