"""A game: four policies in a world, each under the visitor's lies and, beside that, where nobody lies.

It plays by the lab's own parts, so that `robandit simulate` plays the same rounds again, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats
from robandit.lab.attacks import NoAttack
from robandit.lab.attacks.recorded import LieStretch, Recorded, Script
from robandit.lab.catalogue import find
from robandit.lab.environments import Offer
from robandit.lab.plan import read_entries
from robandit.lab.protocol import Lane, Scenario, world_of
from robandit.monitor.certificate import Certificate
from robandit.monitor.monitor import CorruptionMonitor
from robandit.play.worlds import PlayWorld
from robandit.policies import Quorum

POINTS = 400
"""The curves of a game have about so many points."""
_STATES = 16  # states that are kept, from which rewinding begins
_LOOKS, _FIRST_LOOK = 1.15, 40  # the least ratio of the rounds of two looks of the monitor, which take long
LIED, HONEST = 0, 1  # the two trials of every lane


class Lie(NamedTuple):
    """What the visitor reports, as in `LieStretch`."""

    kind: str
    source: int | None = None


class CurvePoint(NamedTuple):
    """A point of the curves: what each policy has lost by this round, under the lies and without."""

    round: int
    lied: tuple[float, ...]
    honest: tuple[float, ...]


class Moment(NamedTuple):
    """All of a game that the rounds change, as it was after some round."""

    round: int
    lanes: list[Lane]
    certificate: Certificate | None
    """What the monitor proved when it last looked."""
    next_look: int


class Game:
    """Four policies in a world with this seed, whose rounds are played as the visitor asks for them.

    >>> from robandit.play.worlds import PAPER
    >>> game = Game(PAPER, seed=1, budget=5.0)
    >>> game.play(20, Lie("flip"))
    >>> game.round, game.spent > 0.0, str(game.script)
    (20, True, '1-20 flip')
    >>> game.rewind(10)
    >>> game.round, str(game.script)
    (10, '1-10 flip')
    """

    def __init__(self, world: PlayWorld, *, seed: int, budget: float) -> None:
        self.world, self.seed, self.budget = world, seed, budget
        self.environment = world.make()
        attack = Recorded(lies="", budget=budget)
        self._scenarios = [Scenario(self.environment, one, [0]) for one in (attack, NoAttack())]
        self.script: Script = attack.script
        """The lies so far: the adversaries of all lanes read it."""
        self.points: list[CurvePoint] = []
        self._now = Moment(0, self._new_lanes(), None, _FIRST_LOOK)
        self._kept = [self._copy()]
        self._offers, self.truth = self._world(), self._parameter()

    def _new_lanes(self) -> list[Lane]:
        policies = read_entries("policies", self.world.config(seed=self.seed, budget=0.0, lies="")["policies"])
        makers = [partial(find("policies", entry.kind), **entry.settings) for entry in policies]
        watched = partial(CorruptionMonitor, sources=len(self.environment.shares))
        at = np.zeros(0, np.int64)  # no checkpoints: a game reads the sums itself
        return [
            Lane(make, self._scenarios, self.rounds, self.seed, at, watched if make is makers[-1] else False, None)
            for make in makers
        ]

    def _world(self) -> Iterator[tuple[Offer, Sequence[Offer]]]:
        return world_of(self._scenarios, self.seed)

    def _parameter(self) -> list[float]:
        """μ*, as it is in the first round."""
        return next(self._world())[0].menu.parameter[LIED].tolist()

    # What it is.

    @property
    def rounds(self) -> int:
        """How long it goes on."""
        return self.world.rounds

    @property
    def round(self) -> int:
        """The last round that was played."""
        return self._now.round

    @property
    def lanes(self) -> list[Lane]:
        """The policies with their adversaries."""
        return self._now.lanes

    @property
    def quorum(self) -> Quorum:
        """The policy that tells whom it doubts."""
        policy = self.lanes[-1].policy
        assert isinstance(policy, Quorum)
        return policy

    @property
    def certificate(self) -> Certificate | None:
        """What the monitor has proved of the rewards that Quorum is told; None before it has looked."""
        return self._now.certificate

    @property
    def spent(self) -> float:
        """C_sup of the lies so far, in the unit of the budget. It is the same for all policies."""
        return float(self.lanes[0].adversary.ledger.c_sup[LIED])

    @property
    def told(self) -> list[float]:
        """C_play of each policy: by how much the rewards that it was told were changed."""
        return [float(lane.adversary.ledger.c_play[LIED]) for lane in self.lanes]

    @property
    def regret(self) -> Floats:
        """What each policy has lost, (policies, 2): under the lies, and where nobody lies."""
        return np.array([lane.record.regret for lane in self.lanes])

    # Playing.

    def play(self, rounds: int, lie: Lie | None = None) -> None:
        """Play on for some rounds, at most to the end, with this lie in each of them."""
        end = min(self.round + rounds, self.rounds)
        if lie is not None and end > self.round:
            self.script.add(LieStretch(self.round + 1, end, *lie))
        for offer, parts in islice(self._offers, end - self.round):
            for lane in self.lanes:
                lane.play(offer, parts)
            self._now = self._now._replace(round=offer.round)
            self._keep()

    def _keep(self) -> None:
        """Note the curves, let the monitor look, and keep the state, each where it is due."""
        t = self.round
        if t % max(1, self.rounds // POINTS) == 0 or t == self.rounds:
            lied, honest = self.regret.T.tolist()
            self.points.append(CurvePoint(t, tuple(lied), tuple(honest)))
        if t >= self._now.next_look or t == self.rounds:
            monitor = self.lanes[-1].monitor
            assert monitor is not None
            found = monitor.certificate()[LIED]
            self._now = self._now._replace(certificate=found, next_look=max(t + 1, int(t * _LOOKS)))
        if t % max(1, self.rounds // _STATES) == 0:
            self._kept.append(self._copy())

    def _copy(self) -> Moment:
        """The state, which the original will not change. Both read the same script."""
        lanes = deepcopy(self.lanes, {id(self.script): self.script})
        return self._now._replace(lanes=lanes)

    def rewind(self, to: int) -> None:
        """Go back to the end of a round, and forget what came after it: rounds, lies, proofs."""
        if not 0 <= to <= self.round:
            raise ValueError(f"a game that is in round {self.round} can't go back to {to}")
        again = Script(self.script.stretches)
        self._kept = [kept for kept in self._kept if kept.round <= to]
        self._now = self._kept[-1]
        self._now = self._copy()
        self.points = [point for point in self.points if point.round <= self.round]
        self._offers = islice(self._world(), self.round, None)
        self.script.cut(self.round)
        self.follow(again, to)

    def follow(self, script: Script, to: int) -> None:
        """Play on to the end of a round, with the lies of a script."""
        while self.round < to:
            lie = script.at(self.round + 1)
            begins = [stretch.begin - 1 for stretch in script.stretches if stretch.begin > self.round + 1]
            end = min([to, *begins, *([lie.end] if lie else [])])
            self.play(end - self.round, Lie(lie.kind, lie.source) if lie else None)
