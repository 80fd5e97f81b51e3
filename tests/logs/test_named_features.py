"""An audit of columns as people have them, encoded by a file of features."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from robandit.cli import main
from robandit.errors import ConfigError
from robandit.features import Features
from robandit.features.columns import Numeric
from robandit.logs.audit import Audit, AuditSettings, audit
from robandit.logs.audit.page import build

CLICKS = AuditSettings(reward_range=(0.0, 1.0), misspecification=0.0, looks=4)


def features() -> Features:
    price = Numeric.between("price", 0, 50, missing=True)
    return Features(
        action={"price": price, "category": ["a", "b", "c"], "new": bool, "item": 8},
        context={"age": (18, 80)},
        source={"affiliate": ["x", "y"]},
        crosses=[("affiliate", "category")],
    )


def columns(number: int, seed: int = 0) -> dict[str, list[Any]]:
    rng = np.random.default_rng(seed)
    found: dict[str, list[Any]] = {
        "price": rng.uniform(0, 50, number).round(2).tolist(),
        "category": rng.choice(list("abc"), number).tolist(),
        "new": rng.choice([True, False], number).tolist(),
        "item": rng.integers(0, 40, number).tolist(),
        "age": rng.integers(18, 80, number).tolist(),
        "affiliate": rng.choice(["x", "y"], number).tolist(),
    }
    liked = {"a": 0.4, "b": 0.2, "c": 0.1}
    rate = np.array([liked[one] for one in found["category"]]) + 0.004 * np.array(found["price"])
    return found | {"click": (rng.random(number) < rate).astype(int).tolist()}


def write(path: Path, log: dict[str, list[Any]]) -> Path:
    rows = [dict(zip(log, row, strict=True)) for row in zip(*log.values(), strict=True)]
    if path.suffix == ".ndjson":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif path.suffix == ".parquet":
        pq.write_table(pa.table(log), path)
    else:
        pyarrow.csv.write_csv(pa.table(log), path)
    return path


def audited(path: Path, settings: AuditSettings = CLICKS, **more: Any) -> Audit:
    file = path.with_name("features.json")
    features().save(file)
    return audit(path, settings, features=str(file), reward="click", **more)


@pytest.mark.no_cover
def test_it_is_an_audit_of_the_vectors(tmp_path: Path) -> None:
    """What is found by the file of features is what is found in its vectors, to the last bit, in any format."""
    log = columns(1500)
    log["click"][750:] = [1 - click for click in log["click"][750:]]
    vectors = features().rows({name: cells for name, cells in log.items() if name != "click"})
    plain = write(tmp_path / "vectors.parquet", {"features": vectors.tolist(), "click": log["click"]})
    wanted = audit(plain, CLICKS, reward="click")
    for format_ in ("csv", "ndjson", "parquet"):
        found = audited(write(tmp_path / f"log.{format_}", log))
        assert found.certificate == wanted.certificate and found.certificate.lower_bound > 2.0
        assert (found.dim, found.rows, found.bad.count) == (features().dim, 1500, 0)
        page = build(found)
        assert all(name.replace("&", "&amp;") in page for name in features().names) and "features.json" in page
    again = audited(plain)  # as the service logs them: vectors that were made by the same file
    assert again.certificate == wanted.certificate and "category=(unseen)" in build(again)


@pytest.mark.parametrize("name", ["log.csv", "log.ndjson"])
def test_what_is_wrong_is_left_out_and_what_is_unusual_is_counted(tmp_path: Path, name: str) -> None:
    log = columns(400)
    log["price"] = [None if place == 3 else price for place, price in enumerate(log["price"])]
    log["price"] = [str(price) if price is not None else None for price in log["price"]]
    log["price"][5], log["price"][6] = "cheap", "99"
    log["category"][7] = "d"
    log["new"] = [str(one) for one in log["new"]]
    log["new"][8] = "perhaps"
    log["age"] = [str(one) for one in log["age"]]
    log["age"][9] = ""
    log["click"][10] = 55
    found = audited(write(tmp_path / name, log))
    reasons = {reason: [row for row, _ in rows.examples] for reason, rows in found.bad.reasons()}
    assert sorted(row for rows in reasons.values() for row in rows) == [6, 9, 10, 11]
    assert reasons["the reward is beyond the declared range from 0 to 1"] == [11]
    assert found.columns.described is not None
    assert found.columns.described.counts == {"price": {"missing": 1, "clipped": 1}, "category": {"unseen": 1}}
    assert "1 unseen of category" in build(found)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"action": {"prize": (0, 50)}}, "no column 'prize' (--features"),
    ({"action": {"click": bool}}, "the column 'click' of"),
    ({"action": {"price": (0, 50)}, "centre": "set"}, "has centre='set', which needs whole decision sets"),
    ({"action": {"price": float}}, "still learn their scales: freeze() them"),
]


@pytest.mark.parametrize(("schema", "sentence"), WRONG, ids=[sentence for _, sentence in WRONG])
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, schema: dict[str, Any], sentence: str) -> None:
    file = tmp_path / "other.json"
    Features(**schema).save(file)
    with pytest.raises(ConfigError) as caught:
        audit(write(tmp_path / "log.csv", columns(50)), CLICKS, features=str(file), reward="click")
    assert sentence in str(caught.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = write(tmp_path / "log.csv", columns(2000)), tmp_path / "features.json"
    features().save(file)
    words = ["audit", str(path), "--features", str(file), "--reward", "click", "--rewards", "clicks"]
    assert main([*words, "--source", "affiliate", "--misspecification", "0"]) == 0
    assert "No corruption is proved" in capsys.readouterr().out
    page = (tmp_path / "log-audit.html").read_text(encoding="utf-8")
    assert "affiliate=x × category=a" in page and "--rewards=0.0,1.0" in page
    file.write_text(file.read_text(encoding="utf-8").replace('"a"', '"z"'), encoding="utf-8")
    assert main([*words, "--force"]) == 1 and "edited or cut" in capsys.readouterr().err
    file.unlink()
    assert main([*words, "--force"]) == 1
    packed = tmp_path / "log.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    features().save(file)
    words[1] = str(packed)
    assert main([*words, "--force"]) == 0
