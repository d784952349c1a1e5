"""Compare streamed training with training in memory, and two processes with one.

    .venv/bin/python benchmarks/scale.py                    10 million rows × 20 features
    .venv/bin/python benchmarks/scale.py --rows 1000000     a test run
    .venv/bin/python benchmarks/scale.py --out results.md   writes the report to a file

The table is generated once, in build/bench (1.3 GB). Every process is pinned to one core, on which
it computes and reads ahead. The candidates take turns, so that a busy machine slows all of them
alike; ratios are medians over the rounds. The network is that of `biv train`: periodic embeddings
of 20 columns, and two layers of 64.
"""

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from tqdm import tqdm

from biv.losses.modules import BIVLoss
from biv.models import MLP, Periodic
from biv.tables import Target
from biv.tables.column import Column
from biv.tables.files import Files
from biv.tables.row_groups import RowGroups, assign_row_groups
from biv.tables.schema import Schema
from biv.tables.stream import Batch, Encoding, Shard, Stream
from biv.tables.survey import Reader, Rows, Survey
from biv.training import Schedule
from biv.training.numerics import numerical_settings
from biv.training.ranks import Ranks
from biv.training.streamed import HeldOutRows, StreamedTraining
from machine import machine, parser, publish

FEATURES, BATCH = 20, 8_192
FILE_ROWS, GROUP_ROWS, SHARDS = 1_000_000, 65_536, 12
SURVEYED = 20  # row groups from which the scales of the timed runs are estimated
CYCLE = SHARDS * GROUP_ROWS // BATCH  # steps per turn, in which every shard reads one block
WARM = 4  # warm-up steps
TARGET = Target("y", variance="v")


