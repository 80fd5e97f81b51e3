"""All bandits of a service. Every change goes through one queue, is written in a group, and is then answered."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec

from robandit.monitor.certificate import Certificate
from robandit.service.learner import Learner
from robandit.service.looker import look
from robandit.service.refused import Refused, check_rewards
from robandit.service.stores.store import (
    KINDS,
    Bandit,
    DamageError,
    Item,
    LogEntry,
    Snapshot,
    Store,
    StoreError,
    append,
    events,
)
from robandit.service.vectors import Vectors
from robandit.service.worth import worth
from robandit.wire.events import Closed, Decided, Event, Proved, Rewarded
from robandit.wire.types import Alarm, BanditSettings, Choice, Chosen, Feedback, Outcome, Status

log = logging.getLogger("robandit.service")

_STOPPING = "the service can't write and is stopping; ask again, with the same ids, when it is back"
_LOOKS = 1.1  # factor by which the monitor's rounds grow from look to look
SNAPSHOT_EVERY = 20_000
"""Least number of events from one snapshot of a bandit to the next."""


@dataclass
class LiveBandit:
    """A bandit that is being served: its record in the store, and its state."""

    record: Bandit
    settings: BanditSettings
    learner: Learner
    vectors: Vectors
    saved: int = 0
    """Place of the last snapshot."""
    seen: int = 0
    """Number of rounds that the monitor had at the last look."""
    fresh: dict[tuple[int, str], Event] = field(default_factory=dict)
    """Events that are being written, by kind and id."""


class _Job(NamedTuple):
    """A request in the queue: what to run, and where its answer goes."""

    run: Callable[[list[Item]], Any]
    answer: asyncio.Future[Any]


class Hub:
    """Takes requests to learners, their events to the store, and the answers back."""

    def __init__(self, store: Store, *, look: Callable[[dict[str, Any]], Certificate | None] = look) -> None:
        self._store, self._look = store, look
        self.bandits: dict[str, LiveBandit] = {}
        self._jobs: list[_Job] = []
        self._wake = asyncio.Event()
        self.broken: str | None = None
        """The reason why nothing can be written any more."""
        if found := store.faults():
            raise DamageError(f"the store is damaged: {found[0]}; restore it from a backup")
        for record in store.bandits():
            self._adopt(record)
        store.release()

    # Requests.

    async def create(
        self, name: str, settings: BanditSettings, seed: int | None, given: Iterable[str] | None = None
    ) -> bool:
        """Create a bandit, or confirm that it is there as described; return whether it is new.

        ``given`` are the settings that describe it; by default all do. The others may differ: an older release may have
        chosen them.
        """
        described = settings.__struct_fields__ if given is None else tuple(given)
        return await self._ask(lambda items: self._create(name, settings, seed, described, items))

    async def decide(self, name: str, choice: Choice) -> Chosen:
        """Choose an action; with a known ``decision_id``, repeat the answer."""
        return await self._ask(lambda items: self._decide(self._bandit(name), choice, items))

    async def reward(self, name: str, given: Sequence[Feedback]) -> list[Outcome]:
        """Take rewards in, and say what became of each."""
        return await self._ask(lambda items: self._reward(self._bandit(name), given, items))

    async def close_windows(self) -> None:
        """Apply defaults where rewards did not come in time."""
        await self._ask(self._close_all)

    async def look(self) -> None:
        """Look at copies of the monitors that have seen a tenth more than last time, and write down what is new."""
        if not await self._ask(lambda items: self._store.watches()):
            return
        for bandit in list(self.bandits.values()):
            rounds = bandit.learner.monitor.rounds
            if rounds > _LOOKS * bandit.seen:
                bandit.seen = rounds
                found = await asyncio.to_thread(self._look, bandit.learner.monitor.state())
                if found is not None:
                    await self._ask(partial(self._prove, bandit, found))

    def status(self, name: str) -> Status:
        """How a bandit is doing."""
        bandit = self._bandit(name)
        learner = bandit.learner
        known = worth(learner, bandit.vectors.span)
        features, low = bandit.vectors.features, learner.declared.low if learner.declared else 0.0
        return Status(
            name=name,
            settings=bandit.settings,
            now=self._store.now(),
            rounds=learner.policy.rounds,
            pending=len(learner.pending),
            rewards=learner.rewards,
            defaults=learner.defaults,
            lost=learner.lost,
            levels=sorted(learner.levels.items()),
            estimate=known.estimate.tolist(),
            standard_error=known.standard_error.tolist(),
            uncertainty=known.uncertainty.tolist(),
            named=None if features is None else known.named(features, low),
            unusual=learner.unusual,
            recent=list(learner.recent),
            curves=learner.history.curves,
            certificate=_alarm(learner.alarm, learner.proof),
        )

    def log(self, name: str) -> AsyncIterator[list[bytes]]:
        """A bandit's log so far, some events at a time, as `encode` writes them."""
        return self._pages(self._bandit(name))

    async def _pages(self, bandit: LiveBandit) -> AsyncIterator[list[bytes]]:
        after, last = 0, bandit.learner.place
        while after < last:
            page = await self._ask(partial(self._page, bandit, after))
            yield page[: last - after]
            after += len(page)

    def metrics(self, names: Iterable[str]) -> Iterator[str]:
        """The lines that Prometheus reads about these bandits."""
        for metric, kind, value in (
            ("rounds_total", "counter", lambda learner: learner.policy.rounds),
            ("rewards_total", "counter", lambda learner: learner.rewards),
            ("defaults_total", "counter", lambda learner: learner.defaults),
            ("lost_total", "counter", lambda learner: learner.lost),
            ("pending", "gauge", lambda learner: len(learner.pending)),
            ("corruption_proved", "gauge", lambda learner: learner.proof.lower_bound if learner.proof else 0.0),
        ):
            yield f"# TYPE robandit_{metric} {kind}"
            for name in names:
                yield f'robandit_{metric}{{bandit="{name}"}} {value(self.bandits[name].learner)!r}'

    def _bandit(self, name: str) -> LiveBandit:
        if name not in self.bandits:
            raise Refused(404, f"there is no bandit {name!r}; create it with PUT /v1/bandits/{name}")
        return self.bandits[name]

    # What the requests do. Each runs alone, and adds what is to be written to ``items``.

    def _create(
        self, name: str, settings: BanditSettings, seed: int | None, given: Sequence[str], items: list[Item]
    ) -> bool:
        if name in self.bandits:
            bandit = self.bandits[name]
            other = [one for one in given if getattr(bandit.settings, one) != getattr(settings, one)]
            other += ["seed"] if seed is not None and seed != bandit.record.seed else []
            if other:
                raise Refused(
                    409, f"bandit {name!r} is there already with other settings ({other[0]}); choose another name"
                )
            return False
        drawn = secrets.randbits(63) if seed is None else seed
        try:
            learner = Learner(settings, drawn)
        except (ValueError, TypeError) as error:
            raise Refused(422, str(error)) from None
        number = 1 + max((bandit.record.number for bandit in self.bandits.values()), default=0)
        record = Bandit(number, name, msgspec.json.encode(settings), drawn, self._store.now())
        self.bandits[name] = LiveBandit(record, settings, learner, Vectors(settings))
        items.append(record)
        return True

    def _decide(self, bandit: LiveBandit, choice: Choice, items: list[Item]) -> Chosen:
        names = [action.id for action in choice.actions]
        known = None if choice.decision_id is None else self._find(bandit, choice.decision_id, final=False)
        if isinstance(known, Decided):
            if known.actions != names or known.features != bandit.vectors(choice)[0][known.index].tolist():
                raise Refused(409, f"decision {choice.decision_id!r} was made already, between other actions")
            if choice.source not in (None, known.source):
                raise Refused(409, f"decision {choice.decision_id!r} was made already, for source {known.source!r}")
            return _answer(known)
        if len(set(names)) < len(names):
            twice = next(name for place, name in enumerate(names) if name in names[:place])
            raise Refused(422, f"the ids of actions must differ, and {twice!r} is there twice")
        decided = self._draw(bandit, choice, names)
        self._put(bandit, decided, items)
        return _answer(decided)

    def _draw(self, bandit: LiveBandit, choice: Choice, names: list[str]) -> Decided:
        sigmas = [action.sigma for action in choice.actions]
        features, unusual = bandit.vectors(choice)
        try:
            return bandit.learner.decide(
                id=choice.decision_id or f"{bandit.learner.policy.rounds + 1}-{secrets.token_urlsafe(12)}",
                now=self._store.now(),
                actions=names,
                features=features,
                sigma=sigmas if any(sigmas) else None,
                source=choice.source,
                unusual=unusual,
            )
        except ValueError as error:
            raise Refused(422, str(error)) from None

    def _reward(self, bandit: LiveBandit, given: Sequence[Feedback], items: list[Item]) -> list[Outcome]:
        check_rewards(bandit.learner.declared, given)
        self._close(bandit, items)
        return [Outcome(decision_id=one.decision_id, status=self._one_reward(bandit, one, items)) for one in given]

    def _one_reward(self, bandit: LiveBandit, given: Feedback, items: list[Item]) -> str:
        if given.decision_id in bandit.learner.pending:
            self._put(bandit, Rewarded(id=given.decision_id, at=self._now(bandit), reward=given.reward), items)
            return "accepted"
        final = self._find(bandit, given.decision_id, final=True)
        if final is None:
            return "unknown"
        if isinstance(final, Closed):
            return "expired"
        return "duplicate" if isinstance(final, Rewarded) and final.reward == given.reward else "conflict"

    def _prove(self, bandit: LiveBandit, found: Certificate, items: list[Item]) -> None:
        best = bandit.learner.proof
        if found.lower_bound > (best.lower_bound if best else 0.0):
            event = Proved(
                id=str(bandit.learner.place + 1),  # a look at the same rounds may prove more elsewhere, by rounding
                at=self._now(bandit),
                round=found.rounds,
                lower_bound=found.lower_bound,
                since=found.since,
                sentence=found.sentence,
            )
            self._put(bandit, event, items)
            log.warning("bandit %s: %s", bandit.record.name, found.sentence)

    def _page(self, bandit: LiveBandit, after: int, items: list[Item]) -> list[bytes]:
        return self._store.page(bandit.record.number, after)

    def _close_all(self, items: list[Item]) -> None:
        for bandit in self.bandits.values():
            self._close(bandit, items)

    def _close(self, bandit: LiveBandit, items: list[Item]) -> None:
        for event in bandit.learner.due(self._store.now()):
            self._put(bandit, event, items)

    def _now(self, bandit: LiveBandit) -> float:
        return max(self._store.now(), bandit.learner.clock)

    def _find(self, bandit: LiveBandit, id: str, *, final: bool) -> Event | None:  # noqa: A002
        """The decision of an id, or its reward or default, whether it is written or about to be."""
        return bandit.fresh.get((int(final), id)) or self._store.find(bandit.record.number, id, final=final)

    def _put(self, bandit: LiveBandit, event: Event, items: list[Item]) -> None:
        bandit.learner.apply(event)
        bandit.fresh[KINDS[type(event)], event.id] = event
        items.append(LogEntry(bandit.record.number, bandit.learner.place, event))

    # The queue.

    async def _ask(self, run: Callable[[list[Item]], Any]) -> Any:
        if self.broken is not None:
            raise Refused(503, _STOPPING)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(run, answer))
        self._wake.set()
        return await answer

    async def work(self) -> None:
        """Serve the queue until something can't be written. From then on nothing is acknowledged."""
        while self.broken is None:
            await self._wake.wait()
            self._wake.clear()
            jobs, self._jobs = self._jobs, []
            await self._group(jobs)
        for job in self._jobs:  # they came meanwhile
            job.answer.set_exception(Refused(503, _STOPPING))

    async def _group(self, jobs: Sequence[_Job]) -> None:
        """Run these jobs one after the other, write all their events at once, then answer all."""
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
        for bandit in self.bandits.values():
            bandit.fresh.clear()
        for job, result in zip(jobs, results, strict=True):
            if not job.answer.done():
                job.answer.set_exception(result) if isinstance(result, Exception) else job.answer.set_result(result)

    def _run(self, jobs: Sequence[_Job], results: list[Any]) -> list[Item]:
        """Run jobs, add their results to ``results``, and return what is to be written."""
        items: list[Item] = []
        for job in jobs:
            try:
                results.append(job.run(items))
            except Refused as error:
                results.append(error)
            except DamageError as error:  # of one event, so that the others can still be served
                log.critical("a request needs what is damaged: %s", error)
                results.append(Refused(500, "what this needs is damaged; the service's log says where"))
        return items

    async def _write(self, items: Sequence[Item]) -> None:
        """Write and commit. Where putting is quick, a thread only commits: two busy threads slow each other down."""
        kept = self._snapshots()
        if self._store.shared:
            await asyncio.to_thread(append, self._store, items, kept)
        else:
            self._store.put(items, kept)
            await asyncio.to_thread(self._store.commit)

    def _adopt(self, record: Bandit) -> None:
        """Serve a bandit of the store: take its last snapshot and fold in the log since."""
        settings = msgspec.json.decode(record.settings, type=BanditSettings)
        learner = Learner(settings, record.seed)
        try:
            if (kept := self._store.snapshot(record.number)) is not None:
                learner = Learner.restore(settings, record.seed, kept.body)
        except (DamageError, ValueError, KeyError, TypeError) as error:
            log.warning("bandit %s: its snapshot is of no use (%r); its whole log is folded", record.name, error)
        saved = learner.place
        for event in events(self._store, record.number, learner.place):
            learner.apply(event)
        self.bandits[record.name] = LiveBandit(record, settings, learner, Vectors(settings), saved)

    def _catch_up(self, news: Sequence[Item]) -> None:
        """Fold in what other processes have written."""
        numbers = {bandit.record.number: bandit for bandit in self.bandits.values()}
        for item in news:
            if isinstance(item, Bandit):
                if item.name not in self.bandits:
                    self._adopt(item)
                numbers[item.number] = self.bandits[item.name]
            elif item.place > numbers[item.bandit].learner.place:
                numbers[item.bandit].learner.apply(item.event)

    def _snapshots(self, *, of_all: bool = False) -> list[Snapshot]:
        """Snapshots of the bandits that have changed much since the last one, or at all. No promise depends on them."""
        found = []
        for bandit in self.bandits.values():
            new = bandit.learner.place - bandit.saved
            if new >= (1 if of_all else max(SNAPSHOT_EVERY, len(bandit.learner.pending))):  # large ones are rarer
                bandit.saved = bandit.learner.place
                found.append(Snapshot(bandit.record.number, bandit.saved, bandit.learner.snapshot()))
        return found

    def stop(self) -> None:
        """Keep snapshots of all bandits, for a quick start, and close the store."""
        if self.broken is None and (kept := self._snapshots(of_all=True)):
            try:
                append(self._store, [], kept)
            except StoreError as error:
                log.error("no snapshots were kept; the next start takes longer: %s", error)
        self._store.close()


def _alarm(first: Proved | None, best: Proved | None) -> Alarm:
    return Alarm(
        lower_bound=best.lower_bound if best else 0.0,
        sentence=best.sentence if best else "No corruption is proved.",
        alarm=first.round if first else None,
        at=first.at if first else None,
        since=best.since if best else None,
    )


def _answer(decided: Decided) -> Chosen:
    return Chosen(
        decision_id=decided.id,
        action_id=decided.actions[decided.index],
        index=decided.index,
        propensity=decided.propensity,
        round=decided.round,
    )
