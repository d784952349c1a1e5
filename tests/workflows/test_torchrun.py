"""Tests of streamed training: in one process, in several, and after a process is killed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from biv import cli
from biv._utils.typed_json import to_json
from biv.tables import Target
from biv.training import load_checkpoint, save_checkpoint
from biv.training.ranks import OtherRankError, Ranks
from biv.workflows import ModelFolder, stream_checks, streamed
from biv.workflows.stream_plan import StreamSettings
from biv.workflows.streamed import train_streamed
from helpers.parquet_files import labelled, write, write_folder

pytestmark = pytest.mark.filterwarnings(
    "ignore:the last of max_epochs"
)  # the tests train for few epochs

SECONDS = 300
OPTIONS = ("--target", "y", "--target-var", "v", "--json")
LONG = ("--batch-size", "60", "--max-epochs", "6", "--checkpoint-seconds", "0")  # 360 steps
SHORT = ("--batch-size", "358", "--max-epochs", "2")  # 20


def command(processes, table, out, *more):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr",
                "127.0.0.1", "--nproc-per-node", str(processes), "--monitor-interval", "0.1",
                "--max-restarts", "1"]  # fmt: skip
    return [*torchrun, "-m", "biv", "train", str(table), *OPTIONS, "--out", str(out), *more]


def run(processes, table, out, *more, after_start=lambda _: None):
    """Run the command; return stdout, stderr and the exit code, and kill it after a timeout."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command(processes, table, out, *more),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        start_new_session=True,
    )  # fmt: skip
    try:
        after_start(process)
        output, errors = process.communicate(timeout=SECONDS)
        return output, errors, process.returncode
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    folder = tmp_path_factory.mktemp("table") / "parts"
    write_folder(folder, sizes=(1300, 1250, 1411), group_rows=250)
    return folder


@pytest.fixture(scope="module")
def alone(table, tmp_path_factory):
    """Return the result of training in this process alone."""
    out = tmp_path_factory.mktemp("alone") / "model"
    settings = StreamSettings(batch_size=60, max_epochs=6)
    return train_streamed(out, [table], Target("y", variance="v"), settings, ranks=Ranks()), out


def parameters(out):
    found = load_file(out / "model.safetensors")
    return {name: tensor for name, tensor in found.items() if name.startswith("member.")}


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_train_as_one(processes, table, tmp_path):
    """Losses and parameters of twenty steps agree to 1e-5; sums have another order."""
    settings = StreamSettings(batch_size=358, max_epochs=2)
    alone = train(table, tmp_path / "alone", settings)
    output, errors, code = run(processes, table, tmp_path / "model", *SHORT)
    assert code == 0, errors
    one, other = (a["result"]["train_loss"] for a in (to_json(alone.about), json.loads(output)))
    assert len(one) == len(other) == 20
    np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)
    for name, tensor in parameters(tmp_path / "alone").items():
        found = parameters(tmp_path / "model")[name]
        torch.testing.assert_close(found, tensor, rtol=0, atol=1e-5)


def workers(process):
    """Return the processes that torchrun has started."""
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True
    ).stdout
    return sorted(map(int, children.split()))


@pytest.mark.slow
def test_a_killed_rank_is_restarted_and_the_result_is_bit_identical(table, tmp_path):
    output, errors, code = run(2, table, tmp_path / "whole", *LONG)
    assert code == 0, errors
    whole = json.loads(output)["result"]
    out, at = tmp_path / "model", []

    def kill_one(process):
        deadline = time.monotonic() + SECONDS
        while not (found := list(out.glob("unfinished-*.pt"))) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        at.append(load_checkpoint(found[0])["streamed"]["step"])
        os.kill(workers(process)[-1], signal.SIGKILL)

    output, errors, code = run(2, table, out, *LONG, after_start=kill_one)
    assert code == 0, errors
    # torchrun names whichever it saw end first: the killed one (-9), or its fellow, cut off.
    assert re.search(r"failed \(exitcode: -?\d+\)", errors)
    about = json.loads(output[output.index("{") :])
    assert 0 < at[0] < len(whole["train_loss"]) == 360  # in the middle of training
    assert about["result"] == whole
    for name, tensor in load_file(tmp_path / "whole" / "model.safetensors").items():
        assert torch.equal(load_file(out / "model.safetensors")[name], tensor), name
    assert not [path for path in out.iterdir() if path.suffix == ".pt"]


