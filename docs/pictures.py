"""Draw the pictures of the README and the pages from the stored results of the paper's experiments.

Usage: ``.venv/bin/python docs/pictures.py`` writes docs/images/*.svg in seconds.

The description of each file contains the numbers that the picture shows. A test compares them with
the store.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from biv.paper.artefacts import artefacts
from biv.paper.grid import BIV, L2, LinePanel, cutoff
from biv.paper.presets import PRESETS
from biv.paper.report.figures import METHOD_COLOURS, POINTS, TRUTH_COLOUR
from biv.paper.results import RunResult
from biv.paper.store import Store
from biv.paper.summary import Summary, summarise
from biv.report.matplotlib_figures import STYLE

ROOT = Path(__file__).parent.parent
IMAGES = ROOT / "docs" / "images"
SEEDS = 5
ARTEFACTS = artefacts("bike", PRESETS["paper"])
COLOURS = {
    "L2": METHOD_COLOURS[L2],
    "cutoff": METHOD_COLOURS[cutoff(1.0)],
    "BIV": METHOD_COLOURS[BIV],
    "GT": TRUTH_COLOUR,
}
Numbers = dict[str, Any]
Values = npt.NDArray[np.float64]


class Picture(NamedTuple):
    """A figure, and the numbers that it shows."""

    figure: Figure
    numbers: Numbers


def runs(store: Store, name: str) -> Iterator[tuple[LinePanel, dict[str, Summary]]]:
    """Yield the panels of an artefact, with a summary per label of a line."""
    artefact = ARTEFACTS[name]
    results = store.results(artefact.runs(SEEDS))
    for panel in artefact.panels:
        summaries = {line.label: summarise(line, results, SEEDS) for line in panel.lines}
        yield panel, {label: line for label, line in summaries.items() if line is not None}


# The gain from error bars: an illustration, and the paper's experiment.


def methods(lines: dict[str, Summary]) -> dict[str, Summary]:
    """Return the methods to compare, with only the best cutoff, which is unknown in practice."""
    cutoffs = [summary for label, summary in lines.items() if label.startswith("C=")]
    best = min(cutoffs, key=lambda summary: summary.lowest)
    return {
        "L2": lines["L2"],
        f"best cutoff ({best.line.label})": best,
        "BIV": lines["BIV"],
        "GT": lines["GT"],
    }


LEGEND = {
    "L2": "L2: ignores the error bars",
    "BIV": "BIV: weights by the error bars",
    "GT": "trained on noise-free labels",
}


def colour(label: str) -> str:
    """Return the colour of a method, which is that of the paper's figures."""
    return COLOURS["cutoff" if "cutoff" in label else label]


