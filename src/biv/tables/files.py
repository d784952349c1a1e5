"""CSV and Parquet files that hold a table and are read part by part."""

from __future__ import annotations

import csv
import difflib
import gzip
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from biv._utils.messages import message_of, shortened
from biv.tables.part import PARQUET, TEXT, Part, kind, require_arrow

ROWS, BLOCK = 50_000, 1 << 24  # size of a part: rows of Parquet, bytes of CSV
SEPARATORS = ",;\t"
NAMES_SHOWN = 10  # names of columns in an error


class Files:
    """A table in one or several files that have the same columns.

    Files are CSV or Parquet. CSV is UTF-8 with commas, semicolons or tabs, and may be compressed
    by gzip. Errors count the rows of each file from 1, without the row of column names.

    Parameters
    ----------
    paths : path or sequence of paths
        Files, and folders of files.

    Attributes
    ----------
    paths : list of Path
        All files; those of a folder are sorted by name.
    columns : list of str
        Names of the columns, in the order of the first file.

    Raises
    ------
    ValueError
        If there is no file, a file cannot be read, or the columns differ between files.
    FileNotFoundError
        If a file does not exist.
    """

    def __init__(self, paths: str | Path | Sequence[str | Path]) -> None:
        given = [paths] if isinstance(paths, (str, Path)) else list(paths)
        self.paths = [file for path in given for file in _list_files(Path(path))]
        if not self.paths:
            raise ValueError("paths must name at least one file or folder with tables; got none")
        seen: set[Path] = set()
        for path in self.paths:
            if path.resolve() in seen:
                raise ValueError(f"{path} must be given once; got it twice")
            seen.add(path.resolve())
        self._states = [file_state(path) for path in self.paths]
        self._headers = [_header(path) for path in self.paths]
        self.columns = self._headers[0]
        for path, header in zip(self.paths[1:], self._headers[1:], strict=True):
            if different := sorted(set(header) ^ set(self.columns)):
                raise ValueError(
                    f"{path} must have the columns of {self.paths[0]}; they differ in "
                    f"{', '.join(map(shortened, different[:NAMES_SHOWN]))}"
                )

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.paths[:3]))
        return f"{shown}, ... ({len(self.paths)} files)" if len(self.paths) > 3 else shown

    def schema(self) -> Any:
        """Return the Arrow types of the columns of Parquet files, wide enough for all files.

        Raises
        ------
        ValueError
            If a column has types in two files that cannot be unified.
        """
        arrow = require_arrow()
        schema = None
        for path in self.paths:
            fields = arrow.parquet.read_schema(path).remove_metadata()
            other = arrow.schema([fields.field(name) for name in self.columns])
            try:
                schema = (
                    other
                    if schema is None
                    else arrow.unify_schemas([schema, other], promote_options="permissive")
                )
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{path} must have the column types of the files before it: {message_of(error)}"
                ) from error
        return schema

    def require_column(self, name: str) -> str:
        """Check that a column exists, and return its name.

        Raises
        ------
        ValueError
            If there is no such column; the message suggests the most similar name.
        """
        if name not in self.columns:
            raise ValueError(
                f"{self.paths[0]} must have a column {shortened(name)}{self._hint(name)}"
            )
        return name

    def _hint(self, name: str) -> str:
        by_case = {column.casefold(): column for column in self.columns}
        near = difflib.get_close_matches(name.casefold(), by_case, n=1, cutoff=0.5)
        if near:
            return f"; did you mean {shortened(by_case[near[0]])}?"
        more = ", ..." if len(self.columns) > NAMES_SHOWN else ""
        return f"; got {', '.join(map(shortened, self.columns[:NAMES_SHOWN]))}{more}"

    def parts(
        self,
        columns: Sequence[str] | None = None,
        after_part: Callable[[int], object] = lambda _: None,
    ) -> Iterator[Part]:
        """Iterate over all rows, part by part.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns to read; None reads all, in the order of the first file.
        after_part : callable, optional
            Function called with the number of rows of each part, after the part has been used.

        Yields
        ------
        Part
            Consecutive rows of one file.

        Raises
        ------
        ValueError
            If a file has changed since this object was created, or cannot be read.
        """
        requested = list(self.columns if columns is None else columns)
        for path, header, before in zip(self.paths, self._headers, self._states, strict=True):
            start, batches = 0, _batches(path, header, requested)
            while True:
                try:
                    cells = next(batches, None)
                    error = None
                except (OSError, ValueError) as raised:
                    error = raised
                if file_state(path) != before:
                    raise ValueError(f"{path} has changed while it was read") from error
                if error is not None:
                    raise ValueError(
                        f"{path} cannot be read: {_error_text(error, start)}"
                    ) from error
                if cells is None:
                    break
                if len(cells):
                    yield Part(path, start, cells)
                    start += len(cells)
                    after_part(len(cells))


