"""The rows with the largest residuals."""

from __future__ import annotations

from biv.report.parts import Cell, Section, Table, Text, clean
from biv.workflows.evidence import TableEvidence


def section(evidence: TableEvidence) -> Section:
    """Return the section."""
    table = Table(
        "look-at",
        "Rows with the largest residuals",
        ["row", clean(evidence.target, 40), "σ", "prediction", "residual / √(σ²+std²)"],
        [
            [
                row.where,
                Cell(f"{row.y:.6g}", row.y),
                Cell(f"{row.sigma:.4g}{' (assumed)' if row.sigma_unknown else ''}", row.sigma),
                Cell(f"{row.predicted:.6g}", row.predicted),
                Cell(f"{row.standardised_residual:.1f}", row.standardised_residual),
            ]
            for row in evidence.outliers
        ],
        numbers=(1, 2, 3, 4),
    )
    text = Text(
        "Here std is the predicted standard deviation, and √(σ²+std²) is the standard deviation of "
        "label noise and model error together. If a residual is more than about 5 times as large, "
        "the label is probably wrong or its error bar too small."
    )
    return Section("look-at", "Rows to check first", [text, table])
