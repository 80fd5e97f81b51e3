"""Groups of changes: while one is being committed, the next is computed, and nothing is answered before it is safe."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served import check_fold, offer

from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Item, Snapshot, StoreError
from robandit.wire.types import Action, BanditSettings, Choice, Chosen, Feedback


class SlowStore(SQLiteStore):
    """Commits only when it may, and fails when it must."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.may, self.fails, self.groups = threading.Event(), False, list[int]()
        self.may.set()

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        self.groups.append(len(items))
        super().put(items, snapshots)

    def commit(self) -> None:
        assert self.may.wait(20)
        if self.fails:
            self._db.execute("ROLLBACK")
            raise StoreError("the disk is gone")
        super().commit()


def free(name: str) -> Any:
    """A decision whose id the service draws: it need not look whether it was made before."""
    choice = offer(name)
    return type(choice)(actions=choice.actions)


async def begun(hub: Hub, store: SlowStore) -> asyncio.Task[None]:
    """Let the hub work, make a bandit, and hold the next commit up."""
    work = asyncio.create_task(hub.work())
    await hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7)
    store.may.clear()
    return work


async def soon(condition: Any) -> None:
    """Wait until this is so."""
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to that")


def test_the_next_group_is_computed_while_the_last_one_syncs(tmp_path: Path) -> None:
    """What needs the store waits, what does not has run, and nothing is answered before its commit."""
    store = SlowStore(tmp_path / "log.db")
    hub = Hub(store)

    async def go() -> None:
        work = await begun(hub, store)
        learner = hub.bandits["shop"].learner
        first = asyncio.create_task(hub.decide("shop", free("a")))
        await soon(lambda: len(store.groups) == 2)  # its commit has begun
        others = [asyncio.create_task(hub.decide("shop", free(name))) for name in "bcd"]
        known = asyncio.create_task(hub.decide("shop", offer("mine")))
        unknown = [Feedback(decision_id=name, reward=0.1) for name in (*learner.pending, "nobody")]
        rewards = asyncio.create_task(hub.reward("shop", unknown))
        await asyncio.sleep(0.05)
        assert learner.policy.rounds == 4 and len(learner.pending) == 3  # the reward of the first counts already
        assert not any(task.done() for task in (first, *others, known, rewards))
        store.may.set()
        found = await asyncio.gather(first, *others, known)
        assert [one.round for one in found] == [1, 2, 3, 4, 5]
        assert [one.status for one in await rewards] == ["accepted", "unknown"]
        assert store.groups[:3] == [1, 1, 5]  # three decisions, a reward, and what waited for the store
        work.cancel()

    asyncio.run(go())
    hub.stop()
    assert len(check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]) == 6


@pytest.mark.parametrize("own", [False, True])
def test_decisions_that_run_together_are_those_that_would_run_alone(own: bool, tmp_path: Path) -> None:
    """In the order in which they came, with ids of their own or without. One that is refused holds up nobody."""
    features = np.random.default_rng(1).uniform(-0.5, 0.5, (12, 4, 3))
    choices = [Choice(actions=[Action(str(i), row) for i, row in enumerate(menu)]) for menu in features.tolist()]
    choices[4] = Choice(actions=[Action("a", [9.0, 0.0, 0.0])])
    if own:
        choices = [msgspec.structs.replace(one, decision_id=f"d{number}") for number, one in enumerate(choices)]
        choices[6] = choices[5]  # a retry that comes with what it repeats
        choices[8] = msgspec.structs.replace(choices[8], decision_id="d2")  # of another decision
    choices[7] = msgspec.structs.replace(choices[7], decision_id="mine")
    choices[9] = msgspec.structs.replace(choices[9], source="ads")
    logs, answers = [], []
    for together in (True, False):
        hub = Hub(SQLiteStore(tmp_path / f"{together}.db"), ticks=lambda: 0.0)
        found: dict[int, Any] = {}

        async def go(hub: Hub = hub, found: dict[int, Any] = found, together: bool = together) -> None:
            work = asyncio.create_task(hub.work())
            await hub.create("shop", BanditSettings(dim=3, noise_range=0.5, exploration=0.3), 7)
            for number, choice in enumerate(choices):
                hub.decide_soon("shop", choice, partial(found.__setitem__, number))
                if not together:
                    await soon(lambda wanted=number: len(found) > wanted)
            await soon(lambda: len(found) == len(choices))
            work.cancel()

        asyncio.run(go())
        events = [msgspec.structs.replace(one, at=0.0, id="") for one in check_fold(hub._store)["shop"]]
        logs.append(events)
        answers.append([str(one) if isinstance(one, Exception) else one.index for _, one in sorted(found.items())])
    assert logs[0] == logs[1] and len(logs[0]) == (9 if own else 11)
    assert answers[0] == answers[1] and "norm" in answers[0][4]
    assert not own or (answers[0][5] == answers[0][6] and "already" in answers[0][8])


