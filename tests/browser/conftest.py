"""Chromium, and the product that it looks at: one of each for all tests of this folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest
from playwright.sync_api import Browser, FloatRect, Locator, Page, ViewportSize, expect, sync_playwright

from kdi_assets.tools.local.broker import Broker
from tests.browser.person import STEP_MILLISECONDS, Person
from tests.browser.site import Site, open_site

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
OPTIONS = (
    "--no-sandbox",  # as root, it does not start with one
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
VIEWPORT = ViewportSize(width=1400, height=900)


class Shot(Protocol):
    """Takes a picture of the window, of the part above an element, or of an element."""

    def __call__(self, name: str, *, above: Locator | None = None, clip: FloatRect | None = None) -> None: ...


@pytest.fixture(scope="module")
def site(browser: Browser, broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """All that `make dev` runs, on the broker of the test process."""
    with open_site(tmp_path_factory.mktemp("site"), bootstrap_servers=broker.bootstrap_servers) as site:
        yield site


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of the system, with a profile that is new and removed at the end."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up("the tests of the UI need Chromium.  Run:  apt-get install --no-install-recommends chromium")
    expect.set_options(timeout=STEP_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(OPTIONS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Page]:
    """A window with no history; a failed test keeps the last picture."""
    context = browser.new_context(viewport=VIEWPORT, timezone_id="UTC", locale="en-GB", reduced_motion="reduce")
    page = context.new_page()
    page.set_default_timeout(STEP_MILLISECONDS)
    failed_before = request.session.testsfailed
    yield page
    if request.session.testsfailed > failed_before:
        page.screenshot(path=tmp_path / "failed.png")
    context.close()


@pytest.fixture
def person(page: Page, site: Site) -> Person:
    """The person who clicks."""
    return Person(page, site.url)


@pytest.fixture
def shot(pytestconfig: pytest.Config, page: Page, tmp_path: Path) -> Shot:
    """Takes a picture of the window for the tour (``--tour``); otherwise it goes to the test's folder."""
    folder = pytestconfig.getoption("--tour") or tmp_path
    folder.mkdir(parents=True, exist_ok=True)

    def take(name: str, *, above: Locator | None = None, clip: FloatRect | None = None) -> None:
        page.mouse.move(0, 0)  # a tooltip would cover part of the picture
        box = above.bounding_box() if above else None
        clip = clip or FloatRect(x=0, y=0, width=VIEWPORT["width"], height=box["y"] if box else VIEWPORT["height"])
        page.screenshot(path=folder / f"{name}.png", animations="disabled", clip=clip)

    return take
