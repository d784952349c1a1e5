"""What the commands on the paper's experiments share: options, listing, training, file names."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biv import _json
from biv.experiments import clusters, runner, stacks
from biv.experiments.artefacts import PRESETS, ROWS, artefacts
from biv.experiments.processes import Processes
from biv.experiments.spec import Run
from biv.experiments.store import Store
from biv.experiments.workers import Workers
from biv.report.page import has_plotly

STORE = "runs.sqlite"
DEFAULT_DATASET, DEFAULT_PRESET = "bike", "paper"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Which data, how much of the protocol, and where to."""
    parser.add_argument(
        "--dataset",
        choices=list(ROWS),
        default=DEFAULT_DATASET,
        help="the whole of Bike Sharing, its shipped first year, or UTKFace, which is not shipped: "
        "put it at BIV_DATA_DIR/utkface/UTKFace (default: bike)",
    )
    parser.add_argument(
        "--preset",
        choices=list(PRESETS),
        default=DEFAULT_PRESET,
        help="paper: 100 epochs, tested after every step (faces: 16,000 of 200×200, 20 epochs, for "
        "a GPU); laptop: 60 epochs, tested after every 7th (faces: 4,000 of 64×64, 12 epochs, "
        "every 15th: 14 minutes a run on a core); smoke: 20 epochs on 12 %% of the rows (faces: "
        "256 of 32×32, 3 epochs), to see that it runs (default: paper)",
    )
    parser.add_argument("--seeds", type=int, default=5, help="runs of everything (default: 5)")
    parser.add_argument(
        "--jobs", type=int, help="processes (default: one a core; of faces on a GPU, one)"
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="train on a cluster instead of this machine: dask://HOST:PORT is a scheduler of Dask; "
        "ray is RAY_ADDRESS, or the Ray that runs on this machine, or one that is started on it; "
        "ray:HOST:PORT is one that this machine is a node of. Every worker needs the same biv and "
        "torch, and data that are not shipped (BIV_DATA_DIR there)",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("biv-results"), help="folder (default: biv-results)"
    )
    parser.add_argument(
        "--stored", action="store_true", help="train nothing: what is stored must do"
    )
    parser.add_argument("--list", action="store_true", help="show what there is and train nothing")
    parser.add_argument(
        "--no-report", action="store_true", help="write no report.html (`biv report` makes it)"
    )


def check(options: argparse.Namespace) -> None:
    """What argparse cannot judge.

    Raises:
        ValueError: A number is out of range, the folder is none, or the cluster cannot be one.
    """
    if options.cluster is not None:
        clusters.address(options.cluster)
        if options.jobs is not None:
            raise ValueError("--jobs are processes of this machine, and --cluster trains elsewhere")
        if options.stored or options.list:
            raise ValueError("--cluster is to train on, and --stored and --list train nothing")
    if options.seeds < 1 or (options.jobs is not None and options.jobs < 1):
        raise ValueError("--seeds and --jobs must be at least 1")
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out must be a folder; found the file {options.out}")


def stem(name: str, options: argparse.Namespace) -> str:
    """The name of a file: results of other data or another preset do not take its place."""
    if (options.dataset, options.preset) == (DEFAULT_DATASET, DEFAULT_PRESET):
        return name
    return f"{name}-{options.dataset}-{options.preset}"


