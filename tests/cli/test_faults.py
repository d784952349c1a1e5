"""Commands that are killed, run out of disk space, or run at the same time lose no data."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from biv._utils import atomic_files
from biv._utils.atomic_files import InUseError, WriteError, lock_folder, open_atomically
from biv.cli import _signals, main
from biv.paper.claims import claims
from biv.paper.presets import PRESETS
from biv.paper.store import Store
from biv.training.stack import Stack
from biv.training.streamed import StreamedTraining
from biv.workflows import ModelFolder
from helpers.commands import COLUMNS, SMALL, WHOLE, data, run
from helpers.faults import disk_full_error, file_names
from helpers.paper_runs import SMOKE, results_of
from helpers.parquet_files import labelled, write

FULL = "could not be written: no space left on device"


def no_room_for(monkeypatch, pattern, error=None):
    """Simulate a disk that is full for files whose names match a pattern."""

    def before(operation, path):
        if operation == "write" and re.search(pattern, str(path)):
            raise error or disk_full_error()

    monkeypatch.setattr(atomic_files, "before_operation", before)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    path = data(folder / "data.csv")
    assert run("train", path, *COLUMNS, *SMALL, "--out", folder / "m") == 0
    return folder


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """Make a folder with a table and a model of it, and enter it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data.csv").write_bytes((trained / "data.csv").read_bytes())
    (tmp_path / "m").mkdir()
    for path in (trained / "m").iterdir():
        (tmp_path / "m" / path.name).write_bytes(path.read_bytes())
    return tmp_path


TRAIN = ("train", "data.csv", *COLUMNS, *SMALL, "--seed", "1")


@pytest.mark.usefixtures("here")
def test_a_report_that_does_not_fit_leaves_the_model_complete(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        no_room_for(patch, "report.html")
        assert run(*TRAIN, "--out", "new") == 1
    output = capsys.readouterr()
    advice = "`biv report new --out new/report.html` writes its report"
    assert f"new/report.html {FULL}; the model in new is complete, and {advice}" in output.err
    assert "Scores on held-out rows:" in output.out
    assert set(file_names(Path("new"))) == WHOLE - {"report.html"}
    assert run(*TRAIN, "--out", "new") == 2
    assert "its report can be written by `biv report new --out" in capsys.readouterr().err
    assert run("report", "new", "--out", "new/report.html") == 0
    assert set(file_names(Path("new"))) == WHOLE


@pytest.mark.usefixtures("here")
def test_training_continues_if_the_checkpoint_does_not_fit(monkeypatch, capsys):
    assert run(*TRAIN, "--out", "one") == 0
    capsys.readouterr()
    with monkeypatch.context() as patch:
        no_room_for(patch, "unfinished")
        assert run(*TRAIN, "--out", "other") == 0
    output = capsys.readouterr().err
    assert output.count(FULL) == output.count("The training continues") == 1
    assert set(file_names(Path("other"))) == WHOLE
    one, other = (load_file(Path(name, "model.safetensors")) for name in ("one", "other"))
    assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
    with monkeypatch.context() as patch:
        no_room_for(patch, "unfinished", PermissionError(13, "Permission denied"))
        assert run(*TRAIN, "--out", "third") == 1  # a read-only folder is an error at once
    assert "could not be written: permission denied" in capsys.readouterr().err
    assert not Path("third").exists()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["model.safetensors", "evidence.json", "about.json"])
