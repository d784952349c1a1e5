"""The last sections: every training, where it came from, and how to repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from biv.losses import registry
from biv.paper.report.paper_page._contents import Chosen
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.store import Store
from biv.report.parts import Bullets, Cell, Commands, Section, Table, Text


def runs_section(results: Mapping[Run, RunResult]) -> Section:
    """Return a table of every training."""
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
    minimised = registry.get(loss.kind)
    words = [minimised.title]
    if "epsilon" in minimised.settings:
        words.append(f"ε {loss.epsilon:g}")
    if "threshold" in minimised.settings:
        words.append(f"{loss.threshold:.4g}" + ("" if loss.raw_threshold else " μ"))
    if run.optimizer != "adam":
        words.append(f"{run.optimizer} {run.learning_rate:g}")
    return ", ".join(words)


def provenance_section(
    store: Store, chosen: Chosen, results: Mapping[Run, RunResult], place: str
) -> Section:
    """Return the commands that make the page again, and where its runs came from."""
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
