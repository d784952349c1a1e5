"""Atomic writing: a file is complete or absent, has one writer, and no temporary file is left."""

import errno
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import biv
from biv._utils import atomic_files
from biv._utils.atomic_files import (
    InUseError,
    WriteError,
    lock_folder,
    open_atomically,
    write_atomically,
)
from helpers.faults import Killed, disk_full_error, faults, file_names

TEMPORARY = ".a.txt.biv.tmp"


OPERATIONS = ["create", "truncate", "write", "sync", "rename", "sync folder"]


def test_operations_of_a_write(tmp_path, monkeypatch):
    operations = faults(monkeypatch)
    write_atomically(tmp_path / "new" / "a.txt", b"whole")
    assert operations == [("make folder", "new"), *((name, "a.txt") for name in OPERATIONS[:-1]),
                    ("sync folder", "new")]  # fmt: skip
    assert file_names(tmp_path / "new") == ["a.txt"]
    assert (tmp_path / "new" / "a.txt").read_bytes() == b"whole"


@pytest.mark.parametrize("at", range(len(OPERATIONS)), ids=OPERATIONS)
@pytest.mark.parametrize("old", [None, b"old"], ids=["new", "replaced"])
def test_a_full_disk_at_every_operation(tmp_path, monkeypatch, at, old):
    path = tmp_path / "a.txt"
    if old is not None:
        path.write_bytes(old)
    faults(monkeypatch, at, disk_full_error())
    if OPERATIONS[at] == "sync folder":  # the file is complete by then
        write_atomically(path, b"whole")
        assert path.read_bytes() == b"whole"
        assert file_names(tmp_path) == ["a.txt"]
        return
    with pytest.raises(WriteError) as caught:
        write_atomically(path, b"whole")
    assert str(caught.value) == f"{path} could not be written: no space left on device"
    assert caught.value.errno == errno.ENOSPC
    assert (path.read_bytes() if path.exists() else None) == old
    assert file_names(tmp_path) == ([] if old is None else ["a.txt"])


@pytest.mark.parametrize("at", range(len(OPERATIONS)), ids=OPERATIONS)
def test_a_kill_at_every_operation_and_the_next_run(tmp_path, monkeypatch, at):
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    with monkeypatch.context() as patch:
        faults(patch, at, Killed(), again=True)
        with pytest.raises(Killed):
            write_atomically(path, b"a longer text")
    assert path.read_bytes() == (b"a longer text" if OPERATIONS[at] == "sync folder" else b"old")
    assert set(file_names(tmp_path)) <= {"a.txt", TEMPORARY}
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert file_names(tmp_path) == ["a.txt"]


def test_an_error_of_the_caller_is_unchanged_and_leaves_no_file(tmp_path):
    def written():
        with open_atomically(tmp_path / "a.txt") as file:
            file.write(b"x" * 100_000)
            raise OSError("input failed")

    with pytest.raises(OSError, match="^input failed$"):
        written()
    assert file_names(tmp_path) == []


def test_a_second_writer_waits_or_raises(tmp_path):
    path = tmp_path / "a.txt"
    with open_atomically(path) as file:
        file.write(b"first")
        with pytest.raises(InUseError, match=rf"a.txt is being written .*\(pid {os.getpid()}\)"):
            open_atomically(path).__enter__()
        other = threading.Thread(target=write_atomically, args=(path, b"second"))
        other.start()
        other.join(0.05)
        assert other.is_alive()
        assert not path.exists()
    other.join(30)
    assert path.read_bytes() == b"second"
    assert file_names(tmp_path) == ["a.txt"]


def test_a_leftover_is_removed_only_if_it_is_not_in_use(tmp_path):
    path = tmp_path / TEMPORARY
    with open_atomically(tmp_path / "a.txt") as file:
        file.write(b"whole")
        assert atomic_files.remove_leftover(path) is False
    assert (tmp_path / "a.txt").read_bytes() == b"whole"
    path.write_text("half")
    assert atomic_files.remove_leftover(path) is True
    assert file_names(tmp_path) == ["a.txt"]


