"""The last sections: all runs, their provenance, and the commands that repeat them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from biv.losses import registry
from biv.paper.report.paper_page._contents import Selection
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.store import Store
from biv.report.parts import Bullets, Cell, Commands, Section, Table, Text


def runs_section(results: Mapping[Run, RunResult]) -> Section:
    """Return the section with a table of all runs."""
    rows: list[list[Cell | str]] = []
    for run, result in results.items():
        summary = result.summary
        rows.append(
            [
                run.key,
                _noise_text(run),
                _loss_text(run),
                Cell(str(run.seed), float(run.seed)),
                Cell(str(run.batch_size), float(run.batch_size)),
                _number(summary["lowest_smoothed"]),
                _number(summary["last_smoothed"]),
                "yes" if summary["diverged"] else "",
            ]
        )
    columns = ["run", "noise", "loss", "seed", "batch", "lowest", "last", "diverged"]
    table = Table(
        "runs",
        "All runs, with the lowest and the last value of their smoothed test loss.",
        columns,
        rows,
        folded=True,
        numbers=(3, 4, 5, 6),
    )
    return Section("runs", "All runs", [table])


def _number(value: float | bool | None) -> Cell:
    return Cell("") if value is None else Cell(f"{value:.4f}", float(value))


def _noise_text(run: Run) -> str:
    noise = run.noise
    if noise.kind == "none":
        return "none"
    parts = [f"{noise.kind} {noise.parameter:g}"]
    parts += [f"level {noise.level:g}"] if noise.level != 1 else []
    if noise.disturbance:
        parts.append(f"D_v {noise.disturbance:g}" + (", squared" if noise.squared_reading else ""))
    parts += [f"tested on {run.test_region}"] if run.test_region != "all" else []
    return ", ".join(parts)


def _loss_text(run: Run) -> str:
    loss = run.loss
    definition = registry.get(loss.kind)
    parts = [definition.title]
    if "epsilon" in definition.settings:
        parts.append(f"ε {loss.epsilon:g}")
    if "threshold" in definition.settings:
        parts.append(f"{loss.threshold:.4g}" + ("" if loss.raw_threshold else " μ"))
    if run.optimizer != "adam":
        parts.append(f"{run.optimizer} {run.learning_rate:g}")
    return ", ".join(parts)


def provenance_section(
    store: Store, selection: Selection, results: Mapping[Run, RunResult], folder: str
) -> Section:
    """Return the section with the commands that repeat the report and its runs' provenance."""
    counts: dict[str, Counter[str]] = {}
    for result in results.values():
        for name, value in result.provenance.items():
            counts.setdefault(name, Counter())[_value_text(value)] += 1
    rows = [
        [name, ", ".join(_count_texts(values, len(results)))] for name, values in counts.items()
    ]
    data = f"--dataset {selection.dataset} --preset {selection.preset}"
    options = f"{data} --seeds {selection.seeds}"
    commands = [
        f"biv reproduce all {options} --out {folder}",
        f"biv claims {options} --out {folder}",
        f"biv report {folder} {data} -o report.html",
    ]
    failed = [f for f in store.failures() if f.run.dataset == selection.dataset]
    parts: list[Any] = [
        Text("These commands train the runs that the store lacks and write this report again:"),
        Commands(commands),
        Table("provenance", "Provenance of the runs.", ["property", "values"], rows),
    ]
    if failed:
        parts.append(Bullets([f"failed: {f.run.canonical()}: {f.error}" for f in failed]))
    return Section("repeat", "How to repeat it", parts)


def _value_text(value: Any) -> str:
    return f"{value:.0f}" if isinstance(value, float) else str(value)


def _count_texts(values: Counter[str], total: int) -> list[str]:
    """Return the values, the most frequent first, with their counts if there are several."""
    if len(values) == 1:
        return [next(iter(values))]
    if len(values) > 5:
        ordered = sorted(values, key=lambda v: (len(v), v))
        return [f"{len(values)} values, from {ordered[0]} to {ordered[-1]}"]
    return [f"{value} ({count} of {total})" for value, count in values.most_common()]
