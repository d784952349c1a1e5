"""The part of `biv report` that reads a store of the paper's runs."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from biv.paper.presets import PRESETS, ROWS
from biv.paper.report import paper_page
from biv.paper.report.files import named_errors
from biv.paper.store import Store


def write(path: Path, options: argparse.Namespace) -> None:
    """Write the HTML report of the runs in a store, for one data set and preset.

    Raises
    ------
    ValueError
        The data set or preset is unknown, or the store has no runs of it.
    """
    for option, allowed in (("dataset", ROWS), ("preset", PRESETS)):
        value = getattr(options, option)
        if value is not None and value not in allowed:
            raise ValueError(f"--{option} must be one of {', '.join(allowed)}; got {value!r}")
    store = Store(path, read_only=True)
    available = paper_page.contents(store)
    matching = [
        selection
        for selection in available
        if options.dataset in (None, selection.dataset)
        and options.preset in (None, selection.preset)
    ]
    listing = "; ".join(f"{s.dataset}, {s.preset} preset ({s.runs:,} runs)" for s in available)
    if not matching:
        raise ValueError(f"{path} has no such runs; it has {listing or 'no runs'}")
    if len(matching) > 1:
        print(
            f"biv: note: the store has {listing}. The report shows the first; use --dataset and "
            "--preset to choose another",
            file=sys.stderr,
        )
    with named_errors(path):
        page = paper_page.page(store, matching[0], shlex.quote(str(path.parent)))
    page.write(options.out)