def _error_text(error: Exception, start: int) -> str:
    """Return the message of an error of Arrow, with rows counted as in the other errors.

    Parameters
    ----------
    error : Exception
        Error raised by Arrow.
    start : int
        Number of rows read before the error.
    """
    if "straddling object" in str(error):
        return (
            f"a row after row {start:,} is longer than {BLOCK:,} bytes; check for a missing line "
            "break or closing quote"
        )
    if "UTF8" in str(error):
        return "it must be UTF-8 text"
    match = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
    if match is None:
        return message_of(error)
    row, expected, count = map(int, match.groups())
    return f"row {row - 1} must have {expected} cells, one per column; got {count}"


def file_state(path: Path) -> tuple[int, int] | None:
    """Return the size and modification time of a file; None if it does not exist."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


def _list_files(path: Path) -> list[Path]:
    """Return the table files that a path names: the file itself, or those of a folder."""
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if kind(p) is not None and p.is_file())
        inside = [  # without hidden and temporary files of notebooks, version control and jobs
            p
            for p in inside
            if not any(n.startswith((".", "_")) for n in p.relative_to(path).parts)
        ]
        if not inside:
            raise ValueError(
                f"{path} must contain tables ({', '.join((*TEXT, *PARQUET))}); got none"
            )
        return inside
    if not path.is_file():
        if path.exists():  # a pipe, socket or device cannot be read twice
            raise ValueError(f"{path} must be a regular file or a folder; got neither")
        if path.is_symlink():
            raise FileNotFoundError(f"{path} is a symbolic link to a file that does not exist")
        others = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, others, n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise FileNotFoundError(f"{path} does not exist{hint}")
    if kind(path) is None:
        raise ValueError(f"{path} must end in one of {', '.join((*TEXT, *PARQUET))}")
    return [path]


def _header(path: Path) -> list[str]:
    try:
        if kind(path) is PARQUET:
            names = list(require_arrow().parquet.read_schema(path).names)
        else:
            with _open_text(path) as file:
                rows = csv.reader(_lines(file), delimiter=separator(path))
                names = next(filter(None, rows), [])
    except (OSError, ValueError, csv.Error, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be read: {message_of(error)}") from error
    if not any(name.strip() for name in names):
        raise ValueError(f"{path} must begin with the names of its columns; got none")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"{path} must name each column once; got {shortened(name)} twice")
        seen.add(name)
    return names


def _lines(file: Any) -> Iterator[str]:
    """Yield lines for the column names, of at most the length of a part in total.

    Raises
    ------
    ValueError
        If the lines are longer.
    """
    remaining = BLOCK
    while line := file.readline(remaining + 1):
        remaining -= len(line)
        if remaining < 0:
            raise ValueError(
                f"the column names must have at most {BLOCK:,} characters; check for a missing "
                "line break or closing quote"
            )
        yield line


def _open_text(path: Path) -> Any:
    """Open a text file, compressed or not, and skip a byte order mark."""
    opened: Any = gzip.open if is_compressed(path) else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def is_compressed(path: Path) -> bool:
    """Return whether a file is compressed by gzip, judged by its name."""
    return path.name.lower().endswith(".gz")


def separator(path: Path) -> str:
    """Return the character that separates the column names."""
    with _open_text(path) as file:
        lines, quotes = list[str](), 0
        for line in _lines(file):
            lines.append(line)
            quotes += line.count('"')
            if quotes % 2 == 0:
                break
    unquoted = re.sub(r'"[^"]*"?', "", "".join(lines))
    return max(SEPARATORS, key=unquoted.count)


def _batches(path: Path, header: list[str], columns: list[str]) -> Iterator[Any]:
    arrow = require_arrow()
    if kind(path) is PARQUET:
        with arrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS, columns=columns):
                yield batch.select(columns)  # reading 'a.b' also reads a struct 'a' with a field b
        return
    csv_ = arrow.csv
    stream = arrow.input_stream(path, compression="gzip" if is_compressed(path) else None)
    with csv_.open_csv(
        stream,
        # One thread: with several, Arrow's errors do not name the row.
        read_options=csv_.ReadOptions(use_threads=False, block_size=BLOCK),
        parse_options=csv_.ParseOptions(
            delimiter=separator(path),
            newlines_in_values=True,
            ignore_empty_lines=len(header) > 1,  # with one column, an empty line is a missing cell
        ),
        convert_options=csv_.ConvertOptions(
            column_types=dict.fromkeys(header, arrow.string()),
            strings_can_be_null=False,
            include_columns=columns,
        ),
    ) as batches:
        yield from batches
