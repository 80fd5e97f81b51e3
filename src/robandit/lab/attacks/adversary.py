"""The adversary of a batch: it runs the attacks, cuts their lies to the budget and keeps the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np

from robandit.arrays import Bools, Floats, Index, count_to
from robandit.geometry.regions import Region
from robandit.lab.attacks.base import Attack
from robandit.lab.attacks.ledger import Ledger
from robandit.lab.environments import Environment, Offer
from robandit.policies import Decision
from robandit.streams import ATTACK, Draws


class Plot(NamedTuple):
    """What the adversary commits to in a round before the action is drawn."""

    actions: Floats | Region
    """The decision sets that the policy is shown."""
    lies: Floats | None = None
    """The lie about every action, (B, K): what its reward changes by if it is played. None if there are no lies."""
    moves: Floats | None = None
    """The distance by which the features of every action were moved, (B, K). None if none were."""


class Adversary:
    """Several attacks, each given as (attack, environment, trial numbers) and run on its own part of a batch."""

    def __init__(self, attacks: Sequence[tuple[Attack, Environment, Sequence[int]]], seed: int) -> None:
        sizes = [len(trials) for _, _, trials in attacks]
        ends = np.cumsum(sizes).tolist()
        self._rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self._attacks = [copy(attack) for attack, _, _ in attacks]
        for attack, (_, environment, trials) in zip(self._attacks, attacks, strict=True):
            attack.start(Draws(seed=seed, trials=trials, who=ATTACK), environment)
        budgets = [np.inf if attack.budget is None else attack.budget for attack in self._attacks]
        strong = [attack.strength == "strong" for attack in self._attacks]
        self.ledger = Ledger(
            budgets=np.repeat(budgets, sizes), strong=np.repeat(strong, sizes), noise_range=attacks[0][1].noise_range
        )
        self._disguised = any(type(attack).disguise is not Attack.disguise for attack in self._attacks)
        self._watched = any(type(attack).observe is not Attack.observe for attack in self._attacks)

    def commit(self, offer: Offer, parts: Sequence[Offer]) -> Plot:
        """Decide on the lies of a round (step 3). ``parts`` holds the offer to each attack, ``offer`` joins them."""
        actions = offer.actions
        if self.ledger.exhausted or not isinstance(actions, np.ndarray):
            return Plot(actions)  # an infinite set has lies without number; `answer` finds the one that matters
        left, moves, shown = self.ledger.left[:, None], None, actions
        wanted = self._ask("disguise", parts, actions.copy) if self._disguised else None
        if wanted is not None:
            moves = np.linalg.norm(wanted - actions, axis=2)
            part = np.divide(left, moves, out=np.ones_like(moves), where=moves > left)
            shown, moves = actions + part[:, :, None] * (wanted - actions), part * moves
        lies = self._ask("corrupt", parts, lambda: np.zeros_like(offer.means))
        if lies is not None:
            limit = left if moves is None else np.maximum(left - moves, 0.0)
            lies = np.minimum(np.maximum(lies, -limit), limit)
        return Plot(shown, lies, moves)

    def answer(self, offer: Offer, parts: Sequence[Offer], plot: Plot, decision: Decision) -> Floats:
        """The reward that the policy is told for its action (step 5), (B,)."""
        played: Index = decision.index
        reward = offer.reward_of(played, decision.action)
        if not isinstance(offer.actions, np.ndarray) and (self._watched or not self.ledger.exhausted):
            self._check_infinite()
            offer, parts = (
                offer.narrowed(decision.action),
                [part.narrowed(decision.action[rows]) for part, rows in zip(parts, self._rows, strict=True)],
            )
            plot, played = self.commit(offer, parts), np.full(len(decision.action), -1)
        for attack, part, rows in zip(self._attacks, parts, self._rows, strict=True):
            if type(attack).observe is not Attack.observe:
                attack.observe(part, played[rows], reward[rows])
        if plot.lies is None and plot.moves is None:
            return reward
        amounts = np.zeros_like(offer.means) if plot.lies is None else np.abs(plot.lies)
        self.ledger.book(amounts if plot.moves is None else amounts + plot.moves, played)
        return reward if plot.lies is None else reward + plot.lies[count_to(len(reward)), played]

    def liars(self, parts: Sequence[Offer]) -> Bools:
        """Whether each trial's visitor belongs to its attack, (B,). Attacks that do not say own nobody."""
        return np.concatenate([attack.owns(part) for attack, part in zip(self._attacks, parts, strict=True)])

    def _check_infinite(self) -> None:
        """Refuse infinite decision sets if some attack can't lie about them."""
        for attack in self._attacks:
            if not attack.infinite:
                raise ValueError(f"{type(attack).__name__} needs finite decision sets, and these are infinite")

    def _ask(self, what: str, parts: Sequence[Offer], default: Callable[[], Floats]) -> Floats | None:
        """Ask all attacks to `corrupt` or `disguise`. One that has no answer gets ``default``; None if none has any."""
        answers = [getattr(attack, what)(part) for attack, part in zip(self._attacks, parts, strict=True)]
        if all(answer is None for answer in answers):
            return None
        whole = default()
        for attack, answer, rows in zip(self._attacks, answers, self._rows, strict=True):
            if answer is None:
                continue
            if np.shape(answer) != whole[rows].shape or not np.isfinite(answer).all():
                raise ValueError(
                    f"{type(attack).__name__}.{what} must give finite numbers of shape {whole[rows].shape}, "
                    f"got shape {np.shape(answer)}: {answer!r:.60}"
                )
            whole[rows] = answer
        return whole
