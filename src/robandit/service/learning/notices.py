"""What operators are told of a bandit: alarms, and sources that are doubted or believed again. It is part of the fold,
so a restart forgets nothing that a webhook has not taken."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeAlias

import msgspec

from robandit.policies import Policy, Quorum
from robandit.policies.groups import FREE
from robandit.service.learning.labels import label
from robandit.wire.events import Acknowledged, Delivered, Proved
from robandit.wire.types import BanditSettings

MOST = 100
"""Number of notices that are kept."""
Who: TypeAlias = tuple[str | None, bool]
"""A source: its label, and whether it stands for all that are not told apart."""


class Notice(msgspec.Struct, frozen=True, array_like=True):
    """Something that operators are told."""

    number: int
    """Its number among those of the bandit, from 1 on."""
    at: float
    kind: str
    """``corruption.proved``, ``source.doubted`` or ``source.believed``."""
    data: dict[str, Any]


class NoticeBoard:
    """The last notices of a bandit, which webhooks took them, and what operators have acknowledged."""

    def __init__(self) -> None:
        self.count = 0
        """Number of notices so far."""
        self.kept: deque[Notice] = deque()
        self.told: dict[str, list[int]] = {}
        """The numbers of those kept that each webhook took, or that were given up for it."""
        self.proof: Proved | None = None
        """The best proof of corruption, which is the last."""
        self.acknowledged: Acknowledged | None = None
        """The last acknowledgement."""
        self._doubted: dict[Who, int] = {}  # with the reward since which

    @property
    def up(self) -> bool:
        """Whether more is proved than was acknowledged."""
        known = self.acknowledged.lower_bound if self.acknowledged else 0.0
        return self.proof is not None and self.proof.lower_bound > known

    def proved(self, event: Proved, settings: BanditSettings) -> None:
        """Note a proof. It is news if the alarm was not up."""
        before, self.proof = self.up, event
        if self.up and not before:
            data = {
                "lower_bound": event.lower_bound,
                "rounds": event.round,
                "since": event.since,
                "blamed": None if event.blamed is None else label(event.blamed),
                "assumes": assumes(settings),
                "sentence": event.sentence,
            }
            self._add(event.at, "corruption.proved", data)

    def watch(self, policy: Policy, at: float) -> None:
        """Note which sources a quorum doubts, after it may have voted. Other policies doubt none, and whom the quorum
        before them doubted is forgotten: nobody has come to believe those again."""
        if not isinstance(policy, Quorum):
            self._doubted = {}
            return
        doubted = policy.stats.doubted[0]
        if not self._doubted and (doubted == FREE).all():
            return
        now = {
            (None, True) if one.pooled else (None if one.source is None else str(one.source), False): one
            for one in policy.standings()
        }
        for who, standing in now.items():
            if standing.since is not None and who not in self._doubted:
                self._source(at, "source.doubted", who, standing.weight, standing.since, standing.ruling)
            elif standing.since is None and who in self._doubted:
                self._source(at, "source.believed", who, standing.weight, self._doubted[who], standing.ruling)
        self._doubted = {who: one.since for who, one in now.items() if one.since is not None}

    def _source(self, at: float, kind: str, who: Who, weight: float, since: int, ruling: str) -> None:
        source, pooled = who
        shown = None if source is None else label(source)
        data = {"source": shown, "pooled": pooled, "weight": round(weight, 4), "since": since, "ruling": ruling}
        self._add(at, kind, data)

    def _add(self, at: float, kind: str, data: dict[str, Any]) -> None:
        self.count += 1
        self.kept.append(Notice(self.count, at, kind, data))
        if len(self.kept) > MOST:
            self.kept.popleft()
        first = self.kept[0].number
        told = {hook: [number for number in numbers if number >= first] for hook, numbers in self.told.items()}
        self.told = {hook: numbers for hook, numbers in told.items() if numbers}

    def hear(self, event: Delivered) -> None:
        """Note that a webhook took a notice, or was given up."""
        if self.kept and event.notice >= self.kept[0].number:
            self.told.setdefault(event.hook, []).append(event.notice)

    def open(self, hook: str) -> list[Notice]:
        """The notices that a webhook has not taken, the oldest first."""
        told = self.told.get(hook, ())
        return [one for one in self.kept if one.number not in told]

    # Keeping.

    def plain(self) -> list[Any]:
        """All of it as plain data."""
        doubted = [(*who, since) for who, since in self._doubted.items()]
        return [self.count, list(self.kept), sorted(self.told.items()), self.acknowledged, doubted]

    def restore(self, plain: list[Any], proof: Proved | None) -> None:
        """Go on from what `plain` gave."""
        self.count, kept, told, acknowledged, doubted = plain
        self.kept.extend(msgspec.convert(kept, list[Notice]))
        self.told, self.proof = {hook: list(numbers) for hook, numbers in told}, proof
        self.acknowledged = msgspec.convert(acknowledged, Acknowledged | None)
        self._doubted = {(source, pooled): since for source, pooled, since in doubted}


def assumes(settings: BanditSettings) -> str:
    """What the monitor's proof assumes, in words."""
    rewards, linear = settings.rewards, "the mean reward is linear in the features"
    constant = "" if settings.intercept or settings.features else ", without a constant,"
    if settings.noise is None and rewards is not None:
        spread = f"rewards lie from {rewards.low:g} to {rewards.high:g}"
    else:
        spread = f"noise has sub-Gaussian scale {settings.noise or settings.noise_range:g}"
    return f"{linear}{constant} and {spread}"
