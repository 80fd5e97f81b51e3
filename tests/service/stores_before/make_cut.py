"""Makes store_cut.db.gz and store_cut.json: logs that were cut, which every later release must be able to fold.

``PYTHONPATH=src python tests/service/stores_before/make_cut.py``, with the code of the commit that added this.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from robandit.service.hub import Hub
from robandit.service.requests.settling import settled
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.changes import Change, ShadowChange
from robandit.wire.types import Action, Choice, Creation, Feedback

HERE = Path(__file__).parent
BANDITS: dict[str, dict[str, Any]] = {
    "votes": {"dim": 3, "rewards": "clicks", "sources": 3, "exploration": 0.2},
    "levels": {"dim": 3, "noise_range": 0.5, "policy": "multi-level-weighted-oful", "horizon": 500},
}
DECISIONS, NEXT, DAY = 60, 8, 86_400.0


def offer(name: str, number: int) -> Choice:
    """Five actions, the same whenever they are asked for."""
    rows = (np.random.default_rng([len(name), number]).uniform(-1.0, 1.0, (5, 3)) / 3**0.5).tolist()
    actions = [Action(f"é{i}", row) for i, row in enumerate(rows)]
    return Choice(actions=actions, decision_id=f"d{number} é", source=(None, "web", "mail")[number % 3])


def plain(chosen: Any) -> list[Any]:
    """An answer as JSON has it."""
    return [chosen.action_id, chosen.index, chosen.propensity, chosen.round]


async def use(hub: Hub, now: list[float]) -> None:
    """A visit a day. Policies change before the place where the log is cut, and after it."""
    work = asyncio.create_task(hub.work())
    for place, (name, wanted) in enumerate(BANDITS.items()):
        await hub.create(name, settled(Creation(reward_window=1e6, **wanted), wanted), 100 + place)
        for number in range(DECISIONS):
            now[0] += DAY
            await hub.decide(name, offer(name, number))
            if number % 4:
                await hub.reward(name, [Feedback(decision_id=f"d{number} é", reward=float(number % 3 == 0))])
            if number == 20:
                await hub.change(name, Change(version=1, shadow=ShadowChange(name="plain", policy="oful")))
            if number == 50:
                await hub.change(name, Change(version=2, policy="lin-ts"))
        await hub.cut(name, 20.0)
        await hub.purge()
    work.cancel()


async def go_on(hub: Hub) -> dict[str, list[Any]]:
    """The decisions that come next: they tell whether the state and its random numbers are the same."""
    work, numbers = asyncio.create_task(hub.work()), range(DECISIONS, DECISIONS + NEXT)
    found = {name: [plain(await hub.decide(name, offer(name, number))) for number in numbers] for name in BANDITS}
    work.cancel()
    return found


def told(hub: Hub, name: str) -> dict[str, Any]:
    """What this code says about a bandit."""
    learner, status = hub.bandits[name].learner, hub.status(name)
    cut = learner.life.cut
    assert cut is not None
    counts = [learner.place, status.rounds, status.rewards, status.defaults, status.lost, learner.monitor.rounds]
    return {
        "counts": [*counts, cut.place, cut.decisions, cut.open],
        "pending": list(learner.pending),
        "estimate": status.estimate,
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path, now = Path(folder) / "log.db", [1.7e9]
        hub = Hub(SQLiteStore(path, clock=lambda: now[0]), ticks=lambda: now[0])
        asyncio.run(use(hub, now))
        said = {name: told(hub, name) for name in BANDITS}
        hub._store.close()
        whole = path.read_bytes()
        again = Hub(SQLiteStore(path, clock=lambda: now[0]), ticks=lambda: 0.0)
        for name, following in asyncio.run(go_on(again)).items():
            said[name]["next"] = following
        again._store.close()
    (HERE / "store_cut.db.gz").write_bytes(gzip.compress(whole, mtime=0))
    text = json.dumps({"now": now[0], "bandits": said}, separators=(",", ":"), ensure_ascii=False)
    (HERE / "store_cut.json").write_text(text.replace('},"', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
