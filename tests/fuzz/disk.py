"""Watch what this process writes below a folder, and make one of these calls fail."""

import builtins
import errno
import io
import os
import sys
from contextlib import contextmanager

GROWS = ("open", "write", "os.mkdir", "os.fsync")  # what a full disk goes on to refuse
PATHS = {  # audit events: where their paths are, and the folder that these are relative to
    "os.rename": ((0, 2), (1, 3)),
    "os.remove": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
}
_watches = []
_open, _write, _fsync = io.open, os.write, os.fsync


class Watch:
    """The calls that change something below a folder.

    Attributes:
        calls: Their kinds and paths, in order.
    """

    def __init__(self, folder, fail_at=None, *, persistent=False):
        self.folder = os.path.realpath(folder)
        self.fail_at, self.persistent = fail_at, persistent
        self.calls = []

    def called(self, kind, path):
        if path != self.folder and not path.startswith(self.folder + os.sep):
            return
        self.calls.append((kind, path))
        if self.fail_at is None or len(self.calls) < self.fail_at:
            return
        if len(self.calls) == self.fail_at or (self.persistent and kind in GROWS):
            named = () if kind in ("write", "os.fsync") else (path,)  # as the real ones do
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *named)


@contextmanager
def watched(folder, fail_at=None, *, persistent=False):
    """Count the calls; let number `fail_at` fail, and with `persistent` the later ones too."""
    watch = Watch(folder, fail_at, persistent=persistent)
    if not _watches:
        _install()
    _watches.append(watch)
    builtins.open = io.open = _opened
    os.write, os.fsync = _written, _synced
    try:
        yield watch
    finally:
        builtins.open = io.open = _open
        os.write, os.fsync = _write, _fsync
        _watches[-1] = None


def _install():
    sys.addaudithook(_audited)  # cannot be removed, and costs little while nothing is watched


def _tell(kind, path):
    if _watches and _watches[-1] is not None and isinstance(path, (str, bytes, os.PathLike)):
        _watches[-1].called(kind, os.path.abspath(os.fsdecode(path)))


def _audited(event, arguments):
    if not _watches or _watches[-1] is None:
        return
    if event == "open":
        path, _, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            _tell("open", path)
    elif event in PATHS:
        if event == "os.mkdir" and os.path.isdir(arguments[0]):
            return  # it was looked for in this way
        for path, beside in PATHS[event]:
            folder = arguments[beside]
            base = _path_of(folder) if isinstance(folder, int) and folder >= 0 else ""
            _tell(event, os.path.join(base, os.fsdecode(arguments[path])))
            if event == "os.rename":
                break  # one call


def _path_of(descriptor):
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return ""


def _written(descriptor, data):
    path = _path_of(descriptor)
    if path.startswith(os.sep):  # and no pipe
        _tell("write", path)
    return _write(descriptor, data)


def _synced(descriptor):
    number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
    _tell("os.fsync", _path_of(number))
    return _fsync(descriptor)


class _File(io.FileIO):
    def write(self, data):
        _tell("write", self.name if not isinstance(self.name, int) else _path_of(self.name))
        return super().write(data)


def _opened(
    file,
    mode="r",
    buffering=-1,
    encoding=None,
    errors=None,
    newline=None,
    closefd=True,
    opener=None,
):
    """As the built-in function, with writes that are told of."""
    if not set(mode) & set("wax+"):
        return _open(file, mode, buffering, encoding, errors, newline, closefd, opener)
    raw = _File(file, mode.replace("t", "").replace("b", ""), closefd, opener)
    if buffering == 0:
        return raw
    buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
    return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)
