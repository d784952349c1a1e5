"""The smallest job of each command that writes, and what tells a whole result from a broken one."""

import atexit
import functools
import hashlib
import re
import shlex
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biv.tables.files import Files
from biv.workflows import ModelFolder
from fuzz.laws import SAVED, command, files_below
from helpers import parquet_files

COLUMNS = ("--target", "y", "--target-std", "y_err", "--ignore", "z")
FEW = ("--members", 2, "--max-epochs", 2)
ENDS = {".html": b"</html>\n", ".svg": b"</svg>\n", ".png": b"IEND\xaeB`\x82", ".pdf": b"%%EOF\n"}


@dataclass(frozen=True)
class Job:
    """A command below a folder.

    Attributes:
        name: For messages.
        arguments: Given the folder with `inputs` and `out`.
        old: Writes what is to be replaced into `out`.
    """

    name: str
    arguments: Callable
    old: Callable = lambda out: None


def _old_model(out):
    shutil.copytree(SAVED / "folder", out / "model")


def _old_file(name, content):
    return lambda out: (out / name).write_text(content)


def _old_store(out):
    (out / "results").mkdir()
    shutil.copy(SAVED / "runs.sqlite", out / "results")


def _train(folder, *more):
    table, out = folder / "inputs" / "table.csv", folder / "out" / "model"
    return ["train", table, *COLUMNS, *FEW, "--out", out, *more]


def _stream(folder, *more):
    given = ["--target", "y", "--target-var", "v", "--stream", "--shards", 2, "--max-epochs", 3]
    out = ["--checkpoint-seconds", 0, "--out", folder / "out" / "model"]
    return ["train", folder / "inputs" / "parts", *given, *out, *more]


def _predict(folder, name, *more):
    table = folder / "inputs" / name
    out = folder / "out" / f"p{table.suffix}"
    return ["predict", folder / "inputs" / "model", table, "--out", out, *more]


def _report(folder, *more):
    return ["report", folder / "inputs" / "model", "--out", folder / "out" / "page.html", *more]


STORED = ("--dataset", "bike2011", "--preset", "smoke", "--seeds", 1)
PAGE = "<html>the old page</html>\n"


def _reproduce(folder, *more):
    return ["reproduce", "fig03", *STORED, "--out", folder / "out" / "results", *more]


def _claims(folder):
    out = folder / "out" / "results"
    return ["claims", *STORED, "--stored", "--no-report", "--out", out]


JOBS = {
    job.name: job
    for job in (
        Job("train", _train),
        Job("train --force", lambda folder: _train(folder, "--force"), _old_model),
        Job("predict", lambda folder: _predict(folder, "table.csv")),
        Job(
            "predict --force",
            lambda folder: _predict(folder, "table.csv", "--force"),
            _old_file("p.csv", "old\n"),
        ),
        Job("predict parquet", lambda folder: _predict(folder, "table.parquet")),
        Job(
            "report --force",
            lambda folder: _report(folder, "--force"),
            _old_file("page.html", PAGE),
        ),
        Job("reproduce --stored", _reproduce, _old_store),
        Job("claims", _claims, _old_store),
        Job("stream", _stream),
        Job("stream --force", lambda folder: _stream(folder, "--force"), _old_model),
        Job("reproduce", lambda folder: _reproduce(folder, "--lines", "GT", "--jobs", 1)),
    )
}


