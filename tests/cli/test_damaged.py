"""Damaged and hostile files: every command names the file and ends with exit code 2."""

import argparse
import json
import random
import shutil
import sqlite3
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Literal

import pytest

import biv
from biv._utils import typed_json
from biv._utils.messages import shortened
from biv.cli import main
from biv.estimator import model_file
from biv.metrics import Score
from biv.paper.commands._common import train_missing
from biv.paper.commands._options import add_options
from biv.paper.runner import TrainingSummary
from biv.paper.store import Store
from biv.tables import files
from biv.workflows import ModelFolder
from biv.workflows.comparison_record import Effect
from biv.workflows.method_comparison import MethodComparison, MethodResult
from biv.workflows.methods import BIV, L2, SHUFFLED
from helpers.damage import (
    dumped,
    forge_curves,
    json_mutations,
    odd_files,
    store_statements,
    text_mutations,
)
from helpers.paper_runs import RUN

SAVED = Path(__file__).parents[1] / "data" / "v0.1"
FILES = ("about.json", "evidence.json", "comparison.json")
SAMPLE = 15  # mutations per file; the fuzzer tries all


@pytest.fixture
def folder(tmp_path):
    """Copy a model of version 0.1, which has no checksums, and add a comparison."""
    shutil.copytree(SAVED / "folder", tmp_path / "m")
    effect = Effect(0.1, 0.05, 0.2)
    methods = [
        MethodResult(name, Score(0.1 + k / 10, 0.02), Score(k / 10, 0.02), 1.0, "")
        for k, name in enumerate((BIV, L2, SHUFFLED))
    ]
    comparison = MethodComparison(
        60, 60, 0, 5, 1.15, methods, {}, effect, effect, True, 0.1, target="y"
    )
    content = json.dumps(comparison.record().to_json())
    (tmp_path / "m" / "comparison.json").write_text(content)
    return tmp_path / "m"


def report(source, out):
    return main(["report", str(source), "-o", str(out / "out.html"), "--force"])


def succeeds_or_names(capsys, code, name):
    """Return whether a command succeeded, or named the file in a short error."""
    error = capsys.readouterr().err
    return code == 0 or (code == 2 and name in error and len(error) < 2000)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_file_of_a_model_is_named(name, folder, tmp_path, capsys):
    path = folder / name
    good = path.read_text()
    damaged = [(what, dumped(value).encode()) for what, value in json_mutations(json.loads(good))]
    for what, content in [*random.Random(0).sample(damaged, SAMPLE), *text_mutations(good)]:
        path.write_bytes(content)
        assert succeeds_or_names(capsys, report(folder, tmp_path), name), what
    path.write_text(good)
    assert report(folder, tmp_path) == 0


@pytest.mark.parametrize("name", FILES)
def test_a_folder_or_pipe_in_place_of_a_file_is_named(name, folder, tmp_path, capsys):
    path = folder / name
    for what, put in odd_files(path):
        path.unlink()
        put()
        assert report(folder, tmp_path) == 2, what
        assert name in capsys.readouterr().err
        if path.is_dir():
            path.rmdir()
            path.touch()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("evidence.json", lambda c: c["cloud"]["y"].__setitem__(3, "x"), "evidence.json is damaged: cloud.y[3] must be float; got str"),
        ("evidence.json", lambda c: c["cloud"]["y"].pop(), "evidence.json is damaged: cloud must have non-empty lists of equal length"),
        ("evidence.json", lambda c: c["residuals"].pop("mean"), "evidence.json is damaged: residuals must have variance, mean and stderr"),
        ("evidence.json", lambda c: c.update(format="biv evidence 2"), "evidence.json was written by a newer biv (format 'biv evidence 2'"),
        ("about.json", lambda c: c["about"]["result"].update(epoch=3), "about.json is damaged: about.result.history must have a score of epoch 3"),
        ("about.json", lambda c: c["schema"]["columns"].pop(), "about.json is damaged: schema.columns must give the features"),
        ("about.json", lambda c: c["schema"]["columns"][2].update(kind="number"), "schema.columns must give categories for 'town'"),
        ("about.json", lambda c: c["schema"]["columns"][2].update(kind="_class__"), "Invalid enum value '_class__'"),
        ("comparison.json", lambda c: c.update(target="z"), "must be a comparison of the label 'y'; got 'z'"),
    ],
)  # fmt: skip
def test_the_error_names_the_place_in_the_file(name, change, message, folder, tmp_path, capsys):
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))
    assert report(folder, tmp_path) == 2
    assert message in capsys.readouterr().err