@pytest.mark.slow
def test_an_error_on_one_rank_stops_all_and_is_printed_once(tmp_path):
    columns = labelled(1000)
    columns["v"][730] = -1.0
    write(tmp_path / "parts" / "a.parquet", columns)
    _, errors, code = run(2, tmp_path / "parts", tmp_path / "model")
    assert code != 0
    expected = "biv: .*a.parquet, row 731, column 'v' must be non-negative, because it is an error bar; got '-1.0'"
    assert len(re.findall(expected, errors)) == 2  # at the start, and after torchrun's one restart
    assert not (tmp_path / "model").exists()


# Tests in one process, which runs the same code without a process group.


def train(table, out, settings=None, **more):
    settings = settings or StreamSettings(batch_size=120, max_epochs=3)
    return train_streamed(
        out, [table], more.pop("target", Target("y", variance="v")), settings, ranks=Ranks(), **more
    )


def test_the_model_predicts(alone):
    folder = ModelFolder.read(alone[1])
    fresh = labelled(1000, seed=99)
    x = np.stack([fresh[f"x{k}"] for k in range(3)], axis=1)
    true = 100 + 10 * (np.sin(2 * x[:, 0].astype(float)) + x[:, 1])
    mean, std = folder.model.predict(
        pd.DataFrame({f"x{k}": x[:, k].astype(float) for k in range(3)}), return_std=True
    )
    error = np.mean((mean - true) ** 2) / np.var(true)
    assert error < 0.06
    # Its estimate of its own error, from 400 noisy labels.
    about, result = folder.about, folder.about.result
    squared = np.mean((mean - true) ** 2)
    for estimate in (result.mse, float(std[0]) ** 2):
        assert estimate == pytest.approx(squared, abs=4 * result.mse_stderr)
    assert 1 - error == pytest.approx(result.r2, abs=4 * result.r2_stderr)
    assert (about.rows, about.rows_held_out) == (3961, 402)


@pytest.mark.slow
def test_weighting_lowers_the_error(table, tmp_path):
    scores = {}
    for loss in ("biv", "l2", "cutoff", "iv"):
        settings = StreamSettings(loss=loss, batch_size=60, max_epochs=4)
        scores[loss] = train(table, tmp_path / loss, settings).about.result.mse
    assert scores["biv"] < 0.7 * scores["l2"]
    assert set(map(np.isfinite, scores.values())) == {True}


def test_epsilon_follows_the_residual_variance(alone, table, tmp_path):
    assert 0 < alone[0].about.result.relative_epsilon < 0.04  # of 0.05 in the first epoch
    settings = StreamSettings(epsilon=0.2, batch_size=60, max_epochs=2)
    found = train(table, tmp_path / "m", settings).about.result
    assert found.relative_epsilon == pytest.approx(0.2)


def interrupted(monkeypatch, at):
    """Interrupt the training at a step."""
    from biv.training.streamed import StreamedTraining

    step = StreamedTraining._train

    def stop(self, *arguments):
        if self.step == at:
            raise KeyboardInterrupt
        step(self, *arguments)

    monkeypatch.setattr(StreamedTraining, "_train", stop)


