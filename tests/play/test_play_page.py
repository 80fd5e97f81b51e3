"""The page in a real browser: an attack is played, doubted and proved, taken back, and played again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playing import PlayServer
from playwright.sync_api import Browser, Page, expect
from test_dashboard import Look, browser, in_a_browser  # noqa: F401

from robandit.lab.catalogue import CATALOGUE, find
from robandit.lab.plan import Run
from robandit.lab.protocol import Scenario, simulate_each


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PlayServer]:
    one = PlayServer(tmp_path)
    yield one
    one.close()


def until(page: Page, condition: str) -> None:
    """Wait for something that the page knows. Its rules forbid what `wait_for_function` does."""
    for _ in range(2400):
        if page.evaluate(condition):
            return
        page.wait_for_timeout(25)
    raise AssertionError(f"never: {condition}; {page.evaluate('document.body.innerText')}")


def play_to(page: Page, round_: int) -> None:
    """Play to exactly this round, at any speed."""
    page.evaluate(
        "async (to) => { pause(); while (state.busy) await new Promise((done) => setTimeout(done, 5));"
        " while (state.scene.round < to) await advance(to - state.scene.round); }",
        round_,
    )


def regret(page: Page) -> list[float]:
    return [lied for lied, _ in page.evaluate("state.scene.regret")]


@in_a_browser
@pytest.mark.no_cover
def test_an_attack_is_played_doubted_proved_taken_back_and_played_again(
    server: PlayServer,
    browser: Browser,  # noqa: F811
    tmp_path: Path,
) -> None:
    look = Look(browser, server)
    page = look.page
    until(page, "state.scene !== null")
    page.locator("#seed").fill("4")
    page.get_by_role("button", name="New game").click()
    until(page, "state.game.seed === 4 && !state.busy")
    play_to(page, 100)
    assert page.evaluate("state.scene.spent") == 0
    page.keyboard.press("p")
    play_to(page, 600)
    expect(page.locator("#proved")).to_contain_text("ALARM since round")
    expect(page.locator("#doubt")).to_contain_text("It doubts no partner")
    page.locator("#source").select_option("partner 3")
    page.get_by_role("button", name="Flip").click()
    play_to(page, 1200)
    assert page.evaluate("state.scene.lies") == [[101, 600, "promote", None], [601, 1200, "flip", 3]]
    expect(page.locator("#doubt")).to_contain_text("It doubts partner 3")
    expect(page.locator("#bill")).to_contain_text("of 300 spent")
    assert page.evaluate("state.points.length") == 120 and drawn(page) > 100
    lost, lies = regret(page), page.evaluate("state.scene.lies")
    again = replayed(server, page, tmp_path)
    assert again == lost  # what `robandit simulate` makes of the run that the page has saved
    page.locator("#back").evaluate("(one) => { one.value = '150'; one.dispatchEvent(new Event('change')); }")
    until(page, "state.scene.round === 150 && !state.busy")
    assert page.evaluate("state.points.length") == 15 and page.evaluate("state.scene.lies") == [
        [101, 150, "promote", None]
    ]
    expect(page.locator("#proved")).not_to_contain_text("ALARM")
    assert page.evaluate("state.ghost.length") == 120
    expect(page.locator("#found tbody tr")).to_have_count(1)
    page.get_by_role("button", name="Play again").click()
    until(page, "state.playing")
    play_to(page, 1200)
    assert regret(page) == lost and page.evaluate("state.scene.lies") == lies
    look.fits()
    look.close()


def drawn(page: Page) -> int:
    """How many points of the picture have the colour of Quorum's curve."""
    return int(
        page.evaluate(
            """() => { const at = document.getElementById("curves"), pen = at.getContext("2d");
            const data = pen.getImageData(0, 0, at.width, at.height).data, seen = [0x0a, 0x7a, 0x4f];
            let count = 0;
            for (let i = 0; i < data.length; i += 4) count += seen.every((v, k) => Math.abs(data[i + k] - v) < 3);
            return count; }"""
        )
    )


def replayed(server: PlayServer, page: Page, folder: Path) -> list[float]:
    """The regret of each policy by this round, from the run that the page offers to save."""
    page.get_by_role("button", name="Keep this attack").click()
    expect(page.locator("#found tbody tr")).to_have_count(1)
    path = page.get_by_role("link", name="run", exact=True).get_attribute("href")
    (folder / "run.toml").write_text(server.ask("GET", str(path))[2], encoding="utf-8")
    run = Run.read_file(folder / "run.toml")
    made = {kind: [partial(find(kind, one.kind), **one.settings) for one in getattr(run, kind)] for kind in CATALOGUE}
    scenario = Scenario(made["environments"][0](), made["attacks"][0](), range(run.trials))
    now = np.array([page.evaluate("state.scene.round")])
    traces = simulate_each(policies=made["policies"], scenarios=[scenario], rounds=run.rounds, seed=run.seed, at=now)
    return [float(trace.regret[-1, 0]) for trace in traces]


@pytest.mark.no_cover
@in_a_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_by_keyboard_and_by_the_clock(server: PlayServer, browser: Browser, scheme: Any) -> None:  # noqa: F811
    look = Look(browser, server, color_scheme=scheme, viewport={"width": 390, "height": 844})
    page = look.page
    until(page, "state.scene !== null && !state.busy")
    page.locator("#world").select_option("paper")
    until(page, "state.game.world === 'paper' && !state.busy")
    page.get_by_text("Lie later: plan it").click()
    for name, value in (("From round", "10"), ("To round", "20")):
        page.get_by_label(name).fill(value)
    page.get_by_role("button", name="Plan", exact=True).click()
    expect(page.locator("#plan")).to_contain_text("flip, all traffic, rounds 10 to 20")
    page.locator("h1").click()
    page.keyboard.press("Space")
    until(page, "state.scene.round > 30")
    page.keyboard.press("s")
    until(page, "state.scene.lies.length === 2")
    page.keyboard.press("Space")
    until(page, "!state.playing && !state.busy")
    (planned, now) = page.evaluate("state.scene.lies")
    assert planned == [10, 20, "flip", None] and now[2] == "suppress"
    round_ = page.evaluate("state.scene.round")
    page.keyboard.press("ArrowLeft")
    until(page, f"state.scene.round === {max(0, round_ - 100)} && !state.busy")
    look.fits()
    look.close()


@in_a_browser
def test_it_says_what_is_wrong(server: PlayServer, browser: Browser) -> None:  # noqa: F811
    look = Look(browser, server)
    page = look.page
    until(page, "state.scene !== null && !state.busy")
    for _ in range(4):
        server.begin()
    page.get_by_role("button", name="Play", exact=False).first.click()
    expect(page.get_by_role("alert")).to_contain_text("This game is over")
    page.get_by_role("button", name="New game").click()
    until(page, "state.scene.round === 0 && !state.busy")
    expect(page.get_by_role("alert")).to_have_count(0)
    server.ask("POST", f"/v1/games/{page.evaluate('state.game.id')}/play", {"round": 0, "rounds": 7})
    page.evaluate("advance(5)")  # as if another window had played
    until(page, "state.scene.round === 7 && !state.busy")
    expect(page.get_by_role("alert")).to_contain_text(re.compile("this game is in round 7"))
    server.close()
    page.evaluate("advance(5)")
    expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    look.close(quiet=False)
