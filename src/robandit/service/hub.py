"""All bandits of a service: every change goes through one queue, is written in groups, and is answered once written."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from robandit.arrays import Floats
from robandit.monitor.certificate import Certificate
from robandit.policies import POLICIES
from robandit.service.learner import Learner
from robandit.service.looker import look
from robandit.service.stores.store import KINDS, Bandit, Entry, Item, Snapshot, Store, StoreError, append, events
from robandit.wire.events import Closed, Decided, Event, Proved, Rewarded
from robandit.wire.types import Alarm, Choice, Chosen, Feedback, Outcome, Settings, Status

log = logging.getLogger("robandit.service")

_STOPPING = "the service can't write and is stopping; ask again, with the same ids, when it is back"
_LOOKS = 1.1  # by how much the monitor's rounds grow from look to look
SNAPSHOT_EVERY = 20_000
"""Events of a bandit from one snapshot to the next, at least."""


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
    fresh: dict[tuple[int, str], Event] = field(default_factory=dict)
    """What is being written, by kind and id."""


class _Job(NamedTuple):
    run: Callable[[list[Item]], Any]
    answer: asyncio.Future[Any]


class Hub:
    """Brings requests to learners, their events to the store, and answers back."""

    def __init__(self, store: Store, *, look: Callable[[dict[str, Any]], Certificate | None] = look) -> None:
        self._store, self._look = store, look
        self.wards: dict[str, Ward] = {}
        self._jobs: list[_Job] = []
        self._wake = asyncio.Event()
        self.broken: str | None = None
        """Why nothing can be written any more."""
        for entry in store.bandits():
            self._adopt(entry)
        store.release()

    # Requests.

    async def create(self, name: str, settings: Settings, seed: int | None) -> bool:
        """Create a bandit, or confirm that it is there as described. Gives whether it is new."""
        return await self._ask(lambda items: self._create(name, settings, seed, items))

    async def decide(self, name: str, choice: Choice) -> Chosen:
        return await self._ask(lambda items: self._decide(self._ward(name), choice, items))

    async def reward(self, name: str, given: Sequence[Feedback]) -> list[Outcome]:
        return await self._ask(lambda items: self._reward(self._ward(name), given, items))

    async def close_windows(self) -> None:
        """Apply defaults where rewards did not come in time."""
        await self._ask(self._close_all)

    async def look(self) -> None:
        """Look at the monitors that have seen a tenth more than last time, on copies, and write down what is new."""
        if not await self._ask(lambda items: self._store.watches()):
            return
        for ward in list(self.wards.values()):
            rounds = ward.learner.monitor.rounds
            if rounds > _LOOKS * ward.seen:
                ward.seen = rounds
                found = await asyncio.to_thread(self._look, ward.learner.monitor.state())
                if found is not None:
                    await self._ask(partial(self._prove, ward, found))

    def status(self, name: str) -> Status:
        ward = self._ward(name)
        learner = ward.learner
        first, best, held = learner.alarm, learner.proof, learner.policy.estimate()
        return Status(
            name=name,
            settings=ward.settings,
            now=self._store.now(),
            rounds=learner.policy.rounds,
            pending=len(learner.pending),
            rewards=learner.rewards,
            defaults=learner.defaults,
            lost=learner.lost,
            levels=sorted(learner.levels.items()),
            estimate=held.center.tolist(),
            uncertainty=(held.radius * np.linalg.norm(held.root, axis=1)).tolist(),
            recent=list(learner.recent),
            curves=learner.history.curves,
            certificate=Alarm(
                lower_bound=best.lower_bound if best else 0.0,
                sentence=best.sentence if best else "No corruption is proved.",
                alarm=first.round if first else None,
                at=first.at if first else None,
                since=best.since if best else None,
            ),
        )

    def log(self, name: str) -> AsyncIterator[list[bytes]]:
        """A bandit's log so far, some events at a time, as `encode` has them."""
        return self._pages(self._ward(name))

    async def _pages(self, ward: Ward) -> AsyncIterator[list[bytes]]:
        after, last = 0, ward.learner.place
        while after < last:
            page = await self._ask(partial(self._page, ward, after))
            yield page[: last - after]
            after += len(page)

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
                yield f'robandit_{metric}{{bandit="{name}"}} {value(ward.learner)!r}'

    def _ward(self, name: str) -> Ward:
        if name not in self.wards:
            raise Refused(404, f"there is no bandit {name!r}; create it with PUT /v1/bandits/{name}")
        return self.wards[name]

    # What they do. Each runs alone, and puts what is to be written into ``items``.

    def _create(self, name: str, settings: Settings, seed: int | None, items: list[Item]) -> bool:
        if name in self.wards:
            ward = self.wards[name]
            if ward.settings != settings or (seed is not None and seed != ward.entry.seed):
                raise Refused(409, f"bandit {name!r} is there already with other settings; choose another name")
            return False
        if settings.policy not in POLICIES:
            raise Refused(422, f"policy must be one of {', '.join(POLICIES)}, got {settings.policy!r}")
        drawn = secrets.randbits(63) if seed is None else seed
        try:
            learner = Learner(settings, drawn)
        except (ValueError, TypeError) as error:
            raise Refused(422, str(error)) from None
        number = 1 + max((ward.entry.number for ward in self.wards.values()), default=0)
        entry = Bandit(number, name, msgspec.json.encode(settings), drawn, self._store.now())
        self.wards[name] = Ward(entry, settings, learner)
        items.append(entry)
        return True

    def _decide(self, ward: Ward, choice: Choice, items: list[Item]) -> Chosen:
        names = [action.id for action in choice.actions]
        known = None if choice.decision_id is None else self._find(ward, choice.decision_id, final=False)
        if isinstance(known, Decided):
            if known.actions != names or known.features != choice.actions[known.index].features:
                raise Refused(409, f"decision {choice.decision_id!r} was made already, between other actions")
            if choice.source not in (None, known.source):
                raise Refused(409, f"decision {choice.decision_id!r} was made already, for source {known.source!r}")
            return _answer(known)
        if len(set(names)) < len(names):
            raise Refused(422, "the ids of actions must differ")
        decided = self._draw(ward, choice, names)
        self._put(ward, decided, items)
        return _answer(decided)

    def _draw(self, ward: Ward, choice: Choice, names: list[str]) -> Decided:
        sigmas = [action.sigma for action in choice.actions]
        sigma = [ward.settings.noise_range if one is None else one for one in sigmas] if any(sigmas) else None
        try:
            return ward.learner.decide(
                id=choice.decision_id or f"{ward.learner.policy.rounds + 1}-{secrets.token_urlsafe(12)}",
                now=self._store.now(),
                actions=names,
                features=_features(choice, ward.settings.dim),
                sigma=sigma,
                source=choice.source,
            )
        except ValueError as error:
            raise Refused(422, str(error)) from None

    def _reward(self, ward: Ward, given: Sequence[Feedback], items: list[Item]) -> list[Outcome]:
        self._close(ward, items)
        return [Outcome(decision_id=one.decision_id, status=self._one_reward(ward, one, items)) for one in given]

    def _one_reward(self, ward: Ward, given: Feedback, items: list[Item]) -> str:
        if given.decision_id in ward.learner.pending:
            self._put(ward, Rewarded(id=given.decision_id, at=self._now(ward), reward=given.reward), items)
            return "accepted"
        final = self._find(ward, given.decision_id, final=True)
        if final is None:
            return "unknown"
        if isinstance(final, Closed):
            return "expired"
        return "duplicate" if isinstance(final, Rewarded) and final.reward == given.reward else "conflict"

    def _prove(self, ward: Ward, found: Certificate, items: list[Item]) -> None:
        best = ward.learner.proof
        if found.lower_bound > (best.lower_bound if best else 0.0):
            event = Proved(
                id=str(ward.learner.place + 1),  # a look at the same rounds may prove more elsewhere, by rounding
                at=self._now(ward),
                round=found.rounds,
                lower_bound=found.lower_bound,
                since=found.since,
                sentence=found.sentence,
            )
            self._put(ward, event, items)
            log.warning("bandit %s: %s", ward.entry.name, found.sentence)

    def _page(self, ward: Ward, after: int, items: list[Item]) -> list[bytes]:
        return self._store.page(ward.entry.number, after)

    def _close_all(self, items: list[Item]) -> None:
        for ward in self.wards.values():
            self._close(ward, items)

    def _close(self, ward: Ward, items: list[Item]) -> None:
        for event in ward.learner.due(self._store.now()):
            self._put(ward, event, items)

    def _now(self, ward: Ward) -> float:
        return max(self._store.now(), ward.learner.clock)

    def _find(self, ward: Ward, id: str, *, final: bool) -> Event | None:  # noqa: A002
        """A decision, or its reward or default: written, or about to be."""
        return ward.fresh.get((int(final), id)) or self._store.find(ward.entry.number, id, final=final)

    def _put(self, ward: Ward, event: Event, items: list[Item]) -> None:
        ward.learner.apply(event)
        ward.fresh[KINDS[type(event)], event.id] = event
        items.append(Entry(ward.entry.number, ward.learner.place, event))

    # The queue.

    async def _ask(self, run: Callable[[list[Item]], Any]) -> Any:
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
        for job in self._jobs:  # which came meanwhile
            job.answer.set_exception(Refused(503, _STOPPING))

    async def _group(self, jobs: Sequence[_Job]) -> None:
        """Do these one after the other, write what came of them at once, then answer all."""
        results: list[Any] = []
        try:
            if self._store.shared:
                self._catch_up(await asyncio.to_thread(self._store.news))
            items = self._run(jobs, results)
            if items:
                await self._write(items)
            elif self._store.shared:
                await asyncio.to_thread(self._store.release)
        except Exception as error:  # a state that is half changed must not go on
            self.broken = str(error)
            log.critical("nothing is acknowledged any more, and the service stops", exc_info=error)
            results = [Refused(503, _STOPPING)] * len(jobs)
        for ward in self.wards.values():
            ward.fresh.clear()
        for job, result in zip(jobs, results, strict=True):
            if not job.answer.done():
                job.answer.set_exception(result) if isinstance(result, Exception) else job.answer.set_result(result)

    def _run(self, jobs: Sequence[_Job], results: list[Any]) -> list[Item]:
        """What is to be written of these; their results are added to ``results``."""
        items: list[Item] = []
        for job in jobs:
            try:
                results.append(job.run(items))
            except Refused as error:
                results.append(error)
        return items

    async def _write(self, items: Sequence[Item]) -> None:
        """Where putting is quick, only the commit is for a thread: two that are busy hold each other up."""
        kept = self._snapshots()
        if self._store.shared:
            await asyncio.to_thread(append, self._store, items, kept)
        else:
            self._store.put(items, kept)
            await asyncio.to_thread(self._store.commit)

    def _adopt(self, entry: Bandit) -> None:
        """A bandit from the store: its state is that of its last snapshot and the log since."""
        settings = msgspec.json.decode(entry.settings, type=Settings)
        learner, kept = Learner(settings, entry.seed), self._store.snapshot(entry.number)
        if kept is not None:
            try:
                learner = Learner.restore(settings, entry.seed, kept.body)
            except (ValueError, KeyError, TypeError) as error:
                log.warning("bandit %s: its snapshot is of no use (%r); its whole log is folded", entry.name, error)
        saved = learner.place
        for event in events(self._store, entry.number, learner.place):
            learner.apply(event)
        self.wards[entry.name] = Ward(entry, settings, learner, saved)

    def _catch_up(self, news: Sequence[Item]) -> None:
        """Fold in what other processes have written."""
        numbers = {ward.entry.number: ward for ward in self.wards.values()}
        for item in news:
            if isinstance(item, Bandit):
                if item.name not in self.wards:
                    self._adopt(item)
                numbers[item.number] = self.wards[item.name]
            elif item.place > numbers[item.bandit].learner.place:
                numbers[item.bandit].learner.apply(item.event)

    def _snapshots(self, *, of_all: bool = False) -> list[Snapshot]:
        """States of bandits to which much has happened, or anything. They are no part of any promise."""
        found = []
        for ward in self.wards.values():
            new = ward.learner.place - ward.saved
            if new >= (1 if of_all else max(SNAPSHOT_EVERY, len(ward.learner.pending))):  # large ones are rarer
                ward.saved = ward.learner.place
                found.append(Snapshot(ward.entry.number, ward.saved, ward.learner.snapshot()))
        return found

    def stop(self) -> None:
        """Keep snapshots of all, for a quick start."""
        if self.broken is None and (kept := self._snapshots(of_all=True)):
            try:
                append(self._store, [], kept)
            except StoreError as error:
                log.error("no snapshots were kept; the next start takes longer: %s", error)
        self._store.close()


def _features(choice: Choice, dim: int) -> Floats:
    """Of all actions, (K, d)."""
    for action in choice.actions:
        if len(action.features) != dim:
            raise Refused(422, f"action {action.id!r} has {len(action.features)} features, and should have {dim}")
    count = len(choice.actions)
    numbers = chain.from_iterable(action.features for action in choice.actions)
    return np.fromiter(numbers, np.float64, count * dim).reshape(count, dim)  # a third of the time of np.array


def _answer(decided: Decided) -> Chosen:
    return Chosen(
        decision_id=decided.id,
        action_id=decided.actions[decided.index],
        index=decided.index,
        propensity=decided.propensity,
        round=decided.round,
    )
