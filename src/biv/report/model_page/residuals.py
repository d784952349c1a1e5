"""Residuals by σ²: whether they grow with the error bars as they should."""

from __future__ import annotations

import numpy as np

from biv.report.charts import BLUE, ORANGE, Chart, Panel, Series, Z
from biv.report.parts import Cell, Section, Table
from biv.workflows.evidence import TableEvidence
from biv.workflows.evidence_parts import BinnedResiduals

LOG_FROM = 30.0  # if the largest σ² is this many times the smallest, axes are logarithmic


def sections(evidence: TableEvidence) -> list[Section]:
    """Return the section, or no section if the table has no error bars."""
    if evidence.bars is None:
        return []
    bins, variance = evidence.residuals, np.array(evidence.residuals.variance)
    expected = variance + evidence.tau2
    log = bool((variance > 0).all() and variance.max() > LOG_FROM * variance.min())
    chart = Chart(
        "residuals-chart",
        f"Left: residuals of {len(evidence.cloud.y):,} rows; 95% of them should lie between the "
        "lines at ±1.96 √(σ²+τ²). Right: mean squared residuals of rows with similar σ², with 95% "
        "intervals.",
        [_cloud(evidence, log=log), _means(bins, expected, log=log)],
        {"residuals": BLUE, "σ² + τ²": ORANGE},
    )
    table = Table(
        "residuals",
        "Mean squared residuals by σ²",
        ["σ²", "mean squared residual", "standard error", "σ² + τ²"],
        [
            [Cell(f"{v:.4g}", float(v)) for v in row]
            for row in zip(bins.variance, bins.mean, bins.stderr, expected, strict=True)
        ],
        folded=True,
        numbers=(0, 1, 2, 3),
    )
    return [Section("residuals", "Residuals by σ²", [chart, table])]


def _cloud(evidence: TableEvidence, *, log: bool) -> Panel:
    cloud = evidence.cloud
    y, sigma, predicted = map(np.array, (cloud.y, cloud.sigma, cloud.predicted))
    residual, width = y - predicted, np.sqrt(sigma**2 + evidence.tau2)
    order = np.argsort(sigma)
    x = sigma[order]
    return Panel(
        "Residuals by σ",
        "σ",
        "label − prediction",
        [
            Series("residuals", sigma, residual, "dots"),
            Series("σ² + τ²", x, Z * width[order]),
            Series("σ² + τ²", x, -Z * width[order]),
        ],
        f"{float(np.mean(np.abs(residual) <= Z * width)):.0%} of the residuals lie within "
        "1.96 √(σ²+τ²).",
        log="x" if log and x[0] > 0 else "",
    )


def _means(bins: BinnedResiduals, expected: np.ndarray, *, log: bool) -> Panel:
    mean, stderr = np.array(bins.mean), np.array(bins.stderr)
    values = ", ".join(f"{m:.3g} (expected {e:.3g})" for m, e in zip(mean, expected, strict=True))
    return Panel(
        "Mean squared residuals by σ²",
        "σ²",
        "mean squared residual",
        [
            Series(
                "residuals",
                bins.variance,
                mean,
                "dots",
                low=mean - Z * stderr,
                high=mean + Z * stderr,
            ),
            Series("σ² + τ²", bins.variance, expected),
        ],
        f"Mean squared residuals from the smallest σ² to the largest: {values}.",
        log="xy" if log else "",
    )
