"""All bandits of a service: every change goes through one queue, is written in groups, and is answered once written."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import time
from typing import Any, NamedTuple

import msgspec
import numpy as np

from robandit.certificate import Certificate
from robandit.policies import POLICIES
from robandit.service.events import Closed, Decided, Event, Proved, Rewarded
from robandit.service.learner import Learner
from robandit.service.store import Bandit, Entry, Store, StoreError
from robandit.service.types import Alarm, Choice, Chosen, Feedback, Outcome, Settings, Status

log = logging.getLogger("robandit.service")

_STOPPING = "the service can't write and is stopping; ask again, with the same ids, when it is back"
_LOOKS = 1.1  # by how much the monitor's rounds grow from look to look
SNAPSHOT_EVERY = 20_000
"""Events of a bandit from one snapshot to the next."""


class Refused(Exception):  # noqa: N818 - it is what became of the request
    """A request that can't be; nothing has changed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Ward:
    """A bandit and its learner."""

    entry: Bandit
    settings: Settings
    learner: Learner
    saved: int = 0
    """The place of the last snapshot."""
    seen: int = 0
    """The rounds that the monitor had when it was last looked at."""
    fresh: dict[str, Event] = field(default_factory=dict)
    """Rewards and defaults that are being written."""


class _Job(NamedTuple):
    run: Callable[[list[Entry]], Any]
    answer: asyncio.Future[Any]


