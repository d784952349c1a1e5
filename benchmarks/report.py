"""How long a report takes to make and to open in a browser, and how large it is.

    .venv/bin/python benchmarks/report.py                   of the paper's 720 runs
    .venv/bin/python benchmarks/report.py --out results.md  and write it down

A page is opened from a file, in a browser that has just been started, and counts as open when the
first chart is drawn. Beside it, in turns, a page that holds plotly and one chart of two points:
what remains is the report's own.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from biv.paper.report import paper_page
from biv.paper.store import Store
from biv.report.charts import BLUE, Chart, Panel, Series
from biv.report.page import Page
from biv.report.parts import Section
from machine import machine, parser, publish

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))
from helpers.browser import browser  # noqa: E402


def smallest():
    """A page with one chart of two points."""
    panel = Panel("", "x", "y", [Series("a", [0.0, 1.0], [0.0, 1.0])], "A line.")
    chart = Chart("one", "", [panel], {"a": BLUE})
    return Page("One chart", "", "", [Section("one", "One", [chart])])


def seconds_to_open(started, path):
    """Until the first chart is drawn, and until the page is loaded."""
    context = started.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    start = time.perf_counter()
    page.goto(path.as_uri(), wait_until="load")
    page.locator(".plot[data-drawn]").first.wait_for(state="attached")
    found = time.perf_counter() - start
    context.close()
    return found


def report(options):
    """The lines of the report, as they are found."""
    yield f"{machine()}.\n"
    with tempfile.TemporaryDirectory() as folder:
        store = Store(ROOT / "paper/results/runs.sqlite")
        chosen = paper_page.contents(store)[0]
        start = time.perf_counter()
        paper = paper_page.page(store, chosen, "paper/results").write(Path(folder) / "paper.html")
        made = time.perf_counter() - start
        bare = smallest().write(Path(folder) / "bare.html")
        found = {paper: [], bare: []}
        for _ in range(options.rounds):
            for path, own in found.items():
                with browser() as started:
                    own.append(seconds_to_open(started, path))
        yield f"| a report of {chosen.runs} runs | | wanted |"
        yield "|---|---|---|"
        yield f"| megabytes | {paper.stat().st_size / 1e6:.2f} | 8 |"
        yield f"| seconds to make it | {made:.1f} | |"
        whole, alone = (statistics.median(found[path]) for path in (paper, bare))
        told = f"{whole:.2f} ({max(found[paper]):.2f} at most)"
        yield f"| seconds to open it, median of {options.rounds} | {told} | 2 |"
        yield f"| beside a page of plotly and one small chart | {whole / alone:.2f} times | |"


if __name__ == "__main__":
    given = parser(__doc__, rounds=7).parse_args()
    publish(report(given), given.out)
