"""A bandit that people build on scikit-learn by hand, and the same for robandit.

pip install '.[peers]' && python examples/coming_from/from_scikit_learn.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from same_shop import SHELF, Visit, compare
from sklearn.compose import make_column_transformer
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures

from robandit import Bandit

USERS = ["student", "parent", "builder"]
SHELVES = {user: pd.DataFrame(SHELF).assign(user=user) for user in USERS}
"""The products as each user is offered them."""


def vectors() -> Any:
    """Labels become columns of 0 and 1, prices become shares, and every two columns are crossed."""
    columns = make_column_transformer((OneHotEncoder(), ["user", "category"]), (MinMaxScaler(), ["price"]))
    return make_pipeline(columns, PolynomialFeatures(interaction_only=True, include_bias=False)).fit(
        pd.concat(SHELVES.values())
    )


def theirs(visits: Sequence[Visit]) -> list[str]:
    """A logistic regression that learns by `partial_fit`, and plays at random in one visit of twenty."""
    rows = {user: vectors().transform(shelf) for user, shelf in SHELVES.items()}
    model, rng, shown = (
        SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.05, random_state=1),
        np.random.default_rng(1),
        [],
    )
    model.partial_fit(rows["parent"][:2], [0, 1], classes=[0, 1])  # it can't predict before it has seen both
    for visit in visits:
        scores = model.decision_function(rows[visit.user])
        index = int(rng.integers(len(SHELF)) if rng.random() < 0.05 else scores.argmax())
        shown.append(SHELF[index]["item"])
        model.partial_fit(rows[visit.user][index : index + 1], [visit.click(shown[-1])])
    return shown


def ours(visits: Sequence[Visit]) -> list[str]:
    """The fitted transformer stays; exploring, weighing and doubting are the bandit's business."""
    bandit, shown = Bandit(features=vectors(), action_bound=2.5, id="item", rewards="clicks", seed=1), []
    for visit in visits:
        pick = bandit.choose(SHELVES[visit.user], source=visit.source)
        bandit.learn(pick, visit.click(pick.id))
        shown.append(pick.id)
    return shown


if __name__ == "__main__":
    compare({"scikit-learn, by hand": theirs, "ours": ours})
