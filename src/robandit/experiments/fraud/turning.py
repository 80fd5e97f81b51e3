"""A partner turns: regret over time of a plain bandit and of a quorum, and how far the quorum believes the partner."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robandit.arrays import Bools, Floats, Ints, count_to
from robandit.figures.pictures import COLORS, FONT, WIDTH
from robandit.policies import OFUL, Policy, Quorum
from robandit.rewards import Rewards
from robandit.streams import ENVIRONMENT, Draws

VISITS = 3000
TURNS = 0.25
"""The share of the visits after which the partner's bots arrive."""
TRIALS = 40
_SHOWN = 4  # products to choose from in a visit
_SHARES = np.array([0.25, 0.35, 0.2, 0.2])  # of the traffic: the partner, search, mail, app
_PARTNER = 0
_BOTS = 0.9  # share of bots among the partner's visitors, once they have arrived
_RATE = np.array([0.25, -0.15, 0.15, 0.08, 0.0, -0.1])  # of a click: constant, price, rating, and three brands
_OWN = 5  # the feature that says that a product is the partner's own
_DIM = len(_RATE)
_NORM = 2.0  # the largest norm of the features below

ENTRANTS: Mapping[str, Callable[..., Policy]] = {"plain OFUL": partial(OFUL, radius_scale=0.1), "Quorum": Quorum}
TOLD = "Quorum, told who lies"
"""A third entrant, which learns nothing from bots."""


@dataclass(frozen=True)
class Course:
    """How a shop went, trial by trial, at some rounds."""

    rounds: Ints
    """Numbers of the rounds, (N,)."""
    regret: Mapping[str, Floats]
    """The regret so far of each entrant, (N, B)."""
    weight: Floats
    """How far the quorum that is not told believes the partner, (N, B)."""
    uniform: Floats
    """The regret at the end of playing every action equally often, (B,)."""


def course(trials: int = TRIALS, visits: int = VISITS, seed: int = 19, points: int = 150) -> Course:
    """Play the shop with every entrant. All of them have the same products, visitors and luck."""
    at = np.unique(np.linspace(1, visits, points).astype(np.int64))
    found = [played(make, at, trials, seed) for make in ENTRANTS.values()]
    told = played(Quorum, at, trials, seed, told=True)
    labels = dict(zip(ENTRANTS, found, strict=True)) | {TOLD: told}
    return Course(at, {label: one[0] for label, one in labels.items()}, labels["Quorum"][1], told[2])


def played(
    make: Callable[..., Policy], at: Ints, trials: int, seed: int = 19, told: bool = False
) -> tuple[Floats, Floats, Floats]:
    """The regret so far, (N, B), the weight of the partner, (N, B), and the regret of uniform play in all, (B,)."""
    shop, rows = PartnerShop(trials, int(at[-1]), seed), count_to(trials)
    policy = make(dim=_DIM, **Rewards.read("clicks").for_policy(), trials=trials, seed=seed)
    lost, uniform = np.zeros(trials), np.zeros(trials)
    regret: list[Floats] = []
    weight: list[Floats] = []
    for t in range(int(at[-1])):
        shelf, source, bot = shop.visit(t)
        means = shelf @ (_RATE * _NORM)
        decision = policy.choose(shelf, source=source)
        click = np.where(bot, shelf[rows, decision.index, _OWN] > 0.0, shop.luck(t) < means[rows, decision.index])
        policy.update(decision, click.astype(float), mask=~bot if told else None)
        best = np.where(bot, 0.0, means.max(axis=1))
        lost += np.where(bot, 0.0, best - means[rows, decision.index])
        uniform += np.where(bot, 0.0, best - means.mean(axis=1))
        if t + 1 == at[len(regret)]:
            regret.append(lost.copy())
            weight.append(_trust(policy) if isinstance(policy, Quorum) else np.ones(trials))
    return np.array(regret), np.array(weight), uniform


class PartnerShop:
    """Visitors of examples/shop.py and what they are shown, for a batch of trials."""

    def __init__(self, trials: int, visits: int, seed: int) -> None:
        draw = Draws(seed=seed, trials=range(trials), who=ENVIRONMENT)
        self._turns, self._products = TURNS * visits, draw.uniform(_SHOWN, 3)
        self._visitors, self._kinds, self._luck = draw.uniform(), draw.uniform(), draw.uniform()

    def visit(self, t: int) -> tuple[Floats, Ints, Bools]:
        """The features of the products, (B, K, d), the source of the visitor, (B,), and whether it is a bot, (B,)."""
        price, rating, brand = np.moveaxis(self._products.at(t), -1, 0)
        brands = (3.0 * brand).astype(np.int64)[..., None] == count_to(3)
        shelf = np.concatenate([np.stack([np.ones_like(price), price, rating], axis=-1), brands], axis=-1) / _NORM
        source = np.searchsorted(_SHARES.cumsum()[:-1], self._visitors.at(t), side="right").astype(np.int64)
        return shelf, source, (t >= self._turns) & (source == _PARTNER) & (self._kinds.at(t) < _BOTS)

    def luck(self, t: int) -> Floats:
        """A person clicks if this is below the click rate, (B,)."""
        return self._luck.at(t)


def _trust(policy: Quorum) -> Floats:
    """How far the partner is believed in each trial, (B,)."""
    slots = policy.slots.find(np.full(policy.batch, _PARTNER))
    return policy.stats.trust[policy.rows, slots].copy()


def drawn(found: Course) -> Figure:
    """Two panels side by side: regret over the visits, and the weight of the partner. Bands hold 80 % of trials."""
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    looks = (COLORS[1], "-"), (COLORS[0], "-"), (COLORS[6], ":")
    for (label, regret), (color, dash) in zip(found.regret.items(), looks, strict=True):
        _band(left, found.rounds, regret, color, label, dash)
    _band(right, found.rounds, found.weight, COLORS[0], None, "-")
    for axes, title in ((left, "regret: clicks of people lost"), (right, "weight of the partner with the quorum")):
        axes.axvline(TURNS * found.rounds[-1], color="black", linewidth=0.8, linestyle=(0, (4, 2)))
        axes.set_title(title, loc="left", fontsize=FONT + 1)
        axes.set(xlim=(0, found.rounds[-1]), ylim=(0, None))
        axes.set_xlabel("visits", fontsize=FONT)
        axes.tick_params(labelsize=FONT)
        axes.spines[["top", "right"]].set_visible(False)
    right.set_ylim(0, 1.05)
    words: dict[str, Any] = {"fontsize": FONT, "va": "top", "ha": "right"}
    left.text(0.985 * TURNS * found.rounds[-1], 0.62 * left.get_ylim()[1], "the partner's\nbots arrive", **words)
    left.legend(fontsize=FONT, loc="upper left", framealpha=1.0, edgecolor="none", borderpad=0.1)
    return figure


def _band(axes: Axes, x: Ints, values: Floats, color: str, label: str | None, dash: str) -> None:
    """The median of the trials, and where the middle 80 % of them lie."""
    low, middle, high = np.quantile(values, [0.1, 0.5, 0.9], axis=1)
    if label != TOLD:  # whose band is that of the quorum beside it, nearly
        axes.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    axes.plot(x, middle, color=color, linestyle=dash, linewidth=1.6, label=label)
