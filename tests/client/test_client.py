"""The clients: what they send, when they send it again, and that nothing counts twice."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import re
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from served import SHOP, Server, check_fold

import robandit
from robandit.client import calls
from robandit.client.calls import Ask, Calls
from robandit.client.http import AsyncClient, Client, ServiceError
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.events import Decided, Rewarded

MENU = {"red": [0.5, 0.0, 0.1], "blue": [0.0, 0.5, 0.1]}
ROOT = Path(__file__).parents[2]
KEY = "s3cret-k3y-of-the-shop"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("service") / "log.db")
    try:
        yield one
    finally:
        one.kill()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


# ------------------------------------------------------------------------------------ against a service


def test_a_day_in_the_shop(service: Server) -> None:
    with Client(url(service)) as client:
        assert client.create("day", **SHOP, seed=3).rounds == 0
        assert client.create("day", **SHOP).settings.dim == 3 and "day" in client.bandits()
        first = client.decide("day", MENU, "visit-1", "web\u2028two lines")
        assert client.decide("day", MENU, "visit-1") == first and first.action_id in MENU
        second = client.decide("day", list(MENU.items()), sigma=[0.1, None])
        third = client.decide("day", np.array(list(MENU.values()), dtype=np.float32), sigma=0.2)
        assert (second.round, third.round, third.action_id) == (2, 3, str(third.index))
        assert len({first.decision_id, second.decision_id, third.decision_id}) == 3
        statuses = [client.reward("day", "visit-1", reward).status for reward in (1, 1, 0)]
        assert statuses == ["accepted", "duplicate", "conflict"]
        several = client.rewards("day", {second.decision_id: 0.5, "nobody": 0.5, "visit-1": 0.5})
        assert [one.status for one in several] == ["accepted", "unknown", "conflict"]
        assert client.rewards("day", []) == []
        status = client.status("day")
        assert (status.rounds, status.rewards, status.pending) == (3, 2, 1) and status.certificate.alarm is None
        log = list(client.log("day"))
        assert [type(event) for event in log] == [Decided, Decided, Decided, Rewarded, Rewarded]
        assert isinstance(log[0], Decided) and log[0].source == "web\u2028two lines"  # which is no end of a line


def test_refusals_are_errors_that_say_why(service: Server) -> None:
    with Client(url(service)) as client:
        client.create("strict", **SHOP)
        for call, status, word in (
            (lambda: client.status("nobody"), 404, "no bandit 'nobody'"),
            (lambda: list(client.log("nobody")), 404, "no bandit 'nobody'"),
            (lambda: client.create("strict", dim=4), 409, "other settings"),
            (lambda: client.decide("strict", []), 422, "actions"),
            (lambda: client.decide("strict", np.eye(2)), 422, "has 2 features"),
            (lambda: client.decide("strict", {"a": [float("nan"), 0, 0]}), 422, "features"),
            (lambda: client.reward("strict", "visit", float("nan")), 422, "reward"),
        ):
            with pytest.raises(ServiceError, match=re.escape(word)) as caught:
                call()
            assert caught.value.status == status and str(caught.value).startswith(f"{status}: ")
        assert client.status("strict").rounds == 0


def test_what_can_not_be_is_not_sent() -> None:
    client = Client(transport=httpx.MockTransport(lambda request: pytest.fail("it was sent")))
    much: Any = "much"
    for call in (
        lambda: client.status("../keys"),
        lambda: client.status(""),
        lambda: client.decide("shop", [1.0, 2.0]),
        lambda: client.decide("shop", MENU, sigma=[0.1]),
        lambda: client.rewards("shop", {"visit": much}),
        lambda: Client("localhost:8000"),
        lambda: Client(timeout=0.0),
        lambda: Client(retries=-1),
        lambda: Client(deadline=float("inf")),
    ):
        with pytest.raises(ValueError, match=r"must|could not|float"):
            call()
    with pytest.raises(TypeError, match="sead"):
        client.create("shop", dim=2, sead=1)
    client.close()


def test_many_at_once(service: Server) -> None:
    """Fifty customers share an asynchronous client, and everything is there once."""

    async def customer(client: AsyncClient, number: int) -> tuple[str, str]:
        chosen = await client.decide("crowd", MENU, source=f"s{number % 3}")
        return chosen.decision_id, (await client.reward("crowd", chosen.decision_id, number / 50)).status

    async def crowd() -> None:
        async with AsyncClient(url(service)) as client:
            await client.create("crowd", **SHOP)
            served = await asyncio.gather(*(customer(client, number) for number in range(50)))
            assert len(dict(served)) == 50 and {status for _, status in served} == {"accepted"}
            status = await client.status("crowd")
            assert (status.rounds, status.rewards, status.pending) == (50, 50, 0)
            log = [event async for event in client.log("crowd")]
            assert Counter(type(event) for event in log) == {Decided: 50, Rewarded: 50}
            assert "crowd" in await client.bandits()
            assert [one.status for one in await client.rewards("crowd", [(served[0][0], 0)])] == ["duplicate"]
            with pytest.raises(ServiceError, match="no bandit"):
                [event async for event in client.log("nobody")]

    asyncio.run(crowd())


@pytest.mark.no_cover
def test_a_service_that_is_killed(tmp_path: Path) -> None:
    """The service is killed and started again while the client goes on, which sees no error; everything counts once."""
    path, servers = tmp_path / "log.db", []
    servers.append(Server(path))
    back = threading.Event()

    def kill() -> None:
        time.sleep(0.3)
        servers[0].kill()
        servers.append(Server(path, port=servers[0].port))
        back.set()

    killer = threading.Thread(target=kill)
    decided: dict[str, Any] = {}
    with Client(url(servers[0])) as client:
        client.create("shop", **SHOP)
        killer.start()
        after = 0
        while after < 20:
            chosen = client.decide("shop", MENU)
            assert client.reward("shop", chosen.decision_id, 0.25).status == "accepted"
            decided[chosen.decision_id] = chosen
            after += back.is_set()
    killer.join()
    servers[-1].kill()
    log = check_fold(SQLiteStore(path))["shop"]
    made = {event.id: event for event in log if isinstance(event, Decided)}
    assert made.keys() == decided.keys() and len(log) == 2 * len(made)
    assert all(made[name].round == chosen.round for name, chosen in decided.items())


# ------------------------------------------------------------------------------------ lost answers


class Fake:
    """A service behind a bad line: each fault spoils one request, and after the last all goes well."""

    def __init__(self, *faults: Any) -> None:
        self.faults, self.requests = list(faults), list[httpx.Request]()
        self.decided: Counter[str] = Counter()
        self.rewarded: dict[str, float] = {}

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, httpx.Response):
            return fault
        if fault in ("unsent", "busy"):
            raise (httpx.ConnectError if fault == "unsent" else httpx.PoolTimeout)("nobody there")
        body = json.loads(request.content)
        answer = self.reward(body) if isinstance(body, list) else self.decide(body)
        if fault == "lost":
            raise httpx.ReadTimeout("no answer")
        return httpx.Response(503) if fault == "stopping" else httpx.Response(200, json=answer)

    def decide(self, body: Any) -> Any:
        name = body["decision_id"]
        if not self.decided[name]:
            self.decided[name] += 1
        number = list(self.decided).index(name) + 1
        return {"decision_id": name, "action_id": "red", "index": 0, "propensity": 1.0, "round": number}

    def reward(self, body: Any) -> Any:
        return {"results": [{"decision_id": one["decision_id"], "status": self._one(**one)} for one in body]}

    def _one(self, decision_id: str, reward: float) -> str:
        new = decision_id not in self.rewarded
        same = self.rewarded.setdefault(decision_id, reward) == reward
        return ("accepted" if new else "duplicate") if same else "conflict"


def client_of(fake: Fake, retries: int = 8) -> Client:
    return Client(transport=httpx.MockTransport(fake), retries=retries)


FAULTS = st.lists(st.sampled_from(["lost", "stopping", "unsent", "busy"]), max_size=5)


@pytest.mark.no_cover
@given(FAULTS, FAULTS, st.integers(0, 4))
@settings(deadline=None)
def test_whatever_is_lost_counts_once(first: list[str], second: list[str], retries: int) -> None:
    """Every attempt has the same ids, no more are made than allowed, and one decision and one reward result."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "_FIRST", 0.0)
        fake = Fake(*first)
        with client_of(fake, retries=retries) as client:
            if len(first) > retries:
                with pytest.raises(ServiceError):
                    client.decide("shop", MENU)
                assert len(fake.requests) == retries + 1 and len(fake.decided) <= 1
                return
            chosen = client.decide("shop", MENU)
            assert fake.decided == {chosen.decision_id: 1} and chosen.round == 1
            assert len({request.content for request in fake.requests}) == 1 and len(fake.requests) == len(first) + 1
            fake.faults, fake.requests = list(second), []
            if len(second) <= retries:
                assert client.reward("shop", chosen.decision_id, 1.0).status == "accepted"
                assert fake.rewarded == {chosen.decision_id: 1.0} and len(fake.requests) == len(second) + 1


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([], ["duplicate", "accepted", "duplicate", "conflict"]),
        (["unsent", "busy"], ["duplicate", "accepted", "duplicate", "conflict"]),
        ([httpx.Response(429)], ["duplicate", "accepted", "duplicate", "conflict"]),
        (["lost"], ["accepted", "accepted", "duplicate", "conflict"]),
        (["stopping", "unsent"], ["accepted", "accepted", "duplicate", "conflict"]),
    ],
)
def test_a_duplicate_of_our_own_was_accepted(
    faults: list[Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds only if an attempt may have been carried out, and only for the first duplicate of a call."""
    monkeypatch.setattr(calls, "_FIRST", 0.0)
    fake = Fake()
    with client_of(fake) as client:
        assert client.reward("shop", "old", 1.0).status == "accepted"
        fake.faults = list(faults)
        found = client.rewards("shop", [("old", 1.0), ("new", 0.5), ("new", 0.5), ("new", 0.75)])
    assert [one.status for one in found] == expected


def test_behind_a_proxy_with_a_path() -> None:
    fake = Fake()
    with Client("https://example.org/robandit/", transport=httpx.MockTransport(fake)) as client:
        client.decide("shop", MENU)
    assert str(fake.requests[0].url) == "https://example.org/robandit/v1/bandits/shop/decisions"


def test_many_rewards_go_in_parts() -> None:
    fake = Fake()
    with client_of(fake) as client:
        names = [f"{number:0128d}" for number in range(12_000)]
        assert [one.decision_id for one in client.rewards("shop", dict.fromkeys(names, 1.0))] == names
    assert len(fake.requests) == 3 and max(len(request.content) for request in fake.requests) < 4 << 20


def steps(plan: Any, *answers: Any) -> list[Any]:
    """What a plan does when it gets these answers, and the value or the error at its end."""
    found = [next(plan)]
    try:
        for answer in answers:
            found.append(plan.send(answer))
    except (StopIteration, ServiceError) as end:
        found.append(end.value if isinstance(end, StopIteration) else end)
    return found


def test_waits_grow_and_are_not_all_the_same() -> None:
    calls_of = Calls(None, 5.0, 8, 30.0)
    answers = [httpx.ReadError("gone"), None] * 8 + [httpx.Response(503)]
    found = steps(calls_of.bandits(), *answers)
    waits = [step for step in found if isinstance(step, float)]
    assert len(waits) == 8 and sum(isinstance(step, Ask) for step in found) == 9
    for wait, longest in zip(waits, [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0], strict=True):
        assert longest / 2 <= wait <= longest
    assert waits != [step for step in steps(calls_of.bandits(), *answers) if isinstance(step, float)]
    assert isinstance(found[-1], ServiceError) and found[-1].status == 503


@pytest.mark.parametrize(
    ("after", "waits"), [("3", True), ("0", True), ("60", False), ("Fri, 31 Dec 1999 23:59:59 GMT", True), ("-1", True)]
)
def test_it_waits_as_long_as_it_is_asked(after: str, waits: bool) -> None:
    """If the wait would be longer than the deadline allows, the client gives up at once."""
    found = steps(Calls(None, 5.0, 8, 30.0).bandits(), httpx.Response(429, headers={"Retry-After": after}))
    wait: Any = found[1]
    assert isinstance(wait, float) == waits and isinstance(wait, ServiceError) != waits
    assert after != "3" or wait >= 3.0


def test_the_deadline_is_for_all_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    plan = Calls(None, 5.0, 100, 12.0).bandits()
    timeouts: list[float] = []

    def patiently() -> None:
        asked: Any = next(plan)
        while True:
            timeouts.append(asked.timeout)
            now[0] += asked.timeout
            wait: Any = plan.send(httpx.ReadTimeout("no answer"))
            now[0] += wait
            asked = plan.send(None)

    with pytest.raises(ServiceError, match="ReadTimeout") as caught:
        patiently()
    assert caught.value.status is None
    assert timeouts[:2] == [5.0, 5.0] and sum(timeouts) <= 12.0 and now[0] <= 112.0


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 409, 413, 422, 500, 502, 504])
def test_nothing_else_is_asked_again(status: int) -> None:
    found = steps(Calls(None, 5.0, 8, 30.0).status("shop"), httpx.Response(status, json={"error": "because"}))
    assert isinstance(found[1], ServiceError) and (found[1].status, found[1].message) == (status, "because")


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b"{}", b'{"results": []}', b"null", b"[" * 10_000])
def test_garbage_is_no_answer(body: bytes) -> None:
    with Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, content=body))) as client:
        with pytest.raises(ServiceError):
            client.decide("shop", MENU)
        with pytest.raises(ServiceError):
            client.reward("shop", "visit", 1.0)
        if body:
            with pytest.raises(ServiceError):
                list(client.log("shop"))
    refused = httpx.MockTransport(lambda request: httpx.Response(500, content=body))
    with Client(transport=refused) as client, pytest.raises(ServiceError) as caught:
        client.status("shop")
    assert caught.value.status == 500 and pickle.loads(pickle.dumps(caught.value)).status == 500


def test_a_log_that_breaks_off() -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"type":"R","id":"a","at":1.0,"rew'
        yield b'ard":1.0}\n{"type":"R"'
        raise httpx.RemoteProtocolError("gone")

    with Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, content=pieces()))) as client:
        log = client.log("shop")
        assert next(log) == Rewarded(id="a", at=1.0, reward=1.0)
        with pytest.raises(ServiceError, match="broke off"):
            next(log)


# ------------------------------------------------------------------------------------ the key


def test_the_key_is_sent_and_nowhere_shown(caplog: pytest.LogCaptureFixture) -> None:
    """It is not shown even where somebody on the way sends it back."""
    caplog.set_level(logging.DEBUG)
    seen = []

    def echo(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["authorization"])
        return httpx.Response(200 if len(seen) % 2 else 500, text=f"you sent {request.headers['authorization']}")

    shown = []
    for kind in (Client, AsyncClient):
        client = kind("http://localhost:1", key=KEY, transport=httpx.MockTransport(echo))
        shown += [repr(client), str(client), repr(client._http), repr(client._http.headers)]
    with Client(key=KEY, transport=httpx.MockTransport(echo)) as client:
        for _ in range(2):
            with pytest.raises(ServiceError) as caught:
                client.status("shop")
            shown += [repr(caught.value), "".join(traceback.format_exception(caught.value))]
    with Client("http://127.0.0.1:9", key=KEY, retries=0) as client, pytest.raises(ServiceError) as caught:
        client.status("shop")
    shown += [repr(caught.value), "".join(traceback.format_exception(caught.value)), caplog.text]
    assert seen == [f"Bearer {KEY}"] * 2 and not any(KEY in text for text in shown)


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "schlüssel"])
def test_a_key_that_can_not_be_sent(key: str) -> None:
    with pytest.raises(ValueError, match="key must be") as caught:
        Client(key=key)
    assert not key or key not in repr(caught.value)


def test_a_wrong_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from robandit.cli import main

    assert main(["key", "shop", "decide", "--keys", str(tmp_path / "keys.json")]) == 0
    right = capsys.readouterr().out.strip()
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"), "--rate", "20")
    try:
        for key, status in ((None, 401), (KEY, 401), (right, 403)):
            with Client(url(server), key=key) as client, pytest.raises(ServiceError) as caught:
                client.bandits()
            assert caught.value.status == status
        seen: list[int] = []
        with Client(url(server), key=right) as client:
            client._http.event_hooks["response"].append(lambda answer: seen.append(answer.status_code))
            for _ in range(26):
                with pytest.raises(ServiceError, match="no bandit"):
                    client.decide("shop", MENU)
        assert seen.count(404) == 26 and 429 in seen  # which is too many at once, and was asked again
    finally:
        server.kill()


# ------------------------------------------------------------------------------------ the package and the page


def test_where_it_is_found() -> None:
    assert robandit.Client is Client and robandit.AsyncClient is AsyncClient and robandit.ServiceError is ServiceError
    assert {"Client", "AsyncClient"} <= set(dir(robandit)) and "Client" not in robandit.__all__
    with pytest.raises(AttributeError, match="no attribute 'Clint'"):
        _ = robandit.Clint  # type: ignore[attr-defined]


def test_without_httpx_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'httpx'", name="httpx")

    monkeypatch.setattr(robandit, "import_module", missing)
    monkeypatch.setattr(robandit, "find_spec", lambda name: None)
    assert "Client" not in dir(robandit)
    with pytest.raises(ImportError, match=r"needs httpx as well: pip install '\.\[client\]'"):
        _ = robandit.Client


def test_the_code_of_the_docs(service: Server, capsys: pytest.CaptureFixture[str]) -> None:
    """Every block of docs/how-to/client.md runs, one after the other."""
    page = (ROOT / "docs" / "how-to" / "client.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block.replace("http://localhost:8000", url(service)), names)
    assert len(blocks) == 3 and capsys.readouterr().out.split() == ["accepted", "20", "Decided"]
    with Client(url(service)) as client:
        assert client.status("shop").rewards == 21
