"""One bandit in memory: the fold of its log."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from robandit.monitor import CorruptionMonitor
from robandit.policies import POLICIES, Decision, Policy
from robandit.service.events import Closed, Decided, Event, Proved, Rewarded
from robandit.service.types import Settings

RECENT = 512
"""Final rewards of which the dashboard's curve is made."""
NOBODY = "(no source)"


class Learner:
    """A policy and a monitor. `decide` draws, `apply` folds an event in; nothing else changes anything."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.settings = settings
        self.policy: Policy = POLICIES[settings.policy](**settings.for_policy(), seed=seed)
        self.monitor = CorruptionMonitor(**settings.for_monitor())
        self.place = 0
        """How many events have been folded in."""
        self.clock = 0.0
        """The time of the last event. It never goes back, whatever the machine's clock does."""
        self.pending: dict[str, Decided] = {}
        """Decisions whose reward is not final, the oldest first."""
        self._settled: dict[int, tuple[Decided, float | None]] = {}  # by round: final, but not yet the monitor's turn
        self._turn = 1  # the round that the monitor waits for
        self.rewards = self.defaults = self.lost = 0
        self.recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self.alarm: int | None = None
        """The round of the first proof of corruption."""
        self.proof: Proved | None = None
        """The best there is."""

    # Drawing.

    def decide(
        self,
        *,
        id: str,  # noqa: A002
        now: float,
        actions: Sequence[str],
        features: Any,
        sigma: Any,
        source: str | None,
    ) -> Decided:
        """Draw a decision, which must be applied, or this learner thrown away: its next draw is another."""
        made = self.policy.choose(features, sigma, propensity=True)
        return Decided(
            id=id,
            round=made.round,
            at=max(now, self.clock),
            actions=list(actions),
            index=made.index,
            features=made.action.tolist(),
            sigma=made.sigma,
            level=made.level,
            propensity=made.propensity,
            source=source,
        )

    def due(self, now: float) -> list[Closed]:
        """What becomes of the decisions whose window has closed."""
        now, found = max(now, self.clock), []
        for decided in self.pending.values():
            if now < decided.at + self.settings.reward_window:
                break
            found.append(Closed(id=decided.id, at=now, reward=self.settings.default_reward))
        return found

    # Folding.

    def apply(self, event: Event) -> None:
        """Fold an event in."""
        self.place += 1
        self.clock = event.at
        if isinstance(event, Decided):
            self.policy.skip_to(event.round)
            self.pending[event.id] = event
            return
        if isinstance(event, Proved):
            self.alarm, self.proof = self.alarm or event.round, event
            return
        decided = self.pending.pop(event.id)
        self.rewards += isinstance(event, Rewarded)
        self.defaults += isinstance(event, Closed) and event.reward is not None
        self.lost += event.reward is None
        if event.reward is not None:
            made = Decision(
                decided.round, np.array(decided.features), decided.index, decided.sigma, level=decided.level
            )
            self.policy.update(made, event.reward)
            self.recent.append((decided.round, event.reward))
        self._settled[decided.round] = decided, event.reward
        self._watch()

    def _watch(self) -> None:
        """Feed the monitor, in the order of decisions."""
        while self._turn in self._settled:
            decided, reward = self._settled.pop(self._turn)
            source = (decided.source or NOBODY) if self.settings.sources else None
            mask = [False] if reward is None else None
            self.monitor.observe(np.array(decided.features), reward or 0.0, source=source, mask=mask)
            self._turn += 1

    def onlooker(self) -> CorruptionMonitor:
        """A copy of the monitor to look at, since a look takes its time and changes what it looks at."""
        return CorruptionMonitor.from_state(self.monitor.state())

    # Keeping.

    def snapshot(self) -> bytes:
        """All of it. The same state gives the same bytes."""
        policy, monitor = self.policy.state(), self.monitor.state()
        arrays = {f"policy/{name}": array for name, array in policy.pop("arrays").items()}
        arrays |= {f"monitor/{name}": array for name, array in monitor.pop("arrays").items()}
        plain = {
            "settings": self.settings,
            "policy": policy,
            "monitor": monitor,
            "place": self.place,
            "clock": self.clock,
            "pending": list(self.pending.values()),
            "settled": sorted(self._settled.items()),
            "turn": self._turn,
            "counts": [self.rewards, self.defaults, self.lost],
            "recent": list(self.recent),
            "alarm": self.alarm,
            "proof": self.proof,
        }
        parts = [msgspec.json.encode(plain)]
        for name, array in sorted(arrays.items()):
            parts.append(msgspec.json.encode([name, array.dtype.str, list(array.shape)]))
            parts.append(np.ascontiguousarray(array).tobytes())
        return msgspec.msgpack.encode(parts)

    def digest(self) -> str:
        """A fingerprint of the state."""
        return hashlib.sha256(self.snapshot()).hexdigest()

    @classmethod
    def restore(cls, settings: Settings, seed: int, data: bytes) -> Learner:
        """The learner that a snapshot was taken of; it goes on bit for bit."""
        first, *rest = msgspec.msgpack.decode(data, type=list[bytes])
        plain = msgspec.json.decode(first)
        arrays: dict[str, dict[str, Any]] = {"policy": {}, "monitor": {}}
        for head, body in zip(rest[::2], rest[1::2], strict=True):
            name, kind, shape = msgspec.json.decode(head)
            part, _, own = name.partition("/")
            arrays[part][own] = np.frombuffer(body, dtype=np.dtype(kind)).reshape(shape)
        learner = cls(settings, seed)
        learner.policy = type(learner.policy).from_state({**plain["policy"], "arrays": arrays["policy"]})
        learner.monitor = CorruptionMonitor.from_state({**plain["monitor"], "arrays": arrays["monitor"]})
        learner.place, learner.clock, learner._turn = plain["place"], plain["clock"], plain["turn"]
        pending = msgspec.convert(plain["pending"], list[Decided])
        learner.pending = {decided.id: decided for decided in pending}
        settled = msgspec.convert(plain["settled"], list[tuple[int, tuple[Decided, float | None]]])
        learner._settled = dict(settled)
        learner.rewards, learner.defaults, learner.lost = plain["counts"]
        learner.recent.extend((round_, reward) for round_, reward in plain["recent"])
        learner.alarm, learner.proof = plain["alarm"], msgspec.convert(plain["proof"], Proved | None)
        return learner
