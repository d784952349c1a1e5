"""Real error bars, from a file to a report: the commands on the included amyloid data.

    python examples/amyloid.py            a minute on one core; writes to build/amyloid
    python examples/amyloid.py --small    1,000 rows, some seconds

The data state how fast 16,066 variants of a peptide form fibrils (Seuma et al., eLife 2021), each
with a standard error. A fifth of them is held out. The script runs the commands that a user would
run (`pip install 'biv[command]'`): inspect, train, predict and report. It trains a second model
without weights, to compare. Held-out labels are noisy too, so the errors are corrected for their
noise.

Output (the last digits differ between machines):

    Noise-corrected mean squared error to the true labels of 3,213 held-out rows
                      weighted score    unweighted score
      biv              0.216 ± 0.027       0.007 ± 0.026
      l2               0.250 ± 0.031      -0.024 ± 0.029
      difference      -0.039 ± 0.009       0.032 ± 0.010

The standard errors are those of the held-out rows of one split. With --seed 1 and 2, the weighted
difference is -0.028 ± 0.006 and -0.055 ± 0.008, and the unweighted one 0.045 ± 0.009 and
-0.002 ± 0.009.

The two scores disagree, and `biv inspect` shows why: the error bars follow the label, and σ² is
larger than the scatter of the labels about any prediction (it "should be multiplied by 0.57"). By
the weighted score, which rests on the well-measured labels, BIV is better. By the unweighted score,
L2 is better in two splits of three. Its errors around 0 show that the large error bars are too
large. There are no clean labels to decide between them. `biv compare` examines this more closely.
"""

import argparse
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

import biv
from biv.cli import main as biv_command

COLUMNS = ["--target", "y", "--target-std", "dy", "--features", "x"]
LOSSES = "biv", "l2"


def run(*arguments):
    """Print a command and run it."""
    arguments = [str(argument) for argument in arguments]
    print(f"\n$ biv {' '.join(arguments)}", flush=True)
    if code := biv_command(arguments):
        raise SystemExit(code)


def split_table(folder, rows, seed):
    """Write four fifths of the included table to a training file, and the rest to a test file."""
    source = resources.files("biv.datasets") / "data" / "amyloid.csv.gz"
    with source.open("rb") as file:
        table = pd.read_csv(file, compression="gzip")
    table = table.iloc[np.random.default_rng(seed).permutation(len(table))[:rows]]
    held_out = len(table) // 5
    table[held_out:].to_csv(folder / "train.csv", index=False)
    table[:held_out].to_csv(folder / "held-out.csv", index=False)
    return folder / "train.csv", folder / "held-out.csv"


def main(arguments=None):
    """Inspect, train, predict and report, then score both models on held-out labels."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=Path("build/amyloid"), help="folder for all output"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the split and of the networks")
    parser.add_argument(
        "--small", action="store_true", help="use 1,000 rows and four networks, for a quick look"
    )
    options = parser.parse_args(arguments)
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    rows, fewer = (1000, ["--members", "4"]) if options.small else (None, [])
    common = ["--seed", options.seed, "--force"]  # --force replaces the output of an earlier run

    train, held_out = split_table(folder, rows, options.seed)
    run("inspect", train, *COLUMNS, "--picture", folder / "error-bars.png", *common)
    for loss in LOSSES:
        model, out = folder / f"model-{loss}", folder / f"predictions-{loss}.csv"
        run(
            "train", train, *COLUMNS, "--loss", loss, *fewer, "--no-report", "--out", model, *common
        )
        run("predict", model, held_out, "--out", out, "--force")
    page = folder / "report.html"
    run("report", folder / "model-biv", "--out", page, "--force")

    tables = {loss: pd.read_csv(folder / f"predictions-{loss}.csv") for loss in LOSSES}
    y, variance = tables["biv"]["y"].to_numpy(), tables["biv"]["dy"].to_numpy() ** 2
    preds = {loss: table["prediction"].to_numpy() for loss, table in tables.items()}
    print(f"\nNoise-corrected mean squared error to the true labels of {len(y):,} held-out rows")
    print(f"  {'':12}{'weighted score':>18}{'unweighted score':>20}")
    scores = {
        loss: [
            biv.metrics.noise_corrected_mse(pred, y, variance, weighted=weighted)
            for weighted in (True, False)
        ]
        for loss, pred in preds.items()
    }
    scores["difference"] = [
        biv.metrics.noise_corrected_difference(*preds.values(), y, variance, weighted=weighted)
        for weighted in (True, False)
    ]
    for name, pair in scores.items():
        cells = [f"{score.value:.3f} ± {score.stderr:.3f}" for score in pair]
        print(f"  {name:12}{cells[0]:>18}{cells[1]:>20}")
    print(f"Open {page} in a browser.")
    return scores | {"page": page}


if __name__ == "__main__":
    main()
