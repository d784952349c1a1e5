"""Table 1 with our losses and the paper's, as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from biv.paper.grid import Artefact
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.summary import Summary, summarise
from biv.report.markdown import aligned

# Lowest test losses of the paper's Table 1: mean and standard deviation of 5 runs. IV at α=0.25 is
# "N.A." there, because it diverged with every seed.
Printed = Mapping[str, Mapping[str, tuple[float, float] | None]]
BIKE: Printed = {
    "α=1": {
        "C=μ/20": (0.327, 0.056), "C=μ/4": (0.135, 0.016), "C=μ": (0.111, 0.009),
        "C=5μ": (0.120, 0.009), "L2": (0.122, 0.010), "BIV": (0.096, 0.006),
        "IV": (0.120, 0.021), "GT": (0.066, 0.004),
    },
    "α=0.5": {
        "C=μ/20": (0.125, 0.010), "C=μ/4": (0.097, 0.006), "C=μ": (0.097, 0.008),
        "C=5μ": (0.111, 0.012), "L2": (0.116, 0.011), "BIV": (0.088, 0.006),
        "IV": (0.554, 0.041), "GT": (0.066, 0.004),
    },
    "α=0.25": {
        "C=μ/20": (0.092, 0.008), "C=μ/4": (0.085, 0.006), "C=μ": (0.088, 0.006),
        "C=5μ": (0.107, 0.009), "L2": (0.119, 0.012), "BIV": (0.079, 0.006),
        "IV": None, "GT": (0.066, 0.004),
    },
}  # fmt: skip
FACES: Printed = {
    "α=1": {
        "C=μ/20": (0.79, 0.08), "C=μ/4": (0.55, 0.04), "C=μ": (0.50, 0.04), "C=5μ": (0.55, 0.06),
        "L2": (0.56, 0.05), "BIV": (0.46, 0.03), "IV": (0.99, 0.03), "GT": (0.25, 0.02),
    },
    "α=0.5": {
        "C=μ/20": (0.48, 0.04), "C=μ/4": (0.45, 0.04), "C=μ": (0.48, 0.04), "C=5μ": (0.54, 0.05),
        "L2": (0.56, 0.05), "BIV": (0.40, 0.03), "IV": (1.65, 0.03), "GT": (0.25, 0.02),
    },
    "α=0.25": {
        "C=μ/20": (0.38, 0.05), "C=μ/4": (0.39, 0.03), "C=μ": (0.43, 0.03), "C=5μ": (0.51, 0.04),
        "L2": (0.55, 0.05), "BIV": (0.33, 0.02), "IV": None, "GT": (0.25, 0.02),
    },
}  # fmt: skip
PAPER = {"bike": BIKE, "bike2011": BIKE, "utkface": FACES}


class TableEntry(NamedTuple):
    """One method under one noise.

    Attributes
    ----------
    method : str
        Label of the method, such as "L2" or "BIV".
    noise : str
        Label of the noise, such as "α=1".
    ours : Summary or None
        Our results, or None if there are none.
    paper : tuple of float or None
        The paper's mean and standard deviation, or None if it prints none.
    best : bool
        Whether the loss is the lowest of its column, apart from GT and methods with diverged runs.
    ratio : float
        Our loss divided by that of GT.
    closed : float
        Fraction of the gap between L2 and GT that the method closes.
    """

    method: str
    noise: str
    ours: Summary | None
    paper: tuple[float, float] | None
    best: bool
    ratio: float
    closed: float


def cells(
    artefact: Artefact, results: Mapping[Run, RunResult], seeds: int
) -> list[list[TableEntry]]:
    """Return the entries of the table, one list per noise."""
    columns = []
    for panel in artefact.panels:
        ours = {line.label: summarise(line, results, seeds) for line in panel.lines}
        lowest = {label: s.lowest if s else math.nan for label, s in ours.items()}
        candidates = {k: lowest[k] for k, s in ours.items() if k != "GT" and s and not s.diverged}
        best = min(candidates, key=candidates.__getitem__) if candidates else None
        truth, plain = lowest.get("GT", math.nan), lowest.get("L2", math.nan)
        printed = PAPER[panel.lines[0].run.dataset].get(panel.title, {})
        columns.append(
            [
                TableEntry(
                    label,
                    panel.title,
                    summary,
                    printed.get(label),
                    label == best,
                    lowest[label] / truth,
                    (plain - lowest[label]) / (plain - truth) if plain != truth else math.nan,
                )
                for label, summary in ours.items()
            ]
        )
    return columns


def _ours(cell: TableEntry) -> str:
    ours = cell.ours
    if ours is None:
        return "not run"
    spread = f" ± {ours.lowest_std:.3f}" if len(ours.curves) > 1 else ""
    parts = [] if math.isnan(ours.lowest) else [f"{ours.lowest:.3f}{spread}"]
    if ours.diverged:
        parts.append(f"diverged {ours.diverged}/{len(ours.seeds)}")
    return " ".join(parts) + (" *" if cell.best else "")


def _paper(cell: TableEntry) -> str:
    return "N.A." if cell.paper is None else f"{cell.paper[0]:.3f} ± {cell.paper[1]:.3f}"


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)


HEADER = ("noise", "method", "ours", "paper", "ratio to GT", "L2–GT gap closed")


def _rows(columns: Sequence[Sequence[TableEntry]]) -> list[tuple[str, ...]]:
    return [
        (
            cell.noise if position == 0 else "",
            cell.method,
            _ours(cell),
            _paper(cell),
            _number(cell.ratio, ".2f"),
            _number(cell.closed, ".0%"),
        )
        for column in columns
        for position, cell in enumerate(column)
    ]


def markdown(columns: Sequence[Sequence[TableEntry]]) -> str:
    """Return the table as aligned Markdown, with a star at the best method of each noise."""
    return aligned([HEADER, *_rows(columns)])


def comma_separated(columns: Sequence[Sequence[TableEntry]]) -> str:
    """Return every number at full precision, as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["noise", "method", "lowest", "std", "runs", "diverged", "paper", "paper_std", "best",
         "ratio_to_gt", "gap_closed"]
    )  # fmt: skip
    for cell in (cell for column in columns for cell in column):
        ours, paper = cell.ours, cell.paper or ("", "")
        numbers: tuple[object, ...] = ("",) * 4
        if ours:
            numbers = (ours.lowest, ours.lowest_std, len(ours.seeds), ours.diverged)
        writer.writerow(
            [cell.noise, cell.method, *numbers, *paper, int(cell.best), cell.ratio, cell.closed]
        )
    return out.getvalue()