def write_table(folder, rows):
    """Write files of a million rows of float32, which are hard to compress, unless they exist."""
    if (folder / "complete").exists():
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number in tqdm(range(-(-rows // FILE_ROWS)), desc="writing the table"):
        rng = np.random.default_rng(number)
        count = min(FILE_ROWS, rows - number * FILE_ROWS)
        x = rng.normal(size=(count, FEATURES)).astype(np.float32)
        v = rng.gamma(0.5, 2.0, count).astype(np.float32)
        y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + rng.normal(size=count) * np.sqrt(v)
        columns = {f"x{k}": x[:, k] for k in range(FEATURES)}
        table = pa.table(columns | {"y": y.astype(np.float32), "v": v})
        pq.write_table(table, folder / f"part-{number:03}.parquet", row_group_size=GROUP_ROWS)
    (folder / "complete").touch()


def pin_to(core):
    """Pin this process to one core, if the system supports it."""
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})


class Memory:
    """Source of batches from arrays in memory, which streaming is compared with."""

    def __init__(self, rows, batch_size):
        self.rows, self.batch_size = rows, batch_size

    @property
    def steps_per_epoch(self):
        """Number of complete batches."""
        return len(self.rows) // self.batch_size

    def batches(self, epoch, first=0):
        """Yield batches of rows drawn from the whole table."""
        order = np.random.default_rng(epoch).permutation(len(self.rows))
        for step in range(first, self.steps_per_epoch):
            yield self.rows.rows(order[step * self.batch_size : (step + 1) * self.batch_size])


def shards_of(folder):
    """Return all shards, scaled by some of the row groups, and the held-out rows."""
    columns = tuple(Column(f"x{k}", "number") for k in range(FEATURES))
    reader = Reader(RowGroups(Files(folder)), Schema(columns, {}), TARGET)
    some = Survey.combine(
        [Survey.of(reader, group) for group in range(min(SURVEYED, len(reader.groups)))]
    )
    encoding = Encoding(some.encoder(), some.features(), some.scaler())
    training_rows = {}
    for number, group in enumerate(reader.groups.groups):
        drawn = np.random.default_rng([0, number]).random(group.rows)
        training_rows[number] = int((drawn >= reader.held_out_fraction).sum())
    assigned = assign_row_groups([group.rows for group in reader.groups.groups], SHARDS)
    held_out = encoding(Rows.concatenate(some.held_out))
    shards = [
        Shard(k, groups, training_rows, reader, encoding, 0) for k, groups in enumerate(assigned)
    ]
    return shards, held_out


def training(stream, held_out, ranks=None):
    """Return a training run as `biv train` makes it, without early stopping."""
    ranks = ranks or Ranks()
    model = MLP(FEATURES, (64, 64), 1, Periodic(tuple(range(FEATURES)), 8, 8, 0.25))
    return StreamedTraining(
        model(torch.Generator().manual_seed(0)),
        lambda epsilon: BIVLoss(epsilon, process_group=ranks.side_group),
        stream,
        HeldOutRows(held_out, ranks),
        Schedule(epochs=10**6, batch_size=BATCH, test_every=None, optimizer="adamw", averaging=2.0),
        1e-3,
        0.05,
        ranks=ranks,
    )


class Turns:
    """Training that is continued for some steps at a time."""

    def __init__(self, training, loss):
        self.training, self.loss = training, loss
        self.batches = itertools.chain.from_iterable(
            training.stream.batches(epoch) for epoch in itertools.count()
        )

    def seconds(self, steps):
        """Train for some steps; return the seconds per row."""
        rows, start = 0, time.perf_counter()
        for batch in itertools.islice(self.batches, steps):
            self.training._train(batch, self.loss)
            rows += len(batch)
        self.training._pending.clear()
        return (time.perf_counter() - start) / rows


def compare_with_memory(folder, rounds):
    """Return the seconds per row of one core, streamed and in memory, of every round."""
    pin_to(0)
    shards, held_out = shards_of(folder)
    total = sum(shard.rows for shard in shards)
    everything = Batch.concatenate(
        [s.load(0, k, block) for s in shards for k, block in enumerate(s.blocks(0))]
    )
    candidates = {
        "streamed": training(Stream(shards, total, BATCH), held_out),
        "memory": training(Memory(everything, BATCH), held_out),
    }
    with numerical_settings(1):
        turns = {name: Turns(one, BIVLoss(0.05)) for name, one in candidates.items()}
        for turn in turns.values():
            turn.seconds(WARM)
        return [
            {name: turn.seconds(CYCLE) for name, turn in turns.items()}
            for _ in tqdm(range(rounds), desc="streamed and in memory")
        ]


def on_a_rank(rank, folder, rounds, port, out):
    """Time one of two processes: alone, at the same time as the other, and together with it."""
    pin_to(rank)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    shards, held_out = shards_of(folder)
    total = sum(shard.rows for shard in shards)
    both = Ranks.from_default_group()
    rank_shards = shards[rank::2]
    with numerical_settings(1):
        alone = Turns(training(Stream(shards, total, BATCH), held_out), BIVLoss(0.05))
        apart = Turns(training(Stream(rank_shards, total, 2 * BATCH), held_out), BIVLoss(0.05))
        losses = {"global": BIVLoss(0.05, process_group=both.side_group), "local": BIVLoss(0.05)}
        stream = Stream(rank_shards, total, 2 * BATCH)
        together = Turns(training(stream, held_out, both), losses["global"])
        results = []
        for number in tqdm(range(rounds + 1), desc="one and two processes", disable=rank > 0):
            row, steps = {}, CYCLE if number else WARM
            dist.barrier()
            if rank == 0:
                row["one"] = alone.seconds(steps)
            dist.barrier()
            row["apart"] = apart.seconds(steps)
            dist.barrier()
            row["two"] = together.seconds(steps)
            # The losses take turns step by step, because they differ by only about one percent.
            each = {name: [] for name in losses}
            for _ in range(steps // 2):
                for name, loss in losses.items():
                    together.loss = loss
                    each[name].append(together.seconds(1))
            together.loss = losses["global"]
            row |= {name: statistics.median(times) for name, times in each.items()}
            if number:  # the first round is a warm-up
                results.append(row)
        dist.barrier()
    if rank == 0:
        Path(out).write_text(json.dumps(results), encoding="utf-8")
    dist.destroy_process_group()


def compare_processes(folder, rounds):
    """Return the seconds per row of a process alone, next to another, and as one of two."""
    with tempfile.TemporaryDirectory() as here:
        out = Path(here) / "results.json"
        port = 20_000 + os.getpid() % 20_000
        mp.spawn(on_a_rank, (folder, rounds, port, str(out)), nprocs=2)
        return json.loads(out.read_text(encoding="utf-8"))


def whole_command(folder):
    """Run `biv train --stream` for one epoch, and return the summary it prints."""
    with tempfile.TemporaryDirectory() as here:
        out = Path(here) / "model"
        options = ["--target", "y", "--target-var", "v", "--batch-size", str(BATCH), "--json"]
        command = [sys.executable, "-m", "biv", "train", str(folder), "--stream", *options]
        command += ["--max-epochs", "1", "--out", str(out)]
        print("biv train --stream, one epoch", file=sys.stderr)
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def median_ratio(rounds, one, other):
    """Return the median ratio of two columns of seconds, with its range."""
    ratios = sorted(row[one] / row[other] for row in rounds)
    return f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f})"


