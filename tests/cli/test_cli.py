"""The commands of the paper, and what all commands share."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from biv.cli import main
from biv.paper import protocol
from biv.paper.claims import claims
from biv.paper.presets import PRESETS
from biv.paper.results import Failure
from biv.paper.store import Store
from biv.paper.workers.processes import Processes


@pytest.mark.slow
def test_reproduce_trains_once_and_draws_from_the_store(tmp_path, capsys):
    out = ["--dataset", "bike2011", "--preset", "smoke", "--seeds", "1", "--out", str(tmp_path)]
    assert main(["reproduce", "table1", "fig03", *out, "--jobs", "2"]) == 0
    shown = capsys.readouterr().out
    assert "Trained 24 runs; 0 already stored." in shown
    assert "| α=0.25 | C=μ/20 |" in shown
    table = (tmp_path / "table1-bike2011-smoke.csv").read_bytes()
    assert main(["reproduce", "table1", "4", *out]) == 0
    assert "Trained 2 runs; 22 already stored." in capsys.readouterr().out
    assert (tmp_path / "table1-bike2011-smoke.csv").read_bytes() == table
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {
        "runs.sqlite",
        "table1-bike2011-smoke.md",
        "table1-bike2011-smoke.tex",
        "fig03-bike2011-smoke.svg",
        "fig03-bike2011-smoke.png",
        "fig04-bike2011-smoke.svg",
    }
    assert main(["reproduce", "--list", *out]) == 0
    listed = capsys.readouterr().out
    assert re.search(r"^table1 +GammaResults +22 +22 +0 s", listed, re.MULTILINE)
    assert main(["reproduce", "fig15", "--list", *out[:-1], str(tmp_path / "new")]) == 0
    listed = capsys.readouterr().out
    assert "table1" not in listed
    assert re.search(r"^fig15 +VarNoise +6 +0 +\d+ s", listed, re.MULTILINE)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_claims_are_tested_from_the_store(tmp_path, capsys):
    out = ["--dataset", "bike2011", "--preset", "smoke", "--seeds", "2", "--out", str(tmp_path)]
    assert main(["claims", "2", "16", *out, "--jobs", "2"]) == 0
    shown = capsys.readouterr().out
    assert "Trained 6 runs; 0 already stored." in shown
    assert re.search(r"^  2  Noise of mean", shown, re.MULTILINE)
    assert re.search(r"^ 16  Twice as many clean training rows", shown, re.MULTILINE)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"runs.sqlite"}  # files are written only if all claims are shown
    assert main(["claims", "2", "16", "--stored", *out]) == 0
    assert "6 of 6 runs stored." in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert main(["reproduce", "fig03", "--stored", *out]) == 0  # some runs are missing
    assert "4 of 16 runs stored." in capsys.readouterr().out
    assert (tmp_path / "fig03-bike2011-smoke.svg").exists()
    assert main(["claims", "--stored", *out]) == 0
    page = (tmp_path / "claims-bike2011-smoke.md").read_text(encoding="utf-8")
    assert " 18 not run." in page  # all but the two claims whose runs are stored
    assert (tmp_path / "claims-bike2011-smoke.csv").exists()
    store = Store(tmp_path / "runs.sqlite")
    missing = store.missing(claims("bike2011", PRESETS["smoke"])[4].runs(2))
    store.add([Failure(missing[0], "ValueError: no", {})])
    assert main(["claims", "4", "--stored", *out]) == 1
    assert "ValueError: no" in capsys.readouterr().out


@pytest.mark.slow
def test_the_demo_writes_the_table_and_prints_its_paths(tmp_path):
    """Run the command of the Makefile with the smoke preset."""
    root = Path(__file__).parents[2]
    (line,) = re.findall(
        r"^demo:.*\n\t\$\(BIN\)/(biv .+)$", (root / "Makefile").read_text(), re.MULTILINE
    )
    command = line.replace("laptop", "smoke").replace("--seeds 5", "--seeds 1").split()
    run = subprocess.run(
        [sys.executable, "-m", *command], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "| α=0.25 | C=μ/20 |" in run.stdout
    assert run.stderr == ""  # no progress bar without a terminal
    *_, paths, page = run.stdout.strip().splitlines()
    assert Path(page).name == "report-bike2011-smoke.html"
    assert (tmp_path / page).is_file()
    assert {Path(path).name for path in paths.split()} == {
        f"table1-bike2011-smoke.{kind}" for kind in ("svg", "png", "csv", "tex", "md")
    }
    assert all((tmp_path / path).is_file() for path in paths.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["claims", "21"], "got '21'"),
        (["claims", "--jobs", "0"], "--jobs must be at least 1; got 0"),
        (["claims", "2", "--stored"], "runs.sqlite does not exist, and --stored trains nothing"),
        (
            ["reproduce", "fig16"],
            "unknown table or figure 'fig16'; choose from table1 (GammaResults), fig01",
        ),
        (["reproduce"], "name a table or figure, such as table1, fig03 or all; --list lists them"),
        (["reproduce", "table1", "--seeds", "0"], "--seeds must be at least 1; got 0"),
    ],
)
def test_bad_usage_is_exit_code_2(arguments, message, tmp_path, capsys):
    assert main([*arguments, "--out", str(tmp_path / "new")]) == 2
    assert message in capsys.readouterr().err


def test_without_matplotlib_nothing_is_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["reproduce", "table1", "--out", str(tmp_path / "new")]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("arguments", [["--help"], ["reproduce", "--help"], ["claims", "--help"]])
def test_help_has_examples(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 0
    assert "examples:" in capsys.readouterr().out


@pytest.mark.slow
def test_a_reader_may_close_the_pipe():
    command = f"{sys.executable} -m biv reproduce --list --dataset bike2011 | head -1"
    run = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert run.stdout.startswith("name ")
    assert run.stderr == ""


def test_a_file_as_output_folder_is_refused(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    for command in (["reproduce", "--list"], ["claims"]):
        assert main([*command, "--out", str(file)]) == 2
        assert "--out must be a folder" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_without_stored_runs_no_file_is_written(tmp_path, capsys):
    Store(tmp_path / "runs.sqlite")
    for command in (["reproduce", "fig03"], ["claims"]):
        assert main([*command, "--stored", "--dataset", "bike2011", "--out", str(tmp_path)]) == 2
        assert "has none of the " in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["runs.sqlite"]


def test_missing_data_leave_no_folder_behind(tmp_path, monkeypatch, capsys):
    def load():
        raise FileNotFoundError("no such data")

    protocol.source.cache_clear()
    monkeypatch.setattr("biv.paper.protocol.load_bike", load)
    assert main(["reproduce", "fig03", "--out", str(tmp_path / "new")]) == 2
    assert "no such data" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_locked_store_is_an_error_before_training(tmp_path, monkeypatch, capsys):
    Store(tmp_path / "runs.sqlite")
    holder = sqlite3.connect(tmp_path / "runs.sqlite", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr("biv.paper.store.LOCK_TIMEOUT", 0.1)
    monkeypatch.setattr(Processes, "submit", lambda *_: pytest.fail("it trained"))
    out = ["--dataset", "bike2011", "--preset", "smoke", "--out", str(tmp_path)]
    assert main(["reproduce", "fig03", *out]) == 2
    assert "runs.sqlite cannot be used: database is locked" in capsys.readouterr().err
    holder.close()


def test_claims_are_listed_with_their_runs(tmp_path, capsys):
    assert main(["claims", "--list", "--dataset", "bike2011", "--out", str(tmp_path / "new")]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^claim 19 +240 +0 +[\d.]+ (min|s) +With plain SGD", shown, re.MULTILINE)
    assert "claim 16" not in shown


def test_the_version_is_printed(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert re.fullmatch(r"biv \d+\.\d+\.\d+\n", capsys.readouterr().out)


def group_ends(group, seconds=10):
    """Wait until no process of a group is left, and return whether that has happened."""
    for _ in range(10 * seconds):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_an_interrupt_ends_it_at_once_and_keeps_the_store(tmp_path, name):
    """A signal to the whole group, as of Ctrl-C, leaves no traceback and no process."""
    number = getattr(signal, name)
    command = [sys.executable, "-m", "biv", "reproduce", "table1", "--dataset", "bike2011"]
    command += ["--seeds", "2", "--jobs", "2", "--out", str(tmp_path)]  # would take minutes
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A test that runs in the background may have inherited an ignored signal.
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )
    assert "runs to train" in process.stdout.readline()
    time.sleep(8)  # workers have started
    os.killpg(process.pid, number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert errors.strip() == "biv: interrupted; finished runs are stored"
    assert group_ends(process.pid)  # workers and the resource tracker of multiprocessing
    assert len(Store(tmp_path / "runs.sqlite")) == 0
