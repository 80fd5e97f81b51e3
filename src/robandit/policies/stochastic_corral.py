"""Stochastic CORRAL over Robust weighted OFUL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log, sqrt

import numpy as np

from robandit.arrays import Bools, Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.inputs import integer
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.master import (
    BaseStatistics,
    base_corruptions,
    base_radii,
    draw,
    mixed_chances,
    optimistic_shares,
)
from robandit.policies.parts import Levels, SigmaBar

_STEPS = 100  # the most steps of the search for the multiplier; it takes about six
_CLOSE = 1e-14  # how close to one a sum of probabilities must come before they are divided by it


@dataclass(kw_only=True)
class CorralStatistics(BaseStatistics):
    """The bases with some of their past selves, and what CORRAL thinks of them."""

    p: Floats
    """The master's distribution over the bases, (B, M)."""
    rate: Floats
    """η_j of every base, (B, M)."""
    rho: Floats
    """The threshold of 1/p̄_j at which a base's rate is raised, (B, M)."""
    again: Ints
    """The base whose step 2 is next, (B,); 0 for a step 1."""
    past_root: Floats
    past_mean: Floats
    past_radius: Floats
    """The ellipsoids of past selves: row s·(M·B) + r is snapshot s of base row r."""


@dataclass(kw_only=True, eq=False)
class StochasticCorral(Policy[CorralStatistics]):
    """CORRAL (Agarwal et al. 2017) over smoothed bases (Pacchiano et al. 2020), as in the paper's section 8.

    Each of its rounds takes two. In step 1 a base that is drawn plays and learns; in step 2 it plays once more as one
    of its past selves, uniformly drawn, and from that reward the master learns, by mirror descent with a log-barrier. A
    `level` beyond M means step 2 of base level − M. Assumes no knowledge of the corruption, and decision sets that are
    drawn independently; regret Õ(C²d²R√T) by the paper's section 8. Of the past selves a uniform sample of
    ``snapshots`` is kept: each draw is still uniform on the past, but draws of different rounds are not independent.
    We omit the published factor 2 on the loss; the rate absorbs it. Losses are weighted by the probabilities at the
    time of learning: feedback should come promptly.
    """

    horizon: int
    delta: float = 0.05
    radius_scale: float = 1.0
    sigma_floor: float | None = None
    base_corruptions: Sequence[float] | None = None
    """The corruption that each base is told; 0, 1, 2, 4, … up to 2T by default."""
    snapshots: int = 8
    """How many of its past selves a base keeps."""

    cost = 2.0

    def start(self) -> CorralStatistics:
        self.snapshots = integer("snapshots", self.snapshots, least=1)
        self.sigma_bar = SigmaBar(self.sigma_floor, default=(self.noise_range + 1.0) / self.dim**0.5)
        self.sigma_floor = self.sigma_bar.floor
        told = self.base_corruptions = base_corruptions(self.base_corruptions, self.horizon)
        self.base_radii = base_radii(self.constants(self.delta, self.sigma_floor), told, self.radius_scale)
        self.layout = Levels(len(told), self.batch)
        rounds = max(2, ceil(self.horizon / 2))
        self.mix, self.raised = 1.0 / rounds, exp(1.0 / log(rounds))  # γ and β
        self._slots, self._selves = self.own_stream(key=1), self.own_stream(key=2)
        shape, past = (self.batch, len(told)), self.snapshots * self.layout.size
        return CorralStatistics(
            ridge=self.new_ridge(rows=self.layout.size),
            counts=np.zeros(self.layout.size, np.int64),
            p=np.full(shape, 1.0 / len(told)),
            rate=np.full(shape, sqrt(len(told) / self.horizon)),
            rho=np.full(shape, 2.0 * len(told)),
            again=np.zeros(self.batch, np.int64),
            past_root=np.zeros((past, self.dim, self.dim)),
            past_mean=np.zeros((past, self.dim)),
            past_radius=np.zeros(past),
        )

    @property
    def bases(self) -> int:
        """M, the number of bases."""
        return self.layout.count

    @property
    def levels(self) -> int:
        """M for step 1, and M more for step 2."""
        return 2 * self.bases

    def probabilities(self) -> Floats:
        """The probability with which each base is drawn, (M,); in a batch (B, M)."""
        return self.unbatched(self._base_chances())

    def _base_chances(self) -> Floats:
        return (1.0 - self.mix) * self.stats.p + self.mix / self.bases

    def draw_level(self, uniform: Floats) -> Ints:
        again = self.stats.again
        return np.where(again > 0, again + self.bases, draw(self._base_chances(), uniform))

    def confidence(self, level: Ints) -> Ellipsoid:
        """The ellipsoids by which these bases act: their present one, or in step 2 one of the past."""
        base = (level - 1) % self.bases + 1
        kept = self._kept(base)
        chosen = (self._selves.at(self.rounds + 1) * np.maximum(kept, 1)).astype(np.int64)
        return self._acting(base, chosen, (level > self.bases) & (kept > 0))

    def estimate(self) -> Ellipsoid:
        """The ellipsoid of the base that has learnt most."""
        return self.copied(self._present(self.layout.fullest(self.stats.counts)))

    def _present(self, base: Ints) -> Ellipsoid:
        rows = self.layout.rows(base, self.rows)
        return Ellipsoid.around(self.stats.ridge, self.base_radii(self.stats.counts[rows] + 1, base - 1), rows)

    def _kept(self, base: Ints) -> Ints:
        """How many past selves of these bases there are, (B,)."""
        return np.minimum(self.stats.counts[self.layout.rows(base, self.rows)], self.snapshots)

    def _acting(self, base: Ints, snapshot: Ints, past: Bools) -> Ellipsoid:
        """The ellipsoids of these bases: their present one, or one of the past."""
        now, stats = self._present(base), self.stats
        rows = (snapshot * self.layout.size + self.layout.rows(base, self.rows))[past]
        for held, before in (
            (now.center, stats.past_mean),
            (now.root, stats.past_root),
            (now.radius, stats.past_radius),
        ):
            held[past] = before[rows]  # `now` is a copy
        return now

    def chances(self, actions: Floats, search: Search | None = None) -> Floats:
        first = mixed_chances(self._base_chances(), actions, self._present)
        base = np.maximum(self.stats.again, 1)
        kept, second = self._kept(base), np.zeros(first.shape)
        for snapshot in range(self.snapshots):
            held = self._acting(base, np.full(self.batch, snapshot), snapshot < kept)
            share = np.where(snapshot < np.maximum(kept, 1), 1.0 / np.maximum(kept, 1), 0.0)
            second += share[:, None] * optimistic_shares(actions, held)
        return np.where((self.stats.again > 0)[:, None], second, first)

    def weights(self, sigma: Floats) -> Floats:
        return self.sigma_bar(sigma) ** -2.0

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        seen, first = weights > 0.0, level <= self.bases
        base = (level - 1) % self.bases + 1
        self._remember(base, seen & first)
        self.stats.teach(actions, rewards, weights * first, self.layout.rows(base, self.rows))
        if (seen & ~first).any():
            loss = np.clip(0.5 - 0.5 * rewards / self.reach, 0.0, 1.0)
            self._step(base, loss, seen & ~first)
        self.stats.again[seen] = np.where(first, base, 0)[seen]

    def _remember(self, base: Ints, which: Bools) -> None:
        """Put the selves that played in a uniform sample of their base's past: reservoir sampling."""
        stats, place = self.stats, self.layout.rows(base, self.rows)
        number = stats.counts[place] + 1
        slot = (self._slots.at_each(self.layout.apart(stats.counts).sum(axis=0)) * number).astype(np.int64)
        slot = np.where(number <= self.snapshots, number - 1, slot)
        which = which & (slot < self.snapshots)
        rows, now = (slot * self.layout.size + place)[which], place[which]
        stats.past_root[rows], stats.past_mean[rows] = stats.ridge.root[now], stats.ridge.mean[now]
        stats.past_radius[rows] = self.base_radii(number, base - 1)[which]

    def _step(self, base: Ints, loss: Floats, which: Bools) -> None:
        """Mirror descent with the loss of the base that played, in these trials; and CORRAL's rule for the rates."""
        stats = self.stats
        losses = np.zeros(stats.p.shape)
        losses[self.rows, base - 1] = loss / self._base_chances()[self.rows, base - 1]
        stats.p[which] = log_barrier_step(stats.p[which], stats.rate[which], losses[which])
        inverse = 1.0 / self._base_chances()
        rare = which[:, None] & (inverse > stats.rho)
        stats.rho[rare] = 2.0 * inverse[rare]
        stats.rate[rare] *= self.raised


