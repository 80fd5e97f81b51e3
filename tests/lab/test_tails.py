"""Quantiles and the mean of the worst 1 % of trials, against NumPy's on a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robandit.lab.summary import summary
from robandit.lab.tails import LEVELS, spread

pa = pytest.importorskip("pyarrow")


def test_the_worst_hundredth_is_a_mean_over_trials_and_the_worst_trial_of_a_few() -> None:
    rng = np.random.default_rng(1)
    values = rng.exponential(size=(3, 250))
    found = spread(values)
    assert found.worst == pytest.approx([np.mean(sorted(row)[-3:]) for row in values])  # ⌈2.5⌉ of 250
    assert spread(values[:, :7]).worst == pytest.approx(values[:, :7].max(axis=1))
    assert found.quantile(0.9) == pytest.approx(np.quantile(values, 0.9, axis=1))


def test_the_summary_tells_the_spread_at_every_checkpoint_whatever_the_order_of_the_rows() -> None:
    rng = np.random.default_rng(2)
    rows: list[dict[str, Any]] = [
        {"policy": policy, "round": round_, "trial": trial, "regret": round_ * rng.exponential(), "C": limit}
        for limit in (4.0, None)
        for policy in "ab"
        for trial in range(40)
        for round_ in (1, 10, 100)
    ]
    for row in rows:
        row |= {"environment": "e", "attack": "flip", "strength": "weak", "c_sup": 0.0, "c_play": 0.0}
    table = pa.Table.from_pylist([rows[place] for place in rng.permutation(len(rows))])
    for case, policies in summary(table).items():
        for policy, curve in policies.items():
            for place, round_ in enumerate((1, 10, 100)):
                mine = [r["regret"] for r in rows
                        if (r["C"], r["policy"], r["round"]) == (case.corruption, policy, round_)]  # fmt: skip
                assert curve.spread.quantiles[place] == pytest.approx(np.quantile(mine, LEVELS))
                assert curve.spread.worst[place] == max(mine)
                assert curve.mean[place] == pytest.approx(np.mean(mine))
