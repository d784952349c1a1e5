"""Files that hold a table, CSV or Parquet, read a part at a time; errors name the cell."""

from __future__ import annotations

import csv
import difflib
import gzip
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

ROWS = 50_000  # of a part
TEXT, PARQUET = (".csv", ".tsv", ".csv.gz", ".tsv.gz"), (".parquet", ".pq")
SEPARATORS = ",;\t"
MISSING = ("", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None", "none", "-", "?")
NAMES_SHOWN = 10  # of columns, in an error


class Part(NamedTuple):
    """Some consecutive rows of a file.

    Attributes:
        path: The file.
        start: How many of its rows come before.
        frame: The cells: of CSV as the text that they are, of Parquet with their types.
    """

    path: Path
    start: int
    frame: Any

    def known(self, name: str) -> npt.NDArray[np.bool_]:
        """Which cells of a column are there: not null and, in CSV, none of :data:`MISSING`."""
        column = self.frame[name]
        there: npt.NDArray[np.bool_] = column.notna().to_numpy()
        if kind(self.path) is TEXT:
            there = there & ~column.str.strip().isin(MISSING).to_numpy()
        return there

    def numbers(self, name: str, wanted: str = "a number") -> npt.NDArray[np.float64]:
        """A column as numbers; NaN where a cell is missing.

        Raises:
            ValueError: A cell is no number.
        """
        values = numbers(self.frame[name])
        self.refuse(name, np.isnan(values) & self.known(name), wanted)
        return values

    def refuse(self, name: str, bad: Array, wanted: str) -> None:
        """Name the first cell that is bad, if there is one.

        Raises:
            ValueError: There is.
        """
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            found = self.frame[name].iloc[row]
            found = found if isinstance(found, str) else str(found)
            raise ValueError(
                f"{self.path}, row {self.start + row + 1}, column {name!r} must be {wanted}; "
                f"found {found!r}"
            )


def numbers(column: Any) -> npt.NDArray[np.float64]:
    """The cells as numbers; NaN where one is none."""
    pandas = require_pandas()
    if column.dtype.kind in "fiub":
        return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))
    values = pandas.to_numeric(column.astype(object), errors="coerce")
    return np.asarray(values.to_numpy(dtype=np.float64, na_value=np.nan))


class Files:
    """One table in one or several files, all with the same columns.

    The file is CSV (in UTF-8, with commas, semicolons or tabs, compressed by gzip or not) or
    Parquet. Rows are counted from 1 in each file, the names of the columns not among them.

    Args:
        paths: Files, and folders of them.

    Attributes:
        paths: Every file, those of a folder by name.
        columns: Their names, as in the first file.

    Raises:
        ValueError: There is none, one cannot be read, or their columns differ.
        FileNotFoundError: One is not there.
    """

    def __init__(self, paths: str | Path | Sequence[str | Path]) -> None:
        given = [paths] if isinstance(paths, (str, Path)) else list(paths)
        self.paths = [file for path in given for file in _found(Path(path))]
        if not self.paths:
            raise ValueError("name a file or a folder with tables; found none")
        self._states = [_state(path) for path in self.paths]
        self._headers = [_header(path) for path in self.paths]
        self.columns = self._headers[0]
        for path, others in zip(self.paths[1:], self._headers[1:], strict=True):
            if odd := sorted(set(others) ^ set(self.columns)):
                raise ValueError(
                    f"{path} must have the columns of {self.paths[0]}; they differ in "
                    f"{', '.join(map(repr, odd[:NAMES_SHOWN]))}"
                )

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.paths[:3]))
        return f"{shown}, ... ({len(self.paths)} files)" if len(self.paths) > 3 else shown

    def require(self, name: str) -> str:
        """The name of a column, if there is such a column.

        Raises:
            ValueError: There is none; the nearest name is suggested.
        """
        if name not in self.columns:
            raise ValueError(f"{self.paths[0]} must have a column {name!r}{self._hint(name)}")
        return name

    def _hint(self, name: str) -> str:
        by_case = {own.casefold(): own for own in self.columns}
        near = difflib.get_close_matches(name.casefold(), by_case, n=1, cutoff=0.5)
        if near:
            return f"; did you mean {by_case[near[0]]!r}?"
        more = ", ..." if len(self.columns) > NAMES_SHOWN else ""
        return f"; found {', '.join(map(repr, self.columns[:NAMES_SHOWN]))}{more}"

    def parts(
        self,
        columns: Sequence[str] | None = None,
        after_part: Callable[[int], object] = lambda _: None,
    ) -> Iterator[Part]:
        """All rows, a part at a time.

        Args:
            columns: Those that are wanted; None for all, in the order of the first file.
            after_part: Is told how many rows a part had, once it has been used.

        Raises:
            ValueError: A file is not what it was when this object was made, or cannot be read.
        """
        wanted = list(self.columns if columns is None else columns)
        for path, header, before in zip(self.paths, self._headers, self._states, strict=True):
            start = 0
            frames = _frames(path, header, wanted)
            while True:
                try:
                    frame = next(frames, None)
                    changed = _state(path) != before
                except (OSError, ValueError, csv.Error, EOFError) as error:
                    if _state(path) != before:
                        raise ValueError(f"{path} has changed while it was read") from error
                    raise ValueError(f"{path} cannot be read: {error}") from error
                if changed:
                    raise ValueError(f"{path} has changed while it was read")
                if frame is None:
                    break
                if len(frame):
                    yield Part(path, start, frame)
                    start += len(frame)
                    after_part(len(frame))


