"""Where decision sets, means, variances and noise come from.

An environment is a configuration; its `rounds` yields what every round offers a batch of trials, for ever. The truth is
in the offer: the adversary may look at all of it, a policy is shown the actions and σ alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar, NamedTuple, Self

import numpy as np

from robandit.arrays import Floats, Index, Ints
from robandit.errors import Configured
from robandit.geometry.regions import Ball, Region
from robandit.inputs import integer, not_negative, positive, share
from robandit.streams import Derived, Draws

NEVER = -1
"""The delay of a reward that never arrives."""

_TIED = 1e-12  # means that differ by less are equal but for rounding


class Menu(NamedTuple):
    """The decision sets of a batch and the truth about them. While the sets do not change, it is the same object."""

    actions: Floats | Region
    """(B, K, d), or one infinite set for all trials."""
    parameter: Floats
    """μ*, (B, d)."""
    means: Floats
    """⟨a, μ*⟩ of every action, (B, K); of an infinite set, those of `witnesses`."""
    best: Floats
    """The largest mean, (B,)."""
    gap: Floats
    """Δ_t of eq. (def:gap), (B,): from the best to the next best mean; infinite if there is no other."""
    witnesses: Floats | None = None
    """In an infinite set, the best and the worst action, (B, 2, d): |⟨a, μ*⟩| is largest at one of them."""

    @classmethod
    def of(cls, actions: Floats | Region, parameter: Floats) -> Self:
        """Everything that follows from the decision sets and μ*."""
        if isinstance(actions, np.ndarray):
            means = np.matvec(actions, parameter)
            best = means.max(axis=1)
            behind = best[:, None] - means
            return cls(actions, parameter, means, best, np.where(behind > _TIED, behind, np.inf).min(axis=1))
        ends = np.stack([actions.support(sign * parameter).points for sign in (1.0, -1.0)], axis=1)
        means = np.matvec(ends, parameter)
        return cls(actions, parameter, means, means[:, 0], np.zeros(len(parameter)), ends)  # others come close to a*

    @classmethod
    def joined(cls, menus: Sequence[Menu]) -> Self:
        """Several batches as one. Infinite sets must be the same."""
        columns = [list(column) for column in zip(*menus, strict=True)]
        joined = cls(*(c[0] if not isinstance(c[0], np.ndarray) else np.concatenate(c) for c in columns))
        if isinstance(joined.actions, np.ndarray):
            joined.actions.flags.writeable = False
        return joined


@dataclass(slots=True, eq=False)
class Offer:
    """What a round brings, before anyone acts: steps 1 and 2 of the protocol (section 3)."""

    round: int
    """From 1 on."""
    menu: Menu
    sigma: Floats
    """A bound on the noise's standard deviation: (B,), or (B, K) for each action."""
    noise: Floats
    """ε_t: (B,), the same for all actions, or (B, K)."""
    told: Floats | None = None
    """What the policy is told of σ, if it is not the truth."""
    delay: Ints | None = None
    """After how many rounds each trial's reward arrives, (B,): 0 at once, `NEVER` not at all. None: all at once."""

    @property
    def actions(self) -> Floats | Region:
        return self.menu.actions

    @property
    def means(self) -> Floats:
        return self.menu.means

    @property
    def rewards(self) -> Floats:
        """The clean reward r′_t(a) of every action, (B, K)."""
        return self.menu.means + (self.noise if self.noise.ndim == 2 else self.noise[:, None])

    def mean_of(self, played: Index, action: Floats) -> Floats:
        """The mean ⟨a_t, μ*⟩ of the actions played, (B,): at these places, or these features of an infinite set."""
        if isinstance(self.menu.actions, np.ndarray):
            return self.menu.means[np.arange(len(played)), played]
        return np.vecdot(action, self.menu.parameter)

    def reward_of(self, played: Index, action: Floats) -> Floats:
        """The clean reward r′_t(a_t), (B,)."""
        noise = self.noise if self.noise.ndim == 1 else self.noise[np.arange(len(played)), played]
        return self.mean_of(played, action) + noise

    def narrowed(self, actions: Floats) -> Offer:
        """This offer of an infinite set as one of its witnesses and these ``actions`` (B, d), which come last."""
        assert self.menu.witnesses is not None
        few = np.concatenate([self.menu.witnesses, actions[:, None, :]], axis=1)
        return replace(self, menu=Menu.of(few, self.menu.parameter))


