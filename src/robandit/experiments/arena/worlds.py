"""The worlds of the arena and the attacks in each: settings as data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from robandit.lab.attacks import BY_SOURCE, ON_ALL_TRAFFIC

LEVELS = (25.0, 100.0)
"""The budgets of every attack, in C_sup for a weak attack and in C_play for a strong one."""
LIARS = (2, 4)
"""How many of ten sources lie, in the worlds that have sources."""
CLEAN = "none"
"""The attack of the clean oracle."""

ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = {
    # The fresh rounds are fixed here; by default they depend on the attack.
    "fixed after 100 rounds": {"name": "paper", "dim": 20, "actions": 20, "fresh_rounds": 100},
    "fresh sets": {"name": "fresh", "dim": 5, "actions": 20},
    "varying noise": {"name": "heteroscedastic", "dim": 5, "actions": 10},
    "short parameter": {"name": "fresh", "dim": 5, "parameter": "random", "shortest": 0.2, "longest": 0.7},
    "clicks": {"name": "clicks", "dim": 6, "actions": 10},
    "clicks on one set": {"name": "clicks", "dim": 6, "actions": 10, "fresh_rounds": 0},
    "clicks from ten sources": {"name": "clicks", "dim": 6, "actions": 10, "sources": 10},
    "noise from ten sources": {"name": "heteroscedastic", "dim": 5, "actions": 10, "sources": 10, "zeta": 0.02},
}
"""The worlds by label."""

TUNING_ATTACKS = (CLEAN, "flip", "suppress-best", "oracle-target", "stealth", "source-promote", "source-suppress")
"""The attacks of the tuning, at both levels. They are the same whatever is evaluated."""


def panels(world: Mapping[str, Any], rounds: int, names: Collection[str]) -> list[dict[str, Any]]:
    """The attacks of a world, at both levels: lying sources where it has some, and all others elsewhere."""
    return source_attacks(rounds, names) if world.get("sources") else attacks(rounds, names, _denser(world))


def _denser(world: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The schedules of attacks that would else spend less than 100 here."""
    if "shortest" in world:  # flips of short parameters are small
        return {
            "random-flips": {"probability": 0.4},
            "periodic": {"every": 2},
            "bursts": {"period": 100, "length": 40},
        }
    return {"click-fraud": {"share": 0.2}, "suppress-best": {"margin": 0.2}} if world["name"] == "clicks" else {}


def attacks(
    rounds: int, names: Collection[str] = tuple(ON_ALL_TRAFFIC), instead: Mapping[str, dict[str, Any]] | None = None
) -> list[dict[str, Any]]:
    """These attacks at both levels, with schedules that can spend a budget of 100 within 2000 rounds in most worlds."""
    schedules: dict[str, dict[str, Any]] = {
        "flip": {"rounds": rounds},  # goes on until the budget is spent
        "random-flips": {"probability": 0.2},
        "periodic": {"every": 5},
        "late": {"begin": rounds // 2 + 1},
        "bursts": {"period": 100, "length": 20},
        "suppress-best": {"margin": 0.08},
        **(instead or {}),
    }
    # A bias of σ_t in every round spends 33 where σ_t is at most 0.05. To spend 100 it must be four times as large.
    by_level = {"stealth": {level: {"share": level / 25.0} for level in LEVELS}}
    wanted = [name for name in ON_ALL_TRAFFIC if name in names and name != CLEAN]
    clean = [{"name": CLEAN}] if CLEAN in names else []
    return clean + [
        {"name": name, "budget": level, **schedules.get(name, {}), **by_level.get(name, {}).get(level, {})}
        for name in wanted
        for level in LEVELS
    ]


def source_attacks(rounds: int, names: Collection[str] = tuple(BY_SOURCE)) -> list[dict[str, Any]]:
    """The attacks by source with two and four liars of ten. C is the number of rounds with a liar, about.

    As a budget that never runs out: no lie here is larger than R + 1.
    """
    shapes: dict[str, dict[str, Any]] = {name: {"name": name} for name in BY_SOURCE}
    shapes["source-promote, asleep first"] = {"name": "source-promote", "begin": rounds // 2 + 1}
    shapes["source-flip, moving"] = {"name": "source-flip", "move_every": max(1, rounds // 8)}
    clean = [{"name": CLEAN}] if CLEAN in names else []
    return clean + [
        {**shape, "label": label, "liars": liars, "budget": rounds * liars / 10.0}
        for label, shape in shapes.items()
        if shape["name"] in names
        for liars in LIARS
    ]
