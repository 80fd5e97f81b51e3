"""A program for contextualbandits, and the same for robandit.

pip install '.[peers]' && python examples/coming_from/from_contextualbandits.py
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from contextualbandits.online import LinUCB
from same_shop import ITEMS, SHELF, Visit, compare

from robandit import Bandit, Features

USERS = ["student", "parent", "builder"]


def groups(visits: Sequence[Visit], size: int = 50) -> Iterator[Sequence[Visit]]:
    """So many visitors come before the clicks of the last ones are known."""
    return (visits[first : first + size] for first in range(0, len(visits), size))


def theirs(visits: Sequence[Visit]) -> list[str]:
    """LinUCB in batches: a matrix of contexts, and the index of an arm for each row."""
    policy = LinUCB(nchoices=len(ITEMS), alpha=0.1, random_state=1)
    shown: list[str] = []
    for group in groups(visits):
        contexts = np.array([[visit.user == user for user in USERS] for visit in group], float)
        arms = policy.predict(contexts).astype(int)
        items = [ITEMS[arm] for arm in arms]
        clicks = np.array([visit.click(item) for visit, item in zip(group, items, strict=True)], float)
        policy.partial_fit(contexts, arms, clicks)
        shown += items
    return shown


def ours(visits: Sequence[Visit]) -> list[str]:
    """A choice for each visitor. Rewards may come later and in any order, so batches need nothing special."""
    features = Features(
        action={"category": ["books", "tools", "toys"], "price": (0, 50)},
        context={"user": USERS},
        crosses=[("category", "user")],
        id="item",
    )
    bandit, shown = Bandit(features=features, rewards="clicks", seed=1), []
    for group in groups(visits):
        picks = [bandit.choose(SHELF, context={"user": visit.user}, source=visit.source) for visit in group]
        for visit, pick in zip(group, picks, strict=True):
            bandit.learn(pick, visit.click(pick.id))
        shown += [pick.id for pick in picks]
    return shown


if __name__ == "__main__":
    compare({"contextualbandits": theirs, "ours": ours})
