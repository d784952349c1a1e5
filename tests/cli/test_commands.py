"""The commands on tables, from file to prediction, and their errors on bad input."""

import dataclasses
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import biv
from biv.tables import files
from biv.training.stack import Stack
from biv.workflows import ModelFolder, train, training_record
from helpers.commands import COLUMNS, SMALL, WHOLE, data, run


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    path = data(folder / "data.csv")
    assert run("train", path, *COLUMNS, *SMALL, "--out", folder / "model") == 0
    return folder / "model"


@pytest.mark.slow
def test_the_included_amyloid_table_from_file_to_prediction(here, capsys):
    shipped = Path(biv.datasets.__file__).parent / "data" / "amyloid.csv.gz"
    with gzip.open(shipped, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    (here / "known.csv").write_text("\n".join(lines[:1501]), encoding="utf-8")
    (here / "new.csv").write_text("\n".join([lines[0], *lines[1501:2001]]), encoding="utf-8")
    columns = ["--target", "y", "--target-std", "dy", "--features", "x"]
    assert run("inspect", "known.csv", *columns) == 0
    assert (here / "biv-inspect.png").exists()
    assert run("train", "known.csv", *columns, *SMALL) == 0
    assert run("predict", "biv-model", "new.csv") == 0
    shown = capsys.readouterr().out
    assert "1,500 rows from 1 file; 1 column to learn from (1 sequence)." in shown
    assert (
        "500 rows predicted: 'prediction' is the predicted true label, 'prediction_std' its "
        "standard deviation.\npredictions.csv"
    ) in shown
    predictions = pd.read_csv("predictions.csv")
    pd.testing.assert_frame_equal(predictions[list(predictions)[:-2]], pd.read_csv("new.csv"))
    r2 = biv.metrics.noise_corrected_r2(
        predictions["prediction"].to_numpy(),
        predictions["y"].to_numpy(),
        predictions["dy"].to_numpy() ** 2,
    )
    assert r2.value > 0.1
    scaled = (predictions["prediction"] - predictions["y"]) / np.sqrt(
        predictions["prediction_std"] ** 2 + predictions["dy"] ** 2
    )
    assert 0.5 < scaled.std() < 1.5


def test_a_model_folder_equals_the_estimator_fitted_on_the_table(model):
    folder = ModelFolder.read(model)
    table = biv.tables.LabelledTable.read(model.parent / "data.csv", folder.target)
    fitted = biv.BIVRegressor(members=4, folds=4, max_epochs=5, random_state=0)
    with pytest.warns(UserWarning, match="max_epochs"):
        fitted.fit(table.features, table.y, y_var=table.variance)
    part = next(files.Files(model.parent / "data.csv").parts())
    mean, std = fitted.predict(table.features, return_std=True)
    np.testing.assert_array_equal(folder.predict(part)[:2], (mean, std))
    assert folder.about.result.epsilon == pytest.approx(fitted.epsilon_)
    assert folder.about.rows == 150
    assert {path.name for path in model.iterdir()} == WHOLE
    assert folder.about.peak_memory_bytes > 1e7


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".parquet"])
def test_predictions_are_added_to_the_unchanged_cells(model, suffix, here, monkeypatch):
    frame = pd.read_csv(model.parent / "data.csv", dtype=str, keep_default_na=False)
    frame["free text"] = 'a "quoted", one\nwith two lines'
    frame["number"] = "007"
    path = here / f"new{suffix}"
    if suffix == ".parquet":
        data(path)
    else:
        frame.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    assert run("predict", model, path) == 0
    out = here / f"predictions{suffix}"
    if suffix == ".parquet":
        predictions = pd.read_parquet(out)
        pd.testing.assert_frame_equal(predictions[list(predictions)[:-2]], pd.read_parquet(path))
    else:
        how = {"dtype": str, "keep_default_na": False, "sep": "\t" if suffix == ".tsv" else ","}
        predictions = pd.read_csv(out, **how)
        pd.testing.assert_frame_equal(predictions[list(predictions)[:-2]], frame)
    monkeypatch.setattr(files, "ROWS", 11)
    monkeypatch.setattr(files, "BLOCK", 900)
    again = here / f"again{suffix}"
    assert run("predict", model, path, "--out", again) == 0
    parts = pd.read_parquet(again) if suffix == ".parquet" else pd.read_csv(again, **how)
    for name in ("prediction", "prediction_std"):
        np.testing.assert_allclose(
            parts[name].astype(float), predictions[name].astype(float), rtol=1e-5
        )


