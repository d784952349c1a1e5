"""Test reports in a real browser: no requests, no errors, and working controls."""

import csv
import json
import re
from contextlib import redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from biv.cli import main
from biv.paper.report import paper_page
from biv.paper.store import Store
from helpers.browser import OpenPage, browser

pytest.importorskip("plotly", reason="reports need plotly")
pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
LARGEST = 8_000_000  # bytes
# A name that runs scripts if it is not escaped, one that is written from right to left, and a
# very long one.
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&amp;</script>"
RIGHT_TO_LEFT = "\u202eشريط الخطأ שגיאה"
LONG = "x" * 10_000


@pytest.fixture(scope="module")
def chromium():
    with browser() as running:
        yield running


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """Write the report of the committed store: 720 runs, all figures, all claims."""
    out = tmp_path_factory.mktemp("paper") / "paper.html"
    assert main(["report", str(ROOT / "paper/results"), "-o", str(out)]) == 0
    return out


def table(folder, target="y", rows=200):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 2))
    std = rng.uniform(0.1, 1.5, rows)
    y = x[:, 0] + std * rng.normal(size=rows)
    y[7] += 40.0  # an outlier
    frame = pd.DataFrame({"a": x[:, 0], HOSTILE: x[:, 1], LONG: x[:, 1] ** 2, target: y, "s": std})
    path = folder / "data <b>&'.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a model, with a comparison, on a table with hostile names of columns."""
    folder = tmp_path_factory.mktemp("trained")
    target = "t" + HOSTILE + RIGHT_TO_LEFT + LONG
    path = table(folder, target)
    columns = ["--target", target, "--target-std", "s"]
    with (folder / "comparison.json").open("w", encoding="utf-8") as out, redirect_stdout(out):
        compare = ["compare", str(path), *columns, "--folds", "2", "--jobs", "2", "--json"]
        assert main([*compare, "--report", str(folder / "compare.html")]) == 0
    small = ["--members", "4", "--max-epochs", "5", "--out", str(folder / "model")]
    comparison = ["--comparison", str(folder / "comparison.json")]
    assert main(["train", str(path), *columns, *small, *comparison]) == 0
    return folder


def pages(folder):
    return [folder / "model" / "report.html", folder / "compare.html"]


def check_charts(opened):
    """Check that all charts are drawn, without an error and without a request."""
    page = opened.page
    opened.draw_all()
    plots = page.locator(".plot").count()
    assert plots == page.locator(".plot[data-drawn]").count() > 0
    assert opened.messages == []
    assert len(opened.requests) == 1  # the file itself


def test_the_report_of_the_paper_draws_every_chart_without_requests(chromium, paper):
    assert paper.stat().st_size < LARGEST
    with OpenPage(chromium, paper) as opened:
        check_charts(opened)
        text = opened.page.locator("main").inner_text()
        for words in ("Table 1: our results next to the paper's", "Figure 15, VarNoise", "7 hold"):
            assert words in text
        assert "biv reproduce all --dataset bike --preset paper --seeds 5" in text
        assert opened.page.locator("#claims tbody").first.locator("tr").count() == 20


def test_check_boxes_hide_and_show_methods(chromium, paper):
    with OpenPage(chromium, paper) as opened:
        page = opened.page
        figure = page.locator("figure[data-chart=fig03]")
        figure.scroll_into_view_if_needed()
        figure.locator(".plot .main-svg").first.wait_for()
        lines = figure.locator(".scatterlayer .trace")
        before = lines.count()
        switch = figure.get_by_label("BIV", exact=True)
        switch.focus()
        page.keyboard.press("Space")  # toggle it by keyboard
        assert not switch.is_checked()
        page.wait_for_function(
            "([f, n]) => document.querySelectorAll(f).length === n",
            arg=["figure[data-chart=fig03] .scatterlayer .trace", before - 2],  # line and band
        )
        page.keyboard.press("Space")
        page.wait_for_function(
            "([f, n]) => document.querySelectorAll(f).length === n",
            arg=["figure[data-chart=fig03] .scatterlayer .trace", before],
        )


def ranges(page, key):
    return page.evaluate(
        "key => document.querySelector(`figure[data-chart=${key}] .plot`)._fullLayout.xaxis.range",
        key,
    )


def test_charts_zoom_by_mouse_and_keyboard_and_show_values(chromium, paper):
    with OpenPage(chromium, paper) as opened:
        page = opened.page
        plot = page.locator("figure[data-chart=fig03] .plot")
        plot.scroll_into_view_if_needed()
        plot.locator(".main-svg").first.wait_for()
        whole = ranges(page, "fig03")
        box = plot.bounding_box()
        middle, height = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for step in range(60):  # move down until the pointer is on a curve
            page.mouse.move(middle, box["y"] + box["height"] * (0.1 + 0.012 * step))
            if plot.locator(".hoverlayer .hovertext").count():
                break
        assert "test MSE" in plot.locator(".hoverlayer .hovertext").first.text_content()
        page.mouse.move(middle - 80, height - 60)
        page.mouse.down()
        page.mouse.move(middle + 80, height + 60, steps=5)
        page.mouse.up()
        page.wait_for_timeout(300)
        low, high = ranges(page, "fig03")
        assert whole[0] < low < high < whole[1]
        plot.focus()
        page.keyboard.press("0")
        page.wait_for_timeout(300)
        assert ranges(page, "fig03") == pytest.approx(whole)
        page.keyboard.press("+")
        page.wait_for_timeout(300)
        low, high = ranges(page, "fig03")
        assert high - low == pytest.approx(0.8 * (whole[1] - whole[0]))
        assert opened.messages == []


