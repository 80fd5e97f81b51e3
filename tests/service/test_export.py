"""The log as Parquet over HTTP: it is complete, takes little memory, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from logged import PROOF, live, pages
from starlette.requests import ClientDisconnect

from robandit.service.files import export
from robandit.service.hub import Hub
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.web.app import Service
from robandit.service.web.keys import Keys
from robandit.wire.events import Closed, Decided, Event, Proved, Rewarded, decode, encode
from robandit.wire.parquet import PARQUET_KEY
from robandit.wire.types import Action, BanditSettings, Choice, Feedback

EVENTS = [*live(300, lost=40), PROOF]


async def here() -> bool:
    return False


def rows_of(events: list[Event]) -> list[dict[str, Any]]:
    """The rows that the file should have."""
    fate = {event.id: event for event in events if isinstance(event, (Rewarded, Closed))}
    rows = []
    for event in (event for event in events if isinstance(event, Decided)):
        final = fate.get(event.id)
        kind = (
            "rewarded" if isinstance(final, Rewarded) else "default" if final and final.reward is not None else "lost"
        )
        same = {name: getattr(event, name) for name in ("round", "at", "actions", "index", "features", "sigma")}
        same |= {name: getattr(event, name) for name in ("level", "propensity", "weight", "source")}
        menu = None if event.offered is None else np.frombuffer(event.offered).reshape(len(event.actions), -1).tolist()
        outcome = {
            "reward": final and final.reward,
            "reward_at": final and final.at,
            "outcome": kind if final else "pending",
        }
        names = {"decision_id": event.id, "action_id": event.actions[event.index], "offered": menu}
        rows.append({**same, **names, **outcome})
    return rows


def table_of(events: list[Event], size: int = 100) -> pa.Table:
    file = asyncio.run(export.as_parquet("shop", pages(events, size), here))
    assert file is not None
    with file:
        return pq.read_table(file)


@pytest.mark.no_cover
@pytest.mark.parametrize("exploration", [0.0, 0.2])
def test_every_decision_is_a_row(exploration: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "ROWS", 64)
    events: list[Event] = [*live(300, lost=40, exploration=exploration), PROOF]
    table = table_of(events)
    assert table.schema.equals(export.SCHEMA)
    assert table.to_pylist() == [{name: row[name] for name in export.SCHEMA.names} for row in rows_of(events)]
    assert set(table["outcome"].to_pylist()) == set(export.OUTCOMES)
    assert json.loads(table.schema.metadata[PARQUET_KEY]) == {"bandit": "shop", "proof": PROOF.sentence}


def test_an_empty_log() -> None:
    assert table_of([]).num_rows == 0


def test_rewards_in_any_order_and_sets_of_any_size() -> None:
    made = [event for event in EVENTS if isinstance(event, Decided)]
    rest = [event for event in EVENTS if not isinstance(event, (Decided, Proved))]
    shuffled: list[Event] = [*made, *(rest[i] for i in np.random.default_rng(1).permutation(len(rest)))]
    assert table_of(shuffled, size=7).equals(table_of(EVENTS))


def test_decisions_that_come_meanwhile_wait_for_the_next_file(monkeypatch: pytest.MonkeyPatch) -> None:
    first, calls = EVENTS[:201], iter([EVENTS[:201], EVENTS])
    monkeypatch.setattr(export, "ROWS", 10)

    def growing() -> AsyncIterator[list[bytes]]:
        return pages(next(calls), 50)()

    file = asyncio.run(export.as_parquet("shop", growing, here))
    assert file is not None
    with file:
        assert pq.read_table(file).to_pylist() == table_of(first).to_pylist()


# ------------------------------------------------------------------------------------ over HTTP


class Client:
    """Calls an application without a network."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def get(
        self, path: str, send: Callable[[dict[str, Any]], None] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def answer(message: Any) -> None:
            if send:
                send(message)
            sent.append(message)

        way, _, query = path.partition("?")
        headers = [(b"host", b"localhost")]
        scope = {"type": "http", "method": "GET", "path": way, "query_string": query.encode(), "headers": headers}
        await self.app({**scope, "asgi": {"version": "3.0", "spec_version": "2.4"}}, receive, answer)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return sent[0]["status"], found, b"".join(message.get("body", b"") for message in sent[1:])


async def shop(path: Path, then: Callable[[Client], Any]) -> None:
    """Make a service with a bandit and a few decisions, and let ``then`` ask it something."""
    hub = Hub(SQLiteStore(path))
    work = asyncio.create_task(hub.work())
    await hub.create("shop", BanditSettings(dim=2, exploration=0.5), 1)
    for t in range(20):
        actions = [Action(id="a", features=[0.5, 0.1 * (t % 3)]), Action(id="b", features=[0.1, 0.2])]
        await hub.decide("shop", Choice(actions=actions, decision_id=f"d{t}"))
        if t % 3:
            await hub.reward("shop", [Feedback(decision_id=f"d{t}", reward=0.1 * t)])
    try:
        await then(Client(Service(hub, Keys([]))))
    finally:
        work.cancel()
        hub.stop()