@pytest.mark.slow
@pytest.mark.parametrize(("at", "saved"), [(35, 30), (70, 64), (89, 64)])
def test_a_resumed_training_is_bit_identical(table, tmp_path, monkeypatch, at, saved):
    """Steps 30 and 60 end epochs; step 64 is in the middle of one."""
    whole = train(table, tmp_path / "whole", checkpoint_seconds=0.0)
    with monkeypatch.context() as patch:
        interrupted(patch, at)
        with pytest.raises(KeyboardInterrupt):
            train(table, tmp_path / "cut", checkpoint_seconds=0.0)
    lines = []
    again = train(table, tmp_path / "cut", checkpoint_seconds=0.0, log=lines.append)
    resumed = [line for line in lines if "resuming" in line]
    assert resumed == [f"resuming the training in {tmp_path / 'cut'} at step {saved}"]
    assert again.about.result == whole.about.result
    found = load_file(tmp_path / "cut" / "model.safetensors")
    for name, tensor in load_file(tmp_path / "whole" / "model.safetensors").items():
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("about"), "the state has no entry 'about'"),
        (lambda state: state.update(about=None), r"the state\['about'\] must be dict"),
        (lambda state: state.update(streamed=None), r"the state\['streamed'\] must be dict"),
        (lambda state: state["about"].pop("shards"), "'shards' is missing"),
        (lambda state: state["about"].update(shards=0), "shards must be an integer >= 1; got 0"),
        (lambda state: state["about"].update(shards=2**70), "shards must be an integer <="),
        (lambda state: state["streamed"].pop("step"), "'step' is missing"),
    ],
)
def test_a_damaged_checkpoint_is_named_and_kept(change, message, table, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupted(patch, 35)
        with pytest.raises(KeyboardInterrupt):
            train(table, tmp_path / "cut", checkpoint_seconds=0.0)
    (path,) = (tmp_path / "cut").glob("unfinished-*.pt")
    state = load_checkpoint(path)
    change(state)
    save_checkpoint(path, state)
    before = path.read_bytes()
    expected = f"{re.escape(str(path))} is not a complete checkpoint: start again .*: .*{message}"
    with pytest.raises(ValueError, match=expected):
        train(table, tmp_path / "cut")
    assert path.read_bytes() == before


@pytest.mark.slow
def test_another_number_of_processes_resumes_with_the_same_batches(table, tmp_path, monkeypatch):
    """Five processes would have 15 shards; a resumed run keeps its number of shards."""
    monkeypatch.setattr(stream_checks, "SHARDS", 15)
    whole = train(table, tmp_path / "whole")
    with monkeypatch.context() as patch:
        interrupted(patch, 70)
        with pytest.raises(KeyboardInterrupt):
            train(table, tmp_path / "cut", checkpoint_seconds=0.0)
    monkeypatch.setattr(stream_checks, "SHARDS", 12)
    again = train(table, tmp_path / "cut")
    assert again.about.shards == 15
    assert again.about.result == whole.about.result
    assert train(table, tmp_path / "new").about.result != whole.about.result


@pytest.mark.parametrize("groups", [3, 9, 12, 13, 40])
def test_the_number_of_shards_suits_the_number_of_processes(groups):
    alone = stream_checks.default_shards(1, groups)
    assert alone == min(groups, 12)
    for processes in range(1, groups + 1):
        shards = stream_checks.default_shards(processes, groups)
        assert processes <= shards <= groups
        if 12 % processes == 0 or groups < 12:
            assert shards == max(alone, processes)
        elif groups == 40:
            assert shards % processes == 0  # shared evenly, if there are enough row groups


def test_a_finished_model_is_reported_before_rows_are_read(table, tmp_path, monkeypatch):
    train(table, tmp_path / "m", StreamSettings(batch_size=500, max_epochs=1))
    monkeypatch.setattr(streamed.Survey, "of", None)  # would be called
    with pytest.raises(ValueError, match="already holds a model"):
        train(table, tmp_path / "m")


def test_iv_refuses_error_bars_of_zero(tmp_path):
    columns = labelled(600)
    columns["v"][[3, 400]] = 0.0
    write(tmp_path / "t" / "a.parquet", columns)
    settings = StreamSettings(loss="iv", batch_size=60, max_epochs=1)
    with pytest.raises(ValueError, match="2 error bars in column 'v' are 0, to which loss='iv'"):
        train(tmp_path / "t", tmp_path / "m", settings)
    assert not (tmp_path / "m").exists()
    train(tmp_path / "t", tmp_path / "m", StreamSettings(batch_size=60, max_epochs=1))


def test_a_loaded_model_knows_its_settings(table, tmp_path):
    settings = StreamSettings(loss="cutoff", threshold=90.0, batch_size=500, max_epochs=2, seed=3)
    train(table, tmp_path / "m", settings)
    found = ModelFolder.read(tmp_path / "m").model.get_params()
    expected = {"loss": "cutoff", "threshold": 90.0, "max_epochs": 2, "random_state": 3}
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(("jobs", "code"), [("-1", 0), ("0", 2)])
def test_threads_of_a_stream(table, tmp_path, capsys, jobs, code):
    options = ["--target", "y", "--target-var", "v", "--stream", "--batch-size", "500"]
    options += ["--max-epochs", "1", "--jobs", jobs, "--out", str(tmp_path / "m")]
    assert cli.main(["train", str(table), *options]) == code
    if code:
        assert "--jobs must be an integer >= 1; got 0" in capsys.readouterr().err
        assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_the_patience_of_a_stream(table, tmp_path):
    options = [
        "--target",
        "y",
        "--target-var",
        "v",
        "--stream",
        "--batch-size",
        "60",
        "--no-report",
    ]
    epochs = []
    for patience in ("1", "3"):
        out = tmp_path / patience
        more = ["--max-epochs", "40", "--patience", patience, "--out", str(out)]
        assert cli.main(["train", str(table), *options, *more]) == 0
        about = ModelFolder.read(out).about
        assert about.settings["patience"] == int(patience)
        epochs.append(about.result.epochs)
    assert epochs[0] < epochs[1] < 40


@pytest.mark.slow
def test_another_training_in_the_same_folder(table, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupted(patch, 40)
        with pytest.raises(KeyboardInterrupt):
            train(table, tmp_path / "model", checkpoint_seconds=0.0)
    other = StreamSettings(batch_size=50, max_epochs=1)
    with pytest.raises(ValueError, match="unfinished run with other rows or settings: force=True"):
        train(table, tmp_path / "model", other)
    train(table, tmp_path / "model", other, force=True)
    with pytest.raises(ValueError, match="already holds a model: force=True replaces it"):
        train(table, tmp_path / "model")


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model(alone, table, tmp_path):
    settings = StreamSettings(batch_size=60, max_epochs=6)
    train(table, tmp_path / "again", settings)
    for name, tensor in parameters(alone[1]).items():
        assert torch.equal(parameters(tmp_path / "again")[name], tensor)
    train(table, tmp_path / "other", replace(settings, seed=1, max_epochs=1))
    assert any(
        not torch.equal(parameters(tmp_path / "other")[name], tensor)
        for name, tensor in parameters(alone[1]).items()
    )


@pytest.mark.slow
def test_categories_dates_and_gaps(tmp_path):
    rng = np.random.default_rng(0)
    columns = labelled(900)
    colour = rng.choice(["red", "green", "blue"], 900)
    columns["y"] = columns["y"] + 30 * (colour == "red")
    columns |= {
        "colour": colour.tolist(),
        "text": [f"2024-01-{d:02}" for d in rng.integers(1, 29, 900)],
    }
    columns["x2"][::5] = np.nan
    write(tmp_path / "t" / "a.parquet", columns)
    folder = train(tmp_path / "t", tmp_path / "m", StreamSettings(batch_size=30, max_epochs=4))
    assert [c.kind for c in folder.schema.columns] == ["number"] * 3 + ["category", "date"]
    with_colour = folder.about.result.mse
    without = train(
        tmp_path / "t",
        tmp_path / "n",
        StreamSettings(batch_size=30, max_epochs=4),
        ignore=["colour"],
    )
    assert with_colour < 0.7 * without.about.result.mse
    assert (
        cli.main(
            [
                "predict",
                str(tmp_path / "m"),
                str(tmp_path / "t"),
                "--out",
                str(tmp_path / "p.parquet"),
            ]
        )
        == 0
    )


@pytest.mark.slow
def test_notes_name_what_is_left_out(tmp_path, capsys):
    columns = labelled(900)
    columns["y"][::9], columns["v"][1] = np.nan, np.nan
    columns["name"] = [f"row {k}" for k in range(900)]
    write(tmp_path / "t" / "a.parquet", columns)
    options = [
        "--target",
        "y",
        "--target-var",
        "v",
        "--unknown-variance",
        "median",
        "--max-epochs",
        "1",
    ]
    out = ["--stream", "--out", str(tmp_path / "m")]
    assert cli.main(["train", str(tmp_path / "t"), *options, *out]) == 0
    printed = capsys.readouterr()
    assert "900 rows in 5 row groups; 3 columns to learn from." in printed.out
    assert "R² to the true labels" in printed.out
    for message in (
        "left out 100 rows without a label in column 'y'",
        "the variance of 1 label is unknown and was set to ",
        "column 'name' was left out: 900 distinct texts in 900 filled cells, so it looks like "
        "an identifier (--keep name keeps it)",
    ):
        assert f"biv: note: {message}" in printed.err
    assert ModelFolder.read(tmp_path / "m").about.rows == 800
    clean = ["--stream", "--out", str(tmp_path / "n"), "--ignore", "v", "name", "--max-epochs", "1"]
    assert cli.main(["train", str(tmp_path / "t"), "--target", "y", *clean]) == 0
    assert "no error bars were given: all labels have the same weight" in capsys.readouterr().err


def refused(table, tmp_path, capsys, *options):
    code = cli.main(
        ["train", str(table), "--target", "y", "--stream", "--out", str(tmp_path / "m"), *options]
    )
    assert code == 2
    assert not (tmp_path / "m").exists()
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target-var", "vv"], "must have a column 'vv'; did you mean 'v'"),
        (
            ["--shards", "99"],
            "the number of shards must be between 1 and 17, the number of row groups; got 99",
        ),
        (["--members", "4"], "--members must be 1 with --stream; got 4"),
        (["--calibrate-variance"], "--calibrate-variance is not available with --stream"),
        (["--patience", "0"], "--patience must be an integer >= 1; got 0"),
        (
            ["--unknown-variance", "estimate"],
            "estimate is not available with --stream; median is available",
        ),
        (["--batch-size", "0"], "--batch-size must be an integer >= 1"),
        (["--epsilon", "much"], "--epsilon must be auto or a number; got 'much'"),
        (["--target-var", "v", "--target", "x9"], "must have a column 'x9'"),
        (["--seed", "-1"], "--seed must be non-negative; got -1"),
        (
            ["--threshold", "-1", "--loss", "cutoff"],
            "--threshold must be a finite number > 0; got -1",
        ),
    ],
)
def test_bad_options(table, tmp_path, capsys, options, message):
    assert message in refused(table, tmp_path, capsys, *options)


