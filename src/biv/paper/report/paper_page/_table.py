"""The section of Table 1: our losses next to the paper's."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from biv.paper.grid import Artefact
from biv.paper.report import figures, tables
from biv.paper.report.paper_page._cells import format_finite
from biv.paper.report.paper_page._curves import curves_section
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.report.charts import BLUE, ORANGE, Chart, Panel, Series
from biv.report.parts import Cell, Section, Table, Text

GAUGE = 0.4  # relative difference to the paper that fills a gauge


def table_section(
    artefact: Artefact,
    columns: Sequence[Sequence[tables.TableEntry]],
    results: Mapping[Run, RunResult],
    seeds: int,
) -> Section:
    """Return the section of Table 1: a chart, the table, and the curves behind it."""
    caption = figures.caption(artefact, results, seeds)
    introduction = Text(
        "The lowest test loss of each method on clean labels, in units of the label variance: our "
        "results next to the paper's. GT is L2 trained on labels without noise.",
        "lead",
    )
    return Section(
        "table1",
        "Table 1: our results next to the paper's",
        [introduction, _comparison_chart(columns), cells(columns)],
        [
            curves_section(
                "table1-curves", "The curves behind the table", artefact, results, seeds, caption
            )
        ],
    )


def _comparison_chart(columns: Sequence[Sequence[tables.TableEntry]]) -> Chart:
    """Return a chart of our losses and the paper's as dots, with one panel per noise."""
    panels = []
    everything = [cell for column in columns for cell in column]
    means = [c.ours.lowest for c in everything if c.ours and math.isfinite(c.ours.lowest)]
    means += [c.paper[0] for c in everything if c.paper]
    for column in columns:
        shown = [cell for cell in column if cell.ours or cell.paper]
        ours = [c for c in shown if c.ours and math.isfinite(c.ours.lowest)]
        printed = [cell for cell in shown if cell.paper]
        series = [
            _dots("ours", [(c.method, c.ours.lowest, c.ours.lowest_std) for c in ours if c.ours]),
            _dots("the paper's", [(c.method, *c.paper) for c in printed if c.paper], hollow=True),
        ]
        description = "; ".join(
            f"{c.method} {_ours_text(c)}, the paper {f'{c.paper[0]:.3f}' if c.paper else 'none'}"
            for c in shown
        )
        panels.append(
            Panel(
                column[0].noise,
                "lowest test loss",
                "",
                series,
                description,
                rows=[cell.method for cell in shown],
                log="x",
                x_range=(0.7 * min(means), 1.5 * max(means)),
            )
        )
    return Chart(
        "table1-beside",
        "Dots are means over seeds. Bars extend by one standard deviation to each side.",
        panels,
        {"ours": BLUE, "the paper's": ORANGE},
    )


def _dots(name: str, rows: list[tuple[str, float, float]], *, hollow: bool = False) -> Series:
    std = [0.0 if math.isnan(s) else s for _, _, s in rows]
    values = [value for _, value, _ in rows]
    return Series(
        name,
        values,
        [label for label, _, _ in rows],
        "dots",
        low=[
            max(v - s, v / 10) for v, s in zip(values, std, strict=True)
        ],  # above 0, for a log axis
        high=[v + s for v, s in zip(values, std, strict=True)],
        sideways=True,
        hollow=hollow,
    )


def _ours_text(cell: tables.TableEntry) -> str:
    ours = cell.ours
    if ours is None:
        return "not run"
    parts = []
    if math.isfinite(ours.lowest):
        spread = f" ± {ours.lowest_std:.3f}" if len(ours.curves) > 1 else ""
        parts.append(f"{ours.lowest:.3f}{spread}")
    if ours.diverged:
        parts.append(f"{ours.diverged} of {len(ours.seeds)} diverged")
    return ", ".join(parts)


def cells(columns: Sequence[Sequence[tables.TableEntry]]) -> Table:
    """Return the table, with one row per method and noise."""
    rows = []
    for cell in (cell for column in columns for cell in column):
        lowest = cell.ours.lowest if cell.ours else math.nan
        difference = lowest / cell.paper[0] - 1 if cell.paper else math.nan
        spread = cell.ours.lowest_std if cell.ours and len(cell.ours.curves) > 1 else math.nan
        diverged = cell.ours.diverged if cell.ours else 0
        best = "best" if cell.best else ""
        printed, printed_std = cell.paper or (math.nan, math.nan)
        rows.append(
            [
                Cell(cell.noise, float(cell.noise.removeprefix("α="))),
                Cell(cell.method, tone=best),
                Cell(
                    format_finite(lowest, ".3f") or ("" if cell.ours else "not run"), lowest, best
                ),
                Cell(format_finite(spread, ".3f"), spread),
                Cell(f"{diverged} of {len(cell.ours.seeds)}" if cell.ours and diverged else ""),
                Cell(format_finite(printed, ".3f") or "diverged", printed),
                Cell(format_finite(printed_std, ".3f"), printed_std),
                gauge(difference),
                Cell(format_finite(cell.ratio, ".2f"), cell.ratio),
                Cell(format_finite(cell.closed, ".0%"), cell.closed),
            ]
        )
    return Table(
        "table1",
        "The lowest loss under each noise is bold; ± is the standard deviation over seeds. The "
        "difference compares the means.",
        ["noise", "method", "ours", "± ours", "diverged", "paper", "± paper", "difference",
         "ratio to GT", "gap closed"],
        rows,
        numbers=(2, 3, 5, 6, 8, 9),
    )  # fmt: skip


def gauge(difference: float) -> Cell:
    """Return a relative difference as a bar to the left (lower) or the right (higher)."""
    if not math.isfinite(difference):
        return Cell("", math.nan)
    length = 28 * min(abs(difference) / GAUGE, 1.0)
    start = 30 - length if difference < 0 else 30
    tone = "lower" if difference < 0 else "higher"
    drawing = (
        '<svg class="gauge" viewBox="0 0 60 10" aria-hidden="true">'
        f'<rect class="{tone}" x="{start:.1f}" y="2" width="{length:.1f}" height="6"/>'
        '<line class="axis" x1="30" x2="30" y1="0" y2="10"/></svg>'
    )
    if abs(difference) < 0.005:
        return Cell("the same", difference, drawing=drawing)
    return Cell(f"{abs(difference):.0%} {tone}", difference, drawing=drawing)
