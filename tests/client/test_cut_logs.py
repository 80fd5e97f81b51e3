"""Logs that are cut, from Python, over HTTP, and by the commands."""

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
from robandit.cli import main
from robandit.service.serving import cuts, refolds
from robandit.wire.cuts import CutMade
from robandit.wire.events import Cut

ROWS = {one["id"]: one["features"] for one in menu(np.random.default_rng(1))}


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Here]:
    with serving(tmp_path / "log.db") as one:
        yield one


def visits(client: Client, count: int) -> None:
    client.create("shop", **SHOP)
    made = client.decide_many("shop", [{"actions": ROWS} for _ in range(count)])
    client.rewards("shop", [(one.decision_id, 0.1) for one in made[1:]])


def test_both_clients_cut_a_log(here: Here) -> None:
    async def again() -> CutMade:
        async with AsyncClient(f"http://127.0.0.1:{here.port}") as client:
            return await client.cut("shop", keep_days=1)

    with Client(f"http://127.0.0.1:{here.port}") as client:
        visits(client, 20)
        assert client.cut("shop", keep_days=1) == CutMade() and client.status("shop").cut is None
        found = client.cut("shop", keep_days=0)
        assert (found.events, found.decisions, found.kept_open) == (39, 20, 1)
        assert client.status("shop").cut == found == asyncio.run(again())
        log = list(client.log("shop"))
        assert len(log) == 2 and isinstance(log[1], Cut)
        assert client.change("shop", policy="oful").learnt_after == 39
        assert client.change("shop", retention_days=30).settings == {"retention_days": 30.0}
        assert client.status("shop").settings.retention_days == 30.0
        assert client.change("shop", retention_days=None).settings == {"retention_days": None}
        with pytest.raises(ServiceError, match="retention_days"):
            client.change("shop", retention_days=0.5)
        with pytest.raises(ServiceError, match="there is no bandit 'nobody'"):
            client.cut("nobody", keep_days=1)


def test_a_log_that_takes_long_is_asked_for_again(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "PATIENCE", 0.01)
    monkeypatch.setattr(refolds, "NEAR", 10)
    with Client(f"http://127.0.0.1:{here.port}") as client:
        visits(client, 100)
        with pytest.raises(ServiceError, match=r"of 199 events are folded: ask again"):
            client.cut("shop", keep_days=0, wait=0.0)
        status, _, found = here.ask("POST", "/v1/bandits/shop/cuts", {"keep_days": 7})
        assert status == 409 and "is being cut, and keeps 0 days: wait until that is done" in found["error"]
        assert client.cut("shop", keep_days=0).events == 199


def test_what_is_no_cut(here: Here) -> None:
    here.ask("PUT", "/v1/bandits/shop", SHOP)
    bodies: list[Any] = [{}, {"keep_days": -1}, {"keep_days": "30"}, {"days": 30}, [], {"keep_days": 1e6}]
    for body in bodies:
        status, _, found = here.ask("POST", "/v1/bandits/shop/cuts", body)
        assert status == 422 and found["error"], body
    assert here.ask("GET", "/v1/bandits/shop/cuts")[0] == 405


def test_the_command(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{here.port}"
    with Client(url) as client:
        visits(client, 20)
    assert main(["cut", "--bandit", "shop", "--keep-days", "30", "--url", url]) == 0
    assert "No event is that old: the log is whole." in capsys.readouterr().out
    assert main(["cut", "--bandit", "shop", "--keep-days", "0", "--url", url]) == 0
    said = "The log begins after event 39. 19 decisions have gone, and 1 before it stay, since they were open."
    assert said in capsys.readouterr().out
    for words, code in ((["--keep-days", "-1"], 2), (["--keep-days", "nan"], 2), ([], 2)):
        assert main(["cut", "--bandit", "shop", *words, "--url", url]) == code
    assert main(["cut", "--bandit", "nobody", "--keep-days", "1", "--url", url]) == 2
    assert "there is no bandit 'nobody'" in capsys.readouterr().err


def test_what_the_docs_say_of_answers(here: Here) -> None:
    """docs/how-to/life-cycle.md names every field of the answer."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "life-cycle.md").read_text(encoding="utf-8")
    section = page.partition("## Retention")[2].partition("\n## ")[0]
    assert set(CutMade.__struct_fields__) <= set(re.findall(r"`(\w+)`", section))
