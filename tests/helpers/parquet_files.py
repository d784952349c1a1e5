"""Tables in Parquet files, for tests of streams."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def labelled(rows, seed=0, features=3):
    """Return columns x0, …, y and v: a smooth function with noise of known variance v."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1.7, 1.7, size=(rows, features))
    v = rng.gamma(0.5, 2.0, rows) * 100
    y = 100 + 10 * (np.sin(2 * x[:, 0]) + x[:, 1]) + rng.normal(size=rows) * np.sqrt(v)
    return {f"x{k}": x[:, k].astype(np.float32) for k in range(features)} | {"y": y, "v": v}


def write(path, columns, group_rows=200):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path, row_group_size=group_rows)
    return path


def write_folder(folder, sizes=(700, 450, 900), group_rows=200, **settings):
    """Write one file per size; return the columns of all files together."""
    tables = [labelled(size, seed=k, **settings) for k, size in enumerate(sizes)]
    for k, columns in enumerate(tables):
        write(folder / f"part-{k}.parquet", columns, group_rows)
    return {name: np.concatenate([t[name] for t in tables]) for name in tables[0]}
