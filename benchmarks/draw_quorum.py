"""What a quorum does when a source turns: its groups, how far each disagrees, whom it believes, and what that saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robandit import OFUL, Policy, Quorum
from robandit.arrays import Floats
from robandit.figures.pictures import COLORS, FONT, MARKERS, WIDTH
from robandit.policies.ballots import Ballots
from robandit.policies.groups import FREE

SHARES = {"mail": 0.25, "search": 0.25, "app": 0.25, "partner": 0.25}  # of the visits
SOURCES = tuple(SHARES)
VISITS, TURNS = 2400, 800
TASTE = np.array([0.6, -0.3, -0.2])  # click rates: a constant, by price, and for the partner's own products
SEED, SEEDS = 3, range(1, 9)  # the run that is shown, and those whose regret stands beside it


@dataclass
class Run:
    """One bandit in the shop, and what was written down on the way."""

    policy: Policy[Any]
    regret: list[float] = field(default_factory=list)
    weights: list[list[float]] = field(default_factory=list)
    """Of each source after every visit, for a quorum."""


def played(policy: Policy[Any], seed: int = SEED) -> Run:
    """The same visits for every policy. The partner's bots click on his own products, and on nothing else."""
    rng, run = np.random.default_rng(seed), Run(policy)
    for visit in range(VISITS):
        source = str(rng.choice(SOURCES, p=list(SHARES.values())))
        price, own, luck = rng.random(5), rng.random(5) < 0.4, rng.random()
        shelf = np.stack([np.ones(5), price, own], axis=1)
        decision = policy.choose(shelf / 3**0.5, source=source)
        rates = shelf @ TASTE
        lies = source == "partner" and visit >= TURNS
        rate = rates[decision.index]
        policy.update(decision, float(own[decision.index] if lies else luck < rate))
        run.regret.append((run.regret or [0.0])[-1] + (0.0 if lies else float(rates.max() - rate)))
        if isinstance(policy, Quorum):
            known = {standing.source: standing.weight for standing in policy.standings()}
            run.weights.append([known.get(source, 1.0) for source in SOURCES])
    return run


def disagreement(policy: Quorum) -> Floats:
    """r/ρ of each group in use, (G,): how far it is from what is believed, in units of what noise explains."""
    stats, groups = policy.stats, policy.stats.groups
    used = groups.slot[0] != FREE
    held = Ballots.of(groups.precision[:, used], groups.target[:, used], groups.squares[:, used], policy.lam)
    allowed = held.reach(np.array([used.sum()])) * stats.noise[:, None]
    return np.asarray((held.distance(stats.ridge.mean) / allowed)[0])


def quorum() -> Figure:
    """Four panels over the same visits."""
    settings: dict[str, Any] = {"dim": len(TASTE), "noise_range": 1.0, "seed": 7}
    voting = {seed: played(Quorum(**settings), seed) for seed in SEEDS}
    plain = {seed: played(OFUL(**settings, radius_scale=0.1), seed) for seed in SEEDS}
    shown = voting[SEED].policy
    assert isinstance(shown, Quorum)
    figure = Figure(figsize=(WIDTH, 5.4), layout="constrained")
    panels = figure.subplots(2, 2, sharex=True)
    _groups(panels[0, 0], shown)
    _votes(panels[0, 1], shown)
    _weights(panels[1, 0], voting[SEED])
    _regret(panels[1, 1], voting, plain)
    for axes in panels.flat:
        axes.axvline(TURNS, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
        axes.set(xlim=(0, VISITS), xticks=range(0, VISITS + 1, TURNS))
        axes.tick_params(labelsize=FONT)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in panels[1]:
        axes.set_xlabel("visits; the partner turns at the dashed line", fontsize=FONT)
    handles, labels = panels[0, 1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=FONT, frameon=False)
    return figure


def _spans(policy: Quorum) -> tuple[Any, Any, Any, Any]:
    """Each group in use: the place of its source in `SOURCES`, its first and last visit, and how far it is believed."""
    groups = policy.stats.groups
    used = groups.slot[0] != FREE
    places = np.array([SOURCES.index(str(label)) for label in policy.slots.labels[0]])  # slots are in order of arrival
    return places[groups.slot[0, used]], groups.since[0, used], groups.last[0, used], groups.weight[0, used]


def _groups(axes: Axes, policy: Quorum) -> None:
    _title(axes, "1  Groups: each source in stretches of time;\nfilled is believed, hollow is not")
    for place, first, last, weight in zip(*_spans(policy), strict=True):
        face = COLORS[place] if weight >= 0.5 else "none"
        axes.barh(place, last - first, 0.55, first, facecolor=face, edgecolor=COLORS[place], alpha=0.8, linewidth=1.0)
    axes.set_yticks(range(len(SOURCES)), SOURCES)
    axes.invert_yaxis()


def _votes(axes: Axes, policy: Quorum) -> None:
    _title(axes, "2  Votes: disagreement r of each group,\nin units of its allowance ρ")
    places, first, last, _ = _spans(policy)
    far = disagreement(policy)
    for place, name in enumerate(SOURCES):
        mine = places == place
        x = (first[mine] + last[mine]) / 2
        axes.plot(x, far[mine], MARKERS[place], color=COLORS[place], markersize=5, linestyle="", label=name)
    axes.axhline(1.0, color="0.4", linewidth=0.8)
    axes.text(20, 1.1, "r = ρ: as far as\nnoise explains", fontsize=FONT, color="0.3", va="bottom")
    axes.set_ylim(0, None)


def _weights(axes: Axes, run: Run) -> None:
    _title(axes, "3  Weight of each source:\nhow far it is believed")
    for place, weights in enumerate(np.transpose(run.weights)):
        axes.plot(weights, color=COLORS[place], linewidth=1.6)
    axes.set_ylim(0, 1.05)


def _regret(axes: Axes, voting: Mapping[int, Run], plain: Mapping[int, Run]) -> None:
    _title(axes, "4  Regret: clicks of people lost;\nbold is this run, faint are seven others")
    for runs, name, color in ((plain, "plain OFUL", "black"), (voting, "Quorum", COLORS[5])):
        for seed, run in runs.items():
            bold = seed == SEED
            axes.plot(run.regret, color=color, linewidth=1.8 if bold else 0.8, alpha=1.0 if bold else 0.35)
        mean = np.mean([run.regret[-1] for run in runs.values()])
        axes.plot([], [], color=color, linewidth=1.8, label=f"{name}: {mean:.0f} on the mean")
    axes.set_ylim(0, None)
    axes.legend(loc="upper left", fontsize=FONT, framealpha=1.0, edgecolor="none")


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, fontsize=FONT + 1, loc="left")
