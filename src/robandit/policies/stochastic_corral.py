"""Stochastic CORRAL over Robust weighted OFUL."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Region, optimise
from robandit.inputs import integer
from robandit.policies.base import Search
from robandit.policies.master import RobustMaster, draw, shares

_STEPS = 100  # of the search for the multiplier; it takes about six
_CLOSE = 1e-14  # of a sum of probabilities to one, before they are divided by it


@dataclass(kw_only=True, eq=False)
class StochasticCorral(RobustMaster):
    """CORRAL (Agarwal et al. 2017) over smoothed bases (Pacchiano et al. 2020), as in the paper's section 7.

    Each of its rounds takes two. In step 1 a base that is drawn plays and learns; in step 2 it plays once more as one
    of its past selves, uniformly drawn, and from that reward the master learns, by mirror descent with a log-barrier. A
    `level` beyond M means step 2 of base level − M. Assumes no knowledge of the corruption, and decision sets that are
    drawn independently; regret Õ(C²d²R√T) by the paper's section 7. Of the past selves a uniform sample of
    ``snapshots`` is kept: each draw is still uniform on the past, but draws of different rounds are not independent.
    The published factor 2 on the loss is left to the rate.
    """

    snapshots: int = 8
    """How many of its past selves a base keeps."""

    def _start(self) -> None:
        super()._start()
        self.snapshots = integer("snapshots", self.snapshots, least=1)
        m, rounds = self._bases, max(2, ceil(self.horizon / 2))
        self._mix, self._raise = 1.0 / rounds, exp(1.0 / log(rounds))  # γ and β
        self._p: Floats = np.full((self._batch, m), 1.0 / m)
        self._rate: Floats = np.full((self._batch, m), sqrt(m / self.horizon))  # η_j
        self._rho: Floats = np.full((self._batch, m), 2.0 * m)
        self._again: Ints = np.zeros(self._batch, np.int64)  # the base whose step 2 is next; 0 for a step 1
        past = self.snapshots * m * self._batch  # row s·(M·B) + r is snapshot s of base row r
        self._past_root: Floats = np.zeros((past, self.dim, self.dim))
        self._past_mean: Floats = np.zeros((past, self.dim))
        self._past_radius: Floats = np.zeros(past)
        self._slots, self._selves = self._own_stream(key=1), self._own_stream(key=2)

    @property
    def levels(self) -> int:
        return 2 * self._bases

    def _odds(self) -> Floats:
        return (1.0 - self._mix) * self._p + self._mix / self._bases

    def _draw_level(self, uniform: Floats) -> Ints:
        return np.where(self._again > 0, self._again + self._bases, draw(self._odds(), uniform))

    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        base = (level - 1) % self._bases + 1
        kept = self._kept(base)
        chosen = (self._selves.at(self._round + 1) * np.maximum(kept, 1)).astype(np.int64)
        acting = self._acting(base, chosen, (level > self._bases) & (kept > 0))
        return Search(optimise(actions, acting), self._never, self._zeros)

    def _kept(self, base: Ints) -> Ints:
        """How many past selves of these bases there are, (B,)."""
        return np.minimum(self._counts[self._place(base)], self.snapshots)

    def _acting(self, base: Ints, snapshot: Ints, past: NDArray[np.bool_]) -> Ellipsoid:
        """The ellipsoids of these bases: their present one, or one of the past."""
        now = self._ellipsoid(base)
        rows = (snapshot * self._bases * self._batch + self._place(base))[past]
        for held, before in (
            (now.center, self._past_mean),
            (now.root, self._past_root),
            (now.radius, self._past_radius),
        ):
            held[past] = before[rows]  # `now` is a copy
        return now

    def _chances(self, actions: Floats, search: Search | None = None) -> Floats:
        first = super()._chances(actions)
        base = np.maximum(self._again, 1)
        kept, second = self._kept(base), np.zeros(first.shape)
        for snapshot in range(self.snapshots):
            held = self._acting(base, np.full(self._batch, snapshot), snapshot < kept)
            share = np.where(snapshot < np.maximum(kept, 1), 1.0 / np.maximum(kept, 1), 0.0)
            second += share[:, None] * shares(actions, held)
        return np.where((self._again > 0)[:, None], second, first)

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        seen, first = weights > 0.0, level <= self._bases
        base = (level - 1) % self._bases + 1
        self._remember(base, seen & first)
        self._teach(actions, rewards, weights * first, base)
        if (seen & ~first).any():
            loss = np.clip(0.5 - 0.5 * rewards / self._reach, 0.0, 1.0)
            self._step(base, loss, seen & ~first)
        self._again[seen] = np.where(first, base, 0)[seen]

    def _remember(self, base: Ints, which: NDArray[np.bool_]) -> None:
        """Put the selves that played in a uniform sample of their base's past: reservoir sampling."""
        place, number = self._place(base), self._counts[self._place(base)] + 1
        slot = (self._slots.at_each(self._counts.reshape(self._bases, -1).sum(axis=0)) * number).astype(np.int64)
        slot = np.where(number <= self.snapshots, number - 1, slot)
        which = which & (slot < self.snapshots)
        rows, now = (slot * self._bases * self._batch + place)[which], place[which]
        self._past_root[rows], self._past_mean[rows] = self._base.root[now], self._base.mean[now]
        self._past_radius[rows] = self._base_radii(base)[which]

    def _step(self, base: Ints, loss: Floats, which: NDArray[np.bool_]) -> None:
        """Mirror descent with the loss of the base that played, in these trials; and CORRAL's rule for the rates."""
        losses = np.zeros(self._p.shape)
        losses[self._rows, base - 1] = loss / self._odds()[self._rows, base - 1]
        self._p[which] = log_barrier_step(self._p[which], self._rate[which], losses[which])
        inverse = 1.0 / self._odds()
        rare = which[:, None] & (inverse > self._rho)
        self._rho[rare] = 2.0 * inverse[rare]
        self._rate[rare] *= self._raise

    def _arrays(self) -> dict[str, NDArray[Any]]:
        own = ("p", "rate", "rho", "again", "past_root", "past_mean", "past_radius")
        return super()._arrays() | {name: getattr(self, f"_{name}") for name in own}


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