@functools.cache
def _inputs():
    """Made once in a process, and copied."""
    folder = Path(tempfile.mkdtemp(prefix="biv-fuzz-inputs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(SAVED / "folder", folder / "model")
    shutil.copy(SAVED / "table.csv", folder)
    parquet_files.write_folder(folder / "parts", sizes=(60, 50), group_rows=20)
    rows = {name: [0.5, -1.0, 2.0] for name in ("a", "b")} | {"town": ["Zug", "Bern", "Zug"]}
    parquet_files.write(folder / "table.parquet", rows)
    return folder


def prepare(job, folder):
    """`inputs` and `out` below a folder, which may have an empty `out` already."""
    shutil.copytree(_inputs(), folder / "inputs")
    out = folder / "out"
    out.mkdir(exist_ok=True)
    job.old(out)


def run(job, folder):
    """The command, in this process."""
    return command(*job.arguments(folder))


def run_again(job, folder, do=run):
    """The command once more; or, where only a report is missing, the command that it then names."""
    outcome = do(job, folder)
    advice = re.search(r"its report can be written by `biv (report .*)`", outcome.err)
    return command(*shlex.split(advice[1])) if outcome.code == 2 and advice else outcome


def state(folder):
    """What each output is worth, by name; a broken one is worth "broken"."""
    out, found = folder / "out", {}
    for path in sorted(out.iterdir()):
        if path.name.startswith("."):
            continue
        if path.name == "model":
            found["model"] = _model(path, folder)
        elif path.is_dir():
            found |= {f"{path.name}/{p.name}": _file(p) for p in path.iterdir() if _shown(p)}
        else:
            found[path.name] = _file(path)
    return {name: worth for name, worth in found.items() if worth is not None}


def _shown(path):
    return not path.name.startswith(".") and not path.name.endswith(("-journal", "-wal", "-shm"))


def _model(path, folder):
    """Its predictions and what is told of it; None if there is none or it is unfinished."""
    try:
        model = ModelFolder.read(path)
    except (ValueError, FileNotFoundError) as error:
        missing = "unfinished" in str(error) or "got none" in str(error)
        return None if missing or not path.is_dir() else f"broken: {error}"
    tables = [folder / "inputs" / "table.csv", folder / "inputs" / "parts"]
    names = set(model.schema.names)
    table = next(files for files in map(Files, tables) if names <= set(files.columns))
    told = [repr(model.evidence).replace(str(folder), ""), repr(model.about.result.mse)]
    predicted = [np.stack(model.predict(part)[:2]).tobytes() for part in table.parts()]
    return _digest(b"".join(predicted) + "".join(told).encode()) + _page(path / "report.html")


def _page(path):
    return "" if not path.exists() or path.read_bytes().endswith(ENDS[".html"]) else " broken page"


def _file(path):
    content = path.read_bytes()
    if path.suffix in ENDS and content != PAGE.encode():  # with times or names of folders inside
        return "complete" if content.endswith(ENDS[path.suffix]) else "broken"
    if path.suffix == ".sqlite":
        try:
            connection = sqlite3.connect(path)
            rows = connection.execute("SELECT key, name, data FROM curves ORDER BY 1, 2").fetchall()
            connection.close()
        except sqlite3.DatabaseError as error:
            return None if "no such table" in str(error) else f"broken: {error}"
        return _digest(repr(rows).encode()) if rows else None
    if path.suffix == ".parquet":
        try:
            return _digest(
                b"".join(repr(p.cells.to_pylist()).encode() for p in Files(path).parts())
            )
        except ValueError as error:
            return f"broken: {error}"
    return _digest(content)


def _digest(content):
    return hashlib.sha256(content).hexdigest()[:16]


@dataclass(frozen=True)
class Clean:
    """A job that nothing disturbed: its states before and after, and its files."""

    old: dict
    new: dict
    files: set


def clean(job, folder, do=run):
    """Run a job undisturbed in an empty folder."""
    prepare(job, folder)
    old = state(folder)
    done = do(job, folder)
    assert done.code == 0, f"{job.name} fails undisturbed: {done}"
    return Clean(old, state(folder), files_below(folder / "out"))


def require_whole(job, folder, reference):
    """Every output is as before or as it should be."""
    found = state(folder)
    for name in {*found, *reference.old, *reference.new}:
        allowed = reference.old.get(name), reference.new.get(name)
        assert found.get(name) in allowed, (
            f"{job.name}: {name} is neither as before nor whole: {found.get(name)}"
        )


def require_finished(job, folder, reference):
    """Every output as it should be, and nothing beside it."""
    found, files = state(folder), files_below(folder / "out")
    for name in {*found, *reference.new}:
        assert found.get(name) == reference.new.get(name), f"{job.name}: {name} is not the same"
    assert files == reference.files, (
        f"{job.name}: leftovers {files - reference.files}, missing {reference.files - files}"
    )
