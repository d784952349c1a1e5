"""Numbers too large for a prediction or a fit, in files: errors name row and column."""

import numpy as np
import pandas as pd
import pytest

from biv.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def table(rows=60):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2)).round(3)
    day = pd.date_range("2024-01-01", periods=rows).strftime("%Y-%m-%d")
    y = (x[:, 0] + rng.normal(size=rows) / 2).round(3)
    columns = {"a": x[:, 0], "b": x[:, 1], "day": day, "y": y, "err": 0.5}
    return pd.DataFrame(columns).astype({"a": object, "y": object, "err": object})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    table().to_csv(path / "train.csv", index=False)
    small = ["--members", "8", "--max-epochs", "2", "--seed", "0"]
    train = ["train", str(path / "train.csv"), "--target", "y", "--target-std", "err"]
    assert main([*train, *small, "--out", str(path / "model")]) == 0
    return path


def test_the_command_names_the_row_and_column_that_no_prediction_is_finite_for(
    folder, tmp_path, capsys
):
    one, two = table(), table()
    two.loc[7, "a"] = "4e38"
    one.to_csv(tmp_path / "1.csv", index=False)
    two.to_csv(tmp_path / "2.csv", index=False)
    out = tmp_path / "out.csv"
    files = [str(tmp_path / name) for name in ("1.csv", "2.csv")]
    assert main(["predict", str(folder / "model"), *files, "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert (
        "2.csv, row 8, column 'a' must be a number that the model has a finite prediction" in said
    )
    assert "found '4e38'" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.csv", "2.csv"]


@pytest.mark.parametrize(
    ("column", "cell", "wanted"),
    [
        ("y", "1e300", "at most 1e+75 in size"),
        ("err", "1e200", "at most 1e+75, or inf for a label to ignore"),
    ],
)
@pytest.mark.parametrize("stream", [[], ["--stream"]], ids=["memory", "stream"])
def test_labels_and_error_bars_whose_powers_overflow_are_named(
    tmp_path, capsys, column, cell, wanted, stream
):
    bad = table()
    bad.loc[7, column] = cell
    path = tmp_path / "bad.csv"
    if stream:
        path = tmp_path / "bad.parquet"
        bad.astype({"a": float, "y": float, "err": float}).to_parquet(path)
    else:
        bad.to_csv(path, index=False)
    train = ["train", str(path), "--target", "y", "--target-std", "err", *stream]
    assert main([*train, "--out", str(tmp_path / "model")]) == 2
    said = capsys.readouterr().err
    assert f"row 8, column '{column}' must be {wanted}" in said
