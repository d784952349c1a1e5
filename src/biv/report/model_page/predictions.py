"""Predictions compared with labels, and the calibration of the intervals."""

from __future__ import annotations

import numpy as np

from biv.report.charts import BLUE, GREEN, GREY, PINK, Chart, Panel, Series
from biv.report.conclusions import UNSEEN
from biv.report.parts import Cell, Section, Table, clean
from biv.workflows.evidence import TableEvidence
from biv.workflows.evidence_parts import IntervalCoverage

BARS_SHOWN = 300  # largest number of labels that are drawn with their error bars


def section(evidence: TableEvidence) -> Section:
    """Return the section."""
    noisy, count = evidence.bars is not None, len(evidence.cloud.y)
    bars_shown = min(count, BARS_SHOWN)
    caption = (
        f"Left: {count:,} of {evidence.judged:,} rows"
        + (f", {bars_shown:,} of them with their error bars." if noisy else ".")
        + " Right: the fraction of labels that lie in intervals around these predictions. The "
        "width of an interval follows from the uncertainty of the model"
        + (" and the σ² of the label" if noisy else "")
        + ". On the diagonal, the intervals are right; above it, they are too wide. The variance "
        "of the model is the members' spread plus τ²; for one network, it is τ² alone."
    )
    colours = {"labels": BLUE} | ({"error bars, σ": PINK} if noisy else {})
    chart = Chart(
        "predictions-chart",
        caption,
        [_cloud(evidence, bars_shown if noisy else 0), _calibration(evidence.coverage)],
        colours | {"observed": GREEN, "diagonal": GREY},
    )
    return Section("predictions", "Predictions and labels", [chart, _table(evidence.coverage)])


def _cloud(evidence: TableEvidence, bars_shown: int) -> Panel:
    cloud = evidence.cloud
    y, sigma, predicted = map(np.array, (cloud.y, cloud.sigma, cloud.predicted))
    ends = [float(predicted.min()), float(predicted.max())]
    series = [Series("labels", predicted, y, "dots")]
    if bars_shown:
        few = np.linspace(0, len(y) - 1, bars_shown).round().astype(int)
        low, high = y[few] - sigma[few], y[few] + sigma[few]
        bars = Series("error bars, σ", predicted[few], y[few], "dots", low, high, bare=True)
        series.insert(0, bars)
    return Panel(
        "Labels by prediction",
        "prediction",
        clean(evidence.target),
        [*series, Series("diagonal", ends, ends)],
        f"Labels against predictions, for {len(y):,} {UNSEEN}.",
    )


def _calibration(covered: IntervalCoverage) -> Panel:
    return Panel(
        "Calibration of the intervals",
        "level of the interval",
        "fraction of labels inside",
        [Series("observed", covered.level, covered.observed), Series("diagonal", [0, 1], [0, 1])],
        f"68% intervals contain {covered.at(0.68):.0%} of the labels, and 95% intervals "
        f"{covered.at(0.95):.0%}.",
    )


def _table(covered: IntervalCoverage) -> Table:
    return Table(
        "calibration",
        "Calibration of the intervals",
        ["level", "fraction of labels inside"],
        [
            [Cell(f"{level:.0%}", level), Cell(f"{observed:.1%}", observed)]
            for level, observed in zip(covered.level, covered.observed, strict=True)
        ],
        folded=True,
        numbers=(1,),
    )
