"""Predictions beside labels, and the calibration of the intervals."""

from __future__ import annotations

import numpy as np

from biv.report.charts import BLUE, GREEN, GREY, PINK, Chart, Panel, Series
from biv.report.conclusions import UNSEEN
from biv.report.parts import Cell, Section, Table, clean
from biv.workflows.evidence import TableEvidence
from biv.workflows.evidence_parts import IntervalCoverage

BARS_SHOWN = 300  # labels that are drawn with their error bars


def section(evidence: TableEvidence) -> Section:
    """Return the section."""
    noisy, count = evidence.bars is not None, len(evidence.cloud.y)
    bars_shown = min(count, BARS_SHOWN)
    caption = (
        f"{count:,} of {evidence.judged:,} rows"
        + (f", {bars_shown:,} of them with their error bars." if noisy else ".")
        + " To the right: of intervals about these predictions, as wide as the model says"
        + (" and the label's own σ² makes them" if noisy else "")
        + ", how many hold the label. On the line they are right; above it, wider than they "
        "need be. (Widths are those of the whole ensemble, or τ.)"
    )
    colours = {"labels": BLUE} | ({"error bars, σ": PINK} if noisy else {})
    chart = Chart(
        "predictions-chart",
        caption,
        [_cloud(evidence, bars_shown if noisy else 0), _calibration(evidence.coverage)],
        colours | {"found": GREEN, "equal": GREY},
    )
    return Section("predictions", "Predictions beside labels", [chart, _table(evidence.coverage)])


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
        "Predictions and labels",
        "prediction",
        clean(evidence.target),
        [*series, Series("equal", ends, ends)],
        f"Labels against predictions of {len(y):,} {UNSEEN}.",
    )


def _calibration(covered: IntervalCoverage) -> Panel:
    return Panel(
        "Calibration of the intervals",
        "level of the interval",
        "share of the labels in it",
        [Series("found", covered.level, covered.found), Series("equal", [0, 1], [0, 1])],
        f"68% intervals hold {covered.at(0.68):.0%} of the labels, 95% intervals "
        f"{covered.at(0.95):.0%}.",
    )


def _table(covered: IntervalCoverage) -> Table:
    return Table(
        "calibration",
        "Calibration of the intervals",
        ["level", "share of the labels in it"],
        [
            [Cell(f"{level:.0%}", level), Cell(f"{found:.1%}", found)]
            for level, found in zip(covered.level, covered.found, strict=True)
        ],
        folded=True,
        numbers=(1,),
    )