def test_a_model_that_does_not_fit_leaves_the_old_one(monkeypatch, capsys, name):
    before = Path("m/model.safetensors").read_bytes()
    with monkeypatch.context() as patch:
        no_room_for(patch, name)
        assert run(*TRAIN, "--out", "m", "--force") == 1
    assert f"biv: m/{name} {FULL}\n" in capsys.readouterr().err
    assert Path("m/model.safetensors").read_bytes() == before
    assert run("predict", "m", "data.csv") == 0
    (left,) = set(file_names(Path("m"))) - WHOLE
    assert left.startswith("unfinished-")
    if name == "about.json":
        assert run(*TRAIN, "--out", "m", "--force") == 0
        assert "resuming the training in m" in capsys.readouterr().err
        assert set(file_names(Path("m"))) == WHOLE
        assert Path("m/model.safetensors").read_bytes() != before


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".parquet"])
@pytest.mark.parametrize("operation", ["write", "sync", "rename"])
def test_predictions_that_do_not_fit_leave_no_file(here, monkeypatch, capsys, suffix, operation):
    frame, rows = pd.read_csv("data.csv"), f"rows{suffix}"
    frame.to_parquet(rows) if suffix == ".parquet" else frame.to_csv(rows, index=False)
    before = file_names(here)

    def fail(name, _):
        if name == operation:
            raise disk_full_error()

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "before_operation", fail)
        assert run("predict", "m", rows, "--out", f"p{suffix}") == 1
    assert f"biv: p{suffix} {FULL}\n" in capsys.readouterr().err
    assert file_names(here) == before
    assert run("predict", "m", rows, "--out", f"p{suffix}") == 0
    assert file_names(here) == sorted([*before, f"p{suffix}"])


STORED = ("--dataset", "bike2011", "--preset", "smoke", "--seeds", "1", "--stored")


@pytest.mark.parametrize("suffix", ["svg", "csv"])
def test_a_figure_or_table_that_does_not_fit_leaves_the_old_one(
    tmp_path, monkeypatch, capsys, suffix
):
    Store(tmp_path / "runs.sqlite").add(results_of(SMOKE["table1"].runs(1)).values())
    path = tmp_path / f"table1-bike2011-smoke.{suffix}"
    path.write_text("old")
    no_room_for(monkeypatch, path.name)
    reproduce = ("reproduce", "table1", *STORED, "--out", tmp_path, "--no-report")
    assert run(*reproduce) == 1
    assert f"biv: {path} {FULL}\n" in capsys.readouterr().err
    assert path.read_text() == "old"
    assert not [name for name in file_names(tmp_path) if name.startswith(".")]


@pytest.mark.parametrize("suffix", ["md", "csv"])
def test_claims_that_do_not_fit_leave_the_old_ones(tmp_path, monkeypatch, capsys, suffix):
    runs = [run for claim in claims("bike2011", PRESETS["smoke"]).values() for run in claim.runs(1)]
    Store(tmp_path / "runs.sqlite").add(results_of(runs).values())
    path = tmp_path / f"claims-bike2011-smoke.{suffix}"
    path.write_text("old")
    no_room_for(monkeypatch, path.name)
    assert run("claims", *STORED, "--out", tmp_path, "--no-report") == 1
    assert f"biv: {path} {FULL}\n" in capsys.readouterr().err
    assert path.read_text() == "old"
    assert not [name for name in file_names(tmp_path) if name.startswith(".")]


def test_a_store_that_does_not_fit_is_named(tmp_path, monkeypatch):
    connect = sqlite3.connect

    def small(*arguments, **settings):
        connection = connect(*arguments, **settings)
        connection.execute("PRAGMA max_page_count = 12")
        return connection

    store = Store(tmp_path / "runs.sqlite")
    monkeypatch.setattr(sqlite3, "connect", small)
    with pytest.raises(WriteError, match=rf"runs\.sqlite {FULL}"):
        store.add(results_of(SMOKE["table1"].runs(1)).values())
    assert len(store) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_result_is_printed_if_its_picture_does_not_fit(monkeypatch, capsys):
    no_room_for(monkeypatch, "biv-inspect.png")
    assert run("inspect", "data.csv", *COLUMNS, "--json") == 1
    output = capsys.readouterr()
    assert f"biv-inspect.png {FULL}; the text is complete" in output.err
    assert json.loads(output.out)["picture"] is None
    assert file_names(Path()) == ["data.csv", "m"]


