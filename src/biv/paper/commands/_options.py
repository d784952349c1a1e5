"""Options of the paper's commands, and the names of the files that they write."""

from __future__ import annotations

import argparse
from pathlib import Path

from biv.paper.presets import PRESETS, ROWS

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
        "every 15th: 14 minutes a run on a core); smoke: 20 epochs on 12%% of the rows (faces: "
        "256 of 32×32, 3 epochs), to see that it runs; thumbnail: of faces alone, as in the paper "
        "but 32×32, tested after every 12th step (default: paper)",
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
        from biv.paper.workers import clusters

        clusters.address(options.cluster)
        if options.jobs is not None:
            raise ValueError("--jobs are processes of this machine, and --cluster trains elsewhere")
        if options.stored or options.list:
            raise ValueError("--cluster is to train on, and --stored and --list train nothing")
    if options.seeds < 1 or (options.jobs is not None and options.jobs < 1):
        raise ValueError("--seeds and --jobs must be at least 1")
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out must be a folder; got the file {options.out}")


def store_path(options: argparse.Namespace) -> Path:
    """Return the path of the store in the folder of the results."""
    return Path(options.out) / "runs.sqlite"


def stem(name: str, options: argparse.Namespace) -> str:
    """The name of a file: results of other data or another preset do not take its place."""
    if (options.dataset, options.preset) == (DEFAULT_DATASET, DEFAULT_PRESET):
        return name
    return f"{name}-{options.dataset}-{options.preset}"