def test_predict_requires_the_columns_of_training_only(model, here, capsys):
    frame = pd.read_csv(model.parent / "data.csv")
    frame.drop(columns=["y", "s"]).head(1).to_csv("one.csv", index=False)
    assert run("predict", model, "one.csv", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result == {
        "out": "predictions.csv",
        "rows": 1,
        "columns": ["prediction", "prediction_std"],
    }
    frame.rename(columns={"town": "Town"}).to_csv("other.csv", index=False)
    assert run("predict", model, "other.csv", "--out", "x.csv") == 2
    assert "other.csv must have a column 'town'; did you mean 'Town'?" in capsys.readouterr().err
    frame.assign(a="abc").to_csv("text.csv", index=False)
    assert run("predict", model, "text.csv", "--out", "x.csv") == 2
    assert "text.csv, row 1, column 'a' must be a number; got 'abc'" in capsys.readouterr().err
    assert run("predict", model, "predictions.csv", "--out", "x.csv") == 2
    assert "already has a column 'prediction': choose another name" in capsys.readouterr().err
    assert run("predict", model, "predictions.csv", "--out", "x.csv", "--name", "y_hat") == 0
    assert list(pd.read_csv("x.csv"))[-2:] == ["y_hat", "y_hat_std"]
    assert run("predict", model, "one.csv", "--out", "x.parquet") == 2
    assert "x.parquet must be of the kind of the files: .csv" in capsys.readouterr().err
    assert sorted(p.name for p in here.iterdir()) == ["one.csv", "other.csv", "predictions.csv", "text.csv", "x.csv"]  # fmt: skip


@pytest.mark.slow
def test_nothing_is_overwritten_without_force(model, here, capsys):
    path = data(here / "data.csv")
    Path("predictions.csv").write_text("mine")
    assert run("predict", model, path) == 2
    assert "predictions.csv already exists: --force replaces it" in capsys.readouterr().err
    assert Path("predictions.csv").read_text() == "mine"
    assert run("predict", model, path, "--force") == 0
    assert run("train", path, *COLUMNS, *SMALL, "--out", "m") == 0
    first = Path("m/model.safetensors").read_bytes()
    assert run("train", path, *COLUMNS, *SMALL, "--out", "m", "--seed", "1") == 2
    assert "m already holds a model: --force replaces it" in capsys.readouterr().err
    assert Path("m/model.safetensors").read_bytes() == first
    assert run("train", path, *COLUMNS, *SMALL, "--out", "m", "--seed", "1", "--force") == 0
    assert Path("m/model.safetensors").read_bytes() != first
    assert run("inspect", path, *COLUMNS) == 0
    assert run("inspect", path, *COLUMNS) == 0
    assert Path("biv-inspect.png").exists()
    assert Path("biv-inspect-2.png").exists()
    assert run("inspect", path, *COLUMNS, "--picture", "biv-inspect.png") == 2
    assert "biv-inspect.png already exists" in capsys.readouterr().err
    Path("other").mkdir()
    Path("other/thesis.txt").write_text("mine")
    assert run("train", path, *COLUMNS, *SMALL, "--out", "other", "--force") == 2
    assert (
        "other must be empty, or a model folder; it contains 'thesis.txt'"
        in capsys.readouterr().err
    )


@pytest.mark.slow
def test_interrupted_training_resumes_to_the_same_model(here, monkeypatch, capsys):
    path = data(here / "data.csv")
    options = [path, *COLUMNS, "--members", "8", "--max-epochs", "20"]
    assert run("train", *options, "--out", "straight") == 0
    real, epochs = Stack.run_epoch, []

    def interrupted(stack, *rest):
        if len(stack.members) == 8 and stack.epoch == 15:  # pilots have fewer members
            raise KeyboardInterrupt
        real(stack, *rest)

    def counted(stack, *rest):
        if len(stack.members) == 8:
            epochs.append(stack.epoch)
        real(stack, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(Stack, "run_epoch", interrupted)
        assert run("train", *options, "--out", "m") == 130
    (left,) = Path("m").iterdir()
    assert re.fullmatch(r"unfinished-[0-9a-f]{12}\.pt", left.name)
    assert run("predict", "m", path) == 2
    assert "got an unfinished training run (train again to resume it)" in capsys.readouterr().err
    assert run("train", *options, "--out", "m", "--seed", "1") == 2
    assert (
        "unfinished run with other rows or settings: --force discards it" in capsys.readouterr().err
    )
    with monkeypatch.context() as patch:
        patch.setattr(Stack, "run_epoch", counted)
        assert run("train", *options, "--out", "m") == 0
    assert "resuming the training in m" in capsys.readouterr().err
    assert epochs == [15, 16, 17, 18, 19]
    assert {p.name for p in Path("m").iterdir()} == WHOLE
    one, two = (biv.BIVRegressor.load(Path(m) / "model.safetensors") for m in ("m", "straight"))
    assert np.array_equal(one.out_of_fold_, two.out_of_fold_)


def test_threads_and_terminals_do_not_identify_a_training(model):
    folder = ModelFolder.read(model)
    table = biv.tables.LabelledTable.read(model.parent / "data.csv", folder.target)
    settings = {"random_state": 0, "n_jobs": 1, "verbose": True}
    digest = train._digest(table, settings)
    assert train._digest(table, settings | {"n_jobs": 2, "verbose": False}) == digest
    assert train._digest(table, settings | {"random_state": 1}) != digest
    other = dataclasses.replace(table, y=table.y + 1)
    assert train._digest(other, settings) != digest


def test_a_forced_training_keeps_the_old_model_until_it_has_finished(here, monkeypatch, capsys):
    path = data(here / "data.csv")
    assert run("train", path, *COLUMNS, *SMALL, "--out", "m") == 0

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Stack, "run_epoch", interrupted)
        assert run("train", path, *COLUMNS, *SMALL, "--seed", "1", "--out", "m", "--force") == 130
    assert run("predict", "m", path) == 0
    assert run("train", path, *COLUMNS, *SMALL, "--out", "m") == 2
    assert "m already holds a model" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_leaves_no_half_written_file(model, here):
    """A signal as of a terminal, in the middle of a long prediction."""
    frame = pd.read_csv(model.parent / "data.csv")
    pd.concat([frame] * 2000).to_csv("long.csv", index=False)
    code = "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); from biv.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "predict", str(model), "long.csv"],
        stderr=subprocess.PIPE,
        text=True,
    )
    for _ in range(600):
        if any(p.name.startswith(".predictions.csv") and p.stat().st_size for p in here.iterdir()):
            break
        time.sleep(0.05)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    _, output = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "Traceback" not in output
    assert [p.name for p in here.iterdir()] == ["long.csv"]


