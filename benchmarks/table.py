"""Measure the time and memory of the command on a table of a million rows.

    .venv/bin/python benchmarks/table.py                      a million rows of CSV: six minutes
    .venv/bin/python benchmarks/table.py --rows 100000 --out table.md

The table is simulated. Four of its 20 features matter, and the noise variances of its labels follow
a Gamma distribution with α = 0.5. Times are compared with those of pandas and LightGBM in the same
run. Memory is the peak of a process of the command.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lightgbm
import numpy as np
import pandas as pd

from machine import machine, publish

FEATURES, TREES = 20, 600
COLUMNS = ["--target", "y", "--target-std", "s"]


def truth(x):
    """Return labels without noise."""
    return x[:, 0] + np.sin(2 * x[:, 1]) + np.abs(x[:, 2]) * (1 + (x[:, 3] > 0))


def simulated(rows, seed):
    """Return a frame, and its labels without noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES))
    std = np.sqrt(rng.gamma(0.5, 2.0, size=rows))
    frame = pd.DataFrame(x.round(6), columns=[f"x{k}" for k in range(FEATURES)])
    clean = truth(frame.to_numpy())
    frame["y"], frame["s"] = clean + std * rng.normal(size=rows), std
    return frame, clean


def timed(function):
    """Return the result of a function, and the seconds it took."""
    start = time.perf_counter()
    return function(), time.perf_counter() - start


def command(folder, *arguments):
    """Run the command; return its output, its seconds, and the peak memory so far in GB."""
    call = [sys.executable, "-m", "biv", *map(str, arguments), "--json"]
    run, seconds = timed(
        lambda: subprocess.run(call, cwd=folder, check=True, stdout=subprocess.PIPE)
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    return json.loads(run.stdout), seconds, peak


def boosted(path):
    """Fit LightGBM with the weights of BIV; return the model and its features."""
    frame = pd.read_csv(path)
    weight = 1 / (frame["s"] ** 2 + 0.05 * frame["y"].var())
    model = lightgbm.LGBMRegressor(n_estimators=TREES, learning_rate=0.05, n_jobs=1, verbose=-1)
    x = frame.drop(columns=["y", "s"])
    return model.fit(x, frame["y"], sample_weight=weight / weight.mean()), x


def report(rows):
    """Measure, and return the report as lines of Markdown."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame, clean = simulated(rows, 0)
        frame.to_csv(folder / "data.csv", index=False)
        size = (folder / "data.csv").stat().st_size / 1e6
        del frame
        _, reading = timed(lambda: pd.read_csv(folder / "data.csv"))
        summary, training, train_peak = command(
            folder, "train", "data.csv", *COLUMNS, "--out", "model"
        )
        _, predicting, predict_peak = command(folder, "predict", "model", "data.csv")
        (model, x), growing = timed(lambda: boosted(folder / "data.csv"))
        predictions = pd.read_csv(folder / "predictions.csv")
        predicted = predictions["prediction"]
        error, other = (
            np.mean((p - clean) ** 2) / clean.var() for p in (predicted, model.predict(x))
        )
        inside = np.mean(np.abs(predicted - clean) < 1.96 * predictions["prediction_std"])
    start = training - summary["seconds"]
    trees = f"LightGBM ({TREES} trees, one thread), including reading"
    return [
        f"{rows:,} rows, {FEATURES} features, {size:.0f} MB of CSV. {machine()}",
        "",
        "| | seconds | compared with | peak memory, GB |",
        "|---|---|---|---|",
        f"| `biv train`: start and reading | {start:.0f} | {start / reading:.1f} times "
        "`pandas.read_csv` | |",
        f"| `biv train`: total | {training:.0f} | {training / growing:.1f} times {trees} | "
        f"{train_peak:.2f} |",
        f"| `biv predict` | {predicting:.0f} | {predicting / training:.2f} times `biv train` | "
        f"{predict_peak:.2f} (maximum of both commands) |",
        "",
        "The mean squared error to the clean labels of these rows, divided by their variance, is",
        f"{error:.5f} for biv and {other:.5f} for LightGBM with weights. {inside:.1%} of the clean",
        "labels lie within 1.96 predicted standard deviations.",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rows", type=int, default=1_000_000, help="number of rows (default: 1 million)"
    )
    parser.add_argument("--out", type=Path, help="file that the report is also written to")
    options = parser.parse_args()
    publish(report(options.rows), options.out)
