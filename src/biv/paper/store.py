"""The store: one SQLite file with the runs, their curves and where they came from.

A stack's results are written in one transaction: a process that is killed loses the stack in
flight, and what is in the file is whole. Several processes may use one store.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypedDict
from urllib.parse import quote

import numpy as np

from biv._utils import typed_json
from biv._utils.atomic_files import WriteError
from biv._utils.messages import message_of, shortened
from biv._utils.typed_json import Count, Scalar
from biv.paper.results import CURVES, Failure, RunResult, evaluations, pack_curve, unpack_curve
from biv.paper.spec import Run

FORMAT = 2
APPLICATION = 0x42495653  # "BIVS": how a file is known to be a store of ours
PATIENCE = 120.0  # seconds to wait for another process that is writing
PIECE, MAX_PIECES = 1_000_000, 1000  # steps of SQLite: a connection may take a billion
COLUMNS = {
    "runs": ("key", "spec", "error", "diverged_at", "summary", "provenance"),
    "curves": ("key", "name", "data"),
}
NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")  # at the end of a journal: of several databases
SCHEMA = """
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    spec TEXT NOT NULL,
    error TEXT,            -- of a run that failed; NULL of one that is done
    diverged_at INTEGER,
    summary TEXT,          -- JSON: lowest and last losses, whether it diverged
    provenance TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE curves (
    key TEXT NOT NULL REFERENCES runs,
    name TEXT NOT NULL,
    data BLOB NOT NULL,    -- float32, little-endian, bytes of equal rank together, zlib
    PRIMARY KEY (key, name)
) WITHOUT ROWID;
"""


class _Row(NamedTuple):
    """What the file has of a run that is done, but for its curves."""

    spec: str
    diverged_at: Count | None
    summary: str
    provenance: str


class _Failed(NamedTuple):
    """What the file has of a run that failed."""

    key: str
    spec: str
    error: str
    provenance: str


class _Curve(NamedTuple):
    name: str
    data: bytes


class _Summary(TypedDict):
    lowest: float | None
    lowest_smoothed: float | None
    last: float | None
    last_smoothed: float | None
    diverged: bool


class Store:
    """A file of runs, made if it is not there.

    The file may be a stranger's: none of its code is run, its rows are validated, and no query and
    no curve takes more than its share of time or memory.

    Args:
        path: Of the file.
        read_only: Whether the file is only read; then it must exist. What a process that was killed
            had not finished writing is undone all the same.

    Raises:
        ValueError: The file is not a store, is damaged, or is of another version. It is left as it
            is.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store(Path(folder) / "runs.sqlite")
        ...     len(store)
        0
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path, self.read_only = Path(path), read_only
        if not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._connection() as connection:
            if not read_only:
                connection.execute("PRAGMA page_size = 512")  # of a new file: curves are small
            self._prepare(connection)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not self.read_only and _is_blank(connection):
            connection.execute("BEGIN IMMEDIATE")  # one process makes the tables, others wait
            if _is_blank(connection):
                for statement in SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise ValueError(f"{self.path} is a database of another kind, not a store of runs")
        if version > FORMAT:
            raise ValueError(
                f"{self.path} was written by a newer biv (store of version {version}; this version "
                f"reads {FORMAT}): upgrade biv"
            )
        if version != FORMAT:
            raise ValueError(
                f"{self.path} must be a store of version {FORMAT}; got version {version}: use "
                "the release of biv that wrote it, or begin another store"
            )
        _require_tables(connection)
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        stopped: list[BaseException] = []
        steps = _steps(stopped)
        next(steps)
        place = _uri(self.path.absolute(), self._mode())
        try:
            connection = sqlite3.connect(place, timeout=PATIENCE, isolation_level=None, uri=True)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{self.path} cannot be used: {error}") from error
        connection.set_progress_handler(steps.__next__, PIECE)
        try:
            if self.read_only:
                connection.execute("PRAGMA query_only = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA cell_size_check = ON")
            yield connection
            if connection.in_transaction:
                connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):  # locked, read-only, no folder
                if stopped:
                    raise stopped.pop() from None
                if "disk is full" in str(error):
                    reason = os.strerror(errno.ENOSPC)
                    raise WriteError(errno.ENOSPC, reason, str(self.path)) from error
                raise ValueError(f"{self.path} cannot be used: {self._reason(error)}") from error
            if isinstance(error, (sqlite3.DatabaseError, UnicodeDecodeError)):
                said = message_of(error)
                raise ValueError(
                    f"{self.path} is not a store, or is damaged ({said}): move it away to begin "
                    "anew"
                ) from error
            raise
        finally:
            connection.close()

    @property
    def _journal(self) -> Path:
        """Where SQLite keeps what a transaction overwrites until it is committed."""
        return Path(f"{self.path.resolve()}-journal")

    def _mode(self) -> str:
        """How the file is opened: what a killed writer has begun can be undone by writing only.

        Raises:
            ValueError: The journal names another file, which SQLite might remove.
        """
        unfinished, names_another = self._journal.is_file(), False
        if unfinished:
            with suppress(OSError), self._journal.open("rb") as journal:  # gone by now, or short
                journal.seek(-len(NAMES_ANOTHER), os.SEEK_END)
                names_another = journal.read() == NAMES_ANOTHER
        if names_another:
            raise ValueError(f"{self.path} cannot be used: {self._journal} is not of a store")
        if not self.read_only:
            return "rwc"
        return "rw" if unfinished else "ro"

    def _reason(self, error: sqlite3.OperationalError) -> str:
        if str(error) == "interrupted":
            return (
                f"its queries take more than {PIECE * MAX_PIECES:,} steps: it is damaged, or not "
                "a store of runs"
            )
        if "locked" not in str(error) and self._journal.exists():
            return (
                f"{error}: {self._journal.name} holds a transaction that was not finished: open "
                "the store once, as by `biv report`, where it and its folder can be written"
            )
        return message_of(error)

    def __len__(self) -> int:
        with self._connection() as connection:
            (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        return int(count)

    def add(self, outcomes: Iterable[RunResult | Failure]) -> None:
        """Write all of these or none; what is done already stays, what had failed is replaced."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for outcome in outcomes:
                self._add(connection, outcome)

    def _add(self, connection: sqlite3.Connection, outcome: RunResult | Failure) -> None:
        key, spec = outcome.run.key, outcome.run.canonical()
        done = connection.execute("SELECT 1 FROM runs WHERE key = ? AND error IS NULL", (key,))
        if done.fetchone():
            return
        error = outcome.error if isinstance(outcome, Failure) else None
        diverged_at = None if isinstance(outcome, Failure) else outcome.diverged_at
        summary = None if isinstance(outcome, Failure) else json.dumps(outcome.summary)
        provenance = json.dumps(outcome.provenance, sort_keys=True)
        connection.execute(
            "INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?)",
            (key, spec, error, diverged_at, summary, provenance),
        )
        if isinstance(outcome, RunResult):
            rows = [(key, name, pack_curve(getattr(outcome, name))) for name in CURVES]
            connection.executemany("INSERT OR REPLACE INTO curves VALUES (?, ?, ?)", rows)

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Those that are not done, each once, in the order given."""
        with self._connection() as connection:
            rows = connection.execute("SELECT key FROM runs WHERE error IS NULL").fetchall()
        done = {key for (key,) in rows}
        return [run for run in dict.fromkeys(runs) if run.key not in done]

    def results(self, runs: Sequence[Run]) -> dict[Run, RunResult]:
        """What is stored of these runs; those that are not done are left out."""
        found: dict[Run, RunResult] = {}
        with self._connection() as connection:
            connection.execute("BEGIN")  # one state of the file, whoever else is writing
            for run in dict.fromkeys(runs):
                result = self._result(connection, run)
                if result is not None:
                    found[run] = result
        return found

    def _result(self, connection: sqlite3.Connection, run: Run) -> RunResult | None:
        found = connection.execute(
            f"SELECT {', '.join(_Row._fields)} FROM runs WHERE key = ? AND error IS NULL",
            (run.key,),
        ).fetchone()
        if found is None:
            return None
        blobs = connection.execute("SELECT name, data FROM curves WHERE key = ?", (run.key,))
        with self._row(run.key):
            row = typed_json.convert(found, _Row)
            if row.spec != run.canonical():
                raise ValueError("its spec is that of another run")
            curves = dict(typed_json.convert(blobs.fetchall(), list[_Curve]))
            if set(curves) != set(CURVES):
                raise ValueError(f"its curves must be {', '.join(CURVES)}")
            stored = typed_json.decode(row.summary, _Summary)
            provenance = typed_json.decode(row.provenance, dict[str, Scalar])
            lengths = dict.fromkeys(CURVES, run.epochs) | {"test_loss": evaluations(run)}
            unpacked = {name: unpack_curve(data, lengths[name]) for name, data in curves.items()}
            if row.diverged_at is None:  # beyond that step, curves are NaN
                for name, curve in unpacked.items():
                    if not (np.isfinite(curve) & (curve >= 0)).all():
                        raise ValueError(f"its {name} must be finite and 0 or more")
            result = RunResult(run, **unpacked, diverged_at=row.diverged_at, provenance=provenance)
            for name, value in result.summary.items():
                kept = dict(stored)[name]
                # Rounding of a mean differs from machine to machine.
                if value != kept and not np.isclose(_or_nan(value), _or_nan(kept), rtol=1e-4):
                    raise ValueError(f"its summary has another {name} than its curves")
            return result

    def _row(self, key: object) -> AbstractContextManager[None]:
        return typed_json.errors_name_file(f"{self.path}, run {shortened(key)}")

    def _run(self, key: str, spec: str) -> Run:
        with self._row(key):
            run = Run.from_canonical(spec)
            if (run.key, run.canonical()) != (key, spec):
                raise ValueError(f"its key must be the hash of its spec, {run.key}")
            return run

    def failures(self) -> list[Failure]:
        """The runs that could not be trained."""
        with self._connection() as connection:
            found = connection.execute(
                f"SELECT {', '.join(_Failed._fields)} FROM runs WHERE error IS NOT NULL "
                "ORDER BY key"
            ).fetchall()
        failures = []
        for given in found:
            with self._row(given[0]):
                row = typed_json.convert(given, _Failed)
                provenance = typed_json.decode(row.provenance, dict[str, Scalar])
            failures.append(Failure(self._run(row.key, row.spec), row.error, provenance))
        return failures

    def runs(self) -> list[Run]:
        """All runs that are done."""
        with self._connection() as connection:
            found = connection.execute(
                "SELECT key, spec FROM runs WHERE error IS NULL ORDER BY key"
            ).fetchall()
        with typed_json.errors_name_file(self.path):
            rows = typed_json.convert(found, list[tuple[str, str]])
        return [self._run(key, spec) for key, spec in rows]


def _uri(path: PurePath, mode: str) -> str:
    """How SQLite is told of a file: with its slashes quoted, none begins the name of a host."""
    return f"file:{quote(os.fsencode(path.as_posix()), safe='')}?mode={mode}"


def _steps(stopped: list[BaseException]) -> Iterator[None]:
    """Let SQLite go on as long as this does; what a signal raises meanwhile is put into a list.

    SQLite would drop it. It is raised as soon as Python runs: in a function, before any ``try`` of
    the function is entered; in a generator that has been started, inside.
    """
    try:
        for _ in range(MAX_PIECES):
            yield
    except GeneratorExit:  # not kept: it would keep the error that the connection ended with
        raise
    except BaseException as error:
        stopped.append(error)


def _is_blank(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return application == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchall()


def _require_tables(connection: sqlite3.Connection) -> None:
    """Check that there are the two tables of a store, and nothing that a query would run.

    Raises:
        sqlite3.DatabaseError: There is a view, a trigger or another table.
    """
    objects = connection.execute("SELECT type, name, rootpage FROM sqlite_master").fetchall()
    # A virtual table has no page of its own. What begins with sqlite_ is SQLite's.
    tables = {name for kind, name, page in objects if kind == "table" and page}
    others = [name for _, name, _ in objects if name not in COLUMNS]
    if any(not str(name).startswith("sqlite_") for name in others) or not tables >= set(COLUMNS):
        raise sqlite3.DatabaseError(f"it must have tables {' and '.join(COLUMNS)} and nothing else")
    for name, columns in COLUMNS.items():
        found = connection.execute(f"PRAGMA table_xinfo({name})").fetchall()
        if [(column[1], column[6]) for column in found] != [(one, 0) for one in columns]:
            raise sqlite3.DatabaseError(f"table {name} must have columns {', '.join(columns)}")


def _or_nan(value: Any) -> float:
    return float("nan") if value is None else float(value)
