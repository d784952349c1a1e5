"""Tables and runs for tests of commands."""

import pandas as pd

from biv.cli import main
from helpers.frames import frame

SMALL = ["--members", "4", "--max-epochs", "5"]
COLUMNS = ["--target", "y", "--target-std", "s"]
WHOLE = {"model.safetensors", "about.json", "evidence.json", "report.html"}  # a finished folder


def data(path, rows=150, seed=0):
    """Numbers, truth values, categories, gaps; and a date."""
    whole, y, std, _ = frame(rows, seed)
    whole["day"] = pd.date_range("2024-01-01", periods=rows).strftime("%Y-%m-%d")
    whole["y"], whole["s"] = y, std
    if path.suffix == ".parquet":
        whole.to_parquet(path, index=False)
    else:
        whole.to_csv(path, index=False)
    return path


def run(*arguments):
    return main([str(a) for a in arguments])
