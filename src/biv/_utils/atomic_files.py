"""Atomic writing of files: a file is either complete or absent, and has one writer at a time.

A file is written to a temporary file in the same folder, ``.<name>.biv.tmp``. That file is
synchronised with the disk and then renamed. While it is in use, its writer holds an
operating-system lock on it, which is released when the process ends for any reason. A temporary
file that is not locked therefore belongs to a killed process, and the next writer of the same file
reuses it. Where the system has no such locks, every writer uses a different name,
``.<name>.biv-XXXXXXXX.tmp``, and leftover files are not removed.

Every operation that changes the disk calls :func:`before_operation` first, with its name and the
final path. Tests replace that function to count the operations, or to make the n-th one fail with
an ``OSError``, as on a full disk. If every operation from the n-th on raises an exception, that
simulates a kill: the disk does not change any more, and the locks are released.
"""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, cast

try:
    import fcntl
except ImportError:  # on Windows, where an open file can be neither removed nor renamed
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

BUFFER = 1 << 16
NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # includes the user's quota
# Errors of file systems that do not support locks.
UNSUPPORTED = {
    errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOLCK, errno.ENOSYS,
    errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM,
}  # fmt: skip

_FLAGS = os.O_RDWR | os.O_CREAT
for _flag in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _flag, 0)


class WriteError(OSError):
    """A file or a folder could not be written; the message names it and the reason."""

    def __str__(self) -> str:
        reason = self.strerror or ""
        return f"{self.filename} could not be written: {reason[:1].lower()}{reason[1:]}"

    def for_path(self, path: Path) -> WriteError:
        """Return the same error for another file."""
        return WriteError(self.errno, self.strerror, str(path))


class InUseError(OSError):
    """Another process is writing the same file or folder."""


def before_operation(operation: str, path: Path) -> None:
    """Do nothing; tests replace this to count the operations or to make one of them fail.

    Parameters
    ----------
    operation : str
        "create", "truncate", "write", "sync", "rename", "remove", "make folder" or "sync folder".
    path : Path
        Final path of the file or folder that is written.
    """


@contextmanager
def _operation(name: str, path: Path) -> Iterator[None]:
    try:
        before_operation(name, path)
        yield
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error


