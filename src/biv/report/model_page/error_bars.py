"""The error bars: their sizes, their relation to the label, and how the weight is distributed."""

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
    "unweighted": GREY,
    "1/σ²": ORANGE,
    "1/(σ²+ε)": GREEN,
    "1/(σ²+τ²)": GREEN,
}


def sections(evidence: TableEvidence) -> list[Section]:
    """Return the section, or no section if the table has no error bars."""
    bars = evidence.bars
    if bars is None:
        return []
    sentences = [
        f"The label variance, without noise, is {evidence.label_variance:.4g}. If the σ² of a "
        "label is as large as this, half of the label's variance is noise."
    ]
    if bars.zeros:
        subject = "1 error bar is" if bars.zeros == 1 else f"{bars.zeros:,} error bars are"
        sentences.append(f"{subject} 0 and not shown in the histogram.")
    shown = _shown_labels(evidence, bars)
    parts: list[PagePart | Chart] = [
        Text(" ".join(sentences), "lead"),
        _chart(evidence, bars, shown),
        _table(bars, shown, evidence.label_variance),
    ]
    about, reasons, advice = conclusions.parts_of_finding(evidence.finding)
    finding = " ".join(sentence for sentence in (about, *reasons, *advice) if sentence)
    if finding:
        parts.append(Text(finding))
    remarks = [remark for remark in evidence.remarks if remark.kind != "far off"]
    items = [
        sentence + (f" ({clean(rows, 300)})" if rows else "")
        for sentence, rows in conclusions.remarks_in_words(remarks)
    ]
    if items:
        parts += [Text("Check the following:"), Bullets(items)]
    return [Section("error-bars", "Error bars", parts)]


def _shown_labels(evidence: TableEvidence, bars: ErrorBarSummary) -> str:
    """Return a description of the labels whose error bars are shown."""
    if evidence.rows_summarised < evidence.rows:
        return f"{bars.count:,} held-out labels (of {evidence.rows:,} labels)"
    if bars.count < evidence.rows:
        return f"{bars.count:,} labels that have an error bar (of {evidence.rows:,} labels)"
    return f"{bars.count:,} labels"


def _table(bars: ErrorBarSummary, shown: str, label_variance: float) -> Table:
    names = {"0": "smallest", "0.5": "median", "1": "largest"}
    return Table(
        "error-bars",
        f"σ² of {shown}",
        ["quantile", "σ²", "σ", "σ² in units of the label variance"],
        [
            [
                Cell(names.get(q, f"{float(q):.0%} quantile"), float(q)),
                Cell(f"{value:.4g}", float(value)),
                Cell(f"{math.sqrt(value):.4g}", math.sqrt(value)),
                Cell(f"{value / label_variance:.3g}", value / label_variance),
            ]
            for q, value in bars.quantiles.items()
        ],
        numbers=(1, 2, 3),
    )


def _chart(evidence: TableEvidence, bars: ErrorBarSummary, shown: str) -> Chart:
    cloud = evidence.cloud
    used = [k for k, sigma in enumerate(cloud.sigma) if sigma > 0]
    panels = [
        _histogram(evidence, bars),
        _by_label(clean(evidence.target), [cloud.y[k] for k in used],
                  [cloud.sigma[k] for k in used]),
        _weights(bars),
    ]  # fmt: skip
    names = {series.name for panel in panels for series in panel.series}
    return Chart(
        "error-bars-chart",
        f"The histogram and the weights show {shown}. The scatter plot shows {len(used):,} of "
        "them.",
        panels,
        {name: colour for name, colour in COLOURS.items() if name in names},
    )


def _histogram(evidence: TableEvidence, bars: ErrorBarSummary) -> Panel:
    edges, counts = np.array(bars.edges), bars.histogram
    middles = np.sqrt(edges[1:] * edges[:-1]) if bars.log else (edges[1:] + edges[:-1]) / 2
    marks = [Mark(1.0, "label variance")]
    if evidence.epsilon:
        marks.append(Mark(evidence.epsilon / evidence.label_variance, "ε"))
    x, y = _steps(edges, counts)
    return Panel(
        "Distribution of σ²",
        "σ² in units of the label variance",
        "number of labels",
        # The histogram is drawn as steps, because bars on a logarithmic axis have no fixed width.
        [Series("labels", x, y, low=[0] * len(y), high=y)],
        f"σ² ranges from {bars.quantiles['0']:.4g} to {bars.quantiles['1']:.4g}, with a median of "
        f"{bars.median:.4g}. The highest bar of the histogram is at "
        f"{middles[int(np.argmax(counts))]:.3g} of the label variance.",
        log="x" if bars.log else "",
        marks=[mark for mark in marks if edges[0] <= mark.at <= edges[-1] and mark.at > 0],
    )


def _steps(edges: Any, counts: Sequence[float]) -> tuple[list[float], list[float]]:
    x = np.repeat(np.maximum(edges, edges[edges > 0].min() / 10), 2)[1:-1]
    return x.tolist(), np.repeat(counts, 2).tolist()


def _by_label(name: str, y: Sequence[float], sigma: Sequence[float]) -> Panel:
    return Panel(
        "σ by label",
        name,
        "σ",
        [Series("labels", y, sigma, "dots")],
        f"σ against the label, for {len(y):,} labels.",
        log="y" if sigma and max(sigma) > 10 * min(sigma) else "",
    )


def _weights(bars: ErrorBarSummary) -> Panel:
    sizes = bars.effective_sample_size
    return Panel(
        "How the weight is distributed",
        "fraction of the labels, smallest σ² first",
        "fraction of the weight",
        [
            Series(name, bars.weight_shares.labels, fraction)
            for name, fraction in bars.weight_shares.curves().items()
        ],
        f"Of {bars.count:,} labels, the effective sample size is {sizes.plain:,.0f} with weights "
        f"1/σ² and {sizes.with_tau2:,.0f} with weights 1/(σ²+τ²).",
    )
