"""Predictions beside the columns of a file, a part at a time, whatever its size."""

from __future__ import annotations

import csv
import gzip
import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from biv._utils.atomic_files import open_atomically
from biv._utils.messages import shortened
from biv._utils.wording import Message, Setting
from biv.estimator.fitted import PREDICTABLE, RowError
from biv.tables.files import Files, is_compressed, separator
from biv.tables.part import PARQUET, Part, kind, require_arrow
from biv.workflows.model_folder import ModelFolder, Predicted
from biv.workflows.training_folder import FORCE


def write_predictions(
    folder: ModelFolder,
    files: Files,
    out: str | Path,
    *,
    name: str = "prediction",
    force: bool = False,
    after_part: Callable[[int], object] = lambda _: None,
    report_unseen: Callable[[Mapping[str, int]], object] = lambda _: None,
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
        report_unseen: Called at the end with the number of cells per column that hold a category
            not seen in training, if there are any.

    Returns:
        How many rows there are.

    Raises:
        ValueError: A column is missing or there already, a cell is not what it should be, or `out`
            is there.
        InUseError: Another process is writing `out`.
        WriteError: `out` cannot be written.
    """
    out, names = Path(out), [name, f"{name}_std"]
    for needed in folder.schema.names:
        files.require_column(needed)
    if taken := [n for n in names if n in files.columns]:
        raise ValueError(
            Message(
                "{files} has a column {taken} already: choose another name with {name}",
                files=files,
                taken=shortened(taken[0]),
                name=Setting("name"),
            )
        )
    kinds = {kind(path) for path in files.paths}
    if kinds != {kind(out)}:
        wanted = " or ".join(", ".join(own) for own in kinds if own)
        raise ValueError(f"{out} must be of the kind of the files: {wanted}")
    if not out.parent.is_dir():
        raise ValueError(f"{out.parent} is not a folder")
    require_no_file(out, force=force)
    rows, columns, unseen = 0, [*files.columns, *names], Counter[str]()
    with open_atomically(out) as file, _writer(file, out, files, columns) as write:
        require_no_file(out, force=force)  # another process may just have finished it
        for part in files.parts(after_part=after_part):
            predicted = _predicted(folder, part)
            write(part.cells, predicted.mean, predicted.std)
            unseen.update(predicted.unseen)
            rows += len(part)
    if unseen:
        report_unseen(unseen)
    return rows


def _predicted(folder: ModelFolder, part: Part) -> Predicted:
    """The predictions of a part; an error names the file's own row and column."""
    try:
        return folder.predict(part)
    except RowError as error:
        bad = np.arange(len(part)) == error.row
        for column in folder.schema.columns:
            if error.column in column(part):
                part.refuse(column.name, bad, PREDICTABLE)
        raise


def require_no_file(out: Path, *, force: bool) -> None:
    """Refuse a file that exists, unless it is to be replaced."""
    if out.exists() and not force:
        raise ValueError(
            Message("{out} is there already: {force} replaces it", out=out, force=FORCE)
        )


def _writer(file: BinaryIO, out: Path, files: Files, names: list[str]) -> Any:
    if kind(out) is PARQUET:
        return _parquet_writer(file, files, names)
    separated = "\t" if ".tsv" in out.name.lower() else separator(files.paths[0])
    return _csv_writer(file, names, separated, compressed=is_compressed(out))


@contextmanager
def _csv_writer(
    out: BinaryIO, names: list[str], separated: str, *, compressed: bool
) -> Iterator[Any]:
    arrow, binary = require_arrow(), gzip.GzipFile(fileobj=out, mode="wb") if compressed else out
    with io.TextIOWrapper(binary, encoding="utf-8", newline="") as file:
        form: dict[str, Any] = {"delimiter": separated, "lineterminator": "\n"}
        plain, quoted = csv.writer(file, **form), csv.writer(file, quoting=csv.QUOTE_ALL, **form)
        # Python leaves a lone carriage return unquoted, and readers end a row there. They drop a
        # byte order mark at the beginning of the file.
        odd = names[0].startswith("\ufeff") or any("\r" in name for name in names)
        (quoted if odd else plain).writerow(names)

        def write(cells: Any, mean: Any, std: Any) -> None:
            columns = [column.to_pylist() for column in cells.columns]
            returns = (arrow.compute.match_substring(column, "\r") for column in cells.columns)
            writer = quoted if any(arrow.compute.any(r).as_py() for r in returns) else plain
            writer.writerows(zip(*columns, mean.tolist(), std.tolist(), strict=True))

        yield write


@contextmanager
def _parquet_writer(out: BinaryIO, files: Files, names: list[str]) -> Iterator[Any]:
    arrow = require_arrow()
    schema = files.schema()
    for name in names[-2:]:
        schema = schema.append(arrow.field(name, arrow.float64()))
    with arrow.parquet.ParquetWriter(out, schema) as writer:

        def write(cells: Any, mean: Any, std: Any) -> None:
            columns = [*cells.columns, arrow.array(mean), arrow.array(std)]
            writer.write_table(arrow.Table.from_arrays(columns, names=names).cast(schema))

        yield write
