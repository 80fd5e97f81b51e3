"""One bandit's state in memory, which is the fold of its log."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from secrets import token_urlsafe
from typing import Any, NamedTuple

import msgspec
import numpy as np

from robandit.arrays import Floats
from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import Decision, Policy
from robandit.policies.follow import follow
from robandit.policies.several import OnOffer, choose_each, goes_together
from robandit.service.learning.history import History
from robandit.service.learning.notices import NoticeBoard
from robandit.service.learning.shadow import Shadow
from robandit.service.learning.student import (
    Waiting,
    changed,
    deep,
    flat,
    learn_import,
    learns_with,
    make_policy,
    needs_refold,
    restored,
    rule,
    watches,
)
from robandit.service.learning.tallies import Tally
from robandit.service.learning.trust import TrustHistory
from robandit.service.learning.uniform import UniformSums, uniform_weight
from robandit.service.learning.versions import Versions
from robandit.wire.events import (
    Acknowledged,
    Changed,
    Closed,
    Cut,
    Decided,
    Delivered,
    Erased,
    Event,
    Forgot,
    Imported,
    Proved,
    Rewarded,
)
from robandit.wire.types import BanditSettings, Bucket

RECENT = 512
"""Number of final rewards that are remembered one by one."""
NO_SOURCE = "(no source)"
"""Source by which the monitor counts traffic that names none."""


class Asked(NamedTuple):
    """A decision that is asked for."""

    actions: Sequence[str]
    """Ids of the actions on offer."""
    features: Floats
    """Their features, (K, d)."""
    id: str | None = None
    """The id of the decision; by default, a new one."""
    source: str | None = None
    sigma: Sequence[float | None] | None = None
    """The standard deviation of each action's reward, where somebody says one."""
    unusual: dict[str, dict[str, int]] | None = None
    """How many values were clipped, unseen or missing, by column."""


