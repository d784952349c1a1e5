"""The gain from weighting: the result of a comparison of methods, or how to compare them."""

from __future__ import annotations

import shlex

import numpy as np

from biv.report import conclusions
from biv.report.charts import BLUE, GREY, PINK, Chart, Colour, Mark, Panel, Series, Z
from biv.report.parts import (
    Bullets,
    Cell,
    Commands,
    KeyNumber,
    KeyNumbers,
    PagePart,
    Section,
    Table,
    Text,
)
from biv.workflows import ModelFolder
from biv.workflows.comparison_record import ComparisonRecord, Effect, MethodRecord
from biv.workflows.evidence import TableEvidence
from biv.workflows.methods import BIV, SHUFFLED

HEADING = "Gain from weighting"
OFF_SCALE = 12.0  # differences above this many times their median are not drawn but listed


def sections(
    evidence: TableEvidence, compared: ComparisonRecord | None, command: str
) -> list[Section]:
    """Return the section, or no section if the table has no error bars.

    Parameters
    ----------
    evidence : TableEvidence
        Statistics of the table.
    compared : ComparisonRecord or None
        Comparison of methods, if there is one.
    command : str
        Command that would compare the methods.
    """
    if evidence.bars is None:
        return []
    if compared is None:
        return [Section("gain", HEADING, _how_to_compare(evidence, command))]
    parts: list[PagePart | Chart] = [_figures(compared), methods_chart(compared), _table(compared)]
    failed = [f"{name} gave no result: {reason}" for name, reason in compared.failed.items()]
    if failed:
        parts.append(Bullets(failed))
    return [Section("gain", HEADING, parts)]


def command_for(folder: ModelFolder) -> str:
    """Return the command that compares methods on the columns of a model."""
    target = folder.target
    arguments = ["biv", "compare", *folder.about.files, "--target", target.name]
    if target.interval is not None:
        arguments += ["--target-interval", *target.interval, "--level", f"{target.level:g}"]
    elif target.error_bars:
        arguments += ["--target-std" if target.std else "--target-var", target.error_bars[0]]
    if target.weight is not None:
        arguments += ["--weight", target.weight]
    return shlex.join([*arguments, "--features", *folder.schema.names, "--json"])


def _how_to_compare(evidence: TableEvidence, command: str) -> list[PagePart | Chart]:
    worth = None if evidence.bars is None else evidence.bars.worth
    expectation = ""
    if worth is not None and conclusions.can_expect_gain(evidence.finding):
        expectation = (
            "If the error bars are right, the weights 1/(σ²+τ²) lower the variance that label "
            f"noise causes in the model by {1 - 1 / worth:.0%}. "
        )
    text = (
        f"{expectation}Cross-validation measures the actual gain. It compares BIV with methods "
        "that ignore the error bars, and with BIV on error bars that are assigned to the wrong "
        "rows. These commands run it and show its result in this section:"
    )
    commands = [
        f"{command} > comparison.json",
        "biv report MODEL --comparison comparison.json -o report.html --force",
    ]
    return [Text(text), Commands(commands)]


def _figures(compared: ComparisonRecord) -> KeyNumbers:
    gain, control, alike = compared.gain, compared.control, compared.gain_all_labels_alike
    figures = [
        KeyNumber("error of BIV compared with L2", _effect(gain), _range(gain)),
        KeyNumber(
            "error of BIV compared with shuffled error bars", _effect(control), _range(control)
        ),
    ]
    if alike is not None:
        note = f"{_range(alike)}, in units of the label variance"
        figures.append(
            KeyNumber("error of BIV compared with L2, unweighted score", _effect(alike), note)
        )
    return KeyNumbers(figures)


def _effect(effect: Effect) -> str:
    return f"{abs(effect.value):.1%} {'lower' if effect.value >= 0 else 'higher'}"


def _range(effect: Effect) -> str:
    return f"95% interval: {-effect.high:+.1%} to {-effect.low:+.1%}"


def _table(compared: ComparisonRecord) -> Table:
    scale = compared.label_variance
    return Table(
        "methods",
        "Mean squared errors to the true labels, in units of the label variance, the best method "
        "first. ± is a standard error; differences are paired. Based on "
        f"{compared.rows:,} of {compared.rows_in_all:,} rows and {compared.folds} folds.",
        ["method", "error", "± error", "difference to best", "± difference",
         "significantly worse?", "seconds", "chosen settings"],
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
    # One very bad method would compress the differences between all others into one dot.
    most = max(OFF_SCALE * float(np.median(above)), 1e-12)
    beyond = [m.method for m, a in zip(methods, above, strict=True) if a > most]
    kinds: dict[str, Colour] = {"BIV": BLUE, "shuffled error bars": PINK, "others": GREY}
    values = "; ".join(
        f"{m.method} {m.mse / scale:.4f}, {a:+.4f}" for m, a in zip(methods, above, strict=True)
    )
    panel = Panel(
        "",
        "error above the best method / label variance",
        "",
        [_series(kind, methods, scale) for kind in kinds],
        f"Error of each method, best first, and its difference to the best method: {values}.",
        rows=[m.method for m in methods],
        x_range=(-0.15 * most, most) if beyond else None,
        marks=[Mark(0.0, "best method")],
    )
    caption = (
        "Mean squared error to the true labels, minus that of the best method on the same held-out "
        "rows. Bars are 95% intervals of the paired difference."
    )
    if beyond:
        caption += f" Beyond the end of the axis: {', '.join(beyond)}."
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
