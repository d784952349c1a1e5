"""Report of the measurements as Markdown."""

import statistics
from importlib import metadata

import numpy as np

from beside.data import (
    ALPHAS,
    AMYLOID,
    DATA,
    DATA_FEW,
    EPSILON,
    FEW,
    FEWER,
    LEVELS,
    SMALL,
    SMOOTH,
)
from beside.formulas import BATCH
from beside.gaussian import GP_RATE, GP_STEPS, SVGP_EPOCHS, SVGP_RATE
from beside.losses import EPOCHS, LOSSES, PATIENCE, RATE, WIDTHS
from machine import table


def small(value):
    """Format a difference that should be at most a rounding error."""
    return "0" if value == 0 else f"{value:.0e}"


class Results:
    """Results of all cells, and columns with one number per draw."""

    def __init__(self, cells, seeds):
        self.cells, self.seeds = cells, seeds

    def column(self, data, group, name, what):
        """Return one number per draw, or None if it was not measured."""
        results = [self.cells[data, seed, group] for seed in range(self.seeds)]
        if any(what not in result.get(name, {}) for result in results):
            return None
        return np.array([result[name][what] for result in results])

    def error(self, data, what, place, base):
        """Return the mean error and the paired difference from a base with its standard error."""
        errors, base_errors = (self.column(data, *where, what) for where in (place, base))
        if errors is None:
            return "–"
        text = f"{errors.mean():.4f}"
        if place == base:
            return text
        difference = errors - base_errors
        if what == "error":
            difference = 100 * (errors / base_errors - 1)
        digits, unit = (0, "%") if what == "error" else (3, "")
        count = len(difference)
        stderr = difference.std(ddof=1) / np.sqrt(count) if self.seeds > 1 else float("nan")
        return f"{text} ({difference.mean():+.{digits}f} ± {stderr:.{digits}f}{unit})"

    def errors(self, place, base):
        """Return the errors on all data sets; there are two scores for amyloid."""
        columns = [*((data, "error") for data in DATA), (AMYLOID, "alike")]
        if place[0] == "few":
            columns += [(SMOOTH, "error"), (SMALL, "error")]
        return [self.error(data, what, place, base) for data, what in columns]

    def coverages(self, place):
        """Return the fractions of labels within the intervals, for all data sets."""
        coverages = []
        for data in DATA_FEW:
            if (data, 0, place[0]) not in self.cells:
                coverages.append("–")
                continue
            columns = [self.column(data, *place, level) for level in LEVELS]
            none = any(column is None for column in columns)
            shown = [f"{100 * column.mean():.0f}%" for column in columns] if not none else ["–"]
            coverages.append(", ".join(shown))
        return coverages

    def times(self, place, base):
        """Return the medians of the draws' ratios of fit times, for all data sets."""
        texts = []
        for data in DATA_FEW if place[0] == "few" else DATA:
            seconds, base_seconds = (self.column(data, *at, "seconds") for at in (place, base))
            ratio = None if seconds is None else statistics.median(seconds / base_seconds)
            texts.append("–" if ratio is None else f"{ratio:.2g}×")
        return texts


NAMES = [f"Bike, α = {alpha:g}" for alpha in ALPHAS] + [AMYLOID]
ERRORS = [*NAMES[:-1], f"{AMYLOID}, weighted score", f"{AMYLOID}, all test labels alike"]
FRIEDMAN = ["Friedman", f"Friedman, {FEWER} rows"]
NETWORKS = ("networks", list(LOSSES)[-1])
REGRESSOR = ("regressors", "**BIVRegressor()**")
REGRESSOR_FEW = ("few", "**BIVRegressor()**")


