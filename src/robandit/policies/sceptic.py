"""The sceptic: believes what it sees until what it sees contradicts what it believes."""

from __future__ import annotations

from dataclasses import InitVar, dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import TINY, Bools, Floats, Index, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import share
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.parts import FieldArrays, SigmaBar

_SHARP = 0.04  # the least σ to weigh by, in units of the noise range R
_WIDER = 4.0  # an observation is blurred by so much more than its noise for exploration
_FEW = 20.0  # with fewer features than this it is blurred the more: what is never tried again hides more actions
_LEVERAGE = 0.02  # ‖a‖_{Σ⁻¹} in units of AB from which on an observation counts less, as in CW-OFUL
_PLAIN = 0.1  # noise in units of R that is so small that a lie would show; such observations count in full
_NAIVE = 0.2  # the say of the estimate that believes everything
_CONTRADICTION = 5.0  # a reward that is off by so many standard deviations is not believed
_DOUBTFUL = 3.0  # a reward that is off by so many speaks against the model with all its voice
_VOICE = 0.5  # noise of this size, in units of R, halves an observation's voice
_FEWEST, _SHARE = 5.0, 0.25  # a restart takes so much doubt, at least d, and so much for each unit of trust
_FIRST = 50.0  # trust that does not count for that: what was learnt at once was not put to the test
_AUDIT, _GROWTH = 100.0, 6.0  # rounds from the first contradiction to the first audit; and from interval to interval
_INSURED = 200.0  # the round of the first audit that has no cause, at full insurance
_QUIET = 5.0  # audits wait while there is more doubt than this
_DIVERSE = 0.5  # audits wait while play is as diverse as this
_PACE = 0.03  # the pace of the measurements of the noise, and of what is earned
_HASTE, _SETTLED = 0.3, 10.0  # the pace for a noise that was not declared, until there is so much trust
_MEDIAN = 0.6745  # the median of |z| for a normal z
_UNDERSTATED = 2.0  # the most by which σ is taken to have been understated
_LATER = 2.0**62  # later than any round


class ScepticCounts(NamedTuple):
    """What has happened to a sceptic so far."""

    contradictions: Any
    """How many rewards it has not believed."""
    restarts: Any
    """How often it has started again from nothing."""
    audits: Any
    """How often it has put its model to the test."""


@dataclass(kw_only=True)
class Model(FieldArrays):
    """What a batch of sceptics believes, what it would if it believed everything, and how it stands by that."""

    both: InitVar[Ridge]
    """The two estimates as one regression of 2B rows, in the same memory: one update serves both."""
    sharp: Ridge = field(init=False)
    """The estimate from the rewards that are believed."""
    blunt: Ridge = field(init=False)
    """The estimate from all rewards, by which it explores."""
    trust: Floats
    doubt: Floats
    mass: Floats
    """Σ w‖a‖² of the blunt estimate, (B,)."""

    def __post_init__(self, both: Ridge) -> None:
        self._both = both
        self.sharp, self.blunt = both.halves()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("sharp", "blunt")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.sharp, self.blunt = self._both.halves()  # copies of the old halves would have memory of their own

    @classmethod
    def new(cls, rows: int, dim: int, sharp: float, blunt: float, kernel: str) -> Model:
        """A model that has seen nothing, with these λ."""
        both = Ridge(rows=2 * rows, dim=dim, regularization=np.repeat((sharp, blunt), rows), kernel=kernel)
        return cls(both=both, trust=np.zeros(rows), doubt=np.zeros(rows), mass=np.zeros(rows))

    def copy_to(self, other: Model, rows: Index) -> None:
        """Write these rows over those of another model."""
        for mine, theirs in zip(self.arrays().values(), other.arrays().values(), strict=True):
            theirs[rows] = mine[rows]
        other.blunt.bounds.forget()

    def reset(self, rows: Index) -> None:
        """Forget everything in these rows."""
        self._both.reset(np.concatenate((rows, rows + len(self.trust))))
        self.trust[rows] = self.doubt[rows] = self.mass[rows] = 0.0

    def surprise(self, actions: Floats, rewards: Floats, spread: Floats, widths: Floats) -> Floats:
        """|z|: by how many standard deviations the rewards differ from what the model expects."""
        return np.abs((rewards - np.vecdot(actions, self.sharp.mean)) / np.hypot(spread, widths))

    def judge(self, surprise: Floats, voice: Floats, believed: Bools) -> None:
        """Trust grows by what fits; doubt by what does not, and shrinks again by what does."""
        self.trust += voice * believed
        self.doubt += voice * (2.0 * np.minimum(1.0, (surprise / _DOUBTFUL) ** 2) - 1.0)
        np.maximum(self.doubt, 0.0, out=self.doubt)

    def learn(self, actions: Floats, rewards: Floats, sharp: Floats, blunt: Floats, along: Floats) -> None:
        """Fold rewards in, with these weights; ``along`` is the sharp estimate's Sᵀa."""
        if len(rewards) == 1 and self._both.kernel is None:  # two updates of one row are faster than one of two
            self.sharp.update(actions, rewards, sharp)
            self.blunt.update(actions, rewards, blunt)
        else:
            known = None if self._both.kernel else np.concatenate((along, self.blunt.along(actions)))
            twice = np.concatenate((actions, actions)), np.concatenate((rewards, rewards))
            self._both.update(*twice, np.concatenate((sharp, blunt)), along=known)
        self.mass += blunt * np.vecdot(actions, actions)

    def diversity(self, lam: float) -> Floats:
        """The geometric over the arithmetic mean of the eigenvalues of the blunt Σ: 1 if all directions are alike."""
        dim = self.sharp.mean.shape[1]
        geometric = np.exp(self.blunt.log_det / dim) / lam
        return geometric / (1.0 + self.mass / (dim * lam))


