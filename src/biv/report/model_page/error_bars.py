"""What the error bars look like: their sizes, where they are large, and who holds the weight."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from biv.report import conclusions
from biv.report.charts import BLUE, GREEN, GREY, ORANGE, Chart, Mark, Panel, Series
from biv.report.parts import Bullets, Cell, PagePart, Section, Table, Text, clean
from biv.workflows.evidence import TableEvidence
from biv.workflows.evidence_parts import ErrorBarSummary

COLOURS = {
    "labels": BLUE,
    "all alike": GREY,
    "1/σ²": ORANGE,
    "1/(σ²+ε)": GREEN,
    "1/(σ²+τ²)": GREEN,
}


def sections(evidence: TableEvidence) -> list[Section]:
    """Return the section; none without error bars."""
    bars = evidence.bars
    if bars is None:
        return []
    words = [
        f"σ² beside the label variance ({evidence.label_variance:.4g}), which is what there is to "
        "learn: a label whose σ² is as large says half as much as a clean one could."
    ]
    if bars.zeros:
        words.append(f"{bars.zeros:,} error bars are 0, and not in the histogram.")
    whose = _whose(evidence, bars)
    parts: list[PagePart | Chart] = [
        Text(" ".join(words), "lead"),
        _chart(evidence, bars, whose),
        _table(bars, whose, evidence.label_variance),
    ]
    if evidence.finding is not None:
        parts.append(Text(f"Finding: {evidence.finding.text}."))
    remarks = [remark for remark in evidence.remarks if remark.kind != "far off"]
    items = [
        sentence + (f" ({clean(rows, 300)})" if rows else "")
        for sentence, rows in conclusions.remarks_in_words(remarks)
    ]
    if items:
        parts += [Text("To look at:"), Bullets(items)]
    return [Section("error-bars", "What the error bars look like", parts)]


def _whose(evidence: TableEvidence, bars: ErrorBarSummary) -> str:
    """Return whose error bars are shown."""
    words = f"{bars.count:,} labels"
    if evidence.looked_at < evidence.rows:
        words += f" that were held out, of {evidence.rows:,}"
    elif bars.count < evidence.rows:
        words += f" that have one, of {evidence.rows:,}"
    return words


def _table(bars: ErrorBarSummary, whose: str, label_variance: float) -> Table:
    names = {"0": "lowest", "0.5": "median", "1": "highest"}
    return Table(
        "error-bars",
        f"σ² of {whose}",
        ["labels", "σ²", "σ", "σ² in units of the label variance"],
        [
            [
                Cell(names.get(q, f"{float(q):.0%} below"), float(q)),
                Cell(f"{value:.4g}", float(value)),
                Cell(f"{math.sqrt(value):.4g}", math.sqrt(value)),
                Cell(f"{value / label_variance:.3g}", value / label_variance),
            ]
            for q, value in bars.quantiles.items()
        ],
        numbers=(1, 2, 3),
    )


def _chart(evidence: TableEvidence, bars: ErrorBarSummary, whose: str) -> Chart:
    cloud = evidence.cloud
    used = [k for k, sigma in enumerate(cloud.sigma) if sigma > 0]
    panels = [
        _histogram(evidence, bars),
        _by_label(clean(evidence.target), [cloud.y[k] for k in used],
                  [cloud.sigma[k] for k in used]),
        _weights(bars),
    ]  # fmt: skip
    shown = {series.name for panel in panels for series in panel.series}
    return Chart(
        "error-bars-chart",
        f"The histogram and the weights are of {whose}; the cloud shows {len(used):,} of them.",
        panels,
        {name: colour for name, colour in COLOURS.items() if name in shown},
    )


def _histogram(evidence: TableEvidence, bars: ErrorBarSummary) -> Panel:
    edges, counts = np.array(bars.edges), bars.histogram
    middles = np.sqrt(edges[1:] * edges[:-1]) if bars.log else (edges[1:] + edges[:-1]) / 2
    marks = [Mark(1.0, "label variance")]
    if evidence.epsilon:
        marks.append(Mark(evidence.epsilon / evidence.label_variance, "ε"))
    x, y = _steps(edges, counts)
    return Panel(
        "How large is σ²?",
        "σ² in units of the label variance",
        "labels",
        # A histogram as steps: bars of a logarithmic axis have no width of their own.
        [Series("labels", x, y, low=[0] * len(y), high=y)],
        f"Half of the labels have a σ² below {bars.median:.4g}, from {bars.quantiles['0']:.4g} to "
        f"{bars.quantiles['1']:.4g}; most lie near {middles[int(np.argmax(counts))]:.3g} of the "
        "label variance.",
        log="x" if bars.log else "",
        marks=[mark for mark in marks if edges[0] <= mark.at <= edges[-1] and mark.at > 0],
    )


def _steps(edges: Any, counts: Sequence[float]) -> tuple[list[float], list[float]]:
    x = np.repeat(np.maximum(edges, edges[edges > 0].min() / 10), 2)[1:-1]
    return x.tolist(), np.repeat(counts, 2).tolist()


def _by_label(name: str, y: Sequence[float], sigma: Sequence[float]) -> Panel:
    return Panel(
        "Do they go with the label?",
        name,
        "σ",
        [Series("labels", y, sigma, "dots")],
        f"σ of {len(y):,} labels against the label.",
        log="y" if sigma and max(sigma) > 10 * min(sigma) else "",
    )


def _weights(bars: ErrorBarSummary) -> Panel:
    sizes = bars.effective_sample_size
    return Panel(
        "Which labels hold the weight?",
        "share of the labels, the best first",
        "share of the weight",
        [
            Series(name, bars.weight_shares.labels, share)
            for name, share in bars.weight_shares.curves().items()
        ],
        f"Effective sample sizes: weights 1/σ²: {sizes.plain:,.0f}; weights 1/(σ²+τ²): "
        f"{sizes.with_tau2:,.0f}, of {bars.count:,} labels.",
    )
