"""Test the runner and its worker processes."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from biv.paper import runner, stacks
from biv.paper.grid import Grid, gamma
from biv.paper.presets import PRESETS
from biv.paper.spec import Loss
from biv.paper.store import Store
from helpers.paper_runs import SMOKE, assert_same_result


def test_stacks_have_one_shape_and_contain_every_run_once():
    runs = SMOKE["table1"].runs(5) + SMOKE["fig14"].runs(5)
    for jobs in (1, 2, 3):
        stacks = runner.pack(runs, jobs)
        assert sorted(run.key for stack in stacks for run in stack) == sorted(
            run.key for run in dict.fromkeys(runs)
        )
        assert all(len({run.shape() for run in stack}) == 1 for stack in stacks)
        assert max(len(stack) for stack in stacks) <= runner.LARGEST_STACK
    assert runner.pack([], 2) == []


@pytest.mark.slow
def test_missing_runs_are_trained_and_failures_are_reported(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    grid = Grid("bike2011", PRESETS["smoke"])
    good = grid.line("", gamma(1.0), Loss("biv", epsilon=0.05)).runs(3)
    bad = grid.line("", gamma(1.0), Loss("cutoff", threshold=1e-12)).runs(1)
    lines = []
    summary = runner.complete([*good, *bad, *good], store, jobs=2, log=lines.append)
    assert (summary.stored, summary.trained, len(summary.failed)) == (0, 3, 1)
    assert "no label has a positive weight under CutoffLoss" in summary.failed[0].error
    assert "got 660 training rows" in summary.failed[0].error
    assert lines[-1].startswith(f"stack {len(lines)} of {len(lines)}: ")
    again = runner.complete([*good, *bad], store, jobs=1)
    assert (again.stored, again.trained, len(again.failed)) == (3, 0, 1)
    assert runner.complete(good, store) == runner.TrainingSummary(3, 0, [])
    (alone,) = stacks.train(good[1:2])
    assert_same_result(store.results(good)[good[1]], alone)


@pytest.mark.slow
def test_training_that_is_killed_repeatedly_gives_the_same_results(tmp_path):
    """After SIGKILL at random moments only missing runs are trained, with bit-identical results."""
    code = """
import sys
from biv.paper import runner, stacks
from biv.paper.store import Store
from helpers.paper_runs import SMOKE
if __name__ == "__main__":
    runner.LARGEST_STACK = 4
    runner.complete(SMOKE["table1"].runs(2), Store(sys.argv[1]), jobs=2)
"""
    script, path = tmp_path / "train.py", tmp_path / "runs.sqlite"
    script.write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    runs, delays, previous = SMOKE["table1"].runs(2), random.Random(0), 0
    kills = 0
    while kills < 6:
        process = subprocess.Popen([sys.executable, script, path], env=environment)
        time.sleep(delays.uniform(2.0, 6.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        done = len(runs) - len(Store(path).missing(runs))
        assert done >= previous
        previous = done
        if done == len(runs):  # start again, because some kills are left
            path.unlink()
            previous = 0
    subprocess.run([sys.executable, script, path], env=environment, check=True)
    results = Store(path).results(runs)
    assert len(results) == len(runs)
    for outcome in stacks.train(runs):
        assert_same_result(results[outcome.run], outcome)
