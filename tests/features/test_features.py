"""Features: the slow encoder's numbers, one answer for every kind of table, norms that hold, whole files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_encoder import matrix

from robandit import Features
from robandit.features import Boolean, Categorical, Hashed, Numeric

COLOURS = ["red", "blue", "7"]
NUMBERS = st.one_of(st.floats(-1e6, 1e6), st.integers(-1000, 1000), st.none(), st.just(float("nan")))
RECORDS = st.fixed_dictionaries(
    {
        "price": NUMBERS,
        "size": st.floats(-1e12, 1e12),
        "colour": st.sampled_from([*COLOURS, "green", " red ", 7, 7.0, None, ""]),
        "user": st.one_of(st.text("abc", min_size=1), st.integers(0, 99)),
        "new": st.sampled_from([True, False, "true", "no"]),
        "age": st.floats(0, 120),
        "shop": st.sampled_from(["north", "south", "west"]),
        "more": st.text(),
    }
)
CROSSES = [("age", "price"), ("shop", "colour"), ("age", "user")]


def schema(**settings: Any) -> Features:
    return Features(
        **{
            "action": [
                Numeric("price", centre=3.0, scale=2.5, missing=True),
                Categorical("colour", levels=tuple(COLOURS)),
                Numeric.between("size", -1e9, 1e9),
                Hashed("user", buckets=5),
                Boolean("new"),
            ],
            "context": {"age": (0, 100)},
            "source": {"shop": ["north", "south"]},
            "crosses": CROSSES,
            **settings,
        }
    )


def history(number: int, seed: int = 1) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {
            "item": f"i{i % 50}",
            "price": round(float(rng.gamma(3.0, 4.0)), 2),
            "colour": str(rng.choice(["red", "blue", "green"], p=[0.6, 0.3, 0.1])),
            "new": bool(rng.random() < 0.3),
            "age": int(rng.integers(18, 80)),
            "shop": str(rng.choice(["north", "south"])),
            "visit": i // 4,
            "click": int(rng.random() < 0.1),
        }
        for i in range(number)
    ]


# The slow encoder's numbers, in every way.


@pytest.mark.no_cover
@given(records=st.lists(RECORDS, min_size=1, max_size=6), centred=st.booleans())
@settings(max_examples=60, deadline=None)
def test_vectors_are_those_of_the_slow_encoder(records: list[dict[str, Any]], centred: bool) -> None:
    features = schema(centre="set" if centred else None, action_bound=2.0)
    slow = np.array(matrix(records, features, CROSSES, ["shop", "age"] if centred else ["shop"]))
    if centred:
        slow = (slow - slow.mean(axis=0)) / 2.0
    found = features.encode(records)
    np.testing.assert_allclose(found, slow, rtol=1e-9, atol=1e-11)
    assert found.flags.c_contiguous
    assert np.linalg.norm(found, axis=1).max() <= 2.0


@given(records=st.lists(RECORDS, min_size=1, max_size=6))
@settings(max_examples=40, deadline=None)
def test_one_record_is_the_same_row_of_every_table(records: list[dict[str, Any]]) -> None:
    """Bit for bit: alone with the context apart, among others, as a dict of columns and in a long table."""
    features = schema()
    table = features.rows(records)
    assert np.array_equal(features.encode(records), table)
    assert np.array_equal(features.rows({name: [record[name] for record in records] for name in records[0]}), table)
    for record, row in zip(records, table, strict=True):
        alone = {name: value for name, value in record.items() if name not in ("age", "shop")}
        assert np.array_equal(features.encode([alone], {"age": record["age"]}, record["shop"])[0], row)


@given(data=st.data(), bound=st.floats(1e-3, 1e3), number=st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_no_vector_is_longer_than_the_bound(data: st.DataObject, bound: float, number: int) -> None:
    past, now = (
        {name: data.draw(st.lists(st.floats(-most, most), min_size=number, max_size=number)) for name in "ab"}
        for most in (1e90, 1e300)
    )
    for centre in (None, "set"):
        features = Features.fit(past, action=["a", "b"], centre=centre, action_bound=bound)
        found = features.encode(now)
        assert np.isfinite(found).all() and np.linalg.norm(found, axis=1).max() <= bound


def test_the_quick_way_is_the_general_way() -> None:
    """On records with nothing unusual, which the quick way takes, and with something, which it passes on."""
    rows = history(40)
    features = Features.fit(history(200), context=["age"], source="shop", id="item", reward="click", decision="visit")
    assert features._encoder._quickly(rows, None, None) is not None
    odd = [*rows[:3], rows[3] | {"price": 1e9}, rows[4] | {"colour": "pink"}]
    assert features._encoder._quickly(odd, None, None) is None
    assert np.array_equal(features.encode(rows), features.rows(rows))
    assert features.counts == {}
    features.encode(odd)
    assert features.counts == {"price": {"clipped": 1}, "colour": {"unseen": 1}}


def test_arrays_and_ids() -> None:
    past = np.random.default_rng(0).normal(5.0, [1.0, 100.0], (200, 2))
    features = Features.fit(past)
    assert features.names == ("x0", "x1", "(constant)")
    assert np.array_equal(features.encode(past[:3]), features.rows(past)[:3])
    ids = Features.fit(history(100), id="item", action=["item"], kinds={"item": "categorical"})
    assert ids.dim == 52
    assert np.array_equal(ids.encode(["i3", "i4"]), ids.encode([{"item": "i3"}, {"item": "i4"}]))
    free = Features(id="item")
    assert free.dim == 33 and free.encode([1, 2, "x"]).shape == (3, 33)


# What a fit guesses.


def test_a_fit_guesses_columns() -> None:
    rows = history(300)
    for place, row in enumerate(rows):
        row |= {"user_id": place, "note": f"text {place}", "same": 1, "sku": f"s{place % 60}"}
        row["price"] = None if place % 10 == 0 else str(row["price"])  # as csv.DictReader has it
    features = Features.fit(rows, id="item", reward="click", source="shop", decision="visit")
    assert [(type(c).__name__, c.name) for c in features.columns] == [
        ("Numeric", "price"),
        ("Boolean", "new"),
        ("Numeric", "age"),
        ("Categorical", "colour"),
        ("Hashed", "sku"),
    ]
    price, colour = features.columns[0], features.columns[3]
    assert isinstance(price, Numeric) and isinstance(colour, Categorical)
    assert price.missing and colour.levels == ("red", "blue", "green")
    assert set(features.left_out) == {"user_id", "note", "same"}
    assert not {"item", "click", "shop", "visit"} & {name.split("=")[0] for name in features.names}
    values = [float(row["price"]) for row in rows if row["price"]]
    assert price.centre == pytest.approx(np.mean(values)) and price.scale == pytest.approx(
        max(np.std(values), (max(values) - np.mean(values)) / 4)
    )


def test_a_fit_crosses_context_with_actions_and_sources_on_request() -> None:
    rows = history(200)
    features = Features.fit(rows, action=["price", "colour"], context=["age"], reward="click", source="shop")
    assert "age × price" in features.names and "age × colour=red" in features.names
    asked = Features.fit(rows, action=["price", "colour"], source="shop", crosses=[("shop", "colour")])
    assert "shop=north × colour=red" in asked.names and "shop=north" not in asked.names
    wide = [row | {"sku": f"s{place % 80}", "user": f"u{place % 70}"} for place, row in enumerate(rows)]
    with pytest.raises(ValueError, match=r"makes 1088 features, and 256 are the most .* crosses=\[\('user', 'sku'\)"):
        Features.fit(wide, action=["sku"], context=["user"])


# Files.


@pytest.mark.no_cover
@given(records=st.lists(RECORDS, min_size=1, max_size=4))
@settings(max_examples=20, deadline=None)
def test_json_round_trips_bit_for_bit(records: list[dict[str, Any]]) -> None:
    for features in (schema(), schema(centre="set"), Features.fit(history(60), context=["age"], crosses=())):
        again = Features.from_json(features.to_json())
        assert again.to_json() == features.to_json() and again.names == features.names
        assert again.parameter_bound(0, 1) == features.parameter_bound(0, 1)
    assert np.array_equal(Features.from_json(schema().to_json()).encode(records), schema().encode(records))


def test_a_file_that_was_cut_or_edited_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "features.json"
    features = Features.fit(history(50), id="item", action=["price", "colour"])
    features.save(path)
    assert Features.load(path).to_json() == features.to_json()
    whole = path.read_text(encoding="utf-8")
    for place in range(0, len(whole) - 2, 97):
        path.write_text(whole[:place], encoding="utf-8")
        with pytest.raises(ValueError, match="features.json: this is no whole JSON"):
            Features.load(path)
    content = json.loads(whole)
    for key, other, said in (
        ("features", content["features"] | {"intercept": False}, "edited or cut"),
        ("sha256", "0", "edited or cut"),
        ("version", 2, "have version 2, and this release reads 1"),
        ("format", "else", "no JSON of features"),
    ):
        with pytest.raises(ValueError, match=said):
            Features.from_json(json.dumps(content | {key: other}))
