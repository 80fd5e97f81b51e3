"""The dashboard of bandits with features by name and declared rewards, in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import table

pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

from playwright.sync_api import Browser, expect
from served import Server
from test_dashboard import LIE, Look, browser, follow, in_a_browser, server  # noqa: F401

from robandit.service.requests.span import spanned

SCHEMA: dict[str, Any] = {
    "action": {"price": [0, 50], "colour": ["it's red", LIE], "new": "boolean", "item": 4},
    "context": {"age": [18, 80]},
    "source": {"from": ["web", "mail"]},
    "crosses": [["from", "colour"]],
}


def play(service: Server, visits: int) -> None:
    """Visits to a shop with features, in which some values are unusual."""
    features = {"action": {"price": [0, 50], "category": ["a", "b", "c"]}, "context": {"age": [18, 80]}}
    given = {"features": features, "rewards": [0, 10], "policy": "oful", "seed": 1}
    assert service.ask("PUT", "/v1/bandits/shop", given)[0] == 201
    rng = np.random.default_rng(0)
    for t in range(visits):
        offer = [{"id": name, "features": record} for name, record in table.ITEMS.items()]
        if t < 3:
            offer[0] = {"id": "item0", "features": {"price": 77, "category": "new"}}
        body = {"actions": offer, "context": {"age": 40}, "decision_id": f"v{t}"}
        status, made = service.ask("POST", "/v1/bandits/shop/decisions", body)
        assert status == 200
        reward = 10.0 * float(rng.random() < table.rate(made["action_id"]))
        service.ask("POST", "/v1/bandits/shop/rewards", {"decision_id": f"v{t}", "reward": reward})


@in_a_browser
def test_features_have_names_and_units(browser: Browser, server: Server) -> None:  # noqa: F811
    play(server, 60)
    status = server.ask("GET", "/v1/bandits/shop")[1]
    look = Look(browser, server, "/#shop")
    page = look.page
    worth = page.locator("section", has_text="What each feature is worth")
    for one in status["named"]:
        expect(worth.get_by_text(one["name"], exact=True)).to_be_visible()
        shown = worth.locator(f".lines span:text-is('{one['name']}') ~ span").first.inner_text()
        effect, error = map(float, shown.replace("−", "-").split(" ± "))
        assert error == pytest.approx(2.0 * one["standard_error"], rel=0.06)
        assert effect == pytest.approx(one["effect"], abs=0.06 * error)
    expect(worth).to_contain_text("two standard errors")
    expect(page.locator("section", has_text="Unusual values")).to_contain_text(re.compile("3 clipped.*3 unseen"))
    expect(page.get_by_text("oful, 7 features, rewards from 0 to 10")).to_be_visible()
    expect(page.locator("section", has_text="Settings")).to_contain_text("price, category, age")
    look.fits()
    look.close()


@in_a_browser
def test_the_first_steps_are_records(browser: Browser, server: Server) -> None:  # noqa: F811
    """What the page tells a newcomer to send is accepted, whatever the labels hold."""
    given = {"features": SCHEMA, "rewards": [1, 5]}
    assert server.ask("PUT", "/v1/bandits/shop", given)[0] == 201
    look = Look(browser, server, "/#shop")
    expect(look.page.get_by_text("No decisions yet").first).to_be_visible()
    assert follow(server, look.page.locator("pre code").inner_text())[0] == 200
    expect(look.page.get_by_text("Send the reward of a decision")).to_be_visible()
    status, answer = follow(server, look.page.locator("pre code").inner_text())
    assert status == 200 and answer["results"][0]["status"] == "accepted"
    expect(look.page.get_by_text("Last rewards, one by one")).to_be_visible()
    look.fits()
    look.close()


def test_what_can_be_told_apart(tmp_path: Path) -> None:
    """The levels of a column add up to the constant, and nothing else is lost."""
    found = spanned(table.features())
    assert found is not None and np.allclose(found @ found, found)
    null = np.array([0.0, 1, 1, 1, 1, 0, -1]) / 5**0.5
    assert np.allclose(np.eye(7) - found, np.outer(null, null))
