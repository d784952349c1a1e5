"""Predictions of a stack, and their errors on test rows; without gradients."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

import torch
from torch import Tensor

from biv.models.stacked import Stacked, aligned
from biv.training.data import Member, Triplets

BLOCK = 20  # most members that are computed together, so that their activations stay in cache
CHUNK = 512  # rows at a time, for the same reason


def blocks(members: slice) -> list[slice]:
    """Divide consecutive members into blocks of nearly equal size, at least two if possible."""
    count = members.stop - members.start
    parts = -(-count // BLOCK)
    edges = [members.start + count * k // parts for k in range(parts + 1)]
    return [slice(a, b) for a, b in pairwise(edges)]


class Columns:
    """Table of features in the layout of a stack: features first, padded with rows of 0."""

    def __init__(self, x: Tensor) -> None:
        self.rows, features = x.shape
        self.table = x.new_zeros(features, aligned(self.rows))
        self.table[:, : self.rows] = x.T


def _predictions(stacked: Stacked, members: slice, x: Columns) -> Iterator[tuple[slice, Tensor]]:
    """Yield the predictions of a block of members, (members, D, rows), chunk by chunk.

    Each tensor is overwritten by the next one.
    """
    for start in range(0, x.rows, CHUNK):
        chunk = x.table[:, start : start + CHUNK]
        block = stacked.block(members, chunk.shape[1])
        pred = block.forward(chunk.expand(members.stop - members.start, -1, -1))
        rows = slice(start, min(start + CHUNK, x.rows))
        yield rows, pred[:, :, : rows.stop - rows.start]


def predict(stacked: Stacked, members: slice, x: Columns) -> Tensor:
    """Return the predictions of some members for the same rows, (members, D, N)."""
    out = x.table.new_empty(members.stop - members.start, stacked.outputs, x.rows)
    for block in blocks(members):
        pair = _pair(block, len(stacked.parameters))
        within_pair = slice(block.start - pair.start, block.stop - pair.start)
        place = slice(block.start - members.start, block.stop - members.start)
        for rows, pred in _predictions(stacked, pair, x):
            out[place, :, rows] = pred[within_pair]
    return out


def predict_each(stacked: Stacked, tables: Sequence[Tensor]) -> list[Tensor]:
    """Return the predictions of every member for its own rows, (N, D) each."""
    out = [table.new_empty(len(table), stacked.outputs) for table in tables]
    for start in range(0, max(len(table) for table in tables), CHUNK):
        parts = [table[start : start + CHUNK] for table in tables]
        rows = aligned(max(len(part) for part in parts))
        for block in blocks(slice(0, len(tables))):
            block_parts = parts[block]
            x = block_parts[0].new_zeros(len(block_parts), rows, block_parts[0].shape[1])
            for padded, part in zip(x, block_parts, strict=True):
                padded[: len(part)] = part
            pred = stacked.block(block, rows).forward(x.transpose(1, 2))
            for member, part in enumerate(block_parts, start=block.start):
                part_pred = pred[member - block.start, :, : len(part)]
                out[member][start : start + len(part)] = part_pred.T
    return out


def _pair(members: slice, count: int) -> slice:
    """Return the members, with a neighbour added if there is only one."""
    if members.stop - members.start > 1:
        return members
    first = min(members.start, count - 2)
    return slice(first, first + 2)


class SharedTest:
    """Test rows of neighbouring members, with the same features and possibly different labels.

    Attributes
    ----------
    members : slice
        Position of the members in the stack.
    x : Columns
        Features.
    y : Tensor of shape (members, D, rows)
        Labels.
    """

    def __init__(self, members: slice, tests: Sequence[Triplets]) -> None:
        self.members = members
        self.x = Columns(tests[0].x)
        self.y = torch.stack([test.y.T for test in tests])

    def losses(self, stacked: Stacked) -> Tensor:
        """Return the mean squared error of each member, (members,)."""
        error = predict(stacked, self.members, self.x).sub_(self.y)
        return error.square_().flatten(1).mean(1)


def shared_tests(members: Sequence[Member]) -> list[SharedTest]:
    """Return the test rows of all members; neighbours with the same features share one entry."""
    tests, start = [], 0
    for _, group in groupby(
        (m.test for m in members), key=lambda t: None if t is None else id(t.x)
    ):
        rows = list(group)
        known = [test for test in rows if test is not None]
        if known:
            tests.append(SharedTest(slice(start, start + len(rows)), known))
        start += len(rows)
    return tests