def report(options):
    """Measure, and yield the report as lines of Markdown."""
    folder = options.folder / f"table-{options.rows}"
    write_table(folder, options.rows)
    size = sum(path.stat().st_size for path in folder.iterdir())
    yield f"# {options.rows:,} rows × {FEATURES} features, {size / 1e9:.2f} GB of Parquet\n"
    yield f"{machine()}. Batches have {BATCH:,} rows per process; each process has one core.\n"
    yield "| measured | ratio | target |"
    yield "|---|---|---|"
    speeds = compare_with_memory_in_new_process(folder, options.rounds)
    ratio = median_ratio(speeds, "memory", "streamed")
    yield f"| rows per second, streamed / in memory | {ratio} | 0.80 |"
    pair = compare_processes(folder, options.rounds)
    halved = [row | {name: row[name] / 2 for name in ("two", "apart")} for row in pair]
    ratio = median_ratio(halved, "one", "two")
    yield f"| rows per second, two processes / one | {ratio} | 1.7 |"
    ratio = median_ratio(halved, "one", "apart")
    yield f"| the same for two independent processes, which shows the machine's limit | {ratio} | |"
    ratio = median_ratio(pair, "global", "local")
    yield f"| a step with the global normaliser / with a local one | {ratio} | 1.03 |"
    summary = whole_command(folder)
    peak = summary["peak_memory_bytes"] / 1e9
    yield f"| memory of `biv train --stream`, peak, GB | {peak:.2f} | 2 |"
    rate = statistics.median(1 / row["streamed"] for row in speeds)
    steps = summary["steps"]
    yield (
        f"\nOne core learned from {rate:,.0f} rows a second. `biv train --stream` took "
        f"{summary['seconds']:.0f} s for the survey, the choice of the network and one epoch of "
        f"{steps:,} steps; its R² to the true labels is {summary['result']['r2']:.3f}."
    )


def compare_with_memory_in_new_process(folder, rounds):
    """Run `compare_with_memory` in a new process, so that its memory is released."""
    with mp.get_context("spawn").Pool(1) as pool:
        return pool.apply(compare_with_memory, (folder, rounds))


if __name__ == "__main__":
    options = parser(__doc__, rounds=7)
    options.add_argument(
        "--rows", type=int, default=10_000_000, help="number of rows (default: 10 million)"
    )
    options.add_argument(
        "--folder",
        type=Path,
        default=Path("build/bench"),
        help="folder for the table (default: build/bench)",
    )
    given = options.parse_args()
    publish(report(given), given.out)
