"""The service's log as arrays: from NDJSON, from Parquet, or from the service's own file."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Bools, Floats, Ints
from robandit.errors import ConfigError, install
from robandit.wire.parquet import PARQUET_KEY

if TYPE_CHECKING:
    from robandit.wire.events import Closed, Decided, Rewarded

_EXPLORE = (
    "what was on offer is kept, and every action has a chance, only where a bandit explores: make one with "
    '"exploration" above 0, 0.1 say, and let it gather a log'
)


@dataclass(frozen=True, eq=False)
class DecisionLog:
    """n decisions in their order, and the N actions on offer; those of decision t are rows starts[t] and on."""

    offered: Floats
    """The features of the actions on offer, (N, d)."""
    starts: Ints
    """The first row of each decision, and N, (n + 1,)."""
    index: Ints
    """The place of the action taken among those on offer, (n,)."""
    propensity: Floats
    """The probability with which it was taken, (n,)."""
    sigma: Floats
    """The declared scale of its noise, (n,)."""
    reward: Floats
    """The reward, (n,); NaN where there is none."""
    outcomes: Counter[str]
    """The number of decisions that are rewarded, have the default, are pending, or lost their reward."""
    proof: str | None = None
    """What the monitor proved of the feedback, in words."""
    left_out: int = 0
    """The number of decisions that don't say what was on offer, of a bandit that explored only at times."""

    def __len__(self) -> int:
        return len(self.index)

    @property
    def chosen(self) -> Ints:
        """The rows (n,) of the actions that were taken."""
        return self.starts[:-1] + self.index

    def where(self, keep: Bools) -> DecisionLog:
        """The decisions to ``keep``, (n,)."""
        counts = np.diff(self.starts)
        starts = np.concatenate([[0], np.cumsum(counts[keep])])
        rows = {name: getattr(self, name)[keep] for name in ("index", "propensity", "sigma", "reward")}
        return replace(self, offered=self.offered[np.repeat(keep, counts)], starts=starts, **rows)


class _Row(NamedTuple):
    """A decision as it stands in a log."""

    place: str  # where it stands, such as `line 3`
    id: str
    actions: int  # how many were on offer
    taken: int
    features: Sequence[float]
    offered: Any
    propensity: float
    sigma: float


def read(path: Path | str, bandit: str | None = None) -> DecisionLog:
    """Read the log in a file of any kind. ``bandit`` says whose log, in a service's own file."""
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give a file")
    with path.open("rb") as file:
        start = file.read(16)
    if not start:
        raise ValueError(f"{path} is empty")
    kind = "SQLite" if start.startswith(b"SQLite format 3\0") else "Parquet" if start.startswith(b"PAR1") else "NDJSON"
    if bandit is not None and kind != "SQLite":
        raise ConfigError(f"--bandit is for a service's own file; {path} is {kind} and holds the log of one bandit")
    extra = "lab" if kind == "Parquet" else "serve"
    try:
        if kind == "Parquet":
            return _from_parquet(path)
        if kind == "SQLite":
            return _from_store(path, bandit)
        return _from_events((f"line {number}", line) for number, line in _lines(path))
    except ImportError as error:
        raise ConfigError(f"reading {kind} needs {error.name} as well: {install(extra)}") from None


# From events.


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as raw:
        packed = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        try:
            yield from enumerate(gzip.GzipFile(fileobj=raw) if packed else raw, 1)
        except (EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} can't be unpacked: {error}") from None


def _from_store(path: Path, bandit: str | None) -> DecisionLog:
    from robandit.service.stores.sqlite import read_only
    from robandit.service.stores.store import StoreError

    try:
        return _from_events((f"event {number}", body) for number, body in enumerate(read_only(path, bandit), 1))
    except StoreError as error:
        raise ConfigError(str(error)) from None


