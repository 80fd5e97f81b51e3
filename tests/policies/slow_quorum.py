"""A plain transcription of Quorum's definition, from stored rounds, one trial at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

Array = Any
SHARP, STRETCHES, SHORTEST, REACH, PRIOR = 0.04, 24, 16, 0.3, 3.0
FITS, DISSENTS = 0, 1


@dataclass(eq=False)
class Stretch:
    """The rounds of one side of a source in a stretch of time."""

    slot: int
    side: int
    since: int
    spell: int
    last: int = 0
    weight: float = 1.0
    rounds: list[tuple[Array, float, float]] = field(default_factory=list)  # (a, r, w)

    @property
    def n(self) -> int:
        return len(self.rounds)

    def sums(self) -> tuple[Array, Array]:
        """V and b."""
        actions, rewards, weights = (np.array(column) for column in zip(*self.rounds, strict=True))
        return (weights[:, None] * actions).T @ actions, actions.T @ (weights * rewards)

    def mass(self) -> float:
        return sum(w for _, _, w in self.rounds)


def disagreement(V: Array, b: Array, mu: Array, lam: float) -> float:
    """||b - V mu|| in the norm of (V + lam I)^-1."""
    e = b - V @ mu
    return math.sqrt(float(e @ np.linalg.solve(V + lam * np.eye(len(b)), e)))


def allowed(V: Array, lam: float, number: int) -> float:
    """What noise explains, in units of its standard deviation."""
    expected = float(np.trace(np.linalg.solve(V + lam * np.eye(len(V)), V)))
    return math.sqrt(max(expected, 0.0)) + REACH * math.sqrt(2 * math.log(20 * number))


def belief(limit: float, distance: float) -> float:
    """1 up to the limit, then falling, and 0 where little is left."""
    kept = min(1.0, limit / max(distance, 1e-300)) ** 4
    return kept if kept >= 0.05 else 0.0


def freshness(first: float, last: float) -> float:
    """The mean of x^4 for x uniform from first to last."""
    return (last**5 - first**5) / (5 * (last - first))


def median(values: list[float], weights: list[float]) -> float:
    """The least value up to which half of the weight lies."""
    total, sofar = sum(weights), 0.0
    for value, weight in sorted(zip(values, weights, strict=True)):
        sofar += weight
        if sofar >= 0.5 * total:
            return value
    raise AssertionError


@dataclass
class SlowQuorum:
    """One trial by the definition in docs/ideas/quorum.md."""

    dim: int
    noise_range: float
    lam: float = 1.0
    max_sources: int = 32
    width: float = 1.5
    tolerance: float = 0.0
    ruling: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.slots: dict[Any, int] = {}
        self.stretches: list[Stretch] = []
        self.open: dict[tuple[int, int], Stretch] = {}
        self.spell: dict[int, int] = {}
        self.trust: dict[int, float] = {}
        self.spread, self.repeats = 1.0, 0
        self.latest: float | None = None
        self.noise, self.t, self.next, self.votes = 1.0, 1, 2, 0
        self.doubted: dict[int, int] = {}
        self.Sigma: Array = self.lam * np.eye(self.dim)
        self.b: Array = np.zeros(self.dim)

    def values(self, actions: Array) -> Array:
        spread = np.sqrt(np.sum(actions.T * np.linalg.solve(self.Sigma, actions.T), axis=0))
        return actions @ np.linalg.solve(self.Sigma, self.b) + self.width * self.noise * spread

    def update(self, action: Array, reward: float, sigma: float, source: Any) -> None:
        r = min(max(reward, -1 - self.noise_range), 1 + self.noise_range)
        w = max(sigma, SHARP * self.noise_range) ** -2
        if source not in self.slots and len(self.slots) < self.max_sources:
            self.slots[source] = len(self.slots)
        slot = self.slots.get(source, self.max_sources)
        side = DISSENTS if self.dissents(action, r, w) else FITS
        group = self.stretch_of(slot, side)
        group.rounds.append((action, r, w))
        group.last = self.t
        rule = self.ruling.get(slot, 0)
        trust = group.weight if rule == 0 else float(rule > 0)
        self.Sigma = self.Sigma + trust * w * np.outer(action, action)
        self.b = self.b + trust * w * r * action
        if self.t >= self.next:
            self.vote(self.t)
        self.t += 1

    def dissents(self, action: Array, r: float, w: float) -> bool:
        """Whether a reward is farther from its forecast than the rewards before it ever prepared for."""
        known = float(action @ np.linalg.solve(self.Sigma, action))
        off = abs(r - float(action @ np.linalg.solve(self.Sigma, self.b)))
        z = off * math.sqrt(w / (1 + w * known))
        self.repeats += r == self.latest
        self.latest = r
        least = SHARP if w <= (1 + 1e-9) / self.noise_range**2 else 1.0
        if z > 5 * max(self.spread, least) and self.repeats <= 0.1 * self.t:
            return True
        pace = max(0.03, 0.3 / (1 + self.t / 10))
        self.spread *= math.exp(pace * ((z > 0.6745 * self.spread) - 0.5))
        return False

    def stretch_of(self, slot: int, side: int) -> Stretch:
        last = self.open.get((slot, side))
        if last is not None and last.n < max(SHORTEST, self.t // STRETCHES):
            return last
        known = len(self.open) + (last is None)
        if len(self.stretches) >= STRETCHES + 2 * known:
            self.merge()
        made = Stretch(slot, side, self.t, self.spell.get(slot, 0), weight=self.first_belief(slot, side))
        self.stretches.append(made)
        self.open[slot, side] = made
        return made

    def first_belief(self, slot: int, side: int) -> float:
        """By how much a new stretch is believed until the next vote."""
        if (slot, side) in self.open:
            return self.open[slot, side].weight
        rule = self.ruling.get(slot, 0)
        if rule != 0:
            return float(rule > 0)
        return 0.0 if side == DISSENTS else self.trust.get(slot, 1.0)

    def merge(self) -> None:
        """Merge the cheapest pair of neighbours."""

        def cost(pair: tuple[Stretch, Stretch]) -> float:
            one, two = pair
            unlike = 1 + 8 * abs(one.weight - two.weight)
            return (one.n + two.n) * unlike + 1e9 * (one.spell != two.spell)

        line = sorted(self.stretches, key=lambda g: (g.slot, g.side, g.since))
        into, gone = min(((a, b) for a, b in pairwise(line) if (a.slot, a.side) == (b.slot, b.side)), key=cost)
        into.weight += gone.n / (into.n + gone.n) * (gone.weight - into.weight)
        into.rounds += gone.rounds
        into.last, into.spell = max(into.last, gone.last), max(into.spell, gone.spell)
        self.stretches.remove(gone)
        if self.open.get((gone.slot, gone.side)) is gone:
            self.open[gone.slot, gone.side] = into

    def solve(self, weights: list[float], penalty: float) -> Array:
        """The minimiser of penalty |mu|^2 + sum_g weight_g r_g(mu)^2."""
        matrix, vector = penalty * np.eye(self.dim), np.zeros(self.dim)
        for (V, b), weight in zip(self.known, weights, strict=True):
            half = V @ np.linalg.inv(V + self.lam * np.eye(self.dim))
            matrix, vector = matrix + weight * half @ V, vector + weight * half @ b
        return np.linalg.solve(matrix, vector)

    def vote(self, now: int) -> None:
        lam, groups = self.lam, self.stretches
        self.known = [g.sums() for g in groups]
        voice = [{0: 1.0, 1: math.inf, -1: 0.0}[self.ruling.get(g.slot, 0)] for g in groups]
        spoken = [g.n * freshness((g.since - 1) / now, g.last / now) for g in groups]
        say = [(v > 0) * s for s, v in zip(spoken, voice, strict=True)]
        reach = [allowed(V, lam, len(groups)) for V, _ in self.known]
        mu = self.convex_vote(voice, say, reach)
        self.noise = self.measure(voice, mu)
        distance = [disagreement(V, b, mu, lam) for V, b in self.known]
        root = [math.sqrt(g.mass()) for g in groups]
        excess = [max(r / self.noise - far, 0.0) / m for r, far, m in zip(distance, reach, root, strict=True)]
        zeta = max(median(excess, say) if sum(say) > 0 else 0.0, self.tolerance / self.noise)
        bound = [(far + zeta * m) * self.noise for far, m in zip(reach, root, strict=True)]
        for _ in range(5):
            weights = [
                belief(limit, disagreement(V, b, mu, lam)) if v == 1 else min(v, 1.0)
                for (V, b), limit, v in zip(self.known, bound, voice, strict=True)
            ]
            mu = self.solve(weights, lam)
        weights = self.second_test(weights, voice, spoken, zeta)
        self.turn(weights)
        weights = self.without_bad_spells(weights, voice)
        self.believe(weights, spoken, now)

    def convex_vote(self, voice: list[float], say: list[float], reach: list[float]) -> Array:
        total = max(sum(say), 1e-300)
        bound = [far * math.sqrt(s * len(say) / total) * self.noise for far, s in zip(reach, say, strict=True)]
        weights = [min(v, 1.0) for v in voice]
        mu = np.linalg.solve(self.Sigma, self.b)
        for _ in range(15):
            old = weights
            far = [max(disagreement(V, b, mu, self.lam), 1e-300) for V, b in self.known]
            weights = [min(1.0, v * limit / r) for v, limit, r in zip(voice, bound, far, strict=True)]
            mu = self.solve(weights, 1e-3 * self.lam)
            if max(abs(a - b) for a, b in zip(old, weights, strict=True)) <= 1e-2:
                break
        return mu

    def measure(self, voice: list[float], mu: Array) -> float:
        """The noise: what each group's own regression towards mu leaves over."""
        variance, free = [], []
        for group, (V, b), v in zip(self.stretches, self.known, voice, strict=True):
            theta = np.linalg.solve(V + self.lam * np.eye(self.dim), b + self.lam * mu)
            left = sum(w * (r - float(a @ theta)) ** 2 for a, r, w in group.rounds)
            left += self.lam * float((theta - mu) @ (theta - mu))
            degrees = group.n - float(np.trace(np.linalg.solve(V + self.lam * np.eye(self.dim), V)))
            free.append((v > 0) * max(degrees, 0.0))
            variance.append(left / free[-1] if free[-1] > 0 else math.inf)
        told = sum(g.mass() - (1 + 1e-9) * g.n / self.noise_range**2 for g in self.stretches) > 0
        D = sum(free)
        square = (median(variance, free) * D + PRIOR) / (D + PRIOR) if D > 0 else 1.0
        return max(1.0, math.sqrt(square)) if told else min(1.0, max(SHARP, math.sqrt(square)))

    def second_test(self, weights: list[float], voice: list[float], spoken: list[float], zeta: float) -> list[float]:
        """Each source answers for all of its stretches together."""
        slots = sorted({g.slot for g in self.stretches})
        if len(slots) == 1:
            return weights
        whole, record = {}, {}
        for slot in slots:
            parts = [(s, w) for s, w, g in zip(spoken, weights, self.stretches, strict=True) if g.slot == slot]
            record[slot] = min(1.0, 2 * sum(s * w for s, w in parts) / sum(s for s, _ in parts)) ** 4
            mine = [
                (w, V, b, g) for w, (V, b), g in zip(weights, self.known, self.stretches, strict=True) if g.slot == slot
            ]
            V, b = sum(w * V for w, V, _, _ in mine), sum(w * b for w, _, b, _ in mine)
            mass = sum(w * g.mass() for w, _, _, g in mine)
            whole[slot] = V, b, (allowed(V, self.lam, len(slots)) + zeta * math.sqrt(mass)) * self.noise
        both = weights
        for _ in range(2):
            mu = self.solve(both, self.lam)
            trust = {
                slot: record[slot] * belief(limit, disagreement(V, b, mu, self.lam))
                for slot, (V, b, limit) in whole.items()
            }
            both = [w * trust[g.slot] if v == 1 else w for w, v, g in zip(weights, voice, self.stretches, strict=True)]
        return both

    def turn(self, weights: list[float]) -> None:
        """Where the vote sides with those who dissented, they are those who fit from now on."""
        for slot in {g.slot for g in self.stretches}:
            now = [(g, w) for g, w in zip(self.stretches, weights, strict=True) if g.slot == slot]
            now = [(g, w) for g, w in now if g.spell == self.spell.get(slot, 0)]
            upheld = [g for g, w in now if g.side == DISSENTS and w >= 0.5]
            if upheld and any(g.side == FITS and w < 0.5 for g, w in now):
                self.spell[slot] = self.spell.get(slot, 0) + 1
                for g in upheld:
                    g.side, g.spell = FITS, self.spell[slot]
                self.open[slot, FITS] = max(upheld, key=lambda g: g.since)
                self.open.pop((slot, DISSENTS), None)

    def without_bad_spells(self, weights: list[float], voice: list[float]) -> list[float]:
        """A spell that is over is believed in part only if it is believed for the most part."""
        left = []
        for group, weight, v in zip(self.stretches, weights, voice, strict=True):
            spell = group.slot, group.spell
            mine = [(g.n, w) for g, w in zip(self.stretches, weights, strict=True) if (g.slot, g.spell) == spell]
            bad = sum(n * w for n, w in mine) < 0.5 * sum(n for n, _ in mine)
            over = group.spell < self.spell.get(group.slot, 0)
            left.append(0.0 if bad and over and v == 1 else weight)
        return left

    def believe(self, weights: list[float], say: list[float], now: int) -> None:
        self.Sigma, self.b = self.lam * np.eye(self.dim), np.zeros(self.dim)
        for group, (V, b), weight in zip(self.stretches, self.known, weights, strict=True):
            group.weight = weight
            self.Sigma, self.b = self.Sigma + weight * V, self.b + weight * b
        for slot in {g.slot for g in self.stretches}:
            mine = [(s, g.weight) for s, g in zip(say, self.stretches, strict=True) if g.slot == slot]
            self.trust[slot] = sum(s * w for s, w in mine) / sum(s for s, _ in mine)
            if self.trust[slot] >= 0.5:
                self.doubted.pop(slot, None)
            else:
                self.doubted.setdefault(slot, now)
        self.votes += 1
        self.next = now + min(max(now // 4, 8), 400)
