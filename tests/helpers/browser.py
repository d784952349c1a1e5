"""A real browser for tests, chromium or the one that BIV_BROWSER names, driven by playwright."""

import os
import shutil
from contextlib import contextmanager

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
# Disable requests that the browser sends by itself, so that all requests are those of the page.
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
    """Return the path of the browser that BIV_BROWSER names, else of chromium, or None."""
    chosen = os.environ.get("BIV_BROWSER")
    return chosen or next(filter(None, map(shutil.which, NAMES)), None)


@contextmanager
def browser():
    """Start a browser; skip the test with a reason if there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = executable()
    if path is None:
        pytest.skip("chromium is not installed (apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=QUIET)
        try:
            yield running
        finally:
            running.close()


class OpenPage:
    """A page in a browser, with its requests, failed requests, and messages of the console."""

    def __init__(self, running, path, width=1280, scheme="light", **options):
        self.context = running.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, **options
        )
        self.page = self.context.new_page()
        self.requests, self.failed, self.messages = [], [], []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on(
            "requestfailed", lambda request: self.failed.append((request.url, request.failure))
        )
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("dialog", lambda dialog: self.messages.append(f"dialog {dialog.message}"))
        self.page.goto(path.as_uri())

    def draw_all(self):
        """Scroll through the page, so that every chart is drawn."""
        for plot in self.page.locator(".plot").all():
            plot.scroll_into_view_if_needed()
            plot.locator(".main-svg").first.wait_for()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()
