"""Compare biv with other libraries: where it is better, and where they are as good or better.

    .venv/bin/python benchmarks/alternatives.py                        all: half an hour, one core
    .venv/bin/python benchmarks/alternatives.py --seeds 1 --quick      a test run of two minutes
    .venv/bin/python benchmarks/alternatives.py --out alternatives.md  writes the report to a file

There are three separate comparisons: formulas (without training), losses (the same network and
loop with different losses), and tools (error, fit time and intervals with usual settings). The data
are included in biv. Nothing is chosen on clean labels or on test labels. Libraries that are not
installed are left out and named in the report. Each result is saved to a file at once (--cells). It
is not measured again as long as the sources of biv and of the folder `beside` stay the same.
"""

import argparse
import hashlib
import json
from importlib import metadata, util
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import biv
from beside.data import DATA, EPSILON, NOISE, SMALL, SMOOTH, TEST, TRAIN
from beside.formulas import formulas
from beside.gaussian import gp_noise, gp_scaling, processes
from beside.losses import networks
from beside.tables import Results, formula_tables, loss_tables, scaling_table, tool_tables
from beside.tools import few_rows, regressors, scikit_learn, trees
from machine import machine, publish

BESIDE = Path(__file__).parent / "beside"
GROUPS = {
    "networks": (networks, None),
    "regressors": (regressors, None),
    "scikit-learn": (scikit_learn, None),
    "lightgbm": (trees, "lightgbm"),
    "gpytorch": (processes, "gpytorch"),
    "few": (few_rows, None),
}


def measure(cell, quick):
    """Return the results of one group of methods on one draw of one data set."""
    data, seed, group = cell
    if group == "formulas":
        return formulas()
    if group == "scaling":
        return {"seconds": gp_scaling(quick), "noise": gp_noise()}
    return GROUPS[group][0](data, seed, quick)


def cells_of(seeds):
    """Yield all cells whose libraries are installed."""
    yield "", 0, "formulas"
    if util.find_spec("gpytorch"):
        yield "", 0, "scaling"
    for seed in range(seeds):
        for data in DATA:
            for group, (_, library) in GROUPS.items():
                if library is None or util.find_spec(library):
                    yield data, seed, group
        yield SMOOTH, seed, "few"
        yield SMALL, seed, "few"


def digest(quick):
    """Return a digest of the sources that the results depend on, without those of the report."""
    sha256 = hashlib.sha256(b"quick" if quick else b"")
    measuring = [path for path in BESIDE.glob("*.py") if path.name != "tables.py"]
    for path in sorted(Path(biv.__file__).parent.rglob("*.py")) + sorted(measuring):
        sha256.update(path.read_bytes())
    return sha256.hexdigest()[:16]


def all_cells(seeds, path, quick):
    """Measure the cells that are not in the file, and return the results of all cells."""
    key, done = digest(quick), {}
    path.parent.mkdir(parents=True, exist_ok=True)
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        entry = json.loads(line)
        if entry["sources"] == key:
            done[tuple(entry["cell"])] = entry["result"]
    missing = [cell for cell in cells_of(seeds) if cell not in done]
    with path.open("a", encoding="utf-8") as file:
        for cell in tqdm(missing):
            done[cell] = measure(cell, quick)
            entry = {"sources": key, "cell": cell, "result": done[cell]}
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            file.flush()
    return done


def report(options):
    """Measure, and yield the report as lines of Markdown."""
    cells = all_cells(options.seeds, options.cells, options.quick)
    results = Results(cells, options.seeds)
    libraries = ("scikit-learn", "lightgbm", "gpytorch", "astroNN")
    missing = [
        name for name in libraries if not util.find_spec(name.replace("scikit-learn", "sklearn"))
    ]
    versions = [f"{name} {metadata.version(name)}" for name in libraries if name not in missing]
    yield f"Machine: {machine()}; {', '.join(versions)}."
    yield ""
    if missing:
        yield f"Left out, because not installed: {', '.join(missing)}."
        yield ""
    yield (
        f"**Bike Sharing** is the included year 2011. The labels of {TRAIN:,} training rows have "
        f"noise whose variances follow a Gamma distribution with a mean of {NOISE} × the label "
        f"variance; the labels of {TEST:,} test rows are clean. The features are the 19 of the "
        "data set, the hour, and the number of the day."
    )
    yield ""
    yield (
        f"**Amyloid** has real error bars. A random fifth of the rows is for testing, {TRAIN:,} of "
        "the others are for training. Its test labels are noisy, so that the errors are "
        f"noise-corrected in two ways: with weights 1/(σ²+ε)², ε = {EPSILON}, and with all test "
        "labels weighted alike. The two scores disagree, because the error bars depend on the "
        "labels and are larger than their scatter. The second score is dominated by the noisiest "
        "labels and can be negative."
    )
    yield ""
    yield (
        f"Errors are in units of the label variance and are means of {options.seeds} draws (of "
        "rows, noise and seeds). Parentheses show the paired difference from BIV, or from "
        "BIVRegressor(), on the same draw, with its standard error; it is in percent, or, where "
        "all test labels are weighted alike, in units of the label variance. Fit times are medians "
        "of the ratios of the draws, on one thread of a shared machine."
    )
    yield ""
    yield from formula_tables(cells["", 0, "formulas"])
    yield from loss_tables(results)
    yield from tool_tables(results)
    if ("", 0, "scaling") in cells:
        yield from scaling_table(cells["", 0, "scaling"])


def main():
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, default=3, help="number of draws of each data set (default: 3)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a test run with small, meaningless settings"
    )
    parser.add_argument(
        "--cells",
        type=Path,
        default=Path("build/bench/alternatives.jsonl"),
        help="file with the results so far (default: build/bench/alternatives.jsonl)",
    )
    parser.add_argument("--out", type=Path, help="file that the report is also written to")
    options = parser.parse_args()
    torch.set_num_threads(1)
    # Adam's moments decay to denormal numbers for letters that no batch contains.
    torch.set_flush_denormal(True)
    with threadpool_limits(1):
        publish(report(options), options.out)


if __name__ == "__main__":
    main()
