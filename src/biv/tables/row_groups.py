"""The row groups of Parquet files, by which a large table is read and distributed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from biv._utils.messages import message_of
from biv.tables.files import Files, file_state
from biv.tables.part import PARQUET, Part, kind, require_arrow


class RowGroup(NamedTuple):
    """Consecutive rows of a Parquet file that can be read by themselves.

    Attributes
    ----------
    path : Path
        The file.
    number : int
        Index of the group in the file.
    start : int
        Number of rows of the file before this group.
    rows : int
        Number of rows of this group.
    """

    path: Path
    number: int
    start: int
    rows: int


class RowGroups:
    """All row groups of a table in Parquet files.

    Parameters
    ----------
    files : Files
        Files of the table.

    Attributes
    ----------
    groups : list of RowGroup
        Row groups in the order of the files.
    schema : pyarrow.Schema
        Types of the columns, wide enough for all files.

    Raises
    ------
    ValueError
        If a file is not Parquet or has no rows, or if types differ between files.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        for path in files.paths:
            if kind(path) is not PARQUET:
                raise ValueError(
                    f"--stream requires Parquet files, which can be read by row group; got {path}"
                )
        self.schema = files.schema()
        self.groups = [group for path in files.paths for group in _groups(path)]
        self._states = {path: file_state(path) for path in files.paths}

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def rows(self) -> int:
        """Number of rows of the table."""
        return sum(group.rows for group in self.groups)

    def rows_before(self, number: int) -> int:
        """Return the number of rows of the table before a group."""
        return sum(group.rows for group in self.groups[:number])

    def read(self, number: int, columns: Sequence[str]) -> Part:
        """Read some columns of one group.

        Raises
        ------
        ValueError
            If the file has changed or cannot be read.
        """
        arrow, group, error = require_arrow(), self.groups[number], None
        try:
            with arrow.parquet.ParquetFile(group.path) as file:
                table = file.read_row_group(group.number, columns=list(columns), use_threads=False)
        except (OSError, ValueError) as raised:
            error = raised
        if file_state(group.path) != self._states[group.path]:
            raise ValueError(f"{group.path} has changed while it was read") from error
        if error is not None:
            raise ValueError(f"{group.path} cannot be read: {message_of(error)}") from error
        return Part(group.path, group.start, _one_batch(table.select(list(columns))))


def _groups(path: Path) -> list[RowGroup]:
    with require_arrow().parquet.ParquetFile(path) as file:
        metadata = file.metadata
        groups, start = [], 0
        for number in range(metadata.num_row_groups):
            rows = metadata.row_group(number).num_rows
            if rows:
                groups.append(RowGroup(path, number, start, rows))
            start += rows
    if not groups:
        raise ValueError(f"{path} must have rows; got none. Leave the file out")
    return groups


def _one_batch(table: Any) -> Any:
    arrow = require_arrow()
    columns = [column.combine_chunks() for column in table.columns]
    return arrow.record_batch(columns, schema=table.schema)


def assign_row_groups(rows: Sequence[int], shards: int) -> list[list[int]]:
    """Assign row groups to shards that have nearly equal numbers of rows.

    The groups are assigned from the largest to the smallest, each to the shard with the fewest
    rows so far.

    Parameters
    ----------
    rows : sequence of int
        Number of rows of each group.
    shards : int
        Number of shards, at most the number of groups.

    Returns
    -------
    list of list of int
        Sorted indices of the groups of each shard.

    Raises
    ------
    ValueError
        If there are more shards than groups.

    Examples
    --------
    >>> assign_row_groups([50, 100, 50, 70], 2)
    [[1, 2], [0, 3]]
    """
    if not 1 <= shards <= len(rows):
        raise ValueError(
            f"the number of shards must be between 1 and {len(rows)}, the number of row groups; "
            f"got {shards}. Write the table in smaller row groups, or start fewer processes"
        )
    assigned: list[list[int]] = [[] for _ in range(shards)]
    load = [0] * shards
    for group in sorted(range(len(rows)), key=lambda group: (-rows[group], group)):
        smallest = load.index(min(load))
        assigned[smallest].append(group)
        load[smallest] += rows[group]
    return [sorted(groups) for groups in assigned]
