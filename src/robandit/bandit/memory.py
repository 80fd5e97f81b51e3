"""What a bandit remembers: its policy, the decisions that wait for a reward, and what must be learnt again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from robandit.arrays import Floats
from robandit.policies.base import Policy
from robandit.policies.decision import Decision

_NEEDED = "round", "action", "sigma", "level", "source"  # what `update` reads of a decision


@dataclass(slots=True, eq=False)
class Remembered:
    """A decision and, while scales are learnt, what was read of its candidates."""

    decision: Decision
    read: Floats | None = None
    """The row of the chosen candidate, or of the whole set if vectors are centred within it; None once scaled."""
    place: int = 0
    """The place of the chosen candidate in ``read``."""
    share: float | None = None
    """The reward as a share of the range, once it came."""

    def state(self) -> dict[str, Any]:
        """All of it as plain data."""
        decision = {name: getattr(self.decision, name) for name in _NEEDED}
        return {"decision": decision, "read": self.read, "place": self.place, "share": self.share}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Remembered:
        """What `state` was taken from."""
        return cls(Decision(**state["decision"]), state["read"], state["place"], state["share"])


class Memory:
    """Passes rewards on to a policy, once each.

    While features learn their scales, vectors change. So every reward is then kept with what was read, and before each
    decision the policy learns all of them again from nothing, in the scales of now. `settle` ends that.
    """

    def __init__(self, policy: Policy, features: Any) -> None:
        self.policy, self._features = policy, features
        self.waiting: dict[str, Remembered] = {}
        """The decisions that wait for a reward, by their ids, the oldest first."""
        self.forgotten = 0
        """How many decisions were forgotten because too many waited for a reward."""
        self._early: list[Remembered] = []
        self._start = policy.state() if features.scaling else None

    def decided(self, name: str, decision: Decision, read: Floats | None, most: int) -> None:
        """Remember a decision until its reward comes, or until ``most`` later ones wait."""
        kept = Remembered(decision)
        if read is not None:
            whole = self._features.centred
            kept.read = read if whole else read[decision.index : decision.index + 1]
            kept.place = decision.index if whole else 0
        self.waiting[name] = kept
        if len(self.waiting) > most:
            del self.waiting[next(iter(self.waiting))]
            self.forgotten += 1

    def rewarded(self, name: str, share: float) -> None:
        """Learn the reward of a decision that waits for it."""
        kept = self.waiting[name]
        self._learn(kept, share)
        del self.waiting[name]
        if kept.read is not None:
            self._early.append(replace(kept, share=share))

    def learn_again(self) -> Policy:
        """Learn all rewards so far in the scales of now, and return the policy that did."""
        assert self._start is not None
        fresh = type(self.policy).from_state(self._start)
        fresh.skip_to(self.policy.rounds)
        fresh.keep_rulings(self.policy)
        self.policy = fresh
        for kept in self._early:
            assert kept.share is not None
            self._learn(kept, kept.share)
        return fresh

    def settle(self) -> Policy:
        """Keep the scales of now for good, and return the policy that goes on in them."""
        self._features.freeze(labels=False)
        self.learn_again()
        for kept in self.waiting.values():
            kept.decision, kept.read = self._scaled(kept), None
        self._early, self._start = [], None
        return self.policy

    def _learn(self, kept: Remembered, share: float) -> None:
        self.policy.update(self._scaled(kept), share)

    def _scaled(self, kept: Remembered) -> Decision:
        """A decision with the vector of its action in the scales of now."""
        if kept.read is None:
            return kept.decision
        return replace(kept.decision, action=self._features.scale(kept.read)[kept.place])

    def state(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "policy": self.policy.state(),
            "start": self._start,
            "forgotten": self.forgotten,
            "waiting": {name: kept.state() for name, kept in self.waiting.items()},
            "early": [kept.state() for kept in self._early],
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], features: Any) -> Memory:
        """What `state` was taken from."""
        found = cls(Policy.named(state["policy"]["policy"]).from_state(state["policy"]), features)
        found._start, found.forgotten = state["start"], state["forgotten"]
        found.waiting = {name: Remembered.from_state(kept) for name, kept in state["waiting"].items()}
        found._early = [Remembered.from_state(kept) for kept in state["early"]]
        return found
