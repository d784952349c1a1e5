"""The report of a store: the paper's table and figures, its claims, and how to repeat them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from biv.paper.artefacts import PRESETS, Artefact, Line, artefacts
from biv.paper.claims import Verdict, claims
from biv.paper.report import claims as claim_texts
from biv.paper.report import figures, lines, tables
from biv.paper.spec import Run
from biv.paper.store import RunResult, Store
from biv.paper.summary import Summary, summarise
from biv.paper.verdicts import EQUAL_WITHIN, Finding, PairedRatio
from biv.report.charts import BLACK, BLUE, ORANGE, Chart, Colour, Panel, Series
from biv.report.page import (
    Bullets,
    Cell,
    Commands,
    Figure,
    Figures,
    Page,
    Section,
    Table,
    Text,
    made,
)

POINTS = 150  # of a curve, at most: more than a screen shows of it
MOST_SEEDS = 1000  # that a report is of; a damaged store may name any
GAUGE = 0.4  # the difference to the paper that fills a gauge
AXIS = (0.25, 4.0)  # the ratios that an interval is drawn between
TONES = {"holds": "good", "fails": "bad", "undecided": "open"}
SIGNS = {"holds": "✓ ", "fails": "✗ ", "undecided": "? "}


@dataclass(frozen=True)
class Chosen:
    """The part of a store that a report is of.

    Attributes:
        dataset: Of its runs.
        preset: Of its runs, by name.
        seeds: How many there are.
        runs: How many of those that artefacts and claims want are there.
    """

    dataset: str
    preset: str
    seeds: int
    runs: int = 0


def contents(store: Store) -> list[Chosen]:
    """What a store has runs of, the most first."""
    done = store.runs()
    seeds: dict[Run, list[int]] = {}
    for run in done:
        seeds.setdefault(replace(run, seed=0), []).append(run.seed)
    found = []
    for dataset in dict.fromkeys(run.dataset for run in done):
        for preset in PRESETS.values():
            asked = {run for run in _asked(dataset, preset.name, 1) if run in seeds}
            if asked:
                own = [seed for run in asked for seed in seeds[run] if seed < MOST_SEEDS] or [0]
                found.append(Chosen(dataset, preset.name, max(own) + 1, len(own)))
    return sorted(found, key=lambda chosen: -chosen.runs)


def _asked(dataset: str, preset: str, seeds: int) -> list[Run]:
    things: list[Any] = list(artefacts(dataset, PRESETS[preset]).values())
    things += claims(dataset, PRESETS[preset]).values()
    return list(dict.fromkeys(run for thing in things for run in thing.runs(seeds)))


def page(store: Store, chosen: Chosen, place: str) -> Page:
    """Everything that a store has of one data set at one preset.

    Args:
        store: Of runs.
        chosen: Which of them.
        place: Of the store's folder, as commands would name it.
    """
    seeds = chosen.seeds
    results = store.results(_asked(chosen.dataset, chosen.preset, seeds))
    grid = artefacts(chosen.dataset, PRESETS[chosen.preset])
    present = [a for a in grid.values() if _comparable(a, results, seeds)]
    verdicts = [
        claim.test(results, seeds)
        for claim in claims(chosen.dataset, PRESETS[chosen.preset]).values()
    ]
    verdicts = [verdict for verdict in verdicts if verdict.overall != "not run"]
    sections = []
    columns = None
    if present and present[0].name == "table1":
        columns = tables.cells(present[0], results, seeds)
        sections.append(_table_section(present[0], columns, results, seeds))
    if verdicts:
        sections.append(_claims_section(verdicts, seeds))
    shown = [artefact for artefact in present if artefact.name != "table1"]
    if shown:
        sections.append(
            Section(
                "figures",
                "The figures",
                [Text(f"Curves are thinned to {POINTS} points; the numbers below each are not.")],
                [_figure_section(artefact, results, seeds) for artefact in shown],
            )
        )
    sections += [_runs_section(results), _provenance_section(store, chosen, results, place)]
    first, *more = _answers(columns, verdicts)
    return Page(
        "Batch inverse-variance weighting, reproduced",
        f"Mai, Khamies and Paull (2021) on {_named(chosen.dataset)}, {chosen.preset} preset: "
        f"{len(results):,} trainings, {seeds} seed{'s' if seeds > 1 else ''}.",
        first,
        sections,
        made=made(),
        answers=more,
    )


def _comparable(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> bool:
    """Whether every panel that has runs has something to compare, and one has."""
    counts = []
    for panel in artefact.panels:
        there = [any(run in results for run in line.runs(seeds)) for line in panel.lines]
        counts.append((sum(there), len(there)))
    enough = [found >= min(2, of) for found, of in counts]
    return all(enough) or (artefact.name == "table1" and any(enough))


def _named(dataset: str) -> str:
    return {
        "bike": "Bike Sharing",
        "bike2011": "the first year of Bike Sharing",
        "utkface": "UTKFace",
    }[dataset]


def _answers(
    columns: Sequence[Sequence[tables.TableEntry]] | None, verdicts: Sequence[Verdict]
) -> list[str]:
    """What there is to say, the most important first."""
    said = []
    known = [column for column in columns or [] if any(cell.best for cell in column)]
    if known:
        best = [next(cell for cell in column if cell.best) for column in known]
        wins = [cell for cell in best if cell.method == "BIV"]
        if len(wins) == len(best):
            said.append(
                "BIV has the lowest test loss of all methods that learn from noisy labels, under "
                f"{'every noise' if len(best) > 1 else 'the one noise'} of the paper's table: "
                f"{_each(best)}."
            )
        else:
            told = ", ".join(f"{cell.method} at {cell.noise}" for cell in best)
            said.append(f"The lowest test losses of the paper's table are those of {told}.")
        closed = [c for column in known for c in column if c.method == "BIV" and c.ours]
        closed = [cell for cell in closed if math.isfinite(cell.closed)]
        if closed:
            shares = ", ".join(f"{cell.closed:.0%} at {cell.noise}" for cell in closed)
            said.append(f"Of the gap between L2 and clean labels, BIV closes {shares}.")
    if verdicts:
        told = claim_texts.totals(verdicts)
        said.append(f"The paper's claims, by one rule for all of them: {told[0].lower()}{told[1:]}")
    return said or ["What this store has is below."]


def _each(best: Sequence[tables.TableEntry]) -> str:
    return ", ".join(f"{cell.ours.lowest:.3f} at {cell.noise}" for cell in best if cell.ours)


def _table_section(
    artefact: Artefact,
    columns: Sequence[Sequence[tables.TableEntry]],
    results: Mapping[Run, RunResult],
    seeds: int,
) -> Section:
    caption = figures.caption(artefact, results, seeds)
    words = Text(
        "The lowest test loss of each method, on clean labels, in units of the label variance: "
        "ours beside what the paper prints. GT learned from labels without noise.",
        "lead",
    )
    return Section(
        "table1",
        "Table 1: ours beside the paper's",
        [words, _beside(columns), _cells(columns)],
        [_curves("table1-curves", "The curves behind it", artefact, results, seeds, caption)],
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


def _cells(columns: Sequence[Sequence[tables.TableEntry]]) -> Table:
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
                Cell(_finite(own, ".3f") or ("" if cell.ours else "not run"), own, best),
                Cell(_finite(spread, ".3f"), spread),
                Cell(f"{diverged} of {len(cell.ours.seeds)}" if cell.ours and diverged else ""),
                Cell(_finite(printed, ".3f") or "diverged", printed),
                Cell(_finite(printed_std, ".3f"), printed_std),
                _gauge(apart),
                Cell(_finite(cell.ratio, ".2f"), cell.ratio),
                Cell(_finite(cell.closed, ".0%"), cell.closed),
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


def _finite(value: float, form: str) -> str:
    return format(value, form).replace("-", "−") if math.isfinite(value) else ""


def _gauge(apart: float) -> Cell:
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


def _curves(
    key: str,
    heading: str,
    artefact: Artefact,
    results: Mapping[Run, RunResult],
    seeds: int,
    caption: str,
) -> Section:
    tested = artefact.quantity == "test_loss"
    chart = (_tests if tested else _trainings)(key, artefact, results, seeds, caption)
    parts: list[Any] = [] if chart is None else [chart]
    head, *rows = lines.rows(artefact, results, seeds)
    numbers = Table(key, "The numbers", head, rows, folded=True)
    return Section(key, heading, [*parts, numbers])


def _figure_section(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> Section:
    number = int(artefact.name.removeprefix("fig"))
    heading = f"Figure {number}, {artefact.label}: {artefact.shows}"
    caption = figures.caption(artefact, results, seeds)
    return _curves(artefact.name, heading, artefact, results, seeds, caption)


def _colours(artefact: Artefact) -> dict[str, Colour]:
    """Of every line, by its label."""
    found: dict[str, Colour] = {}
    for panel in artefact.panels:
        for line, colour in zip(panel.lines, figures.colours(panel), strict=True):
            truth = colour == figures.TRUTH_COLOUR
            found.setdefault(line.label, BLACK if truth else Colour.of(_hex(colour)))
    return found


def _hex(colour: Any) -> str:
    if isinstance(colour, str):
        return colour
    return "#" + "".join(f"{round(255 * share):02x}" for share in colour[:3])


def _tests(
    key: str, artefact: Artefact, results: Mapping[Run, RunResult], seeds: int, caption: str
) -> Chart | None:
    """Mean test losses with their bands."""
    owns = [
        [own for line in p.lines if (own := summarise(line, results, seeds)) and own.curves.size]
        for p in artefact.panels
    ]
    everything = [own for panel in owns for own in panel]
    if not everything:
        return None
    limits = figures.limits(everything)
    panels = [
        Panel(
            panel.title,
            "training samples seen, thousands",
            "test MSE on clean labels",
            [_curve(own) for own in found],
            "Lowest means: " + "; ".join(f"{o.line.label} {o.lowest:.3f}" for o in found) + ".",
            y_range=limits,
        )
        for panel, found in zip(artefact.panels, owns, strict=True)
        if found
    ]
    drawn = {own.line.label for own in everything}
    colours = {name: colour for name, colour in _colours(artefact).items() if name in drawn}
    return Chart(key, caption, panels, colours)


def _curve(own: Summary) -> Series:
    shown = _thinned(len(own.samples))
    mean, std = own.mean[shown], own.std[shown]
    several = len(own.curves) > 1
    return Series(
        own.line.label,
        own.samples[shown] / 1e3,
        mean,
        low=mean - std if several else None,
        high=mean + std if several else None,
    )


def _thinned(count: int) -> Any:
    """Places of a curve, evenly spread, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, POINTS)).round().astype(int))


