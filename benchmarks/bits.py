"""Print hashes of what the library computes, to compare before and after a refactoring.

Equal hashes mean equal bits. They depend on the machine, the number of threads and the version of
torch, so only hashes from one machine can be compared. The script uses only public names and the
command; it runs on any version since 0.1.
"""

import argparse
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import biv

SAVED = Path(__file__).parent.parent / "tests" / "data" / "v0.1"


def digest(pieces: Iterable[bytes]) -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 of some bytes."""
    sha256 = hashlib.sha256()
    for piece in pieces:
        sha256.update(piece)
    return sha256.hexdigest()[:16]


def rows(count: int = 1500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, noisy labels and variances of a simulated table."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(count, 5))
    variance = rng.gamma(1.0, 0.6, size=count)
    clean = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2]
    return x, clean + np.sqrt(variance) * rng.normal(size=count), variance


def default_fit(_: Path) -> str:
    """Hash predictions, standard deviations and out-of-fold predictions of a default fit."""
    x, y, variance = rows()
    model = biv.BIVRegressor(random_state=0).fit(x, y, y_var=variance)
    mean, std = model.predict(x, return_std=True)
    return digest(values.tobytes() for values in (mean, std, model.out_of_fold_))


def saved_model(_: Path) -> str:
    """Hash predictions of a model that version 0.1 saved."""
    import pandas as pd

    table = pd.read_csv(SAVED / "table.csv")
    mean, std = biv.BIVRegressor.load(SAVED / "model.biv").predict(
        table[["a", "b", "town"]], return_std=True
    )
    return digest((mean.tobytes(), std.tobytes()))


def _table_1(dataset: str, folder: Path) -> str:
    out = folder / dataset
    options = ["--dataset", dataset, "--preset", "smoke", "--no-report", "--out", str(out)]
    _biv("reproduce", "table1", *options)
    with sqlite3.connect(out / "runs.sqlite") as store:
        curves = store.execute("SELECT key, name, data FROM curves ORDER BY key, name").fetchall()
    return digest(f"{key} {name}".encode() + data for key, name, data in curves)


def table_1_on_half_of_bike(folder: Path) -> str:
    """Hash keys and curves of `biv reproduce table1 --dataset bike2011 --preset smoke`."""
    return _table_1("bike2011", folder)


def table_1_on_bike(folder: Path) -> str:
    """Hash the same on all of Bike Sharing, in stacks of 22 networks; it needs BIV_DATA_DIR."""
    return _table_1("bike", folder)


def stream_by_two_ranks(folder: Path) -> str:
    """Hash networks that two processes train on a table in several files."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.torch import load_file

    x, y, variance = rows(4000)
    table = pd.DataFrame(x, columns=list("abcde")).assign(y=y, v=variance)
    (folder / "table").mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(table)), 3)):
        path = folder / "table" / f"{number}.parquet"
        pq.write_table(pa.Table.from_pandas(table.iloc[part]), path, row_group_size=250)
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    _biv(
        "train",
        *(str(folder / "table"), "--target", "y", "--target-var", "v"),
        *("--batch-size", "60", "--max-epochs", "2", "--out", str(folder / "model")),
        launcher=[*torchrun, "--nproc-per-node", "2"],
    )
    tensors = load_file(folder / "model" / "model.safetensors")
    members = sorted(name for name in tensors if name.startswith("member."))
    return digest(tensors[name].numpy().tobytes() for name in members)


def _biv(*arguments: str, launcher: Iterable[str] = ()) -> None:
    subprocess.run(
        [sys.executable, *launcher, "-m", "biv", *arguments],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        check=True,
    )


MEASURES = (
    default_fit,
    saved_model,
    table_1_on_half_of_bike,
    table_1_on_bike,
    stream_by_two_ranks,
)


def main() -> None:
    """Print one line per hash."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    for measure in MEASURES:
        if measure is table_1_on_bike and "BIV_DATA_DIR" not in os.environ:
            continue
        with tempfile.TemporaryDirectory() as folder:
            print(f"{measure.__name__:24} {measure(Path(folder))}", flush=True)


if __name__ == "__main__":
    main()