def test_tables_sort_copy_and_download(chromium, paper, tmp_path):
    with OpenPage(chromium, paper, accept_downloads=True) as opened:
        page = opened.page
        section = page.locator("#table1 .table").first
        methods = section.locator("tbody tr td:nth-child(2)")
        first = methods.all_inner_texts()
        head = section.locator("thead button").nth(2)
        head.click()
        column = section.locator("th[aria-sort=ascending]")
        assert column.inner_text().startswith("ours")
        values = section.locator("tbody tr td:nth-child(3)").evaluate_all(
            "cells => cells.map(cell => Number(cell.dataset.value))"
        )
        assert values == sorted(values)
        assert len(values) == len(first)
        head.click()
        assert section.locator("th[aria-sort=descending]").count() == 1
        with page.expect_download() as waiting:
            section.get_by_role("button", name="Download CSV").click()
        waiting.value.save_as(tmp_path / "table1.csv")
        with (tmp_path / "table1.csv").open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.reader(file))
        assert rows[0][:3] == ["noise", "method", "ours"]
        assert [float(row[2]) for row in rows[1:]] == values[::-1]
        assert rows[0][3:7] == ["± ours", "diverged", "paper", "± paper"]
        section.get_by_role("button", name="Copy").click()
        page.get_by_text("Copied.").wait_for()
        assert opened.messages == []


@pytest.mark.parametrize(
    ("width", "scheme"), [(360, "light"), (360, "dark"), (768, "light"), (1280, "dark")]
)
def test_no_width_scrolls_sideways_and_text_has_contrast(chromium, paper, trained, width, scheme):
    for path in (*pages(trained), *([paper] if (width, scheme) == (360, "dark") else [])):
        with OpenPage(chromium, path, width=width, scheme=scheme) as opened:
            check_charts(opened)
            page = opened.page
            for summary in page.locator("details > summary").all():
                summary.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            wide = page.evaluate(
                "[...document.querySelectorAll('body *')].filter(e => !e.closest('.plot, .scroll, pre, .skip')"
                " && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"
            )
            assert wide == []
            back, ink = page.evaluate(
                "(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))"
            )
            bright = [sum(map(int, re.findall(r"\d+", colour)[:3])) for colour in (back, ink)]
            assert (bright[0] > bright[1]) == (scheme == "light")


def test_printing_is_on_white_and_includes_charts_never_in_view(chromium, trained):
    with OpenPage(chromium, pages(trained)[0], scheme="dark") as opened:
        page = opened.page
        assert page.locator(".plot[data-drawn]").count() < page.locator(".plot").count()
        page.emulate_media(media="print")
        page.wait_for_function(
            "document.querySelectorAll('.plot[data-drawn]').length === document.querySelectorAll('.plot').length"
        )
        assert (
            page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        )
        assert not page.locator("nav").is_visible()
        widths = page.locator(".plot > .plot-container").evaluate_all(
            "plots => plots.map(p => p.getBoundingClientRect().width)"
        )
        assert max(widths) <= 660  # pixels of a page, upright
        printed = page.pdf()
        assert printed.startswith(b"%PDF")
        page.emulate_media(media="screen")
        page.wait_for_timeout(500)
        assert page.evaluate(
            "[...document.querySelectorAll('.plot')].every(p => p._fullLayout.autosize)"
        )
        assert opened.messages == []


def test_printing_from_the_dark_theme_is_black_on_white(chromium, trained):
    """Check the colours at "beforeprint", when the styles of the screen still apply."""
    with OpenPage(chromium, pages(trained)[0], scheme="dark") as opened:
        page = opened.page
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        ink = page.locator(".xtick text").first.evaluate("text => getComputedStyle(text).fill")
        assert ink == "rgb(0, 0, 0)"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        ink = page.locator(".xtick text").first.evaluate("text => getComputedStyle(text).fill")
        assert sum(map(int, re.findall(r"\d+", ink)[:3])) > 600
        assert opened.messages == []


def test_charts_have_only_the_listed_buttons(chromium, paper):
    """Plotly has a button that sends the chart to a server; neither it nor a new one may appear."""
    with OpenPage(chromium, paper) as opened:
        page = opened.page
        page.locator(".plot .main-svg").first.wait_for()
        buttons = page.locator(".plot").first.locator(".modebar-btn")
        titles = buttons.evaluate_all("all => all.map(b => b.dataset.title || b.ariaLabel)")
        assert len(titles) == 6
        assert all(re.search(r"(?i)download|zoom|pan|reset", title) for title in titles), titles
        assert buttons.evaluate_all("all => all.every(b => b.tabIndex === -1)")