def _from_events(lines: Iterable[tuple[str, bytes]]) -> DecisionLog:
    import msgspec

    from robandit.wire.events import Changed, Closed, Cut, Decided, Proved, Rewarded, decode

    found = _Gathered()
    for place, line in lines:
        if not line.strip():
            continue
        try:
            event = decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{place} is no event of the service's log: {error}") from None
        if isinstance(event, Decided):
            found.decide(place, event)
        elif isinstance(event, Proved):
            found.proof = event.sentence
        elif isinstance(event, Changed | Cut):  # a change may be gone
            found.changed = True
        elif isinstance(event, Rewarded | Closed):  # what an operator did is no matter here
            outcome = "rewarded" if isinstance(event, Rewarded) else "lost" if event.reward is None else "default"
            found.end(place, event, outcome)
    return found.log()


class _Gathered:
    """Decisions and their rewards, gathered event by event."""

    def __init__(self) -> None:
        self._rows, self._rewards = list[_Row](), list[float]()
        self._outcomes: list[str] = []  # of each row
        self.changed = False
        """Whether an operator has changed the bandit, such as its exploration."""
        self._ids, self._open = set[str](), dict[str, int]()  # of all decisions; the rows of those without an end
        self.proof: str | None = None

    def decide(self, place: str, event: Decided) -> None:
        """Add a decision."""
        if event.id in self._ids:
            raise ValueError(f"{place}: a second decision {event.id!r}; give the log of one bandit, once")
        self._ids.add(event.id)
        self._open[event.id] = len(self._rows)
        known = len(event.actions), event.index, event.features, event.offered, event.propensity, event.sigma
        self._rows.append(_Row(place, event.id, *known))
        self._rewards.append(np.nan)
        self._outcomes.append("pending")

    def end(self, place: str, event: Rewarded | Closed, outcome: str) -> None:
        """Give a decision its reward, or none."""
        if event.id not in self._open:
            wrong = "a second reward of" if event.id in self._ids else "the reward comes before"
            raise ValueError(f"{place}: {wrong} decision {event.id!r}; give the whole log, as it was written")
        row = self._open.pop(event.id)
        self._rewards[row] = np.nan if event.reward is None else event.reward
        self._outcomes[row] = outcome

    def log(self) -> DecisionLog:
        """The log of all decisions so far."""
        offered = [None if row.offered is None else np.frombuffer(row.offered) for row in _whole(self._rows)]
        parts = self._rows, offered, np.array(self._rewards), self._outcomes
        return _together(_with_offers(*parts, changed=self.changed), self.proof)


def _whole(rows: list[_Row]) -> Iterator[_Row]:
    """The rows, if what was on offer is a whole number of floats."""
    for row in rows:
        if row.offered is not None and len(row.offered) % 8:
            raise ValueError(f"{row.place}: `offered` has {len(row.offered)} bytes, which are no numbers of 8 bytes")
        yield row


# From Parquet.


def _from_parquet(path: Path) -> DecisionLog:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        about = json.loads((file.schema_arrow.metadata or {}).get(PARQUET_KEY, b"null"))
        if about is None:
            raise ValueError(f"{path} is no log of the service; GET /v1/bandits/NAME/log?format=parquet gives one")
        rows, offered, rewards, outcomes = list[_Row](), list[Floats | None](), list[Floats](), list[str]()
        for batch in file.iter_batches(4096, columns=list(_COLUMNS)):
            _add_batch(batch, rows, offered)
            rewards.append(batch["reward"].to_numpy(zero_copy_only=False))
            outcomes += batch["outcome"].to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ValueError(f"{path} can't be read as Parquet: {error}") from None
    parts = rows, offered, np.concatenate([np.empty(0), *rewards]), outcomes
    return _together(_with_offers(*parts, changed=about.get("changed", False)), about.get("proof"))


_COLUMNS = ("decision_id", "actions", "index", "features", "offered", "propensity", "sigma", "reward", "outcome")


def _add_batch(batch: Any, rows: list[_Row], offered: list[Floats | None]) -> None:
    plain = {name: batch[name].to_pylist() for name in ("decision_id", "index", "features", "propensity", "sigma")}
    counts = batch["actions"].value_lengths().to_pylist()
    for i, menu in enumerate(batch["offered"]):
        flat = menu.values.flatten().to_numpy() if menu.is_valid else None
        place = f"row {len(rows) + 1}"
        name, index, features = (plain[column][i] for column in ("decision_id", "index", "features"))
        rows.append(_Row(place, name, counts[i], index, features, flat, *_floats(plain, i)))
        offered.append(flat)


