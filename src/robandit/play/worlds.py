"""The worlds to play in, and the policies that play: settings as data, in the form that `robandit simulate` reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from robandit.errors import ConfigError
from robandit.experiments.real import DATA
from robandit.inputs import read_text
from robandit.lab.catalogue import find
from robandit.lab.environments import Environment, Synthetic
from robandit.lab.plan import Entry, read_entries

LONGEST = 10_000
"""The most rounds of a game."""
MOST_ACTIONS = 200
"""The most actions in a set, and the most features: a round must not take longer than a picture."""

POLICIES = ("OFUL", "Multi-level weighted OFUL", "CW-OFUL", "Quorum")
"""The policies by their labels; the last one is the one that tells whom it doubts, and that a monitor watches."""


class PlayWorld(NamedTuple):
    """A world to play in."""

    title: str
    about: str
    """What happens in it, in a sentence or two."""
    environment: Mapping[str, Any]
    """Its settings, with its name."""
    scales: tuple[float, float, float]
    """The radius scales of the policies that have one."""
    rounds: int = 2000
    budget: float = 60.0
    """What a visitor is offered to spend."""

    def config(self, *, seed: int, budget: float, lies: str) -> dict[str, Any]:
        """The settings of a run with these lies, as `Run.read` reads them."""
        oful, multi, cautious = ({"radius_scale": scale} for scale in self.scales)
        policies: list[dict[str, Any]] = [
            {"name": "oful", **oful},
            {"name": "multi-level-weighted-oful", **multi},
            {"name": "cw-oful", "corruption": "none", **cautious},
            {"name": "quorum"},
        ]
        return {
            "rounds": self.rounds,
            "trials": 1,
            "seed": seed,
            "environments": [dict(self.environment)],
            "attacks": [{"name": "recorded", "budget": budget, "lies": lies}],
            "policies": [{**one, "label": label} for one, label in zip(policies, POLICIES, strict=True)],
        }

    def entry(self) -> Entry:
        """Its settings, checked."""
        entries = read_entries("environments", [self.environment])
        if len(entries) > 1:
            raise ConfigError(f"a game is played in one world, and {self.about} is {len(entries)}")
        return entries[0]

    def make(self) -> Environment:
        """The environment itself."""
        entry = self.entry()
        found: Environment = find("environments", entry.kind)(**entry.settings)
        return found


# The scales are those that the arena tuned in the worlds "fixed after 100 rounds" and "clicks from ten sources", by one
# protocol and on other seeds: docs/evidence/arena.md. A test compares them.
PAPER = PlayWorld(
    "The paper's world",
    "Twenty actions, twenty features, little noise. After 100 rounds the choice is always among the same twenty.",
    {"name": "paper", "dim": 20, "actions": 20, "fresh_rounds": 100},
    (0.25, 0.00390625, 0.015625),
)
CLICKS = PlayWorld(
    "Clicks from ten partners",
    "A shop shows one of ten products; 2 to 40 % of visitors click. Each visitor was sent by one of ten partners.",
    {"name": "clicks", "dim": 6, "actions": 10, "sources": 10},
    (0.0625, 0.0009765625, 0.00006103515625),
    rounds=4000,
    budget=300.0,
)


def worlds(folder: Path, own: str | None = None) -> dict[str, PlayWorld]:
    """The worlds by name: ours, real data that lie in a folder as `robandit data` writes them, and one of the user's.

    >>> list(worlds(Path("nowhere")))
    ['clicks', 'paper']
    """
    found = {"clicks": CLICKS, "paper": PAPER}
    found |= {name: _real(name, path) for name in DATA if (path := folder / f"{name}.parquet").is_file()}
    if own is not None:
        found = {"own": _own(own)} | found
    return found


def _real(name: str, path: Path) -> PlayWorld:
    """A replay of real decisions. Sources are drawn by chance, since these data name none."""
    columns = {"action": "action", "person": "person", "sources": 10}
    about = f"{DATA[name].about}. Visitors are given ten sources by chance. Scales are those of the clicks."
    environment = {"name": "replay", "data": str(path), **columns}
    return CLICKS._replace(title=f"Real data: {name}", about=about, environment=environment)


def _own(text: str) -> PlayWorld:
    """A world that is described as for `robandit simulate`."""
    world = CLICKS._replace(
        title="Your world", about=f"{text}. Scales are those of the clicks.", environment=read_text(text)
    )
    made = world.make()
    if getattr(made, "infinite", False):
        raise ConfigError(f"{text} has infinite decision sets, and lies there can't be played by hand")
    if max(made.dim, made.set_size or 0) > MOST_ACTIONS:
        raise ConfigError(f"a world to play in has up to {MOST_ACTIONS} features and actions, got {text}")
    linear = isinstance(made, Synthetic) and made.noise != "bernoulli"
    return world._replace(scales=PAPER.scales, budget=PAPER.budget, rounds=PAPER.rounds) if linear else world
