"""Write the files of an artefact from the results in a store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biv._utils import typed_json
from biv._utils.atomic_files import write_atomically
from biv.paper.grid import Artefact
from biv.paper.report import figures, lines, tables
from biv.paper.results import RunResult
from biv.paper.spec import Run
from biv.paper.store import Store


class Written(NamedTuple):
    """Texts and files that were written for an artefact.

    Attributes
    ----------
    table : str
        Its numbers as a Markdown table.
    caption : str
        Its caption.
    paths : list of Path
        Paths of its files.
    """

    table: str
    caption: str
    paths: list[Path]


def write(artefact: Artefact, store: Store, seeds: int, folder: Path, stem: str) -> Written:
    """Draw an artefact from the results in a store, and write the figure and its numbers."""
    results = store.results(artefact.runs(seeds))
    caption = figures.caption(artefact, results, seeds)
    paths = figures.save(figures.draw(artefact, results, seeds, caption), folder, stem)
    table, texts = _KINDS[artefact.kind](artefact, results, seeds)
    for suffix, text in {**texts, "md": f"{table}\n\n{caption}\n"}.items():
        paths.append(folder / f"{stem}.{suffix}")
        write_atomically(paths[-1], text.encode())
    return Written(table, caption, paths)


Texts = tuple[str, dict[str, str]]  # a Markdown table, and other texts by file suffix


def _table(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> Texts:
    columns = tables.cells(artefact, results, seeds)
    others = {"csv": tables.comma_separated(columns), "tex": tables.latex(columns)}
    return tables.markdown(columns), others


def _figure(artefact: Artefact, results: Mapping[Run, RunResult], seeds: int) -> Texts:
    return lines.numbers(artefact, results, seeds), {}


_KINDS = {"table": _table, "figure": _figure}


@contextmanager
def named_errors(path: Path) -> Iterator[None]:
    """Add the path of the store to errors that occur while its results are shown.

    Each run may be valid by itself and the runs together may still be impossible to show.

    Raises
    ------
    ValueError
        An error occurred, or a number was not finite.
    """
    with (
        typed_json.errors_name_file(path, "cannot be shown"),
        np.errstate(divide="raise", over="raise", invalid="raise"),
    ):
        yield
