"""The one writer of files: complete or not there, one process at a time, nothing left behind.

A file is written beside its final name, as ``.<name>.biv.tmp``, synchronised with the disk, and
renamed. While it is in use, an operating-system lock is held on it, which ends with the process,
however that ends. What a killed process has left behind is therefore known by its name and by a
lock that can be taken; the next writer of the same file uses it again. Where the system has no such
locks, every writer has a name of its own, ``.<name>.biv-XXXXXXXX.tmp``, and nothing is removed.

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
except ImportError:  # Windows, where an open file can be neither removed nor renamed
    HAS_LOCKS = False
else:
    HAS_LOCKS = True

BUFFER = 1 << 16
NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}  # on the disk, or for this user
# What file systems say of a lock that they do not have.
UNSUPPORTED = {
    errno.EACCES, errno.EBADF, errno.EINVAL, errno.EISDIR, errno.ENOLCK, errno.ENOSYS,
    errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM,
}  # fmt: skip

_FLAGS = os.O_RDWR | os.O_CREAT
for _flag in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
    _FLAGS |= getattr(os, _flag, 0)


class WriteError(OSError):
    """A file or a folder could not be written; the message names it and says why."""

    def __str__(self) -> str:
        reason = self.strerror or ""
        return f"{self.filename} could not be written: {reason[:1].lower()}{reason[1:]}"

    def renamed(self, path: Path) -> WriteError:
        """Return the same error of another file."""
        return WriteError(self.errno, self.strerror, str(path))


class InUseError(OSError):
    """Another process writes the same file or folder."""


def before_operation(operation: str, path: Path) -> None:
    """Do nothing; a test counts the operations here, or has one of them fail.

    Args:
        operation: "create", "truncate", "write", "sync", "rename", "remove", "make folder" or
            "sync folder".
        path: What is written, by its final name.
    """


@contextmanager
def _operation(name: str, path: Path) -> Iterator[None]:
    try:
        before_operation(name, path)
        yield
    except OSError as error:
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error


def write_atomically(path: Path, content: bytes, *, replace: bool = True) -> None:
    """Write the whole file or none; its folder is made if it does not exist.

    Several processes that write the same file wait for each other.

    Args:
        path: The file.
        content: All of it.
        replace: Whether to replace a file that exists.

    Raises:
        FileExistsError: The file exists, and `replace` is False.
        WriteError: It cannot be written.
    """
    make_folder(path.parent)
    with open_atomically(path, wait=True) as file:
        if not replace and path.exists():  # nobody else can make it now
            raise FileExistsError(errno.EEXIST, "the file already exists", str(path))
        file.write(content)


@contextmanager
def open_atomically(path: Path, *, wait: bool = False) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the context ends; after an error, none does.

    Args:
        path: The file to write. Its folder exists.
        wait: Whether to wait for another process that writes the same file.

    Raises:
        InUseError: Another process writes it, and `wait` is False.
        WriteError: It cannot be written.
    """
    descriptor, beside = _opened(path, wait=wait)
    output, is_open = _Output(descriptor, path), True
    file = io.BufferedWriter(output, BUFFER)
    try:
        with _operation("truncate", path):
            os.ftruncate(descriptor, 0)
            if path.exists():
                beside.chmod(stat.S_IMODE(path.stat().st_mode))
        yield file
        if not file.closed:
            file.flush()
        with _operation("sync", path):
            os.fsync(descriptor)
        if not HAS_LOCKS:
            os.close(descriptor)
            is_open = False
        rename(beside, path)
    except BaseException:
        output.close()  # so that nothing tries to write the rest of the buffer
        if is_open and not HAS_LOCKS:
            os.close(descriptor)
            is_open = False
        if not is_open or _is(beside, descriptor):
            remove(beside)
        raise
    finally:
        if is_open:
            os.close(descriptor)
    sync_folder(path.parent)


