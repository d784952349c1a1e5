"""Table 1: ours beside the paper's, as text, Markdown, CSV and LaTeX."""

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

# Lowest test losses of the paper's Table 1: (mean, standard deviation of 5 runs). IV at α=0.25 is
# "N.A.": it diverged on every seed.
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

    Attributes:
        method: "L2", "BIV", ...
        noise: "α=1", ...
        ours: What the store has, or None.
        paper: The paper's mean and standard deviation, or None where it has none.
        best: Whether it is the lowest of its column, GT and methods of which a run diverged aside.
        ratio: To GT.
        closed: The share of the gap between L2 and GT that it closes.
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
    """The table, column by column."""
    columns = []
    for panel in artefact.panels:
        ours = {line.label: summarise(line, results, seeds) for line in panel.lines}
        lowest = {label: own.lowest if own else math.nan for label, own in ours.items()}
        rivals = {k: lowest[k] for k, own in ours.items() if k != "GT" and own and not own.diverged}
        best = min(rivals, key=rivals.__getitem__) if rivals else None
        truth, plain = lowest.get("GT", math.nan), lowest.get("L2", math.nan)
        printed = PAPER[panel.lines[0].run.dataset].get(panel.title, {})
        columns.append(
            [
                TableEntry(
                    label,
                    panel.title,
                    own,
                    printed.get(label),
                    label == best,
                    lowest[label] / truth,
                    (plain - lowest[label]) / (plain - truth) if plain != truth else math.nan,
                )
                for label, own in ours.items()
            ]
        )
    return columns


def _ours(cell: TableEntry) -> str:
    own = cell.ours
    if own is None:
        return "not run"
    spread = f" ± {own.lowest_std:.3f}" if len(own.curves) > 1 else ""
    words = [] if math.isnan(own.lowest) else [f"{own.lowest:.3f}{spread}"]
    if own.diverged:
        words.append(f"diverged {own.diverged}/{len(own.seeds)}")
    return " ".join(words) + (" *" if cell.best else "")


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
    """As a person would want it: aligned, the best of each column marked with a star."""
    return aligned([HEADER, *_rows(columns)])


def comma_separated(columns: Sequence[Sequence[TableEntry]]) -> str:
    """Every number at full precision, for machines."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["noise", "method", "lowest", "std", "runs", "diverged", "paper", "paper_std", "best",
         "ratio_to_gt", "gap_closed"]
    )  # fmt: skip
    for cell in (cell for column in columns for cell in column):
        own, paper = cell.ours, cell.paper or ("", "")
        numbers = (own.lowest, own.lowest_std, len(own.seeds), own.diverged) if own else ("",) * 4
        writer.writerow(
            [cell.noise, cell.method, *numbers, *paper, int(cell.best), cell.ratio, cell.closed]
        )
    return out.getvalue()


def latex(columns: Sequence[Sequence[TableEntry]]) -> str:
    """In the paper's own shape: a row a method, a column a noise, the best in bold."""
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
    own = cell.ours
    if own is None:
        return "not run"
    note = f"({own.diverged}/{len(own.seeds)} diverged)" if own.diverged else ""
    if math.isnan(own.lowest):
        return f"N.A. {note}".strip()
    value = rf"\mathbf{{{own.lowest:.3f}}}" if cell.best else f"{own.lowest:.3f}"
    spread = rf" \pm {own.lowest_std:.3f}" if len(own.curves) > 1 else ""
    return f"${value}{spread}$ {note}".strip()