@dataclass(kw_only=True, frozen=True)
class Environment(Configured, ABC):
    """A configuration from which any batch of trials can be played. One's own defines `rounds`."""

    dim: int = 20
    """d, the number of features of an action."""
    noise_range: float = 0.5
    """R: a clean reward differs from its mean by at most this."""

    action_bound: ClassVar[float] = 1.0
    parameter_bound: ClassVar[float] = 1.0
    mean_bound: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        integer("dim", self.dim, least=1)
        positive("noise_range", self.noise_range)

    @abstractmethod
    def rounds(self, draw: Draws) -> Iterator[Offer]:
        """What the rounds 1, 2, 3, … offer the trials of ``draw``, whose streams are the only randomness."""

    def facing(self, attack: object) -> Self:
        """The environment to use with this attack, where one depends on the other."""
        return self

    @property
    def set_size(self) -> int | None:
        """K, if every decision set is finite and of the same size."""
        return None

    @property
    def noise_scale(self) -> float:
        """A number s for which the noise is s-sub-Gaussian in every round: R always is."""
        return self.noise_range


@dataclass(kw_only=True, frozen=True)
class Synthetic(Environment):
    """Random decision sets in the manner of the paper's experiments; each of its parts can be changed."""

    actions: int = 20
    """K, the number of actions in a decision set."""
    fewest: int | None = None
    """Sets have a size between this and ``actions``, drawn anew each round. By default it is always ``actions``."""
    fresh_rounds: int | None = None
    """After so many rounds the decision set stays the same. By default it is fresh in every round."""
    infinite: bool = False
    """Offer the unit ball instead of a finite set."""
    sigma_low: float = 0.0
    """σ_t is drawn uniformly, or with two-point noise log-uniformly, from this"""
    sigma_high: float = 0.05
    """up to this."""
    noise: str = "gaussian"
    """`gaussian` clipped to ±R; `two-point` ±σ, whose deviation is σ exactly; `bernoulli` rewards 0 or 1."""
    hide_sigma: bool = False
    """Tell policies that σ_t is R, which bounds it always, instead of what it is."""
    per_action: bool = False
    """Draw σ and noise for each action by itself, instead of one for all of a round."""
    parameter: str = "even"
    """μ*: `even`, that is 1/√d in each coordinate as in the paper, or `random` on the unit sphere in every trial."""
    drift: float = 0.0
    """The angle in radians by which μ* turns each round, towards a random direction."""
    mean_delay: float = 0.0
    """Rewards arrive after a geometrically distributed number of rounds with this mean, at most 20 times as many."""
    lost: float = 0.0
    """The probability that a reward never arrives."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("actions", self.actions, least=1)
        if self.fewest is not None and integer("fewest", self.fewest, least=1) > self.actions:
            raise ValueError(f"fewest must be at most actions = {self.actions}, got {self.fewest}")
        if self.fresh_rounds is not None:
            integer("fresh_rounds", self.fresh_rounds, least=0)
        for name in ("sigma_low", "sigma_high", "drift", "mean_delay"):
            not_negative(name, getattr(self, name))
        share("lost", self.lost)
        for name in ("infinite", "hide_sigma", "per_action"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false, got {getattr(self, name)!r}")
        if not self.sigma_low <= self.sigma_high <= self.noise_range:
            raise ValueError(
                f"sigma_low <= sigma_high <= noise_range must hold, got {self.sigma_low}, {self.sigma_high} and "
                f"{self.noise_range}"
            )
        for name, known in (("noise", ("gaussian", "two-point", "bernoulli")), ("parameter", ("even", "random"))):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        self._check_together()

    def _check_together(self) -> None:
        """What can't be combined."""
        if self.noise == "two-point" and self.sigma_low == 0.0:
            raise ValueError("sigma_low must be > 0 with two-point noise, whose σ is drawn log-uniformly, got 0")
        if self.noise == "bernoulli" and (self.noise_range < 1.0 or self.drift > 0.0):
            raise ValueError(
                f"bernoulli rewards need noise_range >= 1 and drift = 0, got {self.noise_range} and {self.drift}"
            )
        if self.noise == "bernoulli" and (self.sigma_low, self.sigma_high) != (0.0, 0.05):
            raise ValueError("bernoulli rewards have a sigma of 0.5; leave sigma_low and sigma_high out")
        if self.infinite and (self.per_action or self.noise == "bernoulli" or self.fewest or self.fresh_rounds):
            raise ValueError("an infinite set goes without per_action, fewest, fresh_rounds and bernoulli rewards")
        if self.drift > 0.0 and self.dim == 1:
            raise ValueError("drift needs dim >= 2: in one dimension there is nowhere to turn")

    @property
    def set_size(self) -> int | None:
        return None if self.infinite or self.fewest is not None else self.actions

    @property
    def noise_scale(self) -> float:
        return 0.5 if self.noise == "bernoulli" else self.sigma_high  # by Hoeffding's lemma, also for ±σ; or Gaussian

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        menu_of, noise_of, delay_of = self._menus(draw), self._noise(draw), self._delays(draw)
        for t in count(1):
            menu = menu_of(t)
            sigma, noise = noise_of(t, menu)
            told = np.full_like(sigma, self.noise_range) if self.hide_sigma else None
            yield Offer(t, menu, sigma, noise, told, delay_of(t))

    def _menus(self, draw: Draws) -> Callable[[int], Menu]:
        """The decision sets of a round, with entries uniform on ±1/√d; rewards of 0 or 1 need positive ones."""
        entries, sizes, where = draw.uniform(self.actions, self.dim), draw.shared(), self._parameters(draw)
        low, width = (0.0, 1.0) if self.noise == "bernoulli" else (-1.0, 2.0)

        def fresh(t: int) -> Menu:
            if self.infinite:
                return Menu.of(Ball(self.dim), where(t))
            actions = (low + width * entries.at(t)) * self.dim**-0.5
            if self.fewest is not None:
                actions = actions[:, : self.fewest + int(sizes.at(t)[0] * (self.actions - self.fewest + 1))].copy()
            actions.flags.writeable = False  # policies check a set that can't have changed only once
            return Menu.of(actions, where(t))

        held, last = fresh(0), 0 if self.infinite else self.fresh_rounds

        def menu(t: int) -> Menu:
            if last is None or t <= last:
                return fresh(t)
            return Menu.of(held.actions, where(t)) if self.drift > 0.0 else held

        return menu

    def _parameters(self, draw: Draws) -> Callable[[int], Floats]:
        """μ* (B, d) as a function of the round."""
        directions = draw.normal(2, self.dim).at(0)
        start = np.full((len(draw), self.dim), self.dim**-0.5)
        if self.parameter == "random":
            start = directions[:, 0] / np.linalg.norm(directions[:, 0], axis=1, keepdims=True)
            start = np.abs(start) if self.noise == "bernoulli" else start
        if self.drift == 0.0:
            return lambda t: start
        aside = directions[:, 1] - np.vecdot(directions[:, 1], start)[:, None] * start
        aside /= np.linalg.norm(aside, axis=1, keepdims=True)
        return lambda t: np.cos(self.drift * t) * start + np.sin(self.drift * t) * aside

    def _noise(self, draw: Draws) -> Callable[[int, Menu], tuple[Floats, Floats]]:
        """σ_t and ε_t of a round: each (B,), or (B, K) per action."""
        shape = (self.actions,) if self.per_action else ()
        spread = draw.uniform(*shape)
        if self.noise == "bernoulli":
            coin = draw.uniform(self.actions)

            def bernoulli(t: int, menu: Menu) -> tuple[Floats, Floats]:
                rewards = coin.at(t)[:, : menu.means.shape[1]] < menu.means
                return np.full(len(draw), 0.5), rewards - menu.means

            return bernoulli
        source = draw.normal(*shape) if self.noise == "gaussian" else draw.uniform(*shape)
        sigmas, noises = Derived(self._sigma, spread), Derived(self._symmetric, spread, source)

        def symmetric(t: int, menu: Menu) -> tuple[Floats, Floats]:
            sigma, noise = sigmas.at(t), noises.at(t)
            if self.per_action and sigma.shape != menu.means.shape:
                return sigma[:, : menu.means.shape[1]], noise[:, : menu.means.shape[1]]
            return sigma, noise

        return symmetric

    def _sigma(self, uniform: Floats) -> Floats:
        if self.noise == "two-point":
            return self.sigma_low * (self.sigma_high / self.sigma_low) ** uniform
        return self.sigma_low + (self.sigma_high - self.sigma_low) * uniform

    def _symmetric(self, uniform: Floats, source: Floats) -> Floats:
        """Noise that is symmetric around 0, from what σ is drawn from and numbers of its own."""
        sigma = self._sigma(uniform)
        if self.noise == "two-point":
            return np.where(source < 0.5, -sigma, sigma)
        return np.clip(sigma * source, -self.noise_range, self.noise_range)

    def _delays(self, draw: Draws) -> Callable[[int], Ints | None]:
        """The delay (B,) of a round's rewards; None if there is none."""
        if self.mean_delay == 0.0 and self.lost == 0.0:
            return lambda t: None
        when, fate = draw.uniform(), draw.uniform()
        stay = self.mean_delay / (self.mean_delay + 1.0)  # the probability of waiting one round more

        def delays(t: int) -> Ints:
            waits: Floats = np.zeros(len(draw))
            if stay > 0.0:
                waits = np.minimum(np.floor(np.log1p(-when.at(t)) / np.log(stay)), np.ceil(20.0 * self.mean_delay))
            return np.where(fate.at(t) < self.lost, NEVER, waits).astype(np.int64)

        return delays