LINES = ["x,y,s", *(f"{k % 7},{k % 5 + 0.5},{1 + k % 3}" for k in range(60))]


@pytest.mark.parametrize(
    ("lines", "options", "message"),
    [
        (LINES, ["--target", "Y", "--target-std", "s"], "must have a column 'Y'; did you mean 'y'?"),
        (LINES, ["--target", "y", "--target-std", "std"], "must have a column 'std'; did you mean 's'?"),
        ([*LINES, "1,high,1"], COLUMNS, "data.csv, row 61, column 'y' must be a number; got 'high'"),
        ([*LINES, "1,2,-1"], COLUMNS, "data.csv, row 61, column 's' must be non-negative, because it is an error bar; got '-1'"),
        ([LINES[0], *(line[:-1] + "0" for line in LINES[1:])], COLUMNS, "every error bar in column 's' is 0"),
        ([LINES[0], *(line[:-1] + "inf" for line in LINES[1:])], COLUMNS, "every error bar in column 's' is infinite"),
        ([*LINES[:2], *(line[:-1] + "inf" for line in LINES[2:])], COLUMNS, "data.csv must have at least 2 labels with a finite error bar and a positive weight; got 1"),
        ([LINES[0], *(line[:-1] for line in LINES[1:])], COLUMNS, "no error bar in column 's' is known: leave the column out"),
        (LINES[:2], COLUMNS, "rows with a label; got 1"),
        (LINES[:1], COLUMNS, "there are no rows in data.csv"),
        (["x,y,s", *(f"{k},7,{1 + k % 3}" for k in range(60))], COLUMNS, "every label in column 'y' is 7: nothing can be learned"),
        (["y,s", *(line[2:] for line in LINES[1:])], COLUMNS, "must have a column to learn from; got none"),
        (LINES, [*COLUMNS, "--features", "x", "y"], "'y' is the label, so it cannot also be a feature"),
        (LINES, ["--target", "y", "--target-interval", "x", "s", "--level", "2"], "level must be"),
        (LINES, [*COLUMNS, "--seed", "-1"], "--seed must be non-negative; got -1"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["inspect", "train", "compare"])
def test_bad_input(command, lines, options, message, here, capsys):
    Path("data.csv").write_text("\n".join(lines) + "\n")
    assert run(command, "data.csv", *options) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert "Traceback" not in output.err
    assert [path.name for path in here.iterdir()] == ["data.csv"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([*COLUMNS, "--seed", "99999999999"], "--seed must be less than 2**32"),
        ([*COLUMNS, "--comparison", "none.json"], "none.json does not exist"),
        (
            ["--target", "y", "--loss", "iv"],
            "--loss iv needs --target-var or --target-std; got neither",
        ),
        (
            ["--target", "y", "--calibrate-variance"],
            "biv: --calibrate-variance needs --target-var or --target-std",
        ),
        (
            [*COLUMNS, "--loss", "cutoff", "--threshold", "-1"],
            "--threshold must be a finite number > 0; got -1",
        ),
        (
            [*COLUMNS, "--loss", "cutoff", "--threshold", "1e-9"],
            "--loss cutoff needs a label with a variance below --threshold 1e-09",
        ),
        ([*COLUMNS, "--jobs", "0"], "--jobs must be at least 1, or -1 for all cores; got 0"),
    ],
)
@pytest.mark.usefixtures("here")
def test_errors_of_train_name_its_options(options, message, capsys):
    Path("data.csv").write_text("\n".join(LINES) + "\n")
    assert run("train", "data.csv", *options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "train", "compare"])
