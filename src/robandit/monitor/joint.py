"""What monitors of several shards of one traffic prove together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robandit.monitor.blocks import Partition
from robandit.monitor.certificate import Certificate, Group, list_groups
from robandit.monitor.contradiction import lower_bound
from robandit.monitor.groups import SUMS, Groups
from robandit.monitor.monitor import CorruptionMonitor

_ALIKE = ("dim", "block", "trials")  # and all that they assume, but for δ


def joint_certificate(monitors: Sequence[CorruptionMonitor]) -> Certificate:
    """What monitors prove together that each watched a shard of one traffic: one μ* for all. Their δ add up."""
    delta = _check(monitors)
    proved = sum(float(monitor.lower_bounds()[0]) for monitor in monitors)
    certain, beyond = (sum(float(monitor.beyond_range()[place][0]) for monitor in monitors) for place in (0, 1))
    free = certain + sum(float(monitor.proved_freely()[0]) for monitor in monitors)
    assumed, named = monitors[0].assumptions()._replace(delta=delta), tuple[Group, ...]()
    busy = [monitor for monitor in monitors if monitor.rounds]
    for parts in zip(*_padded([list(monitor.partitions()) for monitor in busy]), strict=True):
        groups = _side_by_side([part.groups for part in parts], [monitor.delta for monitor in busy], delta)
        bound = lower_bound(groups, assumed, least=proved - certain)
        if bound.value[0] + certain > proved:
            proved = float(bound.value[0]) + certain
            names = [f"shard {i + 1}: {name}" for i, part in enumerate(parts) for name in part.names]
            named = list_groups(names, bound.placed[0])
            free += 0.0 if free else float(lower_bound(groups, assumed._replace(parameter_bound=None)).value[0])
    return Certificate(
        lower_bound=proved,
        delta=delta,
        rounds=sum(monitor.rounds for monitor in monitors),
        altered=max(int(beyond), int(proved > 0.0)),
        alarm=None,
        since=None,
        groups=named,
        sources=(),
        misspecification=monitors[0].misspecification,
        parameter_bound=monitors[0].parameter_bound,
        rests_on_bound=proved > 0.0 and free <= 0.0,
        beyond=int(beyond),
    )


def _check(monitors: Sequence[CorruptionMonitor]) -> float:
    """The sum of their δ, if they can be put together."""
    if not monitors:
        raise ValueError("there must be at least one monitor")
    wanted = _traits(monitors[0])
    for other in monitors:
        for name, value in _traits(other).items():
            if value != wanted[name] or other.trials is not None:
                raise ValueError(f"monitors of shards must watch one stream each with the same {name}")
    for place, one in enumerate(monitors):
        if any(one is other or _same_rounds(one, other) for other in monitors[:place]):
            raise ValueError("two of the monitors watched the same rounds, which would count twice")
    delta = sum(monitor.delta for monitor in monitors)
    if delta >= 1.0:
        raise ValueError(f"the shards' delta must add up to less than 1, got {delta:g}; give each a part of it")
    return delta


def _traits(monitor: CorruptionMonitor) -> dict[str, Any]:
    """What monitors of shards must have in common."""
    assumed = monitor.assumptions()._asdict()
    return {name: getattr(monitor, name) for name in _ALIKE} | {k: v for k, v in assumed.items() if k != "delta"}


def _same_rounds(one: CorruptionMonitor, other: CorruptionMonitor) -> bool:
    """Whether two monitors have seen the same rounds in the same order, as copies of one have."""
    if one.rounds != other.rounds or not one.rounds:
        return False
    first, second = (monitor.state()["arrays"]["past_moment"] for monitor in (one, other))
    return bool(np.array_equal(first, second) and first.any())


def _padded(lists: Sequence[list[Partition]]) -> list[list[Partition]]:
    """Lists of the same length: where one is shorter, its last item comes again."""
    longest = max(map(len, lists), default=0)
    return [items + items[-1:] * (longest - len(items)) for items in lists]


def _side_by_side(pieces: Sequence[Groups], deltas: Sequence[float], total: float) -> Groups:
    """The groups of all pieces as those of one stream, each with its part of ``total``, the δ of all."""
    sums = {name: np.concatenate([getattr(piece, name) for piece in pieces], axis=1) for name in SUMS}
    length = np.concatenate([piece.length for piece in pieces])
    shares = [piece.share * delta / total for piece, delta in zip(pieces, deltas, strict=True)]
    return Groups(**sums, length=length, share=np.concatenate(shares))
