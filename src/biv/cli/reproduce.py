"""`biv reproduce`: the paper's table and figures, trained where they are missing."""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from biv.cli import experiments
from biv.experiments import runner
from biv.experiments.artefacts import PRESETS, Artefact, Preset, artefacts, find
from biv.experiments.spec import Run
from biv.experiments.store import Store
from biv.report import figures, lines, tables

EXAMPLES = """examples:
  biv reproduce table1                                  the table, on the whole of Bike Sharing
  biv reproduce fig03 varnoise                          figures, by number or by the paper's name
  biv reproduce all --jobs 2 --out results              everything, in two processes
  biv reproduce table1 --dataset bike2011 --preset laptop     on shipped data, in a minute
  biv reproduce --list                                  every artefact, its runs, its time here

Runs are kept in OUT/runs.sqlite. What is there is not trained again; what is interrupted loses the
stacks in flight only.
"""


def add_to(commands: Any) -> None:
    """Add this command to the parser's."""
    parser = commands.add_parser(
        "reproduce",
        help="the paper's table and figures",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", metavar="ARTEFACT", help="table1, fig01 to fig15, or all"
    )
    parser.add_argument("--list", action="store_true", help="show every artefact and train nothing")
    experiments.add_options(parser)
    parser.set_defaults(call=call)


def call(options: argparse.Namespace) -> int:
    """Train what is missing, then draw everything from the store."""
    experiments.check(options)
    preset = PRESETS[options.preset]
    known = artefacts(options.dataset, preset)
    if "all" in options.names or (options.list and not options.names):
        chosen = list(known.values())
    else:
        chosen = list(dict.fromkeys(find(name, known) for name in options.names))
    if options.list:
        path = options.out / experiments.STORE
        store = Store(path) if path.exists() else None  # looking leaves nothing behind
        print(listing(chosen, store, options.seeds, options.jobs or os.cpu_count() or 1))
        return 0
    if not chosen:
        raise ValueError("name what to reproduce, such as table1, fig03 or all; --list shows them")
    if importlib.util.find_spec("matplotlib") is None:  # before the training, not after it
        raise ValueError("the figures need matplotlib: pip install matplotlib, or biv[paper]")
    runs = [run for artefact in chosen for run in artefact.runs(options.seeds)]
    store, plan = experiments.train_missing(runs, options)
    for artefact in chosen:
        write(artefact, store, options.seeds, preset, options.out)
    return experiments.report_failures(plan)


def write(artefact: Artefact, store: Store, seeds: int, preset: Preset, folder: Path) -> None:
    """An artefact from the store alone: files, and what a person wants to see at once."""
    results = store.results(artefact.runs(seeds))
    folder.mkdir(parents=True, exist_ok=True)
    caption = figures.caption(artefact, results, seeds)
    paths = figures.save(figures.draw(artefact, results, seeds, caption), folder, artefact.name)
    texts = {}
    if artefact.name == "table1":
        columns = tables.cells(artefact, results, seeds)
        table = tables.markdown(columns)
        texts = {"csv": tables.comma_separated(columns), "tex": tables.latex(columns)}
    else:
        table = lines.numbers(artefact, results, seeds)
    texts["md"] = f"{table}\n\n{caption}\n"
    for suffix, text in texts.items():
        paths.append(folder / f"{artefact.name}.{suffix}")
        paths[-1].write_text(text, encoding="utf-8")
    print(f"\n{table}\n")
    print(f"{artefact.name} ({preset.name} preset): {caption}")
    print("  " + "  ".join(str(path) for path in paths), flush=True)


def listing(known: Iterable[Artefact], store: Store | None, seeds: int, jobs: int) -> str:
    """Every artefact, its runs, what is stored of them, and how long the rest would take."""
    pace = seconds_a_unit()
    rows = [f"{'name':7} {'label':18} {'runs':>5} {'stored':>6} {'to go':>8}  shows"]
    for artefact in known:
        runs = artefact.runs(seeds)
        missing = store.missing(runs) if store else runs
        seconds = runner.rows_forward(missing) * pace / jobs
        time_left = f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"
        rows.append(
            f"{artefact.name:7} {artefact.label:18} {len(runs):5} {len(runs) - len(missing):6} "
            f"{time_left:>8}  {artefact.shows}"
        )
    rows.append(
        f"\nTimes are estimates for {jobs} processes on this machine, each artefact by itself; "
        "runs that several share are trained once."
    )
    return "\n".join(rows)


def seconds_a_unit() -> float:
    """What a row passed forward costs here, measured on a few epochs of a small stack."""
    sample: Sequence[Run] = artefacts("bike2011", PRESETS["smoke"])["table1"].runs(1)
    runner.train(sample[:2])  # the data set is read, the library warm
    start = time.perf_counter()
    runner.train(sample)
    return (time.perf_counter() - start) / runner.rows_forward(sample)
