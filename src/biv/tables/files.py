"""Files that hold a table, CSV or Parquet, read a part at a time; errors name the cell."""

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

ROWS, BLOCK = 50_000, 1 << 24  # of a part: rows of Parquet, bytes of CSV
SEPARATORS = ",;\t"
NAMES_SHOWN = 10  # of columns, in an error


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
            raise ValueError("name a file or a folder with tables; got none")
        seen: set[Path] = set()
        for path in self.paths:
            if path.resolve() in seen:
                raise ValueError(f"{path} must be named once; got it twice")
            seen.add(path.resolve())
        self._states = [file_state(path) for path in self.paths]
        self._headers = [_header(path) for path in self.paths]
        self.columns = self._headers[0]
        for path, others in zip(self.paths[1:], self._headers[1:], strict=True):
            if odd := sorted(set(others) ^ set(self.columns)):
                raise ValueError(
                    f"{path} must have the columns of {self.paths[0]}; they differ in "
                    f"{', '.join(map(shortened, odd[:NAMES_SHOWN]))}"
                )

    def __str__(self) -> str:
        shown = ", ".join(map(str, self.paths[:3]))
        return f"{shown}, ... ({len(self.paths)} files)" if len(self.paths) > 3 else shown

    def schema(self) -> Any:
        """The Arrow types of Parquet files, as wide as all of them need.

        Raises:
            ValueError: A column has types that nothing is wide enough for.
        """
        arrow = require_arrow()
        found = None
        for path in self.paths:
            fields = arrow.parquet.read_schema(path).remove_metadata()
            own = arrow.schema([fields.field(name) for name in self.columns])
            try:
                found = (
                    own
                    if found is None
                    else arrow.unify_schemas([found, own], promote_options="permissive")
                )
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{path} must have the types of the files before it: {message_of(error)}"
                ) from error
        return found

    def require_column(self, name: str) -> str:
        """The name of a column, if there is such a column.

        Raises:
            ValueError: There is none; the nearest name is suggested.
        """
        if name not in self.columns:
            raise ValueError(
                f"{self.paths[0]} must have a column {shortened(name)}{self._hint(name)}"
            )
        return name

    def _hint(self, name: str) -> str:
        by_case = {own.casefold(): own for own in self.columns}
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
        """All rows, a part at a time.

        Args:
            columns: Those that are wanted; None for all, in the order of the first file.
            after_part: Is told how many rows a part had, once it has been used.

        Raises:
            ValueError: A file is not what it was when this object was made, or cannot be read.
        """
        wanted = list(self.columns if columns is None else columns)
        for path, header, before in zip(self.paths, self._headers, self._states, strict=True):
            start, batches = 0, _batches(path, header, wanted)
            while True:
                try:
                    cells = next(batches, None)
                    error = None
                except (OSError, ValueError) as raised:
                    error = raised
                if file_state(path) != before:
                    raise ValueError(f"{path} has changed while it was read") from error
                if error is not None:
                    raise ValueError(f"{path} cannot be read: {_said(error, start)}") from error
                if cells is None:
                    break
                if len(cells):
                    yield Part(path, start, cells)
                    start += len(cells)
                    after_part(len(cells))


def _said(error: Exception, start: int) -> str:
    """What Arrow says of a row, in our words and by our count.

    Args:
        error: That Arrow has raised.
        start: How many rows had been read.
    """
    if "straddling object" in str(error):
        return (
            f"one of the rows after row {start:,} is longer than {BLOCK:,} bytes: is a line break "
            "or a closing quote missing?"
        )
    if "UTF8" in str(error):
        return "it must be text in UTF-8"
    found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", str(error))
    if found is None:
        return message_of(error)
    row, wanted, count = map(int, found.groups())
    return f"row {row - 1} must have {wanted} cells, one for each column; got {count}"


def file_state(path: Path) -> tuple[int, int] | None:
    """What changes when a file does; None once it is gone."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_size, state.st_mtime_ns


def _found(path: Path) -> list[Path]:
    if path.is_dir():
        inside = sorted(p for p in path.rglob("*") if kind(p) is not None and p.is_file())
        inside = [  # and nothing of notebooks, version control or unfinished jobs
            p
            for p in inside
            if not any(n.startswith((".", "_")) for n in p.relative_to(path).parts)
        ]
        if not inside:
            raise ValueError(f"{path} must hold tables ({', '.join((*TEXT, *PARQUET))}); got none")
        return inside
    if not path.is_file():
        if path.exists():  # pipes, sockets and devices: a table is read twice
            raise ValueError(f"{path} must be a regular file or a folder; got neither")
        if path.is_symlink():
            raise FileNotFoundError(f"{path} is a symbolic link that leads to no file")
        others = [p.name for p in path.parent.glob("*")] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, others, n=1)
        hint = f"; did you mean {path.parent / near[0]}?" if near else ""
        raise FileNotFoundError(f"{path} is not there{hint}")
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
    """The lines that the names of the columns may take, together no longer than a row.

    Raises:
        ValueError: A line is longer.
    """
    left = BLOCK
    while line := file.readline(left + 1):
        left -= len(line)
        if left < 0:
            raise ValueError(
                f"the names of its columns must take at most {BLOCK:,} characters: is a line break "
                "or a closing quote missing?"
            )
        yield line


def _open_text(path: Path) -> Any:
    """A text file, compressed or not, without the mark that Windows begins with."""
    opened: Any = gzip.open if is_compressed(path) else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def is_compressed(path: Path) -> bool:
    """By gzip, as the name says."""
    return path.name.lower().endswith(".gz")


def separator(path: Path) -> str:
    """What stands between the names of the columns."""
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
                yield batch.select(columns)  # a column 'a.b' brings a struct 'a' with a b along
        return
    csv_ = arrow.csv
    stream = arrow.input_stream(path, compression="gzip" if is_compressed(path) else None)
    with csv_.open_csv(
        stream,
        # One thread, which alone tells the row of an error.
        read_options=csv_.ReadOptions(use_threads=False, block_size=BLOCK),
        parse_options=csv_.ParseOptions(
            delimiter=separator(path),
            newlines_in_values=True,
            ignore_empty_lines=len(header) > 1,  # of one column, such a line is a missing cell
        ),
        convert_options=csv_.ConvertOptions(
            column_types=dict.fromkeys(header, arrow.string()),
            strings_can_be_null=False,
            include_columns=columns,
        ),
    ) as batches:
        yield from batches