def formula_tables(results):
    """Yield the tables of losses that are equal, and of losses on unusual batches."""
    yield "## 1. Formulas"
    yield ""
    yield (
        f"Largest relative difference over 200 random batches of {BATCH} labels, with σ² from "
        f"0.001 to 1,000 and ε = {EPSILON}, in single and in double precision."
    )
    yield ""
    rows = []
    for key, name in (
        ("mse_loss", "`F.mse_loss(f, y, weight=1/(σ²+ε))` and `biv.biv_loss(f, y, σ²)`"),
        ("masked", "the same with a mask of ones, for which biv has no short cut"),
    ):
        for precision in ("single", "double"):
            difference = results[f"{key}, {precision}"]
            rows.append([name, precision, small(difference["loss"]), small(difference["gradient"])])
    name = "2 × the gradient of `F.gaussian_nll_loss(f, y, σ²)` and that of `biv.iv_loss(f, y, σ²)`"
    for precision in ("single", "double"):
        rows.append([name, precision, "", small(results[f"nll, {precision}"]["gradient"])])
    astro = results["astroNN"]
    if "missing" not in astro:
        version = metadata.version("astroNN")
        name = f"`robust_mse` of astroNN {version} and `F.gaussian_nll_loss(f, y, σ² + s²)`"
        rows.append([name, "single", small(astro["loss"]), small(astro["gradient"])])
    yield from table(["compared", "precision", "loss", "gradient"], rows)
    if "missing" in astro:
        yield f"astroNN was left out: {astro['missing']}."
    else:
        only, one = (
            ["is finite" if ok else "is not finite" for ok in pair] for pair in astro["finite"]
        )
        yield (
            f"A missing label (NaN) in astroNN's `robust_mse` gives a loss that {only[0]} and a "
            f"gradient that {only[1]} if it is the only label of a row. If the row has another "
            f"label, the loss {one[0]} and the gradient {one[1]}."
        )
    yield ""
    yield (
        "The next table shows the loss of a batch of three rows with f = 1, 2, 3, y = 1.5, 2, 2 "
        "and σ² = 0.1, 0.2, 0.3, in which one thing is changed."
    )
    yield ""
    yield from table(
        [
            "the batch",
            "`F.mse_loss(weight=1/(σ²+ε))`",
            "`F.gaussian_nll_loss(var=σ²)`",
            "`biv_loss`",
        ],
        [[case, *result.values()] for case, result in results["edge cases"].items()],
    )


def trained_again(results):
    """Return the numbers of networks that were trained again, as text."""
    texts, titles = [], dict(zip(DATA, NAMES, strict=True))
    for (data, seed, group), cell in results.cells.items():
        again = sum(result["starts"] > 1 for result in cell.values()) if group == "networks" else 0
        if again and seed < results.seeds:
            texts.append(f"{again} of {len(LOSSES)} on draw {seed + 1} of {titles[data]}")
    return "; ".join(texts) or "none"


def loss_tables(results):
    """Yield the tables of one network trained with several losses."""
    yield "## 2. The same network and loop, only the loss differs"
    yield ""
    yield (
        f"The network is the paper's, {'-'.join(map(str, WIDTHS))}, trained by Adam with a "
        f"learning rate of {RATE:g} on batches of {BATCH}. Labels have unit variance, and "
        f"ε = {EPSILON}. For every loss, the epoch with the lowest noise-corrected error on "
        f"held-out noisy labels (a fifth of the training rows) is chosen, of at most {EPOCHS}; "
        f"training stops after {PATIENCE} epochs without improvement. In one draw, all losses have "
        "the same rows, initial parameters and batches. A network that predicts one constant for "
        "all held-out rows, because all units of a layer are inactive, is trained again from other "
        f"initial parameters. Trained again: {trained_again(results)}."
    )
    yield ""
    yield from table(
        ["loss", *ERRORS],
        [[name, *results.errors(("networks", name), NETWORKS)] for name in LOSSES],
    )
    epochs = [
        [name, *(f"{results.column(data, 'networks', name, 'epoch').mean():.0f}" for data in DATA)]
        for name in LOSSES
    ]
    yield from table(["epoch chosen, mean of the draws", *NAMES], epochs)


def names_of(results, group):
    """Return the methods of a group that were measured on any data set."""
    methods = {}
    for data in DATA:
        methods |= results.cells.get((data, 0, group), {})
    return list(methods)


