"""The notifier beside a hub of this process: what it sends, when it tries again, and what it counts."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from served import working
from test_alarms import SHOP, acknowledge, prove
from test_life import store
from test_webhooks import Receiver, hang, hook_file, proved, receiver, status, told  # noqa: F401

from robandit.service.hub import Hub
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.web import hooks
from robandit.service.web.hooks import HookError, read_hooks
from robandit.service.web.notifier import TRY_FOR, Notifier


def notifier_of(folder: Path, **urls: str) -> Notifier:
    """One whose clock goes on by more than the longest wait at every look."""
    return Notifier(read_hooks(Path(hook_file(folder, **urls))), ticks=itertools.count(0.0, 400.0).__next__)


def notify(hub: Hub, notifier: Notifier, done: Callable[[str], bool]) -> str:
    """Let both work until what the notifier counts is as wanted; return its lines."""

    async def until() -> str:
        tasks = [asyncio.create_task(work) for work in (hub.work(), notifier.work(hub))]
        end = time.monotonic() + 20.0
        while not done(lines := "\n".join(notifier.lines())):
            assert time.monotonic() < end, lines
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        return lines

    try:
        return asyncio.run(until())
    finally:
        hub.stop()


def counted(hook: str, result: str, count: int) -> Callable[[str], bool]:
    return lambda lines: f'requests_total{{hook="{hook}",result="{result}"}} {count}' in lines


def test_one_that_was_not_taken_is_sent_again(tmp_path: Path, receiver: Receiver) -> None:  # noqa: F811
    """And the webhook that took it is not told twice."""
    other = Receiver()
    receiver.answers = [status(500), status(302, Location=receiver.url), status(204)]
    proved(tmp_path, 2.0)
    lines = notify(
        Hub(store(tmp_path)),
        notifier_of(tmp_path, pager=receiver.url, chat=other.url),
        counted("pager", "delivered", 1),
    )
    assert counted("pager", "failed", 2)(lines) and counted("chat", "delivered", 1)(lines)
    assert len({body for _, body in receiver.got}) == 1 and len(receiver.got) == 3 and len(other.got) == 1
    assert sorted(told(tmp_path)) == [("chat", 1, True), ("pager", 1, True)]
    other.server.shutdown()
    other.server.server_close()


def test_an_old_one_is_given_up(tmp_path: Path, receiver: Receiver) -> None:  # noqa: F811
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: time.time() - TRY_FOR - 60))
    working(hub, lambda: hub.create("shop", SHOP, 7), prove(hub, 2.0), acknowledge(hub, 2.0))
    hub.stop()
    notify(Hub(store(tmp_path)), notifier_of(tmp_path, pager=receiver.url), counted("pager", "given_up", 1))
    assert receiver.got == [] and told(tmp_path) == [("pager", 1, False)]


def test_why_a_request_failed_is_said(
    tmp_path: Path,
    receiver: Receiver,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without the address, which may hold a token."""
    monkeypatch.setattr(hooks, "DEADLINE", 0.3)
    (hook,) = read_hooks(Path(hook_file(tmp_path, pager=receiver.url)))
    for answer, words in (
        (hang, "no answer within 0.3 s"),
        (status(404), "it answered 404"),
        (lambda handler: handler.wfile.write(b"hello\r\n\r\n"), "no answer: ValueError"),
        (lambda handler: handler.wfile.write(b"HTTP/1.1 103 Wait\r\n\r\n" * 200), "no answer"),
    ):
        receiver.answers = [answer]
        with pytest.raises(HookError, match=words) as found:
            asyncio.run(hook.post("1-2-3", b"{}", 1e9))
        assert receiver.url not in str(found.value)
