"""A table in pieces as a stream of shuffled batches, the same whatever the number of processes."""

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

BLOCK = 65_536  # rows that are shuffled together, or those of a larger row group


class Batch(NamedTuple):
    """Rows as networks learn from them: float32, of mean 0 and variance 1.

    Attributes:
        x: (N, F).
        y: (N, 1).
        variance: (N, 1), or None.
        weight: (N, 1), or None.
    """

    x: Singles
    y: Singles
    variance: Singles | None
    weight: Singles | None

    def __len__(self) -> int:
        return len(self.x)

    def rows(self, which: Any) -> Batch:
        """Some of them."""
        variance, weight = (c if c is None else c[which] for c in (self.variance, self.weight))
        return Batch(self.x[which], self.y[which], variance, weight)

    @classmethod
    def concatenate(cls, parts: Sequence[Batch]) -> Batch:
        """One after another."""
        if len(parts) == 1:
            return parts[0]

        def column(name: str) -> Any:
            values = [getattr(part, name) for part in parts]
            return None if values[0] is None else np.concatenate(values)

        return cls(column("x"), column("y"), column("variance"), column("weight"))


class EncodingJson(TypedDict):
    """An :class:`Encoding` as JSON has it."""

    encoder: list[dict[str, Any]]
    features: tuple[list[float], list[NonNegative]]
    labels: tuple[float, Positive]
    unknown: NonNegative | None


@dataclass(frozen=True, eq=False)
class Encoding:
    """From rows of a table to what networks learn from, and nothing of the rows themselves.

    Attributes:
        encoder: From a table to a matrix.
        features: From that to unit variance.
        labels: Labels and variances to unit label variance.
        unknown: What is taken for a missing σ², in squared units of y; None where that is an error.
    """

    encoder: FeatureEncoder
    features: FeatureScaler
    labels: LabelScaler
    unknown: float | None = None

    def __call__(self, rows: Rows) -> Batch:
        """All rows, in their order."""
        variance, weight = rows.variance, rows.weight
        if variance is not None and self.unknown is not None:
            variance = np.where(np.isnan(variance), self.unknown, variance)
        return Batch(
            self.features(self.encoder(rows.features)).astype(np.float32),
            _column(self.labels.label(rows.y)),
            None if variance is None else _column(self.labels.variance(variance)),
            None if weight is None else _column(weight),
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "encoder": self.encoder.to_json(),
            "features": [self.features.mean.tolist(), self.features.std.tolist()],
            "labels": [self.labels.mean, self.labels.std],
            "unknown": self.unknown,
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Encoding:
        """Return the encoding that JSON describes."""
        told = typed_json.convert(content, EncodingJson)
        return cls(
            FeatureEncoder.from_json(told["encoder"]),
            FeatureScaler(*(np.array(column) for column in told["features"])),
            LabelScaler(*told["labels"]),
            told["unknown"],
        )


def _column(values: npt.NDArray[Any]) -> Singles:
    return values.astype(np.float32)[:, None]


@dataclass(frozen=True, eq=False)
class Shard:
    """Row groups that are read by one process, in an order of their own in every epoch.

    The groups are shuffled and taken in blocks, one or several groups each, whose rows are
    shuffled. Which rows a piece has is decided by seed, epoch and step alone: a stream can begin
    anywhere, and nothing has to be remembered of what was drawn before.

    Attributes:
        number: Of the shard.
        groups: By their number.
        learned: How many rows of each group are learned from.
        reader: Of groups.
        encoding: Of rows.
        seed: Of the order.
    """

    number: int
    groups: Sequence[int]
    learned: Mapping[int, int]
    reader: Reader
    encoding: Encoding
    seed: int

    @property
    def rows(self) -> int:
        """To learn from."""
        return sum(self.learned[group] for group in self.groups)

    def blocks(self, epoch: int) -> list[list[int]]:
        """The groups of each, in the order of an epoch."""
        order = self._generator(epoch).permutation(self.groups).tolist()
        blocks: list[list[int]] = []
        held = BLOCK
        for group in order:
            if held >= BLOCK:
                blocks.append([])
                held = 0
            blocks[-1].append(group)
            held += self.learned[group]
        return blocks

    def _generator(self, *places: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.number, *places])

    def load(self, epoch: int, place: int, groups: Sequence[int]) -> Batch:
        """The rows of one block, shuffled.

        Raises:
            ValueError: They are not those that were there before.
        """
        parts = []
        for group in groups:
            rows, held_out, _ = self.reader.read(group)
            if len(rows) - int(held_out.sum()) != self.learned[group]:
                raise ValueError(f"{self.reader.groups.groups[group].path} has changed")
            parts.append(self.encoding(rows[~held_out]))
        whole = Batch.concatenate(parts)
        return whole.rows(self._generator(epoch, place).permutation(len(whole)))

    def pieces(
        self, epoch: int, steps: int, first: int, pool: ThreadPoolExecutor
    ) -> Iterator[Batch]:
        """This shard's rows in every batch of an epoch of so many steps, from step `first` on.

        It gives all its rows in `steps` pieces that differ by a row at most, so that all shards end
        together. The next block is read while one is learned from.
        """
        blocks, total = self.blocks(epoch), self.rows
        ends = list(accumulate(sum(self.learned[g] for g in block) for block in blocks))
        at = first * total // steps
        place = int(np.searchsorted(ends, at, side="right"))
        upcoming: Future[Batch] | None = None
        if place < len(blocks):
            upcoming = pool.submit(self.load, epoch, place, blocks[place])
        block: Batch | None = None
        for step in range(first, steps):
            taken = []
            until = (step + 1) * total // steps
            while at < until:
                if block is None:
                    assert upcoming is not None
                    block, start = upcoming.result(), ends[place] - len(upcoming.result())
                    if place + 1 < len(blocks):
                        upcoming = pool.submit(self.load, epoch, place + 1, blocks[place + 1])
                here = min(until, ends[place])
                taken.append(block.rows(slice(at - start, here - start)))
                at = here
                if at == ends[place]:
                    block, place = None, place + 1
            yield Batch.concatenate(taken) if taken else self._nothing()

    def _nothing(self) -> Batch:
        features = len(self.encoding.features.mean)
        target = self.reader.target
        none = np.empty((0, 1), dtype=np.float32)
        return Batch(
            np.empty((0, features), dtype=np.float32),
            none,
            none if target.error_bars else None,
            none if target.weight else None,
        )


@dataclass(frozen=True, eq=False)
class Stream:
    """One process's part of the batches of a table.

    A batch is made of a piece of every shard, whoever reads it. So the batches of a training do not
    depend on how many processes share the shards.

    Attributes:
        shards: Those that this process reads.
        total: Rows of all shards, here and elsewhere.
        batch_size: Rows a batch of all processes together; batches differ by a few rows.
    """

    shards: Sequence[Shard]
    total: int
    batch_size: int

    @property
    def steps_per_epoch(self) -> int:
        """Batches, none of which has more rows than `batch_size` and one a shard."""
        return -(-self.total // self.batch_size)

    def batches(self, epoch: int, first: int = 0) -> Iterator[Batch]:
        """This process's rows of every batch of an epoch, from step `first` on."""
        with ThreadPoolExecutor(1, thread_name_prefix="biv-reader") as pool:
            try:
                steps = self.steps_per_epoch
                streams = [shard.pieces(epoch, steps, first, pool) for shard in self.shards]
                for pieces in zip(*streams, strict=True):
                    yield Batch.concatenate(pieces)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
