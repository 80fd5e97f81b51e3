"""History from outside: learnt once, marked as such, and never seen by the monitor."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from served import SHOP, check_fold, log_of, working
from test_app import serving
from test_life import SETTINGS, choice, store, traffic

from robandit import AsyncClient, Client, Features, ServiceError
from robandit.cli import main
from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.wire.changes import Change
from robandit.wire.events import Decided, Imported, Rewarded
from robandit.wire.imports import HistoryRow, ImportDone
from robandit.wire.types import BanditSettings, Choice, Feedback

FEATURES = Features(action={"price": (0, 50), "colour": ["red", "blue"]}, context={"hour": (0, 24)})


def row(number: int, **more: Any) -> HistoryRow:
    rng = np.random.default_rng(number)
    features = (rng.uniform(-1, 1, 3) / 3**0.5).tolist()
    return HistoryRow(id=f"r{number}", features=features, reward=round(float(rng.normal(0.0, 0.3)), 3), **more)


def learn(hub: Hub, *rows: HistoryRow) -> Callable[[], Any]:
    return lambda: hub.learn_history("shop", rows)


def test_history_is_learnt_once_and_the_monitor_does_not_see_it(tmp_path: Path) -> None:
    """An oracle without any of this code: the estimate of a plain ridge regression on rows and rewards together."""
    hub = Hub(store(tmp_path))
    rows = [row(number, source="old", propensity=0.5) for number in range(40)]
    settings = BanditSettings(dim=3, noise_range=0.5, policy="oful")
    _, first, *_, second, third = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        learn(hub, *rows[:25]),
        *traffic(hub, 0, 20),
        learn(hub, *rows),
        learn(hub, *rows),
    )
    assert first == ImportDone(imported=25, duplicates=0, conflicts=[])
    assert second == ImportDone(imported=15, duplicates=25, conflicts=[]) and third.duplicates == 40
    learner = hub.bandits["shop"].learner
    log = list(log_of(hub, "shop"))
    outside = [one for one in log if isinstance(one, Imported)]
    assert [one.id for one in outside] == [one.id for one in rows] and outside[0].propensity == 0.5
    assert (learner.rewards, learner.policy.rounds, learner.monitor.rounds) == (17, 20, 17)
    assert learner.policy.updates == 57 and hub.status("shop").imported == 40
    made = {one.id: one.features for one in log if isinstance(one, Decided)}
    told = [(np.array(one.features), one.reward) for one in outside]
    told += [(np.array(made[one.id]), one.reward) for one in log if isinstance(one, Rewarded)]
    gram = np.eye(3) + sum(np.outer(a, a) for a, _ in told)
    np.testing.assert_allclose(learner.policy.estimate().center, np.linalg.solve(gram, sum(a * r for a, r in told)))
    hub.stop()
    check_fold(store(tmp_path))


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore::robandit.GuaranteeLapsed")
@pytest.mark.parametrize("policy", ["quorum", "multi-level-weighted-oful", "cobe", "save"])
def test_every_policy_learns_it_and_so_does_the_next_one(tmp_path: Path, policy: str) -> None:
    hub = Hub(store(tmp_path))
    settings = BanditSettings(dim=3, noise_range=0.5, policy=policy, horizon=100)
    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        learn(hub, *map(row, range(5))),  # before any decision
        *traffic(hub, 0, 10),
        learn(hub, *map(row, range(5, 10))),
        lambda: hub.change("shop", Change(version=1, policy="oful")),
        lambda: hub.change("shop", Change(version=2, policy=policy)),
        *traffic(hub, 10, 10),
        learn(hub, *map(row, range(10))),
    )
    assert not any(isinstance(one, Refused) for one in found) and found[-1].duplicates == 10
    assert hub.bandits["shop"].learner.policy.rounds == 20
    hub.stop()
    check_fold(store(tmp_path))


def test_ids_are_shared_with_decisions(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))
    clash = HistoryRow(id="d1", features=[0.0, 0.0, 0.1], reward=0.1)
    changed = HistoryRow(id="r1", features=[0.0, 0.0, 0.1], reward=0.2)
    found = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        lambda: hub.decide("shop", choice(1)),
        learn(hub, clash, row(1), row(1), row(2)),
        learn(hub, changed),
        lambda: hub.decide("shop", Choice(actions=choice(1).actions, decision_id="r1")),
        lambda: hub.reward("shop", [Feedback(decision_id="r1", reward=0.0)]),
    )
    assert found[2] == ImportDone(imported=2, duplicates=1, conflicts=["d1"])
    assert found[3] == ImportDone(imported=0, duplicates=0, conflicts=["r1"])
    assert isinstance(found[4], Refused) and found[4].status == 409 and found[5][0].status == "unknown"
    hub.stop()
    check_fold(store(tmp_path))


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (HistoryRow(id="x", features=[0.1, 0.2], reward=0.0), "it has 2 features, and should have 3"),
        (HistoryRow(id="x", features=[1.0, 1.0, 1.0], reward=0.0), "beyond action_bound = 1"),
        (HistoryRow(id="x", features={"price": 1}, reward=0.0), "is a record"),
    ],
)
def test_one_bad_row_refuses_all(tmp_path: Path, wrong: HistoryRow, why: str) -> None:
    hub = Hub(store(tmp_path))
    _, found, _, late = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        learn(hub, *map(row, range(30)), wrong),
        lambda: hub.change("shop", Change(version=1, archived=True)),
        learn(hub, row(1)),
    )
    assert isinstance(found, Refused) and found.status == 422 and "row 'x': " in str(found) and why in str(found)
    assert late.status == 410 and hub.status("shop").imported == 0
    hub.stop()


@pytest.mark.no_cover
def test_others_are_served_in_between(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))
    over: list[str] = []

    async def note(word: str, call: Any) -> None:
        await call
        over.append(word)

    async def both() -> None:
        rows = [row(number) for number in range(3000)]
        small = note("small", hub.decide("shop", choice(1)))
        await asyncio.gather(note("history", hub.learn_history("shop", rows)), small)

    working(hub, lambda: hub.create("shop", SETTINGS, 7), both)
    assert over == ["small", "history"]
    hub.stop()


# Files.


def visits(path: Path, count: int = 60) -> Path:
    rng = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["price", "colour", "hour", "click", "partner"])
        for number in range(count):
            colour = ["red", "blue", ""][number % 3]
            writer.writerow([round(rng.uniform(0, 50), 2), colour, number % 24, int(rng.random() < 0.3), "web"])
    return path


def test_a_table_by_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CSV and Parquet teach the same; a file that is given twice counts once."""
    path = visits(tmp_path / "visits.csv")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    table = pa.table(
        {
            "price": [float(one["price"]) for one in rows],
            "colour": [one["colour"] or None for one in rows],
            "hour": [int(one["hour"]) for one in rows],
            "click": [int(one["click"]) for one in rows],
            "partner": [one["partner"] for one in rows],
        }
    )
    pq.write_table(table, tmp_path / "visits.parquet")
    columns = ["--reward", "click", "--source", "partner"]
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        url = ["--url", f"http://127.0.0.1:{here.port}"]
        for name, file_name in (("a", "visits.csv"), ("b", "visits.parquet")):
            client.create(name, features=FEATURES, rewards="clicks", seed=1)
            for word in ("60 rows were learnt, and 0 had", "0 rows were learnt, and 60 had"):
                assert main(["import", str(tmp_path / file_name), "--bandit", name, *columns, *url]) == 0
                assert word in capsys.readouterr().out
        assert client.status("a").estimate == client.status("b").estimate and client.status("a").imported == 60
        belief = client.status("a").belief
        assert belief is not None and [(one.source, one.rewards) for one in belief.sources] == [("web", 60)]
        assert main(["import", str(path), "--bandit", "a", *url]) == 2
        assert "has no column 'reward'" in capsys.readouterr().err
        assert main(["import", str(path), "--bandit", "nobody", "--reward", "click", *url]) == 2
        path.write_text(path.read_text() + "dear,red,1,1,web\n")
        assert main(["import", str(path), "--bandit", "a", *columns, *url]) == 1
        assert "row 61" in capsys.readouterr().err and client.status("a").imported == 60


