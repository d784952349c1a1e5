"""Replace the files of a model together, so that a killed process leaves one complete model.

All files are first written into the subfolder ``.new`` and synchronised with the disk. Renaming
``.new`` to ``.ready`` commits the new model. Its files are then moved to their places one by one.
Readers look for each file in both folders and write nothing. After a kill, the next training
completes the move, and removes a ``.new``. A folder of one of these names that holds other files,
or that is a link, was not written by `biv`: it is neither read nor removed.
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
TRIES = 100  # attempts to read while another process keeps replacing the model


@dataclass(frozen=True)
class Staging:
    """The files of a folder that are replaced together.

    Attributes
    ----------
    folder : Path
        Folder of the files.
    names : tuple of str
        Names of all files that may exist; the first and the last always exist.
    """

    folder: Path
    names: tuple[str, ...]

    @contextmanager
    def replacing(self) -> Iterator[Path]:
        """Create a folder to write to; at the end, its files replace the present ones.

        The caller has locked the folder; see :func:`biv._utils.atomic_files.lock_folder`.
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
                raise error.for_path(self.folder / Path(error.filename).name) from error
            rename(new, self.folder / READY)
        except BaseException:
            remove(new)
            raise
        sync_folder(self.folder)
        self.finish()

    def finish(self) -> None:
        """Move the files of a committed model to their places; the caller has locked the folder.

        The first file is moved first and the last one last. If this is interrupted, call it again.
        """
        ready = self.folder / READY
        if not self._is_ours(ready):
            return
        staged = [name for name in self.names if (ready / name).exists()]
        if self.names[0] in staged:  # nothing was moved yet: files not staged are of the old model
            for name in self.names:
                if name not in staged:
                    remove(self.folder / name)
        for name in staged:
            if name == self.names[-1]:
                sync_folder(self.folder)
            rename(ready / name, self.folder / name)
        sync_folder(self.folder)
        remove(ready)

    def current(self, name: str) -> Path:
        """Return the path of a file, whether it has been moved yet or not."""
        ready = self.folder / READY
        staged = (ready / name).exists() or (ready / self.names[0]).exists()
        return (ready if staged and self._is_ours(ready) else self.folder) / name

    def leftover_folders(self) -> list[Path]:
        """Return the folders that an interrupted replacement left behind."""
        return [path for path in (self.folder / NEW, self.folder / READY) if self._is_ours(path)]

    def _is_ours(self, path: Path) -> bool:
        """Return whether this is a folder, and not a link, that holds only files of a model."""
        if path.is_symlink() or not path.is_dir():
            return False
        temporary = tuple(f".{name}.biv" for name in self.names)
        return all(
            entry.is_file() and (entry.name in self.names or entry.name.startswith(temporary))
            for entry in path.iterdir()
        )

    def read(self, read: Callable[[], T]) -> T:
        """Call a function that reads files (by :meth:`current`), until all are of one model.

        Raises
        ------
        InUseError
            If the files keep changing.
        """
        for _ in range(TRIES):
            before = self._state()
            try:
                content = read()
            except (OSError, ValueError):
                if self._state() == before:
                    raise
            else:
                if self._state() == before:
                    return content
        raise InUseError(f"{self.folder} is being written by another process: wait for it")

    def _state(self) -> list[tuple[str, int, int]]:
        """Return numbers that change when a file is replaced or moved."""
        states = []
        for folder in (self.folder, self.folder / READY):
            for name in self.names:
                with suppress(OSError):
                    state = (folder / name).stat()
                    states.append((str(folder / name), state.st_ino, state.st_mtime_ns))
        return states
