"""Decisions of real people, played again: an environment out of a table."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import count
from pathlib import Path
from typing import Any, Self

import numpy as np

from robandit.arrays import Floats, Index, Ints
from robandit.features import Features
from robandit.inputs import integer
from robandit.lab.environments.base import Environment, Menu, Offer
from robandit.lab.environments.decision_sets import (
    HALVES,
    DecisionSets,
    FeatureColumns,
    ReplayColumns,
    halves,
    read_sets,
    shuffles,
)
from robandit.lab.environments.linear_models import Hindsight, LinearFit, hindsight, least_squares, linearity
from robandit.streams import Draws, RoundStream


@dataclass(kw_only=True, frozen=True, eq=False)
class Replay(Environment):
    """Plays a table of decisions again: every trial shuffles them, and the places within each set.

    A row is an action on offer, with the reward that it brings; rows with the same round are one decision set. The
    means are those of the least-squares fit to all rewards, and what the rewards differ by is the noise. Where the
    model is wrong, that noise is not independent of the action. If sets differ in size, all trials have the same
    sequence of sizes. After the last decision they are shuffled again.

    >>> table = {"round": [1, 1, 2, 2, 2], "price": [3, 5, 4, 9, 7], "reward": [1, 0, 1, 0, 0]}
    >>> replay = Replay(data=table)
    >>> replay.names, len(replay.sets), replay.uniform
    (('price', '(constant)'), 2, 0.41666666666666663)
    """

    data: Any = None
    """The decisions: a .parquet or .csv file, a frame, an Arrow table, or a dict of columns."""
    round: str = "round"
    """Column that is the same for all actions of a decision set."""
    reward: str = "reward"
    """Column of the rewards."""
    features: FeatureColumns = None
    """Columns of the features, by name or pattern such as `x*`, separated by commas; `Features`, or the .json file of
    some. By default all columns that have no other role."""
    action: str | None = None
    """Column of the actions' names, which are no features."""
    order: str | None = None
    """Column to play the decisions in the order of, the same in all trials. By default they are shuffled."""
    source: str | None = None
    """Column that says where a visitor came from."""
    sources: int = 0
    """Number of sources that visitors are given by chance, where no column says where they came from."""
    person: str | None = None
    """Column of the people who decided. Nobody is in both halves."""
    half: str = "all"
    """Whose decisions are played: of `all` people, of the half to `tune` on, or of the half to `play`. Features are
    fitted on the other half."""
    split: int = 0
    """Seed that splits the people into halves."""
    digest: str | None = None
    """SHA-256 of the file, if only that one will do."""

    def __post_init__(self) -> None:
        if self.half not in HALVES:
            raise ValueError(f"half must be one of {', '.join(HALVES)}, got {self.half!r}")
        integer("split", self.split, least=0)
        if integer("sources", self.sources, least=0) and self.source is not None:
            raise ValueError(f"sources are drawn where no column names them, got {self.sources} and {self.source!r}")
        if self.data is None:
            raise ValueError("data must be a .parquet or .csv file, a frame, or a dict of columns, got None")
        columns = ReplayColumns(**{name: getattr(self, name) for name in ReplayColumns._fields if name != "propensity"})
        sets = _load(self.data, columns, self.half, self.split, self.digest)
        if len(sets) < 2:
            raise ValueError(f"there must be at least 2 decisions to replay, got {len(sets)}")
        object.__setattr__(self, "_sets", sets)
        known = {"dim": sets.vectors.shape[1], "noise_range": max(self._width, float(np.abs(self._residuals).max()))}
        for name, value in known.items():
            object.__setattr__(self, name, value)
        super().__post_init__()

    @property
    def sets(self) -> DecisionSets:
        """The decisions."""
        return self.__dict__["_sets"]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replay) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple[object, ...]:
        return id(self.sets), self.order, self.sources

    # What is known of the decisions.

    @cached_property
    def parameter(self) -> Floats:
        """μ*, (d,): the parameter of least squared error."""
        return _parameter(self.sets)

    @cached_property
    def _residuals(self) -> Floats:
        return self.sets.rewards - self.sets.vectors @ self.parameter

    @property
    def _width(self) -> float:
        return float(np.ptp(self.sets.rewards)) or 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """What the features are called."""
        return tuple(self.sets.names)

    @property
    def uniform(self) -> float:
        """The mean reward of playing all actions of a set alike."""
        return float(self.sets.shares @ self.sets.rewards / len(self.sets))

    def hindsight(self) -> Hindsight:
        """The best linear policy, found with all rewards known."""
        return hindsight(self.sets)

    def linearity(self) -> LinearFit:
        """How much a linear model loses to a logistic one, and how both are calibrated, fitted on other decisions."""
        return _linearity(self.sets, self.split + 1)

    @property
    def parameter_bound(self) -> float:
        return max(1.0, float(np.linalg.norm(self.parameter)))

    @property
    def mean_bound(self) -> float:
        return max(1.0, float(np.abs(self.sets.vectors @ self.parameter).max()))

    @property
    def noise_scale(self) -> float:
        return self._width / 2.0  # Hoeffding's lemma for rewards in a range

    @cached_property
    def misspecification(self) -> float:
        """ζ as far as it can be seen: the most by which a tenth of the predictions is off beyond chance."""
        return self.linearity().worst

    @cached_property
    def clicks(self) -> bool:
        """Whether all rewards are 0 or 1: then attacks lie about clicks."""
        return bool(np.isin(self.sets.rewards, (0.0, 1.0)).all())

    @property
    def set_size(self) -> int | None:
        sizes = self.sets.sizes
        return int(sizes[0]) if (sizes == sizes[0]).all() else None

    @cached_property
    def shares(self) -> tuple[float, ...]:
        if self.sources:
            return (1.0 / self.sources,) * self.sources
        return () if self.sets.source is None else tuple((np.bincount(self.sets.source) / len(self.sets)).tolist())

    # Playing.

    def facing(self, attack: object) -> Self:
        """The same decisions. Bots under the name of a source come in its rounds, in place of people."""
        if getattr(attack, "source", None) is None or not hasattr(attack, "is_bot"):
            return self
        faced = copy(self)
        object.__setattr__(faced, "_bots", attack)
        return faced

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        decisions = shuffles(self.sets.sizes, draw, in_order=self.order is not None)
        places = draw.uniform(int(self.sets.sizes.max()))
        parameter = np.broadcast_to(self.parameter, (len(draw), self.dim))
        sigma, visitors = np.full(len(draw), self._width / 2.0), draw.uniform()
        for t in count(1):
            chosen = next(decisions)
            size = int(self.sets.sizes[chosen[0]])
            rows = self.sets.starts[chosen][:, None] + np.argsort(places.at(t)[:, :size], axis=1)
            actions = self.sets.vectors[rows]
            actions.flags.writeable = False
            menu = Menu.of(actions, parameter)
            source = self._sources(t, chosen, visitors) if self.shares else None
            yield Offer(t, menu, sigma, self.sets.rewards[rows] - menu.means, source=source)

    def _sources(self, t: int, chosen: Index, visitors: RoundStream) -> Ints:
        """Where the visitors of a round come from, (B,)."""
        bots = self.__dict__.get("_bots")
        if bots is not None and bots.is_bot(t):
            return np.full(len(chosen), bots.source)
        if self.sources:
            return (visitors.at(t) * self.sources).astype(np.int64)
        assert self.sets.source is not None
        return self.sets.source[chosen]


