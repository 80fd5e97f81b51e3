"""Decisions that are forgotten: the state is that of a log which never had them, and they are nowhere any more."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served import SHOP, menu
from test_app import serving
from test_cuts import DAY, EXPLORES, SLOW, Shop, bare

from robandit import AsyncClient, Client, ServiceError
from robandit.cli import main
from robandit.logs.evaluate.records import read
from robandit.service.learning.fold import fold
from robandit.service.learning.learner import Learner
from robandit.service.refused import Refused
from robandit.service.serving import forgetting, refolds
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Snapshot, append
from robandit.wire.changes import Change, ChangeMade, ShadowChange
from robandit.wire.events import Blank, Decided, Forgot
from robandit.wire.forgetting import ForgetMade, ForgetWaits
from robandit.wire.imports import HistoryRow
from robandit.wire.types import BanditSettings


def forget(shop: Shop, *ids: str) -> ForgetMade:
    found: Any = None
    while found is None or isinstance(found, ForgetWaits):
        (found,) = shop.do(lambda: shop.hub.forget("shop", ids))
    assert isinstance(found, ForgetMade), found
    return found


def without(shop: Shop, ids: set[str], settings: BanditSettings) -> Any:
    """An oracle: the log that is left, with blanks and what was forgotten taken out by hand, folded anew."""
    learner = Learner(settings, 7)
    log = [one for one in shop.log() if not isinstance(one, Blank | Forgot)]
    assert not ids & {one.id for one in log}
    for _ in fold(learner, lambda after: iter(log[after:])):
        pass
    return bare(learner)


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", ["quorum", "multi-level-weighted-oful", "lin-ts", "exp3p"])
@pytest.mark.filterwarnings("ignore::robandit.GuaranteeLapsed")
def test_the_state_is_one_that_never_knew(tmp_path: Path, policy: str) -> None:
    """With a shadow, another policy and history in the log, of a decision with its reward and of one that is open."""
    settings = msgspec.structs.replace(SLOW, policy=policy, horizon=200, sources=2)
    shop = Shop(tmp_path, settings)
    rows = [HistoryRow(id=f"h{number}", features=[0.1, 0.2, 0.3], reward=0.2) for number in range(3)]
    shop.visit(30)
    shop.do(lambda: shop.hub.learn_history("shop", rows))
    shop.change(shadow=ShadowChange(name="plain", policy="greedy"))
    shop.visit(20)
    shop.change(policy="oful" if policy != "oful" else "cw-oful")
    shop.visit(20)
    gone = {"d3", "d11", "d33", "d50", "d69", "h1"}
    before = bare(shop.learner)
    assert forget(shop, *gone, "nobody") == ForgetMade(decisions=6, unknown=["nobody"], cut=[])
    assert bare(shop.learner) == without(shop, gone, settings) != before
    assert shop.learner.decisions == 65 and forget(shop, *gone).decisions == 0
    shop.restart()
    answers = shop.do(partial(shop.reward, 3), partial(shop.reward, 69), partial(shop.decide, 12))
    assert [answers[0][0].status, answers[1][0].status] == ["unknown", "unknown"] and answers[2].round == 13
    shop.visit(20, late=1)
    assert bare(shop.learner) == without(shop, gone, settings)
    assert forget(shop, "d12", "d75").decisions == 2
    assert bare(shop.learner) == without(shop, gone | {"d12", "d75"}, settings)
    shop.restart()
    shop.end()


def test_nothing_of_it_is_in_the_file(tmp_path: Path) -> None:
    """Neither in its rows, nor in its free pages, nor in the write-ahead log once the service has stopped."""
    shop = Shop(tmp_path, EXPLORES)
    shop.visit(30)
    name = "a-name-that-nobody-else-has"
    shop.do(lambda: shop.hub.decide("shop", msgspec.structs.replace(_choice(31), decision_id=name, source="her-phone")))
    shop.visit(30)
    path = tmp_path / "log.db"
    assert forget(shop, name).decisions == 1
    shop.restart()
    shop.end()
    for file in tmp_path.iterdir():
        assert name.encode() not in file.read_bytes() and b"her-phone" not in file.read_bytes(), file
    assert read(path).outcomes == {"rewarded": 57, "pending": 3}


def _choice(number: int) -> Any:
    from test_life import choice

    return choice(number)


def test_where_the_log_was_cut(tmp_path: Path) -> None:
    """What has gone can't be forgotten; what was open stays until the next cut; the rest is forgotten from there on."""
    shop = Shop(tmp_path, SLOW)
    shop.visit(40)
    found = shop.cut(20)
    shop.do(shop.hub.purge)
    assert found.kept_open == 3
    told = forget(shop, "d0", "d17", "d30")
    assert told == ForgetMade(decisions=1, unknown=["d0"], cut=["d17"])
    assert shop.learner.decisions == 39
    shop.visit(20)
    shop.restart()
    assert forget(shop, "d31").decisions == 1 and shop.cut(5).events > found.events
    shop.do(shop.hub.purge)
    assert forget(shop, "d17") == ForgetMade(decisions=0, unknown=["d17"], cut=[])
    assert forget(shop, "d59").decisions == 1
    shop.restart()
    shop.end()


