"""The paper's figures: mean smoothed curves with bands of one standard deviation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from biv.paper.artefacts import EPSILONS, LARGE_EPSILONS
from biv.paper.grid import BIV, CLEAN, EPSILON, IV, L2, Artefact, Line, LinePanel, cutoff
from biv.paper.presets import FACES, PRESETS
from biv.paper.results import RunResult
from biv.paper.spec import Loss, Run
from biv.paper.summary import Summary, summarise
from biv.report.matplotlib_figures import STYLE, save_figure
from biv.training.history import smoothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers tell apart, and some of Tol's: one method, one
# colour.
TRUTH_COLOUR = "#000000"
METHOD_COLOURS: dict[Loss, str] = {
    L2: "#D55E00",
    BIV: "#0072B2",
    IV: "#CC79A7",
    cutoff(1 / 20): "#E69F00",
    cutoff(1 / 4): "#56B4E9",
    cutoff(1 / 2): "#8C6D1F",
    cutoff(1.0): "#009E73",
    cutoff(1.5): "#AA4499",
    cutoff(2.0): "#999999",
    cutoff(5.0): "#B5A900",
    Loss("cutoff", threshold=1.0, raw_threshold=True): "#117733",
    Loss("iv", epsilon=EPSILON): "#882255",
}
_EPSILONS = (*EPSILONS, *LARGE_EPSILONS)
FORMATS = ("svg", "png")
# What the paper shows on UTKFace alone.
ONLY_FACES = (
    "L2Var", "BU_BIV_CO", "epsilonUTKF", "epsilonBinary", "GammaHigh", "GammaUTKFLowAlpha",
)  # fmt: skip
POINTS = 120  # of a curve, at least, where it has more
CAPTION_SIZE, CHARACTERS_AN_INCH = 6, 19
LABELS_AT = 1.06  # widths of the axes from the left: a thin line leads there from a curve's end


def draw(
    artefact: Artefact, results: Mapping[Run, RunResult], seeds: int, caption: str = ""
) -> Figure:
    """One artefact, panel by panel, above its caption; lines that have no runs are left out."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        count = len(artefact.panels)
        width = max(4.8, 3.4 * count)
        figure = Figure(figsize=(width, 3.8), dpi=120, layout="constrained")
        axes = figure.subplots(1, count, sharey=artefact.quantity == "test_loss", squeeze=False)[0]
        axes[0].set_ylabel(_QUANTITIES[artefact.quantity])
        for axis, panel in zip(axes, artefact.panels, strict=True):
            axis.set_title(panel.title, fontsize=8)
            axis.set_xlabel("training samples seen, thousands")
        if artefact.quantity == "test_loss":
            _draw_tests(axes, artefact.panels, results, seeds)
        else:
            for axis, panel in zip(axes, artefact.panels, strict=True):
                for line, colour in zip(panel.lines, colours(panel), strict=True):
                    _draw_training(axis, line, results, seeds, colour)
        title = f"{artefact.name} · {artefact.label}: {artefact.shows}"
        figure.suptitle(textwrap.fill(title, int(12 * width)), fontsize=9)
        wrapped = textwrap.fill(caption, int(CHARACTERS_AN_INCH * width))
        figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=CAPTION_SIZE, color="#444444")
    return figure


_QUANTITIES = {
    "test_loss": "test MSE on clean labels",
    "train_loss": "training loss, an epoch's mean ± std",
}


def _draw_tests(
    axes: Iterable[Axes], panels: Sequence[LinePanel], results: Mapping[Run, RunResult], seeds: int
) -> None:
    """Curves of all panels, then limits that suit them all, then labels within these."""
    drawn: list[tuple[Axes, list[tuple[Summary, Any]]]] = []
    for axis, panel in zip(axes, panels, strict=True):
        found = []
        for line, colour in zip(panel.lines, colours(panel), strict=True):
            own = summarise(line, results, seeds)
            if own is not None and own.curves.size:
                _draw_test(axis, own, colour)
                found.append((own, colour))
        drawn.append((axis, found))
    everything = [own for _, found in drawn for own, _ in found]
    if not everything:
        return
    for axis, found in drawn:
        axis.set_ylim(*limits(everything))
        _label_ends(axis, [(float(own.mean[-1]), own.line.label, c) for own, c in found])


