"""A million rows through the command: what reading, training and predicting take.

    .venv/bin/python benchmarks/table.py                      a million rows of CSV: six minutes
    .venv/bin/python benchmarks/table.py --rows 100000 --out table.md

The table is made here: 20 features, of which four matter, and labels whose noise variance differs
from row to row (Gamma, α = 0.5). Times are compared with the same work done by other means
in the same run; memory is the most that a process of the command held.
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
    """Labels without noise."""
    return x[:, 0] + np.sin(2 * x[:, 1]) + np.abs(x[:, 2]) * (1 + (x[:, 3] > 0))


def made(rows, seed):
    """A frame, and the labels without their noise."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, FEATURES))
    std = np.sqrt(rng.gamma(0.5, 2.0, size=rows))
    frame = pd.DataFrame(x.round(6), columns=[f"x{k}" for k in range(FEATURES)])
    clean = truth(frame.to_numpy())
    frame["y"], frame["s"] = clean + std * rng.normal(size=rows), std
    return frame, clean


def timed(work):
    """What it returns, and how many seconds it took."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def command(folder, *arguments):
    """Run the command; seconds, and the most that any process of it has held so far, in GB."""
    call = [sys.executable, "-m", "biv", *map(str, arguments), "--json"]
    shown, seconds = timed(
        lambda: subprocess.run(call, cwd=folder, check=True, stdout=subprocess.PIPE)
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e9
    return json.loads(shown.stdout), seconds, peak


def boosted(path):
    """The usual alternative, with the same weights; and its features."""
    frame = pd.read_csv(path)
    weight = 1 / (frame["s"] ** 2 + 0.05 * frame["y"].var())
    model = lightgbm.LGBMRegressor(n_estimators=TREES, learning_rate=0.05, n_jobs=1, verbose=-1)
    x = frame.drop(columns=["y", "s"])
    return model.fit(x, frame["y"], sample_weight=weight / weight.mean()), x


def report(rows):
    """All of it, line by line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame, clean = made(rows, 0)
        frame.to_csv(folder / "data.csv", index=False)
        size = (folder / "data.csv").stat().st_size / 1e6
        del frame
        _, reading = timed(lambda: pd.read_csv(folder / "data.csv"))
        told, training, train_peak = command(
            folder, "train", "data.csv", *COLUMNS, "--out", "model"
        )
        _, predicting, predict_peak = command(folder, "predict", "model", "data.csv")
        (model, x), growing = timed(lambda: boosted(folder / "data.csv"))
        found = pd.read_csv(folder / "predictions.csv")
        error, other = (
            np.mean((p - clean) ** 2) / clean.var() for p in (found["prediction"], model.predict(x))
        )
        inside = np.mean(np.abs(found["prediction"] - clean) < 1.96 * found["prediction_std"])
    start = training - told["seconds"]
    trees = f"LightGBM ({TREES} trees, one thread), reading included"
    return [
        f"{rows:,} rows, {FEATURES} features, {size:.0f} MB of CSV. {machine()}",
        "",
        "| | seconds | beside | memory, GB |",
        "|---|---|---|---|",
        f"| `biv train`: start and reading | {start:.0f} | {start / reading:.1f} times "
        "`pandas.read_csv` | |",
        f"| `biv train` in all | {training:.0f} | {training / growing:.1f} times {trees} | "
        f"{train_peak:.2f} |",
        f"| `biv predict` | {predicting:.0f} | {predicting / training:.2f} of training | "
        f"{predict_peak:.2f} (the most of both) |",
        "",
        f"Mean squared error to the clean labels of these rows, over their variance: {error:.5f};",
        f"of LightGBM with weights {other:.5f}. {inside:.1%} of clean labels lie within 1.96",
        "predicted standard deviations.",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    publish(report(options.rows), options.out)
