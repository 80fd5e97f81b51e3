"""Webhooks of services that share a PostgreSQL: one of them tells, and another goes on when it is gone."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

from postgres_server import Postgres
from served import Server, check_fold, working
from test_alarms import SHOP, acknowledge, prove
from test_webhooks import Receiver, hook_file, status

from robandit.service.hub import Hub
from robandit.service.stores import open_store
from robandit.wire.events import Delivered

pytestmark = pytest.mark.engines


def proved(url: str, *bounds: float) -> None:
    """So much is proved, each acknowledged at once but for the last. Another process writes it."""
    hub = Hub(open_store(url))
    calls: list[Any] = []
    for bound in bounds:
        calls += [prove(hub, bound), acknowledge(hub, bound)]
    working(hub, lambda: hub.create("shop", SHOP, 7), *calls[:-1])
    hub.stop()


def test_one_of_two_tells_and_the_other_goes_on(tmp_path: Path, postgres: Postgres) -> None:
    receiver, url = Receiver(), postgres.new("hooks")
    receiver.answers = [status(503)]
    options = ("--webhooks", hook_file(tmp_path, pager=receiver.url))
    first = Server(url, *options)
    second = Server(url, *options)
    proved(url, 1.0, 2.0)
    receiver.wait(2)
    first.kill()  # which had told nobody yet, and looked at the monitors
    before = len(receiver.got)
    receiver.answers = [status(200)]
    receiver.wait(before + 2, 60.0)
    time.sleep(8.0)  # what both would tell is told by now
    taken = [json.loads(body)["id"] for _, body in receiver.got[before:]]
    assert len(taken) == len(set(taken)) == 2
    third = Server(url, *options)
    proved(url, 1.0, 2.0, 3.0)  # of which only the last is new
    receiver.wait(before + 3)
    time.sleep(8.0)
    assert len(receiver.got) == before + 3
    for one in (second, third):
        one.kill()
    log = check_fold(open_store(url))["shop"]
    assert sorted(one.notice for one in log if isinstance(one, Delivered)) == [1, 2, 3]
    receiver.server.shutdown()
    receiver.server.server_close()