def test_decisions_with_ids_wait_together_for_a_store_that_is_writing(tmp_path: Path) -> None:
    """Another job that comes meanwhile does not, and none is lost."""
    store = SlowStore(tmp_path / "log.db")
    hub = Hub(store)

    async def go() -> None:
        work = await begun(hub, store)
        first = asyncio.create_task(hub.decide("shop", free("a")))
        await soon(lambda: len(store.groups) == 2)  # its commit has begun
        found: dict[str, Any] = {}
        hub.decide_soon("shop", free("z"), partial(found.__setitem__, "z"))
        for place, name in enumerate(("x", "y", "y")):  # the last one is a retry
            hub.decide_soon("shop", offer(name), partial(found.__setitem__, f"{place}"))
        (pending,) = hub.bandits["shop"].learner.pending
        rewards = asyncio.create_task(hub.reward("shop", [Feedback(decision_id=pending, reward=0.1)]))
        await asyncio.sleep(0.05)
        assert hub.bandits["shop"].learner.rewards == 1 and not found and not rewards.done()
        store.may.set()
        await soon(lambda: len(found) == 4)
        assert [found[name].decision_id for name in "012"] == ["x", "y", "y"]
        assert (await first).round == 1 and [one.status for one in await rewards] == ["accepted"]
        work.cancel()

    asyncio.run(go())
    hub.stop()
    assert len(check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]) == 5


def test_a_commit_that_fails_takes_the_next_group_with_it(tmp_path: Path) -> None:
    store = SlowStore(tmp_path / "log.db")
    hub = Hub(store)

    async def go() -> list[Any]:
        work = await begun(hub, store)
        first = asyncio.create_task(hub.decide("shop", free("a")))
        await soon(lambda: len(store.groups) == 2)
        rest = [asyncio.create_task(hub.decide("shop", one)) for one in (free("b"), offer("mine"))]
        await asyncio.sleep(0.02)
        store.fails = True
        store.may.set()
        found = await asyncio.gather(first, *rest, return_exceptions=True)
        await work
        return [*found, *await asyncio.gather(hub.decide("shop", free("c")), return_exceptions=True)]

    found = asyncio.run(go())
    assert [one.status for one in found] == [503] * 4 and hub.broken == "the disk is gone"
    hub.stop()
    assert check_fold(SQLiteStore(tmp_path / "log.db")) == {"shop": []}


@pytest.mark.parametrize("fails", [False, True])
def test_a_stop_in_the_middle_leaves_whole_groups(tmp_path: Path, fails: bool) -> None:
    """What was computed and not answered is written, unless the group before it was not."""
    store = SlowStore(tmp_path / "log.db")
    hub = Hub(store)

    async def go() -> None:
        work = await begun(hub, store)
        tasks = [asyncio.create_task(hub.decide("shop", free("a")))]
        await soon(lambda: len(store.groups) == 2)
        tasks.append(asyncio.create_task(hub.decide("shop", free("b"))))
        await asyncio.sleep(0.02)
        for task in (work, *tasks):
            task.cancel()
        store.fails = fails
        store.may.set()

    asyncio.run(go())
    hub.stop()
    assert len(check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]) == (0 if fails else 2)


def test_a_job_that_fails_stops_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have changed half of a state: nothing of its group is acknowledged or written."""
    store = SlowStore(tmp_path / "log.db")
    hub = Hub(store)

    async def go() -> list[Any]:
        work = await begun(hub, store)
        store.may.set()
        kept: Chosen = await hub.decide("shop", free("a"))
        assert kept.round == 1
        monkeypatch.setattr(hub.bandits["shop"].learner, "apply", lambda event, fresh: 1 / 0)
        found = await asyncio.gather(hub.decide("shop", free("b")), return_exceptions=True)
        await work
        return [*found]

    (found,) = asyncio.run(go())
    assert isinstance(found, Refused) and found.status == 503 and hub.broken == "division by zero"
    hub.stop()
    assert len(check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]) == 1
