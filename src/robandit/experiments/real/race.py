"""A race on replayed decisions: what policies earn when nobody lies, and when bots do. Settings, and the scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.intervals import interval
from robandit.lab.catalogue import canonical, find
from robandit.lab.environments import Replay
from robandit.lab.environments.linear_models import LinearFit
from robandit.lab.protocol import REALISED
from robandit.lab.summary import last_round
from robandit.policies import POLICIES, Policy
from robandit.policies.recommend import recommend

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table

# The settings.

CLEAN = "none"
_TIMES = {"promote": ("opening", "spread", "middle"), "suppress": ("opening", "spread")}
FRAUD = tuple((goal, when) for goal, times in _TIMES.items() for when in times)
"""The goal and the time of each kind of fraud."""
SHARES = (0.05, 0.1, 0.2)
"""The shares of the rounds in which the visitor is a bot."""
SOURCES, LIAR = 10, 3
"""The number of sources, where there are some, and the one under whose name the bots come."""
DEFAULT, UNIFORM = "default", "uniform play"
"""The labels of what `recommend` answers, and of playing at random."""
TOLD = "told"
"""Marks a policy that is told what nobody knows: the corruption, or who lies."""
_KNOWN = {"noise_range": 1.0, "mean_bound": 1.0, "parameter_bound": 1.0}  # what everybody is told of clicks

Entries: TypeAlias = dict[str, dict[str, Any]]
"""The settings of policies by label."""


def attacks(rounds: int, shares: Sequence[float] = SHARES, source: int | None = None) -> list[dict[str, Any]]:
    """No attack, and every kind of fraud at these shares, from nobody in particular or under the name of a source."""
    named = {} if source is None else {"source": source}
    return [{"name": CLEAN}] + [
        {"name": "bots", "goal": goal, "when": when, "share": share, "rounds": rounds, **named}
        | {"label": fraud_label(goal, when, share)}
        for goal, when in FRAUD
        for share in shares
    ]


def fraud_label(goal: str, when: str, share: float) -> str:
    """What a kind of fraud is called in tables."""
    return f"{goal}, {when}, {100 * share:g} %"


def entries(replay: Replay, names: Sequence[str] = tuple(POLICIES)) -> Entries:
    """What `recommend` answers, and these policies, none of which is told the corruption if it can do without."""
    found = {DEFAULT: default(replay), UNIFORM: {"name": "greedy", "exploration": 1.0}}
    for name in names:
        has = {item.name: item for item in fields(find("policies", name))}
        told = "corruption" in has and "None" not in str(has["corruption"].type)
        settings = {"corruption": REALISED if told else None} if "corruption" in has else {}
        label = find("policies", name).__name__ + (f", {TOLD} C" if told else "")
        found[label] = {"name": name, **settings}
    return {label: declared(settings) for label, settings in found.items()}


def default(replay: Replay) -> dict[str, Any]:
    """What `recommend` answers for clicks, given the size of the problem."""
    answer = recommend(dim=replay.dim, rewards="clicks")
    kept = {name: value for name, value in answer.settings.items() if name != "dim"}
    name = canonical("policies", answer.policy)
    return {"name": name if isinstance(name, str) else f"{name.__module__}:{name.__qualname__}", **kept}


def declared(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with what everybody is told, where they don't say it themselves."""
    return {**_KNOWN, **settings}


def hears_sources(settings: Mapping[str, Any]) -> bool:
    """Whether a policy tells sources apart."""
    return bool(find("policies", settings["name"]).learn_from is not Policy.learn_from)


def config(
    world: Mapping[str, Any], policies: Entries, fraud: Sequence[Mapping[str, Any]], **numbers: int
) -> dict[str, Any]:
    """The settings of a run."""
    named = [{**settings, "label": label} for label, settings in policies.items()]
    return {**numbers, "checkpoints": 20, "environments": [world], "attacks": list(fraud), "policies": named}


# The scores.

Earned: TypeAlias = dict[str, dict[str, Floats]]
"""The mean reward of each shuffle, (trials,), by policy and attack."""


