"""Models and stores that were damaged or made up, through everything that reads them."""

import copy
import json
import shutil
import sqlite3
import zlib
from pathlib import Path

import numpy as np
import pandas as pd

from biv import BIVRegressor, modelfile
from fuzz.disk import watched
from fuzz.laws import (
    SAVED,
    command,
    contents_below,
    files_below,
    one_of,
    require_clear,
    require_finite,
)
from fuzz.running import MOST_MEMORY
from fuzz.tables import require_finite_file

VALUES = (
    None, True, -1, 0, 0.5, 1e308, -1e308, 2**31, 2**70, 10**400, "", "x", "x" * 200_000, [], {},
    [[]], [None] * 3, {"a": 1}, float("nan"), float("inf"), "\0", "<script>alert(1)</script>",
    "../../escaped", list(range(1000)),
)  # fmt: skip
STORED = ("--dataset", "bike2011", "--preset", "smoke", "--seeds", 1)


def case(rng, folder, number):  # noqa: ARG001
    """Damage one thing, read it in one way."""
    source, out = folder / "source", folder / "out"
    source.mkdir()
    out.mkdir()
    with watched(folder.parent) as watch:
        one_of(rng, [_model_folder] * 4 + [_model_file] * 2 + [_store] * 3)(rng, source, out, watch)
    # The folder itself is synchronised with the disk, too.
    written = [
        path for _, path in watch.calls if path != str(out) and out not in Path(path).parents
    ]
    assert not written, f"written outside of the output folder: {written[0]}"


def _check(outcome, source, out, before, result):
    require_clear(outcome, source)
    assert contents_below(source) == before, "the source has changed"
    left = files_below(out)
    wanted = {result.name} if outcome.code == 0 else set()
    assert left == wanted, f"files {left} instead of {wanted}, exit code {outcome.code}"
    if outcome.code == 0 and result.suffix == ".html":
        text = result.read_text(encoding="utf-8")
        assert text.endswith("</html>\n"), "the page has no end"
        assert "<script>alert" not in text, "a text became a script"


def _model_folder(rng, source, out, watch):
    """One file of a model folder is damaged, then predicted with or reported."""
    model = source / "model"
    shutil.copytree(SAVED / "folder", model)
    name = one_of(rng, ["about.json", "about.json", "evidence.json", "evidence.json"])
    kind = one_of(rng, ["json"] * 6 + ["bytes"] * 2 + ["tensors", "missing", "file"])
    if kind == "json":
        _write_json(model / name, _changed(rng, json.loads((model / name).read_text())))
    elif kind == "tensors":
        _made_up(rng, SAVED / "folder" / "model.safetensors", model / "model.safetensors")
    else:
        name = one_of(rng, [name, "model.safetensors"])
        _spoil(rng, model / name, kind)
    doing = one_of(rng, ["report", "report", "predict"])
    comparison = ()
    if doing == "report" and rng.random() < 0.2:
        _write_json(source / "comparison.json", _changed(rng, _comparison()))
        comparison = "--comparison", source / "comparison.json"
    before = contents_below(source)
    watch.calls.clear()
    if doing == "report":
        result = out / "page.html"
        outcome = command("report", model, *comparison, "--out", result)
    else:
        result = out / "p.csv"
        outcome = command("predict", model, SAVED / "table.csv", "--out", result)
    _check(outcome, source, out, before, result)
    if outcome.code == 0 and doing == "predict":
        require_finite_file(result)


def _comparison():
    """What `biv compare --json` prints, in small."""
    method = {
        "method": "BIV", "mse": 1.0, "mse_stderr": 0.1, "above_best": 0.0, "above_best_stderr": 0.0,
        "as_good_as_best": True, "chosen": "BIV", "seconds": 1.0,
    }  # fmt: skip
    number = {"value": 0.1, "stderr": 0.01}
    return {
        "target": "y", "control": number, "failed": {}, "folds": 5, "gain": number,
        "gain_all_labels_alike": number, "label_variance": 1.0, "methods": [method, method],
        "recommendation": "BIV", "rows": 60, "rows_in_all": 60,
    }  # fmt: skip


def _write_json(path, content):
    path.write_text(json.dumps(content), encoding="utf-8")


def _changed(rng, content):
    """Some value in it removed, replaced, or of another length."""
    content = copy.deepcopy(content)
    for _ in range(int(one_of(rng, [1, 1, 1, 3]))):
        if not isinstance(content, (dict, list)) or not content:
            break
        inside = content
        while True:
            key = one_of(rng, list(inside) if isinstance(inside, dict) else range(len(inside)))
            deeper = inside[key]
            if not isinstance(deeper, (dict, list)) or not deeper or rng.random() < 0.25:
                break
            inside = deeper
        change = one_of(rng, ["remove", "value", "value", "value", "length", "deep", "add"])
        if change == "remove":
            del inside[key]
        elif change == "length" and isinstance(deeper, list):
            inside[key] = deeper[: int(rng.integers(len(deeper) + 1))] + deeper
        elif change == "deep":
            nested = []
            for _ in range(int(one_of(rng, [50, 900]))):
                nested = [nested]
            inside[key] = nested
        elif change == "add" and isinstance(inside, dict):
            inside["unknown"] = 1
        else:
            inside[key] = one_of(rng, VALUES)
    return one_of(rng, VALUES) if rng.random() < 0.03 else content


