"""A program for Vowpal Wabbit, and the same for robandit.

pip install '.[peers]' && python examples/coming_from/from_vowpal_wabbit.py
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from same_shop import SHELF, Visit, compare
from vowpalwabbit import Workspace

from robandit import Bandit, Features


def theirs(visits: Sequence[Visit]) -> list[str]:
    """SquareCB over user × action, in Vowpal Wabbit's text format."""
    vw = Workspace("--cb_explore_adf --squarecb --gamma_scale 30 -q UA --quiet --random_seed 1")
    rng, shown = np.random.default_rng(1), []
    for visit in visits:
        lines = [f"shared |User {visit.user}"]
        lines += [f"|Action {one['item']} {one['category']} price:{one['price'] / 50}" for one in SHELF]
        chances = np.array(vw.predict(lines))
        index = rng.choice(len(SHELF), p=chances / chances.sum())
        shown.append(SHELF[index]["item"])
        cost = -visit.click(shown[-1])
        lines[1 + index] = f"0:{cost}:{chances[index]} {lines[1 + index]}"
        vw.learn(lines)
    return shown


def ours(visits: Sequence[Visit]) -> list[str]:
    """The namespaces become columns of the action and the context, and -q UA becomes crosses."""
    features = Features(
        action={"category": ["books", "tools", "toys"], "price": (0, 50)},
        context={"user": ["student", "parent", "builder"]},
        crosses=[("user", "category"), ("user", "price")],
        id="item",
    )
    bandit, shown = Bandit(features=features, rewards="clicks", seed=1), []
    for visit in visits:
        pick = bandit.choose(SHELF, context={"user": visit.user}, source=visit.source)
        bandit.learn(pick, visit.click(pick.id))
        shown.append(pick.id)
    return shown


if __name__ == "__main__":
    compare({"Vowpal Wabbit": theirs, "ours": ours})
