"""What an environment is: its `rounds` yields, without end, what each round offers a batch of trials.

An offer holds the truth. The adversary may look at all of it; a policy is shown only the actions and σ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self, cast

import numpy as np

from robandit.arrays import Floats, Index, Ints, count_to
from robandit.errors import Configured
from robandit.geometry.regions import Region
from robandit.inputs import integer, positive
from robandit.streams import Draws

NEVER = -1
"""The delay of a reward that never arrives."""

_TIED = 1e-12  # means that differ by less are equal but for rounding


class Menu(NamedTuple):
    """The decision sets of a batch and the truth about them. It is the same object while the sets do not change."""

    actions: Floats | Region
    """The decision sets, (B, K, d), or one infinite set for all trials."""
    parameter: Floats
    """The unknown parameter μ*, (B, d)."""
    means: Floats
    """The mean ⟨a, μ*⟩ of every action, (B, K); in an infinite set, those of the `witnesses`."""
    best: Floats
    """The largest mean, (B,)."""
    gap: Floats
    """The gap Δ_t from the best to the next best mean, (B,), eq. (def:gap); infinite if all means are equal."""
    witnesses: Floats | None = None
    """The best and the worst action of an infinite set, (B, 2, d): |⟨a, μ*⟩| is largest at one of them."""

    @classmethod
    def of(cls, actions: Floats | Region, parameter: Floats) -> Self:
        """Make the menu of these decision sets under this μ*."""
        if isinstance(actions, np.ndarray):
            means = np.matvec(actions, parameter)
            best = means.max(axis=1)
            behind = best[:, None] - means
            return cls(actions, parameter, means, best, np.where(behind > _TIED, behind, np.inf).min(axis=1))
        ends = np.stack([actions.support(sign * parameter).points for sign in (1.0, -1.0)], axis=1)
        means = np.matvec(ends, parameter)
        return cls(
            actions, parameter, means, means[:, 0], np.zeros(len(parameter)), ends
        )  # the gap is 0: others come close to a*

    @classmethod
    def joined(cls, menus: Sequence[Menu]) -> Self:
        """Join several batches into one. Infinite sets must be the same."""
        columns = [list(column) for column in zip(*menus, strict=True)]
        joined = cls(*(c[0] if not isinstance(c[0], np.ndarray) else np.concatenate(c) for c in columns))
        if isinstance(joined.actions, np.ndarray):
            joined.actions.flags.writeable = False
        return joined


@dataclass(slots=True, eq=False)
class Offer:
    """What a round offers before anyone acts: steps 1 and 2 of the protocol (section 3)."""

    round: int
    """The number of the round, from 1 on."""
    menu: Menu
    """The decision sets and the truth about them."""
    sigma: Floats
    """The bound σ_t on the standard deviation of the noise: (B,), or (B, K) per action."""
    noise: Floats
    """The noise ε_t: (B,), the same for all actions, or (B, K)."""
    told: Floats | None = None
    """The σ that the policy is told, where it is not the true one."""
    delay: Ints | None = None
    """The rounds until each trial's reward arrives, (B,), or `NEVER`. None means that all arrive at once."""
    source: Ints | None = None
    """The source of each trial's visitor, (B,). None where sources have no names."""
    bias: Floats | None = None
    """What visitors from that source honestly add to the mean of each action, (B, K). None where all are alike."""

    @property
    def actions(self) -> Floats | Region:
        """The decision sets of the menu."""
        return self.menu.actions

    @property
    def means(self) -> Floats:
        """The means of the menu."""
        return self.menu.means

    @property
    def rewards(self) -> Floats:
        """The clean reward r′_t(a) of every action, (B, K)."""
        means = self.menu.means if self.bias is None else self.menu.means + self.bias
        return means + (self.noise if self.noise.ndim == 2 else self.noise[:, None])

    def mean_of(self, played: Index, action: Floats) -> Floats:
        """The mean ⟨a_t, μ*⟩ of the actions played, (B,), by place in a finite set, by features in an infinite one."""
        if isinstance(self.menu.actions, np.ndarray):
            return self.menu.means[count_to(len(played)), played]
        return np.vecdot(action, self.menu.parameter)

    def reward_of(self, played: Index, action: Floats, mean: Floats | None = None) -> Floats:
        """The clean reward r′_t(a_t) of the actions played, (B,). Their means, if known, save work."""
        noise = self.noise if self.noise.ndim == 1 else self.noise[count_to(len(played)), played]
        mean = self.mean_of(played, action) if mean is None else mean
        return (mean if self.bias is None else mean + self.bias[count_to(len(played)), played]) + noise

    def narrowed(self, actions: Floats) -> Offer:
        """The same offer with a finite set: the witnesses of the infinite one, then these ``actions``, (B, d)."""
        assert self.menu.witnesses is not None
        few = np.concatenate([self.menu.witnesses, actions[:, None, :]], axis=1)
        return replace(self, menu=Menu.of(few, self.menu.parameter))