class Learner:
    """A policy and its monitor. `decide` draws, `apply` folds an event in, and nothing else changes the state.

    The log and the monitor have rewards as they were sent. The policy has shares of the declared range, if one is.
    """

    def __init__(self, settings: BanditSettings, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.declared = settings.declared
        self._width = 1.0 if self.declared is None else self.declared.width
        self._act_by(make_policy(settings, seed))
        self.monitor = CorruptionMonitor(**settings.for_monitor())
        self.place = 0
        """Number of events folded in so far."""
        self.clock = 0.0
        """Time of the last event. It never goes back, whatever the machine's clock does."""
        self.pending: dict[str, Waiting] = {}
        """Decisions whose reward is not final, the oldest first."""
        self._settled: dict[int, tuple[Waiting, float | None]] = {}  # by number: final, but not yet seen by the monitor
        self._turn = 1  # the number of the decision that the monitor waits for
        self.rewards = self.defaults = self.lost = 0
        self.recent: deque[tuple[int, float]] = deque(maxlen=RECENT)
        self.history = History()
        self.actions, self.sources, self.uniform = Tally(), Tally(), UniformSums()
        self.board = NoticeBoard()
        self.life = Versions()
        self.shadows: dict[str, Shadow] = {}
        """The policies that watch, by name."""
        self.alarm: Proved | None = None
        """The first proof of corruption."""
        self.unusual: dict[str, dict[str, int]] = {}
        """Number of values that were clipped, unseen or missing, by column."""

    @property
    def proof(self) -> Proved | None:
        """The best proof of corruption, which is the last."""
        return self.board.proof

    @property
    def decisions(self) -> int:
        """Number of decisions folded in so far."""
        return self.life.others + self.levels.total()

    @property
    def largest_sigma(self) -> float:
        """The most that the standard deviation of a reward is, as far as was declared, in the policy's units."""
        if self.declared is not None:
            return self.declared.sigma
        return min(self.settings.noise_range, self.settings.noise or self.settings.noise_range)

    def _act_by(self, policy: Policy) -> None:
        """Decide by this policy from now on."""
        self.policy: Policy = policy
        self.many = goes_together(policy)
        """Whether many small decisions at a time take less than one by one."""
        self._weight = lru_cache(maxsize=64)(policy.weight)
        self.trust = TrustHistory.of(policy)
        self.levels: Counter[int] = Counter()
        """Number of decisions that each level of the policy has made."""

    @property
    def usual_sigma(self) -> float:
        """The standard deviation of a reward for which nobody says one, in units of reward."""
        return self.settings.noise_range if self.declared is None else self.declared.sigma * self._width

    # Drawing.

    def decide(self, *, now: float, **asked: Any) -> Decided:
        """Draw a decision that is `Asked` for. Apply it, or throw this learner away: the next draw is another one."""
        return self.decide_each([Asked(**asked)], now)[0]

    def decide_each(self, asked: Sequence[Asked], now: float) -> list[Decided]:
        """Do the same for each of these, one after the other."""
        offers = [OnOffer(one.features, self._spread(one.sigma), one.source) for one in asked]
        return [self._event(*one, now) for one in zip(asked, choose_each(self.policy, offers), strict=True)]

    def decide_in(self, round_: int, asked: Asked, now: float) -> Decided:
        """Draw the decision of a round that nobody else draws. It may be applied after others, and changes nothing."""
        with self.policy.at_round(round_):
            return msgspec.structs.replace(self.decide_each([asked], now)[0], made_on=self.place)

    def _event(self, asked: Asked, made: Decision, now: float) -> Decided:
        """A decision as the log has it."""
        return Decided(
            id=asked.id or f"{made.round}-{token_urlsafe(12)}",
            round=made.round,
            at=max(now, self.clock),
            actions=list(asked.actions),
            index=made.index,
            features=made.action.tolist(),
            sigma=made.sigma * self._width,
            level=made.level,
            propensity=made.propensity,
            weight=self._weight(made.sigma),
            source=asked.source,
            offered=asked.features.tobytes() if self.settings.exploration > 0 or self.shadows else None,
            unusual=asked.unusual,
        )

    def _spread(self, sigma: Sequence[float | None] | None) -> Any:
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

    def apply(self, event: Event, fresh: Policy | None = None) -> None:
        """Fold an event in. After one that `needs_refold`, the policy ``fresh``, which has learnt the log, acts."""
        self.place += 1
        self.clock = event.at
        if isinstance(event, Decided):
            self._decided(event)
        elif isinstance(event, Proved):
            self.alarm = self.alarm or event
            self.board.proved(event, self.settings)
        elif isinstance(event, Acknowledged):
            self.board.acknowledged = event
        elif isinstance(event, Delivered):
            self.board.hear(event)
        elif isinstance(event, Changed):
            self._change(event, fresh)
        elif isinstance(event, Imported):
            share = event.reward if self.declared is None else self.declared.share(event.reward)
            for policy in (self.policy, *(shadow.policy for shadow in self.shadows.values())):
                learn_import(policy, event, share, self._width)
            self.life.imported += 1
            self._note_votes(event.at)
        elif isinstance(event, Erased):
            self.life.erased = event
        elif isinstance(event, Cut):
            self.life.cut = event
        elif isinstance(event, Forgot):
            self.life.forgotten += 1
        elif isinstance(event, Rewarded | Closed):
            self._settle(self.pending.pop(event.id), event)

    def _decided(self, event: Decided) -> None:
        """Note a decision."""
        self.policy.skip_to(event.round)
        self.levels[event.level] += 1
        for shadow in self.shadows.values():
            shadow.decided(event)
        self.history.decided(event.at)
        self.pending[event.id] = Waiting.on(
            event,
            self.decisions,
            action=self.actions.decided(event.actions[event.index], event.at),
            origin=self.sources.decided(event.source, event.at),
            uniform=uniform_weight(len(event.actions), event.propensity, self.settings.exploration),
        )
        for column, counts in (event.unusual or {}).items():
            known = self.unusual.setdefault(column, {})
            for what, number in counts.items():
                known[what] = known.get(what, 0) + number

    def _note_votes(self, at: float, *, changed: bool = False) -> None:
        """Take note of a vote of sources, if there was one."""
        voted = self.trust is not None and self.trust.note(self.policy, at)
        if voted or changed:
            self.board.watch(self.policy, at)

    def _change(self, event: Changed, fresh: Policy | None) -> None:
        """Go on with other settings."""
        if needs_refold(event) and (fresh is None or fresh.rounds != self.policy.rounds):
            raise ValueError(f"change {event.id} needs a policy that has learnt the log so far")
        if "shadow" in event.settings:
            self._shadow(event, fresh)
        elif fresh is not None:
            self.life.others = self.decisions
            self._act_by(fresh)
        self.settings = changed(self.settings, event)
        self.life.changed(event)
        if "exploration" in event.settings and (fresh is None or watches(event)):
            state = self.policy.state()
            state["config"]["exploration"] = self.settings.exploration
            self.policy = type(self.policy).from_state(state)
            self._weight = lru_cache(maxsize=64)(self.policy.weight)
        rule(self.policy, event)
        for shadow in self.shadows.values():
            rule(shadow.policy, event)
        self._note_votes(event.at, changed=True)

    def _shadow(self, event: Changed, fresh: Policy | None) -> None:
        """Let a policy watch, or watch no longer."""
        name = event.settings["shadow"]["name"]
        self.shadows.pop(name, None)
        if fresh is not None:
            self.shadows[name] = Shadow(learns_with(self.settings, event), fresh)

    def _settle(self, waiting: Waiting, event: Rewarded | Closed) -> None:
        """Learn from a reward that is final."""
        self.rewards += isinstance(event, Rewarded)
        self.defaults += isinstance(event, Closed) and event.reward is not None
        self.lost += event.reward is None
        for shadow in self.shadows.values():
            known = event.reward if event.reward is None or self.declared is None else self.declared.share(event.reward)
            shadow.settled(event.id, waiting, known, self._width)
        if event.reward is not None:
            share = event.reward if self.declared is None else self.declared.share(event.reward)
            decision = waiting.decision(self._width)
            if self._is_own(waiting):
                self.policy.update(decision, share)
            else:
                follow(self.policy, decision, share)
            self._note_votes(event.at)
            self.recent.append((waiting.round, event.reward))
            self.history.rewarded(event.at, event.reward)
            self.actions.rewarded(waiting.action, event.at, event.reward)
            self.sources.rewarded(waiting.origin, event.at, event.reward)
            self.uniform.add(waiting.uniform, event.reward)
        self._settled[waiting.round] = waiting, event.reward
        self._watch()

    def _is_own(self, waiting: Waiting) -> bool:
        """Whether the policy that acts made a decision. Another process may make one by the policy before, and write it
        down after the change; its level tells, if that is none of this policy."""
        levels = self.policy.levels
        return waiting.round > self.life.others and (not levels or 1 <= waiting.level <= levels)

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
            "policy": flat(self.policy.state()),
            "monitor": flat(self.monitor.state()),
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
            "tallies": [self.actions.plain(), self.sources.plain(), self.uniform],
            "board": self.board.plain(),
            "unusual": {column: dict(sorted(counts.items())) for column, counts in sorted(self.unusual.items())},
        }
        if self.trust is not None:
            plain["trust"] = self.trust.plain()
        if self.life.version > 1 or self.life.imported or any(self.life.edition):
            plain["shadows"] = [(name, shadow.plain()) for name, shadow in self.shadows.items()]
            plain["life"] = msgspec.to_builtins(self.settings), self.life.plain()
        return msgspec.msgpack.encode(plain)

    def digest(self) -> str:
        """A fingerprint of the state."""
        return hashlib.sha256(self.snapshot()).hexdigest()

    @classmethod
    def restore(cls, settings: BanditSettings, seed: int, data: bytes, *, begins: bool = False) -> Learner:
        """Go on bit for bit from a snapshot, given the first settings; ``begins`` is as in `restored`."""
        plain = msgspec.msgpack.decode(data)
        life = plain.get("life")
        learner = cls(msgspec.convert(life[0], BanditSettings) if life else settings, seed)
        if life:
            learner.life.restore(life[1])
            learner.shadows = {name: Shadow.restore(kept, seed, begins=begins) for name, kept in plain["shadows"]}
        learner.policy = restored(type(learner.policy), plain["policy"], begins=begins)
        learner.monitor = CorruptionMonitor.from_state(deep(plain["monitor"]))
        learner.place, learner.clock, learner._turn = plain["place"], plain["clock"], plain["turn"]
        learner.pending = dict(msgspec.convert(plain["pending"], list[tuple[str, Waiting]]))
        settled = msgspec.convert(plain["settled"], list[tuple[int, tuple[Waiting, float | None]]])
        learner._settled = dict(settled)
        learner.rewards, learner.defaults, learner.lost = plain["counts"]
        learner.levels = Counter(dict(plain["levels"]))
        learner.recent.extend((round_, reward) for round_, reward in plain["recent"])
        learner.history = History(msgspec.convert(plain["curves"], dict[str, list[Bucket]]))
        learner.alarm, proof = (msgspec.convert(plain[name], Proved | None) for name in ("alarm", "proof"))
        actions, sources, uniform = plain["tallies"]  # without them, the whole log is folded
        learner.actions.restore(actions)
        learner.sources.restore(sources)
        learner.uniform = msgspec.convert(uniform, UniformSums)
        learner.board.restore(plain["board"], proof)
        learner.unusual = plain.get("unusual", {})  # older snapshots have none
        if learner.trust is not None:
            learner.trust.restore(plain["trust"])  # without it, the whole log is folded
        return learner
