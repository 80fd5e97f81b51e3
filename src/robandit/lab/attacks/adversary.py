"""The adversary of a batch: it runs the attacks, cuts their lies to the budget and keeps the ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Bools, Floats, Index, count_to
from robandit.geometry.regions import Region
from robandit.lab.attacks.base import Attack
from robandit.lab.attacks.by_source import BySource
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


Assault: TypeAlias = tuple[Attack, Environment, Sequence[int]]
"""An attack, the environment that it is in, and the numbers of its trials."""


class Attackers:
    """The attacks of a batch, each run on its own part of it.

    Adversaries can have them in common if they are `oblivious`: then they are asked once in each round, and what they
    answer is kept until `forget`.
    """

    def __init__(self, attacks: Sequence[Assault], seed: int, common: bool = False) -> None:
        sizes = [len(trials) for _, _, trials in attacks]
        ends = np.cumsum(sizes).tolist()
        self.rows = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        self.attacks = [copy(attack) for attack, _, _ in attacks]
        for attack, (_, environment, trials) in zip(self.attacks, attacks, strict=True):
            attack.start(Draws(seed=seed, trials=trials, who=ATTACK), environment)
        self._common, self._kept = common, dict[tuple[str, int], Floats | None]()

    @property
    def oblivious(self) -> bool:
        """Whether what they want follows from the offers alone. Who owns visitors in another way may remember some."""
        kinds = [type(attack) for attack in self.attacks]
        return all(kind.observe is Attack.observe and kind.owns in (Attack.owns, BySource.owns) for kind in kinds)

    def forget(self) -> None:
        """Drop the answers of earlier rounds."""
        self._kept.clear()

    def ask(self, what: str, parts: Sequence[Offer], default: Callable[[], Floats]) -> Floats | None:
        """Ask all attacks to `corrupt` or `disguise`. One that has no answer gets ``default``; None if none has any."""
        if not self._common:
            return self._asked(what, parts, default)
        key = what, parts[0].round
        if key not in self._kept:
            self._kept[key] = self._asked(what, parts, default)
        return self._kept[key]

    def _asked(self, what: str, parts: Sequence[Offer], default: Callable[[], Floats]) -> Floats | None:
        answers = [getattr(attack, what)(part) for attack, part in zip(self.attacks, parts, strict=True)]
        if all(answer is None for answer in answers):
            return None
        whole = default()
        for attack, answer, rows in zip(self.attacks, answers, self.rows, strict=True):
            if answer is None:
                continue
            if np.shape(answer) != whole[rows].shape or not np.isfinite(answer).all():
                raise ValueError(
                    f"{type(attack).__name__}.{what} must give finite numbers of shape {whole[rows].shape}, "
                    f"got shape {np.shape(answer)}: {answer!r:.60}"
                )
            whole[rows] = answer
        return whole


class Adversary:
    """Runs the attacks of a batch. Those that ``common`` holds, if given, are asked in place of its own."""

    def __init__(self, attacks: Sequence[Assault], seed: int, common: Attackers | None = None) -> None:
        own = Attackers(attacks, seed)
        self._attacks, self._rows, self._asked = own.attacks, own.rows, common or own
        sizes = [len(trials) for _, _, trials in attacks]
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
        wanted = self._asked.ask("disguise", parts, actions.copy) if self._disguised else None
        if wanted is not None:
            moves = np.linalg.norm(wanted - actions, axis=2)
            part = np.divide(left, moves, out=np.ones_like(moves), where=moves > left)
            shown, moves = actions + part[:, :, None] * (wanted - actions), part * moves
        lies = self._asked.ask("corrupt", parts, lambda: np.zeros_like(offer.means))
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
        if self._watched:
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
