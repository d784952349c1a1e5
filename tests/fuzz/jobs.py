"""A small job for each command that writes, and functions that recognise broken results."""

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
    """Command that reads and writes below a folder.

    Attributes
    ----------
    name : str
        Name for messages.
    arguments : callable
        Function that returns the arguments for a folder with `inputs` and `out`.
    old : callable
        Function that writes the files that the command will replace into `out`.
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
    options = ["--target", "y", "--target-var", "v", "--stream", "--shards", 2, "--max-epochs", 3]
    out = ["--checkpoint-seconds", 0, "--out", folder / "out" / "model"]
    return ["train", folder / "inputs" / "parts", *options, *out, *more]


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
    """Return a folder with the inputs of all jobs, which is made once per process."""
    folder = Path(tempfile.mkdtemp(prefix="biv-fuzz-inputs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(SAVED / "folder", folder / "model")
    shutil.copy(SAVED / "table.csv", folder)
    parquet_files.write_folder(folder / "parts", sizes=(60, 50), group_rows=20)
    rows = {name: [0.5, -1.0, 2.0] for name in ("a", "b")} | {"town": ["Zug", "Bern", "Zug"]}
    parquet_files.write(folder / "table.parquet", rows)
    return folder


def prepare(job, folder):
    """Make `inputs` and `out` below a folder, which may already have an empty `out`."""
    shutil.copytree(_inputs(), folder / "inputs")
    out = folder / "out"
    out.mkdir(exist_ok=True)
    job.old(out)


def run(job, folder):
    """Run the command in this process."""
    return command(*job.arguments(folder))


def run_again(job, folder, do=run):
    """Repeat the command; if only a report is missing, run the command that the message names."""
    outcome = do(job, folder)
    advice = re.search(r"its report can be written by `biv (report .*)`", outcome.err)
    return command(*shlex.split(advice[1])) if outcome.code == 2 and advice else outcome


def state(folder):
    """Return the content of each output as a digest or a word, by name; "broken" if it is."""
    out, contents = folder / "out", {}
    for path in sorted(out.iterdir()):
        if path.name.startswith("."):
            continue
        if path.name == "model":
            contents["model"] = _model(path, folder)
        elif path.is_dir():
            contents |= {f"{path.name}/{p.name}": _file(p) for p in path.iterdir() if _visible(p)}
        else:
            contents[path.name] = _file(path)
    return {name: content for name, content in contents.items() if content is not None}


def _visible(path):
    return not path.name.startswith(".") and not path.name.endswith(("-journal", "-wal", "-shm"))


def _model(path, folder):
    """Return a digest of predictions and evidence; None if there is no finished model."""
    try:
        model = ModelFolder.read(path)
    except (ValueError, FileNotFoundError) as error:
        missing = "unfinished" in str(error) or "got none" in str(error)
        return None if missing or not path.is_dir() else f"broken: {error}"
    tables = [folder / "inputs" / "table.csv", folder / "inputs" / "parts"]
    names = set(model.schema.names)
    table = next(files for files in map(Files, tables) if names <= set(files.columns))
    texts = [repr(model.evidence).replace(str(folder), ""), repr(model.about.result.mse)]
    predicted = [np.stack(model.predict(part)[:2]).tobytes() for part in table.parts()]
    return _digest(b"".join(predicted) + "".join(texts).encode()) + _page(path / "report.html")


def _page(path):
    return "" if not path.exists() or path.read_bytes().endswith(ENDS[".html"]) else " broken page"


def _file(path):
    content = path.read_bytes()
    if path.suffix in ENDS and content != PAGE.encode():  # it contains times or names of folders
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
    """States before and after an undisturbed job, and the files it leaves."""

    old: dict
    new: dict
    files: set


def clean(job, folder, do=run):
    """Run a job undisturbed in an empty folder."""
    prepare(job, folder)
    old = state(folder)
    outcome = do(job, folder)
    assert outcome.code == 0, f"{job.name} fails without a fault: {outcome}"
    return Clean(old, state(folder), files_below(folder / "out"))


def require_whole(job, folder, reference):
    """Check that every output is either unchanged or complete."""
    outputs = state(folder)
    for name in {*outputs, *reference.old, *reference.new}:
        allowed = reference.old.get(name), reference.new.get(name)
        assert outputs.get(name) in allowed, (
            f"{job.name}: {name} is neither unchanged nor complete: {outputs.get(name)}"
        )


def require_finished(job, folder, reference):
    """Check that every output is complete, and that there are no other files."""
    outputs, files = state(folder), files_below(folder / "out")
    for name in {*outputs, *reference.new}:
        assert outputs.get(name) == reference.new.get(name), f"{job.name}: {name} differs"
    assert files == reference.files, (
        f"{job.name}: leftovers {files - reference.files}, missing {reference.files - files}"
    )
