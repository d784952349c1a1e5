"""Models, folders and stores written by version 0.1 still load and give the same predictions."""

from pathlib import Path
from shutil import copy

import numpy as np
import pandas as pd
import pytest

import biv
from biv.cli import main

SAVED = Path(__file__).parents[1] / "data" / "v0.1"
FEATURES = ["a", "b", "town"]


@pytest.mark.parametrize(
    ("file", "outputs"), [("model.biv", [""]), ("two-outputs.biv", ["0", "1"])]
)
def test_a_model_predicts_the_same(file, outputs, tmp_path):
    rows, expected = (pd.read_csv(SAVED / name) for name in ("table.csv", "predictions.csv"))
    model = biv.BIVRegressor.load(SAVED / file)
    model.save(tmp_path / "again.biv")
    for loaded in (model, biv.BIVRegressor.load(tmp_path / "again.biv")):
        mean, std = loaded.predict(rows[FEATURES], return_std=True)
        for k, output in enumerate(outputs):
            columns = (np.reshape(values, (len(rows), -1))[:, k] for values in (mean, std))
            for name, column in zip(("mean", "std"), columns, strict=True):
                np.testing.assert_allclose(column, expected[name + output], rtol=1e-6, atol=1e-6)


def test_a_folder_predicts_the_same(tmp_path):
    table, out = SAVED / "table.csv", tmp_path / "predictions.csv"
    assert main(["predict", str(SAVED / "folder"), str(table), "-o", str(out)]) == 0
    expected = pd.read_csv(SAVED / "folder-predictions.csv")
    pd.testing.assert_frame_equal(pd.read_csv(out), expected, rtol=1e-6, atol=1e-6)


def test_a_figure_is_drawn_from_a_store(tmp_path, capsys):
    copy(SAVED / "runs.sqlite", tmp_path)
    run = [
        "reproduce",
        "fig03",
        "--dataset",
        "bike2011",
        "--preset",
        "smoke",
        "--seeds",
        "1",
        "--stored",
        "--no-report",
    ]
    assert main([*run, "--out", str(tmp_path)]) == 0
    assert "fig03 (smoke preset)" in capsys.readouterr().out
