"""The sceptic: believes what it sees until what it sees contradicts what it believes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import share
from robandit.policies import radius
from robandit.policies.base import Diary, Search
from robandit.policies.confidence import Confident

_SHARP = 0.04  # the least σ to weigh by, in units of the noise range R
_WIDER = 4.0  # by how much more than its noise an observation is blurred for exploration
_FEW = 20.0  # with fewer features than this it is blurred the more: what is never tried again hides more actions
_LEVERAGE = 0.02  # ‖a‖_{Σ⁻¹} in units of AB from which on an observation counts less, as CW-OFUL has it,
_PLAIN = 0.1  # unless its noise, in units of R, is so small that a lie would show
_NAIVE = 0.2  # the say of the estimate that believes everything
_CONTRADICTION = 5.0  # standard deviations from which on a reward is not believed,
_DOUBTFUL = 3.0  # and from which on it speaks against the model with all its voice
_VOICE = 0.5  # in units of R: noise of this size halves an observation's voice
_FEWEST, _SHARE = 5.0, 0.25  # a restart takes so much doubt, at least d, and so much for each unit of trust
_FIRST = 50.0  # beyond the first: what was learnt at once was not put to the test
_AUDIT, _GROWTH = 100.0, 6.0  # rounds from the first contradiction to the first audit; and from interval to interval
_INSURED = 200.0  # when the first audit comes that has no cause, at full insurance
_QUIET = 5.0  # audits wait while there is more doubt than this,
_DIVERSE = 0.5  # and while play is as diverse as this
_PACE = 0.03  # of the measurements of the noise, and of what is earned
_HASTE, _SETTLED = 0.3, 10.0  # of a noise that was not declared, as long as there is no more trust than this
_MEDIAN = 0.6745  # of |z| for a normal z
_UNDERSTATED = 2.0  # the most by which σ is taken to have been understated
_TINY = 1e-300
_LATER = 2.0**62  # than any round


@dataclass(kw_only=True, eq=False)
class Sceptic(Confident):
    """One policy for when neither the corruption nor the attack is known. Ours, without a regret bound.

    It estimates sharply, with weights 1/σ², from the rewards that do not contradict its model, and explores bluntly. A
    model gains trust by every reward that fits and doubt by every one that does not; when doubt has come to a quarter
    of the trust, it starts again from nothing. So unseating a model costs a liar in proportion to what the model has
    gained. After a first contradiction it also audits itself now and then, unless play is diverse anyway: a newcomer
    learns from nothing, and stays only if it earns more than the old model did. See docs/sceptic.md.

    >>> policy = Sceptic(dim=2, noise_range=0.5, seed=1)
    >>> decision = policy.choose([[1.0, 0.0], [0.0, 1.0]], sigma=0.1)
    >>> policy.update(decision, reward=0.7)
    >>> decision.restarts, decision.contradictions
    (0, 0)
    """

    radius_scale: float = 0.001
    """Multiplies the width of its exploration, the paper's α_t at C = 0."""
    insurance: float = 0.0
    """From 0, cheap, to 1, safe: audits without a cause, the sooner the more, against lies that never contradict."""

    cost = 2.0

    def _start(self) -> None:
        super()._start()
        self.insurance = share("insurance", self.insurance)
        self._width = radius.Table(partial(radius.alpha, self._setting, corruption=0.0), self.radius_scale)
        self._few = max(1.0, _FEW / self.dim)
        self._jitter = self._own_stream(key=1)
        blunt = self._lambda / self._few**2
        self._model, self._old = (Model(self._batch, self.dim, self._lambda, blunt) for _ in range(2))
        self._noise: Floats = np.full(self._batch, _MEDIAN)  # the median of |z|, as far as it is believed
        self._earned: Floats = np.zeros(self._batch)  # a round, of late, outside of audits
        self._left: Ints = np.zeros(self._batch, np.int64)  # rounds that an audit still takes; 0 when there is none
        self._better: Ints = np.zeros(self._batch, np.int64)  # rounds of an audit that paid more than that
        first = _INSURED / self.insurance if self.insurance > 0.0 else _LATER
        self._next: Floats = np.full(self._batch, first)  # the update from which on an audit is due
        self._interval: Floats = np.full(self._batch, _AUDIT if first == _LATER else first)
        self._past = Diary(*(np.zeros(self._batch, np.int64) for _ in range(3)))

    def _floor(self) -> float:
        return (self.noise_range + 1.0) / self.dim**0.5  # of α_t, as in the paper

    def estimate(self) -> Ellipsoid:
        """The sharp estimate, with the width that it explores by."""
        held = Ellipsoid.around(self._model.sharp, self._width(self._updates + 1), self._rows)
        return held[0] if self._single else held

    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        model = self._model
        center = model.sharp.mean + _NAIVE * (model.blunt.mean - model.sharp.mean)
        held = Ellipsoid.from_root(center, model.blunt.root, self._width(self._updates + 1))
        return Search(optimise(actions, held), self._never, self._zeros)

    def _diary(self) -> Diary:
        return Diary(*(count.copy() for count in self._past))

    def _weights(self, sigma: Floats) -> Floats:
        return np.maximum(sigma, _SHARP * self.noise_range) ** -2.0

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        seen = weights > 0.0
        unknown = weights <= self.noise_range**-2.0  # σ ≥ R says nothing
        spread = self._stretch(unknown) / np.sqrt(np.maximum(weights, _TINY))  # σ, as it seems to be
        surprise = np.abs(self._model.surprise(actions, rewards, spread))
        believed = seen & (surprise <= _CONTRADICTION)
        self._past.contradictions[seen & ~believed] += 1
        self._measure(surprise, believed, unknown)
        voice = 1.0 / (1.0 + (spread / (_VOICE * self.noise_range)) ** 2) * seen
        self._model.judge(surprise, voice, believed)
        sharp = spread**-2.0 * self._caution(actions, spread)
        blurred = _WIDER * (1.0 + (self._few - 1.0) * self._plain(spread))
        blunt = (blurred * spread) ** -2.0
        self._model.learn(actions, rewards, sharp * believed, blunt * seen)
        self._audit(rewards, spread, seen)
        enough = np.maximum(max(_FEWEST, self.dim), _SHARE * (self._model.trust - _FIRST))
        over = np.flatnonzero(seen & (self._model.doubt >= enough))
        if over.size:
            self._model.reset(over)
            self._left[over] = 0
            self._past.restarts[over] += 1

    # The noise.

    def _caution(self, actions: Floats, spread: Floats) -> Floats:
        """What remains of an observation's weight: less where it could move the estimate far and a lie be noise."""
        far = np.maximum(self._model.sharp.widths(actions), _TINY)
        bound = _LEVERAGE * self.action_bound * self.parameter_bound
        return np.maximum(np.minimum(1.0, bound / far), self._plain(spread))

    def _plain(self, spread: Floats) -> Floats:
        """From 1, where a lie would show, to 0, where it would pass for noise."""
        return 1.0 / (1.0 + (spread / (_PLAIN * self.noise_range)) ** 2)

    def _stretch(self, unknown: Bools) -> Floats:
        """What to multiply σ by: at least 1, in case it was understated; less only where it was not declared."""
        return np.clip(self._noise / _MEDIAN, np.where(unknown, _SHARP, 1.0), None)

    def _measure(self, surprise: Floats, believed: Bools, unknown: Bools) -> None:
        """Follow the median of |z|: it takes lies in every second round that is believed to mislead it."""
        above = surprise * self._stretch(unknown) > self._noise
        haste = np.maximum(_PACE, _HASTE / (1.0 + self._model.trust / _SETTLED))
        moved = self._noise * np.exp(np.where(unknown, haste, _PACE) * (above - 0.5))
        least = np.where(unknown, _SHARP, 0.5) * _MEDIAN
        self._noise[believed] = np.clip(moved, least, _UNDERSTATED * _MEDIAN)[believed]

    # Audits.

    def _audit(self, rewards: Floats, spread: Floats, seen: Bools) -> None:
        """Go on with audits, end those that are over, and begin those that are due."""
        now, length = self._updates + 1, 4 * self.dim + 20
        first = seen & (self._next == _LATER) & (self._past.contradictions > 0)
        self._next[first] = now[first] + _AUDIT
        running = seen & (self._left > 0)
        usual = seen & ~running
        self._earned[usual] += _PACE * (rewards - self._earned)[usual]
        if running.any():
            late = running & (2 * self._left <= length)  # when the newcomer has learnt something
            self._better += late & (rewards > self._earned + spread)
            self._left -= running
            failed = running & (self._left == 0) & (4 * self._better <= length)
            self._old.copy_to(self._model, np.flatnonzero(failed))
        quiet = (self._model.doubt <= _QUIET) & (self._model.diversity() < _DIVERSE)
        due = np.flatnonzero(seen & (self._left == 0) & (now >= self._next) & quiet)
        if due.size:
            self._begin_audit(due, now, length)

    def _begin_audit(self, due: NDArray[np.intp], now: Ints, length: int) -> None:
        self._model.copy_to(self._old, due)
        self._model.reset(due)
        self._left[due], self._better[due] = length, 0
        self._interval[due] *= _GROWTH
        self._next[due] = now[due] + self._interval[due] * (0.75 + 0.5 * self._jitter.at_each(now)[due])
        self._past.audits[due] += 1

    def _arrays(self) -> dict[str, NDArray[Any]]:
        own = {name: getattr(self, f"_{name}") for name in ("noise", "earned", "left", "better", "next", "interval")}
        return self._model.arrays("") | self._old.arrays("old_") | own | self._past._asdict()


