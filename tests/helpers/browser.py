"""A real browser for tests: Debian's chromium, or whichever is named, driven by playwright."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# What a browser does of its own accord: none of it is a page's doing.
QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def executable():
    """Where a browser is, or None; BIV_BROWSER names one."""
    chosen = os.environ.get("BIV_BROWSER")
    return chosen or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser():
    """Skips the test where there is none, and says so."""
    sync_api = pytest.importorskip(
        "playwright.sync_api", reason="no browser test: playwright is not installed"
    )
    path = executable()
    if path is None:
        pytest.skip("no browser test: there is no chromium here (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=QUIET)
        try:
            yield started
        finally:
            started.close()


class OpenPage:
    """A page in a browser, and all that it asked for or complained of."""

    def __init__(self, started, path, width=1280, scheme="light", **options):
        self.context = started.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
        )
        self.page = self.context.new_page()
        self.requests, self.failed, self.complaints = [], [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "requestfailed", lambda request: self.failed.append((request.url, request.failure))
        )
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(f"dialog {dialog.message}"))
        self.page.goto(path.as_uri())

    def draw_all(self):
        """Scroll through, so that every chart is drawn."""
        for plot in self.page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            plot.locator(".main-svg").first.wait_for()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