def test_a_file_with_a_wrong_checksum_is_named(folder, tmp_path, capsys):
    ModelFolder.read(folder).write(folder)  # with checksums, as since version 0.2
    assert report(folder, tmp_path) == 0
    text = (folder / "evidence.json").read_text()
    (folder / "evidence.json").write_text(text.replace('"rows": 60', '"rows": 61'))
    capsys.readouterr()
    assert report(folder, tmp_path) == 2
    assert "evidence.json is damaged: its checksum does not match" in capsys.readouterr().err
    (folder / "evidence.json").unlink()
    assert report(folder, tmp_path) == 2
    assert "evidence.json is missing" in capsys.readouterr().err


def test_a_file_that_is_too_large_is_not_read(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(typed_json, "MAX_BYTES", 100)
    assert report(folder, tmp_path) == 2
    assert "about.json must have at most 100 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["settings"].update(checkpoint="/tmp/x"), "settings has 'checkpoint', which is unknown"),
        (lambda c: c["settings"].update(members=2**70), "members"),
        (lambda c: c["settings"].update(loss=["biv"]), "loss must be str; got array"),
        (lambda c: c["network"].update(widths=[10**9, 10**9]), "a network must have"),
        (lambda c: c.update(epoch=9), "scores must have a finite score for the chosen epoch, 9"),
        (lambda c: c["columns"].pop(), r"the networks must have 3 features; got \[6\]"),
        (lambda c: c["story"].update(tau2=[]), r"every list must have one entry per output \(1\); got"),
    ],
)  # fmt: skip
def test_the_content_of_a_model_file_is_validated(change, message, tmp_path):
    tensors, content = model_file.read(SAVED / "model.biv")
    change(content)
    model_file.write(tmp_path / "bad.biv", tensors, content)
    with pytest.raises(ValueError, match=f"bad.biv is not a model, or is damaged: .*({message})"):
        biv.BIVRegressor.load(tmp_path / "bad.biv")


def test_errors_of_damaged_files_are_short(tmp_path):
    """Other libraries quote a text that is not a number, however long it is."""
    content = (SAVED / "model.biv").read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"] = "x" * 200_000
    damaged = json.dumps(header).encode()
    (tmp_path / "bad.biv").write_bytes(
        len(damaged).to_bytes(8, "little") + damaged + content[8 + length :]
    )
    with pytest.raises(ValueError, match="bad.biv is not a model, or is damaged: .*char") as e:
        biv.BIVRegressor.load(tmp_path / "bad.biv")
    assert len(str(e.value)) < 1000
    with pytest.raises(ValueError, match=r"damaged: \[0\]: Invalid enum value 'x.*characters") as e:
        typed_json.parse("a.json", json.dumps(["x" * 200_000]), list[Literal["a"]])
    assert len(str(e.value)) < 1000


def test_every_setting_but_paths_and_objects_can_be_loaded():
    from biv.estimator.stored_settings import settings_from_json

    settings = biv.BIVRegressor().get_params()
    assert settings.pop("checkpoint") is None
    stored = settings | {"keep": []}
    assert settings_from_json(stored, settings, biv.BIVRegressor.__init__) == settings


