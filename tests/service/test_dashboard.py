"""The dashboard and the page of the calls, in a real browser against a real service."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playwright.sync_api import Browser, Page, expect, sync_playwright
from served import Server
from test_html import BROWSER

from robandit.figures import html as report
from robandit.service.learning.learner import Learner
from robandit.service.requests.openapi import openapi
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, Item, LogEntry, append
from robandit.service.web.keys import new_key
from robandit.service.web.pages import dashboard, docs
from robandit.wire.events import Proved, Rewarded
from robandit.wire.types import BanditSettings
from thinned import longer

QUIET = "--disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync"
LIE = "<img src=x onerror='window.hacked = 1'><script>window.hacked = 1</script>"
SENTENCE = f"With 95 % confidence the feedback was corrupted, by 5.2 or more in all. It blames source {LIE}."
WIDTHS = (320, 390, 768, 1280)

in_a_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the PATH")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "log.db")
    yield one
    one.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as engine:
        args = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", *QUIET.split()]
        one = engine.chromium.launch(executable_path=BROWSER, args=args)
        yield one
        one.close()


class Listening(Protocol):
    """A server on this machine."""

    port: int


class Look:
    """A page in a browser, the errors that it reports, and the addresses that it asks."""

    def __init__(self, browser: Browser, server: Listening, path: str = "/", **options: Any) -> None:
        self.origin = f"http://127.0.0.1:{server.port}"
        self._context = browser.new_context(**options)
        self.page: Page = self._context.new_page()
        self.page.set_default_timeout(10_000)
        self.complaints: list[str] = []
        self.errors: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda one: self.complaints.append(one.text))
        self.page.on("pageerror", lambda one: self.errors.append(str(one)))
        self.page.on("request", lambda one: self.asked.append(one.url))
        self.page.goto(self.origin + path)

    def close(self, *, quiet: bool = True) -> None:
        """Close the page. There was no error, nothing was asked elsewhere, and nothing was reported, unless the test
        expects answers like 401, which a browser reports itself."""
        assert self.errors == [] and (self.complaints == [] or not quiet), (self.errors, self.complaints)
        assert all(url.startswith((f"{self.origin}/", "data:")) for url in self.asked), self.asked
        assert self.page.evaluate("window.hacked") is None
        self._context.close()

    def fits(self) -> None:
        """Nothing is wider than the window, on a phone or on a desk."""
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 844})
            self.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
            wide = self.page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth]")
            assert max(wide) <= width, (width, wide)
            right = "Math.max(...[...document.querySelectorAll('body *')].map(e => e.getBoundingClientRect().right))"
            assert self.page.evaluate(right) <= width + 1, width


def follow(server: Server, line: str) -> tuple[int, Any]:
    """Carry out a curl command."""
    words = shlex.split(line)
    assert words[0] == "curl"
    (path,) = [found[1] for word in words if (found := re.fullmatch(r"(?:https?://)?[\w.]+:\d+(/.*)", word))]
    method = words[words.index("-X") + 1] if "-X" in words else "POST" if "--json" in words else "GET"
    body = words[words.index("--json") + 1].encode() if "--json" in words else None
    return server.ask(method, path, body)


def write_log(path: Path, bandits: dict[str, BanditSettings], *, rounds: int = 60, liar: str = "") -> None:
    """Write a store of bandits that were busy in the last minute; one of them has a proof of corruption."""
    store, rng, now = SQLiteStore(path), np.random.default_rng(1), time.time()
    for number, (name, settings) in enumerate(bandits.items(), 1):
        append(store, [Bandit(number, name, msgspec.json.encode(settings), 7, now)])
        learner, items = Learner(settings, 7), list[Item]()

        def put(event: Any, number: int = number, learner: Learner = learner, items: list[Item] = items) -> None:
            learner.apply(event)
            items.append(LogEntry(number, learner.place, event))

        for t in range(rounds):
            features = rng.uniform(-1, 1, (3, settings.dim)) / settings.dim**0.5
            at, names = now - 80 + 60 * t / rounds, [f"{LIE}{k}" for k in range(3)]
            made = learner.decide(id=f"v{t}", now=at, actions=names, features=features, sigma=None, source=LIE)
            put(made)
            if t % 10:
                put(Rewarded(id=f"v{t}", at=at, reward=float(0.5 * np.sum(made.features) + rng.normal(0, 0.05))))
        if name == liar:
            put(Proved(id="54", at=now - 30, round=54, lower_bound=5.2, since=31, sentence=SENTENCE))
        append(store, items)
    store.close()


# ------------------------------------------------------------------------------------ the pages as they are


def test_both_pages_need_nothing_and_allow_nothing(server: Server) -> None:
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    for path, text in (("/", dashboard()), ("/docs", docs())):
        link.request("GET", path)
        answer = link.getresponse()
        assert answer.read().decode() == text and answer.headers.get_content_type() == "text/html"
        rules = answer.headers["Content-Security-Policy"]
        assert rules.startswith("default-src 'none'") and "unsafe" not in rules and "frame-ancestors 'none'" in rules
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        outside = re.findall(
            r"""(?:src|href)=["'](?!#|/|data:)|https?://(?!www\.w3\.org/2000/svg)|url\(|@import""", text
        )
        assert outside == []
    link.close()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|localStorage", dashboard())


