"""Logs of the service, made without one: a learner decides, a linear world answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robandit.service.learning.learner import Learner
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, LogEntry, append
from robandit.wire.events import Closed, Decided, Event, Proved, Rewarded, encode
from robandit.wire.types import BanditSettings

Floats = npt.NDArray[np.float64]

DIM = 3
MU = np.array([0.5, -0.3, 0.4])
BASE: dict[str, Any] = {"dim": DIM, "policy": "oful", "noise_range": 0.5, "radius_scale": 0.3, "exploration": 0.2}


def menus(rng: np.random.Generator, number: int, actions: int) -> Floats:
    """Decision sets (number, actions, DIM) within the unit ball."""
    return rng.uniform(-1.0, 1.0, (number, actions, DIM)) / DIM**0.5


def live(number: int, seed: int = 1, lost: int = 0, **settings: Any) -> Iterator[Event]:
    """The events of a bandit: every ``lost``-th decision ends without a reward, and the last has none yet."""
    rng, learner = np.random.default_rng(seed), Learner(BanditSettings(**BASE | settings), seed)
    for t in range(1, number + 1):
        count = int(rng.integers(2, 6))
        (offer,) = menus(rng, 1, count)
        names = [f"a{i}" for i in range(count)]
        made = learner.decide(id=f"d{t}", now=float(t), actions=names, features=offer, sigma=None, source="web")
        learner.apply(made)
        yield made
        final: Rewarded | Closed = Rewarded(id=made.id, at=t + 0.5, reward=answer(rng, made))
        if lost and t % lost == 0:
            final = Closed(id=made.id, at=t + 0.5, reward=None if t % (2 * lost) else 0.0)
        if t < number:
            learner.apply(final)
            yield final


def answer(rng: np.random.Generator, made: Decided) -> float:
    return float(np.array(made.features) @ MU + rng.uniform(-0.5, 0.5))


PROOF = Proved(id="9", at=1e6, round=9, lower_bound=4.0, since=2, sentence="With 95 % confidence it was corrupted.")


def write(path: Path, events: Sequence[Event]) -> Path:
    """As NDJSON."""
    path.write_bytes(b"".join(encode(event) + b"\n" for event in events))
    return path


def store(path: Path, events: Sequence[Event], *others: str) -> Path:
    """As a service leaves it: the log is the shop's; other bandits have none."""
    held = SQLiteStore(path)
    append(held, [Bandit(1 + i, name, b"{}", 1, 0.0) for i, name in enumerate(["shop", *others])])
    append(held, [LogEntry(1, place, event) for place, event in enumerate(events, 1)])
    held.close()
    return path


def pages(events: Sequence[Event], size: int = 100) -> Any:
    """As a hub gives them."""

    async def all_of_them() -> Any:
        for at in range(0, len(events), size):
            yield [encode(event) for event in events[at : at + size]]

    return all_of_them