@pytest.fixture
def store(tmp_path):
    shutil.copy(SAVED / "runs.sqlite", tmp_path)
    return tmp_path / "runs.sqlite"


def execute(path, statement, *values):
    connection = sqlite3.connect(path)
    if values:
        connection.execute(statement, values)
    else:
        connection.executescript(statement)
    connection.commit()
    connection.close()


@pytest.mark.slow
def test_a_damaged_store_is_named(store, tmp_path, capsys):
    good, key = store.read_bytes(), Store(store).runs()[0].key
    for what, statement in random.Random(0).sample([*store_statements(key)], SAMPLE):
        store.write_bytes(good)
        execute(store, statement)
        assert succeeds_or_names(capsys, report(store, tmp_path), "runs.sqlite"), what


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE runs SET spec = json_set(spec, '$.epochs', 7) WHERE key = (SELECT min(key) FROM runs)", "its key must be the hash of its spec"),
        ("PRAGMA user_version = 3", "was written by a newer biv"),
        ("CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END", "must have tables runs and curves and nothing else"),
        ("ALTER TABLE runs RENAME TO r; CREATE VIEW runs AS WITH RECURSIVE n(key) AS (SELECT '' UNION ALL SELECT key FROM n) SELECT * FROM n", "must have tables runs and curves and nothing else"),
    ],
)  # fmt: skip
def test_a_store_with_other_rows_or_tables_is_refused(statement, message, store, tmp_path, capsys):
    execute(store, statement)
    assert report(store, tmp_path) == 2
    assert message in capsys.readouterr().err


def test_a_curve_is_unpacked_to_its_length_only(store, tmp_path, capsys, monkeypatch):
    execute(store, "UPDATE curves SET data = ?", zlib.compress(bytes(10**7)))
    monkeypatch.setattr(zlib, "decompress", None)
    assert report(store, tmp_path) == 2
    assert "a curve must have" in capsys.readouterr().err


