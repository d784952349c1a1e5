"""The half of `biv report` that is about a store of the paper's runs."""

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
    """Write the page about the runs in a store, of one data set and preset."""
    for option, known in (("dataset", ROWS), ("preset", PRESETS)):
        chosen = getattr(options, option)
        if chosen is not None and chosen not in known:
            raise ValueError(f"--{option} must be one of {', '.join(known)}; got {chosen!r}")
    store = Store(path, read_only=True)
    there = paper_page.contents(store)
    wanted = [
        chosen
        for chosen in there
        if options.dataset in (None, chosen.dataset) and options.preset in (None, chosen.preset)
    ]
    found = "; ".join(f"{c.dataset}, {c.preset} preset ({c.runs:,} runs)" for c in there)
    if not wanted:
        raise ValueError(f"{path} has no such runs; got {found or 'none at all'}")
    if len(wanted) > 1:
        print(
            f"biv: note: the store has {found}: shown are the first; --dataset and --preset "
            "choose others",
            file=sys.stderr,
        )
    with named_errors(path):
        page = paper_page.page(store, wanted[0], shlex.quote(str(path.parent)))
    page.write(options.out)
