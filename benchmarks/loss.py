"""What the BIV loss costs beside torch's own weighted MSE: ratios inside one run.

    .venv/bin/python benchmarks/loss.py
    .venv/bin/python benchmarks/loss.py --out results.md   and write it down

Forward and backward; the weight 1/(σ²+ε) is computed inside the timing on both sides. The
candidates take turns within each round, so that a busy machine slows them alike; the median of the
rounds' ratios is printed.
"""

import statistics
import time

import torch
import torch.nn.functional as F

import biv
from biv.epsilon import MinimumBatchSize
from machine import machine, parser, publish

EPSILON = 0.05


def seconds(step, repeats):
    """How long one step takes, on average."""
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def candidates(elements):
    """A step, forward and backward, of each loss on the same batch; the baseline first."""
    generator = torch.Generator().manual_seed(0)
    pred = torch.randn(elements, generator=generator).requires_grad_()
    target = torch.randn(elements, generator=generator)
    variance = torch.rand(elements, generator=generator)
    mask = torch.ones(elements, dtype=torch.bool)
    checked, unchecked = biv.BIVLoss(EPSILON), biv.BIVLoss(EPSILON, validate_args=False)
    floor = biv.BIVLoss(MinimumBatchSize(fraction=0.9), validate_args=False)
    losses = {
        "F.mse_loss(weight=1/(σ²+ε))": lambda: F.mse_loss(
            pred, target, weight=1 / (variance + EPSILON)
        ),
        "BIVLoss(validate_args=False)": lambda: unchecked(pred, target, variance),
        "BIVLoss()": lambda: checked(pred, target, variance),
        "... with a mask, unchecked": lambda: unchecked(pred, target, variance, mask=mask),
        "... MinimumBatchSize, unchecked": lambda: floor(pred, target, variance),
    }

    def step(loss):
        pred.grad = None
        loss().backward()

    return {name: lambda loss=loss: step(loss) for name, loss in losses.items()}


def report(rounds_wanted):
    """Measure, and yield the ratios as Markdown."""
    torch.set_num_threads(1)
    yield f"Machine: {machine()}.\n"
    yield f"One thread, float32, forward and backward (medians of {rounds_wanted} rounds).\n"
    yield "| loss | 256 elements | 1,000,000 elements |\n|---|---|---|"
    columns = {}
    for elements, repeats in ((256, 40), (1_000_000, 1)):
        steps = candidates(elements)
        for step in steps.values():
            seconds(step, repeats)
        rounds = [[seconds(step, repeats) for step in steps.values()] for _ in range(rounds_wanted)]
        for index, name in enumerate(steps):
            ratio = statistics.median(times[index] / times[0] for times in rounds)
            columns.setdefault(name, []).append(f"{ratio:.2f}×")
    for name, ratios in columns.items():
        yield f"| {name} | {' | '.join(ratios)} |"


if __name__ == "__main__":
    options = parser(__doc__, rounds=41).parse_args()
    publish(report(options.rounds), options.out)
