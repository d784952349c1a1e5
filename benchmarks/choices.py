"""Measure how well BIVRegressor chooses embeddings and epochs on noisy labels, and two outputs.

    .venv/bin/python benchmarks/choices.py                       everything, twenty minutes
    .venv/bin/python benchmarks/choices.py --seeds 1             a short run
    .venv/bin/python benchmarks/choices.py --parts outputs       one part of the report
    .venv/bin/python benchmarks/choices.py --out choices.md      writes the report to a file as well

All errors are mean squared errors to clean test labels, divided by the variance of clean labels.
Unless stated otherwise, the noise on the training labels has variances drawn from a Gamma
distribution with shape 1 and mean 0.6, in units of the label variance.
"""

import argparse
import multiprocessing
import os
import warnings
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_diabetes

import biv
import biv.estimator.networks
import quality
from machine import machine, publish, table

ROWS, TEST_ROWS, FEATURES = 1000, 4000, 10
SCALES = biv.estimator.networks.SCALES
TABLES = (
    "bike α=1",
    "bike α=0.5",
    "bike α=0.25",
    "amyloid",
    "friedman",
    "linear",
    "step",
    "diabetes",
)
FUNCTIONS = {
    "friedman": lambda x: (
        10 * np.sin(np.pi * x[:, 0] * x[:, 1])
        + 20 * (x[:, 2] - 0.5) ** 2
        + 10 * x[:, 3]
        + 5 * x[:, 4]
    ),
    "linear": lambda x: x @ np.arange(1, FEATURES + 1),
    "step": lambda x: (
        2 * (x[:, 0] > 0.5) + (x[:, 1] > 0.3) - (x[:, 2] > 0.7) + (x[:, 3] > 0.5) * (x[:, 4] > 0.5)
    ),
    "regional": lambda x: np.where(x[:, 0] > 0.5, 3 * x[:, 1], -3 * x[:, 2]) + x[:, 3],
    "waves": lambda x: np.sin(12 * x[:, 0]) + np.cos(9 * x[:, 1]) + x[:, 2],
}
OUTPUTS = {  # pairs of labels for the same rows
    "friedman, linear": ("friedman", "linear"),
    "linear, waves": ("linear", "waves"),
    "step, regional": ("step", "regional"),
    "friedman, friedman": ("friedman", "friedman"),
    "regional, linear": ("regional", "linear"),
}
MISSING = (0.0, 0.3, 0.7)
PARTS = ("embeddings", "epochs", "outputs")


def simulated(name, seed):
    """Return noisy training rows, clean test rows, and the variance of the clean labels."""
    rng = np.random.default_rng([seed, 7])
    if name.startswith("bike"):
        return quality.bike(float(name.partition("=")[2]), seed)
    if name == "amyloid":
        return quality.amyloid(seed)
    if name == "diabetes":
        x, y = load_diabetes(return_X_y=True)
        order = rng.permutation(len(y))
        x, y, rows = x[order], y[order], 330
    else:
        x, rows = rng.uniform(size=(ROWS + TEST_ROWS, FEATURES)), ROWS
        y = FUNCTIONS[name](x)
    y = (y - y.mean()) / y.std()
    variance = rng.gamma(1, 0.6, size=rows) + 1e-9
    noisy = y[:rows] + np.sqrt(variance) * rng.normal(size=rows)
    return (x[:rows], noisy, variance), (x[rows:], y[rows:], None), 1.0


def embedding(cell):
    """Measure each scale of the embeddings alone, and the one that is chosen."""
    name, seed = cell
    train, test, label_variance = simulated(name, seed)
    errors = []
    for scales in (*((scale,) for scale in SCALES), SCALES):
        biv.estimator.networks.SCALES = scales
        model = biv.BIVRegressor(random_state=seed).fit(train[0], train[1], y_var=train[2])
        errors.append(quality.error(model.predict(test[0]), test, label_variance))
    biv.estimator.networks.SCALES = SCALES
    return cell, errors


def wrong_error_bars(seed):
    """Measure a fit whose reported variances are the square roots of the true ones."""
    (x, y, variance), test, _ = simulated("friedman", seed)
    model = biv.BIVRegressor(random_state=seed).fit(x, y, y_var=np.sqrt(variance))
    after = partial(quality.error, test=test, scale=1.0)
    return seed, after(model.predict(test[0])), model.n_epochs_


