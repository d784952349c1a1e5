"""Real error bars, from a file to a report: the commands on the shipped amyloid data.

    python examples/amyloid.py            a minute on one core; writes to build/amyloid
    python examples/amyloid.py --small    1,000 rows, some seconds

How fast do variants of a peptide form fibrils? 16,066 of them were measured (Seuma et al., eLife
2021), each score with a standard error. A fifth is held out. Then, as a user of the command would
(`pip install 'biv[command]'`): inspect, train, predict and report; and once more with all labels
alike, to compare. Held-out labels are noisy like the others, so errors have the noise taken out.

What comes out (the last digits differ between machines):

    Mean squared error to the true labels of 3,213 held-out rows, noise taken out
                     labels weighted    all labels alike
      biv              0.216 ± 0.027       0.007 ± 0.026
      l2               0.250 ± 0.031      -0.024 ± 0.029
      difference      -0.039 ± 0.009       0.032 ± 0.010

That is one split, with the standard errors of its held-out rows. With --seed 1 and 2 the difference
is -0.028 ± 0.006 and -0.055 ± 0.008 weighted, 0.045 ± 0.009 and -0.002 ± 0.009 with all alike.

The two scores disagree, and `biv inspect` says why: error bars go with the label, and σ² is larger
than labels scatter by, whatever predicts them (it "should be multiplied by 0.57"). By the labels
that were measured well, BIV is better. By all labels alike L2 is, in two splits of three, with
errors around 0, which show that large error bars are too large. No clean label is there to decide.
`biv compare` looks closer.
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
    """A command, as it would be typed."""
    words = [str(argument) for argument in arguments]
    print(f"\n$ biv {' '.join(words)}", flush=True)
    if code := biv_command(words):
        raise SystemExit(code)


def split_table(folder, rows, seed):
    """The shipped table as two files: four fifths to learn from, one to test on."""
    shipped = resources.files("biv.datasets") / "data" / "amyloid.csv.gz"
    with shipped.open("rb") as file:
        table = pd.read_csv(file, compression="gzip")
    table = table.iloc[np.random.default_rng(seed).permutation(len(table))[:rows]]
    held_out = len(table) // 5
    table[held_out:].to_csv(folder / "train.csv", index=False)
    table[:held_out].to_csv(folder / "held-out.csv", index=False)
    return folder / "train.csv", folder / "held-out.csv"


def main(arguments=None):
    """Inspect, train, predict, report; then score both models on labels they have not seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/amyloid"), help="folder for it all")
    parser.add_argument("--seed", type=int, default=0, help="of the split and the networks")
    parser.add_argument("--small", action="store_true", help="1,000 rows, for a quick look")
    options = parser.parse_args(arguments)
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    rows, short = (1000, ["--members", "4"]) if options.small else (None, [])
    usual = ["--seed", options.seed, "--force"]  # replaces what an earlier run has left

    train, held_out = split_table(folder, rows, options.seed)
    run("inspect", train, *COLUMNS, "--picture", folder / "error-bars.png", *usual)
    for loss in LOSSES:
        model, out = folder / f"model-{loss}", folder / f"predictions-{loss}.csv"
        run("train", train, *COLUMNS, "--loss", loss, *short, "--no-report", "--out", model, *usual)
        run("predict", model, held_out, "--out", out, "--force")
    page = folder / "report.html"
    run("report", folder / "model-biv", "--out", page, "--force")

    found = {loss: pd.read_csv(folder / f"predictions-{loss}.csv") for loss in LOSSES}
    y, variance = found["biv"]["y"].to_numpy(), found["biv"]["dy"].to_numpy() ** 2
    pred = {loss: table["prediction"].to_numpy() for loss, table in found.items()}
    print(f"\nMean squared error to the true labels of {len(y):,} held-out rows, noise taken out")
    print(f"  {'':12}{'labels weighted':>18}{'all labels alike':>20}")
    scores = {
        loss: [
            biv.metrics.noise_corrected_mse(own, y, variance, weighted=weighted)
            for weighted in (True, False)
        ]
        for loss, own in pred.items()
    }
    scores["difference"] = [
        biv.metrics.noise_corrected_difference(*pred.values(), y, variance, weighted=weighted)
        for weighted in (True, False)
    ]
    for name, pair in scores.items():
        cells = [f"{score.value:.3f} ± {score.stderr:.3f}" for score in pair]
        print(f"  {name:12}{cells[0]:>18}{cells[1]:>20}")
    print(f"Open {page} in a browser.")
    return scores | {"page": page}


if __name__ == "__main__":
    main()
