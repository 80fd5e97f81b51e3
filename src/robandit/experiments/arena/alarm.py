"""The corruption monitor on trial: how often it raises a false alarm, and how much corruption it proves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from robandit.arrays import TINY
from robandit.experiments.intervals import clopper_pearson
from robandit.figures.tables import markdown
from robandit.lab.attacks import ON_ALL_TRAFFIC
from robandit.lab.summary import Proof, proofs

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table

DELTA = 0.05
"""The δ of the monitor, its default."""
LOOKS = 24
"""The checkpoints of a run. The monitor looks at those that are at least a quarter later than its last look."""
POLICIES: Sequence[Mapping[str, Any]] = ({"name": "oful", "radius_scale": 0.25},)
"""The policies. They learn from corrupted rewards, so an attack also changes what is played next."""

# Level: every environment with linear rewards. μ* is random, so every trial has another one.

_SMALL = {"dim": 5, "actions": 10, "parameter": "random"}
INNOCENT: Mapping[str, Mapping[str, Any]] = {
    "one set": {"name": "paper", "fresh_rounds": 0, **_SMALL},
    "fresh sets": {"name": "fresh", **_SMALL},
    "±σ noise, σ ≤ R": {"name": "heteroscedastic", **_SMALL},
    "±R noise": {"name": "heteroscedastic", "sigma_low": 0.5, "sigma_high": 0.5, **_SMALL},
    "clicks": {"name": "bernoulli", **_SMALL},
    "noise of each action": {"name": "per-action-noise", **_SMALL},
    "changing sets": {"name": "changing-sets", **_SMALL},
    "late and lost rewards": {"name": "delayed", **_SMALL},
}
BUDGET = 40.0
"""The budget of every attack in the runs on truth. Flips go on until it is spent."""

# Power: d = 20, and the noise is declared as 0.05.

POWER_ROUNDS, NOISY_ROUNDS = 1500, 10_000
FLIPS: Sequence[int] = (5, 15, 30, 90, 450)
POWER: Mapping[str, Mapping[str, Any]] = {"fresh sets": {"name": "fresh"}, "the paper's": {"name": "paper"}}
BUDGETS: Sequence[float] = (3.0, 10.0, 30.0, 100.0)
NOISY: Mapping[str, Mapping[str, Any]] = {
    f"d = {dim}": {"name": "fresh", "dim": dim, "sigma_low": 0.5, "sigma_high": 0.5, "noise": "two-point"}
    for dim in (5, 20)
}
"""Worlds with noise of ±1/2, the largest possible at R = 1/2."""
NOISY_FLIPS: Sequence[int] = (100, 300, 1000, 3000)
TURNS: Sequence[float] = (1.0, 2.0, 5.0, 10.0, 20.0, 45.0, 90.0)
"""How many degrees μ* turns within a run that nobody corrupts."""


def _attack(name: str, rounds: int, budget: float = BUDGET) -> dict[str, Any]:
    """The settings of an attack with this budget."""
    more = {"flip": {"rounds": rounds}, "late": {"begin": rounds // 2 + 1}}
    return {"name": name, "budget": budget, **more.get(name, {})}


def _config(worlds: Mapping[str, Mapping[str, Any]], attacks: Sequence[Any], **more: Any) -> dict[str, Any]:
    environments = [{**world, "label": label} for label, world in worlds.items()]
    shared = {"policies": list(POLICIES), "checkpoints": LOOKS, "monitor": True}
    return {**shared, "environments": environments, "attacks": list(attacks), **more}


def configs(*, rounds: int, trials: int, seed: int) -> dict[str, dict[str, Any]]:
    """The settings of the runs by name. Uncorrupted worlds have ``trials`` each; other runs have a fifth or less."""
    few = max(1, trials // 5)
    zoo = [name for name in ON_ALL_TRAFFIC if name != "none"]
    small = {name: INNOCENT[name] for name in ("one set", "fresh sets")}
    drift = [
        {**POWER["fresh sets"], "drift": turn / 57.29577951308232 / rounds, "label": f"{turn:g}°"} for turn in TURNS
    ]
    return {
        "level": _config(INNOCENT, ["none"], rounds=rounds, trials=trials, seed=seed),
        "truth": _config(small, [_attack(name, rounds) for name in zoo], rounds=rounds, trials=few, seed=seed),
        "power": _config(POWER, [{"name": "flip", "rounds": list(FLIPS)}], rounds=POWER_ROUNDS, trials=few, seed=seed),
        "zoo": _config(
            {"fresh sets": POWER["fresh sets"]},
            [_attack(name, POWER_ROUNDS, budget) for name in zoo for budget in BUDGETS],
            rounds=POWER_ROUNDS,
            trials=max(1, few // 2),
            seed=seed,
        ),
        "noisy": _config(
            NOISY,
            [{"name": "flip", "rounds": list(NOISY_FLIPS)}],
            rounds=NOISY_ROUNDS,
            trials=max(1, few // 4),
            seed=seed,
        ),
        "drift": _config({}, ["none"], rounds=rounds, trials=few, seed=seed) | {"environments": drift},
    }


# The scores.


class Share(NamedTuple):
    """How many trials were hit. In words it comes with its 95 % Clopper–Pearson interval."""

    hits: int
    trials: int

    def __str__(self) -> str:
        low, high = clopper_pearson(self.hits, self.trials)
        return f"{self.hits} of {self.trials} ({100 * low:.2g} to {100 * high:.2g} %)"


def shares(table: Table) -> dict[str, tuple[Share, Share]]:
    """False alarms and trials in which too much was proved, in each environment and, last, in all of them."""
    found: dict[str, list[Proof]] = {}
    for case, policies in proofs(table).items():
        found.setdefault(case.environment, []).extend(policies.values())
    found["all"] = [proof for many in found.values() for proof in many]
    return {
        name: (
            Share(sum(p.alarms for p in many if p.played == 0.0), sum(p.trials for p in many if p.played == 0.0)),
            Share(sum(p.wrong for p in many), sum(p.trials for p in many)),
        )
        for name, many in found.items()
    }


def breached(share: Share, delta: float = DELTA) -> bool:
    """Whether there are more hits than δ allows, beyond chance."""
    return share.trials > 0 and clopper_pearson(share.hits, share.trials)[0] > delta


def text(tables: Mapping[str, Table], command: str) -> str:
    """All tables in Markdown."""
    level, truth = shares(tables["level"]), shares(tables["truth"])
    false_alarms = [(name, str(alarms)) for name, (alarms, _) in level.items()]
    too_much = [(name, str(wrong)) for name, (_, wrong) in truth.items()]
    drift = list(_drift_rows(tables["drift"]))
    parts = {
        f"**Level**, δ = {DELTA:g}: how many trials without corruption raise an alarm": markdown(
            ["", "false alarms (95 % interval)"], false_alarms
        ),
        f"**Truth**: in how many trials under each attack, C = {BUDGET:g}, more is proved than there was": markdown(
            ["", "more than the truth (95 % interval)"], too_much
        ),
        f"**Power**, noise declared as 0.05, d = 20, {POWER_ROUNDS} rounds, the first k flipped": _proof_lines(
            tables["power"]
        ),
        "**Power under every attack**, fresh sets, OFUL": _zoo_lines(tables["zoo"]),
        f"**Power with noise ±1/2**, fresh sets, {NOISY_ROUNDS} rounds, OFUL": _proof_lines(tables["noisy"]),
        "**Drift**: alarms without lies, where μ* turns within the run": markdown(
            ["μ* turns by", "alarms", "proved"], drift
        ),
    }
    lines = [f"`{command}`"]
    for title, table in parts.items():
        lines += ["", title, "", *table]
    return "\n".join(lines) + "\n"


def _proof_lines(table: Table) -> list[str]:
    rows = []
    for case, policies in proofs(table).items():
        for policy, found in policies.items():
            amounts = f"{found.proved:.2f} of {found.played:.1f}"
            rows.append((case.environment, policy, f"{found.lies:.0f}", amounts, _part(found), _alarms(found)))
    return markdown(["", "policy", "lies", "proved of Σ\\|c\\|", "share", "alarms"], rows)


def _zoo_lines(table: Table) -> list[str]:
    found: dict[str, dict[float, Proof]] = {}
    for case, policies in proofs(table).items():
        found.setdefault(case.attack, {})[case.corruption or 0.0] = next(iter(policies.values()))
    header = ["attack", *(f"C = {budget:g}: lies, Σ\\|c\\|, share, alarms" for budget in BUDGETS)]
    rows = []
    for attack, cells in found.items():
        row = [f"{p.lies:.0f}, {p.played:.1f}, {_part(p)}, {_alarms(p)}" for _, p in sorted(cells.items())]
        rows.append([attack, *row])
    return markdown(header, rows)


def _drift_rows(table: Table) -> Iterator[tuple[str, str, str]]:
    for case, policies in proofs(table).items():
        found = next(iter(policies.values()))
        yield case.environment, _alarms(found), f"{found.proved:.2f}"


def _part(found: Proof) -> str:
    return f"{found.proved / found.played:.3f}" if found.played > 0.0 else "-"


def _alarms(found: Proof) -> str:
    return f"{found.alarms}/{found.trials}"


# The picture.


def picture(tables: Mapping[str, Table]) -> Figure:
    """The proved share of the corruption against the number of lies, for flips in both worlds and for all attacks."""
    from robandit.figures.names import policy_names, scenario_name
    from robandit.figures.pictures import FONT, log_panels, style

    figure, (left, right) = log_panels(
        ["flips", "every attack, fresh sets"], [("rounds with a lie", "proved share of Σ|c|")] * 2, height=4.8
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for case, policies in proofs(tables["power"]).items():
        for policy, found in policies.items():
            lines.setdefault(f"{case.environment}, {policy_names([policy])[policy]}", []).append(
                (found.lies, found.proved / found.played)
            )
    _draw(left, lines, style)
    lines = {}
    for case, policies in proofs(tables["zoo"]).items():
        found = next(iter(policies.values()))
        lines.setdefault(scenario_name(case.attack), []).append((found.lies, found.proved / max(found.played, TINY)))
    _draw(right, lines, style)
    for axes in (left, right):
        axes.set(yscale="linear", ylim=(0.0, None))
    left.legend(frameon=False, fontsize=FONT)
    entries = right.get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=5, frameon=False, fontsize=FONT)
    return figure


def _draw(axes: Any, lines: Mapping[str, Sequence[tuple[float, float]]], style: Any) -> None:
    for number, (label, points) in enumerate(lines.items()):
        axes.plot(*zip(*sorted(points), strict=True), **style(number), label=label)
