"""Errors name the row and column of numbers that are too large for a prediction or a fit."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from biv.cli import main
from biv.datasets import read_table

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


def test_predict_names_the_row_and_column_without_a_finite_prediction(folder, tmp_path, capsys):
    one, two = table(), table()
    two.loc[7, "a"] = "4e38"
    one.to_csv(tmp_path / "1.csv", index=False)
    two.to_csv(tmp_path / "2.csv", index=False)
    out = tmp_path / "out.csv"
    files = [str(tmp_path / name) for name in ("1.csv", "2.csv")]
    assert main(["predict", str(folder / "model"), *files, "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert (
        "2.csv, row 8, column 'a' must be a number that the model has a finite prediction" in error
    )
    assert "got '4e38'" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.csv", "2.csv"]


@pytest.mark.parametrize("command", ["train", "inspect"])
def test_a_row_of_infinite_variance_without_a_finite_prediction_is_named(command, tmp_path, capsys):
    large = table()
    large.loc[7, "a"], large.loc[7, "err"], large.loc[3, "y"] = "4e38", np.inf, np.nan
    large.to_csv(tmp_path / "t.csv", index=False)
    arguments = [command, str(tmp_path / "t.csv"), "--target", "y", "--target-std", "err"]
    small = ["--members", "8", "--max-epochs", "2", "--out", str(tmp_path / "m")]
    assert main(arguments + small * (command == "train")) == 2
    error = capsys.readouterr().err
    assert "t.csv, row 8, column 'a' must be a number that the model has a finite pred" in error
    assert "got 4e+38" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("y", "1e300", "at most 1e+75 in magnitude"),
        ("err", "1e200", "at most 1e+75, or inf for a label to ignore"),
    ],
)
@pytest.mark.parametrize("stream", [[], ["--stream"]], ids=["memory", "stream"])
def test_labels_and_error_bars_whose_powers_overflow_are_named(
    tmp_path, capsys, column, cell, expected, stream
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
    error = capsys.readouterr().err
    assert f"row 8, column '{column}' must be {expected}" in error


@pytest.mark.parametrize(
    ("cells", "shown"),
    [
        (pa.array([2**50], pa.timestamp("ms")), "<value out of range: 1125899906842624>"),
        (pa.array([2**30], pa.date32()), "<value out of range: 1073741824>"),
    ],
)
def test_a_date_outside_python_s_range_is_named_like_any_other_cell(tmp_path, cells, shown):
    path = tmp_path / "d.parquet"
    pq.write_table(pa.table({"a": pa.array([1.0]), "y": cells}), path)
    with pytest.raises(ValueError, match=rf"d\.parquet, row 1, column 'y' must be .*'{shown}'"):
        read_table(path, target="y")


@pytest.mark.parametrize(
    ("change", "names", "message"),
    [
        (lambda t: t.assign(y=1.0), {"y": "Y"}, "nothing can be learned"),
        (lambda t: t.assign(err=0.0), {"err": "E"}, "every error bar in column"),
        (lambda t: t.assign(err=np.nan), {"err": "E"}, "no error bar in column"),
        (lambda t: t.assign(y=np.nan), {"y": "Y"}, "must have rows with a"),
        (lambda t: t.assign(a=t.y), {"a": "A", "y": "Y"}, "must not repeat the label"),
        (
            lambda t: t.assign(a=t.a.where(t.index > 3), b=range(len(t)), y=t.y.where(t.index > 3)),
            {"a": "A", "b": "B", "y": "Y"},
            "mostly distinct integers",
        ),
        (lambda t: t.assign(day=[f"t {k}" for k in range(len(t))]), {"day": "D"}, "was left out"),
    ],
)
def test_a_long_name_of_a_column_does_not_fill_the_screen(tmp_path, capsys, change, names, message):
    long = {name: 5000 * letter for name, letter in names.items()}
    frame = table(rows=120).astype({"a": float, "y": float, "err": float})
    change(frame).rename(columns=long).to_csv(tmp_path / "d.csv", index=False)
    columns = ["--target", long.get("y", "y"), "--target-std", long.get("err", "err")]
    main(["inspect", str(tmp_path / "d.csv"), *columns])
    printed = capsys.readouterr().err
    assert message in printed
    assert "5,000 characters" in printed
    assert max(map(len, printed.splitlines())) < 1000