def _state(path: Path) -> tuple[int, int] | None:
    """What changes when a file does; None once it is gone."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


def _found(path: Path) -> list[Path]:
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if kind(p) is not None and p.is_file())
        inside = [p for p in inside if not p.name.startswith((".", "_"))]
        if not inside:
            raise ValueError(
                f"{path} must hold tables ({', '.join((*TEXT, *PARQUET))}); found none"
            )
        return inside
    if not path.is_file():
        others = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, others, n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise FileNotFoundError(f"{path} is not there{hint}")
    if kind(path) is None:
        raise ValueError(f"{path} must end in one of {', '.join((*TEXT, *PARQUET))}")
    return [path]


def kind(path: Path) -> tuple[str, ...] | None:
    """:data:`TEXT` or :data:`PARQUET`, by the name; None for anything else."""
    name = path.name.lower()
    return next((kind for kind in (TEXT, PARQUET) if name.endswith(kind)), None)


def _header(path: Path) -> list[str]:
    try:
        if kind(path) is PARQUET:
            names = list(require_parquet().read_schema(path).names)
        else:
            with open_text(path) as file:
                names = next(filter(None, _rows(file, separator(path))), [])
    except (OSError, ValueError, csv.Error, EOFError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not any(name.strip() for name in names):
        raise ValueError(f"{path} must begin with the names of its columns; found none")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{path} must name each column once; found {name!r} twice")
        seen.add(name)
    return names


def open_text(path: Path) -> Any:
    """A text file as csv wants it, compressed or not, without the mark that Windows begins with."""
    compressed = path.name.lower().endswith(".gz")
    opened: Any = gzip.open if compressed else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def separator(path: Path) -> str:
    """What stands between the names of the columns."""
    with open_text(path) as file:
        line = str(file.readline())
    return max(SEPARATORS, key=line.count)


def _rows(file: Any, delimiter: str) -> Iterator[list[str]]:
    return csv.reader(file, delimiter=delimiter, strict=True)


def _frames(path: Path, header: list[str], columns: list[str]) -> Iterator[Any]:
    if kind(path) is PARQUET:
        with require_parquet().ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                yield batch.to_pandas()[columns]
        return
    pandas = require_pandas()
    places = [header.index(name) for name in columns]
    with open_text(path) as file:
        rows = (row for row in _rows(file, separator(path)) if row)  # blank lines are none
        next(rows)
        start = 0
        while part := list(islice(rows, ROWS)):
            if set(map(len, part)) != {len(header)}:
                odd = next(k for k, row in enumerate(part) if len(row) != len(header))
                raise ValueError(
                    f"row {start + odd + 1} must have {len(header)} cells, as the names of the "
                    f"columns are; found {len(part[odd])}"
                )
            start += len(part)
            cells = list(zip(*part, strict=True))
            values = [np.array(cells[place], dtype=object) for place in places]
            yield pandas.DataFrame(dict(zip(columns, values, strict=True)))


def require_pandas() -> Any:
    """Pandas, which is imported when a table is read and not before."""
    try:
        import pandas as pd
    except ImportError as error:
        raise ValueError("tables need pandas: pip install pandas, or biv[command]") from error
    return pd


def require_parquet() -> Any:
    """What reads and writes Parquet."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ValueError(
            "Parquet files need pyarrow: pip install pyarrow, or biv[command]"
        ) from error
    return pyarrow.parquet
