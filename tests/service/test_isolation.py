"""No request holds up the others for long: what is too dear is refused, and what is large is done in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import pytest
from served import check_fold, offer, working

from robandit.policies import POLICIES
from robandit.policies.parts import GrowingStatistics
from robandit.service.hub import Hub
from robandit.service.learning.learner import Learner
from robandit.service.refused import Refused
from robandit.service.requests import cost
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.types import NEED_CORRUPTION, Action, BanditSettings, Choice, Feedback, RewardRange
from thinned import longer

LEVELS = "multi-level-weighted-oful"


def many(number: int, dim: int) -> Choice:
    rows = np.random.default_rng(1).uniform(-1.0, 1.0, (number, dim)) / dim**0.5
    return Choice(actions=[Action(str(i), row) for i, row in enumerate(rows.tolist())])


def test_what_is_too_dear_is_refused(tmp_path: Path) -> None:
    """These held everybody up: for 2.6 seconds, 17 seconds, and more than 200 seconds with 5.9 GB."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    found = working(
        hub,
        lambda: hub.create("levels", BanditSettings(dim=18, policy=LEVELS), 7),
        lambda: hub.decide("levels", many(10_000, 18)),
        lambda: hub.decide("levels", many(20, 18)),
        lambda: hub.create("wide", BanditSettings(dim=1000, policy=LEVELS), 7),
        lambda: hub.create("slow", BanditSettings(dim=400, policy=LEVELS), 7),
        lambda: hub.create("shop", BanditSettings(dim=100), 7),
        lambda: hub.decide("shop", many(9000, 100)),
    )
    assert [one.status for one in found if isinstance(one, Refused)] == [413, 422, 422, 413]
    most = cost.most_actions(LEVELS, 18)
    assert f"up to {most:,} actions" in str(found[1]) and 500 < most < 2000
    assert found[2].round == 1 and "keeps" in str(found[3]) and "fewer" in str(found[4])
    hub.stop()
    assert {name: len(log) for name, log in check_fold(SQLiteStore(tmp_path / "log.db")).items()} == {
        "levels": 1,
        "shop": 0,
    }


def alike(count: int, dim: int) -> dict[str, np.ndarray]:
    """Sets of actions among which a choice is hard: many are best, or nearly."""
    rng, turn = np.random.default_rng(1), np.linspace(0.0, 2.0 * np.pi, count)
    one = rng.uniform(-1.0, 1.0, dim) / dim**0.5
    ring = np.column_stack([np.cos(turn), np.sin(turn), *[np.zeros(count)] * (dim - 2)])
    rounded = one * (1.0 - 1e-9 * rng.random((count, 1)))
    return {"equal": np.tile(one, (count, 1)), "equal but for rounding": rounded, "ring": ring}


def busy(work: Callable[[], Any]) -> float:
    """The least CPU time of three."""
    took = []
    for _ in range(3):
        begin = process_time()
        work()
        took.append(process_time() - begin)
    return min(took)


@pytest.mark.no_cover
@pytest.mark.parametrize("dim", longer(20, 2))
@pytest.mark.parametrize("policy", [LEVELS, "exp3p", "cobe", "stochastic-corral"])
def test_actions_that_are_alike_hold_nobody_up(policy: str, dim: int) -> None:
    """Ten thousand that were equal but for rounding took Multi-level 134 ms, where 30 are allowed."""
    learner, count = Learner(BanditSettings(dim=dim, policy=policy), 1), min(10_000, cost.most_actions(policy, dim))
    names = [str(i) for i in range(count)]
    slower = max(1.0, busy(lambda: sum(i * i for i in range(300_000))) / 0.009)  # than where costs were measured
    for kind, rows in alike(count, dim).items():
        took = busy(partial(learner.decide, id="d", now=0.0, actions=names, features=rows, sigma=None, source=None))
        assert took < 0.05 * slower, kind


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", POLICIES)
def test_the_size_of_a_state_is_foreseen(policy: str) -> None:
    """The number of matrices is found on a small bandit; a larger one has no more."""
    settings = BanditSettings(dim=40, policy=policy, corruption=1.0 if policy in NEED_CORRUPTION else None)
    learnt = Learner(settings, 1).policy
    if isinstance(learnt.stats, GrowingStatistics):
        learnt.stats.make_room(None)
    state = learnt.state()["arrays"]
    numbers = sum(array.size for array in state.values())
    assert 0.7 * numbers <= cost._copies(settings) * 40**2 <= 2.0 * numbers + 40**2
    assert cost.most_actions(policy, 20) >= 600 and cost.most_actions(policy, 2) >= 900


def test_a_quorum_whose_votes_would_hold_the_others_up_is_refused() -> None:
    """With 200 features a vote of 33 sources took 158 ms."""
    for dim, sources in ((100, None), (200, 1)):
        named: dict[str, float | bool] | None = None if sources is None else {"max_sources": sources}
        cost.check_creation(BanditSettings(dim=dim, policy="quorum", policy_settings=named))
    with pytest.raises(Refused, match="200 features and 32 sources may take 272 ms for a vote, and up to 50 are"):
        cost.check_creation(BanditSettings(dim=200, policy="quorum"))


