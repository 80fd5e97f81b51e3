"""Which clothes a shop showed and which were clicked: the small Open Bandit logs (Saito et al. 2021)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.real.choices import read_table
from robandit.experiments.real.decisions import Decisions, Labels

_PLACES = ("2", "3")  # beside the first place on the page
_NAMES = (*(f"place {place}" for place in _PLACES), "item", "affinity")


def read_open_bandit(paths: list[Path]) -> Decisions:
    """Each log with its list of items, one after the other: 10 000 items shown each, some 50 of them clicked."""
    parts = [_read_log(log, items) for log, items in zip(paths[::2], paths[1::2], strict=True)]
    rewards = np.concatenate([rewards for _, rewards, _ in parts])
    keys = ("log", "user_feature_0", "user_feature_1")
    return Decisions(
        features=np.concatenate([features for features, _, _ in parts])[:, None],
        rewards=rewards[:, None],
        offered=np.ones((len(rewards), 1), dtype=bool),
        names=_NAMES,
        segments={key: np.concatenate([labels[key] for *_, labels in parts]) for key in keys},
    )


def _read_log(log: Path, items: Path) -> tuple[Floats, Floats, dict[str, Labels]]:
    table, shown = read_table(log), read_table(items)
    item = np.array(table["item_id"], dtype=int)
    worth = np.array(shown["item_feature_0"], dtype=float)  # rows stand in the order of the items
    affinities = np.array([table[f"user-item_affinity_{place}"] for place in range(len(worth))], dtype=float)
    columns = [np.array(table["position"]) == place for place in _PLACES]
    columns += [worth[item], np.log1p(affinities[item, np.arange(len(item))])]
    labels = {key: np.array(table[key]) for key in ("user_feature_0", "user_feature_1")}
    labels["log"] = np.full(len(item), f"{log.parent.parent.name}, {log.stem}")
    return np.stack(columns, axis=1).astype(float), np.array(table["click"], dtype=float), labels