STORED = ("--dataset", "bike2011", "--preset", "smoke", "--seeds", "1", "--stored", "--no-report")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.0, "runs.sqlite cannot be shown: "),
        (-1.0, "is damaged: its effective_batch_size must be finite and at least 0"),
        (float("nan"), "is damaged: its effective_batch_size must be finite and at least 0"),
    ],
)
@pytest.mark.parametrize(
    "command", [("claims",), ("reproduce", "table1")], ids=lambda command: command[0]
)
def test_forged_curves_are_named(command, value, message, store, tmp_path, capsys):
    forge_curves(store, value)
    assert main([*command, *STORED, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "runs.sqlite" in error
    assert message in error
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".md"] == []


KILLED = """
import os, signal, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA cache_size = 1")  # so that the file changes before the transaction ends
connection.execute("BEGIN")
connection.execute("DELETE FROM curves")
connection.execute("UPDATE runs SET provenance = '{}'")
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def unfinished(store):
    """Return a store whose writer was killed in a transaction, its journal and its old content."""
    before, journal = store.read_bytes(), store.with_name("runs.sqlite-journal")
    subprocess.run([sys.executable, "-c", KILLED, store])
    assert store.read_bytes() != before
    assert journal.read_bytes().startswith(bytes.fromhex("d9d505f920a163d7"))
    return store, journal, before


@pytest.mark.parametrize("command", ["report", "claims --stored", "reproduce fig03"])
def test_the_transaction_of_a_killed_writer_is_undone(command, unfinished, tmp_path):
    store, journal, before = unfinished
    if command == "report":
        assert report(store, tmp_path) == 0
    else:
        options = [option for option in STORED if option != "--stored"]
        assert main([*command.split(), *options, "--out", str(tmp_path)]) in (0, 1)
    assert store.read_bytes() == before
    assert not journal.exists()


def test_an_unfinished_transaction_that_cannot_be_undone_is_an_error(
    unfinished, tmp_path, monkeypatch, capsys
):
    connect, changed = sqlite3.connect, unfinished[0].read_bytes()

    def not_writable(place, **settings):
        return connect(place.replace("mode=rw", "mode=ro"), **settings)

    monkeypatch.setattr(sqlite3, "connect", not_writable)
    assert report(unfinished[0], tmp_path) == 2
    assert (
        "runs.sqlite cannot be used: attempt to write a readonly database; runs.sqlite-journal "
        "holds an unfinished transaction. Make the store and its folder writable and open it once, "
        "for example with `biv report`"
    ) in capsys.readouterr().err
    assert unfinished[0].read_bytes() == changed


@pytest.mark.parametrize("read_only", [False, True])
def test_a_journal_does_not_lead_to_other_files(read_only, unfinished, tmp_path):
    """A journal of several databases names another file, which SQLite would remove."""
    store, journal, _ = unfinished
    changed, victim = store.read_bytes(), tmp_path / "victim"
    victim.write_text("mine")
    name, page = bytes(victim), 0x40000000 // 512 + 1
    end = name + struct.pack(">II", len(name), sum(name)) + bytes.fromhex("d9d505f920a163d7")
    with journal.open("ab") as file:
        file.write(struct.pack(">I", page) + end)
    with pytest.raises(ValueError, match="runs.sqlite-journal is not the journal of a store"):
        Store(store, read_only=read_only)
    assert victim.read_text() == "mine"
    assert store.read_bytes() == changed


def test_a_store_whose_creation_was_killed_is_created(tmp_path, monkeypatch):
    """SQLite creates an empty file first, which a kill leaves behind."""
    (tmp_path / "runs.sqlite").touch()
    trained = []
    monkeypatch.setattr(
        "biv.paper.runner.complete",
        lambda runs, *_, **__: (trained.extend(runs), TrainingSummary(0, len(runs), []))[1],
    )
    monkeypatch.setattr("biv.paper.timing.seconds_per_row", lambda _: 0.001)
    parser = argparse.ArgumentParser()
    add_options(parser)
    train_missing([RUN], parser.parse_args(["--jobs", "1", "--out", str(tmp_path)]))
    assert trained == [RUN]
    assert len(Store(tmp_path / "runs.sqlite", read_only=True)) == 0


def test_a_report_changes_nothing_in_the_folder_of_its_store(store, tmp_path):
    out = tmp_path / "elsewhere"
    out.mkdir()
    store.chmod(0o444)
    before = store.read_bytes()
    assert report(store, out) == 0
    assert store.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "runs.sqlite"]
    (tmp_path / "empty.sqlite").touch()
    assert report(tmp_path / "empty.sqlite", out) == 2
    assert (tmp_path / "empty.sqlite").read_bytes() == b""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x" * 4000, "the column names must have at most 1,000 characters"),
        ("a,y\n1,2\n3," + "4" * 4000, "a row after row 1 is longer than 1,000 bytes"),
    ],
)
def test_a_file_without_line_breaks_is_not_read_whole(content, message, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 1000)
    (tmp_path / "t.csv").write_text(content)
    with pytest.raises(ValueError, match=f"t.csv cannot be read: {message}"):
        list(files.Files(tmp_path / "t.csv").parts())


def test_a_long_cell_is_shortened_in_a_message(tmp_path, capsys):
    name = "n" * 1000
    (tmp_path / "t.csv").write_text(f"{name},y\n1,2\n3,{'z' * 100_000}\n")
    assert main(["train", str(tmp_path / "t.csv"), "--target", "y", "-o", str(tmp_path / "m")]) == 2
    error = capsys.readouterr().err
    assert "got 'zzzzzzzzzzzzzzzzzzzz'... (100,000 characters)" in error
    assert len(error) < 400
    assert shortened("short") == "'short'"


def test_too_little_memory_is_an_error(folder, tmp_path, capsys, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(ModelFolder, "read", full)
    assert report(folder, tmp_path) == 2
    assert "not enough memory" in capsys.readouterr().err