def tool_tables(results):
    """Yield the tables of tools on all rows and on few rows."""
    groups = ("regressors", "scikit-learn", "lightgbm", "gpytorch")
    places = [(group, name) for group in groups for name in names_of(results, group)]
    yield "## 3. Tools with their usual settings, on all rows"
    yield ""
    yield (
        "Settings are the defaults of the libraries, unless a row states another. Labels have unit "
        f"variance. Weights are 1/(σ²+ε) with ε = {EPSILON}, scaled to a mean of 1; BIVRegressor "
        "chooses its own ε."
    )
    yield ""
    yield (
        "Gaussian processes (GPs) have a Matérn 5/2 kernel, with one length scale per column on "
        f"Bike and one for all columns on amyloid. The exact GPs learn it in {GP_STEPS} steps of "
        f"Adam with a learning rate of {GP_RATE:g} from {FEW:,} rows; the sparse GP in "
        f"{SVGP_EPOCHS} epochs with a rate of {SVGP_RATE:g} from all rows, on Bike only. The "
        "number of LightGBM's trees is chosen by three-fold cross-validation, which is part of its "
        "fit time."
    )
    yield ""
    yield from table(
        ["test error", *ERRORS], [[place[1], *results.errors(place, REGRESSOR)] for place in places]
    )
    yield from table(
        ["fit time divided by that of BIVRegressor(), one thread each", *NAMES],
        [[place[1], *results.times(place, REGRESSOR)] for place in places],
    )
    few = [("few", name) for name in names_of(results, "few")]
    yield f"## 4. The same {FEW:,} rows for all"
    yield ""
    yield (
        "Friedman's function, 10 sin(π x₁x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅ of ten features, is "
        "smooth, unlike the other data sets, and so suits a GP. Its training labels have the noise "
        "of Bike, α = 1, and its test labels are clean. The last column has only "
        f"{FEWER} training rows."
    )
    yield ""
    yield from table(
        [f"test error, {FEW:,} training rows", *ERRORS, *FRIEDMAN],
        [[place[1], *results.errors(place, REGRESSOR_FEW)] for place in few],
    )
    yield from table(
        [f"fit time divided by that of BIVRegressor(), {FEW:,} rows", *NAMES, *FRIEDMAN],
        [[place[1], *results.times(place, REGRESSOR_FEW)] for place in few],
    )
    yield "## 5. Intervals: how often they contain the label"
    yield ""
    yield (
        "Calibrated intervals contain 68% and 95% of the labels. The labels are clean test labels "
        "on Bike and for Friedman's function. On amyloid they are noisy, and their variance is "
        "added to that of the prediction."
    )
    yield ""
    nets = [("networks", name) for name in LOSSES if "s²(x)" in name]
    rows = []
    for place in [*nets, *places, *few]:
        coverages = results.coverages(place)
        if set(coverages) != {"–"}:
            suffix = ", few rows" if place[0] == "few" else ""
            rows.append([place[1] + suffix, *coverages])
    head = ["fraction of labels within the 68% and the 95% interval", *NAMES, *FRIEDMAN]
    yield from table(head, rows)


def scaling_table(results):
    """Yield the table of the time of an exact GP's training step by its number of rows."""
    yield "## 6. GPyTorch: how it scales, and a pitfall"
    yield ""
    times = {int(rows): seconds for rows, seconds in results["seconds"].items()}
    base = min(times)
    rows = [[f"{count:,}", f"{seconds / times[base]:.1f}×"] for count, seconds in times.items()]
    yield from table(["rows of an exact GP", "time of a training step"], rows)
    power = np.log(times[max(times)] / times[base]) / np.log(max(times) / base)
    yield f"The time grows as the number of rows to the power of {power:.1f}."
    yield ""
    noise = results["noise"]
    yield (
        "`FixedNoiseGaussianLikelihood(σ², learn_additional_noise=True)` with σ² = 0.5 and a "
        f"learned noise of 0.2 gives labels a noise variance of {noise['as made']:.1f}. If σ² is "
        "passed as `noise=`, which new rows and batches of a sparse GP need, it gives them "
        f"{noise['noise=']:.1f}: the learned noise is left out, and σ² is counted twice. The "
        "sparse GP above therefore learns the additional noise outside the likelihood, and passes "
        "the sum."
    )
    yield ""