def test_dragging_on_a_touch_screen_does_not_zoom(chromium, trained):
    with OpenPage(chromium, pages(trained)[0], width=360, has_touch=True, is_mobile=True) as opened:
        opened.page.locator(".plot").first.scroll_into_view_if_needed()
        opened.page.locator(".plot .main-svg").first.wait_for()
        assert opened.page.evaluate("document.querySelector('.plot')._fullLayout.dragmode") is False


def test_without_scripts_charts_are_described_in_words(chromium, paper):
    with OpenPage(chromium, paper, java_script_enabled=False) as opened:
        page = opened.page
        assert "Lowest mean test losses: " in page.locator("#fig03 .plot").inner_text()
        assert not page.locator("fieldset.names").first.is_visible()
        assert page.locator("#table1 tbody tr").first.is_visible()


def test_the_theme_can_be_chosen(chromium, paper):
    with OpenPage(chromium, paper) as opened:
        page = opened.page
        button = page.locator("#theme")
        seen = []
        for _ in range(3):
            seen.append(
                (
                    button.inner_text(),
                    page.evaluate("getComputedStyle(document.body).backgroundColor"),
                )
            )
            button.click()
        assert [text for text, _ in seen] == ["Theme: automatic", "Theme: light", "Theme: dark"]
        assert seen[0][1] == seen[1][1] != seen[2][1]


def test_the_report_of_a_user_s_table(chromium, trained):
    for path in pages(trained):
        assert path.stat().st_size < LARGEST
        with OpenPage(chromium, path) as opened:
            check_charts(opened)
            page = opened.page
            text = page.locator("main").inner_text()
            for words in ("Error bars", "Gain from weighting", "Calibration of the intervals",
                          "Residuals by σ²", "Rows to check first", "shuffled"):  # fmt: skip
                assert words in text, words
            first = page.locator("#look-at tbody tr").first.inner_text()
            assert "row 8" in first  # the outlier
            assert page.locator(".answer p").first.inner_text().endswith((".", "%"))
            # Names are escaped, so that none of them adds an element.
            assert page.locator("img, body script[src]").count() == 0
            assert page.locator("script").count() == 3


def test_hostile_names_are_shown_as_they_are(chromium, trained):
    target = json.loads((trained / "model" / "about.json").read_text(encoding="utf-8"))["target"][
        "name"
    ]
    with OpenPage(chromium, trained / "model" / "report.html") as opened:
        check_charts(opened)
        page = opened.page
        page.locator("#model details > summary").last.click()
        names = page.locator("#model table").last.locator("tbody th").all_inner_texts()
        assert HOSTILE in names
        heading = page.locator("h1").inner_text()
        assert target[:40] in heading
        assert len(heading) < 200
        titles = page.locator(".ytitle, .xtitle").all_text_contents()
        assert any(target[:30] in title for title in titles)


def test_charts_are_described_and_reachable_by_keyboard(chromium, paper):
    with OpenPage(chromium, paper) as opened:
        page = opened.page
        for plot in page.locator(".plot").all():
            assert len(plot.get_attribute("aria-label")) > 20
            assert plot.get_attribute("tabindex") == "0"
        unnamed = page.evaluate(
            "[...document.querySelectorAll('button, input, summary, a')].filter(e => !(e.textContent.trim() ||"
            " e.ariaLabel || e.dataset.title || [...(e.labels || [])].some(l => l.textContent.trim()))).length"
        )
        assert unnamed == 0
        assert page.evaluate("document.documentElement.lang") == "en"
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(ids) == len(set(ids))


def test_the_policy_stops_inserted_scripts_and_requests(chromium, paper, tmp_path):
    """Insert what a failure to escape would insert: the policy of the page must still stop it."""
    text = paper.read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    inserted = "<script>document.title = 'ran'</script><img src='https://127.0.0.1:9/x.png'>"
    broken.write_text(text.replace("<main", f"{inserted}<main", 1), encoding="utf-8")
    with OpenPage(chromium, broken) as opened:
        assert opened.page.title() != "ran"
        refused = [url for url, why in opened.failed if why == "csp"]
        assert refused == [url for url in opened.requests if url.startswith("http")]
        assert refused
        assert any("Content Security Policy" in message for message in opened.messages)


def test_table_1_of_the_page_agrees_with_the_store(paper):
    store = Store(ROOT / "paper/results/runs.sqlite")
    (chosen,) = paper_page.contents(store)
    assert (chosen.dataset, chosen.preset, chosen.seeds) == ("bike", "paper", 5)
    text = paper.read_text(encoding="utf-8")
    with (ROOT / "paper/results/table1.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            assert f'data-value="{float(row["lowest"])!r}"' in text
