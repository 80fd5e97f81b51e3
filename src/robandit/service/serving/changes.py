"""What the requests do to bandits. Each call runs alone, and adds what is to be written to ``items``."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import NamedTuple, TypeVar

import msgspec

from robandit.geometry.large_sets import LARGE
from robandit.monitor.certificate import Certificate
from robandit.service.clock import ServiceClock
from robandit.service.learning.learner import Asked, Learner
from robandit.service.refused import Gone, Refused
from robandit.service.requests.cost import SLICE, check_creation, check_decision, check_watched
from robandit.service.requests.vectors import Vectors
from robandit.service.serving.change_queue import Together, damaged
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit, StoreBusyError
from robandit.service.stores.store import UNPLACED, Bandit, DamageError, Item, LogEntry
from robandit.wire.events import Closed, Decided, Imported, Proved, Rewarded
from robandit.wire.types import Answered, BanditSettings, Choice, ChoiceBlock, Chosen, Feedback, NamedChoice, Outcome

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger("robandit.service")


class NoRoundsError(Exception):
    """A decision needs a round, and none is reserved for the bandit. Nothing has changed."""

    def __init__(self, bandit: LiveBandit) -> None:
        super().__init__(bandit.record.name)
        self.bandit = bandit


class UnwrittenDecision(NamedTuple):
    """A decision that is not written yet."""

    bandit: LiveBandit
    event: Decided
    repeat: Callable[[Decided | Imported], Chosen]
    """Makes the answer, should the id belong to this decision instead."""


class Changes:
    """Creates bandits, decides, takes rewards and writes down proofs."""

    def __init__(self, bandits: Bandits, clock: ServiceClock) -> None:
        self._bandits, self._clock = bandits, clock

    def create(
        self, name: str, settings: BanditSettings, seed: int | None, given: Sequence[str], items: list[Item]
    ) -> bool:
        """Create a bandit, or confirm that it is there with the settings ``given``; return whether it is new."""
        self._bandits.check_served(name)
        if name in self._bandits:
            bandit = self._bandits[name]
            first = msgspec.json.decode(bandit.record.settings, type=BanditSettings)
            there = first, bandit.settings  # which an operator may have changed
            other = [one for one in given if getattr(settings, one) not in [getattr(known, one) for known in there]]
            other += ["seed"] if seed is not None and seed != bandit.record.seed else []
            if other:
                raise Refused(
                    409, f"bandit {name!r} is there already with other settings ({other[0]}); choose another name"
                )
            return False
        drawn = secrets.randbits(63) if seed is None else seed
        try:
            check_creation(settings)
            learner = Learner(settings, drawn)
        except (ValueError, TypeError) as error:
            raise Refused(422, str(error)) from None
        record = Bandit(self._bandits.next_number(), name, msgspec.json.encode(settings), drawn, self._clock())
        self._bandits.add(LiveBandit(record, learner, Vectors(settings)))
        items.append(record)
        return True

    def decide(self, bandit: LiveBandit, choice: Choice | ChoiceBlock, items: list[Item]) -> Chosen:
        """Choose an action; with a known ``decision_id``, repeat the answer."""
        check_active(bandit)
        names = bandit.vectors.names(choice)
        known = None if choice.decision_id is None else self._bandits.find(bandit, choice.decision_id, final=False)
        if isinstance(known, Decided | Imported):
            return self._repeat(bandit, choice, known)
        decided = self._draw(bandit, choice, names)
        self._bandits.put(bandit, decided, items)
        return chosen(decided)

    def together(self, bandit: LiveBandit, choice: Choice | ChoiceBlock) -> Together | None:
        """How this choice is made with others, if that is faster."""
        size = (
            len(choice.features) // 8 if isinstance(choice, ChoiceBlock) else len(choice.actions) * bandit.settings.dim
        )
        if size >= LARGE or not bandit.learner.many:
            return None
        return Together(bandit, partial(self.decide_each, bandit), choice)

    def decide_each(
        self, bandit: LiveBandit, choices: Sequence[Choice | ChoiceBlock], items: list[Item]
    ) -> list[Chosen | Refused]:
        """`decide` for each of these. What is refused, or is there already, does not hold up the others."""
        try:
            check_active(bandit)
            made = self._draw_each(bandit, choices) if self._all_new(bandit, choices) else None
        except (Refused, ValueError, DamageError):  # of one, and nothing has changed
            made = None
        if made is None:
            return [self._decide_or_refuse(bandit, choice, items) for choice in choices]
        for decided in made:
            self._bandits.put(bandit, decided, items)
        return [chosen(decided) for decided in made]

    def _all_new(self, bandit: LiveBandit, choices: Sequence[Choice | ChoiceBlock]) -> bool:
        """Whether no id is known, or there twice. The store is asked for all, so if it is busy nothing has changed."""
        ids = [choice.decision_id for choice in choices if choice.decision_id is not None]
        known = [self._bandits.find(bandit, id, final=False) for id in ids]  # noqa: A001
        return len(set(ids)) == len(ids) and not any(known)

    def _draw_each(self, bandit: LiveBandit, choices: Sequence[Choice | ChoiceBlock]) -> list[Decided]:
        """Choose for each of these, one after the other."""
        asked = [self._asked(bandit, choice, bandit.vectors.names(choice)) for choice in choices]
        return bandit.learner.decide_each(asked, self._now(bandit))

    def _decide_or_refuse(
        self, bandit: LiveBandit, choice: Choice | ChoiceBlock, items: list[Item]
    ) -> Chosen | Refused:
        try:
            return self.decide(bandit, choice, items)
        except Refused as error:
            return error
        except DamageError as error:
            return damaged(error)

    def draw(self, bandit: LiveBandit, choice: Choice | ChoiceBlock, items: list[Item]) -> UnwrittenDecision:
        """Choose an action without looking whether the ``decision_id`` is known: when the decision is written, the
        store says."""
        check_active(bandit)
        names = bandit.vectors.names(choice)
        if (round_ := next(bandit.rounds, None)) is None:
            raise NoRoundsError(bandit)
        decided = self._draw(bandit, choice, names, round_)
        items.append(LogEntry(bandit.record.number, UNPLACED, decided))
        return UnwrittenDecision(bandit, decided, partial(self._repeat, bandit, choice))

    def _repeat(self, bandit: LiveBandit, choice: Choice | ChoiceBlock, known: Decided | Imported) -> Chosen:
        """The answer to a request for a decision that was made already."""
        if isinstance(known, Imported):
            raise Refused(409, f"{choice.decision_id!r} is the id of a row that was imported: take another one")
        names = bandit.vectors.names(choice)
        if known.actions != names or known.features != bandit.vectors(choice)[0][known.index].tolist():
            raise Refused(409, f"decision {choice.decision_id!r} was made already, between other actions")
        if choice.source not in (None, known.source):
            raise Refused(409, f"decision {choice.decision_id!r} was made already, for source {known.source!r}")
        return chosen(known)

    def _draw(
        self, bandit: LiveBandit, choice: Choice | ChoiceBlock, names: list[str], round_: int | None = None
    ) -> Decided:
        """Choose an action that can be applied: in a round that is reserved, or in the next."""
        asked, now = self._asked(bandit, choice, names), self._now(bandit)
        try:
            if round_ is None:
                return bandit.learner.decide_each([asked], now)[0]
            return bandit.learner.decide_in(round_, asked, now)
        except ValueError as error:
            raise Refused(422, str(error)) from None

    def _asked(self, bandit: LiveBandit, choice: Choice | ChoiceBlock, names: list[str]) -> Asked:
        """What a request asks for, if a bandit can decide it."""
        if len(set(names)) < len(names):
            seen: set[str] = set()
            twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            raise Refused(422, f"the ids of actions must differ, and {twice!r} is there twice")
        check_decision(bandit.settings, len(names))
        if bandit.learner.shadows:
            watching = [one.settings for one in bandit.learner.shadows.values()]
            check_watched([bandit.settings, *watching], len(names))
        sigmas = [] if isinstance(choice, ChoiceBlock) else [action.sigma for action in choice.actions]
        features, unusual = bandit.vectors(choice)
        return Asked(names, features, choice.decision_id, choice.source, sigmas if any(sigmas) else None, unusual)

    def decide_some(self, bandit: LiveBandit, given: Sequence[NamedChoice], items: list[Item]) -> list[Answered]:
        """Make decisions, at least one and as many as one slice has time for, and say what became of each."""

        def one(choice: NamedChoice) -> Answered:
            try:
                return Answered(decision_id=choice.decision_id, chosen=self.decide(bandit, choice, items))
            except Refused as error:
                return Answered(decision_id=choice.decision_id, status=error.status, error=str(error))

        return for_a_slice(given, one)

    def reward(self, bandit: LiveBandit, given: Sequence[Feedback], items: list[Item]) -> list[Outcome]:
        """Take rewards in, at least one and as many as one slice has time for, and say what became of each."""
        check_active(bandit)
        self._bandits.close(bandit, items)

        def one(reward: Feedback) -> Outcome:
            return Outcome(decision_id=reward.decision_id, status=self._one_reward(bandit, reward, items))

        return for_a_slice(given, one)

    def _one_reward(self, bandit: LiveBandit, given: Feedback, items: list[Item]) -> str:
        if given.decision_id in bandit.learner.pending:
            self._bandits.close_late(bandit, given.decision_id, items)
        if given.decision_id in bandit.learner.pending:
            event = Rewarded(id=given.decision_id, at=self._now(bandit), reward=given.reward)
            self._bandits.put(bandit, event, items)
            return "accepted"
        final = self._bandits.find(bandit, given.decision_id, final=True)
        if final is None:
            return "unknown"
        if isinstance(final, Closed):
            return "expired"
        return "duplicate" if isinstance(final, Rewarded) and final.reward == given.reward else "conflict"

    def prove(self, bandit: LiveBandit, found: Certificate, items: list[Item]) -> None:
        """Write down what the monitor proves, if it is more than before."""
        best = bandit.learner.proof
        if bandit.learner.life.erased is None and found.lower_bound > (best.lower_bound if best else 0.0):
            event = Proved(
                id=str(bandit.learner.place + 1),  # a look at the same rounds may prove more elsewhere, by rounding
                at=self._now(bandit),
                round=found.rounds,
                lower_bound=found.lower_bound,
                since=found.since,
                sentence=found.sentence,
                blamed=found.suspect,
            )
            self._bandits.put(bandit, event, items)
            log.warning("bandit %s: %s", bandit.record.name, found.sentence)

    def _now(self, bandit: LiveBandit) -> float:
        return self._clock.at_least(bandit.learner.clock)


def check_active(bandit: LiveBandit) -> None:
    """Refuse what an archived bandit does not do."""
    if bandit.learner.life.erased is not None:
        raise Gone(bandit.record.name)
    if bandit.learner.life.archived:
        name, version = bandit.record.name, bandit.learner.life.version
        undo = f'PATCH /v1/bandits/{name} with {{"version": {version}, "archived": false}}'
        raise Refused(410, f"bandit {name!r} is archived and only keeps its log; {undo} takes it back into service")


def for_a_slice(given: Sequence[T], do: Callable[[T], R]) -> list[R]:
    """Do this with the first of these, and with as many others as one slice has time for."""
    found: list[R] = []
    end = perf_counter() + SLICE
    for one in given:
        try:
            found.append(do(one))
        except StoreBusyError:
            if not found:
                raise
            break  # the rest is asked for when the store can be read
        if perf_counter() >= end:
            break
    return found


def chosen(decided: Decided) -> Chosen:
    """The answer to the request for a decision."""
    return Chosen(
        decision_id=decided.id,
        action_id=decided.actions[decided.index],
        index=decided.index,
        propensity=decided.propensity,
        round=decided.round,
    )
