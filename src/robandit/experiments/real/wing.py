"""The real wing of the arena: every policy on three data sets, with fraud injected, tuned on other people."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.intervals import interval
from robandit.experiments.real.catalogue import DATA, table
from robandit.experiments.real.race import (
    CLEAN,
    DEFAULT,
    FRAUD,
    LIAR,
    SOURCES,
    TOLD,
    UNIFORM,
    Earned,
    Entries,
    attacked,
    attacks,
    config,
    entries,
    fraud_label,
    hears_sources,
)
from robandit.experiments.tune import SEED, grid_config
from robandit.figures.tables import markdown
from robandit.files import write_file
from robandit.lab.catalogue import find
from robandit.lab.environments import Replay
from robandit.lab.oracles import QuorumToldLiars
from robandit.policies import POLICIES

WORLDS = ("electricity", "swissmetro", "movielens")
HELD_OUT = ("mode-canada", "train", "car", "heating")
"""Opened once, when all constants were settled: nothing may be chosen by what they show."""
HELD_OUT_POLICIES = (
    "quorum",
    "robust-weighted-oful",
    "weighted-oful",
    "multi-level-weighted-oful",
    "discounted-lin-ucb",
    "variance-aware-cw-oful",
    "lin-ts",
    "robust-lin-ts",
    "oful",
    "cw-oful",
)
"""Who played them: the eight that did best on `WORLDS` under fraud, OFUL and CW-OFUL."""
ROUNDS, TRIALS, TUNE_TRIALS = 3000, 20, 4
SHARE = 0.2
"""The share of bots at which policies are tuned and compared."""
GRID = (1.0, 0.5, 0.25, 0.1, 0.03, 0.01, 0.003, 0.001)
"""The radius scales to try."""
SLOW = {"MultiLevelWeightedOFUL": GRID[:6]}
"""Shorter grids: below a hundredth Multi-level weighted OFUL cascades in nearly every round."""
ANCHOR = "CW-OFUL × 0.03"
"""An entry with a scale that nobody tuned here."""


class World(NamedTuple):
    """A data set on disk, and its two halves."""

    name: str
    path: Path
    digest: str

    def settings(self, half: str, **more: Any) -> dict[str, Any]:
        """The environment of a half, as a run takes it."""
        about = {"data": str(self.path), "digest": self.digest, "person": "person", "action": "action", "half": half}
        return {"name": "replay", "label": self.name, **about, **more}

    def replay(self, half: str) -> Replay:
        """The environment of a half."""
        settings = self.settings(half)
        return Replay(**{name: value for name, value in settings.items() if name not in ("name", "label")})

    @property
    def rounds(self) -> int:
        """The number of rounds that are played: no decision comes twice."""
        return min(ROUNDS, len(self.replay("play").sets), len(self.replay("tune").sets))


def world(name: str, folder: Path, *, fetch: bool) -> World:
    """A data set, written as a table into ``folder`` once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / f"{name}.parquet"
    if not path.exists():
        sink = BytesIO()
        pq.write_table(pa.table(dict(table(name, folder, fetch=fetch))), sink)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, sink.getvalue())
    return World(name, path, hashlib.sha256(path.read_bytes()).hexdigest())


# The runs.


def tunable(found: Entries) -> Entries:
    """The policies whose radius scale is tuned: those that have one, other than the default and the anchor."""
    return {
        label: settings
        for label, settings in found.items()
        if label not in (DEFAULT, ANCHOR)  # which come as they are
        and "radius_scale" in {item.name for item in fields(find("policies", settings["name"]))}
    }


def grids(found: Entries) -> dict[str, Sequence[float]]:
    """The radius scales to try for each policy that is tuned."""
    return {label: SLOW.get(label, GRID) for label in tunable(found)}


