"""The report: what was measured, as Markdown."""

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
    """A difference that should be rounding."""
    return "0" if value == 0 else f"{value:.0e}"


class Results:
    """Columns of numbers, one a draw, out of the cells."""

    def __init__(self, cells, seeds):
        self.cells, self.seeds = cells, seeds

    def column(self, data, group, name, what):
        """One number a draw, or None where it was not measured."""
        found = [self.cells[data, seed, group] for seed in range(self.seeds)]
        if any(what not in result.get(name, {}) for result in found):
            return None
        return np.array([result[name][what] for result in found])

    def error(self, data, what, place, base):
        """The mean of the errors, and the paired difference from the base, with its error."""
        mine, other = (self.column(data, *where, what) for where in (place, base))
        if mine is None:
            return "–"
        words = f"{mine.mean():.4f}"
        if place == base:
            return words
        ratio = 100 * (mine / other - 1) if what == "error" else mine - other
        digits, unit = (0, " %") if what == "error" else (3, "")
        spread = ratio.std(ddof=1) / np.sqrt(len(ratio)) if self.seeds > 1 else float("nan")
        return f"{words} ({ratio.mean():+.{digits}f} ± {spread:.{digits}f}{unit})"

    def errors(self, place, base):
        """Of all data sets; amyloid's in two ways."""
        columns = [*((data, "error") for data in DATA), (AMYLOID, "alike")]
        if place[0] == "few":
            columns += [(SMOOTH, "error"), (SMALL, "error")]
        return [self.error(data, what, place, base) for data, what in columns]

    def shares(self, place):
        """How often intervals held the label, in all data sets."""
        found = []
        for data in DATA_FEW:
            if (data, 0, place[0]) not in self.cells:
                found.append("–")
                continue
            columns = [self.column(data, *place, level) for level in LEVELS]
            none = any(column is None for column in columns)
            shown = [f"{100 * column.mean():.0f}%" for column in columns] if not none else ["–"]
            found.append(", ".join(shown))
        return found

    def times(self, place, base):
        """Medians of the draws' ratios of fit times, in all data sets."""
        found = []
        for data in DATA_FEW if place[0] == "few" else DATA:
            mine, other = (self.column(data, *where, "seconds") for where in (place, base))
            ratio = None if mine is None else statistics.median(mine / other)
            found.append("–" if ratio is None else f"{ratio:.2g}×")
        return found


NAMES = [f"Bike, α = {alpha:g}" for alpha in ALPHAS] + [AMYLOID]
ERRORS = [*NAMES[:-1], f"{AMYLOID}, weighted score", f"{AMYLOID}, all test labels alike"]
FRIEDMAN = ["Friedman", f"Friedman, {FEWER} rows"]
NETWORKS = ("networks", list(LOSSES)[-1])
REGRESSOR = ("regressors", "**BIVRegressor()**")
REGRESSOR_FEW = ("few", "**BIVRegressor()**")


def formula_tables(found):
    """Which losses are the same, and what they make of bad batches."""
    yield "## 1. Formulas"
    yield ""
    yield (
        f"The largest relative difference over 200 random batches of {BATCH}, σ² from 0.001 to "
        f"1,000, ε = {EPSILON}, in single and in double precision."
    )
    yield ""
    rows = []
    for key, words in (
        ("mse_loss", "`F.mse_loss(f, y, weight=1/(σ²+ε))` and `biv.biv_loss(f, y, σ²)`"),
        ("masked", "the same with a mask of ones, for which biv has no short cut"),
    ):
        for precision in ("single", "double"):
            off = found[f"{key}, {precision}"]
            rows.append([words, precision, small(off["loss"]), small(off["gradient"])])
    words = (
        "2 × the gradient of `F.gaussian_nll_loss(f, y, σ²)` and that of `biv.iv_loss(f, y, σ²)`"
    )
    for precision in ("single", "double"):
        rows.append([words, precision, "", small(found[f"nll, {precision}"]["gradient"])])
    astro = found["astroNN"]
    if "missing" not in astro:
        version = metadata.version("astroNN")
        words = f"`robust_mse` of astroNN {version} and `F.gaussian_nll_loss(f, y, σ² + s²)`"
        rows.append([words, "single", small(astro["loss"]), small(astro["gradient"])])
    yield from table(["what is compared", "precision", "loss", "gradient"], rows)
    if "missing" in astro:
        yield f"astroNN was left out: {astro['missing']}."
    else:
        only, one = (["finite" if ok else "not finite" for ok in pair] for pair in astro["finite"])
        yield (
            f"A missing label (NaN) in astroNN's `robust_mse`: loss {only[0]} and gradient "
            f"{only[1]} where it is a row's only label; loss {one[0]} and gradient {one[1]} where "
            "the row has another."
        )
    yield ""
    yield (
        "What they make of a batch of three rows, f = 1, 2, 3, y = 1.5, 2, 2, σ² = 0.1, 0.2, 0.3, "
        "in which one thing is changed: the loss, or what is said."
    )
    yield ""
    yield from table(
        [
            "the batch",
            "`F.mse_loss(weight=1/(σ²+ε))`",
            "`F.gaussian_nll_loss(var=σ²)`",
            "`biv_loss`",
        ],
        [[case, *result.values()] for case, result in found["edge cases"].items()],
    )


