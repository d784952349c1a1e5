"""Tables and calls for tests of commands."""

import pandas as pd

from biv.cli import main
from helpers.frames import frame

SMALL = ["--members", "4", "--max-epochs", "5"]
COLUMNS = ["--target", "y", "--target-std", "s"]
WHOLE = {
    "model.safetensors",
    "about.json",
    "evidence.json",
    "report.html",
}  # files of a finished folder


def data(path, rows=150, seed=0):
    """Write a table with numbers, booleans, categories, missing cells and a date."""
    table, y, std, _ = frame(rows, seed)
    table["day"] = pd.date_range("2024-01-01", periods=rows).strftime("%Y-%m-%d")
    table["y"], table["s"] = y, std
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
    else:
        table.to_csv(path, index=False)
    return path


def run(*arguments):
    return main([str(a) for a in arguments])
