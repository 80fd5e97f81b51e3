"""A program for coba, and the same for robandit.

pip install '.[peers]' && python examples/coming_from/from_coba.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import coba
from same_shop import ITEMS, SHELF, Visit, compare

from robandit import Bandit, Features

USERS = ["student", "parent", "builder"]


class Shop:
    """The shop as an environment of coba: an interaction holds the rewards of all actions."""

    def __init__(self, visits: Sequence[Visit]) -> None:
        self.params: dict[str, Any] = {"environment": "shop"}
        self._visits = visits

    def read(self) -> Iterator[coba.SimulatedInteraction]:
        actions = [coba.Categorical(item, ITEMS) for item in ITEMS]
        for visit in self._visits:
            clicks = [visit.click(item) for item in ITEMS]
            yield coba.SimulatedInteraction(coba.Categorical(visit.user, USERS), actions, clicks)


def theirs(visits: Sequence[Visit]) -> list[str]:
    """LinUCB in an experiment; coba makes features of labels, and crosses them, by itself."""
    learner = coba.LinUCBLearner(alpha=1.0, features=[1, "a", "ax"])
    experiment = coba.Experiment(coba.Environments(Shop(visits)), learner, coba.SequentialCB(record=["action"]))
    played = experiment.run(quiet=True).interactions["action"]
    return [ITEMS[action.index(1)] for action in played]


def ours(visits: Sequence[Visit]) -> list[str]:
    """The loop is yours, and nothing needs the rewards of actions that were not shown."""
    features = Features(
        action={"category": ["books", "tools", "toys"], "price": (0, 50)},
        context={"user": USERS},
        crosses=[("category", "user")],
        id="item",
    )
    bandit, shown = Bandit(features=features, rewards="clicks", seed=1), []
    for visit in visits:
        pick = bandit.choose(SHELF, context={"user": visit.user}, source=visit.source)
        bandit.learn(pick, visit.click(pick.id))
        shown.append(pick.id)
    return shown


if __name__ == "__main__":
    compare({"coba": theirs, "ours": ours})
