"""What training on images costs beside the bare network, and decoding beside one core's: ratios.

    .venv/bin/python benchmarks/dataset.py                    generated dataset, ResNet-18 at 64×64
    .venv/bin/python benchmarks/dataset.py --out results.md   and write it down

The candidates take turns, batch by batch, so that a busy machine slows them alike. The bare network
is given random tensors that are in memory already, as floats, with channels last; its loss is
`F.mse_loss` and its optimiser torch's Adam, fused as ours is. Ours reads bytes from the
memory-mapped cache, standardises them, weighs by BIV, looks at every parameter and moment for what
is not finite, and records loss and effective batch size.
"""

import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

import biv
from biv.datasets import load_utkface
from biv.images import Pixels, dataset
from biv.models import ResNet18
from biv.training import Compute, Member, Schedule, Triplets
from biv.training.loop import Loop
from biv.training.numerics import numerical_settings
from machine import machine, parser, publish

BATCH, SIZE = 128, 64
FILES, SOURCE_SIZE = 2_000, 200


def write_photographs(folder):
    """JPEG files of 200×200 like UTKFace's, by its names: smooth noise in colour."""
    generator = np.random.default_rng(0)
    for number in range(FILES):
        small = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        large = Image.fromarray(small).resize((SOURCE_SIZE, SOURCE_SIZE), Image.Resampling.BICUBIC)
        large.save(folder / f"{1 + number % 100}_0_0_{number}.jpg", quality=90)


def seconds(work):
    """How long it takes, and what it gives."""
    start = time.perf_counter()
    given = work()
    return time.perf_counter() - start, given


def decoding(folder):
    """Making the cache, opening it again, and decoding the same bytes one after another."""
    contents = [path.read_bytes() for path in sorted(folder.iterdir())]
    serial, _ = seconds(lambda: [dataset._image(content, SIZE) for content in contents])
    made, data = seconds(lambda: load_utkface(folder, size=SIZE, progress=False))
    again, _ = seconds(lambda: load_utkface(folder, size=SIZE, progress=False))
    return data, serial, made, again


def bare_step(network):
    """A step of the network alone, as short as PyTorch has it."""
    generator = torch.Generator().manual_seed(0)
    network.pixels = nn.Identity()
    x = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    x = x.contiguous(memory_format=torch.channels_last)
    y = torch.randn(BATCH, 1, generator=generator)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=True)

    def step():
        optimizer.zero_grad()
        F.mse_loss(network(x), y).backward()
        optimizer.step()

    return step


def our_step(data):
    """A step of the loop that trains faces, a new batch each time."""
    rng = np.random.default_rng(0)
    variance = rng.gamma(1.0, 1.0, len(data))
    noisy = biv.noise.corrupt((data.y - data.y.mean()) / data.y.std(), variance, rng)
    member = Member(Triplets(data.x, noisy, variance))
    network = ResNet18(*Pixels.fit(data.x))(member.generators()[0])
    loop = Loop(network, member, Schedule(epochs=1_000, batch_size=BATCH), Compute(device="cpu"))
    batches = iter(())

    def step():
        nonlocal batches
        rows = next(batches, None)
        if rows is None or len(rows) < BATCH:
            batches = iter(torch.split(member.order(loop._order), BATCH))
            rows = next(batches)
        assert loop._train(rows)

    return step


def report(rounds):
    """Measure, and yield the ratios as Markdown."""
    yield f"Machine: {machine()}.\n"
    with tempfile.TemporaryDirectory() as home:
        os.environ["BIV_CACHE_DIR"] = f"{home}/cache"
        folder = Path(home) / "UTKFace"
        folder.mkdir()
        write_photographs(folder)
        data, serial, made, again = decoding(folder)
        yield f"{FILES:,} JPEG files of {SOURCE_SIZE}×{SOURCE_SIZE} to a cache of {SIZE}×{SIZE}.\n"
        yield "| | seconds | beside decoding one by one |\n|---|---|---|"
        yield f"| decoded one by one, kept in memory | {serial:.2f} | 1 |"
        yield f"| read twice, decoded in parallel, written | {made:.2f} | {made / serial:.2f} |"
        yield f"| opened again | {again:.3f} | {again / serial:.3f} |\n"
        steps = bare_step(ResNet18()(torch.Generator().manual_seed(0))), our_step(data)
        with numerical_settings():
            for step in steps:
                step()
            times = [[seconds(step)[0] for step in steps] for _ in range(rounds)]
        bare, ours = zip(*times, strict=True)
        share = statistics.median(a / b for a, b in times)
        yield (
            f"ResNet-18 at {SIZE}×{SIZE}, batches of {BATCH}, Adam, one thread, as `biv reproduce` "
            f"has it; medians of {rounds} rounds.\n"
        )
        yield "| training | images a second | share |\n|---|---|---|"
        yield f"| the bare network on random tensors | {BATCH / statistics.median(bare):.0f} | 1 |"
        speed = BATCH / statistics.median(ours)
        yield f"| `biv.training`, BIV, from the cache | {speed:.0f} | {share:.3f} |"


if __name__ == "__main__":
    options = parser(__doc__, rounds=15).parse_args()
    publish(report(options.rounds), options.out)
