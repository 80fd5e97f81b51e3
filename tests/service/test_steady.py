"""A store that goes away and comes back: nothing acknowledged is lost, and nothing counts twice. With PostgreSQL it is
tested in test_postgres.py."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from served import FIRST, SHOP, check_fold, free_port

from robandit.service.hub import Hub
from robandit.service.stores import open_store
from robandit.service.stores.away import unless_away
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import AwayError, StoreError
from robandit.service.web import steady as module
from robandit.service.web.front import Front
from robandit.service.web.keys import Keys
from robandit.service.web.protocol import Connection
from robandit.service.web.senders import Senders
from robandit.service.web.steady import Steady
from robandit.wire.events import Decided, Rewarded


class Here:
    """A steady service in a thread."""

    def __init__(self, open_hub: Callable[[], Hub], wait: float = 20.0) -> None:
        self.port = free_port()
        config = uvicorn.Config(
            "", port=self.port, http=Connection, lifespan="on", log_config=None, access_log=False, server_header=False
        )
        self.server = uvicorn.Server(config)
        stop = lambda: setattr(self.server, "should_exit", True)  # noqa: E731
        self.steady = Steady(open_hub, Keys([]), Senders(), wait=wait, stop=stop)
        config.app = Front(self.steady, self.steady.meters)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any, dict[str, str]]:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = None if body is None else json.dumps(body).encode()
            link.request(method, path, data, {} if data is None else {"Content-Type": "application/json"})
            answer = link.getresponse()
            text = answer.read()
            plain = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if plain else text.decode(), dict(answer.getheaders())
        finally:
            link.close()

    def until(self, status: int, path: str = "/ready") -> None:
        """Wait until a path is answered with this status."""
        for _ in range(400):
            try:
                if self.ask("GET", path)[0] == status:
                    return
            except OSError:
                pass
            time.sleep(0.02)
        raise AssertionError(f"{path} is never answered {status}")


@contextmanager
def serving(here: Here) -> Iterator[Here]:
    here.steady.begin()
    thread = threading.Thread(target=here.server.run)
    thread.start()
    try:
        yield here
    finally:
        here.server.should_exit = True
        thread.join(20)
        assert not thread.is_alive()


class Fails(SQLiteStore):
    """A store whose next commit fails: before it has happened, or after it, when nobody knows."""

    fails: str | None = None

    def commit(self) -> None:
        how, self.fails = self.fails, None
        if how == "before":
            self._db.execute("ROLLBACK")
        if how != "before":
            super().commit()
        if how is not None:
            raise StoreError("the connection is gone")


@pytest.mark.parametrize("how", ["before", "after"])
@pytest.mark.parametrize("what", ["decision", "reward"])
def test_a_commit_whose_outcome_nobody_knows(
    how: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is answered 503. Asked again with the same id after the store is back, it counts once."""
    monkeypatch.setattr(module, "_FIRST", 0.01)
    stores: list[Fails] = []

    def open_hub() -> Hub:
        stores.append(Fails(tmp_path / "log.db"))
        return Hub(stores[-1])

    reward = {"decision_id": "first", "reward": 0.25}
    with serving(Here(open_hub)) as here:
        here.until(200)
        assert here.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
        if what == "reward":
            before = here.ask("POST", "/v1/bandits/shop/decisions", FIRST)
        stores[-1].fails = how
        path, body = ("decisions", FIRST) if what == "decision" else ("rewards", reward)
        status, answer, headers = here.ask("POST", f"/v1/bandits/shop/{path}", body)
        assert status == 503 and headers["retry-after"] == "1" and "with the same ids" in answer["error"]
        here.until(200)
        assert len(stores) == 2
        status, answer, _ = here.ask("POST", f"/v1/bandits/shop/{path}", body)
        assert status == 200
        if what == "reward":
            assert answer["results"][0]["status"] == ("duplicate" if how == "after" else "accepted")
            assert here.ask("POST", "/v1/bandits/shop/decisions", FIRST)[1] == before[1]
        here.ask("POST", "/v1/bandits/shop/rewards", reward)
        text = here.ask("GET", "/metrics")[1]
        assert "robandit_store_openings_total 2\n" in text and "robandit_ready 1\n" in text
    log = check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]
    assert [type(event) for event in log] == [Decided, Rewarded]


def test_it_waits_for_a_store_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lives and is not ready; its metrics can be read; all else is answered 503, and may be asked again."""
    monkeypatch.setattr(module, "_FIRST", 0.01)
    back = threading.Event()

    def open_hub() -> Hub:
        if not back.is_set():
            raise AwayError("the database does not answer")
        return Hub(SQLiteStore(tmp_path / "log.db"))

    with serving(Here(open_hub)) as here:
        here.until(200, "/health")
        assert here.ask("GET", "/ready")[0] == 503
        for method, path, body in (("POST", "/v1/bandits/shop/decisions", FIRST), ("GET", "/v1/bandits", None)):
            status, answer, headers = here.ask(method, path, body)
            assert status == 503 and "away" in answer["error"] and headers["retry-after"] == "1"
        assert "robandit_ready 0\n" in here.ask("GET", "/metrics")[1]
        back.set()
        here.until(200)
        assert here.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
        assert here.steady.failed is None


def test_it_gives_up_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says why. What is no absence ends the start at once."""
    monkeypatch.setattr(module, "_FIRST", 0.01)

    def open_hub() -> Hub:
        raise AwayError("the database does not answer")

    with serving(Here(open_hub, wait=0.5)) as here:
        until = time.monotonic() + 20.0
        while not here.server.should_exit and time.monotonic() < until:
            time.sleep(0.02)
        assert here.steady.failed == "the database does not answer"
    with pytest.raises(AwayError):
        Here(open_hub, wait=0.0).steady.begin()

    def wrong() -> Hub:
        raise StoreError("the password is wrong")

    with pytest.raises(StoreError, match="password"):
        Here(wrong).steady.begin()


@pytest.mark.parametrize(
    ("url", "away"),
    [
        ("postgresql://me@/shop?host=/nowhere", True),
        ("postgresql://me@nobody.invalid/shop?connect_timeout=2", True),
        ("postgresql://me@127.0.0.1:1/shop", True),
        ("postgresql://me@127.0.0.1/shop?nonsense=1", False),
        ("nowhere/log.db", False),
    ],
)
def test_what_is_away(url: str, away: bool) -> None:
    """A server that does not answer. What is written wrong is not waited for, and a file is there or not."""
    with pytest.raises(StoreError) as failed:
        unless_away(url, lambda: open_store(url))
    assert isinstance(failed.value, AwayError) == away


def test_a_file_that_fails_ends_the_service(tmp_path: Path) -> None:
    """Without a wait it is as before: a supervisor starts it again."""
    stores: list[Fails] = []

    def open_hub() -> Hub:
        stores.append(Fails(tmp_path / "log.db"))
        return Hub(stores[-1])

    with serving(Here(open_hub, wait=0.0)) as here:
        here.until(200)
        stores[-1].fails = "after"
        assert here.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 503
        until = time.monotonic() + 20.0
        while not here.server.should_exit and time.monotonic() < until:
            time.sleep(0.02)
        assert here.steady.failed == "the connection is gone" and len(stores) == 1
