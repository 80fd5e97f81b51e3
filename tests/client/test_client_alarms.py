"""Alarms and activity from Python, by both clients."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import SHOP, menu, working
from test_alarms import prove
from test_app import serving
from test_life import store

from robandit import AsyncClient, Client, ServiceError
from robandit.service.hub import Hub
from robandit.wire.types import BanditSettings

ROWS = {one["id"]: one["features"] for one in menu(np.random.default_rng(1))}
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "alarms.md"


def proved(folder: Path, bound: float) -> None:
    """A store in which so much is proved of the shop."""
    hub = Hub(store(folder))
    working(hub, lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7), prove(hub, bound))
    hub.stop()


def test_an_alarm_is_acknowledged(tmp_path: Path) -> None:
    """With what was seen; without it, with what is proved now."""
    proved(tmp_path, 2.5)
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        client.create("calm", **SHOP)
        with pytest.raises(ServiceError, match="no alarm"):
            client.acknowledge("calm")
        with pytest.raises(ServiceError, match="look again"):
            client.acknowledge("shop", lower_bound=2.75)
        seen = client.acknowledge("shop", "a note", by="Ada", lower_bound=2.5)
        assert (seen.lower_bound, seen.note, seen.by, seen.key) == (2.5, "a note", "Ada", None)
        assert client.acknowledge("shop", "later") == seen and not client.status("shop").certificate.up
        kinds = [type(one).__name__ for one in client.log("shop")]
        assert kinds == ["Proved", "Acknowledged"]


def test_activity_by_both_clients(tmp_path: Path) -> None:
    async def ask(port: int) -> list[Any]:
        async with AsyncClient(f"http://127.0.0.1:{port}") as client:
            seen = await client.acknowledge("shop", by="Ada")
            return [await client.activity("shop", "hours"), seen]

    proved(tmp_path, 2.5)
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        chosen = client.decide("shop", ROWS, source="web")
        client.reward("shop", chosen.decision_id, 0.5)
        found = client.activity("shop", "hours")
        assert [(one.name, one.decisions, one.rewards) for one in found.actions] == [(chosen.action_id, 1, 1)]
        assert [one.name for one in found.sources] == ["web"] and client.activity("shop").range == "minutes"
        again, seen = asyncio.run(ask(here.port))
        assert again.actions == found.actions and seen.by == "Ada"
        with pytest.raises(ServiceError, match="range must be one of"):
            client.activity("shop", "days")


def test_the_code_of_the_docs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first block of docs/how-to/alarms.md."""
    block = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
    proved(tmp_path, 2.5)
    with serving(tmp_path / "log.db") as here:
        exec(block.replace("http://localhost:8000", f"http://127.0.0.1:{here.port}"), {})
    assert capsys.readouterr().out == "2.5 Ada bots of a partner; quarantined\nFalse\n"