def outputs(cell):
    """Measure a fit of two outputs, and two fits of one; the second output lacks some labels."""
    names, missing, seed = cell
    rng = np.random.default_rng([seed, 8])
    x = rng.uniform(size=(ROWS + TEST_ROWS, FEATURES))
    shifted = (x, np.roll(x, 3, axis=1))  # so that equal functions give different labels
    y = np.column_stack([FUNCTIONS[n](z) for n, z in zip(OUTPUTS[names], shifted, strict=True)])
    y = (y - y.mean(axis=0)) / y.std(axis=0)
    variance = rng.gamma(1, 0.6, size=(ROWS, 2)) + 1e-9
    noisy = y[:ROWS] + np.sqrt(variance) * rng.normal(size=(ROWS, 2))
    noisy[rng.uniform(size=ROWS) < missing, 1] = np.nan
    model = biv.BIVRegressor(random_state=seed)
    joint = model.fit(x[:ROWS], noisy, y_var=variance).predict(x[ROWS:])
    alone = []
    for k in range(2):
        used = ~np.isnan(noisy[:, k])
        model.fit(x[:ROWS][used], noisy[used, k], y_var=variance[used, k])
        alone.append(model.predict(x[ROWS:]))
    errors = [np.mean((p - y[ROWS:]) ** 2, axis=0) for p in (joint, np.column_stack(alone))]
    return cell, [e.tolist() for e in errors]


def quietly(measure, cell):
    """Measure on one thread, without warnings."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    return measure(cell)


def report(seeds, jobs, parts):
    """Yield the lines of the report, or of some parts of it."""
    yield f"Machine: {machine()}."
    yield ""
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:

        def measured(measure, cells):
            return sorted(pool.imap_unordered(partial(quietly, measure), cells))

        if "embeddings" in parts:
            yield from embeddings(measured(embedding, list(product(TABLES, range(seeds)))))
        if "epochs" in parts:
            yield from epochs(measured(wrong_error_bars, range(4 * seeds)))
        if "outputs" in parts:
            cells = list(product(OUTPUTS, MISSING, range(seeds)))
            yield from several(measured(outputs, cells))


def embeddings(results):
    """Yield how the chosen scale of the embeddings compares with the best one."""
    yield "## Embeddings"
    yield ""
    yield "Error with each scale of the initial frequencies, and with the scale that was chosen."
    yield ""
    rows, ratios = [], []
    for name in TABLES:
        errors = np.array([e for (table_name, _), e in results if table_name == name])
        ratio = (errors[:, -1] / errors[:, :-1].min(axis=1)).mean()
        ratios.append(ratio)
        rows.append((name, *(f"{e:.4f}" for e in errors.mean(axis=0)), f"{ratio:.3f}"))
    rows.append(("mean", *[""] * (len(SCALES) + 1), f"{np.mean(ratios):.3f}"))
    yield from table(("table", *map(str, SCALES), "chosen", "chosen / best"), rows)


def epochs(results):
    """Yield the errors of fits with wrong error bars."""
    errors = np.array([error for _, error, _ in results])
    chosen = [epoch for *_, epoch in results]
    yield "## Epochs if the error bars are wrong"
    yield ""
    yield (
        f"Friedman 1, reported variance = √(true variance), {len(errors)} draws: mean error "
        f"{errors.mean():.3f}, largest {errors.max():.3f}; epochs {min(chosen)} to {max(chosen)}."
    )
    yield ""


def several(results):
    """Yield the errors of one fit of two outputs, compared with two fits of one output."""
    yield "## Two outputs at once"
    yield ""
    yield (
        "Sum of the errors of both outputs, in one fit and in two. Some labels of the second "
        "output are missing."
    )
    yield ""
    rows, ratios = [], []
    for names, missing in product(OUTPUTS, MISSING):
        both = np.array([e for (n, m, _), e in results if (n, m) == (names, missing)])
        joint, alone = both.sum(axis=2).T
        each = (both[:, 0] / both[:, 1]).mean(axis=0)
        ratios.append((joint / alone).mean())
        cells = f"{joint.mean():.4f}", f"{alone.mean():.4f}", f"{ratios[-1]:.3f}"
        rows.append((names, f"{missing:.0%}", *cells, *(f"{r:.3f}" for r in each)))
    rows.append(("mean", "", "", "", f"{np.mean(ratios):.3f}", "", ""))
    head = ("outputs", "missing", "one fit", "two fits", "ratio", "ratio of first", "of second")
    yield from table(head, rows)


def main():
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="number of draws of each table (default: 3)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="parts to measure (default: all)"
    )
    parser.add_argument("--out", type=Path, help="file that the report is also written to")
    options = parser.parse_args()
    publish(report(options.seeds, options.jobs, options.parts), options.out)


if __name__ == "__main__":
    main()
