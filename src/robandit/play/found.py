"""The attacks that a visitor has found: what they cost, what the policies lost, and the files to play them again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from robandit.play.game import Game
from robandit.play.worlds import POLICIES, PlayWorld

MOST = 20
"""How many attacks are kept: the cheapest per unit of regret."""


class Found(NamedTuple):
    """An attack, and what came of it by the round in which it was left."""

    number: int
    world: str
    """The name of the world."""
    seed: int
    budget: float
    lies: str
    """Its script, as `Recorded` reads it."""
    round: int
    spent: float
    """C_sup."""
    damage: list[float]
    """How much more each policy has lost than it would have if nobody had lied, in the same rounds."""

    @property
    def prices(self) -> list[float | None]:
        """What a unit of regret has cost, for each policy; None for a policy that has lost nothing by the lies."""
        return [self.spent / damage if damage > 0.0 else None for damage in self.damage]

    @property
    def price(self) -> float:
        """The lowest of its prices."""
        return min((price for price in self.prices if price is not None), default=float("inf"))


class Hall:
    """The attacks that cost least per unit of regret. The newest one is always there."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Found] = {}
        self._last = 0

    def note(self, name: str, game: Game) -> Found | None:
        """Take note of a game as it stands, and return it; None if nobody has lied in it."""
        if game.spent == 0.0:
            return None
        key = name, game.seed, game.budget, str(game.script)
        self._last += 1
        lied, honest = game.regret.T
        found = Found(self._last, *key, game.round, game.spent, (lied - honest).tolist())
        self._found.pop(key, None)
        if len(self._found) == MOST:
            worst = max(self._found, key=lambda one: self._found[one].price)
            del self._found[worst]
        self._found[key] = found
        return found

    def ranked(self) -> list[Found]:
        """All of them, the cheapest first."""
        return sorted(self._found.values(), key=lambda one: one.price)

    def number(self, number: int) -> Found | None:
        """The one with this number, if it is still there."""
        return next((one for one in self._found.values() if one.number == number), None)


def run_file(found: Found, world: PlayWorld) -> str:
    """A TOML file with which `robandit simulate --config` plays the same game again, all of its rounds."""
    config = world.config(seed=found.seed, budget=found.budget, lies=found.lies)
    numbers = [f"{name} = {_toml(value)}" for name, value in config.items() if not isinstance(value, list)]
    tables = [
        "\n".join([f"[[{kind}]]", *(f"{key} = {_toml(value)}" for key, value in row.items())])
        for kind, rows in config.items()
        if isinstance(rows, list)
        for row in rows
    ]
    head = [
        "# A game that somebody played as the attacker. The same rounds, bit for bit, without the page:",
        "#",
        "#   robandit simulate --config THIS-FILE",
        "#",
        *(f"# {line}" for line in _story(found)),
    ]
    return "\n".join([*head, "", "checkpoints = 400", *numbers]) + "\n\n" + "\n\n".join(tables) + "\n"


def attack_file(found: Found, world: PlayWorld) -> str:
    """A Python file with the attack alone, for any policy in any world with its sources."""
    name = f"Found{found.number}"
    environment = ",".join(
        f"{value}" if key == "name" else f"{key}={value}" for key, value in world.environment.items()
    )
    lines = [
        '"""An attack that somebody found by hand. Other policies, and trials that it was not made for:',
        "",
        f"    robandit simulate --attack THIS-FILE:{name} --policy quorum --trials 32 \\",
        f"        --rounds {world.rounds} --environment {environment}",
        '"""',
        "",
        "from dataclasses import dataclass",
        "",
        "from robandit import attacks",
        "",
        "",
        "@dataclass(kw_only=True)",
        f"class {name}(attacks.Recorded):",
        f'    """{_story(found)[0]}',
        f"    {_story(found)[1]}",
        '    """',
        "",
        f"    budget: float | None = {found.budget!r}",
        f"    lies: str = {found.lies!r}",
    ]
    return "\n".join(lines) + "\n"


def _story(found: Found) -> list[str]:
    """What came of an attack."""
    lost = ", ".join(f"{label} {damage:.1f}" for label, damage in zip(POLICIES, found.damage, strict=True))
    return [f"By round {found.round} it had spent {found.spent:.1f}. What the lies cost, in regret:", f"{lost}."]


def _toml(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (str, bool)) else repr(value)
