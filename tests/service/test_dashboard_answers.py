"""The dashboard that answers questions, clicked through in a real browser while a source attacks: what was chosen, who
earned what, how the bandit does beside others, and alarms that are acknowledged."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playwright.sync_api import Browser, expect
from served import Server, working
from test_alarms import SHOP, prove
from test_dashboard import LIE, Look, browser, in_a_browser  # noqa: F401
from test_life import store

from robandit import Client
from robandit.service.hub import Hub
from robandit.service.web.keys import new_key
from robandit.service.web.pages import dashboard

VISITS = 2000


def shop_example() -> Any:
    """The program of the worked example."""
    path = Path(__file__).parents[2] / "examples" / "shop.py"
    spec = importlib.util.spec_from_file_location("shop", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shop"] = module
    spec.loader.exec_module(module)
    return module


class Attack(threading.Thread):
    """A shop whose partner's bots arrive, with a bandit that explores and a policy that watches."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._url, self._program = f"http://127.0.0.1:{server.port}", shop_example()
        self._shop, self.arrived = self._program.Shop(VISITS, 0), threading.Event()
        with Client(self._url) as client:
            common = {"features": self._program.FEATURES, "rewards": "clicks", "sources": 4, "seed": 0}
            client.create("shop", horizon=VISITS, exploration=0.1, **common)
            client.change("shop", shadow={"name": "plain", "policy": "oful", "radius_scale": 0.1})

    def run(self) -> None:
        with Client(self._url) as client:
            for first in range(0, VISITS, 50):
                clicks = {}
                asked = [self._asked(number) for number in range(first, first + 50)]
                for number, chosen in enumerate(client.decide_many("shop", asked), first):
                    clicks[chosen.decision_id] = self._shop.click(number, chosen.index)
                client.rewards("shop", clicks)
                if first >= self._shop.turns:
                    self.arrived.set()

    def _asked(self, number: int) -> dict[str, Any]:
        things = self._shop.shelves[number]
        name = {"decision_id": f"visit-{number}", "source": self._shop.sources[number]}
        return {"actions": things, **name}


def value(look: Look, panel: str, row: str) -> str:
    """The text at the end of a line."""
    lines = look.page.get_by_role("region", name=panel, exact=True).locator(".lines")
    return lines.locator(f"span[title='{row}'] + .track + span").first.inner_text()


@in_a_browser
@pytest.mark.no_cover
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_a_visit_during_an_attack(tmp_path: Path, browser: Browser, scheme: Any, width: int) -> None:  # noqa: F811
    """Somebody looks while the bots are at work, finds the source, and sees the same after a restart."""
    server = Server(tmp_path / "log.db")
    try:
        attack = Attack(server)
        attack.start()
        look = Look(browser, server, color_scheme=scheme, viewport={"width": width, "height": 844})
        page = look.page
        page.get_by_role("link", name="shop").click()
        assert attack.arrived.wait(60)
        chosen = page.get_by_role("region", name="What was chosen")
        expect(chosen.locator(".stacked")).to_have_count(4)
        doubt = page.get_by_role("region", name="Sources", exact=True).locator("li", has_text="“partner” is")
        expect(doubt).to_be_visible(timeout=60_000)
        attack.join(60)
        answers = server.ask("GET", "/v1/bandits/shop/activity?range=hours")[1]
        page.get_by_role("button", name="1 week").click()
        expect(chosen.get_by_role("heading", name="in 1 week")).to_be_visible()
        for one in answers["actions"]:
            line = chosen.locator(f"span[title='{one['name']}'] + .track + span").first
            expect(line).to_have_text(re.compile(f" % · {one['decisions']}$"))
            share = float(line.inner_text().partition(" %")[0])
            assert share == pytest.approx(100 * one["decisions"] / VISITS, abs=0.06)
        earned = page.get_by_role("region", name="Reward of each source")
        for one in answers["sources"]:
            mark = "✕ " if one["name"] == "partner" else ""
            told = value(look, "Reward of each source", f"{mark}“{one['name']}”")
            mean, low, high = map(float, re.findall(r"[\d.]+", told))
            digits = len(told.split(" ")[0].partition(".")[2])
            wanted = [one["recent"][end] for end in ("mean", "low", "high")]
            assert [mean, low, high] == pytest.approx(wanted, abs=0.51 * 10**-digits)
        expect(earned.locator(".curve.series")).to_have_count(4)
        for name, words in (
            ("Share of each action over time", r"12 h to .*: product-\d [\d.]+ %.* of 2,000 decisions"),
            ("Mean reward of each source over time", r"12 h to .*: “search” 0\.\d+ of \d+"),
        ):
            chart = page.get_by_role("slider", name=name)
            chart.focus()
            page.keyboard.press("End")
            expect(chart).to_have_attribute("aria-valuetext", re.compile(words))
        beside = page.get_by_role("region", name="Beside other policies")
        gain = answers["uniform"]["gain"]
        told = f"{gain['value']:.3f} ± {gain['half_width']:.3f}".replace("-", "−")
        assert 0.01 <= gain["half_width"] < 0.1
        expect(beside.get_by_role("paragraph").first).to_contain_text(told)
        for row in ("this bandit", "uniform play", "plain (oful)"):
            assert re.fullmatch(r"0\.\d+ ± 0\.\d+", value(look, "Beside other policies", row))
        expect(page.locator("section", has_text="What each feature is worth")).to_contain_text("brand=partner")
        look.fits()
        page.set_viewport_size({"width": width, "height": 844})
        before = beside.inner_text(), earned.locator(".lines").inner_text()
        server.kill()
        server = Server(tmp_path / "log.db", port=server.port)
        page.reload()
        page.get_by_role("button", name="1 week").click()
        expect(chosen.get_by_role("heading", name="in 1 week")).to_be_visible()
        assert (beside.inner_text(), earned.locator(".lines").inner_text()) == before
        look.close(quiet=False)
    finally:
        server.kill()