def train_missing(runs: Sequence[Run], options: argparse.Namespace) -> tuple[Store, runner.Plan]:
    """The store with these runs in it, unless they fail or nothing may be trained.

    Raises:
        ValueError: Nothing may be trained, and nothing is stored.
    """
    path = options.out / STORE
    wanted = set(runs)
    if options.stored:
        if not path.exists():
            raise ValueError(f"{path} is not there, and --stored trains nothing")
        store = Store(path, read_only=True)
        stored = len(wanted) - len(store.missing(runs))
        if not stored:
            raise ValueError(
                f"{path} has none of these {len(wanted)} runs ({options.dataset}, "
                f"{options.preset} preset), and --stored trains nothing"
            )
        print(f"{stored} of {len(wanted)} runs are stored.")
        failed = [failure for failure in store.failures() if failure.run in wanted]
        return store, runner.Plan(stored, 0, failed)
    missing = list(dict.fromkeys(runs))
    if path.exists():
        store = Store(path)  # to be written: whoever made the file may have been killed before
        missing = store.missing(runs)
        if not missing:
            print(f"0 runs trained, {len(wanted)} were stored already.")
            return store, runner.Plan(len(wanted), 0, [])
    with closing(_workers(missing, options)) as workers:
        note = workers.require_rows(missing)  # what is not on hand leaves no empty store behind
        if options.cluster:
            about = f"in {workers.count} processes of {options.cluster}"
        else:
            pace = seconds_a_unit(missing[0]) / workers.count
            about = f"about {in_words(runner.rows_forward(missing) * pace)} in "
            about += f"{workers.count} processes"
        there = len(wanted) - len(missing)
        print(f"{len(missing)} runs to train, {there} stored already: {about}.", flush=True)
        if note:
            print(note, flush=True)
        store = Store(path)
        plan = runner.complete(
            runs, store, workers=workers, say=lambda line: print(line, flush=True)
        )
    print(f"{plan.trained} runs trained, {plan.stored} were stored already.")
    return store, plan


def _workers(missing: Sequence[Run], options: argparse.Namespace) -> Workers:
    if options.cluster:
        return clusters.connect(clusters.address(options.cluster))
    return Processes(options.jobs or runner.default_jobs(missing))


@contextmanager
def shown(path: Path) -> Iterator[None]:
    """Name the store where what is stored of its runs is valid and yet cannot be shown.

    Raises:
        ValueError: Something failed inside, or a number was not finite.
    """
    with (
        _json.damaged(path, "cannot be shown"),
        np.errstate(divide="raise", over="raise", invalid="raise"),
    ):
        yield


def write_report(store: Store, options: argparse.Namespace) -> None:
    """The page about all that the store has of these data at this preset, beside it."""
    if options.no_report:
        return
    if not has_plotly():
        print("No report: it needs plotly (pip install plotly).")
        return
    from biv.report import paperpage

    chosen = paperpage.Chosen(options.dataset, options.preset, options.seeds)
    with shown(store.path):
        page = paperpage.page(store, chosen, shlex.quote(str(options.out)))
    print(page.write(options.out / f"{stem('report', options)}.html"), flush=True)


def report_failures(plan: runner.Plan) -> int:
    """Say what could not be trained; the exit code."""
    for failure in plan.failed:
        print(f"failed: {failure.run.canonical()}: {failure.error}")
    return 1 if plan.failed else 0


class Listed(NamedTuple):
    """An artefact or a claim in a listing."""

    name: str
    label: str
    runs: Sequence[Run]
    shows: str


def listing(things: Iterable[Listed], options: argparse.Namespace) -> str:
    """Everything with its runs, what is stored of them, and how long the rest would take."""
    path = options.out / STORE
    store = Store(path, read_only=True) if path.exists() else None  # looking leaves nothing behind
    jobs, pace = options.jobs or 1, None
    rows = [f"{'name':7} {'label':18} {'runs':>5} {'stored':>6} {'to go':>8}  shows"]
    for thing in things:
        if pace is None:
            jobs = options.jobs or runner.default_jobs(thing.runs)
            pace = seconds_a_unit(thing.runs[0])
        missing = store.missing(thing.runs) if store else thing.runs
        time_left = in_words(runner.rows_forward(missing) * pace / jobs)
        rows.append(
            f"{thing.name:7} {thing.label:18} {len(thing.runs):5} "
            f"{len(thing.runs) - len(missing):6} {time_left:>8}  {thing.shows}"
        )
    rows.append(
        f"\nTimes are estimates for {jobs} processes on this machine, each line by itself; "
        "runs that several share are trained once."
    )
    return "\n".join(rows)


def in_words(seconds: float) -> str:
    """A duration for people."""
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def seconds_a_unit(run: Run) -> float:
    """What a row of this kind passed forward costs one process here, measured on a few of them."""
    if run.pixels is not None:
        return runner.seconds_an_image(run.pixels)
    sample = artefacts("bike2011", PRESETS["smoke"])["table1"].runs(1)
    stacks.train(sample[:2])  # the data set is read, the library warm
    start = time.perf_counter()
    stacks.train(sample)
    return (time.perf_counter() - start) / runner.rows_forward(sample)
