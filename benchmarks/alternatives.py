"""What biv gains over what people already have, and where that is as good or better.

    .venv/bin/python benchmarks/alternatives.py                        all: half an hour, one core
    .venv/bin/python benchmarks/alternatives.py --seeds 1 --quick      two minutes, to see it run
    .venv/bin/python benchmarks/alternatives.py --out alternatives.md  and write it down

Three comparisons, kept apart: formulas (no training), losses (one network, one loop, only the loss
differs), and tools (as people use them: error, fit time, intervals). The data are the shipped ones.
Nothing is chosen on clean labels or on test labels. Libraries that are not installed are left out,
and named in the report. Everything measured is kept in a file as soon as it is there (--cells), and
not measured again as long as the sources of biv and of the measurements (beside) stay the same.
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
    """What one group of methods reaches on one draw of one data set."""
    data, seed, group = cell
    if group == "formulas":
        return formulas()
    if group == "scaling":
        return {"seconds": gp_scaling(quick), "noise": gp_noise()}
    return GROUPS[group][0](data, seed, quick)


def wanted(seeds):
    """All cells, as far as libraries are there."""
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
    """Of what the results depend on; the report is no part of it."""
    found = hashlib.sha256(b"quick" if quick else b"")
    measuring = [path for path in BESIDE.glob("*.py") if path.name != "tables.py"]
    for path in sorted(Path(biv.__file__).parent.rglob("*.py")) + sorted(measuring):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def all_cells(seeds, path, quick):
    """Measure what has not been measured yet; a dictionary of everything."""
    key, done = digest(quick), {}
    path.parent.mkdir(parents=True, exist_ok=True)
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        kept = json.loads(line)
        if kept["sources"] == key:
            done[tuple(kept["cell"])] = kept["result"]
    missing = [cell for cell in wanted(seeds) if cell not in done]
    with path.open("a", encoding="utf-8") as file:
        for cell in tqdm(missing):
            done[cell] = measure(cell, quick)
            kept = {"sources": key, "cell": cell, "result": done[cell]}
            file.write(json.dumps(kept, ensure_ascii=False) + "\n")
            file.flush()
    return done


def report(given):
    """Measure, and yield it as Markdown."""
    cells = all_cells(given.seeds, given.cells, given.quick)
    results = Results(cells, given.seeds)
    libraries = ("scikit-learn", "lightgbm", "gpytorch", "astroNN")
    missing = [
        name for name in libraries if not util.find_spec(name.replace("scikit-learn", "sklearn"))
    ]
    versions = [f"{name} {metadata.version(name)}" for name in libraries if name not in missing]
    yield f"Machine: {machine()}; {', '.join(versions)}."
    yield ""
    if missing:
        yield f"Not installed, and left out: {', '.join(missing)}."
        yield ""
    yield (
        f"Bike Sharing: the shipped year 2011, {TRAIN:,} training rows whose labels have Gamma "
        f"noise of mean variance {NOISE} × the label variance, {TEST:,} test rows with clean "
        "labels; features are the data set's 19, and the hour and the number of the day. Amyloid: "
        f"real error bars, a random fifth for testing, {TRAIN:,} of the others for training. Its "
        "test labels are noisy, and the noise is taken out of the errors: once with weights "
        f"1/(σ²+ε)², ε = {EPSILON}, once with all test labels alike. The two disagree, since its "
        "error bars go with its labels and are larger than the scatter of its labels; the second "
        "rests on the noisiest labels, and may be below 0."
    )
    yield ""
    yield (
        f"Errors are over the label variance, means of {given.seeds} draws (rows, noise, seeds). "
        "In brackets is the paired difference from BIV, or from BIVRegressor(), on the same draw, "
        "with its standard error; where test labels count alike, in units of the error itself. Fit "
        "times are medians of the draws' ratios, on one thread of a machine that others were using."
    )
    yield ""
    yield from formula_tables(cells["", 0, "formulas"])
    yield from loss_tables(results)
    yield from tool_tables(results)
    if ("", 0, "scaling") in cells:
        yield from scaling_table(cells["", 0, "scaling"])


def main():
    """Measure, and publish."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--seeds", type=int, default=3, help="draws of each data set (default: 3)")
    options.add_argument(
        "--quick", action="store_true", help="small and meaningless, to see it run"
    )
    options.add_argument("--cells", type=Path, default=Path("build/bench/alternatives.jsonl"))
    options.add_argument("--out", type=Path, help="a file to write the report to as well")
    given = options.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)  # Adam's moments of letters that a batch does not have
    with threadpool_limits(1):
        publish(report(given), given.out)


if __name__ == "__main__":
    main()
