"""Compare the time of the BIV loss with that of torch's weighted MSE.

    .venv/bin/python benchmarks/loss.py
    .venv/bin/python benchmarks/loss.py --out results.md   writes the report to a file

The times are of forward and backward passes and include the computation of the weight 1/(σ²+ε). The
candidates take turns within each round, so that a busy machine slows all of them alike. The report
has the medians of the rounds' ratios.
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
    """Return the mean number of seconds per step."""
    start = time.perf_counter()
    for _ in range(repeats):
        step()
    return (time.perf_counter() - start) / repeats


def candidates(elements):
    """Return a forward and backward step of each loss on the same batch; the baseline is first."""
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


def report(round_count):
    """Measure, and yield the report as lines of Markdown."""
    torch.set_num_threads(1)
    yield f"Machine: {machine()}.\n"
    yield (
        "Time of a forward and backward pass, relative to the first row. One thread, float32, "
        f"medians of {round_count} rounds.\n"
    )
    yield "| loss | 256 elements | 1,000,000 elements |\n|---|---|---|"
    columns = {}
    for elements, repeats in ((256, 40), (1_000_000, 1)):
        steps = candidates(elements)
        for step in steps.values():
            seconds(step, repeats)
        rounds = [[seconds(step, repeats) for step in steps.values()] for _ in range(round_count)]
        for index, name in enumerate(steps):
            ratio = statistics.median(times[index] / times[0] for times in rounds)
            columns.setdefault(name, []).append(f"{ratio:.2f}×")
    for name, ratios in columns.items():
        yield f"| {name} | {' | '.join(ratios)} |"


if __name__ == "__main__":
    options = parser(__doc__, rounds=41).parse_args()
    publish(report(options.rounds), options.out)