class _Output(io.FileIO):
    """An open file whose errors name it by its final name, and that leaves its descriptor open."""

    def __init__(self, descriptor: int, path: Path) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._path = path

    def write(self, content: Any) -> int:
        with _operation("write", self._path):
            return cast(int, super().write(content))


def _opened(path: Path, *, wait: bool) -> tuple[int, Path]:
    """A file beside `path`, locked where possible; what was left behind is still in it."""
    beside = path.with_name(f".{path.name}.biv.tmp")
    while HAS_LOCKS:
        try:
            descriptor = _created(beside, path)
        except PermissionError:  # it is another user's, or no file can be made here: see below
            break
        try:
            if not _lock(descriptor, path, wait=wait):
                if _is(beside, descriptor) and not os.fstat(descriptor).st_size:
                    beside.unlink()  # just made: without locks, this name is not used
                os.close(descriptor)
                break
            # Between opening and locking, another process may have finished or removed it.
            if _is(beside, descriptor):
                return descriptor, beside
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    beside = path.with_name(f".{path.name}.biv-{secrets.token_hex(4)}.tmp")
    with _operation("create", path):
        return os.open(beside, _FLAGS | os.O_EXCL, 0o666), beside


def _created(beside: Path, path: Path) -> int:
    """Open what was left behind, or a new file; not what a link leads to."""
    try:
        before_operation("create", path)
        descriptor = os.open(beside, _FLAGS, 0o666)
    except PermissionError:
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:  # a symbolic link
            raise WriteError(
                errno.EEXIST, f"{beside} is in the way: remove it", str(path)
            ) from None
        raise WriteError(error.errno, error.strerror or str(error), str(path)) from error
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
        os.close(descriptor)
        raise WriteError(errno.EEXIST, f"{beside} is in the way: remove it", str(path))
    return descriptor


def _is(path: Path, descriptor: int) -> bool:
    """Whether a name leads to an open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except OSError:
        return False


def _lock(descriptor: int, path: Path, *, wait: bool = False) -> bool:
    """Lock an open file or folder for this process; False where there are no locks.

    Raises:
        InUseError: Another process has it.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise InUseError(
            f"{path} is being written by another process{_holder(descriptor)}: wait for it, or "
            "write to another place"
        ) from None
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        return False
    return True


def _holder(descriptor: int) -> str:
    """The process that holds the lock, where the system tells."""
    found = os.fstat(descriptor)
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with suppress(OSError):
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            parts = line.split()  # 1: FLOCK ADVISORY WRITE pid device start end
            if parts[1] == "FLOCK" and parts[5] == device and int(parts[4]) > 0:
                return f" (pid {parts[4]})"
    return ""


@contextmanager
def lock_folder(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a folder, which is made if it does not exist, against other processes that call this.

    Yields whether it could be locked; False where the system has no locks for folders.

    Raises:
        InUseError: Another process holds it, and `wait` is False.
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
            if not locked or _is(folder.resolve(), descriptor):
                yield locked
                return
        finally:
            os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder, and those that it lies in, where they do not exist."""
    if not folder.is_dir():
        with _operation("make folder", folder):
            folder.mkdir(parents=True, exist_ok=True)


def rename(source: Path, target: Path) -> None:
    """Give a file or folder another name, in place of what has that name."""
    with _operation("rename", target):
        source.replace(target)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that it holds, if it exists."""
    if not os.path.lexists(path):
        return
    with _operation("remove", path):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_leftover(path: Path) -> bool | None:
    """Remove a file or folder that a killed process has left behind; return whether it is gone.

    It stays if it is in use, and also if that cannot be known, for which None is returned.
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
        if _is(path, descriptor):
            remove(path)
        return True
    except InUseError:
        return False
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Synchronise the names in a folder with the disk, where the system can do that.

    A failure is not an error: what was renamed is complete and visible by then, and its content is
    on the disk. An error would make the caller repeat what is done, and be told that it exists.
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