def dead_networks(results):
    """Which networks had to be started again, in words."""
    words, shown = [], dict(zip(DATA, NAMES, strict=True))
    for (data, seed, group), found in results.cells.items():
        again = sum(result["starts"] > 1 for result in found.values()) if group == "networks" else 0
        if again and seed < results.seeds:
            words.append(f"{again} of {len(LOSSES)} on draw {seed + 1} of {shown[data]}")
    return "; ".join(words) or "none was"


def loss_tables(results):
    """One network, several losses."""
    yield "## 2. The same network and loop, only the loss differs"
    yield ""
    yield (
        f"The paper's network, {'-'.join(map(str, WIDTHS))}, Adam at {RATE:g}, batches of {BATCH}, "
        f"labels of unit variance, ε = {EPSILON} of it. For every loss the epoch is taken whose "
        "noise-corrected error on held-out noisy labels (a fifth of the training rows) is lowest, "
        f"of {EPOCHS} at most; training stops when {PATIENCE} have brought nothing lower. Under "
        "one draw all losses have the same rows, first parameters and batches. A network whose "
        "last layer has died, so that it predicts one number for all held-out rows, is started "
        f"anew with other first parameters: {dead_networks(results)}."
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
    yield from table(["epoch taken, mean of the draws", *NAMES], epochs)


def names_of(results, group):
    """Methods of a group, as they were measured on any data set."""
    found = {}
    for data in DATA:
        found |= results.cells.get((data, 0, group), {})
    return list(found)


def tool_tables(results):
    """Tools on all rows, and on few."""
    groups = ("regressors", "scikit-learn", "lightgbm", "gpytorch")
    places = [(group, name) for group in groups for name in names_of(results, group)]
    yield "## 3. Tools, as people use them, on all rows"
    yield ""
    yield (
        "Settings are the libraries' own but where a row says otherwise. Labels have unit "
        f"variance, weights are 1/(σ²+ε) with ε = {EPSILON}, of mean 1; BIVRegressor finds its "
        "own ε. GPs have a Matérn 5/2 kernel, with a length scale a column on Bike and one for "
        f"all on amyloid, learned in {GP_STEPS} steps of Adam at {GP_RATE:g} from {FEW:,} rows; "
        f"the sparse one in {SVGP_EPOCHS} epochs at {SVGP_RATE:g} from all, on Bike only. The "
        "number of LightGBM's trees is chosen in three folds, which is part of its fit time."
    )
    yield ""
    yield from table(
        ["test error", *ERRORS], [[place[1], *results.errors(place, REGRESSOR)] for place in places]
    )
    yield from table(
        ["fit time beside BIVRegressor(), one thread each", *NAMES],
        [[place[1], *results.times(place, REGRESSOR)] for place in places],
    )
    few = [("few", name) for name in names_of(results, "few")]
    yield f"## 4. The same {FEW:,} rows for all"
    yield ""
    yield (
        "Friedman's function, 10 sin(π x₁x₂) + 20 (x₃ − ½)² + 10 x₄ + 5 x₅ of ten features, is "
        "smooth as the others are not: a case for a GP. Its labels have the noise of Bike, α = 1, "
        f"and its test labels are clean; once there are {FEWER} training rows only."
    )
    yield ""
    yield from table(
        [f"test error, {FEW:,} training rows", *ERRORS, *FRIEDMAN],
        [[place[1], *results.errors(place, REGRESSOR_FEW)] for place in few],
    )
    yield from table(
        [f"fit time beside BIVRegressor(), {FEW:,} rows", *NAMES, *FRIEDMAN],
        [[place[1], *results.times(place, REGRESSOR_FEW)] for place in few],
    )
    yield "## 5. Intervals: how often they hold the label"
    yield ""
    yield (
        "68% and 95% would be right. On Bike and of Friedman's function it is the clean test "
        "label; on amyloid the noisy one, its own variance added."
    )
    yield ""
    nets = [("networks", name) for name in LOSSES if "s²(x)" in name]
    rows = []
    for place in [*nets, *places, *few]:
        shares = results.shares(place)
        if set(shares) != {"–"}:
            more = ", few rows" if place[0] == "few" else ""
            rows.append([place[1] + more, *shares])
    head = ["share within the 68% and the 95% interval", *NAMES, *FRIEDMAN]
    yield from table(head, rows)


def scaling_table(found):
    """How an exact GP's training grows with its rows."""
    yield "## 6. GPyTorch: how it scales, and a trap"
    yield ""
    times = {int(rows): seconds for rows, seconds in found["seconds"].items()}
    base = min(times)
    rows = [[f"{count:,}", f"{seconds / times[base]:.1f}×"] for count, seconds in times.items()]
    yield from table(["rows of an exact GP", "time of a training step"], rows)
    power = np.log(times[max(times)] / times[base]) / np.log(max(times) / base)
    yield f"It grows as the number of rows to the power of {power:.1f}."
    yield ""
    noise = found["noise"]
    yield (
        "`FixedNoiseGaussianLikelihood(σ², learn_additional_noise=True)` with σ² = 0.5 and 0.2 "
        f"learned gives labels a noise of {noise['as made']:.1f}. Where σ² is passed as `noise=` "
        "(for new rows, or for a batch of a sparse GP) it gives them "
        f"{noise['noise=']:.1f}: the learned noise is left out, and σ² counted twice. In the "
        "sparse GP above it is therefore learned outside the likelihood, and passed in the sum."
    )
    yield ""
