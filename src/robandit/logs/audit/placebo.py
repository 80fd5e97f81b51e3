"""Before somebody is named: does the source stand out more than sources whose labels were drawn at random?

Labels are shuffled among the rounds of each stretch of time. If, within each stretch, labels have nothing to do with
features and rewards, then shuffled logs are as likely as the log itself, whatever the model, the noise and the drift.
The chance that one of the sources stands out more than any source does in 49 shuffled logs is then 1/50 at most.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats, Index
from robandit.features.scaling import Scaling
from robandit.logs.audit.stored import StoredRounds
from robandit.monitor.cones import solve

SHUFFLED = 49
"""The number of shuffled logs."""
_STRETCHES = 64  # of time, of the same number of rounds
_MOST = 1 << 16  # rounds that are looked at, evenly spread over the log
_SEED = 17


class Labelled(NamedTuple):
    """Rounds with their sources, divided by the scale of their noise."""

    actions: Floats
    """a/s, (n, d)."""
    rewards: Floats
    """r/s, (n,)."""
    sources: Index
    """The number of each round's source, (n,)."""


def read_labelled(
    rounds: StoredRounds, features: Scaling, clip: Callable[[Floats], Floats], *, first: int, sources: int
) -> Labelled:
    """Up to 65,536 rounds from ``first`` on. Sources beyond the first ``sources`` count as one, the last."""
    step, at = max(1, -(-(rounds.rounds - first) // _MOST)), 0
    parts: list[tuple[Floats, Floats, Index]] = []
    for piece in rounds.pieces(first):
        kept = slice(-at % step, None, step)
        scale = np.ones(len(piece.rewards)) if piece.sigma is None else piece.sigma
        actions, rewards = features(piece.features[kept]), clip(piece.rewards[kept])
        labels = np.zeros(len(rewards), np.intp) if piece.sources is None else piece.sources[kept]
        parts.append((actions / scale[kept, None], rewards / scale[kept], np.minimum(labels, sources)))
        at += len(piece.rewards)
    return Labelled(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def stands_out(rounds: Labelled, source: int) -> bool:
    """Whether this source is farthest from all rounds together, and farther than any is in all shuffled logs."""
    apart = distances(rounds)
    if apart.argmax() != source:
        return False
    rng, most = np.random.default_rng(_SEED), apart.max()
    return all(distances(_shuffled(rounds, rng)).max() < most for _ in range(SHUFFLED))


def _shuffled(rounds: Labelled, rng: np.random.Generator) -> Labelled:
    parts = [rng.permutation(part) for part in np.array_split(rounds.sources, _STRETCHES)]
    return rounds._replace(sources=np.concatenate(parts))


def distances(rounds: Labelled) -> Floats:
    """How far each source is from what all rounds together say: ‖b_g − V_g μ‖², in the norm of V_g and a little of V.

    What is found by shuffling holds for any distance. This one is about χ² where the model is right.
    """
    dim, number = rounds.actions.shape[1], int(rounds.sources.max(initial=0)) + 1
    order = np.argsort(rounds.sources, kind="stable")
    ends = np.searchsorted(rounds.sources[order], np.arange(1, number))
    gram, moment = np.zeros((number, dim, dim)), np.zeros((number, dim))
    for place, own in enumerate(np.split(order, ends)):
        actions = rounds.actions[own]
        gram[place], moment[place] = actions.T @ actions, rounds.rewards[own] @ actions
    whole = gram.sum(axis=0)
    rest = moment - gram @ solve(whole[None], moment.sum(axis=0)[None])[0]
    return np.vecdot(rest, solve(gram + (dim / max(1, len(order))) * whole, rest))