@dataclass(kw_only=True, frozen=True)
class Paper(Synthetic):
    """The paper's: fresh sets while the attack lasts, then one fixed set; σ_t up to 0.05, Gaussian noise within ±R."""

    fresh_rounds: int | None = None
    """After so many rounds the decision set stays the same. By default as many as the attack's ``opening``."""

    def facing(self, attack: object) -> Self:
        if self.fresh_rounds is not None:
            return self
        return replace(self, fresh_rounds=getattr(attack, "opening", 0))


@dataclass(kw_only=True, frozen=True)
class Fresh(Synthetic):
    """A fresh decision set in every round; otherwise the paper's."""


@dataclass(kw_only=True, frozen=True)
class Heteroscedastic(Synthetic):
    """σ_t on both sides of the floor (R+1)/√d that the policies weigh by: 0.34 at the paper's d = 20."""

    sigma_low: float = 0.05
    sigma_high: float = 0.5
    noise: str = "two-point"


@dataclass(kw_only=True, frozen=True)
class Bernoulli(Synthetic):
    """Rewards are 0 or 1, as clicks are, and ⟨a, μ*⟩ is the probability of a 1."""

    noise_range: float = 1.0
    noise: str = "bernoulli"


@dataclass(kw_only=True, frozen=True)
class PerActionNoise(Synthetic):
    """Every action has a noise and a σ of its own."""

    sigma_high: float = 0.5
    per_action: bool = True


