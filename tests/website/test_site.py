"""The site as a reader has it: built strictly, opened as files in a real browser. `make test-site` runs it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("zensical", reason="the site's generator is not installed: make test-site installs it")
pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playwright.sync_api import Browser, Page, expect, sync_playwright
from test_html import BROWSER

from website import stage
from website.__main__ import build

pytestmark = pytest.mark.site

in_a_browser = pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on the PATH")
PHONE = {"width": 390, "height": 844}
SHOWN = ["index.html", "how-to/policies.html", "ideas/quorum.html", "evidence/arena.html"]
SHOWN += ["reference/bandit.html", "reference/commands.html", "reference/calls.html", "repository/CONTRIBUTING.html"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built strictly, and without problems, or there is an error here."""
    return build(tmp_path_factory.mktemp("docs"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as engine:
        args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        browser = engine.chromium.launch(executable_path=BROWSER, args=args)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of a phone in daylight that fails the test if it asks for anything from outside, or breaks."""
    context = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="light")
    page, wrong = context.new_page(), list[str]()
    page.on("request", lambda asked: wrong.append(asked.url) if asked.url.startswith(("http", "ws")) else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    assert not wrong


def test_a_broken_site_is_not_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither with a link to no page or to no heading, nor with a name that the package does not have."""
    broken = "# Sets\n\n[a](nothing.md) [b](../index.md#nothing) [c][robandit.Nothing]\n"
    pages = stage.reference() | {"geometry.md": broken}
    monkeypatch.setattr(stage, "reference", lambda: pages)
    with pytest.raises(ValueError, match="the site can't be built") as refused:
        build(tmp_path / "docs")
    said = re.sub(r"\x1b\[[\d;]*m", "", str(refused.value))
    for why in ("page does not exist", "anchor does not exist", "unresolved autoref"):
        assert re.search(rf"Warning:.*{why}\n.*geometry\.md:3", said)


@in_a_browser
@pytest.mark.parametrize("name", SHOWN)
def test_a_page_fits_a_phone(site: Path, page: Page, name: str) -> None:
    """Wide tables and code scroll by themselves."""
    page.goto((site / name).as_uri())
    expect(page.locator("h1").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@in_a_browser
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("quarantine", "ideas/quorum.html"),
        ("joint_certificate", "reference/monitor.html"),
        ("--tune-trials", "reference/commands.html"),
    ],
)
def test_the_search_works_without_a_server(site: Path, page: Page, words: str, found: str) -> None:
    page.goto((site / "index.html").as_uri())
    page.locator("label[for='__search']").filter(visible=True).first.click()
    page.get_by_role("combobox", name="Search").fill(words)
    link = page.locator(f'a[role="option"][href*="{found}"]').first
    expect(link).to_be_visible(timeout=15_000)
    link.click()
    page.wait_for_url(f"**/{found}*")


@in_a_browser
def test_dark_and_light_are_switched_and_kept(site: Path, page: Page) -> None:
    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    page.goto((site / "index.html").as_uri())
    light = background()
    page.locator("label[title='Switch to dark']").click()
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    dark = background()
    assert light != dark
    page.goto((site / "ideas" / "quorum.html").as_uri())
    assert background() == dark


@in_a_browser
def test_who_prefers_dark_gets_it(site: Path, browser: Browser) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    expect(page.locator("body")).to_have_attribute("data-md-color-scheme", "slate")
    context.close()
