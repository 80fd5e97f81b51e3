"""The service against a model: random calls in random order, with clocks that jump and restarts."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from served import check_fold, log_of

from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.events import Closed, Decided, Rewarded
from robandit.wire.types import Action, BanditSettings, Choice, Chosen, Feedback

WINDOW = 60.0
NAMES = st.sampled_from(["shop", "Shop", "other"])
IDS = st.sampled_from(["a", "A", "é", "e\u0301", "\0", "x" * 128])
REWARDS = st.sampled_from([0.0, -0.0, 0.5, -1.0, 1e9, 5e-324])
SOURCES = st.sampled_from([None, "", "web", "\0"])
SETTINGS = {
    "shop": BanditSettings(dim=2, noise_range=0.5, reward_window=WINDOW, default_reward=0.25, sources=1),
    "Shop": BanditSettings(dim=2, noise_range=0.5, reward_window=WINDOW, policy="multi-level-weighted-oful", horizon=3),
    "other": BanditSettings(dim=2, noise_range=0.5, reward_window=WINDOW, policy="lin-ts", exploration=0.5),
}


@dataclass
class Expected:
    """What the model knows about a bandit."""

    held: float = 0.0
    """Time before which no window closes, since the service was started shortly before."""
    answers: dict[str, tuple[Choice, Chosen]] = field(default_factory=dict)
    pending: dict[str, float] = field(default_factory=dict)
    final: dict[str, float | None] = field(default_factory=dict)
    """The reward, or None for a window that closed."""


class Model(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.wall, self.ticks = 1000.0, 0.0
        self.known = {name: Expected() for name in SETTINGS}
        self.loop = asyncio.new_event_loop()
        self._open()

    def _open(self) -> None:
        path = Path(self.folder.name) / "log.db"
        store = SQLiteStore(path, synchronous="OFF", clock=lambda: self.wall)
        self.hub = Hub(store, ticks=lambda: self.ticks)
        self.work = self.loop.create_task(self.hub.work())

    def _close(self) -> None:
        self.work.cancel()
        self.loop.run_until_complete(asyncio.gather(self.work, return_exceptions=True))
        self.hub.stop()

    def _do(self, call: Awaitable[Any]) -> Any:
        try:
            return self.loop.run_until_complete(call)
        except Refused as error:
            return error.status

    @initialize()
    def create(self) -> None:
        for seed, (name, wanted) in enumerate(SETTINGS.items()):
            assert self._do(self.hub.create(name, wanted, seed)) is True

    @rule(name=NAMES, seed=st.sampled_from([None, 0, 1, 2, 3]), other=st.sampled_from(list(SETTINGS)))
    def create_again(self, name: str, seed: int | None, other: str) -> None:
        same = name == other and seed in (None, list(SETTINGS).index(name))
        assert self._do(self.hub.create(name, SETTINGS[other], seed)) == (False if same else 409)

    @rule(name=NAMES, id=IDS, count=st.integers(1, 3), turn=st.sampled_from([0.1, 1.0, 1e-300]), source=SOURCES)
    def decide(self, name: str, id: str, count: int, turn: float, source: str | None) -> None:  # noqa: A002
        """Decide for the first time or again, with the same request or with a changed one."""
        actions = [Action(str(i), [turn if i % 2 else 0.0, 0.0 if i % 2 else turn]) for i in range(count)]
        choice = Choice(actions=actions, decision_id=id, source=source)
        known, found = self.known[name], self._do(self.hub.decide(name, choice))
        if id in known.answers:
            before, answer = known.answers[id]
            same = before.actions == choice.actions and source in (None, before.source)
            assert found == (answer if same else 409)
            return
        assert isinstance(found, Chosen) and found.decision_id == id and found.round == len(known.answers) + 1
        assert 0.0 < found.propensity <= 1.0
        known.answers[id], known.pending[id] = (choice, found), self.hub.clock()

    @rule(name=NAMES, id=IDS, value=REWARDS)
    def reward_late(self, name: str, id: str, value: float) -> None:  # noqa: A002
        self.advance(2 * WINDOW)
        self.reward(name, [(id, value)])

    @rule(name=NAMES, given=st.lists(st.tuples(IDS, REWARDS), min_size=1, max_size=4))
    def reward(self, name: str, given: list[tuple[str, float]]) -> None:
        """Send several rewards at once, some of which may be the same."""
        self._expire(name)
        known, expected = self.known[name], []
        for one, value in given:
            if one in known.pending:
                del known.pending[one]
                known.final[one] = value
                expected.append("accepted")
            elif one not in known.final:
                expected.append("unknown")
            elif known.final[one] is None:
                expected.append("expired")
            else:
                expected.append("duplicate" if known.final[one] == value else "conflict")
        items = [Feedback(decision_id=one, reward=value) for one, value in given]
        assert [one.status for one in self._do(self.hub.reward(name, items))] == expected

    def _expire(self, name: str) -> None:
        known, now = self.known[name], self.hub.clock()
        for one in [one for one, at in known.pending.items() if now >= max(at + WINDOW, known.held)]:
            del known.pending[one]
            known.final[one] = None

    @rule()
    def close_windows(self) -> None:
        assert self._do(self.hub.close_windows()) is None
        for name in SETTINGS:
            self._expire(name)

    @rule(seconds=st.sampled_from([0.5, WINDOW / 2, WINDOW, 1e9]))
    def advance(self, seconds: float) -> None:
        """Time passes, and the service's time does, too, within a tenth."""
        before = self.hub.clock()
        self.wall, self.ticks = self.wall + seconds, self.ticks + seconds
        assert 0.89 * seconds <= self.hub.clock() - before <= 1.11 * seconds

    @rule(seconds=st.sampled_from([0.5, WINDOW, 1e9, -0.5, -WINDOW, -900.0]))
    def jump(self, seconds: float) -> None:
        """Somebody sets the machine's clock, which nobody notices."""
        before = self.hub.clock()
        self.wall += seconds
        assert self.hub.clock() == before

    @rule()
    def look(self) -> None:
        assert self._do(self.hub.look()) is None

    @rule(name=st.sampled_from(["nobody", "SHOP", ""]), id=IDS)
    def nobody(self, name: str, id: str) -> None:  # noqa: A002
        assert self._do(self.hub.decide(name, Choice(actions=[Action("a", [0.0, 0.0])], decision_id=id))) == 404
        assert self._do(self.hub.reward(name, [Feedback(decision_id=id, reward=0.0)])) == 404

    @rule()
    def restart(self) -> None:
        before = {name: bandit.learner.digest() for name, bandit in self.hub.bandits.items()}
        self._close()
        self._open()
        for known in self.known.values():
            known.held = self.hub.clock() + WINDOW
        assert {name: bandit.learner.digest() for name, bandit in self.hub.bandits.items()} == before

    @invariant()
    def all_is_counted_once(self) -> None:
        for name, bandit in self.hub.bandits.items():
            learner, known = bandit.learner, self.known[name]
            assert learner.policy.rounds == len(known.answers) and list(learner.pending) == list(known.pending)
            closed = sum(reward is None for reward in known.final.values())
            counts = (closed, 0) if bandit.settings.default_reward is not None else (0, closed)
            assert (learner.rewards, learner.defaults, learner.lost) == (len(known.final) - closed, *counts)

    def teardown(self) -> None:
        for name, bandit in self.hub.bandits.items():
            known, log = self.known[name], list(log_of(self.hub, bandit.record.name))
            assert [one.id for one in log if isinstance(one, Decided)] == list(known.answers)
            got = [(one.id, one.reward) for one in log if isinstance(one, Rewarded)]
            assert sorted(got) == sorted((one, reward) for one, reward in known.final.items() if reward is not None)
            shut = [one.id for one in log if isinstance(one, Closed)]
            assert sorted(shut) == sorted(one for one, reward in known.final.items() if reward is None)
            assert [one.at for one in log] == sorted(one.at for one in log)
        self._close()
        self.loop.close()
        check_fold(SQLiteStore(Path(self.folder.name) / "log.db"))
        self.folder.cleanup()


def run(examples: int, steps: int) -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=slow,
    )
    run_state_machine_as_test(Model, settings=chosen)


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore::robandit.GuaranteeLapsed")
def test_the_service_is_as_its_model() -> None:
    run(30, 30)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::robandit.GuaranteeLapsed")
def test_the_service_is_as_its_model_at_length() -> None:
    run(1000, 60)