@dataclass(kw_only=True, frozen=True)
class UnitBall(Synthetic):
    """The decision set is the unit ball."""

    dim: int = 5
    infinite: bool = True


@dataclass(kw_only=True, frozen=True)
class ChangingSets(Synthetic):
    """Decision sets of a size that changes every round."""

    fewest: int | None = 2


@dataclass(kw_only=True, frozen=True)
class Delayed(Synthetic):
    """Rewards arrive late, on average after ten rounds, or never, one in ten."""

    mean_delay: float = 10.0
    lost: float = 0.1


@dataclass(kw_only=True, frozen=True)
class Drift(Synthetic):
    """μ* turns slowly: by a right angle within 10 000 rounds."""

    drift: float = np.pi / 20_000


ENVIRONMENTS: dict[str, type[Environment]] = {
    "paper": Paper,
    "fresh": Fresh,
    "heteroscedastic": Heteroscedastic,
    "bernoulli": Bernoulli,
    "per-action-noise": PerActionNoise,
    "unit-ball": UnitBall,
    "changing-sets": ChangingSets,
    "delayed": Delayed,
    "drift": Drift,
}
"""Every environment by its name."""


def side_by_side(worlds: Sequence[Iterator[Offer]]) -> Iterator[tuple[Offer, Sequence[Offer]]]:
    """The offers of several worlds as one batch, and each by itself. Their sets must be of the same size."""
    last: list[Menu] = []
    for parts in zip(*worlds, strict=True):
        if len(parts) == 1:
            yield parts[0], parts
            continue
        menus = [part.menu for part in parts]
        if not last or any(menu is not before for menu, before in zip(menus, last, strict=True)):
            together, last = Menu.joined(menus), menus
        sigma, noise = _stacked([part.sigma for part in parts]), _stacked([part.noise for part in parts])
        told = None
        if any(part.told is not None for part in parts):
            told = _stacked([part.sigma if part.told is None else part.told for part in parts])
        yield Offer(parts[0].round, together, sigma, noise, told, _stacked_delays(parts)), parts


def _stacked(arrays: Sequence[Floats]) -> Floats:
    """Arrays (B,) or (B, K), one below the other."""
    width = max((array.shape[1] for array in arrays if array.ndim == 2), default=None)
    if width is None:
        return np.concatenate(arrays)
    return np.concatenate([a if a.ndim == 2 else np.broadcast_to(a[:, None], (len(a), width)) for a in arrays])


def _stacked_delays(parts: Sequence[Offer]) -> Ints | None:
    if all(part.delay is None for part in parts):
        return None
    return np.concatenate([np.zeros(len(p.menu.best), np.int64) if p.delay is None else p.delay for p in parts])
