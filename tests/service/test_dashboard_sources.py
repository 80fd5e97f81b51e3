"""The dashboard of a quorum: whom it doubts, how much and since when, in a real browser."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playwright.sync_api import Browser, expect
from served import Server
from test_belief import LIE, SETTINGS, visits
from test_dashboard import Look, browser, in_a_browser  # noqa: F401

from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, Item, LogEntry, append
from robandit.wire.events import Event


def write(path: Path, bandits: dict[str, list[Event]]) -> None:
    """Write a store of these bandits, whose logs end a moment ago."""
    store, now = SQLiteStore(path), time.time()
    for number, (name, log) in enumerate(bandits.items(), 1):
        late = [msgspec.structs.replace(event, at=now - 5 + event.at / 1000) for event in log]
        append(store, [Bandit(number, name, msgspec.json.encode(SETTINGS), 1, now)])
        append(store, list[Item](LogEntry(number, place, event) for place, event in enumerate(late, 1)))
    store.close()


@pytest.mark.no_cover
@in_a_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_doubted_source_comes_first_in_words(tmp_path: Path, browser: Browser, scheme: Any) -> None:  # noqa: F811
    """Its label is a stranger's; it is read by pointer and by keyboard, and the same after a restart."""
    calm = visits(14, ["mail", "app"])
    write(tmp_path / "log.db", {"shop": visits(700, ["mail", LIE, "search", "app"], liar=LIE), "quiet": calm})
    server = Server(tmp_path / "log.db")
    try:
        look = Look(browser, server, color_scheme=scheme)
        page = look.page
        card = page.locator(".card", has_text="shop").get_by_role("region", name="Sources")
        words = re.compile(re.escape(f"“{LIE}” is not believed: weight 0.0") + r"\d since reward \d+, \d\d:\d\d:\d\d$")
        expect(card.locator("li")).to_have_text([words])
        expect(card).to_contain_text("Doubt is no proof")
        expect(page.locator(".card", has_text="quiet").locator("li")).to_have_count(0)
        look.fits()
        page.get_by_role("link", name="shop").click()
        panel = page.get_by_role("region", name="Sources")
        expect(panel.locator("li")).to_have_text([words])
        expect(panel.locator(".trust > :nth-child(3n + 1)").first).to_have_text(f"“{LIE}”")
        expect(panel.get_by_role("img")).to_have_count(4)
        chart = page.get_by_role("slider", name="Weight of each source over time")
        chart.focus()
        page.keyboard.press("Home")
        expect(chart).to_have_attribute("aria-valuetext", "reward 6: all are believed")
        page.keyboard.press("End")
        expect(chart).to_have_attribute("aria-valuetext", re.compile(re.escape(f"reward 700: “{LIE}” 0.0")))
        before = panel.inner_text()
        look.fits()
        server.kill()
        server = Server(tmp_path / "log.db", port=server.port)
        page.reload()
        expect(panel.locator("li")).to_have_text([words])
        chart.focus()
        page.keyboard.press("End")
        assert panel.inner_text() == before
        page.goto(f"{look.origin}/#quiet")
        expect(page.get_by_role("region", name="Sources")).to_contain_text("No source is doubted. That is no proof")
        look.close(quiet=False)
    finally:
        server.kill()


@in_a_browser
def test_a_crowd_of_sources_and_none(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    crowd = visits(200, [f"{LIE} {number} {'x' * 90}" for number in range(200)])
    write(tmp_path / "log.db", {"crowd": crowd, "alone": visits(20, [""])})
    server = Server(tmp_path / "log.db")
    try:
        look = Look(browser, server)
        crowded = look.page.locator(".card", has_text="crowd")
        expect(crowded.locator(".trust svg")).to_have_count(4)
        expect(crowded).to_contain_text("And 29 sources more.")
        look.fits()
        look.page.goto(f"{look.origin}/#crowd")
        panel = look.page.get_by_role("region", name="Sources")
        expect(panel.locator(".trust svg")).to_have_count(33)
        expect(panel).to_contain_text("all other sources")
        look.fits()
        look.close()
    finally:
        server.kill()