def test_a_log_makes_another_bandit_that_knows_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        url = ["--url", f"http://127.0.0.1:{here.port}"]
        client.create("shop", features=FEATURES, rewards=(0, 5), policy="oful", seed=1)
        things: dict[str, Any] = {"a": {"price": 3, "colour": "red"}, "b": {"price": 20, "colour": None}}
        for number in range(20):
            chosen = client.decide("shop", things, context={"hour": number % 24}, source="web")
            client.reward("shop", chosen.decision_id, number % 3)
        assert main(["export", "--bandit", "shop", "--out", str(tmp_path / "shop.ndjson"), *url]) == 0
        assert main(["import", str(tmp_path / "shop.ndjson"), "--bandit", "other", *url]) == 0
        assert "20 rows were learnt" in capsys.readouterr().out
        (tmp_path / "shop.parquet").write_bytes(
            client._http.get("/v1/bandits/shop/log", params={"format": "parquet"}).content
        )
        client.create("third", features=FEATURES, rewards=(0, 5), policy="oful", seed=1)
        assert main(["import", str(tmp_path / "shop.parquet"), "--bandit", "third", *url]) == 0
        one, two, three = (client.status(name) for name in ("shop", "other", "third"))
        assert one.settings == two.settings and (two.imported, two.rounds, three.imported) == (20, 0, 20)
        assert one.estimate == pytest.approx(two.estimate) and two.estimate == three.estimate
        assert b'"seed"' not in (tmp_path / "shop.ndjson").read_bytes()
        assert main(["export", "--bandit", "nobody", "--out", str(tmp_path / "no.ndjson"), *url]) == 2
        assert not (tmp_path / "no.ndjson").exists()