@dataclass(kw_only=True, frozen=True)
class Environment(Configured, ABC):
    """The configuration of a world in which any batch of trials can be played. Subclasses define `rounds`."""

    dim: int = 20
    """Number d of features of an action."""
    noise_range: float = 0.5
    """Largest difference R between a clean reward and its mean."""

    def __post_init__(self) -> None:
        integer("dim", self.dim, least=1)
        positive("noise_range", self.noise_range)

    @abstractmethod
    def rounds(self, draw: Draws) -> Iterator[Offer]:
        """Yield what the rounds 1, 2, 3, … offer the trials of ``draw``, which is the only source of randomness."""

    def facing(self, attack: object) -> Self:
        """The environment to use with this attack, for environments that adapt to it."""
        return self

    @property
    def action_bound(self) -> float:
        """Largest norm A of an action."""
        return 1.0

    @property
    def parameter_bound(self) -> float:
        """Largest norm B of μ*."""
        return 1.0

    @property
    def mean_bound(self) -> float:
        """Largest |⟨a, μ*⟩|."""
        return 1.0

    @property
    def set_size(self) -> int | None:
        """The size K of every decision set, or None if sets are infinite or differ in size."""
        return None

    @property
    def misspecification(self) -> float:
        """ζ: the most by which an honest mean differs from ⟨a, μ*⟩. A monitor that rides along is told."""
        return 0.0

    @property
    def noise_scale(self) -> float:
        """A number s such that the noise of every round is s-sub-Gaussian. R always is one."""
        return self.noise_range

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each source in the traffic; none where sources have no names."""
        return ()


def side_by_side(worlds: Sequence[Iterator[Offer]]) -> Iterator[tuple[Offer, Sequence[Offer]]]:
    """Yield the offers of several worlds as one batch, and each by itself.

    Their sets must have the same size, and all worlds or none have sources, which differ honestly in all or in none.
    """
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
        source = None if parts[0].source is None else np.concatenate([cast(Ints, part.source) for part in parts])
        bias = None if parts[0].bias is None else np.concatenate([cast(Floats, part.bias) for part in parts])
        yield Offer(parts[0].round, together, sigma, noise, told, _stacked_delays(parts), source, bias), parts


def _stacked(arrays: Sequence[Floats]) -> Floats:
    """Stack arrays (B,) or (B, K)."""
    width = max((array.shape[1] for array in arrays if array.ndim == 2), default=None)
    if width is None:
        return np.concatenate(arrays)
    return np.concatenate([a if a.ndim == 2 else np.broadcast_to(a[:, None], (len(a), width)) for a in arrays])


def _stacked_delays(parts: Sequence[Offer]) -> Ints | None:
    """Stack the delays of several offers; None if nothing is late in any."""
    if all(part.delay is None for part in parts):
        return None
    return np.concatenate([np.zeros(len(p.menu.best), np.int64) if p.delay is None else p.delay for p in parts])
