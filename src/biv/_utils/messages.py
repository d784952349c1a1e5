"""Formatting of values, names, durations and sizes for messages, with a limit on their length."""

from __future__ import annotations

import reprlib
import shlex
from pathlib import Path

SHOWN = 80  # largest number of characters of a value in a message
MESSAGE_SHOWN = 500  # the same for another library's message, which may quote a whole file


def shortened(value: object) -> str:
    """Return the repr of a value, cut if it is long.

    Examples
    --------
    >>> shortened("x" * 1000)
    "'xxxxxxxxxxxxxxxxxxxx'... (1,000 characters)"
    """
    if not isinstance(value, str):
        return reprlib.repr(value)
    if len(value) <= SHOWN:
        return repr(value)
    return f"{value[: SHOWN // 4]!r}... ({len(value):,} characters)"


def message_of(error: object) -> str:
    """Return the message of another library's error, cut if it is long.

    Examples
    --------
    >>> message_of(ValueError("no number")), len(message_of(ValueError("x" * 200_000)))
    ('no number', 524)
    """
    message = str(error)
    if len(message) <= MESSAGE_SHOWN:
        return message
    return f"{message[:MESSAGE_SHOWN]}... ({len(message):,} characters)"


def wrong_path(path: str | Path, expected: str) -> str:
    """Return the message about a path that is not of the expected kind, or does not exist.

    Examples
    --------
    >>> wrong_path("nowhere", "a folder"), wrong_path("/", "a file")
    ('nowhere does not exist', '/ is not a file')
    """
    return f"{path} is not {expected}" if Path(path).exists() else f"{path} does not exist"


def shell_quoted(name: str) -> str:
    """Return a name quoted for a shell, or "NAME" if it is too long to show.

    Examples
    --------
    >>> shell_quoted("two words"), shell_quoted("x" * 1000)
    ("'two words'", 'NAME')
    """
    return shlex.quote(name) if len(name) <= SHOWN else "NAME"


def format_duration(seconds: float) -> str:
    """Return a duration in seconds as text with a suitable unit.

    Examples
    --------
    >>> format_duration(12.3), format_duration(90), format_duration(7200)
    ('12 s', '1.5 min', '2.0 h')
    """
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def format_bytes(count: float | None) -> str:
    """Return a number of bytes as text in gigabytes.

    Examples
    --------
    >>> format_bytes(1.5e9), format_bytes(None)
    ('1.50 GB', 'an unknown amount')
    """
    return "an unknown amount" if count is None else f"{count / 1e9:.2f} GB"