def test_the_colours_are_those_of_our_reports() -> None:
    """The contrast of those colours is tested with the reports."""
    here, there = (re.findall(r"--([\w-]+): (#\w{6})", text) for text in (dashboard(), report.page("", "", [])))
    assert here == there


def test_the_page_of_the_calls_has_them_all(server: Server) -> None:
    text = docs()
    for path, methods in openapi()["paths"].items():
        for method in methods.keys() - {"parameters"}:
            assert f"<code>{method.upper()} {path}</code></h2>" in text
    for name, schema in openapi()["components"]["schemas"].items():
        assert text.count(f'id="{name}"') == 1
        assert all(f"<code>{field}</code>" in text for field in schema.get("properties", {}))
    lines = re.findall(r"<pre><code>(.*?)</code></pre>", text)
    words = ("DELETE", "/acknowledgements", "/rewards", "/decisions")
    order = sorted(lines, key=lambda line: (*(word in line for word in words), "-X PUT" not in line))
    # There is no alarm to acknowledge, and a bandit that is in service is not deleted.
    assert [follow(server, line)[0] for line in order] == [201] + [200] * 17 + [409, 409]


# ------------------------------------------------------------------------------------ in a browser


@in_a_browser
def test_a_newcomer_is_told_what_to_do(server: Server, browser: Browser) -> None:
    """A newcomer follows what the page says, and the numbers change without a reload."""
    look = Look(browser, server)
    page = look.page
    expect(page.get_by_role("heading", name="No bandit yet")).to_be_visible()
    page.evaluate("window.before = true")
    look.fits()
    assert follow(server, page.locator("pre").inner_text())[0] == 201
    expect(page.locator(".card")).to_contain_text("No decisions yet")
    page.get_by_role("link", name="shop").click()
    for title in ("No decisions yet", "No rewards yet"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
        look.fits()
        assert follow(server, page.locator("pre").inner_text())[0] == 200
    rewards = page.locator("dl.numbers div", has=page.get_by_text("Rewards", exact=True)).locator("dd").first
    expect(rewards).to_have_text("1")
    expect(page.locator("pre")).to_have_count(0)
    for t in range(5):
        actions = [{"id": LIE, "features": {"price": 20, "colour": LIE}}]
        server.ask("POST", "/v1/bandits/shop/decisions", {"decision_id": str(t), "actions": actions, "source": LIE})
    server.ask("POST", "/v1/bandits/shop/rewards", [{"decision_id": str(t), "reward": 0.5} for t in range(3)])
    expect(rewards).to_have_text("4")
    expect(page.get_by_text("await a reward").locator("xpath=..")).to_contain_text("2")
    assert page.evaluate("window.before")  # it is the same page still
    page.get_by_role("link", name="API").click()
    expect(page.get_by_role("heading", name="The calls")).to_be_visible()
    look.fits()
    page.go_back()
    expect(page.get_by_role("heading", name="shop")).to_be_visible()
    look.close()


BANDITS = {
    "plain": BanditSettings(dim=2, policy="oful", noise_range=0.5),
    "levels": BanditSettings(dim=2, policy="multi-level-weighted-oful", noise_range=0.5, horizon=100),
    "wide": BanditSettings(dim=100, noise_range=0.5),
}


@pytest.mark.no_cover
@in_a_browser
@pytest.mark.parametrize("scheme", longer("light", "dark"))
def test_looking_around(tmp_path: Path, browser: Browser, scheme: Any) -> None:
    """Look at the cards, an alarm that a liar has written into, the ranges and the charts by keyboard, and go back."""
    write_log(tmp_path / "log.db", BANDITS, liar="plain")
    server = Server(tmp_path / "log.db")
    try:
        look = Look(browser, server, color_scheme=scheme)
        page = look.page
        expect(page.locator(".card h3")).to_have_text(["levels", "plain", "wide"])
        alarm = page.locator(".card.alarm")
        expect(alarm).to_have_count(1)
        expect(alarm).to_contain_text("⚠ ALARM")
        expect(alarm.locator(".proof")).to_contain_text(SENTENCE)
        expect(page).to_have_title(re.compile("⚠ 1 alarm"))
        paper = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        look.fits()
        heights = (
            "all => all.map(one => [...one.querySelectorAll('.grid, .zero')].map(l => l.getAttribute('y1')).join())"
        )
        axes = page.locator(".card figure svg").evaluate_all(heights)
        assert len(axes) == 3 and len(set(axes)) == 1  # one scale

        page.get_by_role("link", name="plain").click()
        expect(page.locator("p.proof")).to_have_text(SENTENCE)
        expect(page.get_by_text("Likely since").locator("xpath=..")).to_contain_text("round 31")
        expect(page.get_by_text("oful has no levels")).to_be_visible()
        expect(page.locator("svg text.shout")).to_have_count(2)
        reward = page.get_by_role("slider", name="Reward over time")
        for title, words in (("2 hours", "10 minutes"), ("1 week", "12 hours"), ("2 minutes", "10 seconds")):
            page.get_by_role("button", name=title).click()
            expect(page.get_by_role("button", pressed=True)).to_have_text(title)
            expect(reward.locator("xpath=..")).to_contain_text(words)
        reward.focus()
        page.keyboard.press("Home")
        expect(reward).to_have_attribute("aria-valuetext", re.compile(r"\d\d:\d\d:\d\d: (no rewards|mean)"))
        look.fits()
        page.go_back()
        expect(page.locator(".card")).to_have_count(3)

        page.get_by_role("link", name="wide").click()
        worth = page.get_by_role("slider", name="What each feature is worth")
        worth.hover(position={"x": 200, "y": 50})
        expect(worth).to_have_attribute("aria-valuetext", re.compile(r"feature \d+: −?[\d.]+ ± [\d.]+"))
        look.fits()
        page.goto(f"{look.origin}/#levels")
        expect(page.locator(".lines", has_text="level 1")).to_be_visible()
        page.goto(f"{look.origin}/#{LIE}")
        expect(page.get_by_role("heading", name="No such bandit")).to_be_visible()
        hide(look)
        look.close()
    finally:
        server.kill()


def hide(look: Look) -> None:
    """Hide the page and show it again: while it is hidden, it asks for nothing."""
    page = look.page
    set_hidden = "value => { Object.defineProperty(document, 'hidden', { value, configurable: true });"
    set_hidden += " document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(set_hidden, True)
    page.wait_for_timeout(300)
    before = len(look.asked)
    page.wait_for_timeout(1500)
    assert len(look.asked) == before
    page.evaluate(set_hidden, False)
    expect(page.locator("#live")).to_have_text("● live")
    assert len(look.asked) > before


@in_a_browser
def test_an_administrators_key_is_asked_for(tmp_path: Path, browser: Browser) -> None:
    secrets, entries = zip(*(new_key(role, role) for role in ("decide", "admin")), strict=True)
    (tmp_path / "keys.json").write_text(json.dumps(entries), encoding="utf-8")
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    try:
        assert server.ask("PUT", "/v1/bandits/shop", {"dim": 2}, secrets[1])[0] == 201
        look = Look(browser, server)
        page = look.page
        answers = [("wrong", "not known here"), (secrets[0], "not for reading"), ("ключ", "letters, digits")]
        for secret, words in answers:
            page.get_by_label("Key").fill(secret)
            page.get_by_role("button", name="Look").click()
            expect(page.get_by_role("alert").filter(has_text=words)).to_be_visible()
        look.fits()
        page.get_by_label("Key").fill(secrets[1])
        page.get_by_label("Key").press("Enter")
        expect(page.get_by_role("link", name="shop")).to_be_visible()
        page.reload()
        expect(page.get_by_role("link", name="shop")).to_be_visible()
        kept = page.evaluate("[Object.keys(sessionStorage), Object.keys(localStorage), document.cookie]")
        assert kept == [["key"], [], ""]
        page.get_by_role("button", name="Forget the key").click()
        expect(page.get_by_label("Key")).to_be_focused()
        expect(page.get_by_text("shop")).to_have_count(0)
        assert page.evaluate("Object.keys(sessionStorage)") == []
        assert secrets[1] not in "".join(look.asked)
        look.close(quiet=False)
    finally:
        server.kill()


@in_a_browser
def test_it_says_when_the_service_is_away(tmp_path: Path, browser: Browser) -> None:
    """The page goes on by itself when the service is back."""
    path = tmp_path / "log.db"
    write_log(path, {"shop": BANDITS["plain"]}, rounds=5)
    one = Server(path)
    look = Look(browser, one, "/#shop")
    page = look.page
    expect(page.get_by_role("heading", name="shop")).to_be_visible()
    one.kill()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    expect(page.locator("#live")).to_have_text("✕ away")
    expect(page.get_by_role("heading", name="shop")).to_be_visible()
    look.fits()
    again = Server(path, port=one.port)
    try:
        expect(page.locator("#live")).to_have_text("● live", timeout=12_000)
        expect(page.locator("#away")).to_be_hidden()
        page.route("**/v1/bandits", lambda route: route.fulfill(status=503, json={"error": f"no disk {LIE}"}))
        expect(page.get_by_role("alert")).to_contain_text(f"The service can't answer: no disk {LIE}")
        page.unroute("**/v1/bandits")
        page.get_by_role("button", name="Try now").click()
        expect(page.locator("#live")).to_have_text("● live")
        look.close(quiet=False)
    finally:
        again.kill()
