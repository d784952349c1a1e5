"""Damaged and forged stores of runs, read by every command that reads them."""

import json
import shutil
import sqlite3
import zlib

import numpy as np

from fuzz.laws import SAVED, command, contents_below, files_below, one_of, require_clear
from fuzz.running import MAX_MEMORY
from fuzz.spoiling import changed, check, dumps, spoil
from helpers.damage import forge_curves

STORED = ("--dataset", "bike2011", "--preset", "smoke", "--seeds", 1, "--stored", "--no-report")


def case(rng, source, out, watch):
    """Damage a row, a curve, the schema or the bytes of a store, then show its results."""
    path = source / "runs.sqlite"
    shutil.copy(SAVED / "runs.sqlite", path)
    chance = rng.random()
    if chance < 0.25:
        spoil(rng, path, "bytes")
    elif chance < 0.4:
        value = one_of(rng, [0.0, -0.0, np.nan, -1.0, np.inf, 1e38, 1e-45, 1.0])
        forge_curves(path, value, one_of(rng, [1, 3, None]))
        if rng.random() < 0.3:
            _diverge(path, one_of(rng, [0, 1, 2**52]))
    else:
        _change_rows(rng, path)
    if rng.random() < 0.7:
        before = contents_below(source)
        watch.calls.clear()
        result = out / "page.html"
        check(command("report", path, "--out", result), source, out, before, result)
        return
    shutil.move(path, out / path.name)
    watch.calls.clear()
    arguments = one_of(rng, [("claims", 1, 4), ("claims",), ("reproduce", "fig03")])
    outcome = command(*arguments, *STORED, "--out", out)
    if not (outcome.code == 1 and "failed: " in outcome.out):  # a run is stored as failed
        require_clear(outcome, out / path.name)
    files = {name for name in files_below(out) if not name.startswith(("claims-", "fig03-"))}
    assert files == {path.name}, f"leftover files: {files}"


def _diverge(path, step):
    connection = sqlite3.connect(path)
    connection.execute("UPDATE runs SET diverged_at = ?", (step,))
    connection.commit()
    connection.close()


def _bomb():
    """Return few bytes that decompress to more zeros than a case may hold in memory."""
    packer, zeros = zlib.compressobj(wbits=-15), bytes(1 << 24)
    piece = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    count = 1 + int(1.2 * MAX_MEMORY) // len(zeros)
    checksum = (count * len(zeros) % 65521) << 16 | 1  # Adler-32 of zeros
    return b"\x78\x9c" + piece * count + b"\x03\0" + checksum.to_bytes(4, "big")


def _change_rows(rng, path):
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT key, spec, summary, provenance FROM runs").fetchall()
    key, spec, summary, provenance = one_of(rng, rows)
    curves = "SELECT name, data FROM curves WHERE key = ?"
    curve, data = one_of(rng, connection.execute(curves, (key,)).fetchall())
    text = {"spec": spec, "summary": summary, "provenance": provenance}
    set_run = "UPDATE runs SET {} = ? WHERE key = ?"
    set_curve = "UPDATE curves SET data = ? WHERE key = ? AND name = ?"
    change = one_of(
        rng, ["json"] * 4 + ["cell"] * 3 + ["curve"] * 4 + ["key", "swap", "lost", "schema", "name"]
    )
    if change == "json":
        name = one_of(rng, list(text))
        forged = dumps(changed(rng, json.loads(text[name])))
        connection.execute(set_run.format(name), (forged, key))
    elif change == "cell":
        name = one_of(rng, ["spec", "summary", "provenance", "diverged_at", "error"])
        odd = [b"\xff\0", "{", "[" * 5000, "", -1, 2**62, 1e308, "x" * 10**6, "null"]
        connection.execute(set_run.format(name), (one_of(rng, odd), key))
    elif change == "curve":
        raw = zlib.decompress(data)
        odd = [
            b"", b"x", raw, data[:-3], zlib.compress(raw[:-1]), zlib.compress(raw[: len(raw) // 2]),
            zlib.compress(raw * 2), zlib.compress(b""), zlib.compress(b"\xff" * len(raw)), _bomb(),
            "text", 5,
        ]  # fmt: skip
        connection.execute(set_curve, (one_of(rng, odd), key, curve))
    elif change == "key":
        connection.execute("UPDATE runs SET key = ? WHERE key = ?", (one_of(rng, ["", "x"]), key))
    elif change == "swap" and len(rows) > 1:
        connection.execute(set_run.format("spec"), (rows[0][1], rows[1][0]))
    elif change == "lost":
        condition = one_of(rng, ["", " WHERE name = 'test_loss'"])
        connection.execute(f"DELETE FROM {one_of(rng, ['curves' + condition, 'runs'])}")
    elif change == "name":
        connection.execute("UPDATE curves SET name = 'other' WHERE name = ?", (curve,))
    elif change == "schema":
        _change_schema(rng, connection)
    connection.commit()
    connection.close()


def _change_schema(rng, connection):
    endless = (
        "CREATE VIEW runs AS WITH RECURSIVE n(k) AS (SELECT 1 UNION ALL SELECT k + 1 FROM n "
        "LIMIT 40000000) SELECT k AS key, 's' AS spec, NULL AS error, NULL AS diverged_at, "
        "'{}' AS summary, '{}' AS provenance FROM n"
    )
    statements = one_of(
        rng,
        [
            ["DROP TABLE runs"],
            ["DROP TABLE curves"],
            ["DROP TABLE runs", endless],
            ["ALTER TABLE runs RENAME COLUMN spec TO other"],
            ["ALTER TABLE runs ADD COLUMN more TEXT"],
            ["PRAGMA user_version = 99"],
            ["PRAGMA user_version = -1"],
            ["PRAGMA application_id = 5"],
            ["CREATE TRIGGER t AFTER UPDATE ON runs BEGIN DELETE FROM curves; END"],
        ],
    )
    for statement in statements:
        connection.execute(statement)