def test_bad_tables(tmp_path, capsys):
    write(tmp_path / "t" / "a.parquet", labelled(500))
    write(tmp_path / "t" / "b.parquet", {n: c for n, c in labelled(500).items() if n != "x1"})
    assert "they differ in 'x1'" in refused(tmp_path / "t", tmp_path, capsys)
    columns = labelled(500)
    columns["y"][:] = np.nan
    write(tmp_path / "t" / "b.parquet", columns)
    errors = refused(tmp_path / "t", tmp_path, capsys)
    assert re.search(r"shard \d of 6 has no row to learn from \(.*b.parquet\): every shard", errors)
    write(tmp_path / "t" / "b.parquet", labelled(500))
    write(tmp_path / "t" / "c.parquet", {n: c[:0] for n, c in labelled(5).items()})
    assert "c.parquet must have rows; got none" in refused(tmp_path / "t", tmp_path, capsys)
    write(tmp_path / "s" / "a.parquet", labelled(3))
    assert "Train on a small table in memory" in refused(tmp_path / "s", tmp_path, capsys)
    write(tmp_path / "u" / "a.parquet", labelled(500) | {"v": np.zeros(500)})
    assert "every error bar in column 'v' is 0" in refused(
        tmp_path / "u", tmp_path, capsys, "--target-var", "v"
    )


