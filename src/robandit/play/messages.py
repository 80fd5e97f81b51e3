"""What the page asks and is answered. The types check what comes in."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from robandit.lab.attacks.recorded import KINDS, LieStretch
from robandit.play.found import Hall
from robandit.play.game import CurvePoint, Game
from robandit.play.worlds import LONGEST, POLICIES, PlayWorld
from robandit.policies.groups import FREE

MOST_ROUNDS = 400
"""How many rounds a request may ask for: what a fast machine plays in half a second."""
_DOUBTED = 0.5  # belief below this is doubt, as Quorum itself has it

Name = Annotated[str, Meta(max_length=64)]
Round = Annotated[int, Meta(ge=0, le=LONGEST)]


class Wanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which game to begin."""

    world: Name
    seed: Annotated[int, Meta(ge=0, le=2**32 - 1)]
    budget: Annotated[float, Meta(ge=0, le=1e6)]


class Told(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to report in place of the truth."""

    kind: Annotated[str, Meta(pattern=f"^({'|'.join(KINDS)})$")]
    source: Annotated[int, Meta(ge=0, le=10_000)] | None = None


class Turn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rounds to play from ``round`` on, in each of which the same lie is told, or none."""

    round: Round
    """The last round that the page has seen. In any other the request changes nothing."""
    rounds: Annotated[int, Meta(ge=1, le=MOST_ROUNDS)]
    lie: Told | None = None


class Back(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where to go back to."""

    round: Round


class Doubts(msgspec.Struct, frozen=True):
    """What Quorum does not believe."""

    sources: list[tuple[int | None, float]]
    """How far each source is believed, from 0 to 1."""
    stretches: list[tuple[int | None, int, int, float, float]]
    """Source, first round, last round, belief, and the share of the rounds between that it is about."""
    dismissed: int
    """The number of rewards that it does not believe."""


class Proven(msgspec.Struct, frozen=True):
    """What the monitor has proved of the rewards that Quorum was told."""

    proved: float
    since: int | None
    """The round of the look that first proved anything."""
    sentence: str


class Scene(msgspec.Struct, frozen=True):
    """A game as it stands."""

    round: int
    spent: float
    lies: list[LieStretch]
    points: list[CurvePoint]
    """The points of the curves that the page has not seen."""
    regret: list[tuple[float, float]]
    """What each policy has lost: under the lies, and where nobody lies."""
    told: list[float]
    """By how much the rewards that each policy was told were changed."""
    beliefs: list[list[float]]
    """What each policy believes of the features."""
    doubt: Doubts
    alarm: Proven | None


class Opened(msgspec.Struct, frozen=True):
    """A game, and what does not change in it."""

    id: str
    world: str
    rounds: int
    seed: int
    budget: float
    unit: float
    """R + 1: a lie of this size costs 1."""
    sources: int
    truth: list[float]
    policies: tuple[str, ...]
    scene: Scene


class Place(msgspec.Struct, frozen=True):
    """A world to choose."""

    name: str
    title: str
    about: str
    rounds: int
    budget: float


def scene_of(game: Game, since: int = 0) -> Scene:
    """The game as it stands, with the points of its curves after a round."""
    found = game.certificate
    centers = (lane.policy.estimate().center[0].tolist() for lane in game.lanes)
    return Scene(
        round=game.round,
        spent=game.spent,
        lies=game.script.stretches,
        points=[point for point in game.points if point.round > since],
        regret=[(lied, honest) for lied, honest in game.regret.tolist()],
        told=game.told,
        beliefs=list(centers),
        doubt=_doubt(game),
        alarm=None if found is None else Proven(found.lower_bound, found.alarm, found.sentence),
    )


def _doubt(game: Game) -> Doubts:
    quorum = game.quorum
    groups, labels = quorum.stats.groups, quorum.slots.labels[0]
    columns = (array[0] for array in (groups.slot, groups.since, groups.last, groups.weight, groups.counts))
    stretches = [
        (_label(labels, slot), since, last, weight, count / (last - since + 1))
        for slot, since, last, weight, count in zip(*(column.tolist() for column in columns), strict=True)
        if slot != FREE and weight < _DOUBTED and count
    ]
    sources = [(_number(one.source), one.weight) for one in quorum.standings()[0]]
    return Doubts(sorted(sources, key=lambda one: one[0] or 0), stretches, int(quorum.stats.dismissed[0]))


def _label(labels: list[int | str | None], slot: int) -> int | None:
    return _number(labels[slot]) if slot < len(labels) else None


def _number(label: int | str | None) -> int | None:
    """The number of a source: the worlds of the lab have no other labels."""
    return label if isinstance(label, int) else None


def opened(id_: str, name: str, game: Game) -> Opened:
    """A game, and what does not change in it."""
    environment = game.environment
    return Opened(
        id=id_,
        world=name,
        rounds=game.rounds,
        seed=game.seed,
        budget=game.budget,
        unit=environment.noise_range + 1.0,
        sources=len(environment.shares),
        truth=game.truth,
        policies=POLICIES,
        scene=scene_of(game),
    )


def places(worlds: dict[str, PlayWorld]) -> list[Place]:
    """The worlds to choose from."""
    return [Place(name, one.title, one.about, one.rounds, one.budget) for name, one in worlds.items()]


def attempts(hall: Hall) -> list[dict[str, Any]]:
    """The attacks that were found with their prices, the cheapest first."""
    return [{**found._asdict(), "prices": found.prices} for found in hall.ranked()]
