"""Quorum: sources and stretches of time vote, and no minority of them can buy the estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import TINY, Bools, Floats, Index, Ints, constant, count_to
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import integer, not_negative
from robandit.policies.ballots import BallotBox, weighted_form
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.dissent import Surprise
from robandit.policies.groups import FREE, RoundGroups, part_of
from robandit.policies.parts import FieldArrays, SigmaBar
from robandit.policies.sources import Labels, Source, SourceSlots, read_source
from robandit.policies.votes import Evidence, Terms, by_source, mean_power, vote, without_bad_spells

_SHARP = 0.04  # the least σ to weigh by, in units of the noise range R
_STRETCHES = 24  # groups of a trial, and two more for each source
_NEWER = 4.0  # the say of a reward grows with its number to this power: the newest eighth has half of it
_OFTEN = 4  # a vote comes when there are a quarter more rewards than at the last one,
_SOON, _LATE = 8, 400  # but not before there are 8 more, and at the latest when there are 400 more
_DOUBTED = 0.5  # a source that is believed less than this is doubted


class QuorumCounts(NamedTuple):
    """What a quorum has voted so far."""

    votes: Any
    """How often it has voted."""
    doubted: Any
    """The number of sources that it doubts."""
    dismissed: Any
    """The number of rewards that it does not believe."""


class SourceStanding(NamedTuple):
    """How a source stands with a quorum."""

    source: Source
    """The label; None for rewards without one."""
    pooled: bool
    """Whether it stands for all sources that came after ``max_sources`` others; then the label is None."""
    weight: float
    """How far it is believed, from 0 to 1; its newer rewards count more."""
    since: int | None
    """The number of rewards that had been learnt when it came to be doubted; None if it is not."""
    rewards: int
    """How many rewards came from it."""
    ruling: str
    """What an operator said: "trusted", "quarantined", or "" where the others vote."""


@dataclass(kw_only=True)
class QuorumStatistics(FieldArrays):
    """All that a batch of quorums has learnt."""

    ridge: Ridge
    """The estimate from what is believed."""
    groups: RoundGroups
    trust: Floats
    """How far each source is believed, from 0 to 1, (B, S)."""
    doubted: Ints
    """The update since which a source is doubted, (B, S); −1 if it is not."""
    ruling: Ints
    """What an operator said of each source, (B, S): 1 to trust it, −1 to ignore it, 0 to let the others vote."""
    noise: Floats
    """The measured noise in units of the declared σ, (B,)."""
    surprise: Surprise
    next: Ints
    """The update with which the next vote comes, (B,)."""
    votes: Ints
    dismissed: Ints
    """The number of rewards that the last vote does not believe, (B,)."""

    def make_room(self, saved: Mapping[str, NDArray[Any]] | None) -> None:
        most = _STRETCHES + 4 * self.trust.shape[1]  # two for each side of a source
        self.groups.make_room(most if saved is None else min(int(np.shape(saved["groups_slot"])[1]), most))


@dataclass(kw_only=True, eq=False)
class Quorum(Policy[QuorumStatistics]):
    """Believes what most of the traffic agrees on. Ours; docs/ideas/quorum.md says what is proved and what is measured.

    Rounds are grouped by source and, within a source, by stretches of time. Every so often the groups vote on the
    parameter. Those who disagree by more than noise explains are believed less, or not at all, until they agree again.
    It plays optimistically with what is believed; while everybody agrees, that is weighted ridge regression. Without
    sources, stretches of time vote. Newer ones have more say, so that lies that are over are outvoted the sooner.

    >>> policy = Quorum(dim=2, noise_range=0.5, seed=1)
    >>> decision = policy.choose([[1.0, 0.0], [0.0, 1.0]], source="partner")
    >>> policy.update(decision, reward=1.0)
    >>> policy.standings()
    [SourceStanding(source='partner', pooled=False, weight=1.0, since=None, rewards=1, ruling='')]
    >>> policy.quarantine("partner")
    >>> policy.standings()[0].ruling
    'quarantined'
    """

    max_sources: int = 32
    """How many sources are told apart. Those that come later are taken for one."""
    width: float = 1.5
    """The width of its exploration, in standard deviations of the estimate."""
    tolerance: float = 0.0
    """ζ: by so much the mean rewards of an honest source may differ from what the parameter says."""

    cost = 3.0
    info_counts = True
    numerics = 3  # 2: quadratics of groups as upper triangles; 3: rarer votes

    def start(self) -> QuorumStatistics:
        sources = integer("max_sources", self.max_sources, least=1) + 1
        self.width = not_negative("width", self.width)
        self.tolerance = not_negative("tolerance", self.tolerance)
        self.slots = SourceSlots(self.max_sources, self.batch)
        self.sigma_bar = SigmaBar(None, default=_SHARP * self.noise_range)
        whole = self.batch, sources
        self._box = BallotBox(self.batch, self.dim, self.lam)
        self._counts: QuorumCounts | None = None  # of the last vote, once somebody asked
        return QuorumStatistics(
            ridge=self.new_ridge(),
            groups=RoundGroups.new(self.batch, sources, self.dim),
            trust=np.ones(whole),
            doubted=np.full(whole, FREE, np.int64),
            ruling=np.zeros(whole, np.int64),
            noise=np.ones(self.batch),
            surprise=Surprise.new(self.batch),
            next=np.full(self.batch, 2, np.int64),
            votes=np.zeros(self.batch, np.int64),
            dismissed=np.zeros(self.batch, np.int64),
        )

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats.ridge, self.width * self.stats.noise)

    def search(self, actions: Floats | Region, level: Ints) -> Search:
        if self._counts is None:
            stats = self.stats
            doubted: Ints = np.add.reduce(stats.doubted != FREE, axis=1)
            self._counts = QuorumCounts(*map(constant, (stats.votes.copy(), doubted, stats.dismissed.copy())))
        return Search(optimise(actions, self.confidence(level)), self._counts)

    def weights(self, sigma: Floats) -> Floats:
        return self.sigma_bar(sigma) ** -2.0

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.learn_from(actions, rewards, weights, level, None)

    def learn_from(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints, source: Labels | None) -> None:
        if len(rewards) == 1:
            if weights[0]:
                self._learn_one(actions, rewards, weights, None if source is None else source.item())
            return
        stats, seen, now = self.stats, weights > 0.0, self.t
        slots = self.slots.place(source, seen)
        along = stats.ridge.along(actions)
        dissent = self._dissents(actions, rewards, weights, seen, along, now)
        sides = dissent.astype(np.int64)
        group, full = stats.groups.find(slots, sides, seen, now, _STRETCHES)
        if full is not None:
            place = full, slots[full]
            ignored = dissent[full] & (stats.ruling[place] <= 0)  # dissent is believed once a vote says so
            first = np.where(ignored, 0.0, stats.trust[place])
            group[full] = stats.groups.open((*place, sides[full]), now[full], _STRETCHES, first)
        stats.groups.add(group, actions, rewards, weights, now, stats.ridge.kernel)
        stats.ridge.update(actions, rewards, weights * stats.groups.weight[self.rows, group], along=along)
        due = seen & (now >= stats.next)
        if due.any():
            self._vote(np.flatnonzero(due), now)

    def _learn_one(self, actions: Floats, rewards: Floats, weights: Floats, source: Source) -> None:
        """Do the same, bit for bit, for a batch of one, as a live service has: batched calls take twice the time."""
        stats, groups, reward, weight = self.stats, self.stats.groups, rewards.item(), weights.item()
        now = self._updates.item() + 1
        slot, action = self.slots.place_one(source), actions[0]
        along = action.dot(stats.ridge.root[0])
        side = int(self._dissents_one(action, reward, weight, along, now))
        group = groups.find_one(slot, side, now, _STRETCHES)
        if group is None:
            ignored = side and stats.ruling.item(0, slot) <= 0
            place = count_to(1), np.array([slot]), np.array([side])
            first = np.array([0.0]) if ignored else stats.trust[0, slot : slot + 1]
            group = int(groups.open(place, np.array([now]), _STRETCHES, first)[0])
        groups.add_one((0, group), action, reward, weight, now)
        stats.ridge.update(actions, rewards, weights * groups.weight.item(0, group), along=along[None])
        if now >= stats.next.item():
            self._vote(count_to(1), np.array([now]))

    def _dissents_one(self, action: Floats, reward: float, weight: float, along: Floats, now: int) -> bool:
        """Do what `_dissents` does, bit for bit, for a batch of one: batched calls take four times as long."""
        scale = sqrt(weight / (1.0 + weight * float(along.dot(along))))
        off = abs(reward - float(action.dot(self.stats.ridge.mean[0])))
        least = _SHARP if weight <= (1.0 + 1e-9) / self.noise_range**2 else 1.0
        return self.stats.surprise.judge_one(off * scale, reward, least, now)

    def _dissents(
        self, actions: Floats, rewards: Floats, weights: Floats, seen: Bools, along: Floats, now: Ints
    ) -> Bools:
        """Whether each reward is too far from what is believed to be noise, (B,); ``along`` is Sᵀa, (B, d)."""
        ridge, surprise = self.stats.ridge, self.stats.surprise
        variance = 1.0 + weights * np.vecdot(along, along)  # of the noise and the estimate, in units of σ²
        distance = np.abs(rewards - np.vecdot(actions, ridge.mean)) * np.sqrt(weights / variance)
        least = self._least_noise(weights, 1.0)
        return surprise.judge(distance, rewards, least, now, seen, ridge.kernel)

    def _least_noise(self, mass: Floats, counts: Floats | float) -> Floats:
        """The least noise that is believed in, in units of the declared σ: 1, but much less where σ is R or more.

        That says nothing. ``mass`` is Σ w over so many rewards.
        """
        return np.where(mass <= (1.0 + 1e-9) * counts / self.noise_range**2, _SHARP, 1.0)

    # The vote.

    def _vote(self, due: Index, now: Ints) -> None:
        """Let the groups of these trials vote, and believe them as they say from now on."""
        stats, groups, self._counts = self.stats, self.stats.groups, None
        evidence = self._evidence(due, now)
        used = evidence.slot.shape[1]
        floor = self._least_noise(evidence.mass.sum(axis=1), evidence.counts.sum(axis=1))
        ceiling = np.where(floor < 1.0, 1.0, np.inf)
        held = self._box.of(due, groups, used)
        terms = Terms(self.lam, self.tolerance, floor, ceiling)
        found = vote(evidence, held, stats.ridge.mean[due], stats.noise[due], terms)
        place = due[:, None], count_to(used)
        weights = np.where(evidence.slot == FREE, 1.0, found.weights)
        groups.turn(due, weights >= _DOUBTED)
        closed = groups.closed(due, used)
        if closed.any():
            weights = without_bad_spells(evidence, weights, groups.spell[place], closed)
        changed = (weights != groups.weight[place]).any(axis=1)
        groups.weight[place], stats.noise[due] = weights, found.noise
        if changed.any():  # otherwise the updates since the last vote were right
            precision, target = weighted_form(weights[changed], held.losses[changed])
            stats.ridge.refit(due[changed], precision + self.lam * np.eye(self.dim), target)
        stats.dismissed[due] = (evidence.counts * (weights < _DOUBTED)).sum(axis=1)
        self._doubt(due, evidence, weights, now)
        stats.votes[due] += 1
        stats.next[due] = now[due] + np.clip(now[due] // _OFTEN, _SOON, _LATE)

    def _evidence(self, due: Index, now: Ints) -> Evidence:
        """What the groups of these trials have seen, without places that none of them uses."""
        groups = self.stats.groups
        used = groups.used(due)
        slot, since, last, counts = (
            part_of(array, due, used) for array in (groups.slot, groups.since, groups.last, groups.counts)
        )
        time = now[due][:, None]
        ruling = np.take_along_axis(self.stats.ruling[due], np.maximum(slot, 0), axis=1)
        voice = np.where(ruling == 0, 1.0, np.where(ruling > 0, np.inf, 0.0))
        return Evidence(
            mass=part_of(groups.mass, due, used),
            counts=counts,
            say=counts * mean_power((since - 1.0) / time, last / time, _NEWER),
            slot=slot,
            voice=np.where(slot == FREE, 0.0, voice),
        )

    def _doubt(self, due: Index, evidence: Evidence, weights: Floats, now: Ints) -> None:
        """Write down how far each source is believed, and since when it is doubted."""
        stats, total = self.stats, by_source(evidence.slot, evidence.say)
        mean = by_source(evidence.slot, evidence.say * weights) / np.maximum(total, TINY)
        at = due[:, None], count_to(total.shape[1])
        stats.trust[at] = trust = np.where(total > 0.0, mean, stats.trust[at])
        since = np.where(stats.doubted[at] == FREE, now[due][:, None], stats.doubted[at])
        stats.doubted[at] = np.where(trust >= _DOUBTED, FREE, since)

    # What an operator can see and do.

    def standings(self) -> Any:
        """How each source stands that it has learnt from: a list of `SourceStanding`, in a batch one for each trial."""
        return self.unbatched([self._standings(trial) for trial in range(self.batch)])

    def _standings(self, trial: int) -> list[SourceStanding]:
        stats, labels = self.stats, self.slots.labels[trial]
        places, found = self.slots.most + 2, []
        counts = np.bincount(stats.groups.slot[trial] + 1, stats.groups.counts[trial], places)[1:]  # after FREE
        for slot in range(self.slots.most + 1):
            rewards = int(counts[slot])
            if slot >= len(labels) and not rewards:
                continue
            pooled, since = slot == self.slots.most, int(stats.doubted[trial, slot])
            ruling = ("", "trusted", "quarantined")[stats.ruling[trial, slot]]
            label, weight = None if pooled else labels[slot], float(stats.trust[trial, slot])
            found.append(SourceStanding(label, pooled, weight, None if since == FREE else since, rewards, ruling))
        return found

    def trust(self, source: Source) -> None:
        """Believe a source whatever the others say, from now on and for all that came from it."""
        self._rule(source, 1)

    def quarantine(self, source: Source) -> None:
        """Believe nothing of a source, and give it no vote."""
        self._rule(source, -1)

    def release(self, source: Source) -> None:
        """Take back what `trust` or `quarantine` said of a source: the others vote again."""
        self._rule(source, 0)

    def keep_rulings(self, other: Policy[Any]) -> None:
        assert isinstance(other, Quorum)
        mine = self._rulings()
        for source, ruling in other._rulings().items():
            if mine.get(source, 0) != ruling:
                self._rule(source, ruling)

    def _rulings(self) -> dict[Source, int]:
        """What an operator said of each source, which is the same in all trials."""
        return dict(zip(self.slots.labels[0], self.stats.ruling[0].tolist(), strict=False))

    def _rule(self, source: Source, ruling: int) -> None:
        labels = read_source([source] * self.batch, self.batch, single=False)
        if any(source not in known and len(known) >= self.slots.most for known in self.slots.labels):
            raise ValueError(f"source {source!r} is not told apart from others: max_sources is {self.max_sources}")
        slots = self.slots.place(labels)
        self.stats.ruling[self.rows, slots] = ruling
        self.stats.trust[self.rows, slots] = 0.0 if ruling < 0 else 1.0  # the next vote knows better
        voters = np.flatnonzero(self._updates)
        if voters.size:
            self._vote(voters, self._updates)
