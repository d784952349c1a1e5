"""What weighting bought: the methods that were compared, or how to compare them."""

from __future__ import annotations

import shlex

import numpy as np

from biv.report import conclusions
from biv.report.charts import BLUE, GREY, PINK, Chart, Colour, Mark, Panel, Series, Z
from biv.report.parts import (
    Bullets,
    Cell,
    Commands,
    Figure,
    Figures,
    PagePart,
    Section,
    Table,
    Text,
)
from biv.workflows import ModelFolder
from biv.workflows.comparison_record import ComparisonRecord, Effect, MethodRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.methods import BIV, SHUFFLED

HEADING = "What weighting bought"
OFF_SCALE = 12.0  # a method this many times the median above the best is named, not drawn


def sections(
    evidence: TableEvidence, compared: ComparisonRecord | None, command: str
) -> list[Section]:
    """Return the section; none without error bars.

    Args:
        evidence: Of the table.
        compared: Comparison, if one was made.
        command: Command that would make one.
    """
    if evidence.bars is None:
        return []
    if compared is None:
        return [Section("bought", HEADING, _how_to_compare(evidence, command))]
    parts: list[PagePart | Chart] = [_figures(compared), methods_chart(compared), _table(compared)]
    failed = [f"{name} has no answer here: {reason}" for name, reason in compared.failed.items()]
    if failed:
        parts.append(Bullets(failed))
    return [Section("bought", HEADING, parts)]


def command_for(folder: ModelFolder) -> str:
    """Return the command that would compare methods on the columns of a model."""
    target = folder.target
    words = ["biv", "compare", *folder.about.files, "--target", target.name]
    if target.interval is not None:
        words += ["--target-interval", *target.interval, "--level", f"{target.level:g}"]
    elif target.error_bars:
        words += ["--target-std" if target.std else "--target-var", target.error_bars[0]]
    if target.weight is not None:
        words += ["--weight", target.weight]
    return shlex.join([*words, "--features", *folder.schema.names, "--json"])


def _how_to_compare(evidence: TableEvidence, command: str) -> list[PagePart | Chart]:
    worth = None if evidence.bars is None else evidence.bars.worth
    expected = ""
    if worth is not None and conclusions.can_expect_gain(evidence.finding):
        expected = (
            "By the error bars alone, weights 1/(σ²+τ²) should lower the variance of what is "
            f"learned by {1 - 1 / worth:.0%}. "
        )
    words = (
        f"{expected}Whether they do is measured by cross-validation, beside methods that make no "
        "use of them and beside the same error bars on the wrong rows; then this section has the "
        "result:"
    )
    commands = [
        f"{command} > comparison.json",
        "biv report MODEL --comparison comparison.json -o report.html --force",
    ]
    return [Text(words), Commands(commands)]


def _figures(compared: ComparisonRecord) -> Figures:
    gain, control, alike = compared.gain, compared.control, compared.gain_all_labels_alike
    figures = [
        Figure("BIV beside L2", _effect(gain), _range(gain)),
        Figure("BIV beside shuffled error bars", _effect(control), _range(control)),
    ]
    if alike is not None:
        note = f"{_range(alike)}, of the label variance"
        figures.append(Figure("BIV beside L2, if all labels count alike", _effect(alike), note))
    return Figures(figures)


def _effect(effect: Effect) -> str:
    return f"{abs(effect.value):.1%} {'lower' if effect.value >= 0 else 'higher'}"


def _range(effect: Effect) -> str:
    return f"95%: {-effect.high:+.1%} to {-effect.low:+.1%}"


def _table(compared: ComparisonRecord) -> Table:
    scale = compared.label_variance
    return Table(
        "methods",
        f"{compared.rows:,} of {compared.rows_in_all:,} rows, {compared.folds} folds; errors in "
        "units of the label variance, the lowest first; ± is a standard error, of differences that "
        "are paired",
        ["method", "error", "± error", "above the best", "± above", "shown to be worse?", "seconds",
         "chosen"],
        [
            [
                Cell(m.method, tone="best" if k == 0 else ""),
                Cell(f"{m.mse / scale:.4f}", m.mse / scale),
                Cell(f"{m.mse_stderr / scale:.4f}", m.mse_stderr / scale),
                Cell(f"{m.above_best / scale:+.4f}", m.above_best / scale),
                Cell(f"{m.above_best_stderr / scale:.4f}", m.above_best_stderr / scale),
                "yes" if m.is_worse else "no",
                Cell(f"{m.seconds:.0f}", float(m.seconds)),
                m.chosen,
            ]
            for k, m in enumerate(compared.methods)
        ],
        numbers=(1, 2, 3, 4, 6),
    )  # fmt: skip


def methods_chart(compared: ComparisonRecord) -> Chart:
    """Return the chart of the paired differences to the best method."""
    scale, methods = compared.label_variance, compared.methods
    above = [m.above_best / scale for m in methods]
    # A method that is lost would squeeze all others, which are close, into one dot.
    most = max(OFF_SCALE * float(np.median(above)), 1e-12)
    beyond = [m.method for m, a in zip(methods, above, strict=True) if a > most]
    kinds: dict[str, Colour] = {"BIV": BLUE, "shuffled error bars": PINK, "others": GREY}
    said = "; ".join(
        f"{m.method} {m.mse / scale:.4f}, {a:+.4f}" for m, a in zip(methods, above, strict=True)
    )
    panel = Panel(
        "",
        "error above the best / label variance",
        "",
        [_series(kind, methods, scale) for kind in kinds],
        f"Errors, the lowest first, and what they are above the best: {said}.",
        rows=[m.method for m in methods],
        x_range=(-0.15 * most, most) if beyond else None,
        marks=[Mark(0.0, "the best")],
    )
    caption = (
        "How much higher the mean squared error to the true labels is than that of the best, on "
        "the same rows left out, with 95% intervals of the paired difference."
    )
    if beyond:
        caption += f" Beyond the axis: {', '.join(beyond)}."
    return Chart("methods-chart", caption, [panel], kinds)


def _series(kind: str, methods: list[MethodRecord], scale: float) -> Series:
    names = {BIV: "BIV", SHUFFLED: "shuffled error bars"}
    shown = [m for m in methods if names.get(m.method, "others") == kind]
    values = [m.above_best / scale for m in shown]
    half = [Z * m.above_best_stderr / scale for m in shown]
    return Series(
        kind,
        values,
        [m.method for m in shown],
        "dots",
        low=[v - h for v, h in zip(values, half, strict=True)],
        high=[v + h for v, h in zip(values, half, strict=True)],
        sideways=True,
    )
