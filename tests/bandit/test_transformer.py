"""A scikit-learn transformer in the place of Features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from shops import products
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction import DictVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler

from robandit import Bandit

PAST = pd.DataFrame(products(np.random.default_rng(0), 200)).assign(age=np.arange(200) % 90)


def columns(sparse: bool) -> Any:
    return make_column_transformer(
        (StandardScaler(), ["price", "age"]),
        (OneHotEncoder(sparse_output=sparse), ["colour"]),
        verbose_feature_names_out=False,
        sparse_threshold=1.0 if sparse else 0.0,
    ).fit(PAST)


@pytest.mark.parametrize("sparse", [False, True])
def test_vectors_are_the_transformer_s_scaled_and_with_a_constant(sparse: bool) -> None:
    transformer, offered = columns(sparse), products(np.random.default_rng(1), 6)
    bandit = Bandit(features=transformer, action_bound=4.0, id="item", seed=1)
    assert bandit.features.names == ("price", "age", "colour_blue", "colour_green", "colour_red", "(constant)")
    pick = bandit.choose(offered, {"age": 40})
    made = transformer.transform(pd.DataFrame(offered).assign(age=40))
    made = made.toarray() if sparse else made
    slow = np.array([[*(row / 4.0), 1.0] for row in made]) / np.sqrt(2.0)
    np.testing.assert_allclose(pick.rows, slow)
    assert np.linalg.norm(slow, axis=1).max() <= 1.0 and pick.id in {one["item"] for one in offered}
    for frame in (pd.DataFrame(offered), pl.DataFrame(offered)):
        again = Bandit(features=columns(sparse), action_bound=4.0, id="item", seed=1)
        assert again.choose(frame, {"age": 40}).id == pick.id
    bandit.learn(pick, 1)
    change = bandit.estimate()["price"]
    one_more = slow[pick.index] + [1 / 4.0 / np.sqrt(2.0), 0, 0, 0, 0, 0]
    assert change == pytest.approx(float((one_more - slow[pick.index]) @ bandit.policy.estimate().center))
    assert set(bandit.explain(pick).contributions) <= set(bandit.features.names)


def test_dicts_go_to_a_transformer_of_dicts() -> None:
    past = PAST.drop(columns="item").to_dict("records")
    transformer = make_pipeline(DictVectorizer(), Normalizer()).fit(past)
    bandit = Bandit(features=transformer, id="price", seed=1)
    assert bandit.choose([{"price": 3.0, "colour": "red"}, {"price": 9.0, "colour": "blue"}], {"age": 4}).id in (
        3.0,
        9.0,
    )


def test_what_does_not_fit_is_refused_with_a_sentence() -> None:
    bandit = Bandit(features=columns(False), id="item", seed=1)
    with pytest.raises(
        ValueError, match=r"candidate 0 has a vector of length \d.*, and action_bound is 1: pass a larger"
    ):
        bandit.choose([{"item": "a", "price": 500.0, "colour": "red"}], {"age": 4})
    with pytest.raises(ValueError, match="fitted transformer with get_feature_names_out, got StandardScaler"):
        Bandit(features=StandardScaler())
    with pytest.raises(ValueError, match="context needs candidates with names: pass dicts or a frame"):
        Bandit(features=StandardScaler().fit([[1.0], [2.0]])).choose(np.ones((2, 1)), {"age": 1})


def test_a_transformer_is_passed_again_when_a_bandit_is_loaded(tmp_path: Path) -> None:
    offered, path = products(np.random.default_rng(1), 6), tmp_path / "bandit"
    bandit = Bandit(features=columns(False), action_bound=4.0, id="item", seed=1)
    bandit.learn(bandit.choose(offered, {"age": 40}), 1)
    bandit.save(path)
    loaded = Bandit.load(path, features=columns(False))
    assert loaded.estimate() == bandit.estimate()
    assert loaded.choose(offered, {"age": 40}).value == bandit.choose(offered, {"age": 40}).value
    with pytest.raises(ValueError, match="saved with a scikit-learn transformer, which is not in it: pass features="):
        Bandit.load(path)
    with pytest.raises(ValueError, match="was saved with the features"):
        Bandit.load(path, features=StandardScaler().fit(PAST[["price"]]))
    Bandit(seed=1).save(path)
    with pytest.raises(ValueError, match="holds its features: leave out features="):
        Bandit.load(path, features=columns(False))


def test_columns_may_come_in_any_order_and_with_ids() -> None:
    history = pd.DataFrame({"price": [1.0, 2.0, 4.0], "age": [30.0, 20.0, 50.0]})
    transformer = make_pipeline(StandardScaler(), Normalizer()).fit(history)
    bandit, age = Bandit(features=transformer, seed=1), {"age": 20.0}
    frame = pd.DataFrame({"age": [20.0, 20.0], "id": ["a", "b"], "price": [2.0, 4.0]})
    dicts = [{"id": "a", "price": 2.0}, {"id": "b", "price": 4.0}]
    expected = transformer.transform(pd.DataFrame({"price": [2.0, 4.0], "age": [20.0, 20.0]})) / 2**0.5
    for offered, context in ((frame, None), (dicts, age), (frame[["price", "id"]], age), (pl.DataFrame(dicts), age)):
        pick = bandit.choose(offered, context)
        assert pick.id in ("a", "b") and np.array_equal(pick.rows[:, :2], expected)
    for wrong in (pd.Series(age), pd.DataFrame([age]), [age]):
        with pytest.raises(ValueError, match="context must be one dict for all candidates"):
            bandit.choose(dicts, wrong)