def log_barrier_step(p: Floats, rate: Floats, loss: Floats) -> Floats:
    """argmin_q ⟨q, ℓ⟩ + Σ_j (1/η_j)(q_j/p_j − log(q_j/p_j)) over distributions q: (B, M) all of them.

    q_j = 1/(1/p_j + η_j(ℓ_j − λ)) with the λ for which they sum to one. In λ, their sum is convex and increasing, and λ
    lies between the least and the largest loss: Newton's method, kept within a bracket that shrinks.

    >>> import numpy as np
    >>> log_barrier_step(np.array([[0.5, 0.5]]), np.array([[1.0, 1.0]]), np.array([[1.0, 0.0]])).sum().item()
    1.0
    """
    lift = rate * (loss - loss.min(axis=1, keepdims=True))
    base = 1.0 / p + lift  # 1/q_j at λ = min ℓ
    low, high = np.zeros(len(p)), np.minimum((base / rate).min(axis=1), (lift / rate).max(axis=1))
    shift = low.copy()  # λ − min ℓ
    for _ in range(_STEPS):
        q = 1.0 / (base - rate * shift[:, None])
        excess = q.sum(axis=1) - 1.0
        active = np.abs(excess) > _CLOSE  # a row that is done stays as it is, whatever the others need
        if not active.any():
            break
        low, high = np.where(excess <= 0.0, shift, low), np.where(excess <= 0.0, high, shift)
        total = excess + 1.0
        newton = shift - excess * total / (rate * q**2).sum(axis=1)  # on 1/Σq, which is nearly linear
        inside = (newton > low) & (newton < high)
        shift = np.where(active, np.where(inside, newton, 0.5 * (low + high)), shift)
    return q / q.sum(axis=1, keepdims=True)