def test_parquet_over_http(tmp_path: Path) -> None:
    async def asked(client: Client) -> None:
        _, headers, text = await client.get("/v1/bandits/shop/log")
        assert headers["content-type"] == "application/x-ndjson"
        assert (await client.get("/v1/bandits/shop/log?format=ndjson"))[2] == text
        status, headers, data = await client.get("/v1/bandits/shop/log?format=parquet")
        assert status == 200 and headers["content-type"] == "application/vnd.apache.parquet"
        assert int(headers["content-length"]) == len(data) and "shop.parquet" in headers["content-disposition"]
        rows = pq.read_table(io.BytesIO(data)).to_pylist()
        events = [decode(line) for line in text.splitlines()]
        assert rows == [{name: row[name] for name in export.SCHEMA.names} for row in rows_of(events)]
        status, _, data = await client.get("/v1/bandits/shop/log?format=csv")
        assert status == 422 and b"format must be ndjson or parquet, got 'csv'" in data
        assert (await client.get("/v1/bandits/nobody/log?format=parquet"))[0] == 404

    asyncio.run(shop(tmp_path / "log.db", asked))


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "robandit.service.files.export")
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    async def asked(client: Client) -> None:
        status, _, data = await client.get("/v1/bandits/shop/log?format=parquet")
        assert status == 501 and b"needs pyarrow where the service runs: pip install '.[lab]'" in data

    asyncio.run(shop(tmp_path / "log.db", asked))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """The temporary files that are made, in a folder of the test's own."""
    files: list[Any] = []
    (tmp_path / "tmp").mkdir()

    def noted() -> Any:
        files.append(tempfile.TemporaryFile(dir=tmp_path / "tmp"))  # noqa: SIM115
        return files[-1]

    monkeypatch.setattr(export, "TemporaryFile", noted)
    return files


def test_a_client_that_leaves_while_it_is_sent(tmp_path: Path, opened: list[Any]) -> None:
    def gone(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body":
            raise OSError("gone")

    async def asked(client: Client) -> None:
        with pytest.raises(ClientDisconnect):
            await client.get("/v1/bandits/shop/log?format=parquet", gone)
        assert (await client.get("/v1/bandits/shop/log"))[0] == 200

    asyncio.run(shop(tmp_path / "log.db", asked))
    assert [file.closed for file in opened] == [True] and not any((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize("after", range(0, 12, 2))
def test_a_client_that_leaves_while_it_is_written(after: int, tmp_path: Path, opened: list[Any]) -> None:
    left = iter(range(after))

    async def gone() -> bool:
        return next(left, None) is None

    assert asyncio.run(export.as_parquet("shop", pages(EVENTS), gone)) is None
    assert [file.closed for file in opened] == [True] and not any((tmp_path / "tmp").iterdir())


def test_a_disk_that_is_full_and_a_stop(tmp_path: Path, opened: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(export, "_table", full)
        with pytest.raises(OSError, match="No space"):
            asyncio.run(export.as_parquet("shop", pages(EVENTS), here))

    async def stopped() -> None:
        task = asyncio.create_task(export.as_parquet("shop", many(20_000), here))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stopped())
    assert [file.closed for file in opened] == [True, True] and not any((tmp_path / "tmp").iterdir())


def many(number: int, actions: int = 5) -> Callable[[], AsyncIterator[list[bytes]]]:
    """The pages of a long log, each made when it is asked for. Rewards come 2500 decisions late."""
    rng = np.random.default_rng(1)
    offer = rng.normal(size=(actions, 5))
    fixed: dict[str, Any] = {
        "actions": [f"a{i}" for i in range(actions)],
        "sigma": 1.0,
        "level": 0,
        "offered": offer.tobytes(),
    }

    async def all_of_them() -> AsyncIterator[list[bytes]]:
        for start in range(0, number, 500):
            page: list[bytes] = []
            for t in range(start, min(number, start + 500)):
                known = {"round": t + 1, "at": float(t), "index": t % actions, "features": offer[t % actions].tolist()}
                page.append(encode(Decided(id=f"decision-{t}", propensity=0.2, **fixed | known)))
                if t >= 2500:
                    page.append(encode(Rewarded(id=f"decision-{t - 2500}", at=float(t), reward=0.5)))
            yield page

    return all_of_them


async def _exported(number: int) -> tuple[int, float]:
    """The bytes of the file, and the longest time for which the event loop was blocked."""
    gaps = [0.0]

    async def tick() -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now
            await asyncio.sleep(0.005)
            last = time.perf_counter()

    task = asyncio.create_task(tick())
    file = await export.as_parquet("shop", many(number), here)
    task.cancel()
    assert file is not None
    with file:
        assert pq.read_metadata(file).num_rows == number
        return file.seek(0, 2), max(gaps)


@pytest.mark.no_cover
def test_memory_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "ROWS", 1000)

    def peak(number: int) -> int:
        tracemalloc.start()
        asyncio.run(_exported(number))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few, many = (min(peak(number) for _ in range(3)) for number in (4000, 8000))  # a busy machine may add a buffer
    assert many < 10e6 and many - few < 60 * 4000  # bytes for each decision more


@pytest.mark.slow
def test_a_million_decisions(capsys: pytest.CaptureFixture[str]) -> None:
    import resource

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.perf_counter()
    size, held = asyncio.run(_exported(1_000_000))
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with capsys.disabled():
        print(f"\n{size / 1e6:.0f} MB in {seconds:.0f} s, {(after - before) / 1024:.0f} MiB more, {held:.3f} s held")
    assert after - before < 250 * 1024