def contenders(one: World, names: Sequence[str] = tuple(POLICIES)) -> Entries:
    """All that play on a data set, before their radii are tuned."""
    found = entries(one.replay("tune"), names)
    if "CWOFUL" in found:
        found[ANCHOR] = {**found["CWOFUL"], "radius_scale": 0.03}
    quorum = next((settings for settings in found.values() if settings["name"] == "quorum"), None)
    if quorum is not None:
        place = f"{QuorumToldLiars.__module__}:{QuorumToldLiars.__name__}"
        found[f"Quorum, {TOLD} who lies"] = {**quorum, "name": place}
    # What `recommend` answers plays once, as the default.
    return {label: settings for label, settings in found.items() if label == DEFAULT or settings != found[DEFAULT]}


def tuning_config(one: World, found: Entries, trials: int) -> dict[str, Any]:
    """The settings of the tuning: every policy at every scale, on the people who do not play."""
    base = config(one.settings("tune"), {}, attacks(one.rounds, (SHARE,)), rounds=one.rounds, trials=trials, seed=SEED)
    return grid_config(base, tunable(found), grids(found))


def playing_config(one: World, found: Entries, trials: int, seed: int) -> dict[str, Any]:
    """The settings of the race without sources, with fraud at all shares."""
    return config(one.settings("play"), found, attacks(one.rounds), rounds=one.rounds, trials=trials, seed=seed)


def sources_config(one: World, found: Entries, trials: int, seed: int) -> dict[str, Any] | None:
    """The settings of the race with ten sources, one of which the bots come from; None if no policy listens.

    Only for policies that tell sources apart: all others play as they do without.
    """
    listening = {label: settings for label, settings in found.items() if hears_sources(settings)}
    if not listening:
        return None
    fraud = attacks(one.rounds, source=LIAR)
    numbers = {"rounds": one.rounds, "trials": trials, "seed": seed}
    return config(one.settings("play", sources=SOURCES), listening, fraud, **numbers)


def both(one: Mapping[str, Floats], share: float = SHARE) -> float:
    """What the tuning maximises: the mean reward over the clean replay and those with fraud."""
    return float(np.mean([one[CLEAN].mean(), *(one[fraud_label(*kind, share)].mean() for kind in FRAUD)]))


# The words.


class Lead(NamedTuple):
    """How the default compares with another policy: differences of mean rewards, with half of their 95 % intervals."""

    other: str
    clean: tuple[float, float]
    attacked: tuple[float, float]


def standing(found: Earned, other: str) -> Lead:
    """The default less another policy, shuffle by shuffle."""
    mine, yours = found[DEFAULT], found[other]
    return Lead(other, interval(mine[CLEAN] - yours[CLEAN]), interval(attacked(mine, SHARE) - attacked(yours, SHARE)))


def best_untold(found: Earned) -> str:
    """The policy that earns most under fraud, of all but the default that are told nothing."""
    fair = [label for label in found if label != DEFAULT and TOLD not in label]
    return max(fair, key=lambda label: float(attacked(found[label], SHARE).mean()))


def pair(one: Mapping[str, Floats], share: float = SHARE) -> str:
    """What a policy earns when nobody lies, and under fraud."""
    return f"{one[CLEAN].mean():.3f} → {attacked(one, share).mean():.3f}".replace("0.", ".")


def anchor_rows(found: Mapping[str, Earned], worlds: Mapping[str, World]) -> list[str]:
    """The table of all policies: clean → mean of the five kinds of fraud at 20 %, the best on average first."""
    replays = {name: one.replay("play") for name, one in worlds.items()}
    bounds = [f"{r.hindsight().value:.3f}; {r.uniform:.3f}".replace("0.", ".") for r in replays.values()]
    labels = [label for label in next(iter(found.values())) if label != UNIFORM]
    order = sorted(labels, key=lambda label: -sum(attacked(one[label], SHARE).mean() for one in found.values()))
    rows = [["best linear in hindsight; uniform", *bounds]]
    rows += [[label, *(pair(found[name][label]) for name in found)] for label in order]
    return markdown(["", *found], rows)


