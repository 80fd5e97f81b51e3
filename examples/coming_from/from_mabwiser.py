"""A program for MABWiser, and the same for robandit.

pip install '.[peers]' && python examples/coming_from/from_mabwiser.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mabwiser.mab import MAB, LearningPolicy
from same_shop import ITEMS, SHELF, Visit, compare

from robandit import Bandit, Features

USERS = ["student", "parent", "builder"]


def theirs(visits: Sequence[Visit]) -> list[str]:
    """LinUCB with a model for each arm. It must be fitted before it predicts; zeros teach it nothing."""
    mab = MAB(arms=ITEMS, learning_policy=LearningPolicy.LinUCB(alpha=0.3), seed=1)
    contexts = dict(zip(USERS, np.eye(3)[:, None], strict=True))
    mab.fit(ITEMS, [0] * len(ITEMS), np.zeros((len(ITEMS), 3)))
    shown = []
    for visit in visits:
        item = mab.predict(contexts[visit.user])
        mab.partial_fit([item], [visit.click(item)], contexts[visit.user])
        shown.append(item)
    return shown


def ours(visits: Sequence[Visit]) -> list[str]:
    """A model for each arm is the arm's name crossed with the context."""
    shelf = [{"item": item} for item in ITEMS]
    return played(
        Features(action={"item": ITEMS}, context={"user": USERS}, crosses=[("item", "user")], id="item"), shelf, visits
    )


def shared(visits: Sequence[Visit]) -> list[str]:
    """One model for all arms, which are known by what they are: what is learnt of one tells of the others."""
    columns = {"category": ["books", "tools", "toys"], "price": (0, 50)}
    features = Features(action=columns, context={"user": USERS}, crosses=[("category", "user")], id="item")
    return played(features, SHELF, visits)


def played(features: Features, shelf: Sequence[dict[str, Any]], visits: Sequence[Visit]) -> list[str]:
    """The loop is the same for all features."""
    bandit, shown = Bandit(features=features, rewards="clicks", seed=1), []
    for visit in visits:
        pick = bandit.choose(shelf, context={"user": visit.user}, source=visit.source)
        bandit.learn(pick, visit.click(pick.id))
        shown.append(pick.id)
    return shown


if __name__ == "__main__":
    compare({"MABWiser": theirs, "ours": ours, "ours, shared": shared})
