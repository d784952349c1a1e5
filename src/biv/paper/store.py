"""The store: one SQLite file with the runs, their curves and their provenance.

The results of a stack are written in one transaction. A process that is killed loses only the stack
that it was training, and the file stays consistent. Several processes may use one store.
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
APPLICATION = 0x42495653  # "BIVS", which identifies a file as a store
LOCK_TIMEOUT = 120.0  # seconds to wait for another process that is writing
# A connection may execute a billion steps of SQLite's virtual machine, in batches.
STEPS_PER_BATCH, MAX_BATCHES = 1_000_000, 1000
COLUMNS = {
    "runs": ("key", "spec", "error", "diverged_at", "summary", "provenance"),
    "curves": ("key", "name", "data"),
}
# The end of a journal that names a super-journal, which SQLite writes for several databases.
SUPER_JOURNAL_END = bytes.fromhex("d9d505f920a163d7")
# Every store contains this text, so it must not change. `error` is NULL for a finished run, and the
# bytes of a curve are grouped by significance before they are compressed.
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
    """Columns of a finished run, without its curves."""

    spec: str
    diverged_at: Count | None
    summary: str
    provenance: str


class _Failed(NamedTuple):
    """Columns of a failed run."""

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
    """SQLite file of runs.

    The file may come from someone else. No code in it is executed, its rows are validated, and the
    time of queries and the memory of curves are limited.

    Parameters
    ----------
    path : str or Path
        Path of the file, which is created if it does not exist.
    read_only : bool, default=False
        Whether the file is only read. It must exist then. A transaction that a killed process left
        unfinished is rolled back in either case.

    Raises
    ------
    ValueError
        The file is not a store, is damaged, or has another version. The file is not changed.

    Examples
    --------
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
                connection.execute("PRAGMA page_size = 512")  # for a new file; curves are small
            self._prepare(connection)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if not self.read_only and _is_blank(connection):
            connection.execute("BEGIN IMMEDIATE")  # one process creates the tables, others wait
            if _is_blank(connection):
                for statement in SCHEMA.split(";\n"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                connection.execute(f"PRAGMA user_version = {FORMAT}")
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION:
            raise ValueError(
                f"{self.path} must be a store of runs; got an SQLite database of another kind"
            )
        if version > FORMAT:
            raise ValueError(
                f"{self.path} was written by a newer biv (store of version {version}; this version "
                f"reads {FORMAT}). Upgrade biv"
            )
        if version != FORMAT:
            raise ValueError(
                f"{self.path} must be a store of version {FORMAT}; got version {version}. Use the "
                "release of biv that wrote it, or start a new store"
            )
        _require_tables(connection)
        (check,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if check != "ok":
            raise sqlite3.DatabaseError(check)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        caught: list[BaseException] = []
        steps = _step_limit(caught)
        next(steps)
        uri = _uri(self.path.absolute(), self._mode())
        try:
            connection = sqlite3.connect(uri, timeout=LOCK_TIMEOUT, isolation_level=None, uri=True)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{self.path} cannot be used: {error}") from error
        connection.set_progress_handler(steps.__next__, STEPS_PER_BATCH)
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
                if caught:
                    raise caught.pop() from None
                if "disk is full" in str(error):
                    reason = os.strerror(errno.ENOSPC)
                    raise WriteError(errno.ENOSPC, reason, str(self.path)) from error
                raise ValueError(f"{self.path} cannot be used: {self._reason(error)}") from error
            if isinstance(error, (sqlite3.DatabaseError, UnicodeDecodeError)):
                raise ValueError(
                    f"{self.path} is not a store, or is damaged ({message_of(error)}). Move it "
                    "away to start a new store"
                ) from error
            raise
        finally:
            connection.close()

    @property
    def _journal(self) -> Path:
        """Path of the file where SQLite keeps overwritten pages until a commit."""
        return Path(f"{self.path.resolve()}-journal")

    def _mode(self) -> str:
        """Return the mode to open the file with.

        A transaction that a killed process left unfinished can only be rolled back by writing.

        Raises
        ------
        ValueError
            The journal names another file, which SQLite might delete.
        """
        unfinished, names_another = self._journal.is_file(), False
        if unfinished:
            with suppress(OSError), self._journal.open("rb") as journal:  # it may be gone, or short
                journal.seek(-len(SUPER_JOURNAL_END), os.SEEK_END)
                names_another = journal.read() == SUPER_JOURNAL_END
        if names_another:
            raise ValueError(
                f"{self.path} cannot be used: {self._journal} is not the journal of a store"
            )
        if not self.read_only:
            return "rwc"
        return "rw" if unfinished else "ro"

    def _reason(self, error: sqlite3.OperationalError) -> str:
        if str(error) == "interrupted":
            return (
                f"its queries take more than {STEPS_PER_BATCH * MAX_BATCHES:,} steps, so it is "
                "damaged or not a store of runs"
            )
        if "locked" not in str(error) and self._journal.exists():
            return (
                f"{error}; {self._journal.name} holds an unfinished transaction. Make the store "
                "and its folder writable and open it once, for example with `biv report`"
            )
        return message_of(error)

    def __len__(self) -> int:
        with self._connection() as connection:
            (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        return int(count)

    def add(self, outcomes: Iterable[RunResult | Failure]) -> None:
        """Write all outcomes or none. A finished run is kept; a failed run is replaced."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for outcome in outcomes:
                self._add(connection, outcome)

    def _add(self, connection: sqlite3.Connection, outcome: RunResult | Failure) -> None:
        key, spec = outcome.run.key, outcome.run.canonical()
        finished = connection.execute("SELECT 1 FROM runs WHERE key = ? AND error IS NULL", (key,))
        if finished.fetchone():
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
        """Return the runs that are not finished, without duplicates, in the given order."""
        with self._connection() as connection:
            rows = connection.execute("SELECT key FROM runs WHERE error IS NULL").fetchall()
        finished = {key for (key,) in rows}
        return [run for run in dict.fromkeys(runs) if run.key not in finished]

    def results(self, runs: Sequence[Run]) -> dict[Run, RunResult]:
        """Return the results of those of these runs that are finished."""
        results: dict[Run, RunResult] = {}
        with self._connection() as connection:
            connection.execute("BEGIN")  # a consistent view of the file, even if others write
            for run in dict.fromkeys(runs):
                result = self._result(connection, run)
                if result is not None:
                    results[run] = result
        return results

    def _result(self, connection: sqlite3.Connection, run: Run) -> RunResult | None:
        values = connection.execute(
            f"SELECT {', '.join(_Row._fields)} FROM runs WHERE key = ? AND error IS NULL",
            (run.key,),
        ).fetchone()
        if values is None:
            return None
        blobs = connection.execute("SELECT name, data FROM curves WHERE key = ?", (run.key,))
        with self._named_errors(run.key):
            row = typed_json.convert(values, _Row)
            if row.spec != run.canonical():
                raise ValueError("its spec belongs to another run")
            curves = dict(typed_json.convert(blobs.fetchall(), list[_Curve]))
            if set(curves) != set(CURVES):
                raise ValueError(f"its curves must be {', '.join(CURVES)}")
            stored_summary = typed_json.decode(row.summary, _Summary)
            provenance = typed_json.decode(row.provenance, dict[str, Scalar])
            lengths = dict.fromkeys(CURVES, run.epochs) | {"test_loss": evaluations(run)}
            unpacked = {name: unpack_curve(data, lengths[name]) for name, data in curves.items()}
            if row.diverged_at is None:  # otherwise curves are NaN after that step
                for name, curve in unpacked.items():
                    if not (np.isfinite(curve) & (curve >= 0)).all():
                        raise ValueError(f"its {name} must be finite and at least 0")
            result = RunResult(run, **unpacked, diverged_at=row.diverged_at, provenance=provenance)
            for name, value in result.summary.items():
                stored = dict(stored_summary)[name]
                # Rounding of a mean differs from machine to machine.
                if value != stored and not np.isclose(_or_nan(value), _or_nan(stored), rtol=1e-4):
                    raise ValueError(f"{name} of its summary differs from that of its curves")
            return result

    def _named_errors(self, key: object) -> AbstractContextManager[None]:
        return typed_json.errors_name_file(f"{self.path}, run {shortened(key)}")

    def _run(self, key: str, spec: str) -> Run:
        with self._named_errors(key):
            run = Run.from_canonical(spec)
            if (run.key, run.canonical()) != (key, spec):
                raise ValueError(f"its key must be the hash of its spec, {run.key}")
            return run

    def failures(self) -> list[Failure]:
        """Return the runs that could not be trained."""
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT {', '.join(_Failed._fields)} FROM runs WHERE error IS NOT NULL "
                "ORDER BY key"
            ).fetchall()
        failures = []
        for values in rows:
            with self._named_errors(values[0]):
                row = typed_json.convert(values, _Failed)
                provenance = typed_json.decode(row.provenance, dict[str, Scalar])
            failures.append(Failure(self._run(row.key, row.spec), row.error, provenance))
        return failures

    def runs(self) -> list[Run]:
        """Return all finished runs."""
        with self._connection() as connection:
            values = connection.execute(
                "SELECT key, spec FROM runs WHERE error IS NULL ORDER BY key"
            ).fetchall()
        with typed_json.errors_name_file(self.path):
            rows = typed_json.convert(values, list[tuple[str, str]])
        return [self._run(key, spec) for key, spec in rows]


def _uri(path: PurePath, mode: str) -> str:
    """Return the URI of a file. Its slashes are quoted, so that none starts the name of a host."""
    return f"file:{quote(os.fsencode(path.as_posix()), safe='')}?mode={mode}"


def _step_limit(caught: list[BaseException]) -> Iterator[None]:
    """Limit the steps of SQLite, which calls this generator as a progress handler after each batch.

    SQLite would drop an exception that a signal handler raises in the meantime, so it is appended
    to `caught`. Such an exception is raised as soon as Python code runs. This function
    is a generator so that its ``try`` is already entered when the exception is raised.
    """
    try:
        for _ in range(MAX_BATCHES):
            yield
    except GeneratorExit:
        # Storing it would keep a reference to the error that ended the connection.
        raise
    except BaseException as error:
        caught.append(error)


def _is_blank(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return application == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchall()


def _require_tables(connection: sqlite3.Connection) -> None:
    """Check that the file has the two tables of a store, and nothing that a query would execute.

    Raises
    ------
    sqlite3.DatabaseError
        A table is missing, or there is a view, a trigger or another table.
    """
    objects = connection.execute("SELECT type, name, rootpage FROM sqlite_master").fetchall()
    # A virtual table has no root page. Names that begin with sqlite_ are reserved for SQLite.
    tables = {name for kind, name, page in objects if kind == "table" and page}
    others = [name for _, name, _ in objects if name not in COLUMNS]
    if any(not str(name).startswith("sqlite_") for name in others) or not tables >= set(COLUMNS):
        raise sqlite3.DatabaseError(f"it must have tables {' and '.join(COLUMNS)} and nothing else")
    for name, columns in COLUMNS.items():
        actual = connection.execute(f"PRAGMA table_xinfo({name})").fetchall()
        if [(column[1], column[6]) for column in actual] != [(one, 0) for one in columns]:
            raise sqlite3.DatabaseError(f"table {name} must have columns {', '.join(columns)}")


def _or_nan(value: Any) -> float:
    return float("nan") if value is None else float(value)
