"""Shuffled batches of a table larger than memory, independent of the number of processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from biv._utils import typed_json
from biv._utils.typed_json import NonNegative, Positive
from biv.preprocessing.encoder import FeatureEncoder
from biv.preprocessing.scaling import FeatureScaler, LabelScaler
from biv.tables.survey import Reader, Rows

Singles = npt.NDArray[np.float32]

BLOCK = 65_536  # number of rows that are shuffled together, unless a row group is larger


class Batch(NamedTuple):
    """Rows in the form in which networks are trained: float32, of mean 0 and variance 1.

    Attributes
    ----------
    x : ndarray of shape (N, F)
        Features.
    y : ndarray of shape (N, 1)
        Labels.
    variance : ndarray of shape (N, 1) or None
        Variance of each label's noise.
    weight : ndarray of shape (N, 1) or None
        Importance of each row.
    """

    x: Singles
    y: Singles
    variance: Singles | None
    weight: Singles | None

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, which: Any) -> Batch:
        """Return some of the rows."""
        variance, weight = (c if c is None else c[which] for c in (self.variance, self.weight))
        return Batch(self.x[which], self.y[which], variance, weight)

    @classmethod
    def concatenate(cls, parts: Sequence[Batch]) -> Batch:
        """Concatenate the rows of several batches."""
        if len(parts) == 1:
            return parts[0]

        def column(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else np.concatenate(values)

        return cls(column("x"), column("y"), column("variance"), column("weight"))


class EncodingJson(TypedDict):
    """Form of an :class:`Encoding` in JSON."""

    encoder: list[dict[str, Any]]
    features: tuple[list[float], list[NonNegative]]
    labels: tuple[float, Positive]
    unknown: NonNegative | None


@dataclass(frozen=True, eq=False)
class Encoding:
    """Transformation of rows of a table to batches.

    Attributes
    ----------
    encoder : FeatureEncoder
        Transforms a table to a matrix.
    feature_scaler : FeatureScaler
        Scales the columns of the matrix to unit variance.
    label_scaler : LabelScaler
        Scales labels and variances to unit label variance.
    unknown : float or None, default=None
        Replacement for a missing σ², in squared label units; None if a missing σ² is an error.
    """

    encoder: FeatureEncoder
    feature_scaler: FeatureScaler
    label_scaler: LabelScaler
    unknown: float | None = None

    def __call__(self, rows: Rows) -> Batch:
        """Return the rows as a batch, in the same order."""
        variance, weight = rows.variance, rows.weight
        if variance is not None and self.unknown is not None:
            variance = np.where(np.isnan(variance), self.unknown, variance)
        return Batch(
            self.feature_scaler(self.encoder(rows.features)).astype(np.float32),
            _column(self.label_scaler.label(rows.y)),
            None if variance is None else _column(self.label_scaler.variance(variance)),
            None if weight is None else _column(weight),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as plain values for JSON."""
        return {
            "encoder": self.encoder.to_json(),
            "features": [self.feature_scaler.mean.tolist(), self.feature_scaler.std.tolist()],
            "labels": [self.label_scaler.mean, self.label_scaler.std],
            "unknown": self.unknown,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Encoding:
        """Make an encoding from the values of :meth:`to_json`."""
        fields = typed_json.convert(content, EncodingJson)
        return cls(
            FeatureEncoder.from_json(fields["encoder"]),
            FeatureScaler(*(np.array(column) for column in fields["features"])),
            LabelScaler(*fields["labels"]),
            fields["unknown"],
        )


def _column(values: npt.NDArray[Any]) -> Singles:
    return values.astype(np.float32)[:, None]


@dataclass(frozen=True, eq=False)
class Shard:
    """Row groups that are read by one process, in a new order in every epoch.

    In every epoch the groups are shuffled and divided into blocks of one or several groups, and
    the rows of each block are shuffled. The rows of a batch depend only on the seed, the epoch and
    the step. So a stream can start at any step, without the state of a generator.

    Attributes
    ----------
    number : int
        Index of the shard.
    groups : sequence of int
        Indices of its row groups.
    training_rows : mapping of int to int
        Number of training rows of each group.
    reader : Reader
        Reads the row groups.
    encoding : Encoding
        Transforms rows to batches.
    seed : int
        Seed of the order.
    """

    number: int
    groups: Sequence[int]
    training_rows: Mapping[int, int]
    reader: Reader
    encoding: Encoding
    seed: int

    @property
    def rows(self) -> int:
        """Number of training rows of this shard."""
        return sum(self.training_rows[group] for group in self.groups)

    def blocks(self, epoch: int) -> list[list[int]]:
        """Return the groups of each block, in the order of an epoch."""
        order = self._generator(epoch).permutation(self.groups).tolist()
        blocks: list[list[int]] = []
        rows = BLOCK
        for group in order:
            if rows >= BLOCK:
                blocks.append([])
                rows = 0
            blocks[-1].append(group)
            rows += self.training_rows[group]
        return blocks

    def _generator(self, *indices: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.number, *indices])

    def load(self, epoch: int, number: int, groups: Sequence[int]) -> Batch:
        """Read and shuffle the training rows of one block.

        Parameters
        ----------
        epoch : int
            Epoch, which determines the order of the rows.
        number : int
            Index of the block in the epoch.
        groups : sequence of int
            Row groups of the block.

        Raises
        ------
        ValueError
            If the number of training rows has changed.
        """
        parts = []
        for group in groups:
            rows, held_out, _ = self.reader.read(group)
            if len(rows) - int(held_out.sum()) != self.training_rows[group]:
                raise ValueError(f"{self.reader.groups.groups[group].path} has changed")
            parts.append(self.encoding(rows[~held_out]))
        block = Batch.concatenate(parts)
        return block.rows(self._generator(epoch, number).permutation(len(block)))

    def pieces(
        self, epoch: int, steps: int, first: int, pool: ThreadPoolExecutor
    ) -> Iterator[Batch]:
        """Iterate over this shard's rows of each batch of an epoch, from step `first`.

        The rows are divided into `steps` pieces whose sizes differ by at most one, so that all
        shards end at the same step. The next block is read in the background.

        Parameters
        ----------
        epoch : int
            Epoch, which determines the order of the rows.
        steps : int
            Number of batches per epoch.
        first : int
            Step to start at.
        pool : ThreadPoolExecutor
            Runs the reading.

        Yields
        ------
        Batch
            Rows of this shard for one step; there may be none.
        """
        blocks, total = self.blocks(epoch), self.rows
        ends = list(accumulate(sum(self.training_rows[g] for g in block) for block in blocks))
        row = first * total // steps  # position in the order of the epoch
        number = int(np.searchsorted(ends, row, side="right"))
        upcoming: Future[Batch] | None = None
        if number < len(blocks):
            upcoming = pool.submit(self.load, epoch, number, blocks[number])
        block: Batch | None = None
        for step in range(first, steps):
            pieces = []
            end = (step + 1) * total // steps
            while row < end:
                if block is None:
                    assert upcoming is not None
                    block, start = upcoming.result(), ends[number] - len(upcoming.result())
                    if number + 1 < len(blocks):
                        upcoming = pool.submit(self.load, epoch, number + 1, blocks[number + 1])
                stop = min(end, ends[number])
                pieces.append(block.rows(slice(row - start, stop - start)))
                row = stop
                if row == ends[number]:
                    block, number = None, number + 1
            yield Batch.concatenate(pieces) if pieces else self._empty_batch()

    def _empty_batch(self) -> Batch:
        features = len(self.encoding.feature_scaler.mean)
        target = self.reader.target
        empty = np.empty((0, 1), dtype=np.float32)
        return Batch(
            np.empty((0, features), dtype=np.float32),
            empty,
            empty if target.error_bars else None,
            empty if target.weight else None,
        )


@dataclass(frozen=True, eq=False)
class Stream:
    """One process's part of the batches of a table.

    A batch consists of a piece of every shard, whichever process reads it. So the batches of
    a training run do not depend on the number of processes.

    Attributes
    ----------
    shards : sequence of Shard
        Shards that this process reads.
    total : int
        Number of training rows of all shards, over all processes.
    batch_size : int
        Number of rows per batch over all processes; batches differ by a few rows.
    """

    shards: Sequence[Shard]
    total: int
    batch_size: int

    @property
    def steps_per_epoch(self) -> int:
        """Number of batches. A batch has at most `batch_size` rows, and one more per shard."""
        return -(-self.total // self.batch_size)

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """Iterate over this process's rows of every batch of an epoch, from step `first`."""
        with ThreadPoolExecutor(1, thread_name_prefix="biv-reader") as pool:
            try:
                steps = self.steps_per_epoch
                streams = [shard.pieces(epoch, steps, first, pool) for shard in self.shards]
                for pieces in zip(*streams, strict=True):
                    yield Batch.concatenate(pieces)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
