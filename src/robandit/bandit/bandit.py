"""`Bandit`: choose among your own records, and learn from your own rewards."""

from __future__ import annotations

from dataclasses import dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from robandit.arrays import Floats
from robandit.bandit.explanation import Explanation, explained
from robandit.bandit.memory import Memory
from robandit.bandit.pick import PLAIN, Pick, read_ids
from robandit.bandit.setup import check_plain, read_features, read_policy, restored
from robandit.bandit.transformed import Transformed
from robandit.errors import Configured
from robandit.features import Features
from robandit.inputs import integer, share
from robandit.policies.saved import read_saved, write_saved
from robandit.policies.sources import read_source
from robandit.rewards import Rewards

WARM_UP = 100
"""The number of decisions after which scales that were learnt online stay as they are."""


@dataclass(kw_only=True, eq=False, repr=False)
class Bandit(Configured):
    """Chooses among candidates as people have them, and answers with their ids.

    ``features`` are `Features` or a fitted scikit-learn transformer; without, candidates are plain ids. ``rewards`` are
    "clicks", (lowest, highest) or `Rewards`. ``horizon`` is roughly how many decisions are to come.

    >>> bandit = Bandit(rewards="clicks", seed=1)
    >>> chosen = bandit.choose(["red", "green", "blue"])
    >>> chosen.id in ("red", "green", "blue")
    True
    >>> bandit.learn(chosen, 1)                       # or later, with chosen.decision_id
    """

    features: Any = None
    """How candidates become vectors: `Features`, of which a copy is kept, or a fitted scikit-learn transformer."""
    rewards: Any = "clicks"
    """What a reward can be: "clicks", (lowest, highest) or `Rewards`."""
    horizon: int = 10_000
    """Roughly how many decisions are to come."""
    seed: int | None = None
    """The seed of the policy's draws; a fresh one by default."""
    policy: Any = None
    """A policy, its class, its name (with settings, if you like), or what `recommend` gave; by default that."""
    id: str | None = None
    """The column that names a candidate; by default the one that the features say, or ``id``."""
    fixed_sets: bool = False
    """Whether the same candidates come back every time."""
    sources: int | None = None
    """How many sources of traffic there are, if that is known."""
    parameter_bound: float | None = None
    """The largest norm of the unknown parameter, if you know one."""
    exploration: float = 0.0
    """The probability of playing uniformly, so that every candidate has a propensity above 0."""
    action_bound: float = 1.0
    """The longest vector that a scikit-learn transformer makes. `Features` say their own."""
    max_pending: int = 10_000
    """How many decisions may wait for their reward; beyond that the oldest are forgotten."""

    def __post_init__(self) -> None:
        self._plain = self.features is None
        self.rewards = Rewards.read(self.rewards)
        self.features = read_features(self.features, self.action_bound)
        self.id = self.features.id if self.id is None else self.id
        for name in ("horizon", "max_pending"):
            integer(name, getattr(self, name), 1)
        told = {name: getattr(self, name) for name in ("horizon", "fixed_sets", "sources", "parameter_bound")}
        more = {"exploration": share("exploration", self.exploration), "seed": self.seed}
        self.policy, self.reason = read_policy(self.policy, self.rewards, self.features, told, more)
        self._memory = Memory(self.policy, self.features)
        known = f"{self.policy.seed} {self.features.names}"
        self._tag = blake2b(known.encode(), digest_size=4).hexdigest()

    # What an application calls.

    def choose(self, candidates: Any, context: Any = None, source: str | int | None = None) -> Pick:
        """Choose one of the candidates: dicts, a frame of pandas, polars or Arrow, or plain ids.

        ``context`` is what is the same for all of them, such as the user; ``source`` is where the visitor comes from.
        """
        read_source(source, 1, single=True)
        if self._plain:
            check_plain(candidates, context)
        ids = read_ids(candidates, self.id)
        if self._plain:
            candidates = {PLAIN: ids}
        rows, read = self._encode(candidates, context, source)
        decision = self.policy.choose(rows, source=source, propensity=True)
        name = f"{self._tag}-{decision.round}"
        self._memory.decided(name, decision, read, self.max_pending)
        return Pick(
            id=ids[decision.index],
            decision_id=name,
            index=decision.index,
            propensity=decision.propensity,
            value=self.rewards.reward(decision.value),
            source=source,
            ids=ids,
            rows=rows,
            read=read,
        )

    def _encode(self, candidates: Any, context: Any, source: Any) -> tuple[Floats, Floats | None]:
        """The vectors of candidates and, while their scales are learnt, what was read of them."""
        if self.features.scaling and self.policy.rounds >= WARM_UP:
            self.policy = self._memory.settle()
        if not self.features.scaling:
            return self.features.encode(candidates, context, source), None
        assert isinstance(self.features, Features)
        read = self.features.read(candidates, context, source)
        self.policy = self._memory.learn_again()
        return self.features.scale(read), read

    def learn(self, decision: Pick | str, reward: float) -> None:
        """Learn the reward of a decision, by what `choose` gave or by its ``decision_id``: late and in any order.

        A decision has one reward. One that brought nothing has one, too: say 0 where nobody clicked.
        """
        name = decision.decision_id if isinstance(decision, Pick) else decision
        if not isinstance(name, str) or name not in self._memory.waiting:
            raise self._unknown(name)
        self._memory.rewarded(name, self.rewards.share(self.rewards.check(reward)))

    def _unknown(self, name: Any) -> Exception:
        """What is wrong with a decision that does not wait for a reward."""
        if not isinstance(name, str):
            return TypeError(f"learn needs what choose gave, or its decision_id, and then the reward; got {name!r:.60}")
        tag, _, number = name.rpartition("-")
        if tag != self._tag or not number.isdecimal() or not 0 < int(number) <= self.policy.rounds:
            return ValueError(
                f"there is no decision {name!r:.60} here: choose comes before learn, and a bandit that was loaded "
                "knows the decisions from before it was saved"
            )
        rest = f"; or it is one of {self._memory.forgotten} that were forgotten, since more than max_pending="
        forgotten = f"{rest}{self.max_pending} waited" if self._memory.forgotten else ""
        return ValueError(f"decision {name!r} has had its reward, and has one only{forgotten}")

    def explain(self, chosen: Pick) -> Explanation:
        """Which features spoke for a choice, by what is known now, and beside the best of the others."""
        if not isinstance(chosen, Pick):
            raise TypeError(f"explain needs what choose gave, since it holds the other candidates; got {chosen!r:.60}")
        vectors = chosen.rows if chosen.read is None else self.features.scale(chosen.read)
        parts = vectors * self.policy.estimate().center * self.rewards.width
        return explained(chosen.ids, chosen.index, parts, self.rewards.low, self.features.names)

    def estimate(self) -> dict[str, float]:
        """What has been learnt, by name: the change in reward for one unit of a number, or for a label.

        The constant is the reward where all numbers are at their centre, and without any label.
        """
        effects = self.features.explain(self.policy.estimate().center)
        found = {name: self.rewards.width * effect for name, effect in effects.items()}
        if "(constant)" in found:
            found["(constant)"] += self.rewards.low
        return found

    @property
    def pending(self) -> list[str]:
        """The ids of the decisions that wait for their reward, the oldest first."""
        return list(self._memory.waiting)

    # Files.

    def save(self, path: str | Path) -> None:
        """Write all of it into one file: features, what was learnt, and the decisions that wait for their reward."""
        settings = {item.name: getattr(self, item.name) for item in fields(self)} | {
            "features": _as_saved(self.features),
            "rewards": self.rewards.to_json(),
            "policy": None,
        }
        own = {"plain": self._plain, "tag": self._tag, "reason": self.reason, "memory": self._memory.state()}
        write_saved(path, "bandit", {"settings": settings, **own})

    @classmethod
    def load(cls, path: str | Path, *, features: Any = None) -> Self:
        """The bandit that was saved in a file; it continues bit for bit.

        A scikit-learn transformer is not in the file: pass it as ``features``.
        """
        held = read_saved(path, "bandit")
        found = cls.__new__(cls)
        for name, value in held["settings"].items():
            setattr(found, name, value)
        found.features = restored(found.features, features, path)
        found.rewards = Rewards.read(found.rewards)
        found._plain, found._tag, found.reason = held["plain"], held["tag"], held["reason"]
        found._memory = Memory.from_state(held["memory"], found.features)
        found.policy = found._memory.policy
        return found


def _as_saved(features: Features | Transformed) -> Any:
    if isinstance(features, Features):
        return features.to_json()
    return {"names": features.names, "longest": features.longest}
