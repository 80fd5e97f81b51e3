"""What monitors of several shards of one traffic prove together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from robandit.monitor.blocks import Partition
from robandit.monitor.certificate import Certificate, Group, name_groups
from robandit.monitor.contradiction import lower_bound
from robandit.monitor.groups import Groups
from robandit.monitor.monitor import CorruptionMonitor

_ALIKE = ("dim", "noise", "parameter_bound", "regularization", "radius_scale", "block", "trials")


def joint_certificate(monitors: Sequence[CorruptionMonitor]) -> Certificate:
    """What monitors prove together that each watched a shard of one traffic: one μ* for all. Their δ add up."""
    delta = _check(monitors)
    proved = sum(float(monitor.lower_bounds()[0]) for monitor in monitors)
    certain = sum(float(monitor.beyond_range()[0][0]) for monitor in monitors)
    assumed, named = monitors[0].assumptions()._replace(delta=delta), tuple[Group, ...]()
    for parts in zip(*_padded([list(monitor.partitions()) for monitor in monitors]), strict=True):
        groups = _side_by_side([part.groups for part in parts], [monitor.delta for monitor in monitors])
        bound = lower_bound(groups, assumed, least=proved - certain)
        if bound.value[0] + certain > proved:
            proved = float(bound.value[0]) + certain
            names = [f"shard {i + 1}: {name}" for i, part in enumerate(parts) for name in part.names]
            named = name_groups(names, bound.placed[0], bound.voice[0])
    return Certificate(
        lower_bound=proved,
        delta=delta,
        rounds=sum(monitor.rounds for monitor in monitors),
        altered=max(sum(int(monitor.beyond_range()[1][0]) for monitor in monitors), int(proved > 0.0)),
        alarm=None,
        since=None,
        groups=named,
        sources=(),
    )


def _check(monitors: Sequence[CorruptionMonitor]) -> float:
    """The sum of their δ, if they can be put together."""
    if not monitors:
        raise ValueError("there must be at least one monitor")
    for other in monitors:
        for name in _ALIKE:
            if getattr(other, name) != getattr(monitors[0], name) or other.trials is not None:
                raise ValueError(f"monitors of shards must watch one stream each with the same {name}")
    delta = sum(monitor.delta for monitor in monitors)
    if delta >= 1.0:
        raise ValueError(f"the shards' delta must add up to less than 1, got {delta:g}; give each a part of it")
    return delta


def _padded(lists: Sequence[list[Partition]]) -> list[list[Partition]]:
    """Lists of the same length: where one is shorter, its last item comes again."""
    longest = max(map(len, lists))
    if any(not items for items in lists):
        return [[] for _ in lists]
    return [items + items[-1:] * (longest - len(items)) for items in lists]


def _side_by_side(pieces: Sequence[Groups], deltas: Sequence[float]) -> Groups:
    """The groups of all pieces as those of one stream, which share out the sum of the pieces' δ."""
    total = sum(deltas)
    return Groups(
        np.concatenate([piece.gram for piece in pieces], axis=1),
        np.concatenate([piece.moment for piece in pieces], axis=1),
        np.concatenate([piece.reach for piece in pieces], axis=1),
        np.concatenate([piece.length for piece in pieces]),
        np.concatenate([piece.share * delta / total for piece, delta in zip(pieces, deltas, strict=True)]),
    )
