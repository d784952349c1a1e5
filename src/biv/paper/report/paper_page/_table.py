"""The section of Table 1: ours beside the paper's."""

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

GAUGE = 0.4  # the difference to the paper that fills a gauge


def table_section(
    artefact: Artefact,
    columns: Sequence[Sequence[tables.TableEntry]],
    results: Mapping[Run, RunResult],
    seeds: int,
) -> Section:
    """Return ours beside the paper's: dots, cells, and the curves behind them."""
    caption = figures.caption(artefact, results, seeds)
    words = Text(
        "The lowest test loss of each method, on clean labels, in units of the label variance: "
        "ours beside what the paper prints. GT learned from labels without noise.",
        "lead",
    )
    return Section(
        "table1",
        "Table 1: ours beside the paper's",
        [words, _beside(columns), cells(columns)],
        [
            curves_section(
                "table1-curves", "The curves behind it", artefact, results, seeds, caption
            )
        ],
    )


def _beside(columns: Sequence[Sequence[tables.TableEntry]]) -> Chart:
    """Ours and the paper's as dots, a panel a noise."""
    panels = []
    everything = [cell for column in columns for cell in column]
    means = [c.ours.lowest for c in everything if c.ours and math.isfinite(c.ours.lowest)]
    means += [c.paper[0] for c in everything if c.paper]
    for column in columns:
        there = [cell for cell in column if cell.ours or cell.paper]
        ours = [c for c in there if c.ours and math.isfinite(c.ours.lowest)]
        theirs = [cell for cell in there if cell.paper]
        series = [
            _dots("ours", [(c.method, c.ours.lowest, c.ours.lowest_std) for c in ours if c.ours]),
            _dots("the paper's", [(c.method, *c.paper) for c in theirs if c.paper], hollow=True),
        ]
        said = "; ".join(
            f"{c.method} {_ours(c)}, the paper {f'{c.paper[0]:.3f}' if c.paper else 'none'}"
            for c in there
        )
        panels.append(
            Panel(
                column[0].noise,
                "lowest test loss",
                "",
                series,
                said,
                rows=[cell.method for cell in there],
                log="x",
                x_range=(0.7 * min(means), 1.5 * max(means)),
            )
        )
    return Chart(
        "table1-beside",
        "Dots are means over seeds, bars one standard deviation to each side.",
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
        low=[max(v - s, v / 10) for v, s in zip(values, std, strict=True)],  # above 0, for logs
        high=[v + s for v, s in zip(values, std, strict=True)],
        sideways=True,
        hollow=hollow,
    )


def _ours(cell: tables.TableEntry) -> str:
    own = cell.ours
    if own is None:
        return "not run"
    words = []
    if math.isfinite(own.lowest):
        spread = f" ± {own.lowest_std:.3f}" if len(own.curves) > 1 else ""
        words.append(f"{own.lowest:.3f}{spread}")
    if own.diverged:
        words.append(f"{own.diverged} of {len(own.seeds)} diverged")
    return ", ".join(words)


def cells(columns: Sequence[Sequence[tables.TableEntry]]) -> Table:
    """Return the table, a row per method and noise."""
    rows = []
    for cell in (cell for column in columns for cell in column):
        own = cell.ours.lowest if cell.ours else math.nan
        apart = own / cell.paper[0] - 1 if cell.paper else math.nan
        spread = cell.ours.lowest_std if cell.ours and len(cell.ours.curves) > 1 else math.nan
        diverged = cell.ours.diverged if cell.ours else 0
        best = "best" if cell.best else ""
        printed, printed_std = cell.paper or (math.nan, math.nan)
        rows.append(
            [
                Cell(cell.noise, float(cell.noise.removeprefix("α="))),
                Cell(cell.method, tone=best),
                Cell(format_finite(own, ".3f") or ("" if cell.ours else "not run"), own, best),
                Cell(format_finite(spread, ".3f"), spread),
                Cell(f"{diverged} of {len(cell.ours.seeds)}" if cell.ours and diverged else ""),
                Cell(format_finite(printed, ".3f") or "diverged", printed),
                Cell(format_finite(printed_std, ".3f"), printed_std),
                gauge(apart),
                Cell(format_finite(cell.ratio, ".2f"), cell.ratio),
                Cell(format_finite(cell.closed, ".0%"), cell.closed),
            ]
        )
    return Table(
        "table1",
        "The lowest of each noise is bold; ± is the standard deviation over seeds. The difference "
        "is that of the means.",
        ["noise", "method", "ours", "± ours", "diverged", "paper", "± paper", "difference",
         "over GT", "gap closed"],
        rows,
        numbers=(2, 3, 5, 6, 8, 9),
    )  # fmt: skip


def gauge(apart: float) -> Cell:
    """By how much ours is lower or higher, as a bar to the left or the right."""
    if not math.isfinite(apart):
        return Cell("", math.nan)
    length = 28 * min(abs(apart) / GAUGE, 1.0)
    start = 30 - length if apart < 0 else 30
    tone = "lower" if apart < 0 else "higher"
    drawing = (
        '<svg class="gauge" viewBox="0 0 60 10" aria-hidden="true">'
        f'<rect class="{tone}" x="{start:.1f}" y="2" width="{length:.1f}" height="6"/>'
        '<line class="axis" x1="30" x2="30" y1="0" y2="10"/></svg>'
    )
    if abs(apart) < 0.005:
        return Cell("the same", apart, drawing=drawing)
    return Cell(f"{abs(apart):.0%} {tone}", apart, drawing=drawing)
