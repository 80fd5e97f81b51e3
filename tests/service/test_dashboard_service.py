"""The dashboard's panel about the service itself: latency, errors and memory, in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playwright.sync_api import Browser, expect
from served import ONE, SHOP, Server
from test_dashboard import Look, browser, in_a_browser  # noqa: F401

from robandit.service.web.keys import new_key


@in_a_browser
def test_latency_and_errors(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    """They are those of the metrics, and move on while one looks."""
    server = Server(tmp_path / "log.db")
    server.ask("PUT", "/v1/bandits/shop", SHOP)
    for number in range(40):
        server.ask("POST", "/v1/bandits/shop/decisions", {"actions": [ONE], "decision_id": f"d{number}"})
    for _ in range(3):
        server.ask("POST", "/v1/bandits/shop/decisions", {"actions": []})
    look = Look(browser, server)
    panel = look.page.get_by_role("region", name="The service")
    for name, words in (
        ("Decisions/s", r"[1-9][\d.]*over the last minute"),
        ("A decision takes", r"[\d.]+ ms99 of 100 within [\d.]+ ms"),
        ("Safe on the disk in", r"[\d.]+ ms99 of 100 within [\d.]+ ms"),
        ("Refused", r"3of \d+ requests, answered 4xx"),
        ("Failed", r"0answered 5xx"),
        ("Waiting", r"0changes that are not written yet"),
        ("Memory", r"\d+(\.\d)? MiB"),
    ):
        row = panel.locator("dl > div", has=look.page.get_by_text(name, exact=True))
        expect(row).to_have_text(re.compile(f"^{re.escape(name)}{words}$"))
    for name, words in (
        (
            "Latency of decisions over two hours",
            r"\d\d:\d\d: half within [\d.]+ ms, 99 of 100 within [\d.]+ ms, of \d+",
        ),
        ("Errors over two hours", r"\d\d:\d\d: [03] refused, 0 failed, of \d+ requests"),
    ):
        chart = panel.get_by_role("slider", name=name)
        chart.focus()
        for key in ("End", "ArrowLeft", "ArrowRight"):  # the minute before, if one has just ended
            look.page.keyboard.press(key)
        expect(chart).to_have_attribute("aria-valuetext", re.compile(words))
    report = server.ask("GET", "/v1/service")[1]
    assert sum(one["decisions"] for one in report["minutes"]) == 43
    assert sum(one["refused"] for one in report["minutes"]) == 3 and report["started"] <= report["now"]
    look.fits()
    for _ in range(2):
        server.ask("POST", "/v1/bandits/shop/decisions", {"actions": []})
    refused = panel.locator("dl > div", has=look.page.get_by_text("Refused", exact=True))
    expect(refused).to_have_text(re.compile(r"^Refused2of"), timeout=20_000)  # since the first look
    look.page.get_by_role("link", name="shop").click()
    expect(panel).to_have_count(0)
    look.close()
    server.kill()


@in_a_browser
def test_a_key_for_some_bandits_is_not_told(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    secret, entry = new_key("some", "read", ["shop"])
    (tmp_path / "keys.json").write_text(json.dumps([entry]))
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    look = Look(browser, server)
    look.page.get_by_label("Key").fill(secret)
    look.page.keyboard.press("Enter")
    expect(look.page.get_by_role("heading", name="No bandit yet")).to_be_visible()
    expect(look.page.get_by_text("The service", exact=True)).to_be_hidden()
    assert server.ask("GET", "/v1/service", key=secret)[0] == 403
    look.close(quiet=False)
    server.kill()
