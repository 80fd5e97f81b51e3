"""Attacks by sources that know how groups of rounds are compared, and stay below what the comparison can see."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import TINY, Bools, Floats, Index
from robandit.inputs import integer, positive, share
from robandit.lab.attacks.by_source import BySource
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws

_NOISE = 1e-4  # the least noise that it reckons with; without noise nothing is tolerated


@dataclass(kw_only=True)
class InsideTolerance(BySource):
    """Lying sources promote the worse half of each set, by just as much as a vote of groups tolerates.

    The attack is ours, against policies that compare a group's statistics with an estimate μ and doubt the group if
    ‖b_g − V_g μ‖_{(V_g + λI)⁻¹} exceeds ρ_g = c√(log det(I + V_g/λ) + 2 log 20G). It keeps the same statistics of each
    liar, with weights 1/σ² and λ = 1, and cuts its next lie to what leaves the sum of its lies within ``share`` of ρ_g.
    Clicks are lied about by chance, so that their expected lies add up to that.
    """

    tolerance: float = 0.5
    """Factor c in the tolerance ρ_g."""
    share: float = 0.9
    """Share of the tolerance that is used."""

    strength = "strong"

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("tolerance", self.tolerance)
        share("share", self.share)

    def start(self, draw: Draws, environment: Environment) -> None:
        super().start(draw, environment)
        size = len(draw), self._sources, environment.dim
        self._precision: Floats = np.tile(np.eye(environment.dim), (*size[:2], 1, 1))  # V_g + I, (B, G, d, d)
        self._lied: Floats = np.zeros(size)  # Σ lies · a / σ², (B, G, d)
        self._variance = max(environment.noise_scale, _NOISE) ** 2
        self._coin, self._rows = draw.uniform(), np.arange(len(draw))
        self._expected: Floats | None = None

    def lies(self, offer: Offer) -> Floats:
        full = self.as_if(offer, offer.means < np.median(offer.means, axis=1, keepdims=True))
        room = self._room(offer)
        if not self.clicks:
            self._expected = np.clip(full, -room, room)
            return self._expected
        wanted = (offer.rewards + full) - offer.means  # what a full lie adds on average
        chance = np.minimum(room / np.maximum(np.abs(wanted), TINY), 1.0)
        self._expected = chance * wanted
        return np.where(self._coin.at(offer.round)[:, None] < chance, full, 0.0)

    def _room(self, offer: Offer) -> Floats:
        """The largest lie about each action that stays within the tolerance, (B, K)."""
        assert isinstance(offer.actions, np.ndarray)
        group = self._groups(offer)
        precision, lied = self._precision[self._rows, group], self._lied[self._rows, group]
        spread = np.linalg.slogdet(precision).logabsdet + 2.0 * np.log(20.0 * self._sources)
        used = np.sqrt(np.vecdot(lied, np.linalg.solve(precision, lied[:, :, None])[:, :, 0]))
        left = np.maximum(self.share * self.tolerance * np.sqrt(spread) - used, 0.0)
        across = np.linalg.solve(precision, offer.actions.transpose(0, 2, 1)).transpose(0, 2, 1)  # (B, K, d)
        widths = np.sqrt(np.vecdot(offer.actions, across)) / self._variance
        return left[:, None] / np.maximum(widths, TINY**0.5)

    def observe(self, offer: Offer, played: Index, reward: Floats) -> None:
        assert isinstance(offer.actions, np.ndarray)
        group, action = self._groups(offer), offer.actions[self._rows, played]
        self._precision[self._rows, group] += np.einsum("bi,bj->bij", action, action) / self._variance
        if self._expected is not None:
            lie = np.where(self.owns(offer), self._expected[self._rows, played], 0.0)
            self._lied[self._rows, group] += (lie / self._variance)[:, None] * action
        self._expected = None

    def _groups(self, offer: Offer) -> Index:
        return np.zeros(len(offer.means), np.intp) if offer.source is None else offer.source.astype(np.intp)


@dataclass(kw_only=True)
class Framing(BySource):
    """Liars agree on a wrong effect of the features, and bots that pose as an honest source report the opposite.

    The attack is ours. It wants the honest source to look like the odd one out. Rewards are shifted by ``depth`` times
    ⟨a, v⟩, where v is a random direction of each trial.
    """

    depth: float = 0.5
    """Size of the wrong effect."""
    target: int | None = None
    """Number of the source that is framed. By default the first that does not lie."""
    posing: float = 0.2
    """Share of the framed source's visitors who are bots."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("depth", self.depth)
        share("posing", self.posing)
        if self.target is not None:
            integer("target", self.target, least=0)

    def start(self, draw: Draws, environment: Environment) -> None:
        super().start(draw, environment)
        direction = draw.normal(environment.dim).at(0)
        self._direction = direction / np.linalg.norm(direction, axis=1, keepdims=True)
        self._coin, self._luck = draw.uniform(), draw.uniform()

    def lies(self, offer: Offer) -> Floats:
        assert isinstance(offer.actions, np.ndarray)
        sign = np.where(self._posing(offer), 1.0, -1.0)[:, None]
        shift = sign * self.depth * np.matvec(offer.actions, self._direction)
        if not self.clicks:
            return shift
        return (self._luck.at(offer.round)[:, None] < offer.means + shift) - offer.rewards

    def owns(self, offer: Offer) -> Bools:
        return super().owns(offer) | self._posing(offer)

    def _posing(self, offer: Offer) -> Bools:
        """Whether the visitor is a bot that poses as the framed source, (B,)."""
        if offer.source is None:
            return np.zeros(len(offer.means), dtype=bool)
        liars = self.liars_in(offer.round)
        framed = (int(liars[-1]) + 1) % self._sources if self.target is None else self.target
        return (offer.source == framed) & ~np.isin(framed, liars) & (self._coin.at(offer.round) < self.posing)