def earned(table: Table) -> Earned:
    """What each policy earned on average, from the table of a run."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in last_round(table).select(["policy", "attack", "reward", "round"]).to_pylist():
        found.setdefault(row["policy"], {}).setdefault(row["attack"], []).append(row["reward"] / row["round"])
    return {policy: {attack: np.array(values) for attack, values in rest.items()} for policy, rest in found.items()}


class RealScore(NamedTuple):
    """What a policy earns."""

    policy: str
    clean: tuple[float, float]
    """The mean reward when nobody lies, and half of its 95 % interval."""
    attacked: tuple[float, float]
    """The same over all kinds of fraud at a share."""
    worst: float
    """The same under the fraud that costs most."""


def attacked(one: Mapping[str, Floats], share: float) -> Floats:
    """The mean reward of each shuffle over all kinds of fraud at a share, (trials,)."""
    return np.mean([one[fraud_label(goal, when, share)] for goal, when in FRAUD], axis=0)


def scores(found: Earned, share: float) -> list[RealScore]:
    """What every policy earns, the best under fraud first."""
    rows = [
        RealScore(
            policy,
            interval(one[CLEAN]),
            interval(attacked(one, share)),
            float(min(one[fraud_label(goal, when, share)].mean() for goal, when in FRAUD)),
        )
        for policy, one in found.items()
    ]
    return sorted(rows, key=lambda row: -row.attacked[0])


def score_rows(found: Earned, share: float) -> tuple[list[str], list[list[str]]]:
    """The header and rows of a table of scores."""
    rows = [[row.policy, _words(row.clean), _words(row.attacked), f"{row.worst:.3f}"] for row in scores(found, share)]
    return ["policy", "nobody lies", f"{100 * share:g} % bots", "worst kind"], rows


def _words(value: tuple[float, float]) -> str:
    return f"{value[0]:.3f}" if np.isnan(value[1]) else f"{value[0]:.3f} ± {value[1]:.3f}"


def picture(found: Earned, share: float, best: float, uniform: float) -> Figure:
    """What every policy earns when nobody lies and under fraud: a line from one to the other."""
    from matplotlib.figure import Figure

    from robandit.figures.pictures import FONT, WIDTH

    rows = scores(found, share)[::-1]
    figure = Figure(figsize=(WIDTH, 0.24 * len(rows) + 1.0), layout="constrained")
    axes = figure.add_subplot()
    for place, row in enumerate(rows):
        axes.plot([row.attacked[0], row.clean[0]], [place, place], color="#b0b0b0", linewidth=1.5, zorder=1)
    axes.plot([r.clean[0] for r in rows], range(len(rows)), "o", color="#0072b2", label="nobody lies")
    axes.plot([r.attacked[0] for r in rows], range(len(rows)), "D", color="#d55e00", label=f"{100 * share:g} % bots")
    left, right = axes.get_xlim()
    axes.set_xlim(left, max(right, best + 0.02 * (right - left)))  # else a line may lie on the frame
    for x, name in ((best, "best linear in hindsight"), (uniform, "uniform play")):
        axes.axvline(x, color="#262626", linewidth=0.8, linestyle=":" if x == uniform else "--", label=name)
    axes.set_yticks(range(len(rows)), [row.policy for row in rows], fontsize=FONT)
    axes.set_xlabel("mean reward", fontsize=FONT)
    axes.tick_params(axis="x", labelsize=FONT)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=FONT)
    return figure


def calibration(fit: LinearFit) -> Figure:
    """What the models predict against what was seen, by deciles of the prediction, with two standard errors."""
    from matplotlib.figure import Figure

    from robandit.figures.pictures import FONT

    figure = Figure(figsize=(4.2, 3.8), layout="constrained")
    axes = figure.add_subplot()
    for (name, deciles), mark, color in zip(fit.deciles.items(), "oD", ("#0072b2", "#d55e00"), strict=True):
        x, y, error = (np.array(column) for column in zip(*deciles, strict=True))
        axes.errorbar(x, y, 2.0 * error, fmt=mark, color=color, label=name, markersize=4.0)
    ends = [min(one.predicted for one in fit.deciles["linear"]), max(one.predicted for one in fit.deciles["linear"])]
    axes.plot(ends, ends, color="#262626", linewidth=0.8)
    axes.set_xlabel("predicted mean reward", fontsize=FONT)
    axes.set_ylabel("mean reward seen", fontsize=FONT)
    axes.tick_params(labelsize=FONT)
    axes.legend(frameon=False, fontsize=FONT)
    return figure
