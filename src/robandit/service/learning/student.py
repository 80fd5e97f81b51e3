"""Policies that learn from a log, whoever made its decisions."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np

from robandit.policies import POLICIES, Decision, Policy, Quorum
from robandit.policies.follow import follow
from robandit.wire.changes import RULINGS
from robandit.wire.events import Changed, Closed, Decided, Event, Imported, Rewarded
from robandit.wire.types import BanditSettings

REFOLD = ("policy", "policy_settings", "radius_scale", "horizon", "corruption")
"""Settings of a policy without which it would have learnt otherwise from the beginning."""


class UnknownPolicyError(ValueError):
    """This version has no such policy."""


def make_policy(settings: BanditSettings, seed: int) -> Policy:
    """The policy of a bandit, which has seen nothing."""
    if settings.policy not in POLICIES:
        raise UnknownPolicyError(settings.policy)
    return POLICIES[settings.policy](**settings.for_policy(), seed=seed)


def changed(settings: BanditSettings, event: Changed) -> BanditSettings:
    """The settings after a change."""
    new = {name: value for name, value in event.settings.items() if name in BanditSettings.__struct_fields__}
    return msgspec.convert(msgspec.to_builtins(settings) | new, BanditSettings) if new else settings


def needs_refold(event: Event) -> bool:
    """Whether a new policy acts, or watches, after this event."""
    return isinstance(event, Changed) and (watches(event) or any(name in event.settings for name in REFOLD))


def watches(event: Changed) -> bool:
    """Whether the new policy only watches."""
    return "shadow" in event.settings and not event.settings["shadow"]["remove"]


def learns_with(settings: BanditSettings, event: Changed) -> BanditSettings:
    """The settings of the policy that learns the log for a change."""
    if not watches(event):
        return changed(settings, event)
    own = {name: event.settings["shadow"][name] for name in (*REFOLD, "exploration") if name != "horizon"}
    return msgspec.convert(msgspec.to_builtins(settings) | own, BanditSettings)


def rule(policy: Policy, event: Changed) -> None:
    """Tell a policy what an operator said of a source, if it tells that one apart."""
    said = event.settings.get("ruling")
    if said is not None and isinstance(policy, Quorum):
        do = dict(zip(RULINGS, (policy.trust, policy.quarantine, policy.release), strict=True))[said["ruling"]]
        with suppress(ValueError):  # more sources came than it tells apart
            do(said["source"])


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
    action: int = 0
    """Number by which a tally knows its action."""
    origin: int = 0
    """The same of its source."""
    uniform: float = 0.0
    """Its weight in an estimate of uniform play."""

    @classmethod
    def on(cls, made: Decided, number: int, **more: Any) -> Waiting:
        """Keep what the reward of this decision, the log's ``number``-th, will need."""
        features = array("d", made.features).tobytes()  # a fifth of the time of np.array
        return cls(number, made.at, made.index, features, made.sigma, made.level, made.source, **more)

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


def learn_import(policy: Policy, row: Imported, share: float, width: float) -> None:
    """Learn from outside: no round of this bandit, and the level is drawn as if it were the last one again."""
    decision = Decision(round=policy.rounds, action=np.array(row.features), sigma=row.sigma / width, source=row.source)
    follow(policy, decision, share)


class Student:
    """A policy that learns a log from its beginning, event by event, and has made none of its decisions.

    It is a `Pupil`.
    """

    def __init__(self, settings: BanditSettings, seed: int) -> None:
        self.policy = make_policy(settings, seed)
        self.place = 0
        """Number of events learnt so far."""
        self._declared = settings.declared
        self._width = 1.0 if self._declared is None else self._declared.width
        self._waiting: dict[str, Waiting] = {}
        self._decisions = 0

    def apply(self, event: Event) -> None:
        """Learn from an event."""
        self.place += 1
        if isinstance(event, Decided):
            self.policy.skip_to(event.round)
            self._decisions += 1
            self._waiting[event.id] = Waiting.on(event, self._decisions)
        elif isinstance(event, Rewarded | Closed):
            waiting = self._waiting.pop(event.id)
            if event.reward is not None:
                share = event.reward if self._declared is None else self._declared.share(event.reward)
                follow(self.policy, waiting.decision(self._width), share)
        elif isinstance(event, Imported):
            share = event.reward if self._declared is None else self._declared.share(event.reward)
            learn_import(self.policy, event, share, self._width)
        elif isinstance(event, Changed):
            rule(self.policy, event)

    def state(self) -> bytes:
        """All of it as bytes."""
        return msgspec.msgpack.encode(
            (flat(self.policy.state()), self.place, self._decisions, list(self._waiting.items()))
        )

    def load(self, data: bytes) -> None:
        """Go on from what `state` gave, bit for bit."""
        state, self.place, self._decisions, waiting = msgspec.msgpack.decode(data)
        self.policy = type(self.policy).from_state(deep(state))
        self._waiting = dict(msgspec.convert(waiting, list[tuple[str, Waiting]]))

    def come_in(self, place: int, decisions: int, rounds: int, waiting: Mapping[str, Waiting]) -> None:
        """Begin after a place of the log, having learnt nothing of what comes before."""
        self.place, self._decisions, self._waiting = place, decisions, dict(waiting)
        self.policy.skip_to(rounds)


def restored(kind: type[Policy], kept: dict[str, Any], *, begins: bool) -> Policy:
    """The policy of a snapshot, which is the fold of its log, or of the state that a cut log ``begins`` with.

    A snapshot that a release with other `numerics` kept is refused: by this release the log folds to something else.
    A log that was cut goes on from what it begins with, since there is nothing else.
    """
    if not begins and (found := kept.get("numerics", 1)) != kind.numerics:
        raise ValueError(f"{kind.__name__} has numerics {found} in this snapshot, and {kind.numerics} here")
    return kind.from_state(deep(kept))


def flat(state: dict[str, Any]) -> dict[str, Any]:
    """A state with its arrays as bytes."""
    arrays = {name: (array.dtype.str, array.shape, array.tobytes()) for name, array in state["arrays"].items()}
    return {**state, "arrays": arrays}


def deep(state: dict[str, Any]) -> dict[str, Any]:
    """A state with its bytes as arrays: the inverse of `flat`."""
    arrays = {
        name: np.frombuffer(body, dtype=np.dtype(kind)).reshape(shape)
        for name, (kind, shape, body) in state["arrays"].items()
    }
    return {**state, "arrays": arrays}