class Hub:
    """Brings requests to learners, their events to the store, and answers back."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time) -> None:
        self._store, self._clock = store, clock
        self.wards: dict[str, Ward] = {}
        self._jobs: list[_Job] = []
        self._wake = asyncio.Event()
        self.broken: str | None = None
        """Why nothing can be written any more."""
        for entry in store.bandits():
            settings = msgspec.json.decode(entry.settings, type=Settings)
            self.wards[entry.name] = Ward(entry, settings, _fold(store, entry, settings))

    # Requests.

    async def create(self, name: str, settings: Settings, seed: int | None) -> bool:
        """Create a bandit, or confirm that it is there as described. Gives whether it is new."""
        return await self._ask(lambda entries: self._create(name, settings, seed))

    async def decide(self, name: str, choice: Choice) -> Chosen:
        return await self._ask(lambda entries: self._decide(self._ward(name), choice, entries))

    async def reward(self, name: str, items: Sequence[Feedback]) -> list[Outcome]:
        return await self._ask(lambda entries: self._reward(self._ward(name), items, entries))

    async def close_windows(self) -> None:
        """Apply defaults where rewards did not come in time."""
        await self._ask(self._close_all)

    async def look(self) -> None:
        """Look at the monitors that have seen a tenth more than last time, on copies, and write down what is new."""
        for ward in list(self.wards.values()):
            rounds = ward.learner.monitor.rounds
            if rounds > _LOOKS * ward.seen:
                ward.seen = rounds
                found = await asyncio.to_thread(ward.learner.onlooker().certificate)
                await self._ask(partial(self._prove, ward, found))

    def status(self, name: str) -> Status:
        ward = self._ward(name)
        learner = ward.learner
        proof = learner.proof
        return Status(
            name=name,
            settings=ward.settings,
            rounds=learner.policy.rounds,
            pending=len(learner.pending),
            rewards=learner.rewards,
            defaults=learner.defaults,
            lost=learner.lost,
            estimate=learner.policy.estimate().center.tolist(),
            recent=list(learner.recent),
            certificate=Alarm(
                lower_bound=proof.lower_bound if proof else 0.0,
                sentence=proof.sentence if proof else "No corruption is proved.",
                alarm=learner.alarm,
                since=proof.since if proof else None,
            ),
        )

    def events(self, name: str) -> Iterator[Event]:
        """A bandit's log so far."""
        return self._store.events(self._ward(name).entry.number)

    def metrics(self) -> Iterator[str]:
        """What Prometheus reads."""
        for metric, kind, value in (
            ("rounds_total", "counter", lambda learner: learner.policy.rounds),
            ("rewards_total", "counter", lambda learner: learner.rewards),
            ("defaults_total", "counter", lambda learner: learner.defaults),
            ("lost_total", "counter", lambda learner: learner.lost),
            ("pending", "gauge", lambda learner: len(learner.pending)),
            ("corruption_proved", "gauge", lambda learner: learner.proof.lower_bound if learner.proof else 0.0),
        ):
            yield f"# TYPE robandit_{metric} {kind}"
            for name, ward in self.wards.items():
                yield f'robandit_{metric}{{bandit="{name}"}} {value(ward.learner):g}'

    def _ward(self, name: str) -> Ward:
        if name not in self.wards:
            raise Refused(404, f"there is no bandit {name!r}; create it with PUT /v1/bandits/{name}")
        return self.wards[name]

    # What they do. Each runs alone, and puts what is to be written into ``entries``.

    def _create(self, name: str, settings: Settings, seed: int | None) -> bool:
        if name in self.wards:
            ward = self.wards[name]
            if ward.settings != settings or (seed is not None and seed != ward.entry.seed):
                raise Refused(409, f"bandit {name!r} is there already with other settings; choose another name")
            return False
        if settings.policy not in POLICIES:
            raise Refused(422, f"policy must be one of {', '.join(POLICIES)}, got {settings.policy!r}")
        drawn = secrets.randbits(64) if seed is None else seed
        try:
            learner = Learner(settings, drawn)
        except (ValueError, TypeError) as error:
            raise Refused(422, str(error)) from None
        entry = self._store.create(name, msgspec.json.encode(settings), drawn, self._clock())
        self.wards[name] = Ward(entry, settings, learner)
        return True

    def _decide(self, ward: Ward, choice: Choice, entries: list[Entry]) -> Chosen:
        names = [action.id for action in choice.actions]
        if choice.decision_id is not None:
            waiting = ward.learner.pending.get(choice.decision_id)
            known = waiting or self._store.find(ward.entry.number, choice.decision_id, final=False)
            if isinstance(known, Decided):
                if known.actions != names:
                    raise Refused(409, f"decision {choice.decision_id!r} was made already, between other actions")
                return _answer(known)
        if len(set(names)) < len(names):
            raise Refused(422, "the ids of actions must differ")
        decided = self._draw(ward, choice, names)
        self._put(ward, decided, entries)
        return _answer(decided)

    def _draw(self, ward: Ward, choice: Choice, names: list[str]) -> Decided:
        sigmas = [action.sigma for action in choice.actions]
        sigma = [ward.settings.noise_range if one is None else one for one in sigmas] if any(sigmas) else None
        try:
            return ward.learner.decide(
                id=choice.decision_id or secrets.token_urlsafe(16),
                now=self._clock(),
                actions=names,
                features=np.array([action.features for action in choice.actions]),
                sigma=sigma,
                source=choice.source,
            )
        except ValueError as error:
            raise Refused(422, str(error)) from None

    def _reward(self, ward: Ward, items: Sequence[Feedback], entries: list[Entry]) -> list[Outcome]:
        self._close(ward, entries)
        return [Outcome(decision_id=item.decision_id, status=self._one_reward(ward, item, entries)) for item in items]

    def _one_reward(self, ward: Ward, item: Feedback, entries: list[Entry]) -> str:
        if item.decision_id in ward.learner.pending:
            now = max(self._clock(), ward.learner.clock)
            self._put(ward, Rewarded(id=item.decision_id, at=now, reward=item.reward), entries)
            return "accepted"
        final = ward.fresh.get(item.decision_id)
        final = final or self._store.find(ward.entry.number, item.decision_id, final=True)
        if final is None:
            return "unknown"
        if isinstance(final, Closed):
            return "expired"
        return "duplicate" if isinstance(final, Rewarded) and final.reward == item.reward else "conflict"

    def _prove(self, ward: Ward, found: Certificate, entries: list[Entry]) -> None:
        best = ward.learner.proof.lower_bound if ward.learner.proof else 0.0
        if found.lower_bound > best:
            now = max(self._clock(), ward.learner.clock)
            event = Proved(
                id=str(found.rounds),
                at=now,
                round=found.rounds,
                lower_bound=found.lower_bound,
                since=found.since,
                sentence=found.sentence,
            )
            self._put(ward, event, entries)
            log.warning("bandit %s: %s", ward.entry.name, found.sentence)

    def _close_all(self, entries: list[Entry]) -> None:
        for ward in self.wards.values():
            self._close(ward, entries)

    def _close(self, ward: Ward, entries: list[Entry]) -> None:
        for event in ward.learner.due(self._clock()):
            self._put(ward, event, entries)

    def _put(self, ward: Ward, event: Event, entries: list[Entry]) -> None:
        ward.learner.apply(event)
        if isinstance(event, (Rewarded, Closed)):
            ward.fresh[event.id] = event
        entries.append(Entry(ward.entry.number, ward.learner.place, event))

    # The queue.

    async def _ask(self, run: Callable[[list[Entry]], Any]) -> Any:
        if self.broken is not None:
            raise Refused(503, _STOPPING)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(run, answer))
        self._wake.set()
        return await answer

    async def work(self) -> None:
        """Serve the queue until something can't be written; then nothing is acknowledged any more."""
        while self.broken is None:
            await self._wake.wait()
            self._wake.clear()
            jobs, self._jobs = self._jobs, []
            await self._group(jobs)

    async def _group(self, jobs: Sequence[_Job]) -> None:
        """Do these one after the other, write what came of them at once, then answer all."""
        entries: list[Entry] = []
        results: list[Any] = []
        for job in jobs:
            try:
                results.append(job.run(entries))
            except Refused as error:
                results.append(error)
            except Exception as error:  # a state that is half changed must not go on
                self._break(error)
                break
        try:
            if entries and self.broken is None:
                await asyncio.to_thread(self._store.append, entries)
        except StoreError as error:
            self._break(error)
        if self.broken is not None:
            results = [Refused(503, _STOPPING)] * len(jobs)
        for ward in self.wards.values():
            ward.fresh.clear()
        for job, result in zip(jobs, results, strict=True):
            if not job.answer.done():
                job.answer.set_exception(result) if isinstance(result, Exception) else job.answer.set_result(result)
        self._save_some(SNAPSHOT_EVERY)

    def _break(self, error: Exception) -> None:
        self.broken = str(error)
        log.critical("nothing is acknowledged any more, and the service stops", exc_info=error)

    def _save_some(self, every: int) -> None:
        """Keep snapshots of bandits to which so much has happened. They are no part of any promise."""
        for ward in self.wards.values():
            if self.broken is None and ward.learner.place >= ward.saved + every:
                try:
                    self._store.save_snapshot(ward.entry.number, ward.learner.place, ward.learner.snapshot())
                except StoreError as error:
                    self._break(error)
                ward.saved = ward.learner.place

    def stop(self) -> None:
        """Keep snapshots of all, for a quick start."""
        self._save_some(1)
        self._store.close()


def _fold(store: Store, entry: Bandit, settings: Settings) -> Learner:
    """The state of a bandit, from its last snapshot and the log since."""
    found = store.snapshot(entry.number)
    learner = Learner(settings, entry.seed) if found is None else Learner.restore(settings, entry.seed, found[1])
    for event in store.events(entry.number, learner.place):
        learner.apply(event)
    return learner


def _answer(decided: Decided) -> Chosen:
    return Chosen(
        decision_id=decided.id,
        action_id=decided.actions[decided.index],
        index=decided.index,
        propensity=decided.propensity,
        round=decided.round,
    )
