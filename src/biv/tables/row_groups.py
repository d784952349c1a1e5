"""The row groups of Parquet files: what a large table is dealt out and read by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from biv._utils.messages import message_of
from biv.tables.files import Files, file_state
from biv.tables.part import PARQUET, Part, kind, require_arrow


class RowGroup(NamedTuple):
    """Some consecutive rows of a file, that can be read by themselves.

    Attributes:
        path: The file.
        number: Within the file, from 0 on.
        start: How many of its rows come before.
        rows: How many there are.
    """

    path: Path
    number: int
    start: int
    rows: int


class RowGroups:
    """All row groups of a table in Parquet files.

    Args:
        files: Of one table.

    Attributes:
        groups: In the order of the files.
        schema: The types of the columns, as wide as all files need.

    Raises:
        ValueError: A file is not Parquet or has no rows, or their types differ.
    """

    def __init__(self, files: Files) -> None:
        self.files = files
        for path in files.paths:
            if kind(path) is not PARQUET:
                raise ValueError(
                    f"{path} must be Parquet, which can be read in pieces; got "
                    f"{path.suffix or path.name!r}"
                )
        self.schema = files.schema()
        self.groups = [group for path in files.paths for group in _groups(path)]
        self._states = {path: file_state(path) for path in files.paths}

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def rows(self) -> int:
        """Of the whole table."""
        return sum(group.rows for group in self.groups)

    def rows_before(self, number: int) -> int:
        """How many rows of the whole table come before a group."""
        return sum(group.rows for group in self.groups[:number])

    def read(self, number: int, columns: Sequence[str]) -> Part:
        """One group.

        Raises:
            ValueError: The file has changed, or cannot be read.
        """
        arrow, group, error = require_arrow(), self.groups[number], None
        try:
            with arrow.parquet.ParquetFile(group.path) as file:
                found = file.read_row_group(group.number, columns=list(columns), use_threads=False)
        except (OSError, ValueError) as raised:
            error = raised
        if file_state(group.path) != self._states[group.path]:
            raise ValueError(f"{group.path} has changed while it was read") from error
        if error is not None:
            raise ValueError(f"{group.path} cannot be read: {message_of(error)}") from error
        return Part(group.path, group.start, _one_batch(found.select(list(columns))))


def _groups(path: Path) -> list[RowGroup]:
    with require_arrow().parquet.ParquetFile(path) as file:
        told = file.metadata
        groups, start = [], 0
        for number in range(told.num_row_groups):
            rows = told.row_group(number).num_rows
            if rows:
                groups.append(RowGroup(path, number, start, rows))
            start += rows
    if not groups:
        raise ValueError(f"{path} must have rows; got none: leave it out")
    return groups


def _one_batch(table: Any) -> Any:
    arrow = require_arrow()
    columns = [column.combine_chunks() for column in table.columns]
    return arrow.record_batch(columns, schema=table.schema)


def assign_row_groups(rows: Sequence[int], shards: int) -> list[list[int]]:
    """Groups to shards of nearly equal rows: the largest first, each to who has least.

    Args:
        rows: Of each group.
        shards: How many, no more than there are groups.

    Returns:
        The groups of each shard, in order.

    Example:
        >>> assign_row_groups([50, 100, 50, 70], 2)
        [[1, 2], [0, 3]]
    """
    if not 1 <= shards <= len(rows):
        raise ValueError(
            f"{len(rows)} row groups can be dealt to 1 to {len(rows)} shards; got {shards}: "
            "write the table in smaller row groups, or start fewer processes"
        )
    dealt: list[list[int]] = [[] for _ in range(shards)]
    load = [0] * shards
    for group in sorted(range(len(rows)), key=lambda group: (-rows[group], group)):
        least = load.index(min(load))
        dealt[least].append(group)
        load[least] += rows[group]
    return [sorted(groups) for groups in dealt]