@lru_cache(maxsize=8)  # a run makes its environments many times, from the same decisions
def _parameter(sets: DecisionSets) -> Floats:
    return least_squares(sets)


@lru_cache(maxsize=8)
def _linearity(sets: DecisionSets, seed: int) -> LinearFit:
    return linearity(sets, halves(sets.person, seed))


def _load(data: Any, columns: ReplayColumns, half: str, split: int, digest: str | None) -> DecisionSets:
    if not isinstance(data, str | Path):
        return read_sets(data, columns, half=half, split=split)
    if not isinstance(columns.features, str | Features | None):
        columns = columns._replace(features=",".join(columns.features))  # to be hashable
    if Path(data).is_dir():
        raise ValueError(f"{data} is a folder; give a .parquet or .csv file")
    state = Path(data).stat()
    return _load_file(str(data), state.st_mtime_ns, state.st_size, columns, half, split, digest)


@lru_cache(maxsize=8)
def _load_file(
    path: str, _time: int, _size: int, columns: ReplayColumns, half: str, split: int, digest: str | None
) -> DecisionSets:
    """The decisions in a file, read once as long as it does not change."""
    found = hashlib.sha256(Path(path).read_bytes()).hexdigest()
    if digest is not None and found != digest:
        raise ValueError(f"{path} is another file than the one with the digest {digest}: its own is {found}")
    return read_sets(path, columns, half=half, split=split)
