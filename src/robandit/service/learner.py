"""One bandit's state in memory, which is the fold of its log."""

from __future__ import annotations

import hashlib
from array import array
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
from robandit.service.trust import TrustHistory
from robandit.wire.events import Closed, Decided, Event, Proved, Rewarded
from robandit.wire.types import BanditSettings, Bucket

RECENT = 512
"""Number of final rewards that are remembered one by one."""
NO_SOURCE = "(no source)"
"""Source by which the monitor counts traffic that names none."""


class Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What is kept of a decision until its reward is final. There may be millions of these."""

    round: int
    """Its number among the decisions of the log, from 1 on."""
    at: float
    index: int
    features: bytes
    sigma: float
    level: int
    source: str | None

    @classmethod
    def on(cls, made: Decided, number: int) -> Waiting:
        """Keep what the reward of this decision, the log's ``number``-th, will need."""
        features = array("d", made.features).tobytes()  # a fifth of the time of np.array
        return cls(number, made.at, made.index, features, made.sigma, made.level, made.source)

    def decision(self, width: float) -> Decision:
        """The decision, with all that the policy's `update` reads, of a policy for which ``width`` counts as 1."""
        return Decision(
            round=self.round,
            action=np.frombuffer(self.features),
            index=self.index,
            sigma=self.sigma / width,
            level=self.level,
            source=self.source,
        )


class Learner:
    """A policy and its monitor. `decide` draws, `apply` folds an event in, and nothing else changes the state.

    The log and the monitor have rewards as they were sent. The policy has shares of the declared range, if one is.
    """

    def __init__(self, settings: BanditSettings, seed: int) -> None:
        self.settings = settings
        self.declared = settings.declared
        self._width = 1.0 if self.declared is None else self.declared.width
        self.policy: Policy = POLICIES[settings.policy](**settings.for_policy(), seed=seed)
        self.monitor = CorruptionMonitor(**settings.for_monitor())
        self._weight = lru_cache(maxsize=64)(self.policy.weight)
        self.place = 0
        """Number of events folded in so far."""
        self.clock = 0.0
        """Time of the last event. It never goes back, whatever the machine's clock does."""
        self.pending: dict[str, Waiting] = {}
        """Decisions whose reward is not final, the oldest first."""
        self._settled: dict[int, tuple[Waiting, float | None]] = {}  # by number: final, but not yet seen by the monitor
        self._turn = 1  # the number of the decision that the monitor waits for
        self.rewards = self.defaults = self.lost = 0
        self.levels: Counter[int] = Counter()
        """Number of decisions that each level has made."""
        self.recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self.history = History()
        self.trust = TrustHistory.of(self.policy)
        self.alarm: Proved | None = None
        """The first proof of corruption."""
        self.proof: Proved | None = None
        """The best proof of corruption, which is the last."""
        self.unusual: dict[str, dict[str, int]] = {}
        """Number of values that were clipped, unseen or missing, by column."""

    @property
    def decisions(self) -> int:
        """Number of decisions folded in so far."""
        return self.levels.total()

    @property
    def largest_sigma(self) -> float:
        """The most that the standard deviation of a reward is, as far as was declared, in the policy's units."""
        if self.declared is not None:
            return self.declared.sigma
        return min(self.settings.noise_range, self.settings.noise or self.settings.noise_range)

    # Drawing.

    def decide(
        self,
        *,
        id: str,  # noqa: A002
        now: float,
        actions: Sequence[str],
        features: Floats,
        sigma: Sequence[float | None] | None,
        source: str | None,
        unusual: dict[str, dict[str, int]] | None = None,
    ) -> Decided:
        """Draw a decision. Apply it, or throw this learner away: the next draw is another one."""
        made = self.policy.choose(features, self._spread(sigma), source=source, propensity=True)
        return Decided(
            id=id,
            round=made.round,
            at=max(now, self.clock),
            actions=list(actions),
            index=made.index,
            features=made.action.tolist(),
            sigma=made.sigma * self._width,
            level=made.level,
            propensity=made.propensity,
            weight=self._weight(made.sigma),
            source=source,
            offered=features.tobytes() if self.settings.exploration > 0 else None,
            unusual=unusual,
        )

    def decide_in(self, round_: int, **asked: Any) -> Decided:
        """Draw the decision of a round that nobody else draws. It may be applied after others, and changes nothing."""
        with self.policy.at_round(round_):
            return msgspec.structs.replace(self.decide(**asked), made_on=self.place)

    def _spread(self, sigma: Sequence[float | None] | None) -> Sequence[float] | float | None:
        """The standard deviations as the policy takes them; those that nobody sent follow from the declared range."""
        usual = self.settings.noise_range if self.declared is None else self.declared.sigma
        if sigma is None:
            return None if self.declared is None else usual
        return [usual if one is None else one / self._width for one in sigma]

    def due(self, now: float, most: int) -> list[Closed]:
        """The closing events of the decisions whose window is over, the oldest first, up to a number."""
        found: list[Closed] = []
        for name in self.pending:
            if len(found) == most or not self.is_over(name, now):
                break
            found.append(self.closing(name, now))
        return found

    def is_over(self, id: str, now: float) -> bool:  # noqa: A002
        """Whether the window of a pending decision is over."""
        return max(now, self.clock) >= self.pending[id].at + self.settings.reward_window

    def closing(self, id: str, now: float) -> Closed:  # noqa: A002
        """The event that closes the window of a decision."""
        return Closed(id=id, at=max(now, self.clock), reward=self.settings.default_reward)

    # Folding.

    def apply(self, event: Event) -> None:
        """Fold an event in."""
        self.place += 1
        self.clock = event.at
        if isinstance(event, Decided):
            self.policy.skip_to(event.round)
            self.levels[event.level] += 1
            self.pending[event.id] = Waiting.on(event, self.decisions)
            self.history.decided(event.at)
            for column, counts in (event.unusual or {}).items():
                known = self.unusual.setdefault(column, {})
                for what, number in counts.items():
                    known[what] = known.get(what, 0) + number
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
            share = event.reward if self.declared is None else self.declared.share(event.reward)
            self.policy.update(waiting.decision(self._width), share)
            if self.trust is not None:
                self.trust.note(self.policy, event.at)
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
            features = np.frombuffer(waiting.features)
            if self.settings.intercept:
                features = np.append(features, 1.0)
            # A round without a reward has weight 0; what stands there must only be in the range.
            nothing = 0.0 if self.declared is None else self.declared.low
            self.monitor.observe(features, nothing if reward is None else reward, source=source, mask=mask)
            self._turn += 1

    # Keeping.

    def snapshot(self) -> bytes:
        """The whole state as bytes. The same state gives the same bytes."""
        plain: dict[str, Any] = {
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
            "unusual": {column: dict(sorted(counts.items())) for column, counts in sorted(self.unusual.items())},
        }
        if self.trust is not None:
            plain["trust"] = self.trust.plain()
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
        learner.unusual = plain.get("unusual", {})  # older snapshots have none
        if learner.trust is not None:
            learner.trust.restore(plain["trust"])  # without it, the whole log is folded
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