def _trainings(
    key: str, artefact: Artefact, results: Mapping[Run, RunResult], seeds: int, caption: str
) -> Chart | None:
    """Training losses, the mean of every epoch and the deviation within it."""
    panels = []
    colours = _colours(artefact)
    for panel in artefact.panels:
        series = [own for line in panel.lines if (own := _training(line, results, seeds))]
        if series:
            said = "; ".join(f"{own.name} ends at {float(own.y[-1]):.3g}" for own in series)
            axis = "training loss, an epoch's mean ± std"
            panels.append(
                Panel(panel.title, "training samples seen, thousands", axis, series, said, log="y")
            )
    shown = {own.name for panel in panels for own in panel.series}
    colours = {name: colour for name, colour in colours.items() if name in shown}
    return Chart(key, caption, panels, colours) if panels else None


def _training(line: Line, results: Mapping[Run, RunResult], seeds: int) -> Series | None:
    found = figures.training_curve(line, results, seeds)
    if found is None:
        return None
    samples, mean, spread = found
    shown = _thinned(len(samples))
    floor = np.maximum(mean - spread, mean / 30)[shown]  # a logarithmic axis knows no 0
    return Series(
        line.label, samples[shown] / 1e3, mean[shown], low=floor, high=(mean + spread)[shown]
    )