def proved(folder: Path, bound: float) -> None:
    """More is proved of the shop. The browser has this thread's event loop, so it is done in another one."""

    def work() -> None:
        hub = Hub(store(folder))
        working(hub, lambda: hub.create("shop", SHOP, 7), prove(hub, bound))
        hub.stop()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@in_a_browser
def test_an_alarm_is_acknowledged(tmp_path: Path, browser: Browser) -> None:  # noqa: F811
    """By an admin alone, with a name and a note that are shown as they are; it goes up again if more is proved."""
    proved(tmp_path, 5.25)
    secrets, entries = zip(*(new_key(f"my {role}", role) for role in ("read", "admin")), strict=True)
    (tmp_path / "keys.json").write_text(json.dumps(entries), encoding="utf-8")
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    look = Look(browser, server)
    page = look.page
    panel = page.get_by_role("region", name="Corruption")
    try:
        for secret in secrets:
            page.get_by_label("Key").fill(secret)
            page.keyboard.press("Enter")
            page.get_by_role("link", name="shop").click()
            expect(page).to_have_title(re.compile("⚠ 1 alarm"))
            panel.get_by_label("What you found").fill(LIE)
            panel.get_by_label("Your name").fill("Ada")
            page.wait_for_timeout(1500)  # the page looks again meanwhile, and forgets nothing that was typed
            panel.get_by_role("button", name="Acknowledge").click()
            if secret == secrets[0]:
                expect(panel.get_by_role("alert")).to_have_text(re.compile("Not acknowledged: .* 'admin'"))
                look.fits()
                page.get_by_role("button", name="Forget the key").click()
                page.goto(look.origin)
        expect(panel.get_by_role("heading")).to_have_text("⚑ Corruption is proved, and acknowledged")
        expect(panel).to_contain_text("5.25 or more acknowledged by “Ada”, with the key my admin")
        expect(panel).to_contain_text(f": {LIE}. The alarm goes up again if more is proved.")
        expect(panel.get_by_role("button", name="Acknowledge")).to_be_hidden()
        expect(page).not_to_have_title(re.compile("alarm"))
        look.fits()
        page.get_by_role("link", name="All bandits").click()
        card = page.locator(".card.seen")
        expect(card).to_contain_text("⚑ acknowledged")
        expect(card).to_contain_text(LIE)
        expect(page.locator(".card.alarm")).to_have_count(0)
        look.fits()
        server.stop()
        proved(tmp_path, 6.0)
        server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"), port=server.port)
        expect(page.locator(".card.alarm")).to_contain_text("⚠ ALARM", timeout=20_000)
        page.get_by_role("link", name="shop").click()
        expect(panel).to_contain_text("More is proved since then: 5.25 or more acknowledged")
        expect(panel.get_by_role("button", name="Acknowledge")).to_be_visible()
        look.fits()
        look.close(quiet=False)
    finally:
        server.kill()


def lightness(colour: str) -> float:
    """The relative luminance of a colour, as WCAG defines it."""
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted(map(lightness, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_colours_of_curves_can_be_seen() -> None:
    """Three to one against the paper, as graphics need; what they mean is written beside them."""
    light, dark = re.findall(r"\.s0 \{ color.*?\.rest \{ color: #\w{6}; \}", dashboard(), re.DOTALL)
    for text, paper in ((light, "#ffffff"), (dark, "#14171a")):
        colours = re.findall(r"color: (#\w{6})", text)
        assert len(set(colours)) == 7 and min(contrast(one, paper) for one in colours) >= 3.0
