"""The store: one SQLite file with the runs, their curves and where they came from.

A stack's results are written in one transaction: a process that is killed loses the stack in
flight, and what is in the file is whole. Several processes may use one store.
"""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from biv._files import WriteError
from biv.experiments.spec import Run
from biv.training import History
from biv.training.history import smoothed, smoothing

FORMAT = 2
APPLICATION = 0x42495653  # "BIVS": how a file is known to be a store of ours
PATIENCE = 120.0  # seconds to wait for another process that is writing
CURVES = ("test_loss", "train_loss", "train_loss_std", "effective_batch_size")

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

Curve = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Result:
    """What is kept of a run.

    Attributes:
        run: Which.
        test_loss: Whole, (evaluations,).
        train_loss: The mean of each epoch, (epochs,).
        train_loss_std: The standard deviation within each epoch.
        effective_batch_size: The mean of each epoch.
        diverged_at: The step after which something was not finite, or None.
        provenance: Versions, machine, time.
    """

    run: Run
    test_loss: Curve
    train_loss: Curve
    train_loss_std: Curve
    effective_batch_size: Curve
    diverged_at: int | None
    provenance: Mapping[str, Any]

    @classmethod
    def of(cls, run: Run, history: History, provenance: Mapping[str, Any]) -> Result:
        """A history, thinned to what is kept."""
        steps = run.train_rows // run.batch_size
        train = _epochs(history.train_loss, steps, run.epochs)
        sizes = _epochs(history.effective_batch_size, steps, run.epochs)
        whole = np.full(run.epochs * steps // run.test_every, np.nan, dtype=np.float32)
        whole[: len(history.test_loss)] = history.test_loss
        return cls(
            run,
            _three_bytes(whole),
            _three_bytes(train.mean(axis=1)),
            _three_bytes(train.std(axis=1)),
            _three_bytes(sizes.mean(axis=1)),
            history.diverged_at,
            provenance,
        )

    @property
    def smoothed(self) -> npt.NDArray[np.float64]:
        """The test loss as the paper draws it."""
        return smoothed(self.test_loss, smoothing(len(self.test_loss)))

    @property
    def summary(self) -> dict[str, float | bool | None]:
        """What is looked for most: the run's own lowest losses and its last; None if not finite."""
        smooth = self.smoothed
        finite = smooth[np.isfinite(smooth)]
        return {
            "lowest": _number(np.nanmin(self.test_loss, initial=np.inf)),
            "lowest_smoothed": _number(finite.min(initial=np.inf)),
            "last": _number(self.test_loss[-1]) if len(self.test_loss) else None,
            "last_smoothed": _number(smooth[-1]) if len(smooth) else None,
            "diverged": self.diverged,
        }

    @property
    def diverged(self) -> bool:
        """Whether something was not finite, or the last smoothed test loss is above 1."""
        every = self.run.test_every
        steps = np.arange(1, len(self.test_loss) + 1) * every
        whole = History(
            self.train_loss.astype(np.float64),
            self.effective_batch_size.astype(np.float64),
            self.test_loss.astype(np.float64),
            steps,
            self.diverged_at,
        )
        return whole.diverged


@dataclass(frozen=True)
class Failure:
    """A run that could not be trained, and why."""

    run: Run
    error: str
    provenance: Mapping[str, Any]


def _epochs(curve: npt.NDArray[np.float64], steps: int, epochs: int) -> npt.NDArray[np.float64]:
    """(epochs, steps), NaN where a stack stopped early."""
    whole = np.full(epochs * steps, np.nan)
    whole[: len(curve)] = curve
    return whole.reshape(epochs, steps)


class Store:
    """A file of runs, made if it is not there.

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

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._connection() as connection:
                connection.execute("PRAGMA page_size = 512")  # of a new file: curves are small
                self._prepare(connection)
        except sqlite3.DatabaseError as error:
            raise ValueError(
                f"{self.path} is not a store, or is damaged ({error}): move it away to begin anew"
            ) from error

    def _prepare(self, connection: sqlite3.Connection) -> None:
        if _is_blank(connection):
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
        if version != FORMAT:
            raise ValueError(
                f"{self.path} must be a store of version {FORMAT}; found version {version}: use "
                "the release of biv that wrote it, or begin another store"
            )
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
        except sqlite3.OperationalError as error:
            raise ValueError(f"{self.path} cannot be used: {error}") from error
        try:
            yield connection
            if connection.in_transaction:
                connection.execute("COMMIT")
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):  # locked, read-only, no folder
                if "disk is full" in str(error):
                    reason = os.strerror(errno.ENOSPC)
                    raise WriteError(errno.ENOSPC, reason, str(self.path)) from error
                raise ValueError(f"{self.path} cannot be used: {error}") from error
            raise
        finally:
            connection.close()

    def __len__(self) -> int:
        with self._connection() as connection:
            (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        return int(count)

    def add(self, outcomes: Iterable[Result | Failure]) -> None:
        """Write all of these or none; what is done already stays, what had failed is replaced."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            for outcome in outcomes:
                self._add(connection, outcome)

    def _add(self, connection: sqlite3.Connection, outcome: Result | Failure) -> None:
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
        if isinstance(outcome, Result):
            rows = [(key, name, _packed(getattr(outcome, name))) for name in CURVES]
            connection.executemany("INSERT OR REPLACE INTO curves VALUES (?, ?, ?)", rows)

    def missing(self, runs: Iterable[Run]) -> list[Run]:
        """Those that are not done, each once, in the order given."""
        with self._connection() as connection:
            rows = connection.execute("SELECT key FROM runs WHERE error IS NULL").fetchall()
        done = {key for (key,) in rows}
        return [run for run in dict.fromkeys(runs) if run.key not in done]

    def results(self, runs: Sequence[Run]) -> dict[Run, Result]:
        """What is stored of these runs; those that are not done are left out."""
        found: dict[Run, Result] = {}
        with self._connection() as connection:
            connection.execute("BEGIN")  # one state of the file, whoever else is writing
            for run in dict.fromkeys(runs):
                result = self._result(connection, run)
                if result is not None:
                    found[run] = result
        return found

    def _result(self, connection: sqlite3.Connection, run: Run) -> Result | None:
        row = connection.execute(
            "SELECT diverged_at, provenance FROM runs WHERE key = ? AND error IS NULL", (run.key,)
        ).fetchone()
        if row is None:
            return None
        blobs = connection.execute("SELECT name, data FROM curves WHERE key = ?", (run.key,))
        curves = {name: _unpacked(data) for name, data in blobs}
        return Result(run, **curves, diverged_at=row[0], provenance=json.loads(row[1]))

    def failures(self) -> list[Failure]:
        """The runs that could not be trained."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT spec, error, provenance FROM runs WHERE error IS NOT NULL ORDER BY key"
            ).fetchall()
        return [Failure(Run.from_canonical(s), e, json.loads(p)) for s, e, p in rows]

    def runs(self) -> list[Run]:
        """All runs that are done."""
        with self._connection() as connection:
            rows = connection.execute("SELECT spec FROM runs WHERE error IS NULL ORDER BY key")
            return [Run.from_canonical(spec) for (spec,) in rows]


def _is_blank(connection: sqlite3.Connection) -> bool:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    return application == 0 and not connection.execute("SELECT 1 FROM sqlite_master").fetchall()


def _three_bytes(curve: npt.NDArray[Any]) -> Curve:
    """Rounded by a part in 65,000 at most, so that the fourth byte of a number is 0."""
    bits = np.ascontiguousarray(curve, dtype="<f4").view("<u4")
    rounded: Curve = ((bits + np.uint32(0x80)) & np.uint32(0xFFFFFF00)).view("<f4")
    return rounded


def _number(value: np.floating[Any]) -> float | None:
    return float(value) if np.isfinite(value) else None


def _packed(curve: Curve) -> bytes:
    """Bytes of equal rank together compress better: signs and exponents hardly change."""
    raw = np.ascontiguousarray(curve, dtype="<f4").view(np.uint8).reshape(-1, 4)
    return zlib.compress(raw.T.tobytes(), 9)


def _unpacked(data: bytes) -> Curve:
    raw = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(4, -1)
    curve: Curve = np.ascontiguousarray(raw.T).view("<f4").reshape(-1)
    return curve