def _claims_section(verdicts: Sequence[Verdict], seeds: int) -> Section:
    counts = Counter(verdict.overall for verdict in verdicts)
    tiles = [
        Figure(words, str(counts[kind]), f"of {len(verdicts)} claims")
        for kind, words in (
            ("holds", "they hold"),
            ("fails", "they fail"),
            ("undecided", f"undecided at {seeds} seed{'s' if seeds > 1 else ''}"),
            ("not run", "not run"),
        )
        if counts[kind]
    ]
    summary = Table(
        "claims",
        "Every claim. What each rests on is in the next table.",
        ["claim", "says", "verdict", "ratio that decides", "low", "high", "of what"],
        [
            [
                Cell(str(v.claim.number), float(v.claim.number)),
                v.claim.says,
                _verdict(claim_texts.headline(v, seeds), v.overall),
                *_deciding(v),
            ]
            for v in verdicts
        ],
    )
    parts = Table(
        "claims-parts",
        "All comparisons behind the claims, with 95 % intervals",
        ["claim", "part", "claimed", "ratio", "low", "high", "seeds", "verdict"],
        [
            [
                Cell(str(v.claim.number), float(v.claim.number)),
                found.what,
                found.claimed if isinstance(found, PairedRatio) else "",
                *_interval(found),
                Cell(str(found.seeds), float(found.seeds)),
                _verdict(found.verdict, found.verdict),
            ]
            for v in verdicts
            for found in v.findings
        ],
        folded=True,
    )
    return Section(
        "claims",
        "The paper's claims, put to the test",
        [Figures(tiles), summary, parts, Text(claim_texts.RULE, "note")],
    )


