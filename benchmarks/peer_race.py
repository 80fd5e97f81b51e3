"""Our policies and peers in the same trials: fresh sets, the paper's attack, and nobody is told the corruption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from peer_adapters import Contender, Knobs, Peer, Trial
from robandit.arrays import Floats
from robandit.experiments.tune import GRID
from robandit.lab.attacks import Adversary, Flip
from robandit.lab.environments import Fresh
from robandit.lab.protocol import Scenario, simulate
from robandit.policies import POLICIES, Decision, Policy
from robandit.streams import ENVIRONMENT, Draws

WORLD = Fresh(dim=5, actions=20, hide_sigma=True)
BY_CLASS = {kind.__name__: kind for kind in POLICIES.values()}


class Race(NamedTuple):
    """The trials at one amount of corruption."""

    flips: int
    """The number of flipped rounds, k."""
    trials: Sequence[int]
    rounds: int
    seed: int


class Entrant(Protocol):
    """A learner, ours or a library's, with a grid of knobs, that can enter a race."""

    @property
    def name(self) -> str: ...
    @property
    def grid(self) -> Sequence[Knobs]: ...
    @property
    def rule(self) -> str: ...
    @property
    def slow(self) -> bool: ...
    def regret(self, knobs: Knobs, race: Race) -> Floats: ...


@dataclass(frozen=True)
class Own:
    """One of our policies, by the name of its class. It is never told the corruption."""

    name: str
    told_sigma: bool = False
    rule: str = ""
    slow: bool = False

    @property
    def grid(self) -> Sequence[Knobs]:
        if "radius_scale" not in self._wanted:
            return [{}]  # Quorum plays with its defaults
        return [{"radius_scale": scale} for scale in GRID[::2]]

    @property
    def _wanted(self) -> set[str]:
        return {item.name for item in fields(BY_CLASS[self.name])}

    def make(self, knobs: Knobs, **settings: Any) -> Policy:
        """The policy, with those settings that it has."""
        settings |= {"noise_range": WORLD.noise_range, "corruption": None, **knobs}
        return BY_CLASS[self.name](**{name: value for name, value in settings.items() if name in self._wanted})

    def regret(self, knobs: Knobs, race: Race) -> Floats:
        settings: dict[str, Any] = {"corruption": None, **knobs}
        policy = partial(BY_CLASS[self.name], **{name: settings[name] for name in self._wanted & set(settings)})
        world = replace(WORLD, hide_sigma=not self.told_sigma)
        scenario = Scenario(world, Flip(rounds=race.flips), race.trials)
        return simulate(policy=policy, scenarios=[scenario], rounds=race.rounds, seed=race.seed).regret[-1]


@dataclass(frozen=True)
class Theirs:
    """A learner of a library."""

    contender: Contender

    @property
    def name(self) -> str:
        return self.contender.name

    @property
    def grid(self) -> Sequence[Knobs]:
        return self.contender.grid

    @property
    def rule(self) -> str:
        return self.contender.rule

    @property
    def slow(self) -> bool:
        return self.contender.slow

    def regret(self, knobs: Knobs, race: Race) -> Floats:
        seeds = [1000 * race.seed + trial for trial in race.trials]
        return play([self.contender.make(knobs, Trial(WORLD.dim, race.rounds, seed)) for seed in seeds], race)


def play(peers: Sequence[Peer], race: Race) -> Floats:
    """The regret (B,) of one learner per trial: the loop of `robandit.lab.protocol` for learners without batches."""
    attack, rows, regret = Flip(rounds=race.flips), np.arange(len(peers)), np.zeros(len(peers))
    world = WORLD.rounds(Draws(seed=race.seed, trials=race.trials, who=ENVIRONMENT))
    adversary = Adversary([(attack, WORLD, race.trials)], race.seed)
    for _ in range(race.rounds):
        offer = next(world)
        plot = adversary.commit(offer, [offer])
        assert isinstance(plot.actions, np.ndarray)
        shown = [peer.build(peer.convert(actions)) for peer, actions in zip(peers, plot.actions, strict=True)]
        index = np.array([peer.pick(one) for peer, one in zip(peers, shown, strict=True)])
        decision = Decision(round=offer.round, action=plot.actions[rows, index], index=index)
        rewards = adversary.answer(offer, [offer], plot, decision)
        for peer, one, place, reward in zip(peers, shown, index.tolist(), rewards.tolist(), strict=True):
            peer.learn(one, place, reward)
        regret += offer.menu.best - offer.mean_of(index, decision.action)
    return regret


class Alone(Peer):
    """One of our policies behind the interface of a library, to check `play`."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._decision = policy, Decision(round=0, action=None)

    def pick(self, shown: Any) -> int:
        self._decision = self._policy.choose(shown)
        return int(self._decision.index)

    def learn(self, shown: Any, index: int, reward: float) -> None:
        self._policy.update(self._decision, reward)


def check_play(seed: int) -> None:
    """Check that peers play the same trials as ours: OFUL must have the same regret in `play` and in `simulate`."""
    race, oful = Race(25, (0, 1), 100, seed), Own("OFUL")
    alone = [Alone(oful.make({}, dim=WORLD.dim, seed=(seed, trial))) for trial in race.trials]
    np.testing.assert_allclose(play(alone, race), oful.regret({}, race), rtol=1e-9)
