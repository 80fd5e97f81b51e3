"""Decisions of real people: what was on offer, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Index

Labels = NDArray[np.str_]


@dataclass(frozen=True, kw_only=True, eq=False)
class Decisions:
    """n decisions among up to K actions with d features each. A log has one action each: the one that was taken."""

    features: Floats
    """The features of the actions, (n, K, d)."""
    rewards: Floats
    """What each action would have brought, (n, K)."""
    offered: Bools
    """Which actions could be taken, (n, K)."""
    names: Sequence[str]
    """What each feature is called."""
    segments: Mapping[str, Labels]
    """By which labels the people or the visits can be told apart, (n,) each."""

    def __len__(self) -> int:
        return len(self.rewards)

    def of(self, rows: Index | slice) -> Decisions:
        """Some of the decisions, in this order."""
        return replace(
            self,
            features=self.features[rows],
            rewards=self.rewards[rows],
            offered=self.offered[rows],
            segments={name: labels[rows] for name, labels in self.segments.items()},
        )

    def crossed(self, segment: str) -> Decisions:
        """The same decisions with features of their own for each value of a segment but the most frequent."""
        labels = self.segments[segment]
        values, counts = np.unique(labels, return_counts=True)
        others = np.delete(values, counts.argmax()).tolist()
        indicators = [(labels == value).astype(float)[:, None, None] for value in others]
        constant = np.ones((*self.rewards.shape, 1))
        parts = [np.concatenate([constant, self.features], axis=2) * one for one in indicators]
        names = [f"{segment}={value}:{name}" for value in others for name in ("", *self.names)]
        return replace(self, features=np.concatenate([self.features, *parts], axis=2), names=(*self.names, *names))

    def play_uniformly(self, rng: np.random.Generator) -> Index:
        """One of the offered actions of each decision, each as likely as the others, (n,)."""
        return np.argmax(rng.random(self.offered.shape) * self.offered, axis=1)

    def columns(self, actions: Index) -> dict[str, Any]:
        """A log of these actions, (n,), as columns: x0, x1, …, the reward, and the segments."""
        rows = np.arange(len(self))
        chosen = self.features[rows, actions]
        columns: dict[str, Any] = {f"x{place}": chosen[:, place] for place in range(chosen.shape[1])}
        return columns | {"reward": self.rewards[rows, actions]} | dict(self.segments)