def _verdict(words: str, kind: str) -> Cell:
    return Cell(f"{SIGNS.get(kind, '')}{words}", tone=TONES.get(kind, ""))


def _deciding(verdict: Verdict) -> tuple[Cell, Cell, Cell, str]:
    """Of the comparisons with the claim's own verdict the one furthest from 1, and of what."""
    compared = [f for f in verdict.findings if isinstance(f, PairedRatio) and f.ratio > 0]
    own = [f for f in compared if f.verdict == verdict.overall]
    if not own:
        return Cell(""), Cell(""), Cell(""), ""
    found = max(own, key=lambda f: abs(math.log(f.ratio)))
    return (*_interval(found), found.what)


def _interval(found: Finding) -> tuple[Cell, Cell, Cell]:
    """A ratio and the ends of its 95 % interval, drawn on an axis that all share."""
    nothing = Cell("")
    if not isinstance(found, PairedRatio):
        told = getattr(found, "told", None)
        words = told if told is not None else f"{found.times} of {found.seeds} runs"  # type: ignore[union-attr]
        return Cell(words), nothing, nothing
    if not math.isfinite(found.ratio):
        return nothing, nothing, nothing

    def place(ratio: float) -> float:
        low, high = map(math.log, AXIS)
        return 100 * (min(max(math.log(ratio), low), high) - low) / (high - low)

    bar = ""
    if math.isfinite(found.low):
        bar = (
            f'<line class="bar" x1="{place(found.low):.1f}" x2="{place(found.high):.1f}" '
            'y1="6" y2="6"/>'
        )
    margin = ""
    if found.claimed == "equal":
        left, right = place(1 - EQUAL_WITHIN), place(1 + EQUAL_WITHIN)
        margin = (
            f'<rect class="margin" x="{left:.1f}" y="0" width="{right - left:.1f}" height="12"/>'
        )
    drawing = (
        '<svg class="interval" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">'
        f'{margin}<line class="axis" x1="0" x2="100" y1="6" y2="6"/>'
        f'<line class="one" x1="{place(1):.1f}" x2="{place(1):.1f}" y1="0" y2="12"/>{bar}'
        f'<circle class="dot" cx="{place(found.ratio):.1f}" cy="6" r="2.2"/></svg>'
    )
    low, high = (Cell(_finite(end, ".3f"), end) for end in (found.low, found.high))
    return Cell(f"{found.ratio:.3f}", found.ratio, drawing=drawing), low, high


