"""A new model takes the place of an old one; whenever the process ends, one of them is whole.

All files are first written into the subfolder ``.new`` and synchronised with the disk. Renaming it
to ``.ready`` decides: from then on the folder holds the new model, whose files are moved to their
places one by one. Readers find each file where it is and write nothing. After a kill, the next
training completes the move, and removes a ``.new``. A folder of one of these names that holds other
files, or a link, is not ours: it is neither read nor removed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from biv._utils.atomic_files import InUseError, WriteError, make_folder, remove, rename, sync_folder

T = TypeVar("T")

NEW, READY = ".new", ".ready"
TRIES = 100  # of reading while another process replaces the model again and again


@dataclass(frozen=True)
class Staging:
    """The files of a folder that are replaced together.

    Attributes:
        folder: Where they are.
        names: All that there may be; the first and the last are always there.
    """

    folder: Path
    names: tuple[str, ...]

    @contextmanager
    def replacing(self) -> Iterator[Path]:
        """Make a folder to write to, whose files take the place of those there when it ends.

        The caller holds the folder; see :func:`biv._utils.atomic_files.lock_folder`.
        """
        new = self.folder / NEW
        if os.path.lexists(new) and not self._is_ours(new):
            raise ValueError(f"{new} is in the way: it holds other files, so move it elsewhere")
        remove(new)
        try:
            make_folder(new)
            try:
                yield new
            except WriteError as error:
                raise error.renamed(self.folder / Path(error.filename).name) from error
            rename(new, self.folder / READY)
        except BaseException:
            remove(new)
            raise
        sync_folder(self.folder)
        self.finish()

    def finish(self) -> None:
        """Move the files of a model that is ready to their places; the caller holds the folder.

        The first file is moved first and the last one last. This may be interrupted and called
        again.
        """
        ready = self.folder / READY
        if not self._is_ours(ready):
            return
        there = [name for name in self.names if (ready / name).exists()]
        if self.names[0] in there:  # nothing has been moved: what the new model lacks is of the old
            for name in self.names:
                if name not in there:
                    remove(self.folder / name)
        for name in there:
            if name == self.names[-1]:
                sync_folder(self.folder)
            rename(ready / name, self.folder / name)
        sync_folder(self.folder)
        remove(ready)

    def current(self, name: str) -> Path:
        """Where a file is, or would be, whatever has been moved."""
        ready = self.folder / READY
        staged = (ready / name).exists() or (ready / self.names[0]).exists()
        return (ready if staged and self._is_ours(ready) else self.folder) / name

    def leftover_folders(self) -> list[Path]:
        """Return the folders that an interrupted replacement has left."""
        return [path for path in (self.folder / NEW, self.folder / READY) if self._is_ours(path)]

    def _is_ours(self, path: Path) -> bool:
        """Whether this is a real folder that holds nothing but files of a model."""
        if path.is_symlink() or not path.is_dir():
            return False
        temporary = tuple(f".{name}.biv" for name in self.names)
        return all(
            entry.is_file() and (entry.name in self.names or entry.name.startswith(temporary))
            for entry in path.iterdir()
        )

    def read(self, read: Callable[[], T]) -> T:
        """Call what reads the files (by :meth:`current`) so that all it reads is of one model.

        Raises:
            InUseError: The files change all the time.
        """
        for _ in range(TRIES):
            before = self._state()
            try:
                found = read()
            except (OSError, ValueError):
                if self._state() == before:
                    raise
            else:
                if self._state() == before:
                    return found
        raise InUseError(f"{self.folder} is being written by another process: wait for it")

    def _state(self) -> list[tuple[str, int, int]]:
        """What changes when a file is replaced or moved."""
        found = []
        for folder in (self.folder, self.folder / READY):
            for name in self.names:
                with suppress(OSError):
                    state = (folder / name).stat()
                    found.append((str(folder / name), state.st_ino, state.st_mtime_ns))
        return found