@pytest.mark.slow
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("command", "name", "other"),
    [
        (("inspect",), "biv-inspect.png", "biv-inspect-2.png"),
        (("inspect", "--picture", "own.svg"), "own.svg", None),
        (("compare", "--folds", "2", "--jobs", "1"), "biv-compare.html", "biv-compare-2.html"),
    ],
    ids=["inspect", "a chosen name", "compare"],
)
def test_a_file_created_meanwhile_is_not_overwritten(command, name, other, monkeypatch, capsys):
    monkeypatch.setattr(
        "biv.workflows.methods.NETWORKS", {"members": 2, "folds": 2, "max_epochs": 2}
    )

    def before(operation, path):
        if (operation, path.name) == ("create", name):
            Path(name).write_text("another's")

    monkeypatch.setattr(atomic_files, "before_operation", before)
    there = {*file_names(Path()), name}
    assert run(*command, "data.csv", *COLUMNS) == (1 if other is None else 0)
    assert Path(name).read_text() == "another's"
    assert {*file_names(Path())} == there | ({other} if other else set())
    output = capsys.readouterr()
    if other is None:
        assert "own.svg already exists: --force replaces it; the text is complete" in output.err
    else:
        assert output.out.endswith(f"\n{other}\n")


@pytest.mark.usefixtures("here")
def test_the_second_of_two_writers_is_refused(capsys):
    message = rf"is being written by another process \(pid {os.getpid()}\): wait for it, or write to another path"
    with open_atomically(Path("p.csv")) as file:
        assert run("predict", "m", "data.csv", "--out", "p.csv") == 2
        assert re.search(f"biv: p.csv {message}", capsys.readouterr().err)
        file.write(b"x")
    assert run("predict", "m", "data.csv", "--out", "p.csv") == 2
    assert "p.csv already exists" in capsys.readouterr().err
    with lock_folder(Path("m")):
        assert run("train", "none.csv", *COLUMNS, "--out", "m", "--force") == 2
        assert re.search(f"biv: m {message}", capsys.readouterr().err)  # before the table is read
        assert run("predict", "m", "data.csv") == 0


@pytest.mark.usefixtures("here")
def test_a_training_locks_its_folder(monkeypatch, capsys):
    codes, real = [], Stack.run_epoch

    def epoch(stack, *rest):
        if not codes:
            codes.append(run(*TRAIN, "--out", "new"))
        real(stack, *rest)

    monkeypatch.setattr(Stack, "run_epoch", epoch)
    assert run(*TRAIN, "--out", "new") == 0
    assert codes == [2]
    assert "new is being written by another process" in capsys.readouterr().err


def test_a_streamed_training_locks_its_folder_until_the_model_is_written(
    tmp_path, monkeypatch, capsys
):
    write(tmp_path / "t.parquet", labelled(600))
    out, locked = tmp_path / "m", []
    options = ("--target", "y", "--target-var", "v", "--stream", "--max-epochs", "1", "--out", out)

    def check_lock(method):
        def while_locked(*given, **settings):
            locked.append(out.is_dir())
            with pytest.raises(InUseError), lock_folder(out):
                pass
            if len(locked) == 1:
                assert run("train", tmp_path / "t.parquet", *options) == 2
                assert "m is being written by another process" in capsys.readouterr().err
            return method(*given, **settings)

        return while_locked

    monkeypatch.setattr(StreamedTraining, "run", check_lock(StreamedTraining.run))
    monkeypatch.setattr(ModelFolder, "write", check_lock(ModelFolder.write))
    assert run("train", tmp_path / "t.parquet", *options) == 0
    assert locked == [True, True]
    with lock_folder(out):
        assert (out / "about.json").is_file()


@pytest.fixture
def usual_signals():
    """Set the handlers of a process in a terminal; in the background SIGINT may be ignored."""
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("here", "usual_signals")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_command_after_its_cleanup(monkeypatch, capsys, name):
    number = getattr(signal, name)
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    finished = []

    def predict(_, part):
        try:
            os.kill(os.getpid(), number)
            time.sleep(30)
        finally:  # further signals do not interrupt the cleanup
            for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                os.kill(os.getpid(), other)
            finished.append(part)

    monkeypatch.setattr(ModelFolder, "predict", predict)
    assert run("predict", "m", "data.csv", "--out", "p.csv") == 128 + number
    assert capsys.readouterr().err == "\nbiv: interrupted; nothing was written\n"
    assert finished
    assert file_names(Path()) == ["data.csv", "m"]
    after = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    assert after == before


