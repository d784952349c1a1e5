"""Options of the paper's commands, and names of the files that they write."""

from __future__ import annotations

import argparse
from pathlib import Path

from biv.paper.presets import PRESETS, ROWS

DEFAULT_DATASET, DEFAULT_PRESET = "bike", "paper"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for data, preset, workers and output."""
    parser.add_argument(
        "--dataset",
        choices=list(ROWS),
        default=DEFAULT_DATASET,
        help="bike: all of Bike Sharing, which is downloaded; bike2011: its first year, which is "
        "included; utkface: UTKFace, which you put at BIV_DATA_DIR/utkface/UTKFace (default: bike)",
    )
    parser.add_argument(
        "--preset",
        choices=list(PRESETS),
        default=DEFAULT_PRESET,
        help="paper: the paper's protocol, 100 epochs, evaluated after every step (utkface: 16,000 "
        "images of 200×200, 20 epochs, needs a GPU); laptop: 60 epochs, evaluated every 7 steps "
        "(utkface: 4,000 images of 64×64, 12 epochs, evaluated every 15 steps, 14 minutes per run "
        "on one core); smoke: a quick check, 20 epochs on 12%% of the rows (utkface: 256 images of "
        "32×32, 3 epochs); thumbnail: utkface only, as in the paper but 32×32 and evaluated every "
        "12 steps (default: paper)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=5,
        help="number of runs per setting, each with its own seed (default: 5)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        help="number of processes (default: one per core, but only one for utkface on a GPU)",
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="train on a cluster instead of this machine. dask://HOST:PORT is a Dask scheduler; "
        "ray is the Ray cluster at RAY_ADDRESS, else the one that runs on this machine, else a new "
        "one; ray:HOST:PORT is a Ray cluster that this machine is a node of. All workers need the "
        "same versions of biv, torch and NumPy, and their own copies of data that are not "
        "included (in their BIV_DATA_DIR)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("biv-results"),
        help="output folder, which also holds the store of runs (default: biv-results)",
    )
    parser.add_argument(
        "--stored", action="store_true", help="train nothing and use only the stored runs"
    )
    parser.add_argument(
        "--list",
        action="store_true",
        help="list the runs and an estimate of the training time, and train nothing",
    )
    parser.add_argument(
        "--no-report",
        action="store_true",
        help="do not write report.html (`biv report` writes it later)",
    )


def check(options: argparse.Namespace) -> None:
    """Check the options that argparse cannot check.

    Raises
    ------
    ValueError
        A number is out of range, --out is a file, or --cluster is invalid or contradicts another
        option.
    """
    if options.cluster is not None:
        from biv.paper.workers import clusters

        clusters.address(options.cluster)
        if options.jobs is not None:
            raise ValueError(
                "give either --jobs (processes of this machine) or --cluster, not both"
            )
        if options.stored or options.list:
            raise ValueError(
                "--cluster cannot be combined with --stored or --list, which train nothing"
            )
    for option, value in (("--seeds", options.seeds), ("--jobs", options.jobs)):
        if value is not None and value < 1:
            raise ValueError(f"{option} must be at least 1; got {value}")
    if options.out.exists() and not options.out.is_dir():
        raise ValueError(f"--out must be a folder; got the file {options.out}")


def store_path(options: argparse.Namespace) -> Path:
    """Return the path of the store in the folder of the results."""
    return Path(options.out) / "runs.sqlite"


def stem(name: str, options: argparse.Namespace) -> str:
    """Return the stem of a file name, with the data set and preset unless both are the default."""
    if (options.dataset, options.preset) == (DEFAULT_DATASET, DEFAULT_PRESET):
        return name
    return f"{name}-{options.dataset}-{options.preset}"
