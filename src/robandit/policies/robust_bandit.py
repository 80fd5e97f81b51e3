"""RobustBandit: EXP3 guesses the corruption, LinUCB plays with the guess."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, e, log, log2, sqrt

import numpy as np

from robandit.arrays import Floats, Index, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.inputs import boolean, integer
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.master import draw, gain, softmax
from robandit.policies.parts import FieldArrays


@dataclass(kw_only=True)
class RobustBanditStatistics(FieldArrays):
    """LinUCB's statistics since the last restart, and EXP3's of the candidates."""

    ridge: Ridge
    log_weights: Floats
    """EXP3's weight of every candidate, (B, levels)."""
    epochs: Ints
    """How many epochs are finished, (B,)."""
    since: Ints
    """How many updates there were since the last restart, (B,)."""
    leverage: Floats
    """γ_t², (B,)."""
    gained: Floats
    """The sum of the rewards in the epoch, each in [0, 1], (B,)."""
    in_epoch: Ints
    """How many rewards of the epoch have come, (B,)."""
    level: Ints
    """The candidate of the epoch, from 1 on, (B,)."""


@dataclass(kw_only=True, eq=False)
class RobustBandit(Policy[RobustBanditStatistics]):
    """LinUCB widened for a corruption C′, which EXP3 picks anew for every epoch (Ding, Hsieh and Sharpnack 2022).

    Assumes no knowledge of the corruption, by an adversary that sees the action. Each epoch starts from nothing. The
    authors claim regret Õ(T^{3/4}) for a constant C; Zhao et al. (section 1) dispute the proof. Without restarts
    (``restart=False``, a new C′ every round) there is none.
    Candidates reach 2T(mean_bound + R), the most that clipped rewards can be off, where the authors' reach 2KT.
    """

    horizon: int
    delta: float = 0.05
    radius_scale: float = 1.0
    epoch: int | None = None
    """H, the length of an epoch; d√T by default, which balances what restarting and guessing cost."""
    restart: bool = True
    """Whether LinUCB forgets everything when an epoch ends. If not, epochs are of one round."""

    cost = 1.5

    def start(self) -> RobustBanditStatistics:
        self.restart = boolean("restart", self.restart)
        if self.epoch is None:
            self.epoch = ceil(self.dim * sqrt(self.horizon)) if self.restart else 1
        if integer("epoch", self.epoch, least=1) > 1 and not self.restart:
            raise ValueError(f"epoch must be 1 without restarts, got {self.epoch}")
        top = max(0, ceil(log2(2.0 * self.horizon * self.reach)))
        self.candidates = np.concatenate([[0.0], np.exp2(np.arange(top + 1))])
        epochs = ceil(self.horizon / self.epoch)
        self.rate = min(1.0, sqrt(self.levels * log(self.levels) / ((e - 1.0) * epochs)))
        self.setting = self.constants(self.delta)
        self._draws = self.own_stream(key=1)
        weights = np.zeros((self.batch, self.levels))
        return RobustBanditStatistics(
            ridge=self.new_ridge(),
            log_weights=weights,
            epochs=np.zeros(self.batch, np.int64),
            since=np.zeros(self.batch, np.int64),
            leverage=np.zeros(self.batch),
            gained=np.zeros(self.batch),
            in_epoch=np.zeros(self.batch, np.int64),
            level=draw(self._candidate_chances(weights), self._draws.at(0)),
        )

    @property
    def levels(self) -> int:
        """The number of candidates for the corruption."""
        return len(self.candidates)

    def probabilities(self) -> Floats:
        """The probability with which EXP3 picks each candidate, (levels,); in a batch (B, levels)."""
        return self.unbatched(self._candidate_chances(self.stats.log_weights))

    def _candidate_chances(self, log_weights: Floats) -> Floats:
        return (1.0 - self.rate) * softmax(log_weights) + self.rate / self.levels

    def draw_level(self, uniform: Floats) -> Ints:
        return self.stats.level.copy()

    def confidence(self, level: Ints) -> Ellipsoid:
        """LinUCB's ellipsoid, wide enough for the corruption that EXP3 guessed for this epoch."""
        stats, guess = self.stats, self.candidates[self.stats.level - 1]
        theory = radius.robust_bandit(self.setting, stats.since + 1, np.sqrt(stats.leverage), guess)
        return Ellipsoid.around(stats.ridge, self.radius_scale * theory)

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        stats, seen = self.stats, weights > 0.0
        stats.leverage[seen] += stats.ridge.widths(actions)[seen] ** 2
        stats.ridge.update(actions, rewards, weights)
        stats.since[seen] += 1
        stats.in_epoch[seen] += 1
        stats.gained[seen] += gain(rewards, self.reach)[seen]
        over = np.flatnonzero(seen & (stats.in_epoch == self.epoch))
        if over.size:
            self._next_epoch(over)

    def _next_epoch(self, over: Index) -> None:
        """Let EXP3 learn what the candidate earned in these trials, and draw the next."""
        stats, place = self.stats, (over, self.stats.level[over] - 1)
        earned = stats.gained[over] / stats.in_epoch[over]
        stats.log_weights[place] += (
            self.rate * earned / (self._candidate_chances(stats.log_weights)[place] * self.levels)
        )
        stats.gained[over], stats.in_epoch[over] = 0.0, 0
        stats.epochs[over] += 1
        if self.restart:
            stats.ridge.reset(over)
            stats.since[over], stats.leverage[over] = 0, 0.0
        stats.level[over] = draw(self._candidate_chances(stats.log_weights), self._draws.at_each(stats.epochs))[over]
