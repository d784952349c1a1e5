"""Warnings that point to the user's line, however deep inside the package they are raised."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from pathlib import Path

_PACKAGE = f"{Path(__file__).parent.parent}{os.sep}"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning whose location is the first caller outside this package.

    A fixed `stacklevel` would become wrong whenever a function is added to the call path or removed
    from it. From Python 3.12 on, `skip_file_prefixes` of :func:`warnings.warn` does the same.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_internal(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_internal(filename: str) -> bool:
    # A frame of contextlib lies between a function decorated with a context manager and its caller.
    return filename.startswith(_PACKAGE) or filename == contextlib.__file__