class Model:
    """What a batch of sceptics believes, what it would if it believed everything, and how it stands by that."""

    def __init__(self, rows: int, dim: int, sharp: float, blunt: float) -> None:
        self.sharp, self.blunt = (Ridge(rows=rows, dim=dim, regularization=lam) for lam in (sharp, blunt))
        self._lambda = blunt
        self.trust, self.doubt, self.mass = (np.zeros(rows) for _ in range(3))  # mass: Σ w‖a‖² of the blunt one

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All of it by name."""
        sharp = {f"{prefix}sharp_{name}": array for name, array in self.sharp.arrays().items()}
        blunt = {f"{prefix}blunt_{name}": array for name, array in self.blunt.arrays().items()}
        return sharp | blunt | {f"{prefix}{name}": getattr(self, name) for name in ("trust", "doubt", "mass")}

    def copy_to(self, other: Model, rows: NDArray[np.intp]) -> None:
        for mine, theirs in zip(self.arrays("").values(), other.arrays("").values(), strict=True):
            theirs[rows] = mine[rows]

    def reset(self, rows: NDArray[np.intp]) -> None:
        """Forget everything in these rows."""
        self.sharp.reset(rows)
        self.blunt.reset(rows)
        self.trust[rows] = self.doubt[rows] = self.mass[rows] = 0.0

    def surprise(self, actions: Floats, rewards: Floats, spread: Floats) -> Floats:
        """z: by how many standard deviations the rewards exceed what the model expects."""
        deviation = np.hypot(spread, self.sharp.widths(actions))
        return (rewards - np.vecdot(actions, self.sharp.mean)) / deviation

    def judge(self, surprise: Floats, voice: Floats, believed: Bools) -> None:
        """Trust grows by what fits; doubt by what does not, and shrinks again by what does."""
        self.trust += voice * believed
        self.doubt += voice * (2.0 * np.minimum(1.0, (surprise / _DOUBTFUL) ** 2) - 1.0)
        np.maximum(self.doubt, 0.0, out=self.doubt)

    def learn(self, actions: Floats, rewards: Floats, sharp: Floats, blunt: Floats) -> None:
        """Fold rewards in, with these weights."""
        self.sharp.update(actions, rewards, sharp)
        self.blunt.update(actions, rewards, blunt)
        self.mass += blunt * np.vecdot(actions, actions)

    def diversity(self) -> Floats:
        """The geometric over the arithmetic mean of the eigenvalues of the blunt Σ: 1 if all directions are alike."""
        dim = self.sharp.mean.shape[1]
        geometric = np.exp(self.blunt.log_det / dim) / self._lambda
        return geometric / (1.0 + self.mass / (dim * self._lambda))