def test_in_a_process_of_its_own_and_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Traffic, a cut and another policy meanwhile; two requests at once."""
    monkeypatch.setattr(refolds, "NEAR", 10)
    monkeypatch.setattr(forgetting, "PATIENCE", 0.01)
    shop = Shop(tmp_path, SLOW)
    shop.visit(200)
    seen: list[Any] = []

    async def all_() -> None:
        first = await shop.hub.forget("shop", ["d100"])
        assert isinstance(first, ForgetWaits)
        with pytest.raises(Refused, match="other decisions of this bandit are being forgotten"):
            await shop.hub.forget("shop", ["d101"])
        cut = asyncio.create_task(shop.hub.cut("shop", 150))
        change = asyncio.create_task(shop.hub.change("shop", Change(version=1, policy="oful")))
        for number in range(300, 340):
            await shop.decide(number)
            await shop.reward(number)
        while isinstance(first, ForgetWaits):
            first = await shop.hub.forget("shop", ["d100"])
        seen.append(first)
        made = await change
        while not isinstance(made, ChangeMade):
            made = await shop.hub.change("shop", Change(version=1, policy="oful"))
        await cut

    shop.do(all_)
    assert seen == [ForgetMade(decisions=1, unknown=[], cut=[])]
    while (found := shop.do(lambda: shop.hub.cut("shop", 150))[0]).__class__.__name__ == "CutWaits":
        pass
    assert found.events > 0 and shop.learner.settings.policy == "oful"
    shop.restart()
    assert not [one for one in shop.log() if isinstance(one, Decided) and one.id == "d100"]
    shop.end()


def test_it_holds_for_what_is_being_written(tmp_path: Path) -> None:
    """A decision, its reward, and the request to forget it in one group."""
    shop = Shop(tmp_path, SLOW)

    async def together() -> Any:
        return await asyncio.gather(
            shop.decide(0), shop.decide(1), shop.reward(0), shop.hub.forget("shop", ["d0"]), shop.decide(2)
        )

    (found,) = shop.do(together)
    assert found[3].decisions == 1 and shop.learner.decisions == 2
    shop.restart()
    shop.end()


def test_over_http_and_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = {one["id"]: one["features"] for one in menu(np.random.default_rng(1))}

    async def again(url: str) -> ForgetMade:
        async with AsyncClient(url) as client:
            return await client.forget("shop", ["v1", "v2"])

    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        client.create("shop", **SHOP)
        client.decide_many("shop", [{"actions": rows, "decision_id": f"v{number}"} for number in range(20)])
        client.reward("shop", "v1", 0.1)
        assert client.forget("shop", ["v1", "v2"]) == ForgetMade(decisions=2, unknown=[], cut=[])
        assert asyncio.run(again(f"http://127.0.0.1:{here.port}")).unknown == ["v1", "v2"]
        assert client.status("shop").rounds == 18 and client.reward("shop", "v2", 0.1).status == "unknown"
        bodies: list[Any] = [{}, {"decision_ids": []}, {"decision_ids": "v1"}, {"decision_ids": ["v"] * 1001}, []]
        for body in bodies:
            status, _, found = here.ask("POST", "/v1/bandits/shop/forget", body)
            assert status == 422 and found["error"], body
        with pytest.raises(ServiceError, match="there is no bandit 'nobody'"):
            client.forget("nobody", ["v1"])
        ids = tmp_path / "ids.txt"
        ids.write_text("v3\nv4\n\nv1\n", encoding="utf-8")
        url = f"http://127.0.0.1:{here.port}"
        assert main(["forget", str(ids), "--bandit", "shop", "--url", url]) == 0
        said = capsys.readouterr().out
        assert "2 decisions are forgotten; 1 of the ids are unknown." in said
    assert main(["check", str(tmp_path / "log.db")]) == 0


@pytest.mark.no_cover
def test_a_snapshot_that_is_lost_is_folded_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path, SLOW)
    shop.visit(30)
    old = Snapshot(1, shop.learner.place, shop.learner.snapshot())
    forget(shop, "d5", "d6", "d28")
    digest = shop.learner.digest()
    for kept in ([], [old]):  # none, and one that knows what was forgotten
        shop.stop()
        db = SQLiteStore(tmp_path / "log.db")
        db._db.execute("DELETE FROM snapshots")
        append(db, [], kept)
        db.close()
        shop._open()
        assert shop.learner.digest() == digest
    shop.now[0] += DAY
    shop.end()