@pytest.mark.usefixtures("here")
def test_an_ignored_signal_stays_ignored(monkeypatch):
    """This is the case under `nohup`."""
    real = ModelFolder.predict

    def predict(self, part):
        os.kill(os.getpid(), signal.SIGHUP)
        return real(self, part)

    monkeypatch.setattr(ModelFolder, "predict", predict)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert run("predict", "m", "data.csv", "--out", "p.csv") == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


STOPPED = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGHUP):  # background processes may ignore these
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
from biv._utils import atomic_files
from biv.cli import _signals, main
stop_at, at, seen = sys.argv[1], int(sys.argv[2]), []
def before(operation, path):
    seen.append(operation)
    if operation == stop_at and seen.count(stop_at) == at:
        print("stopped", flush=True)
        time.sleep(600)
atomic_files.before_operation = before
sys.exit(main(sys.argv[3:]))
"""


@contextmanager
def stopped(operation, at, *arguments):
    """Run a command in another process that stops at its n-th operation of a kind."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, operation, str(at), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while process.stdout.readline().strip() != "stopped":
            assert process.poll() is None, process.stderr.read()
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process, number):
    process.send_signal(number)
    _, output = process.communicate(timeout=60)
    return process.returncode, output.strip()


PREDICT = ("predict", "m", "data.csv", "--out", "p.csv")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_prediction_that_a_signal_ends(here, name):
    before = file_names(here)
    with stopped("sync", 1, *PREDICT) as process:
        code, output = ended(process, getattr(signal, name))
    assert (code, output) == (128 + getattr(signal, name), "biv: interrupted; nothing was written")
    assert file_names(here) == before


@pytest.mark.slow
def test_a_prediction_that_is_killed_and_run_again(here, capsys):
    before = file_names(here)
    with stopped("sync", 1, *PREDICT) as process:
        assert run(*PREDICT) == 2
        message = f"p.csv is being written by another process (pid {process.pid})"
        assert message in capsys.readouterr().err
        assert ended(process, signal.SIGKILL) == (-signal.SIGKILL, "")
    assert file_names(here) == sorted([*before, ".p.csv.biv.tmp"])
    assert run(*PREDICT) == 0
    assert file_names(here) == sorted([*before, "p.csv"])
    assert len(pd.read_csv("p.csv")) == len(pd.read_csv("data.csv"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operation", "at", "kept"), [("make folder", 1, "old"), ("remove", 1, "new")]
)
@pytest.mark.usefixtures("here")
def test_a_forced_training_that_is_killed_leaves_a_model(operation, at, kept, capsys):
    """The kill comes before the new files are written, or while they are moved into place.

    tests/workflows/test_staging.py tests all moments.
    """
    first = ModelFolder.read("m").about
    with stopped(operation, at, *TRAIN, "--out", "m", "--force") as process:
        assert ModelFolder.read("m").about.settings["random_state"] == (kept == "new")
        assert run(*TRAIN, "--out", "m", "--force") == 2
        assert (
            f"m is being written by another process (pid {process.pid})" in capsys.readouterr().err
        )
        ended(process, signal.SIGKILL)
    assert (ModelFolder.read("m").about == first) == (kept == "old")
    assert run("predict", "m", "data.csv") == 0
    assert run(*TRAIN, "--out", "m", "--force") == 0
    assert set(file_names(Path("m"))) == WHOLE
    assert ModelFolder.read("m").about.settings["random_state"] == 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_the_standard_output():
    with Path("/dev/full").open("w") as out:
        completed = subprocess.run(
            [sys.executable, "-m", "biv", "docs"], stdout=out, stderr=subprocess.PIPE, text=True
        )
    assert completed.stderr == f"biv: the output {FULL}\n"
    assert completed.returncode == 1


def test_exit_codes_are_in_the_help(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert (
        "exit codes:\n  0             success\n  1             a run failed"
        in capsys.readouterr().out
    )


@pytest.mark.usefixtures("usual_signals")
def test_a_later_signal_ends_a_cleanup_that_hangs(monkeypatch):
    """This also helps if Python discarded the exception of the first signal, as in a finalizer."""
    monkeypatch.setattr(_signals, "CLEANUP_SECONDS", 0.0)

    def end():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    with _signals.raise_on_signal():
        for _ in range(2):
            with pytest.raises(_signals.Interrupted):
                end()