def _floats(plain: dict[str, list[Any]], i: int) -> tuple[float, float]:
    propensity, sigma = plain["propensity"][i], plain["sigma"][i]
    return np.nan if propensity is None else propensity, np.nan if sigma is None else sigma


# From any of them.


_Parts: TypeAlias = tuple[list[_Row], Sequence[Floats | None], Floats, Counter[str], int]


def _with_offers(
    rows: list[_Row], offered: Sequence[Floats | None], rewards: Floats, outcomes: list[str], *, changed: bool
) -> _Parts:
    """The decisions that say what was on offer, and how many do not. A bandit that was ``changed`` may have begun or
    ended to explore; that has nothing to do with what was chosen or earned. Of any other, all must say so.

    Where a policy watched it, decisions say so that were certain: without exploration, only one action had a chance.
    """
    certain = [changed and row.actions > 1 and row.propensity == 1.0 for row in rows]
    offered = [None if sure else menu for sure, menu in zip(certain, offered, strict=True)]
    kept = [place for place, menu in enumerate(offered) if menu is not None]
    if not changed or not kept or len(kept) == len(rows):
        return rows, offered, rewards, Counter(outcomes), 0
    some = [rows[place] for place in kept], [offered[place] for place in kept], rewards[kept]
    return *some, Counter(outcomes[place] for place in kept), len(rows) - len(kept)


def _together(parts: _Parts, proof: str | None) -> DecisionLog:
    """Put the log together, if it can be evaluated."""
    rows, offered, rewards, outcomes, left_out = parts
    if not rows:
        raise ValueError("there are no decisions in this log")
    bare = [row for row, menu in zip(rows, offered, strict=True) if menu is None]
    if bare:
        message = f"{len(bare):,} of {len(rows):,} decisions ({bare[0].place} first) don't say what was on offer"
        raise ValueError(f"{message}; {_EXPLORE}")
    dim, menus = len(rows[0].features), [menu for menu in offered if menu is not None]
    for row, menu in zip(rows, menus, strict=True):
        _check(row, menu, dim)
    counts = np.array([row.actions for row in rows])
    log = DecisionLog(
        np.concatenate(menus).reshape(-1, dim),
        np.concatenate([[0], np.cumsum(counts)]),
        np.array([row.taken for row in rows]),
        np.array([row.propensity for row in rows]),
        np.array([row.sigma for row in rows]),
        rewards,
        outcomes,
        proof,
        left_out,
    )
    if np.count_nonzero(np.isnan(rewards)) != outcomes["pending"] + outcomes["lost"] or np.isinf(rewards).any():
        place = rows[int(np.flatnonzero(~np.isfinite(rewards))[0])].place
        raise ValueError(f"rewards must be numbers where there are any; {place} is the first to look at")
    return log


def _check(row: _Row, menu: Floats, dim: int) -> None:
    """Refuse a decision that can't have been made."""
    if len(row.features) != dim:
        raise ValueError(f"{row.place}: {len(row.features)} features, but the first decision has {dim}")
    if menu.size != row.actions * dim or not 0 <= row.taken < row.actions:
        raise ValueError(
            f"{row.place}: {menu.size} features on offer for {row.actions} actions of {dim}, index {row.taken}"
        )
    if not np.isfinite(menu).all() or list(menu[row.taken * dim : (row.taken + 1) * dim]) != list(row.features):
        raise ValueError(
            f"{row.place}: the features on offer must be finite, and have those of the action taken in place"
        )
    if row.propensity == 0.0:
        raise ValueError(
            f"{row.place}: decision {row.id!r} has propensity 0, so no weight can make up for it; {_EXPLORE}"
        )
    if not 0.0 < row.propensity <= 1.0 + 1e-9:  # as much as rounding adds
        raise ValueError(f"{row.place}: propensity must be from 0 to 1, got {row.propensity}")
    if not 0.0 <= row.sigma < np.inf:
        raise ValueError(f"{row.place}: sigma must be a number >= 0, got {row.sigma}")