def write_atomically(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write a file atomically, and create its folder if that does not exist.

    Several processes that write the same file wait for each other.

    Parameters
    ----------
    path : Path
        Path of the file.
    content : bytes
        Whole content of the file.
    replace : bool, default=True
        Whether to replace a file that already exists.

    Raises
    ------
    FileExistsError
        If the file already exists and `replace` is False.
    WriteError
        If the file cannot be written.
    """
    make_folder(path.parent)
    with open_atomically(path, wait=True) as file:
        if not replace and path.exists():  # the lock keeps other processes from creating it now
            raise FileExistsError(errno.EEXIST, "the file already exists", str(path))
        file.write(content)


@contextmanager
def open_atomically(path: Path, *, wait: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when the context ends without an error.

    Parameters
    ----------
    path : Path
        Path of the file to write. Its folder must exist.
    wait : bool, default=False
        Whether to wait for another process that is writing the same file.

    Yields
    ------
    BinaryIO
        The open temporary file.

    Raises
    ------
    InUseError
        If another process is writing the file and `wait` is False.
    WriteError
        If the file cannot be written.
    """
    descriptor, temporary = _open_temporary(path, wait=wait)
    output, is_open = _Output(descriptor, path), True
    file = io.BufferedWriter(output, BUFFER)
    try:
        with _operation("truncate", path):
            os.ftruncate(descriptor, 0)
            if path.exists():
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        yield file
        if not file.closed:
            file.flush()
        with _operation("sync", path):
            os.fsync(descriptor)
        if not HAS_LOCKS:
            os.close(descriptor)
            is_open = False
        rename(temporary, path)
    except BaseException:
        output.close()  # otherwise the buffer would be flushed later
        if is_open and not HAS_LOCKS:
            os.close(descriptor)
            is_open = False
        if not is_open or _is_same_file(temporary, descriptor):
            remove(temporary)
        raise
    finally:
        if is_open:
            os.close(descriptor)
    sync_folder(path.parent)


class _Output(io.FileIO):
    """Open file whose errors name its final path; closing it leaves the descriptor open."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._path = path

    def write(self, content: Any) -> int:
        with _operation("write", self._path):
            return cast(int, super().write(content))


def _open_temporary(path: Path, *, wait: bool) -> tuple[int, Path]:
    """Open and lock the temporary file of `path`; a reused one keeps its old content."""
    temporary = path.with_name(f".{path.name}.biv.tmp")
    while HAS_LOCKS:
        try:
            descriptor = _open_or_create(temporary, path)
        except PermissionError:  # another user owns it, or no file can be created in this folder
            break
        try:
            if not _lock(descriptor, path, wait=wait):
                if _is_same_file(temporary, descriptor) and not os.fstat(descriptor).st_size:
                    # We created it. Without locks, a uniquely named file is used instead.
                    temporary.unlink()
                os.close(descriptor)
                break
            # Between opening and locking, another process may have renamed or removed it.
            if _is_same_file(temporary, descriptor):
                return descriptor, temporary
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    temporary = path.with_name(f".{path.name}.biv-{secrets.token_hex(4)}.tmp")
    with _operation("create", path):
        return os.open(temporary, _FLAGS | os.O_EXCL, 0o666), temporary


def _open_or_create(temporary: Path, path: Path) -> int:
    """Open a leftover temporary file or a new one; refuse links and other kinds of files."""
    try:
        before_operation("create", path)
        descriptor = os.open(temporary, _FLAGS, 0o666)
    except PermissionError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symbolic link
            raise WriteError(
                errno.EEXIST, f"{temporary} is in the way: remove it", str(path)
            ) from None
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(descriptor)
        raise WriteError(errno.EEXIST, f"{temporary} is in the way: remove it", str(path))
    return descriptor


def _is_same_file(path: Path, descriptor: int) -> bool:
    """Return whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except OSError:
        return False


def _lock(descriptor: int, path: Path, *, wait: bool = False) -> bool:
    """Lock an open file or folder for this process; return False if locks are not supported.

    Raises
    ------
    InUseError
        If another process holds the lock and `wait` is False.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise InUseError(
            f"{path} is being written by another process{_lock_holder(descriptor)}: wait for it, "
            "or write to another path"
        ) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return False
    return True


def _lock_holder(descriptor: int) -> str:
    """Return " (pid ...)" of the process that holds the lock, or "" if that is not known."""
    status = os.fstat(descriptor)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            parts = line.split()  # such as "1: FLOCK ADVISORY WRITE pid device start end"
            if parts[1] == "FLOCK" and parts[5] == device and int(parts[4]) > 0:
                return f" (pid {parts[4]})"
    return ""


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Lock a folder against other processes that call this; create it if it does not exist.

    Yields
    ------
    bool
        Whether the folder is locked; False if the system has no locks for folders.

    Raises
    ------
    InUseError
        If another process holds the lock and `wait` is False.
    """
    if not HAS_LOCKS:
        make_folder(folder)
        yield False
        return
    while True:
        make_folder(folder)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # another process has just removed it
            continue
        except PermissionError:
            yield False
            return
        try:
            locked = _lock(descriptor, folder, wait=wait)
            if not locked or _is_same_file(folder.resolve(), descriptor):
                yield locked
                return
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they do not exist."""
    if not folder.is_dir():
        with _operation("make folder", folder):
            folder.mkdir(parents=True, exist_ok=True)


def rename(source: Path, target: Path) -> None:
    """Rename a file or folder, replacing the target if it exists."""
    with _operation("rename", target):
        source.replace(target)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its content, if it exists."""
    if not os.path.lexists(path):
        return
    with _operation("remove", path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_leftover(path: Path) -> bool | None:
    """Remove a file or folder that a killed process left behind.

    Returns
    -------
    bool or None
        True if it does not exist any more. False if it is kept because a process uses it. None if
        it is kept because that cannot be determined.
    """
    if not HAS_LOCKS:
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None if os.path.lexists(path) else True
    try:
        if not _lock(descriptor, path):
            return None
        if _is_same_file(path, descriptor):
            remove(path)
        return True
    except InUseError:
        return False
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Synchronise the names in a folder with the disk, if the system supports that.

    A failure is ignored. By then the renamed file is complete and visible, and its content is on
    the disk. After an error the caller would repeat the write, and find that the file exists.
    """
    if not HAS_LOCKS:
        return
    with suppress(OSError):
        before_operation("sync folder", folder)
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
