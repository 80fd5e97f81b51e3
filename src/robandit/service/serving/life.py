"""What operators do to a bandit that is there: every change is an event of its log."""

from __future__ import annotations

import logging
from time import perf_counter
from typing import Any

import msgspec

from robandit.policies import Quorum
from robandit.service.clock import ServiceClock
from robandit.service.learning.student import REFOLD, Student, learns_with, make_policy, needs_refold, watches
from robandit.service.refused import Gone, LogCut, Refused
from robandit.service.requests.cost import SLICE, check_shadows
from robandit.service.requests.settling import resettled
from robandit.service.serving.changes import check_active
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.stores.store import Item
from robandit.wire.changes import Change
from robandit.wire.events import Changed, Erased
from robandit.wire.types import BanditSettings

log = logging.getLogger("robandit.service")


class LifeCycle:
    """Changes the settings of bandits. A change names the version of the settings that it is about, and makes the next
    one. So two of them can't overwrite each other, and one that comes again is known."""

    def __init__(self, bandits: Bandits, clock: ServiceClock) -> None:
        self._bandits, self._clock = bandits, clock

    def change(self, bandit: LiveBandit, wanted: Change, items: list[Item]) -> Changed | BanditSettings:
        """Make a change, or repeat the answer. One that needs a policy to learn the log first is not made: what comes
        back then are the settings to learn with."""
        self._check_there(bandit)
        if (known := _known(bandit, wanted)) is not None:
            return known
        event, settings = self._planned(bandit, wanted)
        if needs_refold(event):
            return settings
        self._put(bandit, event, items)
        return event

    def finish(
        self, bandit: LiveBandit, wanted: Change, student: Student, edition: tuple[int, int], items: list[Item]
    ) -> Changed | None:
        """Let a policy learn what is new in the log, for one slice; once it has learnt all, make the change. It has
        learnt an ``edition`` of the log."""
        self._check_there(bandit)
        if (known := _known(bandit, wanted)) is not None:
            return known
        if bandit.learner.life.edition != edition:
            raise LogCut(bandit.record.name)
        end = perf_counter() + SLICE
        for one in self._bandits.after(bandit, student.place):
            try:
                student.apply(one)
            except ValueError as error:
                raise Refused(422, f"this policy can't learn the log: {error}") from None
            if perf_counter() >= end:
                break
        if student.place < bandit.learner.place:
            return None
        event, _ = self._planned(bandit, wanted)
        self._put(bandit, event, items, student)
        return event

    def delete(self, bandit: LiveBandit, version: int, items: list[Item]) -> Erased:
        """Delete an archived bandit for good. Its name is free from then on."""
        name, learner = bandit.record.name, bandit.learner
        self._check_there(bandit)
        if version != learner.life.version:
            raise _outdated(learner.life.version, version)
        if not learner.life.archived:
            raise Refused(409, f"bandit {name!r} is in service; archive it first, by a PATCH that says so")
        at = self._clock.at_least(learner.clock)
        event = Erased(id="erased", at=at, name=name, version=version)
        self._bandits.put(bandit, event, items)
        log.warning("bandit %s is deleted; its log goes", name)
        return event

    def _planned(self, bandit: LiveBandit, wanted: Change) -> tuple[Changed, BanditSettings]:
        """The event of a change, and the settings after it. What can't be is refused."""
        asked, now = wanted.asked(), bandit.settings
        if not asked:
            raise Refused(422, "say what should change, such as `exploration`")
        if "archived" not in asked:
            check_active(bandit)
        try:
            new: dict[str, Any] = resettled(now, asked)
            new |= {name: asked[name] for name in ("archived", "ruling") if name in asked}
            if "shadow" in asked and any(name in asked for name in REFOLD):
                raise ValueError("change the policy that acts in one request, and one that watches in another")
            at = self._clock.at_least(bandit.learner.clock)
            event = Changed(id=str(bandit.learner.life.version + 1), at=at, asked=asked, settings=new)
            if needs_refold(event) and bandit.learner.life.begins > 0:
                event = msgspec.structs.replace(event, learnt_after=bandit.learner.life.begins)
            settings = learns_with(now, event)
            if needs_refold(event):
                self._check_cost(bandit, event, settings)
                make_policy(settings, bandit.record.seed)
        except (ValueError, TypeError, msgspec.ValidationError) as error:
            raise Refused(422, str(error)) from None
        if "shadow" in asked and asked["shadow"]["remove"] and asked["shadow"]["name"] not in bandit.learner.shadows:
            raise Refused(404, f"no policy {asked['shadow']['name']!r} watches bandit {bandit.record.name!r}")
        if "ruling" in asked:
            _check_ruling(bandit, asked["ruling"]["source"])
        return event, settings

    def _check_cost(self, bandit: LiveBandit, event: Changed, settings: BanditSettings) -> None:
        """Refuse a policy that is too dear, with those that act and watch beside it."""
        shadows = {name: one.settings for name, one in bandit.learner.shadows.items()}
        if watches(event):
            shadows[event.settings["shadow"]["name"]] = settings
            check_shadows([bandit.settings, *shadows.values()])
        else:
            check_shadows([settings, *shadows.values()])

    def _check_there(self, bandit: LiveBandit) -> None:
        if bandit.learner.life.erased is not None:
            raise Gone(bandit.record.name)

    def _put(self, bandit: LiveBandit, event: Changed, items: list[Item], student: Student | None = None) -> None:
        self._bandits.put(bandit, event, items, None if student is None else student.policy)
        log.info("bandit %s: version %s of its settings, with another %s", bandit.record.name, event.id, _names(event))


def _known(bandit: LiveBandit, wanted: Change) -> Changed | None:
    """The change that was asked for, if it was made before. One about other settings than those of now is refused."""
    version = bandit.learner.life.version
    if wanted.version == version:
        return None
    for event in bandit.learner.life.changes:
        if event.id == str(wanted.version + 1) and event.asked == wanted.asked():
            return event
    raise _outdated(version, wanted.version)


def _outdated(now: int, asked: int) -> Refused:
    return Refused(409, f"the settings have version {now}, and this is about version {asked}: look at them again")


def _check_ruling(bandit: LiveBandit, source: str | None) -> None:
    policy = bandit.learner.policy
    if not isinstance(policy, Quorum):
        raise Refused(422, f"{bandit.settings.policy} does not tell sources apart, so it can't be told whom to believe")
    labels = policy.slots.labels[0]
    if source not in labels and len(labels) >= policy.max_sources:
        raise Refused(422, f"source {source!r} is not told apart from others: max_sources is {policy.max_sources}")


def _names(event: Changed) -> str:
    return ", ".join(event.settings)
