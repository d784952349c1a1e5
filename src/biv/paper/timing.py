"""Estimate the duration of runs on this machine from a few training steps."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from biv.models import ResNet18
from biv.paper import stacks
from biv.paper.artefacts import artefacts
from biv.paper.presets import PRESETS
from biv.paper.spec import Run
from biv.training import Compute, Member, Schedule, Triplets
from biv.training.loop import Loop
from biv.training.numerics import numerical_settings


def rows_forward(runs: Sequence[Run]) -> float:
    """Return the number of rows that runs pass forward; a training row counts three times."""
    total = 0.0
    for run in runs:
        steps = run.epochs * (run.train_rows // run.batch_size)
        total += steps * (3.0 * run.batch_size + run.test_rows / run.test_every)
    return total


def seconds_per_row(run: Run) -> float:
    """Measure the seconds that one process needs per row passed forward, for runs of this kind."""
    if run.pixels is not None:
        return _seconds_per_image(run.pixels)
    sample = artefacts("bike2011", PRESETS["smoke"])["table1"].runs(1)
    stacks.train(sample[:2])  # warm-up: loads the data set and the library
    start = time.perf_counter()
    stacks.train(sample)
    return (time.perf_counter() - start) / rows_forward(sample)


def _seconds_per_image(pixels: int, count: int = 16) -> float:
    images = torch.zeros(count, 3, pixels, pixels, dtype=torch.uint8)
    member = Member(Triplets(images, torch.zeros(count), torch.ones(count)))
    module = ResNet18()(member.generators()[0])
    loop = Loop(module, member, Schedule(epochs=2, batch_size=count), Compute(device=None))
    with numerical_settings(1):
        loop.run_epoch()  # warm-up: loads the library
        start = time.perf_counter()
        loop.run_epoch()
    return (time.perf_counter() - start) / (3 * count)