def _spoil(rng, path, kind):
    """Bytes of a file, or the file itself."""
    if kind == "missing":
        path.unlink()
        return
    content = bytearray(path.read_bytes())
    change = one_of(rng, ["cut", "flip", "flip", "more", "empty", "zeros"])
    place = int(rng.integers(len(content)))
    if change == "cut":
        del content[place:]
    elif change == "flip":
        content[place] ^= 1 << int(rng.integers(8))
    elif change == "more":
        content += b"\0" * 1000
    elif change == "empty":
        content.clear()
    elif change == "zeros":
        content[place : place + 4000] = bytes(len(content[place : place + 4000]))
    path.write_bytes(content)


def _made_up(rng, good, path):
    """A model whose checksum is right and whose content is not."""
    tensors, content = modelfile.read(good)
    change = one_of(rng, ["content"] * 4 + ["swap", "shape", "nan", "remove", "dtype", "huge"])
    name, other = one_of(rng, sorted(tensors)), one_of(rng, sorted(tensors))
    if change == "content":
        content = _changed(rng, content)
        content = content if isinstance(content, dict) else {"content": content}
    elif change == "swap":
        tensors[name], tensors[other] = tensors[other], tensors[name]
    elif change == "shape":
        tensors[name] = tensors[name].repeat(2) if tensors[name].ndim == 1 else tensors[name][:1]
    elif change == "nan":
        tensors[name] = tensors[name] * one_of(rng, [np.nan, np.inf])
    elif change == "remove":
        del tensors[name]
    elif change == "dtype":
        tensors[name] = tensors[name].double()
    elif change == "huge":
        tensors[name] = tensors[name] * 1e30
    try:
        modelfile.write(path, tensors, content)
    except ValueError:  # NaN, which is not JSON
        shutil.copy(good, path)


def _model_file(rng, source, out, watch):
    """A file of `save` is damaged, then loaded."""
    path = source / "model.biv"
    good = SAVED / one_of(rng, ["model.biv", "two-outputs.biv"])
    if rng.random() < 0.75:
        _made_up(rng, good, path)
    else:
        shutil.copy(good, path)
        _spoil(rng, path, "bytes")
    rows = pd.read_csv(SAVED / "table.csv")[["a", "b", "town"]]
    before = contents_below(source)
    watch.calls.clear()
    try:
        model = BIVRegressor.load(path)
    except ValueError as error:
        assert str(path) in str(error), f"the error names no file: {error}"
        assert len(str(error)) < 4_000, f"an error of {len(str(error)):,} characters"
    else:
        assert model.checkpoint is None, f"the file chose the checkpoint {model.checkpoint}"
        assert not callable(model.model), "the file chose a function"
        try:
            mean, std = model.predict(rows, return_std=True)
        except ValueError as error:  # of rows that the columns of this model do not fit
            assert "X" in str(error) or "column" in str(error), f"predict: {error!r}"
        else:
            require_finite("the prediction", mean)
            require_finite("its standard deviation", std)
            model.save(out / "again.biv")
    assert contents_below(source) == before, "the source has changed"


def _store(rng, source, out, watch):
    """A row, a curve, the schema or the bytes of a store are damaged, then it is shown."""
    path = source / "runs.sqlite"
    shutil.copy(SAVED / "runs.sqlite", path)
    if rng.random() < 0.25:
        _spoil(rng, path, "bytes")
    else:
        _change_rows(rng, path)
    if rng.random() < 0.7:
        before = contents_below(source)
        watch.calls.clear()
        result = out / "page.html"
        _check(command("report", path, "--out", result), source, out, before, result)
        return
    shutil.move(path, out / path.name)
    watch.calls.clear()
    outcome = command("claims", 1, 4, *STORED, "--stored", "--no-report", "--out", out)
    if not (outcome.code == 1 and "failed: " in outcome.out):  # a run that is stored as failed
        require_clear(outcome, out / path.name)
    assert files_below(out) == {path.name}, f"files were left: {files_below(out)}"


def _bomb():
    """More zeros than a case may hold in memory, in few bytes: one piece, repeated."""
    packer, zeros = zlib.compressobj(wbits=-15), bytes(1 << 24)
    piece = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
    count = 1 + int(1.2 * MOST_MEMORY) // len(zeros)
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
        told = json.dumps(_changed(rng, json.loads(text[name])))
        connection.execute(set_run.format(name), (told, key))
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
        what = one_of(rng, ["", " WHERE name = 'test_loss'"])
        connection.execute(f"DELETE FROM {one_of(rng, ['curves' + what, 'runs'])}")
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