def _runs_section(results: Mapping[Run, RunResult]) -> Section:
    rows: list[list[Cell | str]] = []
    for run, result in results.items():
        found = result.summary
        rows.append(
            [
                run.key,
                _noise_text(run),
                _loss_text(run),
                Cell(str(run.seed), float(run.seed)),
                Cell(str(run.batch_size), float(run.batch_size)),
                _number(found["lowest_smoothed"]),
                _number(found["last_smoothed"]),
                "yes" if found["diverged"] else "",
            ]
        )
    columns = ["run", "noise", "loss", "seed", "batch", "lowest", "last", "diverged"]
    table = Table(
        "runs",
        "Every training: its smoothed test loss, lowest and last",
        columns,
        rows,
        folded=True,
        numbers=(3, 4, 5, 6),
    )
    return Section("runs", "All trainings", [table])


def _number(value: float | bool | None) -> Cell:
    return Cell("") if value is None else Cell(f"{value:.4f}", float(value))


def _noise_text(run: Run) -> str:
    noise = run.noise
    if noise.kind == "none":
        return "none"
    words = [f"{noise.kind} {noise.parameter:g}"]
    words += [f"level {noise.level:g}"] if noise.level != 1 else []
    if noise.disturbance:
        words.append(f"D_v {noise.disturbance:g}" + (", squared" if noise.squared_reading else ""))
    words += [f"tested on {run.test_region}"] if run.test_region != "all" else []
    return ", ".join(words)


def _loss_text(run: Run) -> str:
    loss = run.loss
    words = [loss.kind.upper() if loss.kind != "cutoff" else "cutoff"]
    if loss.kind in ("iv", "biv"):
        words.append(f"ε {loss.epsilon:g}")
    if loss.kind == "cutoff":
        words.append(f"{loss.threshold:.4g}" + ("" if loss.raw_threshold else " μ"))
    if run.optimizer != "adam":
        words.append(f"{run.optimizer} {run.learning_rate:g}")
    return ", ".join(words)


def _provenance_section(
    store: Store, chosen: Chosen, results: Mapping[Run, RunResult], place: str
) -> Section:
    kinds: dict[str, Counter[str]] = {}
    for result in results.values():
        for name, value in result.provenance.items():
            kinds.setdefault(name, Counter())[_told(value)] += 1
    rows = [[name, ", ".join(_counted(values, len(results)))] for name, values in kinds.items()]
    options = f"--dataset {chosen.dataset} --preset {chosen.preset} --seeds {chosen.seeds}"
    commands = [
        f"biv reproduce all {options} --out {place}",
        f"biv claims {options} --out {place}",
        f"biv report {place} --dataset {chosen.dataset} --preset {chosen.preset} -o report.html",
    ]
    failed = [f for f in store.failures() if f.run.dataset == chosen.dataset]
    parts: list[Any] = [
        Text("These commands train what is missing in the store and make this page again:"),
        Commands(commands),
        Table("provenance", "Where the runs came from", ["what", "found"], rows),
    ]
    if failed:
        parts.append(Bullets([f"failed: {f.run.canonical()}: {f.error}" for f in failed]))
    return Section("repeat", "How to repeat it", parts)


def _told(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _counted(values: Counter[str], total: int) -> list[str]:
    """The commonest, with their counts where there are several."""
    if len(values) == 1:
        return [next(iter(values))]
    if len(values) > 5:
        ordered = sorted(values, key=lambda v: (len(v), v))
        return [f"{len(values)} values, from {ordered[0]} to {ordered[-1]}"]
    return [f"{value} ({count} of {total})" for value, count in values.most_common()]
