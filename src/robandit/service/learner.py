"""One bandit's state in memory, which is the fold of its log."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from robandit.arrays import Floats
from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import POLICIES, Decision, Policy
from robandit.service.history import History
from robandit.wire.events import Closed, Decided, Event, Proved, Rewarded
from robandit.wire.types import BanditSettings, Bucket

RECENT = 512
"""Number of final rewards that are remembered one by one."""
NO_SOURCE = "(no source)"
"""Source by which the monitor counts traffic that names none."""


class Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a decision until its reward is final. There may be millions of these."""

    round: int
    at: float
    index: int
    features: bytes
    sigma: float
    level: int
    source: str | None

    @classmethod
    def on(cls, made: Decided) -> Waiting:
        """Keep what the reward of this decision will need."""
        features = np.array(made.features).tobytes()
        return cls(made.round, made.at, made.index, features, made.sigma, made.level, made.source)

    def decision(self) -> Decision:
        """The decision, with all that the policy's `update` reads."""
        return Decision(
            round=self.round,
            action=np.frombuffer(self.features),
            index=self.index,
            sigma=self.sigma,
            level=self.level,
            source=self.source,
        )


class Learner:
    """A policy and its monitor. `decide` draws, `apply` folds an event in, and nothing else changes the state."""

    def __init__(self, settings: BanditSettings, seed: int) -> None:
        self.settings = settings
        self.policy: Policy = POLICIES[settings.policy](**settings.for_policy(), seed=seed)
        self.monitor = CorruptionMonitor(**settings.for_monitor())
        self._weight = lru_cache(maxsize=64)(self.policy.weight)
        self.place = 0
        """Number of events folded in so far."""
        self.clock = 0.0
        """Time of the last event. It never goes back, whatever the machine's clock does."""
        self.pending: dict[str, Waiting] = {}
        """Decisions whose reward is not final, the oldest first."""
        self._settled: dict[int, tuple[Waiting, float | None]] = {}  # by round: final, but not yet seen by the monitor
        self._turn = 1  # the round that the monitor waits for
        self.rewards = self.defaults = self.lost = 0
        self.levels: Counter[int] = Counter()
        """Number of decisions that each level has made."""
        self.recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self.history = History()
        self.alarm: Proved | None = None
        """The first proof of corruption."""
        self.proof: Proved | None = None
        """The best proof of corruption, which is the last."""

    # Drawing.

    def decide(
        self,
        *,
        id: str,  # noqa: A002
        now: float,
        actions: Sequence[str],
        features: Floats,
        sigma: Sequence[float] | None,
        source: str | None,
    ) -> Decided:
        """Draw a decision. Apply it, or throw this learner away: the next draw is another one."""
        made = self.policy.choose(features, sigma, source=source, propensity=True)
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
            weight=self._weight(made.sigma),
            source=source,
            offered=features.tobytes() if self.settings.exploration > 0 else None,
        )

    def due(self, now: float) -> list[Closed]:
        """The closing events of the decisions whose window is over."""
        now, found = max(now, self.clock), []
        for name, waiting in self.pending.items():
            if now < waiting.at + self.settings.reward_window:
                break
            found.append(Closed(id=name, at=now, reward=self.settings.default_reward))
        return found

    # Folding.

    def apply(self, event: Event) -> None:
        """Fold an event in."""
        self.place += 1
        self.clock = event.at
        if isinstance(event, Decided):
            self.policy.skip_to(event.round)
            self.pending[event.id] = Waiting.on(event)
            self.levels[event.level] += 1
            self.history.decided(event.at)
        elif isinstance(event, Proved):
            self.alarm, self.proof = self.alarm or event, event
        else:
            self._settle(self.pending.pop(event.id), event)

    def _settle(self, waiting: Waiting, event: Rewarded | Closed) -> None:
        """Learn from a reward that is final."""
        self.rewards += isinstance(event, Rewarded)
        self.defaults += isinstance(event, Closed) and event.reward is not None
        self.lost += event.reward is None
        if event.reward is not None:
            self.policy.update(waiting.decision(), event.reward)
            self.recent.append((waiting.round, event.reward))
            self.history.rewarded(event.at, event.reward)
        self._settled[waiting.round] = waiting, event.reward
        self._watch()

    def _watch(self) -> None:
        """Feed the monitor, in the order of decisions."""
        while self._turn in self._settled:
            waiting, reward = self._settled.pop(self._turn)
            source = (waiting.source or NO_SOURCE) if self.settings.sources else None
            mask = [False] if reward is None else None
            self.monitor.observe(np.frombuffer(waiting.features), reward or 0.0, source=source, mask=mask)
            self._turn += 1

    # Keeping.

    def snapshot(self) -> bytes:
        """The whole state as bytes. The same state gives the same bytes."""
        plain = {
            "policy": _flat(self.policy.state()),
            "monitor": _flat(self.monitor.state()),
            "place": self.place,
            "clock": self.clock,
            "pending": list(self.pending.items()),
            "settled": sorted(self._settled.items()),
            "turn": self._turn,
            "counts": [self.rewards, self.defaults, self.lost],
            "levels": sorted(self.levels.items()),
            "recent": list(self.recent),
            "curves": self.history.curves,
            "alarm": self.alarm,
            "proof": self.proof,
        }
        return msgspec.msgpack.encode(plain)

    def digest(self) -> str:
        """A fingerprint of the state."""
        return hashlib.sha256(self.snapshot()).hexdigest()

    @classmethod
    def restore(cls, settings: BanditSettings, seed: int, data: bytes) -> Learner:
        """Restore a learner from its snapshot. It goes on bit for bit."""
        plain = msgspec.msgpack.decode(data)
        learner = cls(settings, seed)
        learner.policy = type(learner.policy).from_state(_deep(plain["policy"]))
        learner.monitor = CorruptionMonitor.from_state(_deep(plain["monitor"]))
        learner.place, learner.clock, learner._turn = plain["place"], plain["clock"], plain["turn"]
        learner.pending = dict(msgspec.convert(plain["pending"], list[tuple[str, Waiting]]))
        settled = msgspec.convert(plain["settled"], list[tuple[int, tuple[Waiting, float | None]]])
        learner._settled = dict(settled)
        learner.rewards, learner.defaults, learner.lost = plain["counts"]
        learner.levels = Counter(dict(plain["levels"]))
        learner.recent.extend((round_, reward) for round_, reward in plain["recent"])
        learner.history = History(msgspec.convert(plain["curves"], dict[str, list[Bucket]]))
        learner.alarm, learner.proof = (msgspec.convert(plain[name], Proved | None) for name in ("alarm", "proof"))
        return learner


def _flat(state: dict[str, Any]) -> dict[str, Any]:
    """A state with its arrays as bytes."""
    arrays = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state["arrays"].items()}
    return {**state, "arrays": arrays}


def _deep(state: dict[str, Any]) -> dict[str, Any]:
    """A state with its bytes as arrays: the inverse of `_flat`."""
    arrays = {
        name: np.frombuffer(body, dtype=np.dtype(kind)).reshape(shape)
        for name, (kind, shape, body) in state["arrays"].items()
    }
    return {**state, "arrays": arrays}
