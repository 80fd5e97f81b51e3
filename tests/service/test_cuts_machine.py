"""A service whose log is cut and that forgets, against a model: random calls in random order, and restarts."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from postgres_server import Postgres
from served import check_fold

from robandit.service.files.check import check_bandits
from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.serving import leftovers
from robandit.service.stores import Store, open_store
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.changes import Change, ShadowChange
from robandit.wire.cuts import CutMade
from robandit.wire.events import Decided, decode
from robandit.wire.forgetting import ForgetMade
from robandit.wire.types import Action, BanditSettings, Choice, Chosen, Feedback

DAY, WINDOW = 86_400.0, 10 * 86_400.0
IDS = st.sampled_from(["a", "b", "é", "\0", "x" * 128, "d1", "d2", "d3"])
SETTINGS = BanditSettings(dim=2, noise_range=0.5, reward_window=WINDOW, exploration=0.5)


class Model(RuleBasedStateMachine):
    """What is known of each decision: when it was made, its answer, and when it became final, by what."""

    make: Callable[[str, Callable[[], float]], Store]

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.time = 1000.0
        self.answers: dict[str, Chosen] = {}
        self.final: dict[str, float | None] = {}
        self.made, self.ended = dict[str, float](), dict[str, float]()
        self.cut: CutMade | None = None
        self.version = 1
        self.rounds: list[int] = []  # of all decisions that are not forgotten
        self.loop = asyncio.new_event_loop()
        self.where = type(self).url(Path(self.folder.name))
        self._open()

    @staticmethod
    def url(folder: Path) -> str:
        """Where the store is."""
        return str(folder / "log.db")

    def _open(self) -> None:
        store = type(self).make(self.where, lambda: self.time)
        store.now = lambda: self.time  # type: ignore[method-assign]
        self.hub = Hub(store, ticks=lambda: self.time)
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
        assert self._do(self.hub.create("shop", SETTINGS, 7)) is True

    @rule(id=IDS)
    def decide(self, id: str) -> None:  # noqa: A002
        choice = Choice(actions=[Action("x", [0.1, 0.2]), Action("y", [0.2, 0.1])], decision_id=id)
        found = self._do(self.hub.decide("shop", choice))
        if id in self.answers:
            assert found == self.answers[id]
            return
        assert isinstance(found, Chosen) and found.round == max(self.rounds, default=0) + 1
        self.rounds.append(found.round)
        self.answers[id], self.made[id] = found, self.hub.clock()

    @rule(id=IDS, value=st.sampled_from([0.0, 0.5]))
    def reward(self, id: str, value: float) -> None:  # noqa: A002
        (found,) = self._do(self.hub.reward("shop", [Feedback(decision_id=id, reward=value)]))
        if id not in self.answers:
            assert found.status == "unknown"
        elif id not in self.final:
            assert found.status == "accepted"
            self.final[id], self.ended[id] = value, self.hub.clock()
        else:
            assert found.status == ("duplicate" if self.final[id] == value else "conflict")

    @rule(days=st.sampled_from([0.1, 1.0, 2.0]))
    def advance(self, days: float) -> None:
        if days * DAY + max([0.0, *(self.time - at for id, at in self.made.items() if id not in self.final)]) < WINDOW:  # noqa: A001
            self.time += days * DAY

    @rule(days=st.sampled_from([0.0, 0.5, 1.0, 3.0]))
    def cut_log(self, days: float) -> None:
        self.time += 0.001
        found = self._do(self.hub.cut("shop", days))
        assert isinstance(found, CutMade)
        if self.cut is not None:
            assert found.events >= self.cut.events and found.decisions >= self.cut.decisions
        if found != (self.cut or CutMade()):
            assert found.before is not None and found.before < self.time - days * DAY
            self._do(self.hub.purge())
            for id in [id for id, at in self.ended.items() if at <= found.before]:  # noqa: A001
                for known in (self.answers, self.final, self.made, self.ended):
                    del known[id]
            self.cut = found

    @rule(ids=st.sets(IDS, min_size=1, max_size=3))
    def forget(self, ids: set[str]) -> None:
        asked, known = sorted(ids), ids & set(self.answers)
        before = -1.0 if self.cut is None or self.cut.before is None else self.cut.before
        stay = {one for one in known if self.made[one] <= before}
        expected = ForgetMade(
            decisions=len(known - stay),
            unknown=[one for one in asked if one not in known],
            cut=[one for one in asked if one in stay],
        )
        assert self._do(self.hub.forget("shop", asked)) == expected
        for one in known - stay:
            self.rounds.remove(self.answers.pop(one).round)
            for times in (self.final, self.made, self.ended):
                times.pop(one, None)

    @rule(policy=st.sampled_from(["oful", "quorum", "lin-ts"]), watch=st.booleans())
    def change(self, policy: str, watch: bool) -> None:
        shadow = ShadowChange(name="one", policy=policy)
        wanted = Change(version=self.version, shadow=shadow) if watch else Change(version=self.version, policy=policy)
        made = self._do(self.hub.change("shop", wanted))
        self.version += 1
        assert made.version == self.version and made.learnt_after == (self.cut.events if self.cut else 0)
        assert self._do(self.hub.change("shop", wanted)) == made

    @rule()
    def restart(self) -> None:
        before = self.hub.bandits["shop"].learner.digest()
        self._close()
        self._open()
        assert self.hub.bandits["shop"].learner.digest() == before

    @rule()
    def read(self) -> None:
        """The log has every decision that is known, once, before its reward."""

        async def whole() -> list[Any]:
            return [decode(line) async for page in self.hub.log("shop") for line in page]

        log = self._do(whole())
        assert [one.id for one in log if isinstance(one, Decided)] == list(self.answers)
        seen: set[str] = set()
        for event in log:
            if isinstance(event, Decided):
                seen.add(event.id)
            elif hasattr(event, "reward"):
                assert event.id in seen

    @invariant()
    def all_is_counted(self) -> None:
        if "shop" in self.hub.bandits:
            learner = self.hub.bandits["shop"].learner
            assert learner.decisions == len(self.rounds)
            assert learner.policy.rounds == max(self.rounds, default=0)
            assert list(learner.pending) == [one for one in self.answers if one not in self.final]

    def teardown(self) -> None:
        self._close()
        self.loop.close()
        store = type(self).make(self.where, lambda: self.time)
        assert [one.faults for one in check_bandits(store)] == [[]]
        check_fold(store)
        self.folder.cleanup()


class OnSQLite(Model):
    @staticmethod
    def make(where: str, clock: Callable[[], float]) -> Store:
        return SQLiteStore(where, synchronous="OFF", clock=clock)


def run(machine: type[Model], examples: int, steps: int) -> None:
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=slow,
    )
    with patch.object(leftovers, "PURGE", 3):
        run_state_machine_as_test(machine, settings=chosen)


def test_a_log_that_is_cut_is_as_its_model() -> None:
    run(OnSQLite, 25, 30)


@pytest.mark.slow
def test_a_log_that_is_cut_is_as_its_model_at_length() -> None:
    run(OnSQLite, 1000, 60)


@pytest.fixture
def postgres() -> Iterator[Postgres]:
    one = Postgres()
    try:
        yield one
    finally:
        one.close()


@pytest.mark.engines
def test_a_log_in_postgresql_that_is_cut_is_as_its_model(postgres: Postgres) -> None:
    numbers = itertools.count()

    class OnPostgres(Model):
        @staticmethod
        def url(folder: Path) -> str:
            return postgres.new(f"machine{next(numbers)}")

        @staticmethod
        def make(where: str, clock: Callable[[], float]) -> Store:
            return open_store(where)

    run(OnPostgres, 8, 25)
