"""Compare training on images with the bare network, and parallel decoding with serial decoding.

    .venv/bin/python benchmarks/images.py                    generated images, ResNet-18 at 64×64
    .venv/bin/python benchmarks/images.py --out results.md   writes the report to a file

The candidates take turns, batch by batch, so that a busy machine slows both alike. The bare network
is trained on random tensors that are already in memory, as floats, with channels last. Its loss is
`F.mse_loss`, and its optimizer is torch's fused Adam, as in biv. The training of biv reads bytes
from the memory-mapped cache, standardises them, weights by BIV, checks that all parameters and
moments are finite, and records loss and effective batch size.
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
    """Write JPEG files of smooth colour noise, with the size and the names of UTKFace's."""
    generator = np.random.default_rng(0)
    for number in range(FILES):
        small = generator.integers(0, 256, (12, 12, 3), dtype=np.uint8)
        large = Image.fromarray(small).resize((SOURCE_SIZE, SOURCE_SIZE), Image.Resampling.BICUBIC)
        large.save(folder / f"{1 + number % 100}_0_0_{number}.jpg", quality=90)


def timed(function):
    """Return the seconds that a function takes, and its result."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def decoding(folder):
    """Time the making of the cache, its opening, and serial decoding of the same bytes."""
    contents = [path.read_bytes() for path in sorted(folder.iterdir())]
    serial, _ = timed(lambda: [dataset._image(content, SIZE) for content in contents])
    making, data = timed(lambda: load_utkface(folder, size=SIZE, progress=False))
    opening, _ = timed(lambda: load_utkface(folder, size=SIZE, progress=False))
    return data, serial, making, opening


def bare_step(network):
    """Return a training step of the network alone, in plain PyTorch."""
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
    """Return a step of the loop that trains on faces, with a new batch each time."""
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
    """Measure, and yield the report as lines of Markdown."""
    yield f"Machine: {machine()}.\n"
    with tempfile.TemporaryDirectory() as home:
        os.environ["BIV_CACHE_DIR"] = f"{home}/cache"
        folder = Path(home) / "UTKFace"
        folder.mkdir()
        write_photographs(folder)
        data, serial, making, opening = decoding(folder)
        yield (
            f"{FILES:,} JPEG files of {SOURCE_SIZE}×{SOURCE_SIZE} pixels are decoded to "
            f"{SIZE}×{SIZE}.\n"
        )
        yield "| | seconds | compared with serial decoding |\n|---|---|---|"
        yield f"| serial decoding, kept in memory | {serial:.2f} | 1 |"
        yield (
            f"| making the cache: read twice, decoded in parallel, written | {making:.2f} | "
            f"{making / serial:.2f} |"
        )
        yield f"| opening the cache | {opening:.3f} | {opening / serial:.3f} |\n"
        steps = bare_step(ResNet18()(torch.Generator().manual_seed(0))), our_step(data)
        with numerical_settings():
            for step in steps:
                step()
            times = [[timed(step)[0] for step in steps] for _ in range(rounds)]
        bare, ours = zip(*times, strict=True)
        ratio = statistics.median(a / b for a, b in times)
        yield (
            f"ResNet-18 is trained at {SIZE}×{SIZE} pixels with batches of {BATCH}, Adam and one "
            f"thread, as by `biv reproduce`; medians of {rounds} rounds.\n"
        )
        yield "| training | images per second | ratio |\n|---|---|---|"
        yield f"| the bare network on random tensors | {BATCH / statistics.median(bare):.0f} | 1 |"
        speed = BATCH / statistics.median(ours)
        yield f"| `biv.training`, BIV, from the cache | {speed:.0f} | {ratio:.3f} |"


if __name__ == "__main__":
    options = parser(__doc__, rounds=15).parse_args()
    publish(report(options.rounds), options.out)
