"""RobustBandit: EXP3 guesses the corruption, LinUCB plays with the guess."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, e, log, log2, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats, Ints
from robandit.inputs import integer
from robandit.policies import radius
from robandit.policies.confidence import Confident, Levelled, OneEllipsoid
from robandit.policies.master import draw, gain, softmax


@dataclass(kw_only=True, eq=False)
class RobustBandit(Levelled, OneEllipsoid, Confident):
    """LinUCB widened for a corruption C′, which EXP3 picks anew for every epoch (Ding, Hsieh and Sharpnack 2022).

    Assumes no knowledge of the corruption, by an adversary that sees the action. Each epoch starts from nothing; regret
    Õ(T^{3/4}) for a constant C. Without restarts (``restart=False``, a new C′ every round) there is no proof.
    Candidates reach 2T(mean_bound + R), the most that clipped rewards can be off, where the authors' reach 2KT.
    """

    horizon: int
    """T, the number of rounds that the guarantee is for."""
    epoch: int | None = None
    """H, the length of an epoch; d√T by default, which balances what restarting and guessing cost."""
    restart: bool = True
    """Whether LinUCB forgets everything when an epoch ends. If not, epochs are of one round."""

    cost = 1.5

    def _start(self) -> None:
        super()._start()
        self.horizon = integer("horizon", self.horizon, least=1)
        if not isinstance(self.restart, bool):
            raise ValueError(f"restart must be True or False, got {self.restart!r}")
        if self.epoch is None:
            self.epoch = ceil(self.dim * sqrt(self.horizon)) if self.restart else 1
        if integer("epoch", self.epoch, least=1) > 1 and not self.restart:
            raise ValueError(f"epoch must be 1 without restarts, got {self.epoch}")
        self._reach = self.mean_bound + self.noise_range
        top = max(0, ceil(log2(2.0 * self.horizon * self._reach)))
        self._candidates = np.concatenate([[0.0], np.exp2(np.arange(top + 1))])
        epochs = ceil(self.horizon / self.epoch)
        self._rate = min(1.0, sqrt(self.levels * log(self.levels) / ((e - 1.0) * epochs)))
        self._begin()

    def _begin(self) -> None:
        self._draws = self._own_stream(key=1)
        self._log_weights: Floats = np.zeros((self._batch, self.levels))
        self._epochs: Ints = np.zeros(self._batch, np.int64)  # finished
        self._since: Ints = np.zeros(self._batch, np.int64)  # updates since the last restart,
        self._leverage: Floats = np.zeros(self._batch)  # γ_t², and
        self._gained: Floats = np.zeros(self._batch)  # Σ of the rewards in the epoch, each in [0, 1]
        self._in_epoch: Ints = np.zeros(self._batch, np.int64)
        self._level: Ints = draw(self._chances_of_candidates(), self._draws.at(0))

    @property
    def levels(self) -> int:
        """The number of candidates for the corruption."""
        return len(self._candidates)

    def probabilities(self) -> Floats:
        """The probability with which EXP3 picks each candidate, (levels,); in a batch (B, levels)."""
        chances = self._chances_of_candidates()
        return chances[0] if self._single else chances

    def _chances_of_candidates(self) -> Floats:
        return (1.0 - self._rate) * softmax(self._log_weights) + self._rate / self.levels

    def _draw_level(self, uniform: Floats) -> Ints:
        return self._level.copy()

    def _radii(self) -> Floats:
        guess = self._candidates[self._level - 1]
        return self.radius_scale * radius.robust_bandit(self._setting, self._since + 1, np.sqrt(self._leverage), guess)

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        seen = weights > 0.0
        self._leverage[seen] += self._ridge.widths(actions)[seen] ** 2
        self._ridge.update(actions, rewards, weights)
        self._since[seen] += 1
        self._in_epoch[seen] += 1
        self._gained[seen] += gain(rewards, self._reach)[seen]
        over = np.flatnonzero(seen & (self._in_epoch == self.epoch))
        if over.size:
            self._next_epoch(over)

    def _next_epoch(self, over: NDArray[np.intp]) -> None:
        """Let EXP3 learn what the candidate earned in these trials, and draw the next."""
        place = over, self._level[over] - 1
        earned = self._gained[over] / self._in_epoch[over]
        self._log_weights[place] += self._rate * earned / (self._chances_of_candidates()[place] * self.levels)
        self._gained[over], self._in_epoch[over] = 0.0, 0
        self._epochs[over] += 1
        if self.restart:
            self._ridge.reset(over)
            self._since[over], self._leverage[over] = 0, 0.0
        self._level[over] = draw(self._chances_of_candidates(), self._draws.at_each(self._epochs))[over]

    def _arrays(self) -> dict[str, NDArray[Any]]:
        own = ("log_weights", "epochs", "since", "leverage", "gained", "in_epoch", "level")
        return self._ridge.arrays() | {name: getattr(self, f"_{name}") for name in own}
