"""A headless Chromium of the system's, driven by playwright; whoever has neither skips these tests and is told why."""

import shutil
import time
from contextlib import contextmanager

import pytest

QUIET = ("--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update")


@contextmanager
def chromium():
    """A browser, already started."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is in the extra dev")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine; Debian's package is called chromium")
    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-sync", *QUIET])
        yield browser
        browser.close()


def until(page, condition, seconds=10.0):
    """Wait for this JavaScript to be true. (Playwright's own waiting evaluates a text, which the page's policy forbids.)"""
    end = time.monotonic() + seconds
    while not page.evaluate(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.02)


@contextmanager
def opened(browser, url, *, width=1300, height=850, scheme="light", touch=False, expected="\0"):
    """The page, ready. What it says on the console, throws or fetches fails the test, but for what holds ``expected``.

    From disk it has no network and may fetch nothing but itself.
    """
    offline = url.startswith("file:")
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, offline=offline, has_touch=touch
    )
    page, wrong = context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("requestfailed", lambda request: wrong.append(request.url))
    page.on("request", lambda request: offline and not request.url.startswith(url) and wrong.append(request.url))
    page.goto(url)
    page.wait_for_selector("html[data-ready]")
    until(page, "!state.rollouts.length || document.querySelector('#members') !== null")
    yield page
    page.wait_for_timeout(50)
    context.close()
    assert [text for text in wrong if expected not in text] == []
