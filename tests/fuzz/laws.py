"""Calls of the library, and the laws that hold for every call."""

import contextlib
import io
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biv.cli import main

SAVED = Path(__file__).parent.parent / "data" / "v0.1"
LEAKED = re.compile(r"Traceback \(most recent|RuntimeWarning|encountered in \w+$", re.MULTILINE)
# Message that replaces an error if the result is complete but a file that belongs to it is not.
PARTIAL = re.compile(r"^biv: note: .* could not be written: .*; .* is complete.*", re.MULTILINE)
LONGEST_MESSAGE = 4_000  # characters


class Outcome(NamedTuple):
    """Exit code of a command, and what it printed."""

    code: int
    out: str
    err: str


def command(*arguments):
    """Run `biv` in this process; an exception that it does not catch breaks a law."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        warnings.simplefilter("error", RuntimeWarning)  # NumPy's
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as exit_:  # raised by argparse
            code = exit_.code
    return Outcome(code, out.getvalue(), err.getvalue())


def require_clear(outcome, *named):
    """Check that a command succeeded, or printed one message of readable length with a file."""
    assert outcome.code in (0, 1, 2), f"exit code {outcome.code}: {outcome.err[-400:]}"
    leaked = LEAKED.search(outcome.err)
    assert not leaked, f"{leaked.group()} leaked: {outcome.err[:400]}"
    if outcome.code:
        messages = re.findall(r"^biv: (?!note: )", outcome.err, re.MULTILINE)
        message = outcome.err[outcome.err.rfind("\nbiv: ") + 1 :]
        if outcome.code == 1 and not messages:
            messages = PARTIAL.findall(outcome.err)
        assert len(messages) == 1, f"{len(messages)} messages instead of one: {outcome.err[-400:]}"
        assert len(message) <= LONGEST_MESSAGE, f"a message of {len(message):,} characters"
        names_file = any(str(name) in message for name in named)
        assert names_file, f"the message does not name a file: {message.strip()[:400]}"


def require_finite(name, values):
    """Check that there is no NaN and no infinity."""
    values = np.asarray(values, dtype=np.float64)
    assert np.isfinite(values).all(), f"{name} holds {values[~np.isfinite(values)][0]}"


def files_below(folder):
    """Return the names of all files, relative to the folder."""
    return {str(p.relative_to(folder)) for p in Path(folder).rglob("*") if not p.is_dir()}


def contents_below(folder):
    """Return the files with their bytes; links and pipes with None."""
    paths = (p for p in Path(folder).rglob("*") if not p.is_dir())
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() and not p.is_symlink() else None
        for p in paths
    }


def one_of(rng, choices):
    """Return a random element of a sequence of any type."""
    return choices[int(rng.integers(len(choices)))]