@dataclass(kw_only=True)
class ScepticStatistics(FieldArrays):
    """All that a batch of sceptics has learnt."""

    model: Model
    old: Model
    """The model that an audit puts aside."""
    noise: Floats
    """The median of |z| over the rewards that are believed, (B,)."""
    earned: Floats
    """What a round earned of late, outside of audits, (B,)."""
    left: Ints
    """The rounds that an audit still takes, (B,); 0 when there is none."""
    better: Ints
    """The rounds of an audit that paid more than was earned before, (B,)."""
    next: Floats
    """The update from which on an audit is due, (B,)."""
    interval: Floats
    """The rounds from one audit to the next, (B,)."""
    contradictions: Ints
    restarts: Ints
    audits: Ints


@dataclass(kw_only=True, eq=False)
class Sceptic(Policy[ScepticStatistics]):
    """One policy for when neither the corruption nor the attack is known. Ours, without a regret bound.

    It estimates sharply, with weights 1/σ², from the rewards that do not contradict its model, and explores bluntly. A
    model gains trust by every reward that fits and doubt by every one that does not; when doubt has come to a quarter
    of the trust, it starts again from nothing. So unseating a model costs a liar in proportion to what the model has
    gained. After a first contradiction it also audits itself now and then, unless play is diverse anyway: a newcomer
    learns from nothing, and stays only if it earns more than the old model did. See docs/sceptic.md.

    >>> policy = Sceptic(dim=2, noise_range=0.5, seed=1)
    >>> decision = policy.choose([[1.0, 0.0], [0.0, 1.0]], sigma=0.1)
    >>> policy.update(decision, reward=0.7)
    >>> decision.info
    ScepticCounts(contradictions=0, restarts=0, audits=0)
    """

    delta: float = 0.05
    radius_scale: float = 0.001
    """A factor for the width of its exploration, the paper's α_t at C = 0."""
    insurance: float = 0.0
    """From 0, cheap, to 1, safe: how soon it audits itself without a cause, against lies that never contradict."""

    cost = 2.0
    info_counts = True

    def start(self) -> ScepticStatistics:
        self.insurance = share("insurance", self.insurance)
        self.sigma_bar = SigmaBar(None, default=_SHARP * self.noise_range)
        setting = self.constants(self.delta, (self.noise_range + 1.0) / self.dim**0.5)  # with the paper's floor
        self.radii = radius.Table(partial(radius.alpha, setting, corruption=0.0), self.radius_scale)
        self.few = max(1.0, _FEW / self.dim)
        self.blunt_lam = self.lam / self.few**2
        self.length = 4 * self.dim + 20  # of an audit
        self._blurs: Floats = self.noise_range * np.array([[_VOICE], [_PLAIN]])
        self._jitter = self.own_stream(key=1)
        first = _INSURED / self.insurance if self.insurance > 0.0 else _LATER
        return ScepticStatistics(
            model=Model.new(self.batch, self.dim, self.lam, self.blunt_lam, self.kernel),
            old=Model.new(self.batch, self.dim, self.lam, self.blunt_lam, self.kernel),
            noise=np.full(self.batch, _MEDIAN),
            earned=np.zeros(self.batch),
            left=np.zeros(self.batch, np.int64),
            better=np.zeros(self.batch, np.int64),
            next=np.full(self.batch, first),
            interval=np.full(self.batch, _AUDIT if first == _LATER else first),
            contradictions=np.zeros(self.batch, np.int64),
            restarts=np.zeros(self.batch, np.int64),
            audits=np.zeros(self.batch, np.int64),
        )

    def confidence(self, level: Ints) -> Ellipsoid:
        """What it explores by: the blunt ellipsoid around a centre that is mostly the sharp estimate."""
        model = self.stats.model
        center = model.sharp.mean + _NAIVE * (model.blunt.mean - model.sharp.mean)
        return Ellipsoid.from_root(center, model.blunt.root, self.radii(self.t), of=model.blunt)

    def estimate(self) -> Ellipsoid:
        """The sharp estimate, with the width that it explores by."""
        return self.copied(Ellipsoid.around(self.stats.model.sharp, self.radii(self.t)))

    def search(self, actions: Floats | Region, level: Ints) -> Search:
        stats = self.stats
        told = ScepticCounts(stats.contradictions.copy(), stats.restarts.copy(), stats.audits.copy())
        return Search(optimise(actions, self.confidence(level)), told)

    def weights(self, sigma: Floats) -> Floats:
        return self.sigma_bar(sigma) ** -2.0

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        seen = weights > 0.0
        unknown = self._undeclared(weights)
        # What to multiply σ by: at least 1, in case it was understated; less only where it was not declared.
        stretch = np.maximum(self.stats.noise / _MEDIAN, 1.0 if unknown is None else np.where(unknown, _SHARP, 1.0))
        spread = stretch / np.sqrt(np.maximum(weights, TINY))  # σ, as it seems to be
        along = self.stats.model.sharp.along(actions)
        widths = np.sqrt(np.vecdot(along, along))
        surprise = self.stats.model.surprise(actions, rewards, spread, widths)
        believed = seen & (surprise <= _CONTRADICTION)
        self._measure(surprise * stretch, believed, unknown)
        voice, plain = 1.0 / (1.0 + (spread / self._blurs) ** 2)  # plain: 1 where a lie would show, 0 if not
        self.stats.model.judge(surprise, voice * seen, believed)
        sharp = spread**-2.0 * self._caution(widths, plain)
        blunt = (_WIDER * (1.0 + (self.few - 1.0) * plain) * spread) ** -2.0
        self.stats.model.learn(actions, rewards, sharp * believed, blunt * seen, along)
        self._audit(rewards, spread, seen, seen & ~believed)
        fewest = max(_FEWEST, self.dim)
        if np.count_nonzero(self.stats.model.doubt >= fewest):
            enough = np.maximum(fewest, _SHARE * (self.stats.model.trust - _FIRST))
            self._restart(np.flatnonzero(seen & (self.stats.model.doubt >= enough)))

    def _restart(self, over: Index) -> None:
        if not over.size:
            return
        self.stats.model.reset(over)
        self.stats.left[over] = 0
        self.stats.restarts[over] += 1

    # The noise.

    def _caution(self, widths: Floats, plain: Floats) -> Floats:
        """A factor for the weight: smaller where an observation could move the estimate far and a lie be noise."""
        bound = _LEVERAGE * self.action_bound * self.parameter_bound
        return np.maximum(np.minimum(1.0, bound / np.maximum(widths, TINY)), plain)

    def _undeclared(self, weights: Floats) -> Bools | None:
        """Where σ is at least R, which says nothing, (B,); None if it is less everywhere."""
        unknown = weights <= self.noise_range**-2.0
        return unknown if np.count_nonzero(unknown) else None

    def _measure(self, size: Floats, believed: Bools, unknown: Bools | None) -> None:
        """Follow the median of |z|: it takes lies in every second round that is believed to mislead it.

        ``size`` is |z| in units of the declared σ.
        """
        noise = self.stats.noise
        pace: Floats | float = _PACE
        least: Floats | float = 0.5 * _MEDIAN
        if unknown is not None:
            haste = np.maximum(_PACE, _HASTE / (1.0 + self.stats.model.trust / _SETTLED))
            pace, least = np.where(unknown, haste, _PACE), np.where(unknown, _SHARP, 0.5) * _MEDIAN
        moved = noise * np.exp(pace * ((size > noise) - 0.5))
        np.copyto(noise, np.minimum(np.maximum(moved, least), _UNDERSTATED * _MEDIAN), where=believed)

    # Audits.

    def _audit(self, rewards: Floats, spread: Floats, seen: Bools, contradicted: Bools) -> None:
        """Go on with audits, end those that are over, and begin those that are due."""
        stats, now = self.stats, self.t
        if np.count_nonzero(contradicted):
            stats.contradictions += contradicted
            first = contradicted & (stats.next == _LATER)
            stats.next[first] = now[first] + _AUDIT
        running = seen & (stats.left > 0) if np.count_nonzero(stats.left) else None
        calm = seen if running is None else seen & ~running
        np.add(stats.earned, _PACE * (rewards - stats.earned), out=stats.earned, where=calm)
        if running is not None:
            self._go_on(rewards, spread, running)
        due = now >= stats.next
        if np.count_nonzero(due):
            due &= seen & (stats.left == 0) & (stats.model.doubt <= _QUIET)
            if np.count_nonzero(due):
                due &= stats.model.diversity(self.blunt_lam) < _DIVERSE
                self._begin_audit(np.flatnonzero(due), now)

    def _go_on(self, rewards: Floats, spread: Floats, running: Bools) -> None:
        stats = self.stats
        late = running & (2 * stats.left <= self.length)  # when the newcomer has learnt something
        stats.better += late & (rewards > stats.earned + spread)
        stats.left -= running
        failed = running & (stats.left == 0) & (4 * stats.better <= self.length)
        if failed.any():
            stats.old.copy_to(stats.model, np.flatnonzero(failed))

    def _begin_audit(self, due: Index, now: Ints) -> None:
        if not due.size:
            return
        self.stats.model.copy_to(self.stats.old, due)
        self.stats.model.reset(due)
        self.stats.left[due], self.stats.better[due] = self.length, 0
        self.stats.interval[due] *= _GROWTH
        self.stats.next[due] = now[due] + self.stats.interval[due] * (0.75 + 0.5 * self._jitter.at_each(now)[due])
        self.stats.audits[due] += 1
