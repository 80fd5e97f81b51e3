"""What people have: tables of every kind with gaps and oddities, and columns that make no sense."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from robandit import Features
from robandit.features import Boolean, Categorical, Growing, Hashed, Numeric

COLUMNS: dict[str, list[Any]] = {
    "price": [1.0, None, 3.0, 40.0],
    "stock": [1, 2, 3, 4],
    "colour": ["red", "green", None, "red"],
    "new": [True, False, True, True],
}


def features() -> Features:
    return Features(
        action=[
            Numeric("price", centre=5.0, scale=5.0, missing=True),
            Numeric.between("stock", 0, 10),
            Categorical("colour", levels=("red", "(missing)")),
            Boolean("new"),
        ]
    )


def frames() -> dict[str, Any]:
    """The same table as every library has it, with each one's idea of a gap."""
    pandas = pd.DataFrame(COLUMNS)
    return {
        "dict": COLUMNS,
        "records": [dict(zip(COLUMNS, row, strict=True)) for row in zip(*COLUMNS.values(), strict=True)],
        "csv": [
            {name: "" if cell is None else str(cell) for name, cell in zip(COLUMNS, row, strict=True)}
            for row in zip(*COLUMNS.values(), strict=True)
        ],
        "pandas": pandas,
        "pandas, nullable": pandas.convert_dtypes(),
        "pandas, categories": pandas.astype({"colour": "category"}),
        "pandas, Arrow": pandas.convert_dtypes(dtype_backend="pyarrow"),
        "polars": pl.DataFrame(COLUMNS),
        "polars, categories": pl.DataFrame(COLUMNS).with_columns(pl.col("colour").cast(pl.Categorical)),
        "arrow": pa.table(COLUMNS),
        "arrow, dictionary": pa.table({**COLUMNS, "colour": pa.array(COLUMNS["colour"]).dictionary_encode()}),
    }


@pytest.mark.parametrize("kind", frames())
def test_every_library_s_table_gives_the_same_vectors(kind: str) -> None:
    known = features()
    factor = 1.0 / np.sqrt(16.0 + 1.0 + 1.0 + 1.0 + 1.0)
    slow = [  # price, price missing, stock, new, red, (missing), (unseen), constant
        [-0.8, 0, -0.8, 1, 1, 0, 0, 1],
        [0, 1, -0.6, -1, 0, 0, 1, 1],
        [-0.4, 0, -0.4, 1, 0, 1, 0, 1],
        [4, 0, -0.2, 1, 1, 0, 0, 1],
    ]
    np.testing.assert_allclose(known.rows(frames()[kind]), np.array(slow) * factor, rtol=1e-9)
    assert known.counts == {
        "price": {"missing": 1, "clipped": 1},
        "colour": {"unseen": 1, "missing": 1},
    }
    fitted = Features.fit(frames()[kind])
    assert [column.name for column in fitted.columns] == ["price", "stock", "new", "colour"]
    assert np.array_equal(fitted.rows(frames()[kind]), Features.fit(COLUMNS).rows(COLUMNS))


def test_an_array_has_names_by_place() -> None:
    rows = np.arange(6.0).reshape(3, 2)
    known = Features(action={"price": (0, 5), "stock": (0, 5)})
    assert np.array_equal(known.rows(rows), known.rows({"price": rows[:, 0], "stock": rows[:, 1]}))
    with pytest.raises(ValueError, match="an array must have the columns price, stock, got 3"):
        known.rows(np.ones((2, 3)))
    with pytest.raises(
        ValueError, match=r"rows must be dicts, a frame, a dict of columns or an array \(n, d\), got int 7"
    ):
        known.rows(7)


