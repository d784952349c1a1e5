"""Compare BIVRegressor with gradient boosting, and with itself without error bars.

    .venv/bin/python benchmarks/quality.py                       all: half an hour on two cores
    .venv/bin/python benchmarks/quality.py --seeds 1             a short run
    .venv/bin/python benchmarks/quality.py --out quality.md      writes the report to a file

Bike Sharing: 7,000 training rows have noise whose variances follow a Gamma distribution of mean
20,000; 3,379 test rows have clean labels. The features are the paper's 19, the hour, and the number
of the day. Scores are mean squared errors to the clean test labels, divided by the variance of all
clean labels. Amyloid: a random fifth of the rows is for testing. Its labels are noisy, so that
scores are noise-corrected errors, divided by the label variance.

BIVRegressor chooses nothing on test labels. Each score is saved to a file at once (--cells). It is
not computed again as long as the sources of biv stay the same.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import statistics
import time
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path

import lightgbm
import numpy as np
import torch
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPRegressor
from tqdm import tqdm

import bikes
import biv
import biv.estimator.ensembles
from biv.training import cross_fit
from machine import machine, publish, table

ALPHAS, MEAN_VARIANCE = (1.0, 0.5, 0.25), 20_000.0
TRAIN, TEST = 7_000, 3_379
EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2)
SIZES = range(20, 601, 20)  # numbers of LightGBM's trees
WEIGHT_EPSILON = 0.05  # ε of LightGBM's weights, relative to the label variance
METHODS = ("auto", *map(str, EPSILONS), "l2", "trees", "weighted trees")
LONG = 60  # epochs of a run without early stopping
PAPER = (0.096, 0.088, 0.079)  # the paper's BIV network on its features, chosen on test labels
TARGET, STRETCH_TARGET = (0.060, 0.055, 0.051), (0.055, 0.049, 0.045)
AMYLOID = "amyloid"


# The data.


def bike(alpha, seed):
    """Return noisy training rows, clean test rows, and the variance of all clean labels."""
    data = biv.datasets.load_bike()
    x = bikes.features(data)
    split = biv.datasets.split_rows(
        len(data), train=TRAIN, test=TEST, generator=np.random.default_rng([seed, 0])
    )
    rng = np.random.default_rng([seed, 1])
    variance = biv.noise.Gamma(alpha, MEAN_VARIANCE).sample(TRAIN, rng)
    y = biv.noise.corrupt(data.y[split.train], variance, rng)
    train, test = (x[split.train], y, variance), (x[split.test], data.y[split.test], None)
    return train, test, data.y.var(ddof=1)


def amyloid(seed):
    """Return training and test rows with real error bars, and the estimated label variance."""
    data = biv.datasets.load_amyloid()
    order = np.random.default_rng(seed).permutation(len(data))
    parts = np.split(order, [len(data) * 4 // 5])
    train, test = ((data.x[rows], data.y[rows], data.variance[rows]) for rows in parts)
    return train, test, biv.metrics.label_variance(data.y, data.variance)


def error(predicted, test, scale):
    """Return the mean squared error to the true labels, in units of the label variance.

    For noisy labels, ε of the weights is fixed, so that all methods are scored with equal weights.
    """
    _, y, variance = test
    if variance is None:
        return float(np.mean((predicted - y) ** 2)) / scale
    score = biv.metrics.noise_corrected_mse(predicted, y, variance, epsilon=WEIGHT_EPSILON * scale)
    return score.value / scale


def weights(variance, scale):
    """Return the weights of BIV, scaled to a mean of 1 for use as sample_weight."""
    weight = biv.inverse_variance_weights(variance, WEIGHT_EPSILON * scale)
    return weight / weight.mean()


# The methods.


def ours(train, test, scale, seed, method):
    """Return the results of BIVRegressor; "long" trains without early stopping."""
    options = {"loss": "l2"} if method == "l2" else {}
    if method == "long":
        options = {"max_epochs": LONG, "patience": LONG}
    elif method not in ("auto", "l2"):
        options["epsilon"] = float(method)
    model = biv.BIVRegressor(**options, random_state=seed)
    x, each_epoch = test[0], []

    def keep_modules(ensemble):
        if ensemble.epoch == 1:
            each_epoch.clear()  # the epochs before were those of the pilot
        each_epoch.append(ensemble.modules(ensemble.snapshot()))

    if method == "long":
        biv.estimator.ensembles.cross_fit = partial(cross_fit, after_epoch=keep_modules)
    model.fit(train[0], train[1], y_var=train[2])
    fitted, curve = model._fitted, []
    for modules in each_epoch:
        (part,) = fitted.parts
        part = replace(part, ensemble=replace(part.ensemble, modules=modules))
        at_epoch = replace(fitted, parts=[part])
        curve.append(error(at_epoch.predict(x)[0][:, 0], test, scale))
    biv.estimator.ensembles.cross_fit = cross_fit
    mean, std = model.predict(test[0], return_std=True, y_var=test[2])
    deviation = np.abs(mean - test[1]) / std
    return {
        "error": error(mean, test, scale),
        "epochs": model.n_epochs_,
        "best epoch": min(curve, default=None),
        "epsilon": None if model.epsilon_ is None else model.epsilon_ / scale,
        "inside 1": float(np.mean(deviation < 1)),
        "inside 1.96": float(np.mean(deviation < 1.96)),
        "factor": model.variance_factor_,
    }


def trees(train, test, scale, seed, *, weighted):
    """Return the errors of LightGBM, with its size chosen on noisy labels and on test labels."""
    x, y, variance = train
    weight = weights(variance, scale) if weighted else None

    def grown(rows):
        model = lightgbm.LGBMRegressor(
            n_estimators=max(SIZES), learning_rate=0.05, n_jobs=1, verbose=-1
        )
        return model.fit(x[rows], y[rows], sample_weight=None if weight is None else weight[rows])

    held_out = np.zeros(len(SIZES))
    for rows, others in KFold(5, shuffle=True, random_state=seed).split(x):
        model, fold = grown(rows), (x[others], y[others], variance[others])
        held_out += [
            error(model.predict(fold[0], num_iteration=size), fold, scale) for size in SIZES
        ]
    whole = grown(np.arange(len(x)))
    errors = [error(whole.predict(test[0], num_iteration=size), test, scale) for size in SIZES]
    return {"error": errors[int(held_out.argmin())], "chosen on test": min(errors)}


def measure(cell):
    """Return the results of one method on one draw of one data set."""
    data, seed, method = cell
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", "X does not have valid feature names")
    drawn = amyloid(seed) if data == AMYLOID else bike(float(data), seed)
    if method.endswith("trees"):
        return cell, trees(*drawn, seed, weighted=method.startswith("weighted"))
    return cell, ours(*drawn, seed, method)


def sources():
    """Return a digest of the sources that the results depend on."""
    digest = hashlib.sha256()
    for path in sorted([*Path(biv.__file__).parent.rglob("*.py"), Path(__file__)]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def all_cells(seeds, path, jobs):
    """Measure the cells that are not in the file, and return the results of all cells."""
    cells = [
        (data, seed, method)
        for data in (*map(str, ALPHAS), AMYLOID)
        for seed in range(seeds)
        for method in (METHODS if data == AMYLOID else (*METHODS, "long"))
    ]
    digest, done = sources(), {}
    path.parent.mkdir(parents=True, exist_ok=True)
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        entry = json.loads(line)
        if entry["sources"] == digest:
            done[tuple(entry["cell"])] = entry["result"]
    missing = [cell for cell in cells if cell not in done]
    with multiprocessing.get_context("spawn").Pool(jobs) as pool, path.open("a") as file:
        for cell, result in tqdm(pool.imap_unordered(measure, missing), total=len(missing)):
            done[cell] = result
            entry = {"sources": digest, "cell": cell, "result": result}
            file.write(json.dumps(entry) + "\n")
            file.flush()
    return done


# The report.


def quality(cells, seeds):
    """Yield the tables of the scores."""

    def column(data, method, what="error"):
        return np.array([cells[data, seed, method][what] for seed in range(seeds)])

    def mean(data, method, what="error"):
        return column(data, method, what).mean()

    def shown(method, what="error"):
        return [
            f"{(values := column(str(alpha), method, what)).mean():.4f} ± {values.std(ddof=1):.4f}"
            if seeds > 1
            else f"{mean(str(alpha), method, what):.4f}"
            for alpha in ALPHAS
        ]

    alphas = [f"α = {alpha:g}" for alpha in ALPHAS]
    yield f"## Bike Sharing (mean ± standard deviation of {seeds} draws)"
    yield ""
    yield from table(
        ["test error in units of the label variance", *alphas],
        [
            ["the paper's BIV network (the paper's figures, chosen on test labels)", *PAPER],
            ["LightGBM, no weights, size chosen on noisy labels", *shown("trees")],
            ["the same, size chosen on test labels", *shown("trees", "chosen on test")],
            ["LightGBM, weights 1/(σ²+ε), size chosen on noisy labels", *shown("weighted trees")],
            ["the same, size chosen on test labels", *shown("weighted trees", "chosen on test")],
            ["BIVRegressor(loss='l2')", *shown("l2")],
            ["**BIVRegressor()**", *(f"**{text}**" for text in shown("auto"))],
            ["target", *TARGET],
            ["stretch target", *STRETCH_TARGET],
        ],
    )
    yield "## Automatic ε compared with fixed values"
    yield ""
    rows = []
    for data in (*map(str, ALPHAS), AMYLOID):
        fixed = [mean(data, str(epsilon)) for epsilon in EPSILONS]
        auto = mean(data, "auto")
        name = data if data == AMYLOID else f"Bike, α = {float(data):g}"
        difference = f"{100 * (auto / min(fixed) - 1):+.1f}%"
        chosen = f"{mean(data, 'auto', 'epsilon'):.3f}"
        rows.append([name, *(f"{x:.4f}" for x in fixed), f"{auto:.4f}", chosen, difference])
    head = ["test error", *(f"ε = {epsilon:g}" for epsilon in EPSILONS), "auto"]
    yield from table([*head, "ε chosen", "auto compared with the best"], rows)
    yield "Target: at most 2% above the best fixed ε, which is chosen on test labels."
    yield ""
    yield "## The epoch chosen on noisy labels compared with the best epoch"
    yield ""
    rows, ratios = [], []
    for alpha in ALPHAS:
        ratio = column(str(alpha), "auto") / column(str(alpha), "long", "best epoch")
        ratios += ratio.tolist()
        epochs = mean(str(alpha), "auto", "epochs")
        above = [f"{100 * (r - 1):.1f}%" for r in (ratio.mean(), ratio.max())]
        rows.append([f"α = {alpha:g}", f"{epochs:.0f}", *above])
    head = ["Bike", "epoch chosen", f"error above the best of {LONG} epochs, mean", "maximum"]
    yield from table(head, rows)
    yield f"The mean of all draws is {100 * (np.mean(ratios) - 1):.1f}% (target: at most 3%)."
    yield ""
    yield "## How often the interval contains the true label"
    yield ""
    rows = [
        [f"α = {a:g}", *(f"{100 * mean(str(a), 'auto', w):.0f}%" for w in INSIDE)] for a in ALPHAS
    ]
    rows.append([f"{AMYLOID} (noisy labels, their variance added)"])
    rows[-1] += [f"{100 * mean(AMYLOID, 'auto', what):.0f}%" for what in INSIDE]
    yield from table(["Bike, clean test labels", "68% interval", "95% interval"], rows)
    yield "## Amyloid (real error bars, a fifth of the rows for testing)"
    yield ""
    plain = mean(AMYLOID, "l2")
    yield from table(
        [
            "method",
            "noise-corrected test error in units of the label variance",
            "compared with loss='l2'",
        ],
        [
            [name, f"{x:.4f}", f"{100 * (x / plain - 1):+.1f}%"]
            for name, x in (
                ("LightGBM, no weights", mean(AMYLOID, "trees")),
                ("LightGBM, weights 1/(σ²+ε)", mean(AMYLOID, "weighted trees")),
                ("BIVRegressor(loss='l2')", plain),
                ("**BIVRegressor()**", mean(AMYLOID, "auto")),
            )
        ],
    )
    yield "Target: at least 10% below the same model with L2."
    yield ""


INSIDE = ("inside 1", "inside 1.96")


def seconds(model, *args, clock=time.perf_counter, **kwargs):
    """Return the seconds that a fit takes, by a clock."""
    start = clock()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a network may not converge
        model.fit(*args, **kwargs)
    return clock() - start


def speed(rounds, epochs=30):
    """Compare fit times with LightGBM on one thread, and with scikit-learn's network on all."""
    yield f"## Fit time (Bike; medians of the ratios of {rounds} rounds, one draw per round)"
    yield ""
    rows = []
    torch.set_num_threads(1)
    for alpha in ALPHAS:
        boosted = lightgbm.LGBMRegressor(
            n_estimators=max(SIZES), learning_rate=0.05, n_jobs=1, verbose=-1
        )
        ratios, epochs_run = [], []
        for seed in range(rounds):
            (x, y, variance), _, scale = bike(alpha, seed)
            weight = weights(variance, scale)
            model = biv.BIVRegressor(random_state=seed)
            cpu_time = partial(seconds, clock=time.process_time)  # unaffected by other processes
            boosting = cpu_time(boosted, x, y, sample_weight=weight)
            ratios.append(cpu_time(model, x, y, y_var=variance) / boosting)
            epochs_run.append(len(model.history_))
        name = f"α = {alpha:g}, {min(epochs_run)} to {max(epochs_run)} epochs, one thread"
        other = "600 trees of LightGBM, one thread"
        result = f"{statistics.median(ratios):.1f} times the CPU time ({max(ratios):.1f} at most)"
        rows.append([name, other, result, "at most 20"])
    cores = os.cpu_count() or 1
    torch.set_num_threads(cores)
    paper = biv.BIVRegressor(
        model="paper", members=8, folds=8, epsilon=0.05, max_epochs=epochs, patience=epochs
    ).set_params(n_jobs=cores)
    network = MLPRegressor(
        hidden_layer_sizes=(100, 50, 20, 10), batch_size=256, max_iter=epochs, tol=0
    )
    network.set_params(n_iter_no_change=epochs)
    scaled, label = biv.preprocessing.FeatureScaler.fit(x)(x), y / np.sqrt(scale)
    ratios = []
    for _ in range(rounds):
        stacked = seconds(paper, x, y, y_var=variance)
        single = sum(seconds(network, scaled, label, sample_weight=weight) for _ in range(8))
        ratios.append(single / stacked)
    name = f"eight networks of the paper, {epochs} epochs, {cores} cores"
    other = "eight MLPRegressor with sample_weight, one after another"
    rows.append([name, other, f"{statistics.median(ratios):.1f} times as fast", "at least 4"])
    yield from table(["BIVRegressor", "compared with", "result", "target"], rows)
    yield (
        "Each of the eight networks is trained on seven eighths of the rows, and scored on the "
        "others after every epoch. MLPRegressor is trained on all rows, in double precision."
    )
    yield ""


def main():
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=5, help="number of draws of each data set (default: 5)"
    )
    parser.add_argument(
        "--rounds", type=int, default=5, help="number of rounds of timing; 0 skips it (default: 5)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    parser.add_argument(
        "--cells",
        type=Path,
        default=Path("build/bench/quality.jsonl"),
        help="file with the results so far (default: build/bench/quality.jsonl)",
    )
    parser.add_argument("--out", type=Path, help="file that the report is also written to")
    options = parser.parse_args()

    def report():
        yield f"Machine: {machine()}; LightGBM {lightgbm.__version__}."
        yield ""
        if options.rounds:
            yield from speed(options.rounds)
        cells = all_cells(options.seeds, options.cells, options.jobs)
        yield from quality(cells, options.seeds)

    publish(report(), options.out)


if __name__ == "__main__":
    main()