def test_into_a_store_without_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub = Hub(store(tmp_path))
    working(hub, lambda: hub.create("shop", SETTINGS, 7), partial(hub.decide, "shop", choice(1)))
    hub.stop()
    lines = ["x0,x1,x2,reward"] + [f"0.{number % 5},0.1,-0.2,0.{number % 4}" for number in range(1200)]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    told = ["import", str(tmp_path / "rows.csv"), "--bandit", "shop", "--store", str(tmp_path / "log.db")]
    assert main(told) == 0 and "1,200 rows were learnt, and 0 had" in capsys.readouterr().out
    assert main([*told, "--features", "x0,x1"]) == 2 and "names 2 columns" in capsys.readouterr().err
    assert main(told) == 0 and "0 rows were learnt, and 1,200 had" in capsys.readouterr().out
    assert main([*told[:-1], str(tmp_path / "none.db")]) == 1 and "there is no" in capsys.readouterr().err
    assert len(check_fold(store(tmp_path))["shop"]) == 1201


def test_from_python(tmp_path: Path) -> None:
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        client.create("shop", **SHOP)
        rows = [{"id": f"r{number}", "features": [0.1, 0.2, 0.3], "reward": 0.1} for number in range(1500)]
        assert client.learn_history("shop", rows) == ImportDone(imported=1500, duplicates=0, conflicts=[])
        with pytest.raises(TypeError, match="did you mean 'reward'"):
            client.learn_history("shop", [{"rewards": 1.0}])
        with pytest.raises(ServiceError, match="Object missing required field `id`"):
            client.learn_history("shop", [{"reward": 1.0, "features": [0.1]}])

        async def again() -> ImportDone:
            async with AsyncClient(f"http://127.0.0.1:{here.port}") as other:
                return await other.learn_history("shop", rows)

        assert asyncio.run(again()).duplicates == 1500