@pytest.mark.no_cover
def test_others_come_in_between_a_large_batch(tmp_path: Path) -> None:
    """A batch of 20 000 unknown ids is done in parts; a decision that was asked for after it is answered before it."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    order: list[str] = []

    async def note(name: str, call: Any) -> Any:
        found = await call
        order.append(name)
        return found

    async def both() -> Any:
        batch = [Feedback(decision_id=f"x{i}", reward=0.1) for i in range(20_000)]
        batch[77] = Feedback(decision_id="d", reward=0.5)
        batch[19_999] = Feedback(decision_id="d", reward=0.5)
        large = asyncio.create_task(note("batch", hub.reward("shop", batch)))
        await asyncio.sleep(0.01)
        await note("decision", hub.decide("shop", offer("other")))
        return await large

    _, _, found = working(
        hub,
        lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7),
        lambda: hub.decide("shop", offer("d")),
        both,
    )
    assert order == ["decision", "batch"] and len(found) == 20_000
    assert (found[77].status, found[19_999].status) == ("accepted", "duplicate")
    assert {one.status for one in found} == {"accepted", "duplicate", "unknown"}
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_a_batch_beyond_the_range_changes_nothing(tmp_path: Path) -> None:
    """All of a batch is checked before the first part of it counts."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    batch = [Feedback(decision_id="d", reward=0.5)] * 5000 + [Feedback(decision_id="e", reward=7.0)]
    settings = BanditSettings(dim=3, noise_range=0.5, rewards=RewardRange(low=0.0, high=1.0))
    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        lambda: hub.decide("shop", offer("d")),
        lambda: hub.reward("shop", batch),
    )
    assert found[2].status == 422 and hub.bandits["shop"].learner.rewards == 0
    hub.stop()


@pytest.mark.no_cover
def test_idle_bandits_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request, a tick and a look touch only what has changed, however many bandits there are."""
    hub = Hub(SQLiteStore(tmp_path / "log.db", synchronous="OFF"))
    settings = BanditSettings(dim=3, noise_range=0.5)
    working_calls = [partial(hub.create, f"b{i}", settings, i) for i in range(300)]
    touched: list[LiveBandit] = []
    real = LiveBandit.__getattribute__

    def watch(bandit: LiveBandit, name: str) -> Any:
        touched.append(bandit)
        return real(bandit, name)

    async def begin() -> None:
        monkeypatch.setattr(LiveBandit, "__getattribute__", watch)

    async def end() -> None:
        monkeypatch.undo()

    working(
        hub,
        *working_calls,
        lambda: hub.decide("b7", offer("d")),
        hub.look,
        begin,
        lambda: hub.decide("b7", offer("e")),
        lambda: hub.reward("b7", [Feedback(decision_id="e", reward=0.1)]),
        hub.close_windows,
        hub.look,
        end,
    )
    assert {bandit.record.name for bandit in touched} == {"b7"}
    hub.stop()


def test_windows_of_many_bandits_close(tmp_path: Path) -> None:
    now = [1e9]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]), ticks=lambda: now[0])
    rng = np.random.default_rng(1)
    windows = {f"b{i}": float(rng.integers(1, 100)) for i in range(20)}
    asked: list[Callable[[], Any]] = [
        partial(hub.create, name, BanditSettings(dim=3, reward_window=window), 1) for name, window in windows.items()
    ]
    asked += [partial(hub.decide, name, offer(f"{name}-{i}")) for i in range(3) for name in windows]

    async def check(passed: float) -> None:
        now[0] = 1e9 + passed
        await hub.close_windows()
        for name, window in windows.items():
            assert len(hub.bandits[name].learner.pending) == (0 if passed >= window else 3)

    working(hub, *asked, *(partial(check, float(passed)) for passed in range(0, 105, 5)))
    assert hub.bandits["b0"].learner.lost == 3 and hub.broken is None
    hub.stop()


def test_windows_that_close_at_once_close_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others come in between, and a reward that is late is late, whether its window has had its turn or not."""
    now = [1e9]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]), ticks=lambda: now[0])
    monkeypatch.setattr("robandit.service.serving.live.SLICE", 1e-9)  # twenty windows at a time
    turns: list[int] = []

    async def close() -> None:
        now[0] += 100.0
        late = await hub.reward("shop", [Feedback(decision_id="d150", reward=0.1)])
        assert [one.status for one in late] == ["expired"]
        closing = asyncio.create_task(hub.close_windows())
        while not closing.done():
            await hub.decide("other", offer(f"o{len(turns)}"))
            turns.append(len(hub.bandits["shop"].learner.pending))
        await closing

    settings = BanditSettings(dim=3, noise_range=0.5, reward_window=60.0)
    asked: list[Callable[[], Any]] = [partial(hub.create, name, settings, 1) for name in ("shop", "other")]
    working(hub, *asked, *(partial(hub.decide, "shop", offer(f"d{i}")) for i in range(200)), close)
    assert turns[-1] == 0 and len(set(turns)) > 5 and hub.bandits["shop"].learner.lost == 200
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_a_log_of_large_decisions_is_read_in_small_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page of a thousand decisions between 10 000 actions has 200 MB; while it was read nobody else was served."""
    monkeypatch.setattr("robandit.service.stores.sql.PAGE_BYTES", 50_000)
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    pages: list[list[bytes]] = []

    async def read() -> None:
        pages.extend([page async for page in hub.log("shop")])

    settings = BanditSettings(dim=2, policy="oful", exploration=0.1)
    large = [partial(hub.decide, "shop", many(count, 2)) for count in (*[300] * 20, 3000, 3000)]
    working(hub, lambda: hub.create("shop", settings, 7), *large, read)
    sizes = [sum(map(len, page)) for page in pages]
    assert sum(map(len, pages)) == 22 and sizes[-2:] == [len(one) for page in pages[-2:] for one in page]
    assert all(size <= 50_000 for size in sizes[:-2]) and len(pages) < 12
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))