def test_files_that_do_not_exist(command, here, capsys):
    (here / "empty").mkdir()
    assert run(command, "empty", *COLUMNS) == 2
    assert "empty must contain tables" in capsys.readouterr().err
    assert run(command, "gone.csv", *COLUMNS) == 2
    assert "gone.csv does not exist" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_error_bars_that_are_missing(capsys):
    Path("data.csv").write_text("\n".join([*LINES, "1,2,", "2,3,NA"]) + "\n")
    assert run("train", "data.csv", *COLUMNS, *SMALL) == 2
    assert (
        "data.csv, row 61, column 's' must have an error bar; got none (and none in 1 other row)"
        in capsys.readouterr().err
    )
    assert run("train", "data.csv", *COLUMNS, *SMALL, "--unknown-variance", "median") == 0
    assert "biv: note: the variance of 2 of 62 labels is unknown" in capsys.readouterr().err


def leaky(path, rows=120):
    """Write a table with three kinds of identifiers, copies of the label, and a true feature."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=rows)
    y = x + rng.normal(size=rows)
    frame = pd.DataFrame({"kepid": 1000 + rng.permutation(rows), "x": x, "y": y, "s": 1.0})
    frame["name"] = [f"Kepler-{k}" if k % 4 == 0 else None for k in range(rows)]
    frame["key"] = ["".join(rng.choice(list("ACGT"), 12)) for _ in range(rows)]
    frame["low"], frame["high"] = y - rng.random(rows), y + rng.random(rows)
    frame["minus"], frame["plus"] = frame["low"] - y, frame["high"] - y
    frame["in other units"], frame["low in other units"] = 0.09 * y, -2 * frame["low"]
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    return path


OTHERS = ["--ignore", "low", "high", "minus", "plus", "--ignore", "low in other units"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", [["inspect"], ["compare"], ["train"], ["train", "--stream"]])
def test_every_command_leaves_out_identifiers_and_refuses_copies_of_the_label(command, capsys):
    rows = 2000 if "--stream" in command else 120  # a stream examines one row in ten
    path = leaky(Path("data.parquet" if "--stream" in command else "data.csv"), rows)
    given = [*command, path, *COLUMNS, *OTHERS]
    assert run(*given) == 2
    output = capsys.readouterr().err
    assert (
        "features must not repeat the label; 1 feature repeats it, judged by the rank correlation"
        in output
    )
    assert "with 'y': 'in other units' (+1.0000). Leave it out with --ignore" in output
    assert "or use it nevertheless with --keep 'in other units'" in output
    for name, texts in (("name", "texts"), ("key", "sequences of 12 letters")):
        count = rows // 4 if name == "name" else rows
        cells = f"{count:,} distinct {texts} in {count:,} filled cells"
        assert (
            f"column {name!r} was left out: {cells}, so it looks like an identifier (--keep {name}"
            in output
        )
    assert "column 'kepid' holds mostly distinct integers: if it is an identifier, leave" in output
    assert "(--ignore kepid)" in output


@pytest.mark.usefixtures("here")
def test_columns_are_kept_by_option(capsys):
    path = leaky(Path("data.csv"))
    kept = ["--keep", "key", "kepid", "--keep", "in other units"]
    assert run("train", path, *COLUMNS, *OTHERS, *kept, *SMALL) == 0
    result = capsys.readouterr()
    assert "4 columns to learn from (3 numeric, 1 sequence)" in result.out
    assert "column 'name' was left out" in result.err
    assert "kepid" not in result.err
    assert run("predict", "biv-model", path) == 0


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", [["inspect"], ["compare"], ["train"], ["train", "--stream"]])
def test_every_command_refuses_distances_and_copies_of_the_ends(command, capsys):
    path = leaky(Path("data.parquet"), 2000 if "--stream" in command else 120)
    columns = ["--target", "y", "--ignore", "in other units", "key", "name", "s"]
    assert run(*command, path, *columns, "--target-interval", "minus", "plus") == 2
    assert "they look like − and + errors, on both sides of 0" in capsys.readouterr().err
    columns += ["--target-interval", "low", "high"]
    assert run(*command, path, *columns) == 2
    output = capsys.readouterr().err
    assert "with 'low': 'low in other units' (-1.0000). Leave it out with --ignore" in output


@pytest.mark.usefixtures("here")
def test_compare_and_train_have_the_same_rows(capsys, monkeypatch):
    Path("data.csv").write_text("\n".join([*LINES, "1,2,", "2,3,NA", "3,4,inf"]) + "\n")
    assert run("compare", "data.csv", *COLUMNS) == 2
    assert "row 61, column 's' must have an error bar; got none" in capsys.readouterr().err
    methods = {
        name: lambda train, new, _: (np.full(len(new), train.y.mean()), "")
        for name in ("BIV", "L2", "BIV, shuffled variances")
    }
    monkeypatch.setattr("biv.workflows.comparison.methods", lambda: methods)
    options = ["--unknown-variance", "median", "--json"]
    assert run("compare", "data.csv", *COLUMNS, *options, "--no-report", "--jobs", "1") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["rows"], result["rows_of_unknown_variance"]) == (62, 2)
    assert run("train", "data.csv", *COLUMNS, *options, *SMALL, "--no-report") == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["result"]["unknown_variance"] == result["unknown_variance"]


@pytest.mark.usefixtures("here")
def test_one_feature_and_no_error_bars_are_enough(capsys):
    Path("data.csv").write_text("\n".join(LINES))
    assert run("train", "data.csv", "--target", "y", "--ignore", "s", *SMALL, "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["model"] == "biv-model"
    assert result["result"]["epsilon"] is None
    assert run("predict", "biv-model", "data.csv") == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content | {"format": "biv model folder 9", "biv": "9.0"}, "about.json was written by a newer biv (format 'biv model folder 9'; this version reads 'biv model folder 1')"),
        (lambda content: {k: v for k, v in content.items() if k != "schema"}, "about.json is damaged: Object missing required field schema"),
        (lambda _: [1], "about.json is damaged"),
    ],
)  # fmt: skip
def test_a_model_folder_of_another_version(model, change, message, here, capsys):
    folder = here / "m"
    folder.mkdir()
    for name in ("model.safetensors", "about.json"):
        (folder / name).write_bytes((model / name).read_bytes())
    result = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    (folder / "about.json").write_text(json.dumps(change(result)), encoding="utf-8")
    assert run("predict", "m", model.parent / "data.csv") == 2
    assert message in capsys.readouterr().err


def test_folders_without_a_model(here, capsys):
    data(here / "data.csv")
    assert run("predict", "gone", "data.csv") == 2
    assert "gone does not exist" in capsys.readouterr().err
    Path("empty").mkdir()
    assert run("predict", "empty", "data.csv") == 2
    assert "empty must be a model folder, with an about.json; got none" in capsys.readouterr().err
    assert run("train", "data.csv", *COLUMNS, "--out", "data.csv") == 2
    assert "data.csv must be a folder; got a file" in capsys.readouterr().err
    for option, value in (
        ("--epsilon", "much"),
        ("--epsilon", "-1"),
        ("--members", "1"),
        ("--max-epochs", "0"),
        ("--patience", "0"),
    ):
        assert run("train", "data.csv", *COLUMNS, option, value) == 2
        assert option in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", ["inspect", "compare", "train", "predict", "reproduce", "claims"]
)
def test_help_has_examples(command, capsys):
    with pytest.raises(SystemExit) as left:
        run(command, "--help")
    assert left.value.code == 0
    assert f"examples:\n  biv {command} " in capsys.readouterr().out


def test_bad_usage_has_exit_code_2(capsys):
    for arguments in (
        ["train"],
        ["train", "a.csv"],
        ["inspect", "a.csv", "--target", "y"],
        ["compare", "a.csv", *COLUMNS, "--target-var", "v"],
    ):
        with pytest.raises(SystemExit) as left:
            run(*arguments)
        assert left.value.code == 2
    capsys.readouterr()
    assert run("compare", "a.csv", *COLUMNS, "--folds", "1") == 2
    assert "--folds must be at least 2" in capsys.readouterr().err


@pytest.mark.slow
def test_compare_prints_text_or_json(here, capsys, monkeypatch):
    monkeypatch.setattr(
        "biv.workflows.methods.NETWORKS", {"members": 2, "folds": 2, "max_epochs": 3}
    )
    data(here / "data.csv", rows=60)
    options = ["data.csv", *COLUMNS, "--folds", "2", "--jobs", "1"]
    assert run("compare", *options) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "| method " in text
    assert "60 rows are too few" in text
    assert "Judged by weighted paired differences, " in text
    assert run("compare", *options, "--json", "--unweighted") == 0
    result = json.loads(capsys.readouterr().out)
    assert {"L2", "IV", "Cutoff", "BIV", "BIV, shuffled variances"} <= {
        m["method"] for m in result["methods"]
    }
    assert result["recommendation"]


def test_inspect_prints_json(here, capsys):
    data(here / "data.csv")
    assert run("inspect", "data.csv", *COLUMNS, "--no-picture", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["picture"] is None
    assert result["rows"] == 150
    assert [path.name for path in here.iterdir()] == ["data.csv"]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_table_with_a_thousand_columns(capsys):
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(80, 1000)), columns=[f"größe {k}" for k in range(1000)])
    wide["目標"] = wide["größe 7"] + rng.normal(size=80)
    wide["±"] = 1 + rng.random(80)
    wide.to_csv("wide.csv", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    columns = ["--target", "目標", "--target-std", "±"]
    assert run("train", "wide.csv", *columns, *SMALL, "--out", "m") == 0
    assert (
        "80 rows from 1 file; 1000 columns to learn from (1000 numeric)" in capsys.readouterr().out
    )
    assert run("predict", "m", "wide.csv") == 0
    assert len(pd.read_csv("predictions.csv")) == 80


def test_a_file_that_shrinks_during_prediction(model, here, monkeypatch, capsys):
    path = data(here / "data.csv")
    size = path.stat().st_size
    monkeypatch.setattr(files, "BLOCK", 900)
    real = ModelFolder.predict

    def shrinking(self, part):
        os.truncate(path, size // 2)
        return real(self, part)

    monkeypatch.setattr(ModelFolder, "predict", shrinking)
    assert run("predict", model, path) == 2
    assert "data.csv has changed while it was read" in capsys.readouterr().err
    assert [p.name for p in here.iterdir()] == ["data.csv"]


def test_new_files_have_the_permissions_of_the_umask(model, here):
    before = os.umask(0o022)
    try:
        assert run("predict", model, data(here / "data.csv")) == 0
    finally:
        os.umask(before)
    assert (here / "predictions.csv").stat().st_mode & 0o777 == 0o644


def test_without_the_libraries_the_error_names_what_to_install(here, capsys, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "sklearn" else real(n))
    assert run("train", data(here / "data.csv"), *COLUMNS) == 2
    assert "this command requires sklearn: pip install 'biv[command]'" in capsys.readouterr().err


def test_peak_memory_is_none_where_it_cannot_be_measured(monkeypatch):
    assert training_record.peak_memory() > 1e7
    monkeypatch.setitem(sys.modules, "resource", None)
    assert training_record.peak_memory() is None


@pytest.mark.usefixtures("here")
def test_cells_that_csv_must_quote(model):
    frame = pd.read_csv(model.parent / "data.csv").head(3)
    frame["odd"] = ["a\rb", 'q"q', "plain;"]
    frame.to_csv("new.csv", index=False, sep=";", quoting=1)
    assert run("predict", model, "new.csv") == 0
    text = Path("predictions.csv").read_text(encoding="utf-8")
    assert ";" in text.splitlines()[0]  # the separator of the input
    predictions = pd.read_csv("predictions.csv", sep=";", lineterminator="\n")
    assert predictions["odd"].tolist() == frame["odd"].tolist()
    assert run("predict", model, "predictions.csv", "--out", "again.csv", "--name", "more") == 0


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["\ufeffa", "a\rb"])
def test_column_names_that_csv_must_quote(model, name):
    frame = pd.read_csv(model.parent / "data.csv").head(3)
    frame.insert(0, name, 1)
    frame.to_csv("new.csv", index=False, encoding="utf-8-sig", quoting=1)
    assert run("predict", model, "new.csv") == 0
    for path in ("new.csv", "predictions.csv"):
        assert files.Files(path).columns[0] == name
    assert run("predict", model, "predictions.csv", "--out", "again.csv", "--name", "more") == 0


def test_parquet_files_whose_types_differ_a_little(model, here, capsys):
    frame = pd.read_csv(model.parent / "data.csv").head(4)
    folder = here / "parts"
    folder.mkdir()
    frame.head(2).assign(note=None, count=1).to_parquet(folder / "1.parquet", index=False)
    frame.tail(2).assign(note=7, count=1.5).to_parquet(folder / "2.parquet", index=False)
    assert run("predict", model, folder) == 0
    predictions = pd.read_parquet("predictions.parquet")
    assert predictions["count"].tolist() == [1, 1, 1.5, 1.5]
    assert predictions["note"].tolist()[2:] == [7, 7]
    frame.tail(2).assign(note=7, count="x").to_parquet(folder / "2.parquet", index=False)
    assert run("predict", model, folder, "--out", "x.parquet") == 2
    assert "2.parquet must have the column types of the files before it" in capsys.readouterr().err
    assert not Path("x.parquet").exists()


def test_files_left_behind_by_a_kill_do_not_prevent_training(here, capsys):
    path = data(here / "data.csv")
    Path("m").mkdir()
    for name in (
        ".unfinished-0123.pt.x7",
        ".model.safetensors.abc",
        ".about.json.q",
        ".evidence.json.r",
        ".comparison.json.s",
        ".report.html.t",
    ):
        (Path("m") / name).write_text("half")
    assert run("train", path, *COLUMNS, *SMALL, "--out", "m") == 0
    assert {p.name for p in Path("m").iterdir()} == WHOLE
    capsys.readouterr()


@pytest.mark.usefixtures("here")
def test_a_damaged_checkpoint_is_an_error_and_is_kept(capsys, monkeypatch):
    path = data(Path("data.csv"))

    def interrupted(stack, *_):
        if len(stack.members) == 8:
            raise KeyboardInterrupt

    options = ["train", path, *COLUMNS, "--members", "8", "--max-epochs", "5", "--out", "m"]
    real = Stack.run_epoch
    with monkeypatch.context() as patch:
        patch.setattr(Stack, "run_epoch", lambda s, *r: interrupted(s) or real(s, *r))
        assert run(*options) == 130
    assert "run the same command again to resume" in capsys.readouterr().err
    (left,) = Path("m").iterdir()
    left.write_bytes(b"damaged")
    assert run(*options) == 2
    assert "is not a complete checkpoint: move it away to start again" in capsys.readouterr().err
    assert left.read_bytes() == b"damaged"


@pytest.mark.usefixtures("here")
def test_options_without_effect_are_refused(capsys):
    Path("data.csv").write_text("\n".join(LINES))
    for options, message in (
        (["--threshold", "1"], "--threshold requires --loss cutoff; got --loss biv"),
        (["--loss", "l2", "--epsilon", ".1"], "--epsilon requires --loss biv; got --loss l2"),
        (["--level", ".9"], "--level requires --target-interval"),
    ):
        assert run("train", "data.csv", *COLUMNS, *options) == 2
        assert message in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_weight_of_each_row(capsys):
    frame = pd.read_csv(data(Path("data.csv")))
    frame["w"] = np.where(np.arange(150) < 30, 0.0, 2.0)
    frame.to_csv("weighted.csv", index=False)
    options = [*COLUMNS, "--weight", "w", *SMALL, "--json"]
    assert run("train", "weighted.csv", *options, "--out", "m") == 0
    one = json.loads(capsys.readouterr().out)["result"]
    frame[frame["w"] > 0].drop(columns="w").to_csv("some.csv", index=False)
    assert one["effective_sample_size"] < 121
    frame.assign(w=0).to_csv("none.csv", index=False)
    assert run("train", "none.csv", *options, "--out", "n") == 2
    assert "every weight in column 'w' is 0" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_notes_on_implausible_error_bars(capsys):
    """Error bars are too large by a wide margin, are correlated with the label, or are missing."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    frame = pd.DataFrame(
        {"x": x, "y": x + 0.01 * rng.normal(size=300), "y_err": 1 + rng.random(300)}
    )
    frame.to_csv("large.csv", index=False)
    columns = ["--target", "y", "--target-std", "y_err", "--keep", "x"]
    assert run("train", "large.csv", *columns, *SMALL, "--out", "a") == 0
    assert "to the true labels is negative, which is impossible" in " ".join(
        capsys.readouterr().out.split()
    )
    frame.assign(y_err=np.exp(frame["y"])).to_csv("related.csv", index=False)
    assert run("train", "related.csv", *columns, *SMALL, "--out", "b") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Larger labels have larger error bars (rank correlation +1.00), " in shown
    assert "weighted unweighted R² to the true labels" in shown
    fit = json.loads(Path("b/about.json").read_text("utf-8"))["about"]["result"]
    unweighted = f"{fit['mse_all_labels_alike']:.4g} ± {fit['mse_all_labels_alike_stderr']:.2g}"
    assert re.search(rf"MSE, squared label units \S+ ± \S+ {re.escape(unweighted)} ", shown)
    assert run("train", "large.csv", "--target", "y", "--keep", "x", *SMALL, "--out", "c") == 0
    output = capsys.readouterr()
    assert (
        "column 'y_err' is used as a feature; if it is the error bar, pass it as --target-std"
        in output.err
    )
    assert "no error bars were given: all labels have the same weight" in output.err
    assert "R² to the labels " in output.out
    options = [*columns, *SMALL, "--calibrate-variance", "--out", "d"]
    assert run("train", "large.csv", *options) == 0
    assert re.search(r"σ² was multiplied by +-?\d", capsys.readouterr().out)


@pytest.mark.usefixtures("here")
def test_a_training_that_diverges_is_a_failed_run(capsys, monkeypatch):
    path = data(Path("data.csv"))
    monkeypatch.setattr("biv.estimator.networks.LARGEST_RATE", 1e30)
    monkeypatch.setattr("biv.estimator.networks.RATE_OF_ONE_INPUT", 1e30)
    assert run("train", path, *COLUMNS, *SMALL, "--out", "m") == 1
    assert "no epoch ended with finite predictions of all members" in capsys.readouterr().err
    assert not Path("m").exists()
