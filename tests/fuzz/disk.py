"""Record the calls by which this process changes a folder, and make one of them fail."""

import builtins
import errno
import io
import os
import sys
from contextlib import contextmanager

GROWS = ("open", "write", "os.mkdir", "os.fsync")  # calls that keep failing on a full disk
PATHS = {  # audit events: positions of their paths, and of the folders these are relative to
    "os.rename": ((0, 2), (1, 3)),
    "os.remove": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
}
_watches = []
_open, _write, _fsync = io.open, os.write, os.fsync


class Watch:
    """Record of the calls that change something below a folder.

    Attributes
    ----------
    calls : list of (str, str)
        Kind and path of each call, in order.
    """

    def __init__(self, folder, fail_at=None, *, persistent=False):
        self.folder = os.path.realpath(folder)
        self.fail_at, self.persistent = fail_at, persistent
        self.calls = []

    def record(self, kind, path):
        if path != self.folder and not path.startswith(self.folder + os.sep):
            return
        self.calls.append((kind, path))
        if self.fail_at is None or len(self.calls) < self.fail_at:
            return
        if len(self.calls) == self.fail_at or (self.persistent and kind in GROWS):
            # A real error of a write or a synchronisation names no path either.
            path_argument = () if kind in ("write", "os.fsync") else (path,)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *path_argument)


@contextmanager
def watched(folder, fail_at=None, *, persistent=False):
    """Record the calls; make number `fail_at` fail, and with `persistent` later ones too."""
    watch = Watch(folder, fail_at, persistent=persistent)
    if not _watches:
        _install()
    _watches.append(watch)
    builtins.open = io.open = _recording_open
    os.write, os.fsync = _recording_write, _recording_fsync
    try:
        yield watch
    finally:
        builtins.open = io.open = _open
        os.write, os.fsync = _write, _fsync
        _watches[-1] = None


def _install():
    sys.addaudithook(_audit)  # it cannot be removed, but costs little while nothing is watched


def _record(kind, path):
    if _watches and _watches[-1] is not None and isinstance(path, (str, bytes, os.PathLike)):
        _watches[-1].record(kind, os.path.abspath(os.fsdecode(path)))


def _audit(event, arguments):
    if not _watches or _watches[-1] is None:
        return
    if event == "open":
        path, _, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _record("open", path)
    elif event in PATHS:
        if event == "os.mkdir" and os.path.isdir(arguments[0]):
            return  # the caller only tests whether the folder exists
        for path, beside in PATHS[event]:
            folder = arguments[beside]
            base = _path_of(folder) if isinstance(folder, int) and folder >= 0 else ""
            _record(event, os.path.join(base, os.fsdecode(arguments[path])))
            if event == "os.rename":
                break  # both paths belong to one call


def _path_of(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _recording_write(descriptor, data):
    path = _path_of(descriptor)
    if path.startswith(os.sep):  # not a pipe
        _record("write", path)
    return _write(descriptor, data)


def _recording_fsync(descriptor):
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    _record("os.fsync", _path_of(number))
    return _fsync(descriptor)


class _File(io.FileIO):
    def write(self, data):
        _record("write", self.name if not isinstance(self.name, int) else _path_of(self.name))
        return super().write(data)


def _recording_open(
    file,
    mode="r",
    buffering=-1,
    encoding=None,
    errors=None,
    newline=None,
    closefd=True,
    opener=None,
):
    """Open a file like the built-in function, but record its writes."""
    if not set(mode) & set("wax+"):
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _File(file, mode.replace("t", "").replace("b", ""), closefd, opener)
    if buffering == 0:
        return raw
    buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)