def test_a_context_may_be_a_row_of_a_frame() -> None:
    known = Features(action={"price": (0, 50)}, context={"age": (0, 100)}, crosses=[("age", "price")])
    offered = [{"price": 10}, {"price": 20}]
    expected = known.encode(offered, {"age": 30})
    for context in (pd.DataFrame({"age": [30]}), pl.DataFrame({"age": [30]}), [30], np.array([[30]])):
        assert np.array_equal(known.encode(offered, context), expected)
    with pytest.raises(ValueError, match="a context must be one row for all candidates, got 2"):
        known.encode(offered, pd.DataFrame({"age": [30, 40]}))


@pytest.mark.parametrize(
    ("history", "settings", "sentence"),
    [
        ({"a": []}, {}, "the history has no rows"),
        ({"a": [1, 1]}, {}, "no column is fit to be a feature: {'a': 'it is the same in all rows'}"),
        ({"when": [datetime.date(2026, 1, day) for day in (1, 2)]}, {}, "it holds values such as datetime.date"),
        ({"a": [1, 2]}, {"context": "a"}, r"context must be a list of columns, got the text 'a': write \['a'\]"),
        ({"a": [1, 2]}, {"kinds": {"a": "number"}}, "the kind of 'a' must be one of .*, got 'number'"),
        ({"a": [1, 2]}, {"kinds": {"a": 3}}, "the kind of 'a' must be one of .*, got 3"),
        ({"a": [1, 1e95]}, {}, r"a must lie within ±1e\+90 to have a scale, got 1e\+95"),
        ({"a": [1, 2]}, {"crosses": ["ab"]}, "a cross must be two names of columns, got 'ab'"),
        ({"a": [1, 2]}, {"crosses": [("a", "b")]}, r"the cross \('a', 'b'\) names no column 'b'"),
        ({"a": [1, 2]}, {"centre": "mean"}, "centre must be None or 'set', got 'mean'"),
        ({"a": [1, 2]}, {"centre": "set", "intercept": True}, "takes away what all actions of a set share"),
        ({"a": [1, 2], "b": [3]}, {}, "a dict must hold columns of one length"),
    ],
)
def test_a_history_that_makes_no_sense(history: Any, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Features.fit(history, **settings)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Numeric("a", centre=1.0), "a: give centre and scale, or neither to learn them"),
        (lambda: Numeric("a", centre=float("nan"), scale=1.0), "a: centre must be a finite number, got nan"),
        (lambda: Numeric("", centre=1.0, scale=1.0), "a column's name must be text, got ''"),
        (lambda: Categorical("a", levels=()), r"a: levels must be labels, at least one, got \(\)"),
        (lambda: Categorical("a", levels=("x", 7, "7")), "a: the level '7' is there twice"),  # type: ignore[arg-type]
        (lambda: Growing("a", slots=1, levels=("x", "y")), "a: levels must be different and at most 1"),
        (lambda: Features(action="price"), "action must be a list of columns, got the text 'price'"),  # type: ignore[arg-type]
        (lambda: Features(action=["price"]), r"action must hold columns such as Numeric\('price'\)"),  # type: ignore[list-item]
        (lambda: Features(action={"a": float}, context={"a": float}), "the column 'a' is there twice"),
        (lambda: Features(intercept=False), "there are no features: name at least one column, or an id"),
        (lambda: Features(action={"a": (0, 1)}).parameter_bound(1, 0), "low must be at most high, got 1 and 0"),
        (lambda: Features(action={"a": (0, 1)}).explain([1, 2, 3]), r"parameter must have shape \(2,\), got \(3,\)"),
        (
            lambda: Features(action={"a": (0, 1)}, centre="set").rows({"a": [1]}),
            "centre='set' needs whole decision sets",
        ),
        (lambda: Features(action={"a": bool}).encode([{"a": "maybe"}]), "a must be true or false, got 'maybe'"),
        (lambda: Features(action={"a": (0, 1)}).encode([{"a": 10**400}]), "a must be finite"),
        (lambda: Features(action={"a": (0, 1)}).encode([{"a": 1}, {}]), "candidate 1 has no 'a'"),
    ],
)
def test_columns_that_make_no_sense(make: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make()


def test_short_words_for_columns() -> None:
    known = Features(action={"a": int, "b": 8, "c": str, "d": bool, "e": Hashed("e", buckets=4), "f": ("x", "y")})
    kinds = {column.name: type(column).__name__ for column in known.columns}
    assert kinds == {"a": "Numeric", "d": "Boolean", "b": "Hashed", "c": "Hashed", "e": "Hashed", "f": "Categorical"}
    assert known.dim == 1 + 1 + 8 + 32 + 4 + 3 + 1


def test_labels_in_bytes_and_numbers() -> None:
    known = Features(action={"a": ["red", "7", "0.5", "1"]}, intercept=False)
    found = known.encode([{"a": cell} for cell in (b"red", np.float64(7), 0.5, True, b"  ")])
    assert found.argmax(axis=1).tolist() == [0, 1, 2, 3, 4] and known.counts["a"] == {"missing": 1}


@pytest.mark.parametrize("unit", ["D", "s", "us", "ns"])
def test_dates_in_a_frame_are_those_of_records(unit: str) -> None:
    days = np.array(["2020-01-01", "2020-01-02", "NaT"], f"M8[{unit}]")
    known = Features(action={"day": ["2020-01-01 00:00:00", "2020-01-02 00:00:00", None]})
    records = [{"day": pd.Timestamp("2020-01-01")}, {"day": pd.Timestamp("2020-01-02")}, {"day": None}]
    assert np.array_equal(known.encode(pd.DataFrame({"day": days})), known.encode(records))
    with pytest.raises(ValueError, match=r"candidate 0: day must be a number, got datetime"):
        Features(action={"day": float}).encode(pd.DataFrame({"day": days}))


def test_a_column_that_is_there_twice_is_refused_where_it_matters() -> None:
    twice = [
        pd.DataFrame([[0.1, 0.2, 0.3]], columns=["p", "p", "q"]),
        pa.table([pa.array([0.1]), pa.array([0.2]), pa.array([0.3])], names=["p", "p", "q"]),
    ]
    for table in twice:
        with pytest.raises(ValueError, match="the table has 2 columns 'p': rename or drop all but one"):
            Features(action={"p": (0, 1)}).encode(table)
        assert Features(action={"q": (0, 1)}).encode(table).shape == (1, 2)
    with pytest.raises(ValueError, match="the table has 2 columns '1'"):
        Features(action={"1": (0, 1)}).encode(pd.DataFrame([[0.1, 0.2]], columns=[1, "1"]))


def test_a_lazy_frame_has_to_be_collected() -> None:
    with pytest.raises(ValueError, match=r"pass what its collect\(\) gives"):
        features().encode(pl.DataFrame(COLUMNS).lazy())


def test_one_infinite_number_makes_no_labels_of_a_column() -> None:
    records = [{"price": float(price)} for price in range(20)] + [{"price": float("inf")}]
    with pytest.raises(ValueError, match="row 20: price must be finite"):
        Features.fit(records)


@pytest.mark.parametrize("gap", [None, float("nan"), ""])
def test_a_row_of_no_decision_is_refused(gap: Any) -> None:
    history = {"round": [1, 1, gap, 2], "price": [1.0, 2.0, 3.0, 4.0]}
    with pytest.raises(ValueError, match="row 2: round is missing"):
        Features(action={"price": (0, 5)}, centre="set").rows(history, decision="round")


@pytest.mark.parametrize("before", [[], [1.0, 2.0]])
def test_a_number_too_large_for_a_scale_is_refused_as_it_comes(before: list[float]) -> None:
    learning = Features(action={"price": float})
    for price in before:
        learning.encode([{"price": price}])
    known = learning.to_json()
    with pytest.raises(ValueError, match=r"price must lie within ±1e\+90 to have a scale, got 1e\+200"):
        learning.encode([{"price": 1e200}, {"price": 1.0}])
    assert learning.to_json() == known
