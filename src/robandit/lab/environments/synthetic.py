"""Random decision sets in the manner of the paper's experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.geometry.regions import Ball
from robandit.inputs import boolean, integer, not_negative, share
from robandit.lab.environments.base import NEVER, Environment, Menu, Offer
from robandit.lab.environments.traffic import Traffic, shares_of
from robandit.streams import Derived, Draws


@dataclass(kw_only=True, frozen=True)
class Synthetic(Environment):
    """Random decision sets as in the paper's experiments, with parts that can be changed."""

    actions: int = 20
    """Number K of actions in a decision set."""
    fewest: int | None = None
    """Smallest size of a decision set: each round draws a size up to ``actions``. By default it is ``actions``."""
    fresh_rounds: int | None = None
    """Rounds with a fresh decision set; then the set stays the same. By default every round has a fresh one."""
    infinite: bool = False
    """Whether the decision set is the unit ball instead of a finite set."""
    sigma_low: float = 0.0
    """Lower end of the range from which σ_t is drawn."""
    sigma_high: float = 0.05
    """Upper end of the range from which σ_t is drawn: uniformly, with two-point noise log-uniformly."""
    noise: str = "gaussian"
    """Kind of noise: `gaussian`, clipped to ±R; `two-point`, which is ±σ; `bernoulli`, for rewards of 0 or 1."""
    hide_sigma: bool = False
    """Whether policies are told R, which always bounds σ_t, instead of σ_t itself."""
    per_action: bool = False
    """Whether each action has its own σ and noise; by default all actions of a round share them."""
    parameter: str = "even"
    """The unknown μ*: `even`, which is 1/√d in each coordinate as in the paper, or `random` on the unit sphere."""
    shortest: float = 1.0
    """Lower end of the range from which the length of μ* is drawn, uniformly."""
    longest: float = 1.0
    """Upper end of the range from which the length of μ* is drawn."""
    lowest: float | None = None
    """Lowest click rate. With it the first feature is constant, and a random μ* keeps all rates in range."""
    highest: float | None = None
    """Highest click rate."""
    drift: float = 0.0
    """Angle in radians by which μ* turns each round, towards a random direction."""
    mean_delay: float = 0.0
    """Mean delay of a reward in rounds. Delays are geometric, cut at 20 times their mean."""
    lost: float = 0.0
    """Probability that a reward never arrives."""
    sources: int = 0
    """Number of sources of traffic, which policies are told. By default there are none to tell apart."""
    skew: float = 0.0
    """How unequal sources are: the j-th has traffic in proportion to j^−skew."""
    zeta: float = 0.0
    """Largest honest difference ζ of the mean of a source's visitors from ⟨a, μ*⟩."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("actions", self.actions, least=1)
        if self.fewest is not None and integer("fewest", self.fewest, least=1) > self.actions:
            raise ValueError(f"fewest must be at most actions = {self.actions}, got {self.fewest}")
        if self.fresh_rounds is not None:
            integer("fresh_rounds", self.fresh_rounds, least=0)
        integer("sources", self.sources, least=0)
        for name in ("sigma_low", "sigma_high", "drift", "mean_delay", "skew", "zeta"):
            not_negative(name, getattr(self, name))
        share("lost", self.lost)
        for name in ("infinite", "hide_sigma", "per_action"):
            boolean(name, getattr(self, name))
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
        """Refuse settings that can't be combined."""
        if self.noise == "two-point" and self.sigma_low == 0.0:
            raise ValueError("sigma_low must be > 0 with two-point noise, whose σ is drawn log-uniformly, got 0")
        if self.noise == "bernoulli" and (self.noise_range < 1.0 or self.drift > 0.0):
            raise ValueError(
                f"bernoulli rewards need noise_range >= 1 and drift = 0, got {self.noise_range} and {self.drift}"
            )
        if not 0.0 < self.shortest <= self.longest <= self.parameter_bound:
            raise ValueError(f"0 < shortest <= longest <= 1 must hold, got {self.shortest} and {self.longest}")
        self._check_rates()
        if self.noise == "bernoulli" and (self.sigma_low, self.sigma_high) != (0.0, 0.05):
            raise ValueError("bernoulli rewards have a sigma of 0.5; leave sigma_low and sigma_high out")
        if self.infinite and (self.per_action or self.noise == "bernoulli" or self.fewest or self.fresh_rounds):
            raise ValueError("an infinite set goes without per_action, fewest, fresh_rounds and bernoulli rewards")
        if not self.sources and (self.zeta > 0.0 or self.skew > 0.0):
            raise ValueError(f"skew and zeta need sources >= 1, got {self.skew} and {self.zeta} without")
        if self.infinite and self.zeta > 0.0:
            raise ValueError(f"an infinite set goes without zeta, got {self.zeta}")
        if self.drift > 0.0 and self.dim == 1:
            raise ValueError("drift needs dim >= 2: in one dimension there is nowhere to turn")

    def _check_rates(self) -> None:
        """Refuse click rates that can't be had."""
        if self.lowest is None and self.highest is None:
            return
        if self.lowest is None or self.highest is None or not 0.0 <= self.lowest <= self.highest <= 1.0:
            raise ValueError(f"0 <= lowest <= highest <= 1 must hold, got {self.lowest} and {self.highest}")
        if self.noise != "bernoulli" or self.parameter != "random" or self.shortest < 1.0:
            raise ValueError("lowest and highest go with bernoulli rewards, a random parameter and no other length")
        longest = (self.dim * (self.lowest**2 + self.highest**2) / 2.0) ** 0.5  # all taste in one feature
        if self.dim < 2 or longest > self.parameter_bound:
            raise ValueError(f"rates from {self.lowest} to {self.highest} need 2 <= dim <= 2/(lowest² + highest²)")

    @property
    def set_size(self) -> int | None:
        return None if self.infinite or self.fewest is not None else self.actions

    @property
    def noise_scale(self) -> float:
        return 0.5 if self.noise == "bernoulli" else self.sigma_high  # Hoeffding's lemma for 0 or 1 and for ±σ

    @property
    def misspecification(self) -> float:
        return self.zeta

    @property
    def shares(self) -> tuple[float, ...]:
        return shares_of(self.sources, self.skew)

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        menu_of, noise_of, delay_of = self._menus(draw), self._noise(draw), self._delays(draw)
        visit_of = self._visits(draw)
        for t in count(1):
            menu = menu_of(t)
            source, bias = visit_of(t, menu)
            sigma, noise = noise_of(t, menu, bias)
            told = np.full_like(sigma, self.noise_range) if self.hide_sigma else None
            yield Offer(t, menu, sigma, noise, told, delay_of(t), source, bias)

    def _visits(self, draw: Draws) -> Callable[[int, Menu], tuple[Ints | None, Floats | None]]:
        """The source of each visitor by round, (B,), and what it honestly adds to the means, (B, K)."""
        if not self.sources:
            return lambda t, menu: (None, None)
        traffic = self.traffic(draw)

        def visits(t: int, menu: Menu) -> tuple[Ints, Floats | None]:
            source = traffic.sources(t)
            return source, self.leaning(traffic, source, menu)

        return visits

    def traffic(self, draw: Draws) -> Traffic:
        """The visitors of a batch of trials. It takes at least one source."""
        return Traffic(draw, shares=self.shares, zeta=self.zeta, dim=self.dim)

    def leaning(self, traffic: Traffic, source: Ints, menu: Menu) -> Floats | None:
        """What visitors from these sources honestly add to the means, (B, K). None where all are alike."""
        bias = traffic.bias(source, menu.actions) if isinstance(menu.actions, np.ndarray) else None
        if bias is not None and self.noise == "bernoulli":  # the rate of a click stays within 0 and 1
            bias = np.clip(menu.means + bias, 0.0, 1.0) - menu.means
        return bias

    def _menus(self, draw: Draws) -> Callable[[int], Menu]:
        """The decision sets by round. Entries are uniform on ±1/√d; for rewards of 0 or 1 they are positive."""
        entries, sizes, where = draw.uniform(self.actions, self.dim), draw.shared(), self.parameters(draw)
        low, width = (0.0, 1.0) if self.noise == "bernoulli" and self.highest is None else (-1.0, 2.0)

        def fresh(t: int) -> Menu:
            if self.infinite:
                return Menu.of(Ball(self.dim), where(t))
            actions = (low + width * entries.at(t)) * self.dim**-0.5
            if self.highest is not None:
                actions[:, :, 0] = self.dim**-0.5
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

    def parameters(self, draw: Draws) -> Callable[[int], Floats]:
        """The parameter μ* by round, (B, d)."""
        directions = draw.normal(2, self.dim).at(0)
        start = np.full((len(draw), self.dim), self.dim**-0.5)
        if self.parameter == "random":
            start = directions[:, 0] / np.linalg.norm(directions[:, 0], axis=1, keepdims=True)
            start = np.abs(start) if self.noise == "bernoulli" else start
        if self.shortest < self.longest:
            start = start * (self.shortest + (self.longest - self.shortest) * draw.uniform(1).at(0))
        elif self.longest != 1.0:
            start = start * self.longest
        if self.lowest is not None and self.highest is not None:
            start = _tastes(directions[:, 0], self.lowest, self.highest)
        if self.drift == 0.0:
            return lambda t: start
        aside = directions[:, 1] - np.vecdot(directions[:, 1], start)[:, None] * start
        aside /= np.linalg.norm(aside, axis=1, keepdims=True)
        return lambda t: np.cos(self.drift * t) * start + np.sin(self.drift * t) * aside

    def _noise(self, draw: Draws) -> Callable[[int, Menu, Floats | None], tuple[Floats, Floats]]:
        """The bounds σ_t and the noise ε_t by round: each (B,), or (B, K) per action."""
        shape = (self.actions,) if self.per_action else ()
        spread = draw.uniform(*shape)
        if self.noise == "bernoulli":
            coin = draw.uniform(self.actions)

            def bernoulli(t: int, menu: Menu, bias: Floats | None) -> tuple[Floats, Floats]:
                rates = menu.means if bias is None else menu.means + bias
                return np.full(len(draw), 0.5), (coin.at(t)[:, : rates.shape[1]] < rates) - rates

            return bernoulli
        source = draw.normal(*shape) if self.noise == "gaussian" else draw.uniform(*shape)
        sigmas, noises = Derived(self._sigma, spread), Derived(self._symmetric, spread, source)

        def symmetric(t: int, menu: Menu, bias: Floats | None) -> tuple[Floats, Floats]:
            sigma, noise = sigmas.at(t), noises.at(t)
            if self.per_action and sigma.shape != menu.means.shape:
                return sigma[:, : menu.means.shape[1]], noise[:, : menu.means.shape[1]]
            return sigma, noise

        return symmetric

    def _sigma(self, uniform: Floats) -> Floats:
        """The bound σ_t that belongs to a number from [0, 1)."""
        if self.noise == "two-point":
            return self.sigma_low * (self.sigma_high / self.sigma_low) ** uniform
        return self.sigma_low + (self.sigma_high - self.sigma_low) * uniform

    def _symmetric(self, uniform: Floats, source: Floats) -> Floats:
        """Noise that is symmetric around 0; ``uniform`` gives its σ, ``source`` its value."""
        sigma = self._sigma(uniform)
        if self.noise == "two-point":
            return np.where(source < 0.5, -sigma, sigma)
        return np.clip(sigma * source, -self.noise_range, self.noise_range)

    def _delays(self, draw: Draws) -> Callable[[int], Ints | None]:
        """The delays of the rewards by round, (B,), or None if nothing is late."""
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


def _tastes(directions: Floats, lowest: float, highest: float) -> Floats:
    """Parameters (B, d) of click rates within these ends, for features ±1/√d of which the first is 1/√d."""
    taste = directions.copy()
    taste[:, 0] = 0.0
    taste *= 0.5 * (highest - lowest) / np.abs(taste).sum(axis=1, keepdims=True)
    taste[:, 0] = 0.5 * (highest + lowest)
    return taste * directions.shape[1] ** 0.5