def test_options_of_a_stream_are_for_a_stream(table, tmp_path, capsys):
    assert (
        cli.main(
            ["train", str(table), "--target", "y", "--shards", "3", "--out", str(tmp_path / "m")]
        )
        == 2
    )
    assert "--shards requires --stream or torchrun" in capsys.readouterr().err


def test_listed_outliers_are_found_in_their_files(alone, table):
    """The report of a streamed model lists held-out rows by file and row."""
    evidence = ModelFolder.read(alone[1]).evidence
    assert evidence.rows == 1300 + 1250 + 1411
    assert evidence.judged == alone[0].about.rows_held_out < 500
    files = set()
    for row in evidence.outliers:
        path, _, number = row.where.rpartition(", row ")
        cells = pd.read_parquet(path).iloc[int(number) - 1]
        assert cells["y"] == row.y
        assert cells["v"] == pytest.approx(row.sigma**2)
        files.add(path)
    assert files == {str(path) for path in table.iterdir()}


def test_a_diverging_training_says_so(table, tmp_path):
    settings = StreamSettings(batch_size=60, max_epochs=1, learning_rate=1e30)
    with pytest.raises(
        ValueError,
        match="no epoch ended with finite predictions. Choose a smaller learning rate",
    ):
        train(table, tmp_path / "m", settings)


def test_the_ranks_of_a_single_process():
    ranks = Ranks()
    assert ranks.is_first
    assert ranks.gather("a") == ["a"]
    assert ranks.run_on_first(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        ranks.run_on_all(lambda: 1 // 0)
    assert issubclass(OtherRankError, RuntimeError)
    with Ranks.join() as joined:
        assert joined == ranks


class OneOfTwo(Ranks):
    """One of two ranks; `other_failed` says whether the other one has failed."""

    other_failed = False

    def gather(self, value):
        return [value, self.other_failed] if self.is_first else [self.other_failed, value]


@pytest.mark.parametrize("rank", [0, 1])
def test_if_one_rank_fails_all_raise(rank, monkeypatch):
    ranks = OneOfTwo(rank, 2)
    assert ranks.run_on_all(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):  # only this rank fails
        ranks.run_on_all(lambda: 1 // 0)
    monkeypatch.setattr(OneOfTwo, "other_failed", True)
    with pytest.raises(OtherRankError, match=f"rank {1 - rank} failed; see its error above"):
        ranks.run_on_all(lambda: 3)
    with pytest.raises(ZeroDivisionError if rank == 0 else OtherRankError):
        ranks.run_on_all(lambda: 1 // 0)