def without_locks(*_):
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.parametrize("mechanism", ["flock", "system"])
def test_without_locks_every_writer_has_its_own_file(tmp_path, monkeypatch, mechanism):
    path = tmp_path / "a.txt"
    if mechanism == "flock":
        monkeypatch.setattr(fcntl, "flock", without_locks)
        (tmp_path / TEMPORARY).write_text("half")
        assert atomic_files.remove_leftover(tmp_path / TEMPORARY) is None
        (tmp_path / TEMPORARY).unlink()
    else:
        monkeypatch.setattr(atomic_files, "HAS_LOCKS", False)
    with open_atomically(path) as file:
        file.write(b"first")
        write_atomically(path, b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"
    with lock_folder(tmp_path) as locked, lock_folder(tmp_path) as again:
        assert (locked, again) == (False, False)
    with pytest.raises(ZeroDivisionError), open_atomically(path):
        raise ZeroDivisionError
    assert [name for name in file_names(tmp_path) if name != TEMPORARY] == ["a.txt"]


def test_permissions_are_kept_and_new_files_get_the_default(tmp_path):
    private, new, usual = (tmp_path / name for name in ("a.txt", "b.txt", "c.txt"))
    private.touch(0o600)
    usual.touch()
    for path in (private, new):
        write_atomically(path, b"")
    assert private.stat().st_mode & 0o777 == 0o600
    assert new.stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize("trap", ["symlink", "hard link", "fifo", "folder"])
def test_an_odd_file_at_the_temporary_name_is_not_written_to(tmp_path, trap):
    victim, temporary = tmp_path / "victim", tmp_path / TEMPORARY
    victim.write_text("mine")
    if trap == "symlink":
        temporary.symlink_to(victim)
    elif trap == "hard link":
        os.link(victim, temporary)
    elif trap == "fifo":
        os.mkfifo(temporary)
    else:
        temporary.mkdir()
    with pytest.raises(WriteError, match=r"a\.txt could not be written"):
        write_atomically(tmp_path / "a.txt", b"new")
    assert victim.read_text() == "mine"


ALONE = os.environ | {"PYTHONPATH": str(Path(biv.__file__).parents[1])}
HOLD = """
import sys, time
from pathlib import Path
from biv._utils.atomic_files import lock_folder
with lock_folder(Path(sys.argv[1])):
    print(flush=True)
    time.sleep(60)
"""


def test_a_folder_is_locked_until_its_process_ends(tmp_path):
    folder = tmp_path / "m"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, env=ALONE
    )
    process.stdout.readline()
    message = rf"m is being written by another process \(pid {process.pid}\): wait for it, or write to another path"
    with pytest.raises(InUseError, match=message), lock_folder(folder):
        pass
    process.kill()
    process.communicate()
    with lock_folder(folder) as locked:
        assert locked
    assert file_names(folder) == []


def test_a_folder_that_was_just_removed_is_created_again(tmp_path, monkeypatch):
    folder, lock = tmp_path / "m", atomic_files._lock

    def removed_meanwhile(descriptor, path, *, wait):
        monkeypatch.setattr(atomic_files, "_lock", lock)
        folder.rmdir()
        return lock(descriptor, path, wait=wait)

    monkeypatch.setattr(atomic_files, "_lock", removed_meanwhile)
    with lock_folder(folder):
        assert folder.is_dir()


FULL = """
import sys
from pathlib import Path
from biv._utils.atomic_files import WriteError, write_atomically
write_atomically(Path("small"), b"x" * 1000)
for name, size in (("large", 100_000), ("small", 60_000)):
    try:
        write_atomically(Path(name), b"x" * size)
    except WriteError as error:
        print(error)
print(sorted(path.name for path in Path().iterdir()), Path("small").stat().st_size)
"""


def test_on_a_small_disk(tmp_path):
    """The file system is mounted in a separate namespace, which ends with the process."""
    script, disk = tmp_path / "script.py", tmp_path / "disk"
    script.write_text(FULL)
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=64k tmpfs {disk} && cd {disk}"
    try:
        if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
            pytest.skip("no file system can be mounted here")
    except FileNotFoundError:
        pytest.skip("unshare is not installed")
    completed = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} && exec {sys.executable} {script}"],
        capture_output=True,
        text=True,
        env=ALONE,
    )
    assert completed.stdout.splitlines() == [
        "large could not be written: no space left on device",
        "['small'] 60000",
    ], completed.stderr


def test_without_locks_no_file_of_the_fixed_name_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic_files, "_lock", lambda *_, **__: False)
    write_atomically(tmp_path / "a", b"1")
    assert file_names(tmp_path) == ["a"]


def test_a_link_at_the_temporary_name_is_an_error(tmp_path):
    (tmp_path / ".a.biv.tmp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteError, match=r"[.]a[.]biv[.]tmp is in the way: remove it"):
        write_atomically(tmp_path / "a", b"1")
    assert file_names(tmp_path) == [".a.biv.tmp"]
