"""Makes store_1.db.gz and store_1.json with the code of commit 71cf085, which had no checksums and no checks of Host.

`git worktree add ../before 71cf085`, then `PYTHONPATH=../before/src python tests/service/stores_before/make_1.py`.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import tempfile
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import numpy as np

from robandit.policies import POLICIES
from robandit.service.hub import Hub
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Snapshot, append
from robandit.wire.types import Action, BanditSettings, Choice, Feedback

HERE = Path(__file__).parent
BASE: dict[str, Any] = {"dim": 3, "noise_range": 0.5, "horizon": 500}
BANDITS: dict[str, dict[str, Any]] = {
    name: BASE | {"policy": name} | ({"corruption": 5.0} if name == "robust-weighted-oful" else {})
    for name in sorted(POLICIES)
    if name != "sceptic"
} | {
    "explores": BASE | {"policy": "oful", "exploration": 0.3, "sources": 2, "default_reward": 0.25},
    "forgets": BASE | {"policy": "multi-level-weighted-oful", "reward_window": 60.0},
}


def offer(name: str, number: int) -> Choice:
    """Six actions, the same whenever they are asked for."""
    rng = np.random.default_rng([len(name), number])
    rows = rng.uniform(-1.0, 1.0, (6, 3)) / 3**0.5
    actions = [Action(f"é{i}", row, 0.3 if i % 2 else None) for i, row in enumerate(rows.tolist())]
    source = ("web", "mail")[number % 2] if name == "explores" else None
    return Choice(actions=actions, decision_id=f"d{number} é", source=source)


async def use(hub: Any, now: list[float]) -> dict[str, list[Any]]:
    """Use all bandits for a while, and keep snapshots in between; return the answers to decisions."""
    work, answers = asyncio.create_task(hub.work()), {}
    for place, (name, given) in enumerate(BANDITS.items()):
        await hub.create(name, BanditSettings(**given), 100 + place)
        answers[name] = [await _visit(hub, name, number, now, BANDITS) for number in range(30)]
    await hub.close_windows()
    work.cancel()
    return answers


async def _visit(hub: Any, name: str, number: int, now: list[float], bandits: dict[str, Any]) -> Any:
    now[0] += 7.3
    chosen = await hub.decide(name, offer(name, number))
    if number % 3:
        reward = 0.4 - 0.1 * chosen.index + 0.03 * (number % 7)
        asked: Awaitable[Any] = hub.reward(name, [Feedback(decision_id=chosen.decision_id, reward=reward)])
        await asked
    if number == 15:
        learner = hub.bandits[name].learner
        append(hub._store, [], [Snapshot(hub.bandits[name].record.number, learner.place, learner.snapshot())])
    return [chosen.action_id, chosen.index, chosen.propensity, chosen.round]


def next_ones(learner: Any, name: str) -> list[Any]:
    """The decisions that come next: they tell whether the state and its random numbers are the same."""
    found = []
    for number in range(30, 36):
        asked = offer(name, number)
        made = learner.decide(
            id=asked.decision_id,
            now=2e9,
            actions=[action.id for action in asked.actions],
            features=np.array([action.features for action in asked.actions]),
            sigma=[0.5 if action.sigma is None else action.sigma for action in asked.actions],
            source=asked.source,
        )
        learner.apply(made)
        found.append([made.index, made.level, made.propensity, made.weight])
    return found


def told(hub: Any, name: str, answers: list[Any], lines: list[bytes]) -> dict[str, Any]:
    """What this code says about a bandit."""
    learner, status = hub.bandits[name].learner, hub.status(name)
    return {
        "counts": [learner.place, status.rounds, status.rewards, status.defaults, status.lost, learner.monitor.rounds],
        "pending": list(learner.pending),
        "clock": learner.clock,
        "levels": status.levels,
        "recent": status.recent,
        "estimate": status.estimate,
        "uncertainty": status.uncertainty,
        "log": hashlib.sha256(b"\n".join(lines)).hexdigest(),
        "answers": answers,
        "next": next_ones(learner, name),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, now = Path(folder) / "log.db", [1.7e9]
        hub = Hub(SQLiteStore(path, clock=lambda: now[0]))
        answers = asyncio.run(use(hub, now))
        pages = {name: _lines(hub, name) for name in BANDITS}
        said = {name: told(hub, name, answers[name], pages[name]) for name in BANDITS}
        hub._store.close()
        (HERE / "store_1.db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    text = json.dumps({"now": now[0], "bandits": said}, indent=None, separators=(",", ":"), ensure_ascii=False)
    (HERE / "store_1.json").write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


def _lines(hub: Any, name: str) -> list[bytes]:
    number = hub.bandits[name].record.number
    found: list[bytes] = []
    while page := hub._store.page(number, len(found)):
        found += page
    return found


if __name__ == "__main__":
    main()
