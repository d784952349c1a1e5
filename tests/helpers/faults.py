"""Faults at a chosen operation that writes to the disk."""

import errno
import os

from biv._utils import atomic_files


class Killed(BaseException):
    """Simulates a kill: from now on, nothing on the disk changes."""


def faults(monkeypatch, at=None, error=None, *, again=False):
    """Record the operations; number `at` fails, and with `again` all later ones too."""
    operations = []

    def before(operation, path):
        number = len(operations)
        operations.append((operation, path.name))
        if at is not None and (number == at or (again and number > at)):
            raise error

    monkeypatch.setattr(atomic_files, "before_operation", before)
    return operations


def disk_full_error():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def file_names(folder):
    return sorted(path.name for path in folder.iterdir())
