"""Ways to damage a file, shared by tests and fuzzing of damaged files."""

import copy
import json
import os
import sqlite3
from dataclasses import replace

import numpy as np

from biv.paper.results import CURVES, pack_curve
from biv.paper.store import Store

WRONG = ("x", None, [], {}, 0, -1, 2**70, 1e308, 1e-308, float("nan"), float("inf"), True, "\ud800")


def nodes(value, path=()):
    """Iterate over the paths of all nodes of a JSON value; of lists, the first and last element."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from nodes(inner, (*path, key))
    elif isinstance(value, list):
        for k in sorted({0, len(value) - 1} if value else ()):
            yield from nodes(value[k], (*path, k))


def replaced(whole, path, change):
    """Return a copy after `change(container, key)` was applied to one node."""
    holder = [copy.deepcopy(whole)]
    inner, (*parents, last) = holder, (0, *path)
    for key in parents:
        inner = inner[key]
    change(inner, last)
    return holder[0] if holder else None


def json_mutations(whole):
    """Iterate over (description, new value) for all changes of a JSON value."""
    for path in nodes(whole):
        place = ".".join(map(str, path)) or "all"
        for wrong in WRONG:
            yield (
                f"{place} = {wrong!r}",
                replaced(whole, path, lambda d, k, w=wrong: d.__setitem__(k, w)),
            )
        yield f"{place} deleted", replaced(whole, path, lambda d, k: d.__delitem__(k))
        node = whole
        for key in path:
            node = node[key]
        if isinstance(node, list) and node:
            for name, other in (("shorter", node[:-1]), ("longer", [*node, node[-1]])):
                yield (
                    f"{place} {name}",
                    replaced(whole, path, lambda d, k, o=other: d.__setitem__(k, o)),
                )
        if isinstance(node, dict):
            yield (
                f"{place} with more",
                replaced(whole, path, lambda d, k, o={**node, "more": 1}: d.__setitem__(k, o)),
            )


def text_mutations(text):
    """Iterate over (description, bytes) for damages of a whole JSON file."""
    content = text.encode()
    for share in (0, 0.3, 0.9):
        yield f"cut to {share}", content[: int(share * len(content))]
    yield "cut by one", content.rstrip()[:-1]
    yield "not UTF-8", content.replace(b'"', b'"\xff', 1)
    yield "UTF-16", text.encode("utf-16")
    yield "deeply nested", b"[" * 200_000
    yield "a deep value", content.replace(b":", b": " + b'{"a":' * 200_000, 1)
    yield "a key twice", content.replace(b"{", b'{"format": 3, "rows": "x", "rows": [],', 1)
    yield "bytes of 0", bytes(len(content))
    yield "a long number", content.replace(b": 6", b": 6" + b"0" * 5000)
    yield "two values", content + content


def odd_files(path):
    """Iterate over (description, function that creates something else than a file at the path)."""
    yield "folder", path.mkdir
    yield "loop of links", lambda: path.symlink_to(path)
    yield "link to nothing", lambda: path.symlink_to(path.with_name("nowhere"))
    if hasattr(os, "mkfifo"):
        yield "pipe", lambda: os.mkfifo(path)


def dumped(value):
    return json.dumps(value, ensure_ascii=True)


def store_statements(key):
    """Iterate over (description, SQL) for damages of a store; `key` is that of a run."""
    for column in ("spec", "summary", "provenance", "diverged_at", "error"):
        for name, value in {
            "text": "'x'",
            "empty": "''",
            "blob": "x'ff00'",
            "number": "-3",
            "infinity": "9e999",
            "list": "'[]'",
            "NaN": "'NaN'",
            "deep": f"'{'[' * 100_000}'",
            "not UTF-8": "CAST(x'22ff22' AS TEXT)",
        }.items():
            yield f"{column}: {name}", f"UPDATE runs SET {column} = {value} WHERE key = '{key}'"
    for change in (
        "'$.epochs', 1000000000",
        "'$.epochs', -1",
        "'$.epochs', 'x'",
        "'$.batch_size', 0",
        "'$.test_every', 0",
        "'$.seed', 1000000000000",
        "'$.seed', -1",
        "'$.version', 2",
        "'$.dataset', 'birds'",
        "'$.noise', 3",
        "'$.noise.kind', 'x'",
        "'$.loss', json('{}')",
        "'$.more', 3",
        "'$.learning_rate', 1e308",
    ):
        statement = f"UPDATE runs SET spec = json_set(spec, {change}) WHERE key = '{key}'"
        yield f"spec {change}", statement
    for name, change in {
        "key of another": "UPDATE runs SET key = 'x' WHERE key = '{}'",
        "blob as key": "UPDATE runs SET key = x'00' WHERE key = '{}'",
        "no curves": "DELETE FROM curves WHERE key = '{}'",
        "one curve less": "DELETE FROM curves WHERE key = '{}' AND name = 'train_loss'",
        "another name": "UPDATE curves SET name = 'run' WHERE key = '{}' AND name = 'train_loss'",
        "text as curve": "UPDATE curves SET data = 'x' WHERE key = '{}'",
        "cut curve": "UPDATE curves SET data = substr(data, 1, 20) WHERE key = '{}'",
        "longer curve": "UPDATE curves SET data = data || x'00' WHERE key = '{}'",
        "no table": "DROP TABLE curves",
        "another column": "ALTER TABLE runs ADD COLUMN more",
        "another table": "CREATE TABLE more (a)",
        "a trigger": "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END",
        "a view": "ALTER TABLE runs RENAME TO r; CREATE VIEW runs AS SELECT * FROM r",
        "newer": "PRAGMA user_version = 3",
        "older": "PRAGMA user_version = 1",
        "another kind": "PRAGMA application_id = 3",
        "empty": "DELETE FROM runs",
    }.items():
        yield name, change.format(key)


def forge_curves(path, value, runs=None):
    """Replace the curves of runs (None: of all) by a constant, with summaries that agree."""
    store = Store(path, read_only=True)
    results = list(store.results(store.runs()).values())[:runs]
    connection = sqlite3.connect(path)
    for result in results:
        forged = {name: np.full_like(getattr(result, name), value) for name in CURVES}
        for name, curve in forged.items():
            connection.execute(
                "UPDATE curves SET data = ? WHERE key = ? AND name = ?",
                (pack_curve(curve), result.run.key, name),
            )
        summary = json.dumps(replace(result, **forged).summary)
        connection.execute("UPDATE runs SET summary = ? WHERE key = ?", (summary, result.run.key))
    connection.commit()
    connection.close()
