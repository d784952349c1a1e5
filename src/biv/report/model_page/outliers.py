"""The rows that are furthest from their predictions."""

from __future__ import annotations

from biv.report.parts import Cell, Section, Table, Text, clean
from biv.workflows.evidence import TableEvidence


def section(evidence: TableEvidence) -> Section:
    """Return the section."""
    table = Table(
        "look-at",
        "The rows that are furthest from what is predicted for them",
        ["row", clean(evidence.target, 40), "σ", "prediction", "standard deviations off"],
        [
            [
                row.where,
                Cell(f"{row.y:.6g}", row.y),
                Cell(f"{row.sigma:.4g}{' (taken)' if row.sigma_unknown else ''}", row.sigma),
                Cell(f"{row.predicted:.6g}", row.predicted),
                Cell(f"{row.off:.1f}", row.off),
            ]
            for row in evidence.look_at
        ],
        numbers=(1, 2, 3, 4),
    )
    text = Text(
        "In standard deviations of the label's noise and the model's error together. Beyond 5 or "
        "so, a label is more likely to be wrong, or its error bar too small, than unlucky."
    )
    return Section("look-at", "The rows to look at first", [text, table])
