"""What operators do to bandits, from Python and over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import SHOP, menu
from test_app import Here, serving

from robandit import AsyncClient, Client, ServiceError
from robandit.service.serving import lessons

ROWS = {one["id"]: one["features"] for one in menu(np.random.default_rng(1))}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with serving(tmp_path / "log.db") as one:
        yield one


def test_a_bandit_changes(here: Here) -> None:
    with Client(f"http://127.0.0.1:{here.port}") as client:
        assert client.create("shop", **SHOP).version == 1
        assert client.change("shop", exploration=0.2).settings == {"exploration": 0.2}
        made = client.change("shop", 2, reward_window=60, default_reward=0)
        assert made.version == 3 and client.change("shop", 2, reward_window=60, default_reward=0) == made
        with pytest.raises(ServiceError, match="look at them again") as caught:
            client.change("shop", 2, exploration=0.0)
        assert caught.value.status == 409
        with pytest.raises(TypeError, match="can't change its 'explore'; did you mean 'exploration'"):
            client.change("shop", explore=0.1)
        chosen = client.decide("shop", ROWS, source="web")
        assert client.archive("shop").version == 4 and client.status("shop").archived
        with pytest.raises(ServiceError, match="is archived and only keeps its log") as caught:
            client.reward("shop", chosen.decision_id, 0.1)
        assert caught.value.status == 410 and len(list(client.log("shop"))) == 4
        client.unarchive("shop")
        assert client.reward("shop", chosen.decision_id, 0.1).status == "accepted"
        for call, ruling in ((client.trust, "trusted"), (client.quarantine, "quarantined"), (client.release, "")):
            call("shop", "web")
            belief = client.status("shop").belief
            assert belief is not None and [one.ruling for one in belief.sources] == [ruling]
        assert client.status("shop").version == 8


def test_a_change_that_takes_long_is_asked_for_again(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lessons, "PATIENCE", 0.02)
    monkeypatch.setattr(lessons, "NEAR", 10)
    with Client(f"http://127.0.0.1:{here.port}") as client:
        client.create("shop", **SHOP)
        client.decide_many("shop", [{"actions": ROWS} for _ in range(200)])
        with pytest.raises(ServiceError, match="of 200 events: ask again"):
            client.change("shop", 1, policy="oful", wait=0.0)
        assert client.change("shop", 1, policy="oful").version == 2
        assert client.status("shop").settings.policy == "oful"


def test_without_waiting_for_each_other(here: Here) -> None:
    """Of many changes to one version, one is made."""

    async def crowd() -> list[int | None]:
        async with AsyncClient(f"http://127.0.0.1:{here.port}") as client:
            await client.create("shop", **SHOP)
            calls = [client.change("shop", 1, exploration=number / 10) for number in range(8)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            await client.archive("shop")
            await client.unarchive("shop")
            for call in (client.trust, client.quarantine, client.release):
                await call("shop", None)
            return [one.status if isinstance(one, ServiceError) else None for one in found]

    found = asyncio.run(crowd())
    assert found.count(None) == 1 and found.count(409) == 7


def test_what_is_no_change(here: Here) -> None:
    here.ask("PUT", "/v1/bandits/shop", SHOP)
    for body in (
        {},
        {"version": 1},
        {"version": 0, "exploration": 0.1},
        {"version": 1, "dim": 4},
        {"exploration": 0.1},
    ):
        status, _, found = here.ask("PATCH", "/v1/bandits/shop", body)
        assert status == 422 and found["error"], body
    bad = {"version": 1.0, "ruling": {"source": "web", "ruling": "banned"}}
    assert here.ask("PATCH", "/v1/bandits/shop", bad)[0] == 422
    assert here.ask("PATCH", "/v1/bandits/nobody", {"version": 1, "exploration": 0.1})[0] == 404
    assert here.ask("PATCH", "/v1/bandits/shop", {"version": 1.0, "horizon": 1e6})[0] == 200


def test_the_code_of_the_docs(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    """Every block of docs/how-to/life-cycle.md runs, one after the other."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "life-cycle.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block.replace("http://localhost:8000", f"http://127.0.0.1:{here.port}"), names)
    assert "2 {'exploration': 0.1, 'reward_window': 600.0}" in capsys.readouterr().out
