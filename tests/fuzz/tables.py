"""Damaged and odd table files, read by the commands that read tables."""

import gzip
import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from biv.tables.files import Files
from fuzz.laws import (
    SAVED,
    command,
    contents_below,
    files_below,
    one_of,
    require_clear,
    require_finite,
)

HEADER = "a,b,town,y,y_err"
NUMBERS = (
    "4e38", "-4e38", "1e308", "1e309", "1e999999999", "inf", "-Infinity", "nan", "NA", "1e-320",
    "-0.0", "0x1F", "1_000", "１２", "1,5", "--1", "1e", "+", "٣", "9" * 400, "0." + "1" * 5000,
)  # fmt: skip
CELLS = (
    *NUMBERS,
    "",
    " ",
    '"',
    '""',
    "'",
    "\t",
    "\\",
    "x" * 100_000,
    "\ufeff",
    "a\0b",
    "2024-13-45",
)
TRAIN = ("--members", 2, "--max-epochs", 1, "--no-report")
COLUMNS = ("--target", "y", "--target-std", "y_err")


def case(rng, folder, number):  # noqa: ARG001
    """Run one command on one odd or damaged file."""
    source, out = folder / "source", folder / "out"
    source.mkdir()
    out.mkdir()
    path = _file(rng, source)
    before = contents_below(source)
    action = one_of(rng, ["predict"] * 12 + ["train"] * 7 + ["inspect"])
    if action == "predict":
        result = out / f"p{''.join(path.suffixes[-2:]) or '.csv'}"
        outcome = command("predict", SAVED / "folder", path, "--out", result)
    elif action == "train":
        result = out / "model"
        outcome = command("train", path, *COLUMNS, *TRAIN, "--out", result)
    else:
        result = out
        outcome = command("inspect", path, *COLUMNS)
    require_clear(outcome, path, *source.iterdir())
    assert contents_below(source) == before, "the source has changed"
    if outcome.code:
        assert not files_below(out), f"leftover files after an error: {files_below(out)}"
        return
    assert result.exists(), "the command succeeded without output"
    hidden = [name for name in files_below(out) if Path(name).name.startswith(".")]
    assert not hidden, f"leftover files: {hidden}"
    if action == "predict":
        require_finite_file(result)
    elif action == "train":
        predictions = out / "p.csv"
        outcome = command("predict", result, SAVED / "table.csv", "--out", predictions)
        require_clear(outcome, result, SAVED)
        if predictions.exists():
            require_finite_file(predictions)


def require_finite_file(path):
    """Check that the predictions in a file of `biv predict` are finite."""
    for part in Files(path).parts():
        for name in part.cells.schema.names[-2:]:
            require_finite(f"column {name}", part.numbers(name))


def _rows(rng, count):
    """Return ordinary rows as text."""
    towns = ["Bern", "Zug", "Basel"]
    a, b = rng.normal(size=(2, count))
    err = rng.uniform(0.1, 1, size=count)
    y = a + np.sin(2 * b) + err * rng.normal(size=count)
    return [
        [f"{a[k]:.4f}", f"{b[k]:.4f}", one_of(rng, towns), f"{y[k]:.4f}", f"{err[k]:.4f}"]
        for k in range(count)
    ]


def _file(rng, source):
    kind = one_of(rng, ["text"] * 10 + ["bytes"] * 6 + ["gzip"] * 2 + ["parquet"] * 4 + ["path"])
    if kind == "path":
        return _odd_path(rng, source)
    if kind == "parquet":
        return _parquet(rng, source)
    text = _text(rng)
    content = text.encode("utf-8", errors="surrogatepass")
    if kind == "bytes":
        content = _damaged(rng, content)
    path = source / one_of(rng, ["d.csv", "d.csv", "d.tsv", "odd name, 'q'.csv", "D.CSV"])
    if kind == "gzip":
        path = source / "d.csv.gz"
        content = gzip.compress(content)
        if rng.random() < 0.7:
            content = _damaged(rng, content)
    path.write_bytes(content)
    return path


