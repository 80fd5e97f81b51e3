"""Policies that learn a log in a process of their own: what ends them, and how many there are."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from served import working
from test_life import SETTINGS, choice, refold, store, traffic

from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.serving import lessons
from robandit.service.stores import sql
from robandit.wire.changes import Change, ChangeMade


@pytest.mark.parametrize("how", ["the bandit is deleted", "the service stops"])
def test_a_policy_stops_learning(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever asked for it hears why; and that its log goes is no damage."""
    monkeypatch.setattr(lessons, "NEAR", 20)
    monkeypatch.setattr(lessons, "PATIENCE", 60.0)  # whoever asks still waits, on a busy machine too
    monkeypatch.setattr(sql, "PAGE", 50)
    hub, before = Hub(store(tmp_path)), multiprocessing.active_children()

    async def stop() -> Any:
        asked = asyncio.create_task(hub.change("shop", Change(version=1, policy="oful")))
        await asyncio.sleep(0.1)
        if how == "the service stops":
            await asyncio.to_thread(hub.stop)
        else:
            await hub.change("shop", Change(version=1, archived=True))
            await hub.delete("shop", 2)
            await hub.purge()
        return await asked

    *_, found = working(hub, lambda: hub.create("shop", SETTINGS, 7), *traffic(hub, 0, 600), stop)
    hub.stop()
    assert isinstance(found, Refused) and found.status == (503 if how == "the service stops" else 404)
    assert "damaged" not in caplog.text and set(multiprocessing.active_children()) <= set(before)


def test_few_policies_learn_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a process. A change of every bandit must not fill the memory with them."""
    monkeypatch.setattr(lessons, "NEAR", 5)
    hub = Hub(store(tmp_path))
    names, before, most = [f"b{number}" for number in range(5)], len(multiprocessing.active_children()), 0

    async def change_all() -> list[Any]:
        nonlocal most
        wanted = Change(version=1, policy="oful")
        asked = [asyncio.create_task(hub.change(name, wanted)) for name in names]
        while not all(one.done() for one in asked):
            most = max(most, len(multiprocessing.active_children()) - before)
            await asyncio.sleep(0.01)
        while any(hub.bandits[name].settings.policy != "oful" for name in names):
            await asyncio.sleep(0.01)
        return [await hub.change(name, wanted) for name in names]

    calls: list[Callable[[], Any]] = [partial(hub.create, name, SETTINGS, 7) for name in names]
    calls += [partial(hub.decide, name, choice(number)) for name in names for number in range(10)]
    *_, found = working(hub, *calls, change_all)
    assert all(isinstance(one, ChangeMade) for one in found) and 1 <= most <= lessons.SEATS
    hub.stop()
    refold(tmp_path)