def _draw_test(axis: Axes, own: Summary, colour: Any) -> None:
    # More points than a figure can show make large files and nothing else.
    shown = slice(None, None, max(1, len(own.samples) // POINTS))
    samples, mean, std = own.samples[shown] / 1e3, own.mean[shown], own.std[shown]
    axis.plot(samples, mean, color=colour, linewidth=1.2)
    axis.fill_between(samples, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)


def colours(panel: LinePanel) -> list[Any]:
    """By method; what a panel varies of one method, along a scale."""
    import matplotlib as mpl

    sizes = [line.run.batch_size for line in panel.lines]
    usual = Run.batch_size if Run.batch_size in sizes else sizes[0]
    own = [_method_colour(line.run, usual) for line in panel.lines]
    alike = [position for position, colour in enumerate(own) if own.count(colour) > 1]
    for position in alike:
        own[position] = mpl.colormaps["viridis"](0.9 * position / (len(own) - 1))
    return own


def _method_colour(run: Run, usual_batch: int) -> Any:
    """One colour for one method with one setting; None where something else is varied."""
    import matplotlib as mpl

    if run.noise == CLEAN:
        return TRUTH_COLOUR
    if run.noise.disturbance or run.batch_size != usual_batch:
        return None
    if run.loss.kind == "biv" and run.loss not in METHOD_COLOURS:
        return mpl.colormaps["viridis"](0.9 * _EPSILONS.index(run.loss.epsilon) / len(_EPSILONS))
    return METHOD_COLOURS[run.loss]


def limits(found: list[Summary]) -> tuple[float, float]:
    """From below the lowest to where curves are soon after their beginning, or end."""
    low = min(float(own.mean.min()) for own in found)
    high = max(float(np.quantile(own.mean, 0.9)) for own in found)
    middle = float(
        np.median([own.mean[min(len(own.mean) // 20, len(own.mean) - 1)] for own in found])
    )
    top = min(max(high, middle), 6 * low)
    return 0.9 * low, 1.05 * max(top, 1.1 * low) or 1.0


def _label_ends(axis: Axes, ends: list[tuple[float, str, Any]]) -> None:
    """Direct labels at the right end, moved apart where they would overlap."""
    bottom, top = axis.get_ylim()
    ends = sorted(ends, key=lambda end: end[0])
    heights = _apart([value for value, _, _ in ends], bottom, top, gap=(top - bottom) * 0.052)
    for (value, label, colour), height in zip(ends, heights, strict=True):
        axis.annotate(
            f"{label} ↑" if value > top else label,
            (1.0, min(value, top)),
            xycoords=axis.get_yaxis_transform(),
            xytext=(LABELS_AT, height),
            textcoords=axis.get_yaxis_transform(),
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "relpos": (0.0, 0.5),
                "shrinkA": 0,
                "shrinkB": 0,
            },
            color=colour,
            fontsize=7,
            va="center",
            annotation_clip=False,
        )


def _apart(values: Sequence[float], bottom: float, top: float, gap: float) -> list[float]:
    """Rising values, moved as little as it takes to be within the limits and apart."""
    heights: list[float] = []
    for value in values:
        heights.append(max(min(value, top), heights[-1] + gap if heights else bottom))
    ceiling = top
    for position in reversed(range(len(heights))):
        heights[position] = min(heights[position], ceiling)
        ceiling = heights[position] - gap
    return heights


def _draw_training(
    axis: Axes, line: Line, results: Mapping[Run, RunResult], seeds: int, colour: Any
) -> None:
    found = training_curve(line, results, seeds)
    if found is None:
        return
    samples, mean, spread = found[0] / 1e3, found[1], found[2]
    axis.plot(samples, mean, color=colour, linewidth=1.2)
    if not (mean > 0).any():
        return
    floor = float(mean[mean > 0].min()) / 3  # where a band that goes below 0 is cut off
    lower = np.maximum(mean - spread, floor / 10)
    axis.fill_between(samples, lower, mean + spread, color=colour, alpha=0.2, linewidth=0)
    axis.set_yscale("log")
    axis.set_ylim(bottom=floor)


def training_curve(
    line: Line, results: Mapping[Run, RunResult], seeds: int
) -> tuple[Any, Any, Any] | None:
    """Samples seen, the mean loss of each epoch, and the deviation within it, over the runs."""
    there = [results[run] for run in line.runs(seeds) if run in results]
    good = [result for result in there if not result.diverged]
    there = good or [result for result in there if result.diverged_at is None]
    if not there:
        return None
    mean = np.mean([result.train_loss for result in there], axis=0)
    spread = np.mean([result.train_loss_std for result in there], axis=0)
    run = line.run
    epoch = run.train_rows // run.batch_size * run.batch_size
    return np.arange(1, run.epochs + 1) * epoch, mean, spread


def caption(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> str:
    """What was run, in words."""
    runs = artefact.runs(seeds)
    there = [run for run in runs if run in results]
    diverged = sum(results[run].diverged for run in there)
    run = artefact.panels[0].lines[0].run
    sizes = sorted({each.batch_size for each in runs})
    batches = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    interval = run.test_every * run.batch_size
    tests = run.epochs * (run.train_rows // run.batch_size) // run.test_every
    words = [
        f"{artefact.label}: {artefact.shows}. {run.dataset}, {run.train_rows:,} training "
        f"{_rows(run)}; {run.epochs} epochs of the paper's network, batches of {batches}, "
        f"{run.optimizer.capitalize()} at {run.learning_rate:g}; seeds: {seeds}."
    ]
    if artefact.quantity == "test_loss":
        words.append(
            f"{run.test_rows:,} test rows with clean labels. Lines are means of test losses "
            f"smoothed over {smoothing(tests)} tests, one every {interval:,} samples; bands are "
            "one standard "
            "deviation."
        )
    else:
        words.append("Lines are means over an epoch, bands the standard deviation within it.")
    if artefact.terms:
        words.append(artefact.terms)
    if artefact.label in ONLY_FACES and run.dataset.startswith("bike"):
        words.append("The paper shows this on faces.")
    if len(there) < len(runs):
        words.append(f"{len(runs) - len(there)} of {len(runs)} runs are missing.")
    if diverged:
        left_out = f"{diverged} of {len(there)} runs diverged and are left out"
        words.append(f"{left_out}{_but(artefact, results, seeds)}.")
    if run.dataset == "bike2011":
        words.append("The paper has the whole of Bike Sharing, of which this is the first year.")
    if run.pixels is None and run.epochs < PRESETS["paper"].epochs:
        words.append(f"The paper trains for {PRESETS['paper'].epochs} epochs.")
    if run.pixels is not None and run.train_rows < FACES["paper"].train_rows:
        words.append(
            f"The paper has {FACES['paper'].train_rows:,} images of 200×200, batches of 256 and "
            f"{FACES['paper'].epochs} epochs."
        )
    return " ".join(words)


def _but(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> str:
    """Where diverged runs are shown after all, for want of others."""
    lines = (line for panel in artefact.panels for line in panel.lines)
    owns = [own for line in lines if (own := summarise(line, results, seeds))]
    overfitted = any(own.diverged == len(own.seeds) and len(own.curves) for own in owns)
    return ", but where all runs of a line end above 1" if overfitted else ""


def _rows(run: Run) -> str:
    if run.pixels is None:
        return "rows, noise of mean variance μ = 0.608 × the label variance"
    return f"images of {run.pixels}×{run.pixels}, noise of mean variance μ = 2,000 years²"


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """As SVG and PNG."""
    paths = [folder / f"{name}.{form}" for form in FORMATS]
    for path in paths:
        save_figure(figure, path)
    return paths
