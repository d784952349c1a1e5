"""Measure the size of a report, and the time to make it and to open it in a browser.

    .venv/bin/python benchmarks/report.py                   the report of the paper's 720 runs
    .venv/bin/python benchmarks/report.py --out results.md  writes the results to a file

A page is opened from a file in a new browser, and counts as open when its first chart is drawn. In
turns with it, a page with plotly and one chart of two points is opened, for comparison.
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
    """Return a page with one chart of two points."""
    panel = Panel("", "x", "y", [Series("a", [0.0, 1.0], [0.0, 1.0])], "A line.")
    chart = Chart("one", "", [panel], {"a": BLUE})
    return Page("One chart", "", "", [Section("one", "One", [chart])])


def seconds_to_open(started, path):
    """Return the seconds until the page is loaded and its first chart is drawn."""
    context = started.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    start = time.perf_counter()
    page.goto(path.as_uri(), wait_until="load")
    page.locator(".plot[data-drawn]").first.wait_for(state="attached")
    seconds = time.perf_counter() - start
    context.close()
    return seconds


def report(options):
    """Measure, and yield the report as lines of Markdown."""
    yield f"{machine()}.\n"
    with tempfile.TemporaryDirectory() as folder:
        store = Store(ROOT / "paper/results/runs.sqlite")
        chosen = paper_page.contents(store)[0]
        start = time.perf_counter()
        paper = paper_page.page(store, chosen, "paper/results").write(Path(folder) / "paper.html")
        making = time.perf_counter() - start
        bare = smallest().write(Path(folder) / "bare.html")
        opening = {paper: [], bare: []}
        for _ in range(options.rounds):
            for path, times in opening.items():
                with browser() as started:
                    times.append(seconds_to_open(started, path))
        yield f"| a report of {chosen.runs} runs | | target |"
        yield "|---|---|---|"
        yield f"| size, megabytes | {paper.stat().st_size / 1e6:.2f} | 8 |"
        yield f"| seconds to make it | {making:.1f} | |"
        whole, alone = (statistics.median(opening[path]) for path in (paper, bare))
        median_and_max = f"{whole:.2f} ({max(opening[paper]):.2f} at most)"
        yield f"| seconds to open it, median of {options.rounds} | {median_and_max} | 2 |"
        yield (
            "| time to open it, divided by that of a page with plotly and one small chart | "
            f"{whole / alone:.2f} | |"
        )


if __name__ == "__main__":
    given = parser(__doc__, rounds=7).parse_args()
    publish(report(given), given.out)