def _text(rng):
    """Return a table as text, with odd cells and lines."""
    rows = [HEADER.split(","), *_rows(rng, int(one_of(rng, [0, 1, 2, 12, 25, 40])))]
    for _ in range(int(rng.integers(0, 4))):
        line = one_of(rng, rows)
        place = int(rng.integers(len(line))) if line else 0
        change = one_of(rng, ["cell"] * 6 + ["ragged", "quote", "empty", "column", "head", "wide"])
        if change == "cell" and line:
            line[place] = one_of(rng, CELLS)
        elif change == "ragged":
            line.append("1") if rng.random() < 0.5 else line[-1:].clear()
        elif change == "quote" and line:
            line[place] = '"' + line[place]
        elif change == "empty":
            rows.insert(int(rng.integers(len(rows) + 1)), [])
        elif change == "column":
            for row in rows[1:]:
                row[place : place + 1] = [one_of(rng, CELLS[:-4])]
        elif change == "head" and rows[0]:
            odd = ["a", "", "y", "prediction", "a" * 5000, "x\ny", "a.b", " a", "A"]
            rows[0][place % len(rows[0])] = one_of(rng, odd)
        elif change == "wide":
            extra = int(one_of(rng, [5, 300, 3000]))
            for number, row in enumerate(rows):
                row += [f"c{k}" if number == 0 else "0" for k in range(extra)]
    delimiter = one_of(rng, [",", ",", ",", ";", "\t"])
    end = one_of(rng, ["\n", "\n", "\r\n", "\r"])
    start = one_of(rng, ["", "", "", "\ufeff", "\ufeff\ufeff", "\n\n", "sep=;\n", "# note\n"])
    lines = [delimiter.join(cell for cell in row) for row in rows]
    return start + end.join(lines) + one_of(rng, [end, end, "", end * 3])


def _damaged(rng, content):
    """Return content with bytes removed, flipped, repeated or inserted."""
    content = bytearray(content)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(len(content) + 1))
        change = one_of(rng, ["cut", "flip", "flip", "insert", "insert", "nothing", "repeat"])
        if change == "cut":
            del content[place:]
        elif change == "flip" and place < len(content):
            content[place] ^= 1 << int(rng.integers(8))
        elif change == "insert":
            odd = [b"\0", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b'"', b"\r", b"\x1a", b"\0" * 5000]
            content[place:place] = one_of(rng, odd)
        elif change == "nothing":
            content = bytearray()
        elif change == "repeat":
            content += content[place:]
    return bytes(content)


def _parquet(rng, source):
    path = source / one_of(rng, ["d.parquet", "d.pq"])
    columns = dict(zip(HEADER.split(","), zip(*_rows(rng, 30), strict=True), strict=True))
    arrays = {
        name: pa.array(cells) if name == "town" else pa.array([float(cell) for cell in cells])
        for name, cells in columns.items()
    }
    values = np.array([float(cell) for cell in columns["a"]])
    values[3] = one_of(rng, [4e38, 1e308, np.inf, np.nan, -0.0, 1.0])
    odd = {
        "lists": pa.array([[1.0, 2.0]] * 30),
        "structs": pa.array([{"x": 1}] * 30),
        "nulls": pa.nulls(30),
        "binary": pa.array([b"\xff\0"] * 30),
        "dates": pa.array([2**40] * 30, pa.timestamp("s")),
        "decimals": pa.array(range(30)).cast(pa.decimal128(38, 10)),
        "codes": pa.array(columns["town"]).dictionary_encode(),
        "text": pa.array([one_of(rng, CELLS) for _ in range(30)]),
        "numbers": pa.array(values),
        "half": pa.array(np.float16(values.clip(-9, 9))),
        "large": pa.array(np.full(30, 2**64 - 1, dtype=np.uint64)),
        "time": pa.array([1] * 30, pa.time32("s")),
        "span": pa.array([1] * 30, pa.duration("ns")),
    }
    if rng.random() < 0.8:
        name = one_of(rng, ["a", "a", "town", "y", "y_err", "more"])
        arrays[name] = odd[one_of(rng, list(odd))]
    table = pa.Table.from_arrays(list(arrays.values()), names=list(arrays))
    if rng.random() < 0.1:
        table = pa.Table.from_arrays(
            [*table.columns, table.column("a")], names=[*table.column_names, "a"]
        )
    table = table.slice(0, int(one_of(rng, [0, 1, 30, 30, 30])))
    content = io.BytesIO()
    pq.write_table(table, content, row_group_size=int(one_of(rng, [1, 7, 30])))
    content = content.getvalue()
    path.write_bytes(_damaged(rng, content) if rng.random() < 0.5 else content)
    return path


def _odd_path(rng, source):
    kind = one_of(rng, ["folder", "none", "pipe", "loop", "dangling", "suffix", "mixed", "pipes"])
    path = source / "d.csv"
    text = "\n".join([HEADER, *(",".join(row) for row in _rows(rng, 20))])
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "loop":
        path.symlink_to("e.csv")
        (source / "e.csv").symlink_to("d.csv")
    elif kind == "dangling":
        path.symlink_to("nothing.csv")
    elif kind == "suffix":
        path = source / one_of(rng, ["d.xlsx", "d", "d.csv.zip", "d.gz"])
        path.write_text(text)
    elif kind == "mixed":
        path = source / "parts"
        path.mkdir()
        (path / "1.csv").write_text(text)
        (path / "2.csv").write_text(one_of(rng, [text, "", "a,b\n1,2\n", text.replace("b", "B")]))
    elif kind == "pipes":
        path = source / "parts"
        path.mkdir()
        os.mkfifo(path / "1.csv")
        (path / "0.csv").write_text(text)
    return path
