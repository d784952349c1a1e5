"""Write predictions beside the columns of a file of any size, part by part."""

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
from biv._utils.messages import shortened, wrong_path
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

    The cells are copied unchanged. The file is written completely or not at all.

    Parameters
    ----------
    folder : ModelFolder
        The model.
    files : Files
        Files that have the columns the model was trained on; they may have others.
    out : str or Path
        Output file of the same kind, CSV or Parquet.
    name : str, default="prediction"
        Column of the predictions; the column of their standard deviations is ``<name>_std``.
    force : bool, default=False
        Whether to replace an existing file.
    after_part : callable, optional
        Called after each part with its number of rows.
    report_unseen : callable, optional
        Called at the end with the number of cells per column that hold a category not seen in
        training, if there are any.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    ValueError
        If a column is missing or already exists, a cell is invalid, or `out` exists.
    InUseError
        If another process is writing `out`.
    WriteError
        If `out` cannot be written.
    """
    out, names = Path(out), [name, f"{name}_std"]
    for needed in folder.schema.names:
        files.require_column(needed)
    if used_names := [n for n in names if n in files.columns]:
        raise ValueError(
            Message(
                "{files} already has a column {used}: choose another name with {name}",
                files=files,
                used=shortened(used_names[0]),
                name=Setting("name"),
            )
        )
    kinds = {kind(path) for path in files.paths}
    if kinds != {kind(out)}:
        suffixes = " or ".join(", ".join(endings) for endings in kinds if endings)
        raise ValueError(f"{out} must be of the kind of the files: {suffixes}")
    if not out.parent.is_dir():
        raise ValueError(wrong_path(out.parent, "a folder"))
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
    """Return the predictions for a part; an error names the row and column of the file."""
    try:
        return folder.predict(part)
    except RowError as error:
        is_bad = np.arange(len(part)) == error.row
        for column in folder.schema.columns:
            if error.column in column(part):
                part.refuse(column.name, is_bad, PREDICTABLE)
        raise


def require_no_file(out: Path, *, force: bool) -> None:
    """Check that a file does not exist, unless it may be replaced."""
    if out.exists() and not force:
        raise ValueError(Message("{out} already exists: {force} replaces it", out=out, force=FORCE))


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
        # The csv module does not quote a lone carriage return, but readers end a row there. Readers
        # also drop a byte order mark at the beginning of the file.
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