def gain(store: Store) -> Picture:
    """Draw an illustration of error bars, and learning curves under the most unequal noise."""
    figure = Figure(figsize=(8.6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    numbers: Numbers = {"illustration": illustration(left)}
    (lines,) = (lines for panel, lines in runs(store, "table1") if panel.title == "α=0.25")
    for label, summary in methods(lines).items():
        curve(right, summary, colour(label), LEGEND.get(label, label))
        numbers[label] = [summary.lowest, summary.lowest_std]
    right.set(
        title="Bike Sharing data, very unequal error bars (α=0.25)",
        xlabel="training samples seen, thousands", ylabel="mean squared error on clean test labels",
        ylim=(0.05, 0.22),
    )  # fmt: skip
    right.legend(frameon=False, fontsize=8)
    return Picture(figure, numbers)


def illustration(axis: Axes) -> dict[str, float]:
    """Draw noisy labels and the curves that minimise L2 and BIV; return the errors of the curves.

    The curves are sums of sines and cosines, so that both minimisers have a closed form.
    """
    rng = np.random.default_rng(7)
    x = np.sort(rng.uniform(0, 1, 60))
    std = np.where(rng.random(60) < 0.4, 0.1, 1.6)
    y = truth(x) + std * rng.normal(size=60)
    grid = np.linspace(0, 1, 300)
    axis.errorbar(
        x, y, std, fmt="o", color="#888888", markersize=2.5, linewidth=0.7, label="label ± σ"
    )
    axis.plot(grid, truth(grid), color=COLOURS["GT"], linewidth=1.2, label="truth")
    errors = {}
    for label, weights in {"L2": np.ones(60), "BIV": 1 / (std**2 + 0.05)}.items():
        root = np.sqrt(weights)[:, None]
        solution = np.linalg.lstsq(root * waves(x), root[:, 0] * y, rcond=None)[0]
        fitted = waves(grid) @ solution
        axis.plot(grid, fitted, color=COLOURS[label], linewidth=1.8, label=label)
        errors[label] = float(np.mean((fitted - truth(grid)) ** 2))
    axis.set(title="unequal error bars, and two fits", xlabel="x", ylabel="y", ylim=(-4.8, 3.6))
    axis.legend(frameon=False, fontsize=8, ncols=2, loc="lower left")
    return errors


def truth(x: Values) -> Values:
    """Return the true curve of the illustration."""
    return np.asarray(np.sin(2 * np.pi * x) + 0.5 * np.cos(5 * np.pi * x))


def waves(x: Values) -> Values:
    """Return a constant, and sines and cosines of up to four periods, of shape (N, 9)."""
    angles = 2 * np.pi * np.outer(x, np.arange(1, 5))
    return np.hstack([np.ones((len(x), 1)), np.sin(angles), np.cos(angles)])


def curve(axis: Axes, line: Summary, colour: str, label: str) -> None:
    """Draw the mean smoothed curve of a line, with a band of one standard deviation."""
    shown = slice(None, None, max(1, len(line.samples) // POINTS))
    samples, mean, std = line.samples[shown] / 1e3, line.mean[shown], line.std[shown]
    axis.plot(samples, mean, color=colour, linewidth=1.4, label=label)
    axis.fill_between(samples, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)


# The effect of ε.

NOISES = {"fig07": "Gamma noise, α=1", "fig08": "half of the labels almost clean"}
SHADES = {"fig07": "#0072B2", "fig08": "#E69F00"}


def epsilon(store: Store) -> Picture:
    """Draw the lowest test loss and the effective batch size against ε."""
    figure = Figure(figsize=(8.6, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2)
    numbers: Numbers = {}
    for name, noise in NOISES.items():
        ((_, lines),) = runs(store, name)
        by_epsilon = {
            float(label[2:]): line for label, line in lines.items() if label.startswith("ε=")
        }
        values = list(by_epsilon)
        loss = [line.lowest for line in by_epsilon.values()]
        size = [effective_size(line, store) for line in by_epsilon.values()]
        left.plot(values, loss, "o-", color=SHADES[name], markersize=4, label=f"BIV, {noise}")
        left.axhline(lines["L2"].lowest, color=SHADES[name], linestyle="--", linewidth=1)
        right.plot(values, size, "o-", color=SHADES[name], markersize=4, label=noise)
        numbers[name] = {
            "epsilon": values, "lowest": loss, "effective batch size": size,
            "L2": lines["L2"].lowest,
        }  # fmt: skip
    left.plot([], [], color="#666666", linestyle="--", linewidth=1, label="L2, same noise")
    right.axhline(256, color="#666666", linestyle="--", linewidth=1, label="whole batch")
    left.axvspan(0.01, 0.1, color="#999999", alpha=0.15, linewidth=0)
    for axis in (left, right):
        axis.set_xscale("symlog", linthresh=1e-3, linscale=0.6)
        axis.set_xlim(-2e-4, 200)
        axis.set_xlabel("ε in units of the label variance")
        axis.legend(frameon=False, fontsize=7, loc="upper left" if axis is left else "lower right")
    left.set(
        ylabel="lowest test error on clean labels", ylim=(0.07, 0.129),
        title="lowest test error by ε",
    )  # fmt: skip
    right.set(
        ylabel="effective batch size (of 256)", title="effective batch size by ε", ylim=(0, 275)
    )
    return Picture(figure, numbers)


def effective_size(line: Summary, store: Store) -> float:
    """Return the mean effective batch size over all epochs and seeds."""
    results: list[RunResult] = list(store.results(line.line.runs(SEEDS)).values())
    return float(np.mean([r.effective_batch_size.mean(dtype=np.float64) for r in results]))


PICTURES: dict[str, Callable[[Store], Picture]] = {"gain": gain, "epsilon": epsilon}


def described(numbers: Numbers) -> str:
    """Return the numbers of a picture as the text that is written into its file."""
    return json.dumps(json.loads(json.dumps(numbers), parse_float=lambda x: round(float(x), 4)))


def main() -> None:
    """Draw all pictures."""
    store = Store(ROOT / "paper" / "results" / "runs.sqlite")
    style = STYLE | {"svg.fonttype": "path", "figure.facecolor": "white"}
    with mpl.rc_context(style):
        for name, draw in PICTURES.items():
            picture = draw(store)
            path = IMAGES / f"{name}.svg"
            meta = {"Date": None, "Description": described(picture.numbers)}
            picture.figure.savefig(path, metadata=meta)
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
