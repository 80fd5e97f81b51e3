"""Makes store_3.db.gz and store_3.json with the code of commit bc1b2e7, whose tables had version 2.

`git worktree add ../before bc1b2e7`, then `PYTHONPATH=../before/src python tests/service/stores_before/make_3.py`.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from robandit.service.hub import Hub
from robandit.service.requests.settling import settled
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Snapshot, append
from robandit.wire.changes import Change, Ruling, ShadowChange
from robandit.wire.imports import HistoryRow
from robandit.wire.types import Action, Choice, Creation, Feedback

HERE = Path(__file__).parent
BANDITS: dict[str, dict[str, Any]] = {
    "shop": {"dim": 3, "rewards": "clicks", "default_reward": 0.0},
    "forgets": {"dim": 3, "noise_range": 0.5, "policy": "oful", "reward_window": 60.0},
    "gone": {"dim": 3, "noise_range": 0.5},
}
DECISIONS, NEXT = 60, 8
CHANGES = {
    10: Change(version=1, ruling=Ruling(source="mail", ruling="quarantined")),
    20: Change(version=2, shadow=ShadowChange(name="plain", policy="oful")),
    40: Change(version=3, policy="lin-ts"),
    50: Change(version=4, policy="quorum"),
}


def offer(name: str, number: int) -> Choice:
    """Five actions, the same whenever they are asked for."""
    rng = np.random.default_rng([len(name), number])
    rows = (rng.uniform(-1.0, 1.0, (5, 3)) / 3**0.5).tolist()
    actions = [Action(f"é{i}", row) for i, row in enumerate(rows)]
    return Choice(actions=actions, decision_id=f"d{number} é", source=(None, "web", "mail")[number % 3])


def plain(chosen: Any) -> list[Any]:
    """An answer as JSON has it."""
    return [chosen.action_id, chosen.index, chosen.propensity, chosen.round]


async def use(hub: Hub, now: list[float]) -> dict[str, list[Any]]:
    """Use all bandits for a while, change one, teach it, and delete another; return the answers to decisions."""
    work, answers = asyncio.create_task(hub.work()), {}
    for place, name in enumerate(BANDITS):
        await hub.create(name, settled(Creation(**BANDITS[name]), BANDITS[name]), 100 + place)
        answers[name] = [await _visit(hub, name, number, now) for number in range(DECISIONS)]
    await hub.close_windows()
    await hub.change("gone", Change(version=1, archived=True))
    await hub.delete("gone", 2)
    await hub.purge()
    work.cancel()
    return answers


async def _visit(hub: Hub, name: str, number: int, now: list[float]) -> list[Any]:
    now[0] += 7.3
    chosen = await hub.decide(name, offer(name, number))
    if number % 3:
        reward = float(chosen.index < 2) if name == "shop" else 0.4 - 0.1 * chosen.index + 0.03 * (number % 7)
        await hub.reward(name, [Feedback(decision_id=chosen.decision_id, reward=reward)])
    if name == "shop" and number in CHANGES:
        await hub.change(name, CHANGES[number])
        await hub.learn_history(name, [HistoryRow(id=f"h{number}", features=[0.1, 0.2, 0.3], reward=1.0)])
    if number == DECISIONS // 2:
        learner, record = hub.bandits[name].learner, hub.bandits[name].record
        append(hub._store, [], [Snapshot(record.number, learner.place, learner.snapshot())])
    return plain(chosen)


def told(hub: Hub, name: str) -> dict[str, Any]:
    """What this code says about a bandit."""
    learner, status = hub.bandits[name].learner, hub.status(name)
    lines: list[bytes] = []
    while page := hub._store.page(hub.bandits[name].record.number, len(lines)):
        lines += page
    return {
        "counts": [learner.place, status.rounds, status.rewards, status.defaults, status.lost, learner.monitor.rounds],
        "version": status.version,
        "imported": status.imported,
        "pending": list(learner.pending),
        "clock": learner.clock,
        "recent": status.recent,
        "estimate": status.estimate,
        "uncertainty": status.uncertainty,
        "log": hashlib.sha256(b"\n".join(lines)).hexdigest(),
    }


async def go_on(hub: Hub) -> dict[str, list[Any]]:
    """The decisions that come next: they tell whether the state and its random numbers are the same."""
    work, numbers = asyncio.create_task(hub.work()), range(DECISIONS, DECISIONS + NEXT)
    found = {name: [plain(await hub.decide(name, offer(name, number))) for number in numbers] for name in hub.bandits}
    work.cancel()
    return found


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, now = Path(folder) / "log.db", [1.7e9]
        hub = Hub(SQLiteStore(path, clock=lambda: now[0]), ticks=lambda: now[0])
        answers = asyncio.run(use(hub, now))
        said = {name: told(hub, name) | {"answers": answers[name]} for name in hub.bandits}
        hub._store.close()
        whole = path.read_bytes()
        again = Hub(SQLiteStore(path, clock=lambda: now[0]), ticks=lambda: 0.0)
        for name, following in asyncio.run(go_on(again)).items():
            said[name]["next"] = following
        again._store.close()
    (HERE / "store_3.db.gz").write_bytes(gzip.compress(whole, mtime=0))
    text = json.dumps({"now": now[0], "bandits": said}, separators=(",", ":"), ensure_ascii=False)
    (HERE / "store_3.json").write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
