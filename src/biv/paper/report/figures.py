"""Draw the paper's figures: mean smoothed curves with bands of one standard deviation."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from biv.paper.artefacts import EPSILONS, LARGE_EPSILONS
from biv.paper.grid import BIV, CLEAN, EPSILON, IV, L2, Artefact, Line, LinePanel, cutoff
from biv.paper.presets import FACES, PRESETS
from biv.paper.report.claims import seeds_text
from biv.paper.results import RunResult
from biv.paper.spec import Loss, Run
from biv.paper.summary import Summary, summarise
from biv.report.matplotlib_figures import STYLE, save_figure
from biv.training.history import smoothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Each method has one colour in all figures. The colours are Okabe and Ito's, which colour-blind
# readers can distinguish, and some of Tol's.
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
# Figures that the paper shows for UTKFace only.
ONLY_FACES = (
    "L2Var", "BU_BIV_CO", "epsilonUTKF", "epsilonBinary", "GammaHigh", "GammaUTKFLowAlpha",
)  # fmt: skip
POINTS = 120  # minimum number of points of a curve that is thinned
CAPTION_SIZE, CHARACTERS_PER_INCH = 6, 19
LABELS_AT = 1.06  # position of the labels, in widths of the axes from their left edge


def draw(
    artefact: Artefact, results: Mapping[Run, RunResult], seeds: int, caption: str = ""
) -> Figure:
    """Draw the panels of an artefact above its caption; lines without runs are omitted."""
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
        title = f"{artefact.name} · {artefact.label}: {artefact.title}"
        figure.suptitle(textwrap.fill(title, int(12 * width)), fontsize=9)
        wrapped = textwrap.fill(caption, int(CHARACTERS_PER_INCH * width))
        figure.supxlabel(wrapped, x=0.01, ha="left", fontsize=CAPTION_SIZE, color="#444444")
    return figure


_QUANTITIES = {
    "test_loss": "test MSE on clean labels",
    "train_loss": "training loss per epoch, mean ± std",
}


def _draw_tests(
    axes: Iterable[Axes], panels: Sequence[LinePanel], results: Mapping[Run, RunResult], seeds: int
) -> None:
    """Draw the curves of all panels, then set common limits, then place the labels within them."""
    drawn: list[tuple[Axes, list[tuple[Summary, Any]]]] = []
    for axis, panel in zip(axes, panels, strict=True):
        curves = []
        for line, colour in zip(panel.lines, colours(panel), strict=True):
            summary = summarise(line, results, seeds)
            if summary is not None and summary.curves.size:
                _draw_test(axis, summary, colour)
                curves.append((summary, colour))
        drawn.append((axis, curves))
    everything = [summary for _, curves in drawn for summary, _ in curves]
    if not everything:
        return
    for axis, curves in drawn:
        axis.set_ylim(*limits(everything))
        _label_ends(axis, [(float(s.mean[-1]), s.line.label, colour) for s, colour in curves])


def _draw_test(axis: Axes, summary: Summary, colour: Any) -> None:
    # More points than a figure can show only make the file larger.
    shown = slice(None, None, max(1, len(summary.samples) // POINTS))
    samples, mean, std = summary.samples[shown] / 1e3, summary.mean[shown], summary.std[shown]
    axis.plot(samples, mean, color=colour, linewidth=1.2)
    axis.fill_between(samples, mean - std, mean + std, color=colour, alpha=0.15, linewidth=0)


def colours(panel: LinePanel) -> list[Any]:
    """Return one colour per line: that of its method, or one of a scale if a method has several."""
    import matplotlib as mpl

    sizes = [line.run.batch_size for line in panel.lines]
    usual = Run.batch_size if Run.batch_size in sizes else sizes[0]
    chosen = [_method_colour(line.run, usual) for line in panel.lines]
    repeated = [position for position, colour in enumerate(chosen) if chosen.count(colour) > 1]
    for position in repeated:
        chosen[position] = mpl.colormaps["viridis"](0.9 * position / (len(chosen) - 1))
    return chosen


def _method_colour(run: Run, usual_batch: int) -> Any:
    """Return the colour of a method and its setting; None if the figure varies something else."""
    import matplotlib as mpl

    if run.noise == CLEAN:
        return TRUTH_COLOUR
    if run.noise.disturbance or run.batch_size != usual_batch:
        return None
    if run.loss.kind == "biv" and run.loss not in METHOD_COLOURS:
        return mpl.colormaps["viridis"](0.9 * _EPSILONS.index(run.loss.epsilon) / len(_EPSILONS))
    return METHOD_COLOURS[run.loss]


def limits(summaries: list[Summary]) -> tuple[float, float]:
    """Return the vertical limits that show all curves, except for their steep beginning."""
    low = min(float(summary.mean.min()) for summary in summaries)
    high = max(float(np.quantile(summary.mean, 0.9)) for summary in summaries)
    early = [
        summary.mean[min(len(summary.mean) // 20, len(summary.mean) - 1)] for summary in summaries
    ]
    middle = float(np.median(early))
    top = min(max(high, middle), 6 * low)
    return 0.9 * low, 1.05 * max(top, 1.1 * low) or 1.0


def _label_ends(axis: Axes, ends: list[tuple[float, str, Any]]) -> None:
    """Label the curves at their right end; labels that would overlap are moved apart."""
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
    """Move sorted values as little as needed to be within the limits and at least `gap` apart."""
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
    curve = training_curve(line, results, seeds)
    if curve is None:
        return
    samples, mean, spread = curve[0] / 1e3, curve[1], curve[2]
    axis.plot(samples, mean, color=colour, linewidth=1.2)
    if not (mean > 0).any():
        return
    floor = float(mean[mean > 0].min()) / 3  # a logarithmic axis cannot show a band below 0
    lower = np.maximum(mean - spread, floor / 10)
    axis.fill_between(samples, lower, mean + spread, color=colour, alpha=0.2, linewidth=0)
    axis.set_yscale("log")
    axis.set_ylim(bottom=floor)


def training_curve(
    line: Line, results: Mapping[Run, RunResult], seeds: int
) -> tuple[Any, Any, Any] | None:
    """Return the samples seen, mean loss and standard deviation per epoch, averaged over runs."""
    available = [results[run] for run in line.runs(seeds) if run in results]
    shown = [result for result in available if not result.diverged]
    shown = shown or [result for result in available if result.diverged_at is None]
    if not shown:
        return None
    mean = np.mean([result.train_loss for result in shown], axis=0)
    spread = np.mean([result.train_loss_std for result in shown], axis=0)
    run = line.run
    epoch = run.train_rows // run.batch_size * run.batch_size
    return np.arange(1, run.epochs + 1) * epoch, mean, spread


def caption(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> str:
    """Return the caption: the data, the noise, the training, and what the curves show."""
    runs = artefact.runs(seeds)
    available = [run for run in runs if run in results]
    diverged = sum(results[run].diverged for run in available)
    run = artefact.panels[0].lines[0].run
    sizes = sorted({each.batch_size for each in runs})
    batches = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    interval = run.test_every * run.batch_size
    evaluations = run.epochs * (run.train_rows // run.batch_size) // run.test_every
    unit, noise = _data_text(run)
    tested = artefact.quantity == "test_loss"
    test_text = f" and {run.test_rows:,} test {unit} with clean labels" if tested else ""
    sentences = [
        f"{artefact.label}: {artefact.title}.",
        f"Data: {run.dataset}, {run.train_rows:,} training {unit}{test_text}.",
        f"Noise: {noise}.",
        f"Training: the paper's network, {run.epochs} epochs, batch size {batches}, "
        f"{run.optimizer.capitalize()} with learning rate {run.learning_rate:g}, "
        f"{seeds_text(seeds)}.",
    ]
    if tested:
        sentences.append(
            f"Lines are mean test losses, smoothed over {smoothing(evaluations)} evaluations, with "
            f"one evaluation every {interval:,} samples. Bands are one standard deviation."
        )
    else:
        sentences.append(
            "Lines are mean training losses per epoch. Bands are one standard deviation within the "
            "epoch."
        )
    if artefact.terms:
        sentences.append(artefact.terms)
    if artefact.label in ONLY_FACES and run.dataset.startswith("bike"):
        sentences.append("The paper shows this figure for faces.")
    if len(available) < len(runs):
        sentences.append(f"{len(runs) - len(available)} of {len(runs)} runs are missing.")
    if diverged:
        omitted = f"{diverged} of {len(available)} runs diverged and are omitted"
        sentences.append(f"{omitted}{_exception(artefact, results, seeds)}.")
    if run.dataset == "bike2011":
        sentences.append("The paper uses all of Bike Sharing; these data are its first year.")
    if run.pixels is None and run.epochs < PRESETS["paper"].epochs:
        sentences.append(f"The paper trains for {PRESETS['paper'].epochs} epochs.")
    if run.pixels is not None and run.train_rows < FACES["paper"].train_rows:
        sentences.append(
            f"The paper uses {FACES['paper'].train_rows:,} images of 200×200, batch size 256 and "
            f"{FACES['paper'].epochs} epochs."
        )
    return " ".join(sentences)


def _exception(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> str:
    """Return the end of the sentence on diverged runs, if a line shows them for lack of others."""
    lines = (line for panel in artefact.panels for line in panel.lines)
    summaries = [summary for line in lines if (summary := summarise(line, results, seeds))]
    overfitted = any(s.diverged == len(s.seeds) and len(s.curves) for s in summaries)
    if not overfitted:
        return ""
    return "; a line whose runs all diverged shows those that stayed finite"


def _data_text(run: Run) -> tuple[str, str]:
    """Return the kind of rows and the noise of a run as text."""
    if run.pixels is None:
        return "rows", "mean variance μ = 0.608 × the label variance"
    return f"images of {run.pixels}×{run.pixels}", "mean variance μ = 2,000 years²"


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Save a figure as SVG and PNG, and return the paths."""
    paths = [folder / f"{name}.{form}" for form in FORMATS]
    for path in paths:
        save_figure(figure, path)
    return paths
