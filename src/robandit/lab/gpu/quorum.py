"""What the kernels need to know of Quorum: its constants, when it votes, and where a trial's groups lie."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robandit.policies import Quorum, ballots, dissent, groups, quorum, votes

COUNTS = quorum.QuorumCounts._fields
"""What is written down at each checkpoint beside the sums."""
VOTE_REGISTERS = 168
"""Most registers of a thread that counts votes: twelve warps on each multiprocessor of a Hopper GPU."""
_WHOLES, _STANDINGS, _SINGLES, _REALS = 8, 3, 16, 10  # rows, as in kernels.groups
_SPREAD, _NOISE = 0, 4
_MEMORY = 40e9  # bytes of a launch: with sources a trial has a megabyte at most
_PART = 64  # two numbers for each thread of a warp
_BLOCK = 4  # groups that a pass of the vote looks at together


class QuorumKind(NamedTuple):
    """What a kernel is compiled for: sizes, and the policy's own constants."""

    size: int
    """The numbers of a group's form."""
    packed: int
    """The same, padded to a power of two."""
    part: int
    """How many of them are added at a time: few, since rounds need the registers."""
    places: int
    """The most groups of a trial."""
    crowd: int
    """The same, padded to a power of two."""
    number: int
    """The slots of sources; 1 where there are none to tell apart."""
    slots: int
    """The same, padded to a power of two."""
    pool: int
    """The slot of all sources that come after so many."""
    rows: int
    """The groups that a pass of the vote looks at together."""
    desk: int
    """Numbers that a trial puts down for its threads to share, and the forms of whole sources."""
    row: int
    """Where a number of each group lies there: after a tile and a vector."""
    whole: int
    """Where the forms begin."""
    edge: int
    shelf: int
    stretches: int
    shortest: int
    other_spell: float
    apart: float
    sharp: float
    newer: float
    doubted: float
    far: float
    repeated: float
    median: float
    pace: float
    haste: float
    first: float
    reach: float
    most: int
    still: float
    faint: float
    steps: int
    last: int
    """The number of the step after which there is no other one, and no estimate."""
    steep: float
    gone: float
    record: float
    prior: float
    least: float


class QuorumNumbers(NamedTuple):
    """The numbers of a quorum, in the order in which the kernels find them."""

    range: float
    width: float
    lam: float
    tolerance: float


class QuorumPlan(NamedTuple):
    """What a launch of a quorum needs beside what others do."""

    kind: QuorumKind
    numbers: QuorumNumbers


def quorum_plan(policy: Quorum, sources: int, wide: int, tall: int) -> QuorumPlan:
    """The plan of a quorum in a world with so many sources, whose decision sets are padded to (tall, wide)."""
    size, number = (policy.dim + 1) * (policy.dim + 2) // 2, max(1, min(sources, policy.max_sources + 1))
    places = quorum._STRETCHES + 4 * number  # two more for each side of a source
    packed, crowd, tile = _power(size), _power(places), wide * (wide + 1)
    kind = QuorumKind(
        size=size, packed=packed, part=min(packed, _PART), places=places, crowd=crowd, rows=_BLOCK,
        number=number, slots=_power(number), pool=policy.max_sources,
        desk=tile + crowd + (number * packed if number > 1 else 0), row=tile, whole=tile + crowd,
        edge=2 * wide, shelf=wide * tall,
        stretches=quorum._STRETCHES, shortest=groups._SHORTEST, other_spell=groups._OTHER_SPELL, apart=groups._APART,
        sharp=quorum._SHARP, newer=quorum._NEWER, doubted=quorum._DOUBTED,
        far=dissent._FAR, repeated=dissent._REPEATED, median=dissent._MEDIAN, pace=dissent._PACE,
        haste=dissent._HASTE, first=dissent._FIRST, reach=ballots._REACH,
        most=votes._MOST, still=votes._STILL, faint=votes._FAINT, steps=votes._STEPS,
        last=votes._STEPS + (number > 1), steep=votes._STEEP, gone=votes._GONE,
        record=votes._RECORD, prior=votes._PRIOR, least=votes._LEAST,
    )  # fmt: skip
    numbers = QuorumNumbers(range=policy.noise_range, width=policy.width, lam=policy.lam, tolerance=policy.tolerance)
    return QuorumPlan(kind, numbers)


def _power(size: int) -> int:
    return 1 << (size - 1).bit_length()


def vote_rounds(rounds: int) -> list[int]:
    """The rounds after which a trial votes whose rewards all come at once: every trial, then."""
    found, due = [], 2
    while due <= rounds:
        found.append(due)
        due += int(np.clip(due // quorum._OFTEN, quorum._SOON, quorum._LATE))
    return found


def spans(rounds: int, fresh: int) -> list[tuple[int, int, bool]]:
    """The rounds to play in one launch, first and last, and whether a vote follows."""
    ends = vote_rounds(rounds)
    last = sorted({*ends, rounds, *([fresh] if 0 < fresh < rounds else [])})
    return [(before + 1, end, end in set(ends)) for before, end in zip([0, *last], last, strict=False)]


def quorum_state(what: QuorumPlan, lanes: int, looks: int, device: Any) -> tuple[Any, list[Any]]:
    """The counts at each checkpoint, and what the kernels get beside the others' arrays: numbers, groups, a desk."""
    kind = what.kind
    counts = device.filled((looks + 1, lanes, len(COUNTS)), 0, "int32")
    forms = (device.filled((lanes, kind.places, kind.packed), 0.0, "float64") for _ in range(2))
    reals = device.filled((lanes, _REALS, kind.crowd), 0.0, "float64")
    wholes = device.filled((lanes, _WHOLES, kind.crowd), 0, "int32")
    standings = device.filled((lanes, _STANDINGS, kind.slots), groups.FREE, "int32")
    standings[:, 2], wholes[:, -1] = 0, groups.FREE
    singles, point = device.filled((lanes, _SINGLES), 0.0, "float64"), device.filled((lanes, kind.edge), 0.0, "float64")
    singles[:, [_SPREAD, _NOISE]] = 1.0
    dim = round((2 * kind.size) ** 0.5) - 1
    point[:, dim] = -1.0  # where a form's last row is multiplied
    held = [device.array(what.numbers, "float64"), *forms, reals, wholes, standings]
    held += [device.filled((lanes, kind.slots), 1.0, "float64"), singles]
    held += [device.filled((lanes, kind.desk), 0.0, "float64"), point, device.filled((lanes, kind.shelf), 0.0)]
    return counts, [*held, device.array(_table(dim, kind), "int32")]


def most_lanes(what: QuorumPlan, most: int) -> int:
    """How many trials may be played in one launch: at most so many, and no more than there is memory for."""
    kind = what.kind
    numbers = 2 * kind.places * kind.packed + kind.desk + (_REALS + _WHOLES) * kind.crowd + 2 * kind.shelf
    return max(1, min(most, int(_MEMORY / (8 * numbers))))


def _table(dim: int, kind: QuorumKind) -> NDArray[np.int64]:
    """The row and the column of each place of a form, (2, packed)."""
    found = np.full((2, kind.packed), dim, np.int64)  # the padding is nowhere in V and b
    found[:, : kind.size] = np.triu_indices(dim + 1)
    return found
