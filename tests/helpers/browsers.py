"""A real Chromium for the pages: which one, and what it may never see on any page.

Which: the program that MODELKEEPER_BROWSER names, else one that is installed, else the pinned one of
`vendored`. Where there is none, tests are skipped, unless MODELKEEPER_REQUIRE_BROWSER is set.

A tab fails its test if a page logs an error or a warning, breaks its content policy, raises, or asks another
host for anything.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

from tests.helpers.vendored import ROOT, chromium

INSTALLED = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
SHOTS = ROOT / "build" / "screenshots"
HOW = "set MODELKEEPER_BROWSER to one, or install chromium (Debian: apt-get install chromium)"
# Tells of broken policies, before any script of the page runs.
WATCH = """document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));"""


def program() -> tuple[str, dict[str, str]]:
    """A browser, and the variables that it needs; skips the test if there is none."""
    named = os.environ.get("MODELKEEPER_BROWSER") or next(filter(None, map(shutil.which, INSTALLED)), None)
    if named:
        return named, {}
    try:
        path, variables = chromium()
    except (OSError, ImportError) as problem:
        words = f"there is no browser to test with ({problem}): {HOW}"
        if os.environ.get("MODELKEEPER_REQUIRE_BROWSER"):
            pytest.fail(words)
        pytest.skip(words)
    return str(path), variables


@contextlib.contextmanager
def launched() -> Iterator[Browser]:
    """A browser, while the block runs."""
    path, variables = program()
    arguments = ["--disable-gpu", "--no-zygote", "--font-render-hinting=none"]
    if os.geteuid() == 0:
        arguments.append("--no-sandbox")
    environment: dict[str, Any] = {**os.environ, **variables}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, env=environment, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def tab(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page of a service in a window of its own, which must stay without a fault."""
    faults: list[str] = []

    def refuse(dialog: Dialog) -> None:
        faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    look = {"viewport": {"width": 1280, "height": 800}, "reduced_motion": "reduce", "locale": "en-US"}
    options = look | options  # without a locale, that of a machine without one, which no formatter knows
    context = browser.new_context(base_url=url, **options)
    context.add_init_script(WATCH)
    page = context.new_page()
    page.set_default_timeout(20_000)
    host = urlsplit(url).netloc
    page.on("console", lambda said: faults.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", refuse)
    page.on(
        "request",
        lambda asked: faults.append(f"asked {asked.url}") if urlsplit(asked.url).netloc != host else None,
    )
    try:
        yield page
        assert faults == []
    finally:
        context.close()


def shot(page: Page, name: str, **options: Any) -> Path:
    """Keep a picture of a page under build/."""
    SHOTS.mkdir(parents=True, exist_ok=True)
    path = SHOTS / f"{name}.png"
    page.screenshot(path=path, **options)
    return path
