"""Checks and locks of the folder that a model is trained into."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from biv._utils.atomic_files import lock_folder, remove, remove_leftover
from biv._utils.wording import Message, Setting
from biv.workflows.staging import Staging

MODEL, ABOUT, UNFINISHED = "model.safetensors", "about.json", "unfinished-{}.pt"
EVIDENCE, COMPARISON, REPORT = "evidence.json", "comparison.json", "report.html"
FORCE = Setting("force", True)
FILES = (MODEL, EVIDENCE, COMPARISON, REPORT, ABOUT)  # in the order in which they are replaced


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Lock a folder against other training runs; create it, and remove it if it remains empty.

    Raises
    ------
    ValueError
        If it is a file.
    InUseError
        If another process trains into it.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} must be a folder; got a file")
    is_new = not folder.exists()
    with lock_folder(folder):
        try:
            Staging(folder, FILES).finish()  # in case a kill interrupted it
            yield
        finally:
            if is_new:
                with suppress(OSError):  # raised if it is not empty
                    folder.rmdir()


def prepare_folder(folder: Path, checkpoint: Path, *, force: bool) -> None:
    """Prepare a locked folder for a new training run, or to resume one from a checkpoint.

    Raises
    ------
    ValueError
        If it holds files that must not be lost.
    """
    temporary = (*(f".{name}." for name in FILES), ".unfinished-")
    leftover_folders = [p for p in folder.iterdir() if p.name.startswith(temporary)]
    staged = Staging(folder, FILES).leftover_folders()
    others = [p for p in folder.glob(UNFINISHED.format("*")) if p != checkpoint]
    ours = {*(folder / name for name in FILES), checkpoint, *others, *leftover_folders, *staged}
    strange = [p for p in folder.iterdir() if p not in ours]
    if strange and not (folder / ABOUT).is_file():
        raise ValueError(
            f"{folder} must be empty, or a model folder; it contains {strange[0].name!r}"
        )
    for leftover in leftover_folders:
        remove_leftover(leftover)
    for leftover in staged:
        remove(leftover)
    if force:
        for other in others:
            remove(other)
        return
    if (folder / ABOUT).is_file() and not checkpoint.is_file():
        raise _holds_a_model(folder)
    if others:
        raise ValueError(
            Message(
                "{folder} holds an unfinished run with other rows or settings: {force} discards it",
                folder=folder,
                force=FORCE,
            )
        )


def require_no_model(folder: Path, *, force: bool) -> None:
    """Check, before a table is read, that a folder holds no finished model and is not locked.

    Raises
    ------
    ValueError
        If it holds a finished model.
    InUseError
        If another process trains into the folder.
    """
    if not folder.is_dir():
        return
    with lock_folder(folder):
        finished = Staging(folder, FILES).current(ABOUT).is_file()
    if finished and not any(folder.glob(UNFINISHED.format("*"))) and not force:
        raise _holds_a_model(folder)


def _holds_a_model(folder: Path) -> ValueError:
    message = Message(
        "{folder} already holds a model: {force} replaces it", folder=folder, force=FORCE
    )
    if not (folder / REPORT).exists():
        path, out = shlex.quote(str(folder)), shlex.quote(str(folder / REPORT))
        message = message + f"; its report can be written by `biv report {path} --out {out}`"
    return ValueError(message)