def standing_rows(found: Mapping[str, Earned]) -> list[str]:
    """The table of the default beside OFUL as it was tuned, and beside the best under fraud."""
    rows = []
    for name, one in found.items():
        for other in dict.fromkeys(["OFUL", best_untold(one)]):
            difference = standing(one, other)
            rows.append([name, other, *(f"{mean:+.3f} ± {half:.3f}" for mean, half in difference[1:])])
    return markdown(["data", "default less", "nobody lies", "20 % bots"], rows)


def kind_rows(found: Mapping[str, Earned], label: str) -> list[str]:
    """The table of what a policy loses to each kind and share of fraud, as a share of its clean reward."""
    shares = [share for share in (0.05, 0.1, 0.2) if fraud_label(*FRAUD[0], share) in next(iter(found.values()))[label]]
    rows = []
    for goal, when in FRAUD:
        row = [f"{goal}, {when}"]
        for one in found.values():
            clean = one[label][CLEAN].mean()
            losses = [1.0 - one[label][fraud_label(goal, when, share)].mean() / clean for share in shares]
            row.append(" / ".join(f"{round(100 * loss)}%" for loss in losses))
        rows.append(row)
    return markdown(["fraud", *found], rows)


def linear_rows(worlds: Mapping[str, World]) -> list[str]:
    """The table of the linear model beside the logistic one."""
    rows = []
    for name, one in worlds.items():
        fit = one.replay("play").linearity()
        loss = f"{100 * fit.loss:.1f} ± {100 * fit.half:.1f} %"
        rows.append([name, f"{fit.linear:.3f}", f"{fit.logistic:.3f}", loss, f"{fit.worst:.3f}"])
    return markdown(["data", "linear", "logistic", "loss", "a decile is off by"], rows)


def page(
    found: Mapping[str, Earned],
    sourced: Mapping[str, Earned],
    scales: Mapping[str, Mapping[str, float]],
    worlds: Mapping[str, World],
    *,
    title: str,
    command: str,
) -> str:
    """All tables as one page of Markdown."""
    sizes = [_size(one) for one in worlds.values()]
    lines = [f"# {title}", "", f"`{command}` makes this page.", "", *(f"- {size}" for size in sizes), ""]
    lines += ["Mean reward when nobody lies → mean over five kinds of fraud at 20 % of the rounds:", ""]
    lines += [*anchor_rows(found, worlds), "", "The default beside others, paired over the shuffles:", ""]
    lines += [*standing_rows(found), ""]
    lines += ["What the default loses to each kind of fraud, at 5 / 10 / 20 % of the rounds:", ""]
    lines += [*kind_rows(found, DEFAULT), ""]
    for label in dict.fromkeys(label for one in sourced.values() for label in one):
        lines += [f"What {label} loses when the bots come from one of ten sources that it is told:", ""]
        lines += [*kind_rows(sourced, label), ""]
    lines += ["A linear model beside a logistic one, each fitted on other people:", "", *linear_rows(worlds), ""]
    rows = [[label, *(f"{scales[name][label]:g}" for name in scales)] for label in next(iter(scales.values()))]
    return "\n".join([*lines, "Radius scales, tuned on the other half:", "", *markdown(["", *scales], rows), ""])


def _size(one: World) -> str:
    replay = one.replay("play")
    sizes = replay.sets.sizes
    actions = f"{sizes.min()}" if replay.set_size else f"{sizes.min()} to {sizes.max()}"
    many = f"{actions} actions of {replay.dim} features, {one.rounds} rounds of {len(replay.sets)}"
    return f"{one.name}: {many} decisions, {len(np.unique(replay.sets.person))} people"


def as_json(found: Mapping[str, Earned], scales: Mapping[str, Mapping[str, float]]) -> bytes:
    """The mean rewards and the scales as JSON."""
    means = {
        name: {label: {attack: round(float(v.mean()), 5) for attack, v in rest.items()} for label, rest in one.items()}
        for name, one in found.items()
    }
    licences = {name: DATA[name].package.licence for name in found}
    return (json.dumps({"licences": licences, "scales": scales, "rewards": means}, indent=1) + "\n").encode()
