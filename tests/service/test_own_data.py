"""The same table and the same file of features through the service, the client and the audit; and what newcomers do."""

from __future__ import annotations

import asyncio
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import table
from served import Server, check_fold

from robandit.cli import main
from robandit.client import AsyncClient, Client, ServiceError
from robandit.features import Features
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.events import Decided, Rewarded
from robandit.wire.types import RewardRange


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(tmp_path_factory.mktemp("service") / "log.db")
    yield one
    one.kill()


def url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}"


def test_one_table_and_one_file_serve_all(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A history in CSV is fitted once. The service learns by that file, and both logs are audited by it."""
    history = table.visits(2000)
    path, file = table.write_csv(tmp_path / "visits.csv", history), tmp_path / "features.json"
    roles: dict[str, Any] = {"id": "item", "reward": "click", "source": "affiliate"}
    Features.fit(history, action=["price", "category"], context=["age"], crosses=[], **roles).save(file)
    server, clicks = Server(tmp_path / "log.db"), []
    try:
        with Client(url(server)) as client:
            client.create("shop", features=Features.load(file), rewards="clicks", sources=3, seed=5)
            rng = np.random.default_rng(6)
            for row in table.visits(700, seed=1):
                offer = {item: table.ITEMS[item] for item in rng.choice(list(table.ITEMS), 4, replace=False)}
                made = client.decide("shop", offer, row["user"], row["affiliate"], context={"age": row["age"]})
                clicks.append(int(rng.random() < table.rate(made.action_id)))
                assert client.reward("shop", made.decision_id, clicks[-1]).status == "accepted"
            status, log = client.status("shop"), list(client.log("shop"))
    finally:
        assert server.stop()
    uniform = np.mean([row["click"] for row in history])
    assert np.mean(clicks[200:]) > uniform + 0.1  # it has learnt what people like
    effects = {one.name: one.effect for one in status.named or ()}
    assert effects["category=a"] > effects["category=b"] > effects["category=c"] and effects["price"] < 0.0
    assert status.unusual == {} and [one.name for one in status.named or ()] == list(Features.load(file).names)
    check_fold(SQLiteStore(tmp_path / "log.db"))
    words = ["--features", str(file), "--rewards", "clicks", "--source", "affiliate", "--misspecification", "0"]
    assert main(["audit", str(path), *words, "--reward", "click"]) == 0
    assert "No corruption is proved" in capsys.readouterr().out
    decided = {event.id: event for event in log if isinstance(event, Decided)}
    rewards = {event.id: event.reward for event in log if isinstance(event, Rewarded)}
    rows = [
        {"features": decided[one].features, "affiliate": decided[one].source, "reward": rewards[one]} for one in rewards
    ]
    made_here = tmp_path / "shop.ndjson"
    made_here.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    assert main(["audit", str(made_here), *words]) == 0
    assert "No corruption is proved" in capsys.readouterr().out
    for page in ("visits-audit.html", "shop-audit.html"):
        text = (tmp_path / page).read_text(encoding="utf-8")
        assert all(name in text for name in ("price", "category=a", "category=(unseen)", "age"))


@pytest.mark.no_cover
def test_a_bot_is_found_in_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From one affiliate come bots that click on the dearest items: the audit proves that by the same file."""
    rows = table.visits(6000)
    for row in rows[3000:]:
        if row["affiliate"] == "blog":
            row["click"] = int(row["price"] > 20.0)
    file = tmp_path / "features.json"
    table.features().save(file)
    words = [
        "audit",
        str(table.write_csv(tmp_path / "visits.csv", rows)),
        "--features",
        str(file),
        "--source",
        "affiliate",
    ]
    assert main([*words, "--reward", "click", "--rewards", "clicks", "--misspecification", "0", "--looks", "4"]) == 0
    assert "were altered" in capsys.readouterr().out


def test_both_clients_take_records(service: Server) -> None:
    shop: dict[str, Any] = {"features": table.features(), "rewards": (1, 5)}
    records: list[dict[str, Any]] = [
        {"id": "red", "price": np.float32(3.5), "category": "a"},
        {"id": "blue", "price": np.int64(7), "category": "b"},
    ]
    pairs = [(str(record["id"]), record) for record in records]
    forms: list[Any] = [records, pairs, dict(pairs)]

    async def politely() -> list[Any]:
        async with AsyncClient(url(service)) as client:
            await client.create("async", **shop, seed=2)
            return [await client.decide("async", one, context={"age": 40}) for one in forms]

    with Client(url(service)) as client:
        client.create("sync", **shop, seed=2)
        again = client.create("sync", features=shop["features"], rewards={"low": 1, "high": 5})
        assert again.settings.rewards == RewardRange(low=1.0, high=5.0)
        plainly = [client.decide("sync", one, context={"age": 40}) for one in forms]
        missing = client.decide("sync", [{"price": 3, "category": float("nan")}], context={"age": 40})
        assert missing.action_id == "0" and client.status("sync").unusual == {"category": {"missing": 1}}
    found = asyncio.run(politely())
    assert [one.action_id for one in found] == [one.action_id for one in plainly]
    with Client(url(service)) as client, pytest.raises(TypeError, match="'reward'; did you mean 'rewards'"):
        client.create("other", reward="clicks")


# ------------------------------------------------------------------------------------ what newcomers do


def decide(*actions: Any, **more: Any) -> dict[str, Any]:
    given = [one if "id" in one else {"id": f"a{place}", "features": one} for place, one in enumerate(actions)]
    return {"actions": given, "context": {"age": 30}, **more}


SHOP, PLAIN = "/v1/bandits/shop", "/v1/bandits/plain"
GOOD = {"price": 3, "category": "a"}
MISTAKES: list[tuple[str, Any, int, str]] = [
    (
        f"{SHOP}/decisions",
        decide({"id": "a0", "features": [1, 0]}),
        422,
        "2 numbers, and this bandit takes records: send an object with price, category",
    ),
    (
        f"{PLAIN}/decisions",
        {"actions": [{"id": "a0", "features": GOOD}]},
        422,
        "send a list of 2 numbers, or create a bandit with `features`",
    ),
    (
        f"{PLAIN}/decisions",
        {"actions": [{"id": "a0", "features": [1, 0, 0]}]},
        422,
        "action 'a0' has 3 features, and should have 2",
    ),
    (f"{PLAIN}/decisions", decide({"id": "a0", "features": [1, 0]}), 422, "can't read a context: leave it out"),
    (
        f"{SHOP}/decisions",
        decide({"prize": 3, "category": "a"}),
        422,
        "an action has no column 'price'; did you mean 'prize'?",
    ),
    (f"{SHOP}/decisions", decide(GOOD, {"category": "a"}), 422, "action 'a1' has no 'price'"),
    (
        f"{SHOP}/decisions",
        decide(GOOD, {"price": "cheap", "category": "a"}),
        422,
        "action 'a1': price must be a number, got 'cheap'",
    ),
    (
        f"{SHOP}/decisions",
        decide({"price": None, "category": "a"}),
        422,
        "action 'a0': price is missing, and the features don't allow for that; fill it in",
    ),
    (f"{SHOP}/decisions", decide({"price": 10**400, "category": "a"}), 422, "action 'a0': price must be finite"),
    (f"{SHOP}/decisions", decide({"price": 3, "category": ["a"]}), 422, "actions[0].features[...]"),
    (f"{SHOP}/decisions", decide(GOOD, context=None), 422, "there is no 'age': send it as `context` of the decision"),
    (f"{SHOP}/decisions", decide(GOOD, context={"age": "old"}), 422, "context: age must be a number, got 'old'"),
    (
        f"{SHOP}/decisions",
        decide({"id": "x", "features": GOOD}, {"id": "x", "features": GOOD}),
        422,
        "must differ, and 'x' is there twice",
    ),
    (f"{SHOP}/decisions", {"candidates": [GOOD]}, 422, "candidates"),
    (f"{SHOP}/decisions", {"actions": [{"id": "a0", **GOOD}]}, 422, "price"),
    (
        f"{SHOP}/rewards",
        {"decision_id": "first", "reward": 55},
        422,
        "the reward of 'first' must lie in the declared range from 0 to 1, got 55; send what was meant",
    ),
    (f"{SHOP}/rewards", {"decision_id": "first", "reward": "yes"}, 422, "reward"),
    (f"{SHOP}/rewards", {"decision_id": "nobody", "reward": 1}, 200, "unknown"),
    (f"{SHOP}/rewards", [{"decision_id": "first", "reward": 1}, {"decision_id": "two", "reward": -1}], 422, "got -1"),
    (
        "/v1/bandits/shoop/decisions",
        decide(GOOD),
        404,
        "there is no bandit 'shoop'; create it with PUT /v1/bandits/shoop",
    ),
]


@pytest.fixture(scope="module")
def newcomer(service: Server) -> Server:
    features = json.loads(table.features().to_json())
    assert service.ask("PUT", SHOP, {"features": features, "rewards": "clicks"})[0] == 201
    assert service.ask("PUT", PLAIN, {"dim": 2})[0] == 201
    assert service.ask("POST", f"{SHOP}/decisions", decide(GOOD, decision_id="first"))[0] == 200
    return service


@pytest.mark.parametrize(("path", "body", "status", "sentence"), MISTAKES, ids=[one[3] for one in MISTAKES])
def test_a_mistake_gets_a_sentence_and_changes_nothing(
    newcomer: Server, path: str, body: Any, status: int, sentence: str
) -> None:
    def seen() -> list[Any]:
        return [newcomer.ask("GET", one)[1] | {"now": 0} for one in (SHOP, PLAIN)]

    before = seen()
    found, answer = newcomer.ask("POST", path, body)
    assert (found, sentence in json.dumps(answer, ensure_ascii=False).replace('\\"', '"')) == (status, True), answer
    assert seen() == before


def test_a_form_is_not_json(newcomer: Server) -> None:
    link = http.client.HTTPConnection("127.0.0.1", newcomer.port, timeout=20)
    link.request("POST", f"{SHOP}/decisions", "price=3", {"Content-Type": "application/x-www-form-urlencoded"})
    answer = link.getresponse()
    assert answer.status == 415 and b"Content-Type: application/json" in answer.read()
    link.close()


def test_a_client_raises_the_service_s_sentence(newcomer: Server) -> None:
    with Client(url(newcomer)) as client:
        with pytest.raises(ServiceError, match="422: action 'red': price must be a number, got 'cheap'"):
            client.decide("shop", {"red": {"price": "cheap", "category": "a"}}, context={"age": 30})
        with pytest.raises(ServiceError, match="422: the reward of 'first' must lie in the declared range from 0 to 1"):
            client.reward("shop", "first", 100)
        with pytest.raises(TypeError, match="a value must be a number, text, true, false or None"):
            client.decide("shop", {"red": {"price": 1j, "category": "a"}}, context={"age": 30})
