"""Tests that a replacement leaves one complete model, wherever it is interrupted."""

import os

import pytest

from biv._utils import atomic_files
from biv._utils.atomic_files import InUseError, WriteError, lock_folder, write_atomically
from biv.workflows.staging import NEW, READY, Staging
from helpers.faults import Killed, disk_full_error, faults, file_names

NAMES = ("model", "evidence", "comparison", "report", "about")
OLD = {"model": "1", "comparison": "1", "report": "1", "about": "1"}
LATER = {"model": "2", "evidence": "2", "about": "2"}


@pytest.fixture
def staging(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda _: None)  # it takes most of the time
    for name, text in OLD.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "unfinished").touch()  # other files stay
    return Staging(tmp_path, NAMES)


def replace(staging, files):
    with lock_folder(staging.folder), staging.replacing() as new:
        for name, text in files.items():
            write_atomically(new / name, text.encode())


def content(staging):
    texts = {}
    for name in NAMES:
        path = staging.current(name)
        if path.is_file():
            texts[name] = path.read_text()
    return texts


def operations():
    """Return the numbers of a replacement's operations, which the first test counts."""
    return range(29)


def test_all_files_are_replaced(staging, monkeypatch):
    operations_seen = faults(monkeypatch)
    replace(staging, LATER)
    assert len(operations_seen) == len(operations())
    assert staging.read(lambda: content(staging)) == LATER
    assert file_names(staging.folder) == sorted([*LATER, "unfinished"])


@pytest.mark.parametrize("at", operations())
@pytest.mark.parametrize("then", ["read", "train"])
def test_killed_at_every_operation(staging, monkeypatch, at, then):
    with monkeypatch.context() as patch:
        operations_seen = faults(patch, at, Killed(), again=True)
        with pytest.raises(Killed):
            replace(staging, LATER)
    committed = ("rename", READY) in operations_seen[:at]
    expected = LATER if committed else OLD
    if then == "read":
        before = sorted(staging.folder.rglob("*"))
        assert staging.read(lambda: content(staging)) == expected
        assert sorted(staging.folder.rglob("*")) == before  # a reader writes nothing
    else:
        with lock_folder(staging.folder):
            staging.finish()
            assert content(staging) == expected
        replace(staging, {"model": "3", "about": "3"})
        assert content(staging) == {"model": "3", "about": "3"}
        assert file_names(staging.folder) == ["about", "model", "unfinished"]


@pytest.mark.parametrize("at", operations())
def test_a_full_disk_at_every_operation(staging, monkeypatch, at):
    with monkeypatch.context() as patch:
        operations_seen = faults(patch, at, disk_full_error())
        try:
            replace(staging, LATER)
        except WriteError as error:
            caught = error
        else:
            caught = None
    assert (operations_seen[at][0] == "sync folder") == (caught is None)
    if caught is None:
        assert content(staging) == LATER
        assert file_names(staging.folder) == sorted([*LATER, "unfinished"])
        return
    assert "could not be written: no space left" in str(caught)
    committed = ("rename", READY) in operations_seen[:at]
    if not committed:
        assert file_names(staging.folder) == sorted([*OLD, "unfinished"])
        assert NEW not in caught.filename.removesuffix(f"/{NEW}")
    assert staging.read(lambda: content(staging)) == (LATER if committed else OLD)


@pytest.mark.parametrize("name", [NEW, READY])
@pytest.mark.parametrize("what", ["link", "other file", "folder"])
def test_a_folder_of_that_name_with_other_content_is_left_alone(staging, tmp_path, name, what):
    """A downloaded model folder may contain a link to another folder of the user."""
    mine = tmp_path / "mine"
    mine.mkdir()
    for file in NAMES:
        (mine / file).write_text("mine")
    place = staging.folder / name
    if what == "link":
        place.symlink_to(mine)
    else:
        mine.rename(place)
        mine = place
        if what == "folder":
            (mine / "model").unlink()
            (mine / "model").mkdir()
        else:
            (mine / "precious").touch()
    before = sorted(mine.rglob("*"))
    assert staging.read(lambda: content(staging)) == OLD
    with lock_folder(staging.folder):
        staging.finish()
        assert staging.leftover_folders() == []
        if name == NEW:
            with pytest.raises(ValueError, match="[.]new is in the way"), staging.replacing():
                pass
    assert sorted(mine.rglob("*")) == before
    assert content(staging) == OLD


def test_files_read_during_a_replacement_are_of_one_model(staging):
    calls = []

    def read():
        texts = content(staging)
        if not calls:
            calls.append(texts)
            replace(staging, LATER)
            texts["about"] = staging.current("about").read_text()  # of the new model: not returned
        return texts

    assert staging.read(read) == LATER
    assert len(calls) == 1


def test_reading_at_every_operation_gives_one_model(staging, monkeypatch):
    """Files are read while another process replaces them, which holds the lock."""
    states = []

    def before(operation, _):
        if operation in ("rename", "remove"):
            with monkeypatch.context() as patch:
                patch.setattr(atomic_files, "before_operation", lambda *_: None)
                states.append(staging.read(lambda: content(staging)))

    monkeypatch.setattr(atomic_files, "before_operation", before)
    replace(staging, LATER)
    assert [state for k, state in enumerate(states) if not k or state != states[k - 1]] == [
        OLD,
        LATER,
    ]


def test_errors_of_reading_are_raised_and_endless_changes_are_an_error(staging):
    with pytest.raises(ValueError, match="damaged"):
        staging.read(lambda: int("damaged"))
    with pytest.raises(InUseError, match="is being written by another process: wait for it"):
        staging.read(lambda: (staging.folder / "model").write_text("x"))
