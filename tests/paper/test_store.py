"""Test the store of runs."""

import json
import signal
import sqlite3
import threading
from dataclasses import replace
from pathlib import PureWindowsPath

import numpy as np
import pytest

from biv.cli._signals import Interrupted
from biv.paper.results import Failure, RunResult
from biv.paper.store import Store, _uri
from biv.training import History
from helpers.paper_runs import RUN, assert_same_result, result


def test_stored_results_are_read_back(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    runs = [replace(RUN, seed=seed) for seed in range(4)]
    added = [result(run, seed, None if seed else 7) for seed, run in enumerate(runs[:3])]
    store.add(added)
    stored = Store(tmp_path / "runs.sqlite").results(runs)
    assert list(stored) == runs[:3]
    for one in added:
        assert_same_result(stored[one.run], one)
        assert stored[one.run].provenance == {"machine": "here"}
    assert store.missing([runs[3], *runs, runs[3]]) == [runs[3]]
    assert sorted(run.seed for run in store.runs()) == [0, 1, 2]
    assert stored[runs[0]].diverged
    assert len(stored[runs[1]].smoothed) == 40 - 34
    assert [p.name for p in tmp_path.iterdir()] == ["runs.sqlite"]


def test_training_curves_are_reduced_to_epochs():
    history = History(np.arange(40.0), np.full(40, 9.0), np.arange(40.0), np.arange(1, 41))
    stored = RunResult.of(RUN, history, {})
    assert stored.train_loss.tolist() == [2 * k + 0.5 for k in range(20)]
    assert (stored.train_loss_std == 0.5).all()
    assert (stored.effective_batch_size == 9.0).all()


def test_curves_are_rounded_to_three_bytes():
    rng = np.random.default_rng(0)
    history = History(rng.random(40), rng.random(40), rng.lognormal(0, 9, 40), np.arange(1, 41))
    stored = RunResult.of(RUN, history, {})
    np.testing.assert_allclose(stored.test_loss, history.test_loss, rtol=2**-16)
    assert np.abs(stored.test_loss / history.test_loss - 1).max() > 2**-19  # it is rounded
    assert (stored.test_loss.view(np.uint32) % 256 == 0).all()
    broken = replace_test_loss(history, [np.nan, np.inf, -np.inf, 0.0] * 10)
    stored = RunResult.of(RUN, broken, {}).test_loss[:4]
    np.testing.assert_array_equal(stored, [np.nan, np.inf, -np.inf, 0.0])


def replace_test_loss(history, values):
    return replace(history, test_loss=np.array(values))


def test_the_summary_can_be_read_with_sql_alone(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    falling = np.linspace(0.9, 0.1, 40)
    falling[20] = 0.05
    history = History(np.ones(40), np.ones(40), falling, np.arange(1, 41))
    runs = [replace(RUN, seed=seed) for seed in range(3)]
    diverged = replace(replace_test_loss(history, np.full(40, np.nan)), diverged_at=1)
    store.add(
        [
            RunResult.of(runs[0], history, {}),
            RunResult.of(runs[1], diverged, {}),
            Failure(runs[2], "x", {}),
        ]
    )
    connection = sqlite3.connect(store.path)
    rows = dict(connection.execute("SELECT json_extract(spec, '$.seed'), summary FROM runs"))
    connection.close()
    assert json.loads(rows[0]) == {
        "lowest": pytest.approx(0.05, rel=1e-4),
        "lowest_smoothed": pytest.approx(falling[-35:].mean(), rel=1e-4),
        "last": pytest.approx(0.1, rel=1e-4),
        "last_smoothed": pytest.approx(falling[-35:].mean(), rel=1e-4),
        "diverged": False,
    }
    assert json.loads(rows[1]) == {
        **dict.fromkeys(("lowest", "lowest_smoothed", "last", "last_smoothed")),
        "diverged": True,
    }
    assert rows[2] is None


def test_a_failure_is_stored_until_the_run_is_finished(tmp_path):
    store = Store(tmp_path / "runs.sqlite")
    store.add([Failure(RUN, "ValueError: no row", {})])
    assert store.missing([RUN]) == [RUN]
    assert [failure.error for failure in store.failures()] == ["ValueError: no row"]
    store.add([result()])
    store.add([Failure(RUN, "ValueError: too late", {}), result(seed=1)])
    assert store.failures() == []
    assert_same_result(store.results([RUN])[RUN], result())


def test_all_outcomes_are_written_or_none(tmp_path):
    store = Store(tmp_path / "runs.sqlite")

    def outcomes():
        yield result()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.add(outcomes())
    assert len(store) == 0


def _other_database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE birds (name TEXT)")
    connection.close()


def _older_version(path):
    Store(path)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 1")
    connection.close()


def _truncated(path):
    store = Store(path)
    store.add([result(replace(RUN, seed=seed), seed) for seed in range(40)])
    path.write_bytes(path.read_bytes()[:-9000])


BAD_FILES = {
    "text": (
        lambda path: path.write_text("not a database, but long enough to be one" * 99),
        "is not a store, or is damaged",
    ),
    "truncated": (_truncated, "is not a store, or is damaged"),
    "another database": (
        _other_database,
        "must be a store of runs; got an SQLite database of another kind",
    ),
    "older version": (_older_version, "must be a store of version 2; got version 1"),
}


@pytest.mark.parametrize(("spoil", "message"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_not_a_store_is_an_error_and_is_not_changed(spoil, message, tmp_path):
    path = tmp_path / "runs.sqlite"
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=rf"runs\.sqlite {message}"):
        Store(path)
    assert path.read_bytes() == before


def test_a_locked_or_unwritable_store_is_not_called_damaged(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    Store(path).add([result()])
    monkeypatch.setattr("biv.paper.store.LOCK_TIMEOUT", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(ValueError, match=r"runs\.sqlite cannot be used: database is locked"):
        Store(path)
    holder.execute("ROLLBACK")
    holder.close()
    with pytest.raises(ValueError, match="cannot be used: unable to open database file"):
        Store(tmp_path)


@pytest.mark.parametrize("name", ["a b", "a?mode=ro", "a#b", "100%41", "é±", "a:b", "a'b"])
def test_a_file_may_have_any_name(tmp_path, name):
    path = tmp_path / name
    Store(path).add([result()])
    assert len(Store(f"//{path}", read_only=True)) == 1
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_windows_share_is_not_a_host():
    uri = _uri(PureWindowsPath(r"\\server\share\runs.sqlite"), "ro")
    assert uri == "file:%2F%2Fserver%2Fshare%2Fruns.sqlite?mode=ro"
    with pytest.raises(sqlite3.OperationalError, match="unable to open database file"):
        sqlite3.connect(uri, uri=True)  # rather than "invalid uri authority: server"


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"


def test_a_signal_during_a_query_is_raised(tmp_path):
    store = Store(tmp_path / "runs.sqlite")

    def interrupt(*_):
        raise Interrupted(signal.SIGTERM)

    def query():
        with store._connection() as connection:
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            connection.execute(ENDLESS).fetchone()

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interrupted) as caught:
            query()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert caught.value.exit_code == 128 + signal.SIGTERM


def test_an_endless_query_is_an_error(tmp_path, monkeypatch):
    store = Store(tmp_path / "runs.sqlite")
    monkeypatch.setattr("biv.paper.store.STEPS_PER_BATCH", 1000)
    message = (
        r"runs\.sqlite cannot be used: its queries take more than 1,000,000 steps, so it is damaged"
    )
    with pytest.raises(ValueError, match=message), store._connection() as connection:
        connection.execute(ENDLESS).fetchone()


def test_reading_needs_no_write_lock(tmp_path, monkeypatch):
    path = tmp_path / "runs.sqlite"
    Store(path).add([result()])
    monkeypatch.setattr("biv.paper.store.LOCK_TIMEOUT", 0.1)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")  # another process is about to write
    assert len(Store(path).results([RUN])) == 1
    holder.close()


def test_two_processes_can_write_to_a_store(tmp_path):
    path = tmp_path / "runs.sqlite"
    runs = [replace(RUN, seed=seed) for seed in range(30)]
    threads = [
        threading.Thread(
            target=lambda part=part: [Store(path).add([result(run, run.seed)]) for run in part]
        )
        for part in (runs[:20], runs[10:])
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = Store(path).results(runs)
    assert len(stored) == 30
    for run in runs:
        assert_same_result(stored[run], result(run, run.seed))
