"""Runs that tests of the paper's experiments share, and simulated results for them."""

from dataclasses import replace

import numpy as np

from biv.paper import stacks
from biv.paper.artefacts import artefacts
from biv.paper.grid import Line, gamma
from biv.paper.presets import PRESETS
from biv.paper.results import RunResult
from biv.paper.spec import Loss, Run
from biv.training import History

RUN = Run(
    "bike2011",
    gamma(0.5),
    Loss("biv", epsilon=0.05),
    seed=3,
    train_rows=660,
    test_rows=264,
    epochs=20,
)
SMOKE = artefacts("bike2011", PRESETS["smoke"])


def result(run=RUN, seed=0, diverged_at=None):
    rng = np.random.default_rng(seed)
    steps = run.epochs * (run.train_rows // run.batch_size)
    curves = rng.random((3, steps))
    history = History(curves[0], curves[1], curves[2], np.arange(1, steps + 1), diverged_at)
    return RunResult.of(run, history, {"machine": "here"})


def assert_same_result(one, other):
    assert one.run == other.run
    assert one.diverged_at == other.diverged_at
    for name in ("test_loss", "train_loss", "train_loss_std", "effective_batch_size"):
        assert np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True), name


def line_of(*curves, diverged=()):
    """Return a line and results of its runs with these test losses, one curve per seed."""
    runs = [replace(RUN, seed=seed) for seed in range(len(curves))]
    flat = np.zeros(20, dtype=np.float32)
    results = {
        run: RunResult(
            run,
            np.asarray(curve, dtype=np.float32),
            flat,
            flat,
            flat,
            3 if run.seed in diverged else None,
            {},
        )
        for run, curve in zip(runs, curves, strict=True)
    }
    return Line("L2", RUN), results


def results_of(runs):
    """Return simulated results of runs; each has its own falling curve."""
    results = {}
    for number, run in enumerate(runs):
        rng = np.random.default_rng(number)
        tests = run.epochs * (run.train_rows // run.batch_size) // run.test_every
        falling = 0.1 + 0.5 / np.arange(1, tests + 1) + 0.02 * rng.random(tests)
        epochs = (0.2 + rng.random((3, run.epochs))).astype(np.float32)
        results[run] = RunResult(
            run, falling.astype(np.float32), *epochs, None, {"machine": "here"}
        )
    return results


class InProcessWorkers:
    """Workers that train in this process, which saves the start of other processes."""

    count = 1

    def __init__(self):
        self.waiting = []

    def require_rows(self, _runs):
        pass

    def submit(self, runs):
        self.waiting.append(runs)

    def finished(self, _on_progress):
        while self.waiting:
            runs = self.waiting.pop(0)
            yield runs, stacks.attempt(runs)

    def close(self):
        pass