def latex(columns: Sequence[Sequence[TableEntry]]) -> str:
    """Return the table in the paper's layout: methods in rows, noises in columns, best in bold."""
    head = " & ".join(f"${column[0].noise.replace('α', chr(92) + 'alpha ')}$" for column in columns)
    lines = [
        r"\begin{tabular}{l" + "c" * len(columns) + "}",
        r"\hline",
        rf" & {head} \\",
        r"\hline",
    ]
    for row in zip(*columns, strict=True):
        entries = [_latex_cell(cell) for cell in row]
        method = row[0].method.replace("μ", r"\mu_P")
        name = f"${method}$" if method.startswith("C=") else method
        lines.append(rf"{name} & {' & '.join(entries)} \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}"]) + "\n"


def _latex_cell(cell: TableEntry) -> str:
    ours = cell.ours
    if ours is None:
        return "not run"
    note = f"({ours.diverged}/{len(ours.seeds)} diverged)" if ours.diverged else ""
    if math.isnan(ours.lowest):
        return f"N.A. {note}".strip()
    value = rf"\mathbf{{{ours.lowest:.3f}}}" if cell.best else f"{ours.lowest:.3f}"
    spread = rf" \pm {ours.lowest_std:.3f}" if len(ours.curves) > 1 else ""
    return f"${value}{spread}$ {note}".strip()
