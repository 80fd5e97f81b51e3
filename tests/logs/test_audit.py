"""Any log in, one page out: the same verdict from every format, every bad row accounted for, every bad file refused."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow")
import pyarrow.parquet as pq  # noqa: E402
from test_html import BROWSER, HARNESS, Tree, browse, pictures  # noqa: E402

from robandit import CorruptionMonitor, cli  # noqa: E402
from robandit.errors import ConfigError  # noqa: E402
from robandit.features.scaling import Scaling  # noqa: E402
from robandit.logs.audit import Audit, AuditSettings, audit, auditing  # noqa: E402
from robandit.logs.audit.cells import LARGEST, floats, moments, number, texts  # noqa: E402
from robandit.logs.audit.page import build, drawable  # noqa: E402
from robandit.logs.audit.settings import LEARNED  # noqa: E402
from robandit.logs.audit.tables import BadRows, open_log  # noqa: E402
from robandit.monitor.sources import OTHERS  # noqa: E402
from thinned import longer, thinned  # noqa: E402

DIM = 5
NOISE = 0.05
SETTINGS = AuditSettings(noise=NOISE, sources=100)
BAD = "partner-13"


def feedback(rounds: int, fraud: float = 0.3, seed: int = 1, sources: int = 20) -> dict[str, list[Any]]:
    """The columns of a log in which one source flips some of its rewards."""
    rng = np.random.default_rng(seed)
    actions = rng.uniform(-1.0, 1.0, (rounds, DIM)) / DIM**0.5
    parameter = rng.standard_normal(DIM)
    rewards = actions @ (0.9 * parameter / np.linalg.norm(parameter)) + rng.normal(0.0, NOISE, rounds)
    labels = [f"partner-{place}" for place in rng.integers(0, sources, rounds)]
    flipped = (np.array(labels) == BAD) & (rng.random(rounds) < fraud)
    columns: dict[str, Any] = {f"x{place}": actions[:, place].tolist() for place in range(DIM)}
    columns["reward"] = np.where(flipped, -rewards, rewards).tolist()
    return columns | {"source": labels, "at": list(range(100, 100 + rounds))}


def rows_of(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def save(path: Path, columns: dict[str, list[Any]]) -> Path:
    """A log in the format of its suffix."""
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path)
        return path
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8", newline="") as file:
        if ".csv" in path.name:
            writer = csv.writer(file)
            writer.writerow(columns)
            for row in rows_of(columns):
                writer.writerow(json.dumps(cell) if isinstance(cell, list) else cell for cell in row.values())
        else:
            file.writelines(json.dumps(row) + "\n" for row in rows_of(columns))
    return path


def run(*arguments: object) -> int:
    return cli.main(["audit", *map(str, arguments)])


@pytest.fixture(scope="module")
def columns() -> dict[str, list[Any]]:
    return feedback(3000)


@pytest.fixture(scope="module")
def found(columns: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory) -> Audit:
    path = save(tmp_path_factory.mktemp("log") / "log.parquet", columns)
    return audit(path, replace(SETTINGS, misspecification=0.0), source="source", time="at")


@pytest.fixture(scope="module")
def few() -> dict[str, list[Any]]:
    """Few rows from two sources, of which one flips all of its rewards: what they prove is soon found."""
    log = feedback(300, fraud=1.0, sources=14)
    return log | {"source": [label if label == BAD else "partner-0" for label in log["source"]]}


@pytest.fixture(scope="module")
def short(few: dict[str, list[Any]], tmp_path_factory: pytest.TempPathFactory) -> Audit:
    path = save(tmp_path_factory.mktemp("log") / "short.parquet", few)
    found = audit(path, replace(SETTINGS, looks=10), source="source", time="at")
    assert found.certificate.lower_bound > 0.0
    return found


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Audit:
    path = save(tmp_path_factory.mktemp("log") / "clean.parquet", feedback(1500, fraud=0.0))
    return audit(path, SETTINGS, source="source")


# What is proved


@pytest.mark.no_cover
def test_the_fraudulent_source_is_named_first(found: Audit) -> None:
    assert found.certificate.lower_bound > 1.0
    assert found.certificate.suspect == BAD and f"All sources but {BAD} agree" in found.certificate.sentence
    assert found.sources[0].name == BAD and found.sources[0].placed == pytest.approx(
        found.certificate.sources[0].placed
    )
    assert found.certificate.sources[0].name == BAD
    assert sum(source.rows for source in found.sources) == 3000 == found.certificate.rounds + LEARNED
    assert found.alarm is not None and found.alarm.round == found.certificate.alarm
    assert found.alarm.time == str(99 + LEARNED + found.alarm.round)


def test_the_means_are_those_of_the_log(found: Audit, columns: dict[str, list[Any]]) -> None:
    rewards, labels = np.array(columns["reward"]), np.array(columns["source"])
    for source in found.sources:
        assert source.mean == pytest.approx(rewards[labels == source.name].mean())
        assert source.rows == (labels == source.name).sum()


def test_a_clean_log_proves_nothing(clean: Audit) -> None:
    assert clean.certificate.lower_bound == 0.0 and clean.alarm is None
    assert "No corruption is proved" in clean.certificate.sentence


@pytest.mark.no_cover
def test_it_is_what_the_monitor_says(found: Audit, columns: dict[str, list[Any]]) -> None:
    settings: dict[str, Any] = {"misspecification": found.tolerance, "delta": 0.04}
    monitor = CorruptionMonitor(dim=DIM + 1, noise=NOISE, sources=100, **settings)
    rows = np.column_stack([columns[f"x{place}"] for place in range(DIM)])
    actions, labels = Scaling.learn(rows[:LEARNED])(rows[LEARNED:]), np.array(columns["source"])[LEARNED:]
    rewards, done = np.array(columns["reward"])[LEARNED:], 0
    for look in found.looks:
        part = slice(done, look.round)
        monitor.observe_log(actions[part], rewards[part], source=labels[part])
        assert monitor.lower_bounds()[0] == pytest.approx(look.proved, rel=1e-6, abs=1e-9)
        done = look.round
    assert done == 3000 - LEARNED


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.csv.gz", "log.ndjson", "log.jsonl", "log.ndjson.gz"])
@pytest.mark.parametrize("chunk", longer(100, 1 << 16))
def test_formats_and_chunks_do_not_matter(
    name: str, chunk: int, few: dict[str, list[Any]], short: Audit, tmp_path: Path
) -> None:
    again = audit(save(tmp_path / name, few), short.settings, chunk=chunk, source="source", time="at")
    assert again.certificate == short.certificate  # to the last bit
    assert (again.looks, again.sources, again.rows) == (short.looks, short.sources, short.rows)


def test_looks_are_log_spaced_and_come_to_the_end(found: Audit) -> None:
    rounds = [look.round for look in found.looks]
    assert rounds == sorted(set(rounds)) and rounds[-1] == 3000 - LEARNED
    million = [at for at, _ in zip(SETTINGS.schedule(), range(60), strict=False)]
    assert million[0] == 32 and million[-1] == 10**6


def test_rewards_beyond_the_declared_range_are_shown_and_no_fraud(tmp_path: Path) -> None:
    log = feedback(200, fraud=0.0)
    log["reward"][170] = 3.0
    found = audit(save(tmp_path / "log.csv", log), AuditSettings(noise=9.0, reward_range=(-1.0, 1.0)))
    assert found.certificate.lower_bound == 0.0
    (line,) = found.bad.lines()
    assert line == "1 × the reward is beyond the declared range from -1 to 1, as in row 171: reward = '3.0'"
    assert line.removeprefix("1 × ").partition(",")[0] in Tree(build(found)).text()
    log["reward"] = [100.0 * reward for reward in log["reward"]]  # declared in other units
    with pytest.raises(ValueError, match="rows of .* can't be used: .* the reward is beyond the declared range"):
        audit(save(tmp_path / "percent.csv", log), AuditSettings(noise=9.0, reward_range=(-1.0, 1.0)))


@pytest.mark.no_cover
def test_sigma_of_each_row_counts(tmp_path: Path) -> None:
    log = feedback(600)
    path = save(tmp_path / "log.csv", log | {"s": [10.0] * 600})
    assert audit(path, SETTINGS, source="source", sigma="s").certificate.lower_bound == 0.0


def test_sources_beyond_the_limit_are_one(tmp_path: Path) -> None:
    log = feedback(300, sources=9)
    found = audit(save(tmp_path / "log.csv", log), replace(SETTINGS, sources=3), source="source")
    names = {source.name for source in found.sources}
    assert names == {OTHERS, *list(dict.fromkeys(log["source"]))[:3]}
    assert sum(source.rows for source in found.sources) == 300
    assert "Sources beyond the first 3 count as one." in Tree(build(found)).text()


# Columns


def lists(columns: dict[str, list[Any]]) -> list[list[float]]:
    return [list(row) for row in zip(*(columns[f"x{place}"] for place in range(DIM)), strict=True)]


@pytest.mark.no_cover
@pytest.mark.parametrize("name", thinned(["log.parquet", "log.csv", "log.ndjson"], fast=["log.csv"]))
@pytest.mark.parametrize(
    ("rename", "options"),
    [
        (lambda k: f"f{k}", {}),
        (lambda k: f"feature_{k}", {}),
        (lambda k: f"dim.{k} ü", {"features": "dim*"}),
        (lambda k: f"c{k}", {"features": "c0, c1,c2,c3 ,c4"}),
        (lambda k: f"c{k}", {"features": "c?"}),
        (lambda k: f"c{k}", {"features": "*"}),
        (None, {}),
        (None, {"features": "features"}),
    ],
)
def test_columns_by_name_pattern_or_list(
    name: str, rename: Any, options: dict[str, Any], few: dict[str, list[Any]], short: Audit, tmp_path: Path
) -> None:
    if rename is None:
        new: dict[str, list[Any]] = {"features": lists(few)}
    else:
        new = {rename(place): few[f"x{place}"] for place in range(DIM)}
    new |= {"gain": few["reward"], "partner": few["source"]}
    found = audit(save(tmp_path / name, new), short.settings, reward="gain", source="partner", **options)
    assert found.certificate == short.certificate and found.dim == DIM
    assert found.columns.listed == (rename is None)


def test_fixed_lists_of_parquet(tmp_path: Path) -> None:
    log = feedback(200)
    flat = pa.array(np.ravel(lists(log)).astype("float32"))
    table = pa.table({"action": pa.FixedSizeListArray.from_arrays(flat, DIM), "reward": log["reward"]})
    pq.write_table(table, tmp_path / "log.pq")
    assert audit(tmp_path / "log.pq", AuditSettings(noise=NOISE)).dim == DIM


def test_odd_cells_of_parquet_are_read(tmp_path: Path) -> None:
    log = feedback(64)
    table = pa.table(
        {
            "x0": pa.array([str(value) for value in log["x0"]]).dictionary_encode(),
            "x1": pa.array([True, False] * 32),
            "reward": pa.array([f" {value} " for value in log["reward"]]),
            "who": pa.array(range(64)).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "log.parquet")
    found = audit(tmp_path / "log.parquet", AuditSettings(noise=NOISE, sources=10), source="who")
    assert found.bad.count == 0 and found.dim == 2 and {"0", "9", OTHERS} <= {one.name for one in found.sources}


# Bad rows


def test_each_kind_of_bad_row_is_counted_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = feedback(60)
    lines = [",".join(map(str, row.values())) for row in rows_of(log)]
    cells = [line.split(",") for line in lines]
    cells[2][0] = "much"
    cells[3][1] = ""
    cells[4][2] = "-inf"
    cells[5][5] = "NaN"
    cells[6][5] = "1e99"
    cells[7][6] = "  "
    cells[8] = cells[8][:-2]
    cells[9].append("one more")
    cells[10][5] = "0,5".replace(",", ".") + "€"
    cells[11][7] = "yesterday"
    cells[12][6] = '"two\nlines"'
    cells[13][6] = '"a, b"'  # which is good
    path = tmp_path / "log.csv"
    path.write_text("\n".join(map(",".join, [list(log), *cells])) + "\n\n", encoding="utf-8")
    for chunk in (8, 1 << 16):
        bad = audit(path, SETTINGS, source="source", time="at", chunk=chunk).bad
        assert {name: [row for row, _ in reason.examples] for name, reason in bad.reasons()} == {
            "a feature is not a number": [3],
            "a feature is missing": [4],
            "a feature is infinite": [5],
            "the reward is NaN": [6],
            "the reward is beyond ±1e+15": [7],
            "the source is missing": [8],
            "wrong number of cells": [9, 10],
            "the reward is not a number": [11],
            "the time is not a time": [12],
            "the source holds a line break (is a quote not closed?)": [13],
        }
        assert bad.count == 11
    assert run(path, "--noise", NOISE, "--source", "source", "--time", "at") == 0
    said, page = capsys.readouterr().out, Tree((tmp_path / "log-audit.html").read_text(encoding="utf-8")).text()
    assert "11 of 60 rows were left out:" in said and "11 of 60 rows could not be used" in page
    for words in (
        "row 3: x0 = 'much'",
        "row 11: reward = '0.5€'",
        "row 12: at = 'yesterday'",
        "row 10: 9 instead of 8",
    ):
        assert words in said and words in page
    assert "void it" in page


def test_bad_lines_and_lists_of_ndjson(tmp_path: Path) -> None:
    good = [{"features": row, "reward": 0.5, "s": 1} for row in ([0.1, 0.2], [0.3, 0.4])] * 10
    wrong: list[Any] = [
        {"features": [0.1], "reward": 0.5, "s": 1},
        {"features": [0.1, None], "reward": 0.5, "s": 1},
        {"features": [0.1, "x"], "reward": 0.5, "s": 1},
        {"features": 7, "reward": 0.5, "s": 1},
        {"features": None, "reward": 0.5, "s": 1},
        {"features": [[1], [2]], "reward": 0.5, "s": 1},
        {"features": [0.1, 0.2], "s": 1},
        {"features": [0.1, 0.2], "reward": [1], "s": 1},
        {"features": [0.1, 0.2], "reward": 0.5, "s": 0},
        {"features": [0.1, 0.2], "reward": 0.5, "s": -1},
        {"features": [0.1, 0.2], "reward": 10**400, "s": 1},
        [1, 2],
    ]
    path = tmp_path / "log.jsonl"
    lines = [*map(json.dumps, [*good, *wrong]), "{", "", '{"features": [0.1, 0.2], "reward": true, "s": "2"}', "  "]
    path.write_text("\ufeff" + "\n".join(lines), encoding="utf-8")
    found = audit(path, AuditSettings(noise=0.5), sigma="s")
    assert {name: [row for row, _ in reason.examples] for name, reason in found.bad.reasons()} == {
        "the list of features has the wrong length": [21],
        "a feature is missing": [22],
        "a feature is not a number": [23, 26],
        "the list of features is not a list": [24],
        "the list of features is missing": [25],
        "the reward is missing": [27],
        "the reward is not a number": [28],
        "sigma is not > 0": [29, 30],
        "the reward is infinite": [31],
        "not a JSON object": [32, 33],
    }
    assert (found.rows, found.certificate.rounds) == (34, 21 - 5)


def test_bad_cells_of_parquet(tmp_path: Path) -> None:
    log = feedback(50)
    log["x0"][3] = None
    log["reward"][4] = float("nan")
    log["source"][5] = None
    log["at"][6] = None
    by_list = {"features": lists(feedback(50)), "reward": log["reward"]}
    by_list["features"][7] = None
    by_list["features"][8] = [1.0]
    found = audit(save(tmp_path / "log.parquet", log), SETTINGS, source="source", time="at")
    assert [name for name, _ in found.bad.reasons()] == [
        "a feature is missing",
        "the reward is NaN",
        "the source is missing",
        "the time is missing",
    ]
    found = audit(save(tmp_path / "lists.parquet", by_list), AuditSettings(noise=NOISE))
    assert [(name, reason.examples) for name, reason in found.bad.reasons()] == [
        ("the list of features has the wrong length", [(9, "1 instead of 5")]),
        ("the list of features is missing", [(8, "features = nothing")]),
        ("the reward is NaN", [(5, "reward = nan")]),
    ]


def test_long_values_are_cut_and_few_are_kept() -> None:
    bad = BadRows()
    for row in range(1000):
        bad.add("wrong", row, "x" * 1000)
    ((_, reason),) = bad.reasons()
    assert bad.count == reason.count == 1000 and len(reason.examples) == 3
    assert all(len(value) < 50 for _, value in reason.examples)


@pytest.mark.parametrize(
    ("cell", "value"), [("1e3", 1000.0), ("+.5", 0.5), ("TRUE", 1.0), ("0x1", np.nan), ("1,5", np.nan), ("1_0", np.nan)]
)
def test_a_cell_reads_the_same_alone_and_beside_bad_ones(cell: str, value: float) -> None:
    for column in (pa.array([cell]), pa.array([cell, "bad"]), [cell], [cell, None, [1]]):
        np.testing.assert_equal(floats(column)[0], value)
    np.testing.assert_equal(number(cell), value)


def test_labels_are_text_whatever_they_were() -> None:
    assert texts([1, "a ", None, " ", float("nan"), 2.0]).tolist() == ["1", "a", None, None, None, "2.0"]
    assert texts(pa.array([b"ab", None, b"\xff"])).tolist() == ["ab", None, "�"]


def test_times_in_many_forms() -> None:
    days = ["2025-01-01", "2025-01-01T00:00:01", "2025-01-01 02:00:02+02:00", "2025-01-01T00:00:03Z"]
    assert np.diff(moments(days)).tolist() == [1.0, 1.0, 1.0]
    assert np.diff(moments(pa.array(days))).tolist() == [1.0, 1.0, 1.0]
    stamps = pa.array(np.array(["2025-01-01", "2025-01-02", "NaT"], "datetime64[D]"))
    assert np.diff(moments(stamps))[0] == 86_400_000.0 and np.isnan(moments(stamps)[2])
    assert np.isnan(moments(pa.array([1.0, float("nan")])))[1]


@pytest.mark.parametrize("name", ["log.parquet", "log.csv", "log.ndjson"])
@pytest.mark.parametrize("chunk", [10, 37, 1000])
def test_rows_out_of_order_are_an_error_and_not_sorted(name: str, chunk: int, tmp_path: Path) -> None:
    log = feedback(50)
    log["at"][37] = 20
    log["at"][45] = 3
    path = save(tmp_path / name, log)
    words = r"row 38 of .* is out of order: its at '?20'? is before '?136'? of row 37; sort the log by the time"
    with pytest.raises(ValueError, match=words):
        audit(path, SETTINGS, source="source", time="at", chunk=chunk)
    log["at"] = [7] * 50
    audit(save(path, log), SETTINGS, source="source", time="at")


# Files that can't be read, and options that can't be


def no_reward(path: Path) -> None:
    save(path, {"x0": [1.0], "rewrd": [1.0]})


def truncated(path: Path) -> None:
    save(path, feedback(100))
    path.write_bytes(path.read_bytes()[:-100])


def text(content: bytes) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(content)

    return make


def half_bad(path: Path) -> None:
    save(path, {"x0": [0.5, "a", "b"], "reward": [1.0, 1.0, 1.0]})


def cut_gzip(path: Path) -> None:
    save(path, feedback(2000))
    path.write_bytes(path.read_bytes()[:50_000])


def stamps(path: Path) -> None:
    pq.write_table(pa.table({"x0": [1.0], "reward": pa.array([1], pa.timestamp("s"))}), path)


def twice(path: Path) -> None:
    path.write_text("x0,x0,reward\n1,2,3\n")


@pytest.mark.parametrize(
    ("name", "make", "options", "code", "message"),
    [
        ("log.csv", None, [], 1, "there is no"),
        ("log.txt", text(b"x0,reward\n1,2\n"), [], 2, "log.txt ends in none of .parquet, .pq, .csv, .ndjson, .jsonl"),
        ("log.csv", no_reward, [], 2, "no column 'reward' (--reward); did you mean 'rewrd'? Its columns are x0, rewrd"),
        ("log.csv", no_reward, ["--reward", "zzz"], 2, "no column 'zzz' (--reward); there are rewrd, x0"),
        (
            "log.parquet",
            save_small := (lambda path: save(path, feedback(50)) and None),
            ["--features", "y*"],
            2,
            "'y*'",
        ),
        ("log.parquet", save_small, ["--features", ","], 2, "--features must name at least one column"),
        ("log.parquet", save_small, ["--features", "x0,reward"], 2, "'reward' of"),
        ("log.parquet", save_small, ["--source", "sourse"], 2, "did you mean 'source'?"),
        ("log.parquet", save_small, ["--sources", "5"], 2, "--sources needs --source"),
        ("log.parquet", save_small, ["--noise", "0"], 2, "noise must be a number > 0"),
        ("log.parquet", save_small, ["--delta", "1.5"], 2, "delta must be below 1"),
        ("log.parquet", save_small, ["--looks", "1"], 2, "looks must be an integer >= 2"),
        ("log.parquet", save_small, ["--rewards=2,1"], 2, "reward_range must be (lowest, highest)"),
        ("log.parquet", save_small, ["--time", "reward"], 1, "is out of order"),
        ("log.parquet", save_small, ["--out", "SELF", "--force"], 2, "is the log itself"),
        (
            "log.csv",
            text(b"a,b,reward\n1,2,3\n"),
            [],
            2,
            "say which columns are the --features. There are a, b, reward",
        ),
        ("log.parquet", truncated, [], 1, "can't be read as Parquet"),
        ("log.parquet", text(b"x0,reward\n1,2\n"), [], 1, "can't be read as Parquet"),
        ("log.csv.gz", cut_gzip, [], 1, "can't be read as CSV"),
        ("log.ndjson.gz", cut_gzip, [], 1, "can't be read as NDJSON"),
        ("log.ndjson.gz", text(b"text"), [], 1, "can't be read as NDJSON"),
        ("log.csv", text(b""), [], 1, "is empty"),
        ("log.csv", text(b"x0,reward\n"), [], 1, "holds no rows"),
        ("log.ndjson", text(b"\n \n"), [], 1, "holds no line that is a JSON object"),
        ("log.ndjson", text(b'[\n{"x0": 1,\n"reward": 2}\n]\n'), [], 1, "holds no line that is a JSON object"),
        ("log.csv", text(b"x0,reward\n1,2\n\xff,3\n"), [], 1, "can't be read as CSV"),
        ("log.ndjson", text(b'{"x0": 1, "reward": 2}\n{"x0": "\xff"}\n'), [], 1, "row 2 is not UTF-8"),
        ("log.csv", half_bad, [], 1, "2 of the 3 rows of"),
        ("log.csv", text(b"x0,reward\na,b\n"), [], 1, "1 of the 1 rows of"),
        ("log.csv", text(b'features,reward\n[],1\n"[",1\n'), [], 1, "2 of the 2 rows of"),
        ("log.parquet", stamps, [], 2, "'reward' of"),
        ("log.parquet", lambda path: path.mkdir(), [], 2, "is a folder"),
        ("log.csv", twice, [], 1, "has two columns named 'x0'"),
        ("log.ndjson", text(b'{"x0": [1], "x1": 2, "reward": 3}\n'), [], 2, "holds lists, where a number is needed"),
    ],
)
def test_what_can_not_be_is_one_line_and_writes_nothing(
    name: str,
    make: Any,
    options: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    if make is not None:
        make(path)
    before = {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()}
    noise = [] if "--noise" in options else ["--noise", "0.5"]
    assert run(path, *noise, *(str(path) if word == "SELF" else word for word in options)) == code
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and said.err.startswith("robandit: ")
    assert said.out == ""
    assert {file: file.stat().st_mtime_ns for file in tmp_path.iterdir()} == before


def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robandit.logs.audit.tables._LONGEST", 1 << 20)
    path = tmp_path / "log.ndjson"
    path.write_bytes(b"x" * (1 << 21))
    with pytest.raises(ValueError, match="a line of more than 1 MiB"):
        open_log(path)


@pytest.mark.no_cover
def test_huge_numbers_do_not_overflow(tmp_path: Path) -> None:
    log = feedback(100)
    log["reward"][3], log["x0"][4] = LARGEST, -LARGEST
    audit(save(tmp_path / "log.csv", log), SETTINGS, source="source")


def test_nobody_is_named_who_does_not_stand_out(
    columns: dict[str, list[Any]], found: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found.certificate.suspect is not None
    asked: list[int] = []

    def never(_: object, source: int) -> bool:
        asked.append(source)
        return False

    monkeypatch.setattr(auditing, "stands_out", never)
    settings = replace(SETTINGS, misspecification=0.0)
    again = audit(save(tmp_path / "log.parquet", columns), settings, source="source", time="at")
    labels = list(dict.fromkeys(columns["source"]))
    assert [labels[place] for place in asked] == [found.certificate.suspect]
    assert again.certificate == replace(found.certificate, suspect=None)
    assert found.certificate.suspect not in again.sentence and not any(one.placed for one in again.sources)


# The page and the command


def test_the_page_tells_it_all(found: Audit) -> None:
    page = build(found)
    tree = Tree(page)
    text = tree.text()
    assert page == build(found)  # to the last byte
    assert text.index("rewards were altered, if you are right") < text.index(found.sentence) < text.index("Contents")
    assert "a group of users who honestly differ" in text and "attribution, not proof" in text
    assert f"alarm after round {found.certificate.alarm:,}" in unescape(page)
    table = page[page.index("<table>") :]
    assert re.findall(r'<th scope="row">([^<]+)</th>', table)[0] == BAD
    for words in (
        "docs/ideas/monitor.md",
        "sub-Gaussian",
        "norm",
        "order of the decisions",
        "drift",
        "None: all 3,000 rows",
    ):
        assert words in text
    assert len(pictures(page)) == 2 + bool(found.certificate.groups)


def test_the_page_of_a_clean_log_does_not_acquit(clean: Audit) -> None:
    text = Tree(build(clean)).text()
    assert "nothing proved" in text and clean.certificate.sentence in text
    assert "no proof of innocence" in text and "attributed corruption" not in text
    assert len(pictures(build(clean))) == 1


@pytest.mark.no_cover
def test_without_sources_the_blocks_of_time_are_blamed(tmp_path: Path) -> None:
    log = feedback(1500, fraud=0.0)
    log["reward"][:200] = [-value for value in log["reward"][:200]]
    settings = AuditSettings(noise=NOISE, looks=4, misspecification=0.001)
    found = audit(save(tmp_path / "log.parquet", log), settings)
    text = Tree(build(found)).text()
    assert found.certificate.lower_bound > 0.0 and not found.sources
    assert "places in each block of rounds: attribution, not proof" in text and "The sources" not in text
    again = audit(tmp_path / "log.parquet", replace(settings, sources=100), source="source")
    text = Tree(build(again)).text()
    assert len(again.sources) == 20 and all(source.placed is None for source in again.sources)
    assert "the sources, as wholes, hardly do" in text and "attributed corruption" not in text
    assert "All sources" not in again.certificate.sentence and again.certificate.suspect is None


@pytest.mark.no_cover
def test_names_that_a_picture_cannot_show(tmp_path: Path) -> None:
    log = feedback(1500)
    settings = replace(SETTINGS, looks=4, misspecification=0.0)
    nasty = {BAD: "$x^2$ 北京 <script>alert(1)</script> and more", "partner-1": "\x07`bell`", "partner-2": "a$b"}
    log["source"] = [nasty.get(name, name) for name in log["source"]]
    found = audit(save(tmp_path / "log.parquet", log), settings, source="source")
    page = build(found)
    assert found.sources[0].name == nasty[BAD] in Tree(page).text()
    assert "<script" not in page and drawable(nasty[BAD]) == "$x^2$ ?? <script>alert(1)…"


def test_the_command_says_it_and_never_overwrites(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, page = save(tmp_path / "log.csv.gz", feedback(900)), tmp_path / "log-audit.html"
    monkeypatch.setattr("robandit.logs.audit.settings._FIRST", 500)  # few looks
    assert run(path, "--noise", NOISE, "--source", "source") == 0
    said = capsys.readouterr()
    assert said.out.startswith("There are too few rows") and said.out.count("\n") == 1
    assert said.err == f"{page}\n"
    first = page.read_bytes()
    assert run(path, "--noise", NOISE, "--source", "source") == 0  # the same bytes
    assert run(path, "--noise", 0.06, "--source", "source") == 2
    assert "is there already and differs; choose another --out, or replace it with --force" in capsys.readouterr().err
    assert page.read_bytes() == first
    assert run(path, "--noise", 0.06, "--source", "source", "--force") == 0
    assert page.read_bytes() != first
    assert run(path, "--noise", NOISE, "--source", "source", "--out", tmp_path / "new" / "page.html") == 0
    assert (tmp_path / "new" / "page.html").read_bytes() == first


def test_the_command_on_the_page_makes_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = feedback(300)
    new = {f"my {place}": log[f"x{place}"] for place in range(DIM)}
    save(
        tmp_path / "my log.csv", new | {"gain": log["reward"], "s": [0.06] * 300, "who": log["source"], "at": log["at"]}
    )
    (tmp_path / "my log.csv").rename(tmp_path / "my log")
    monkeypatch.chdir(tmp_path)
    options = "--noise .07 --reward gain --sigma s --source who --time at --sources 7 --delta .01 --looks 9"
    more = ["--features", "my *", "--rewards=-3,3", "--parameter-bound", "1.5", "--format", "csv"]
    assert run("my log", *options.split(), *more) == 0
    page = tmp_path / "my log-audit.html"
    text, first = Tree(page.read_text(encoding="utf-8")).text(), page.read_bytes()
    command = text[text.index("robandit audit") :]
    page.unlink()
    assert cli.main(shlex.split(command)[1:]) == 0
    assert page.read_bytes() == first


def test_help_suffices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in (
        "R if |noise| <= R (default: half the width of the range)",
        "a cap, not the average rate",
        "Take Z from this log, which is known to be clean",
        "dropped because of their values",
        "exit codes",
    ):
        assert words in text
    assert run("log.csv") == 2 and "noise must be given, or else reward_range" in capsys.readouterr().err


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    path = save(tmp_path / "log.csv", feedback(300))
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    command = [sys.executable, "-m", "robandit", "audit", str(path), "--noise", "0.05"]
    subprocess.run(command, stderr=theirs, stdout=subprocess.DEVNULL, check=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # which is how a closed terminal ends
        while part := os.read(ours, 10_000):
            shown += part
    os.close(ours)
    assert b"100%" in shown and b"B/s" in shown


@pytest.mark.no_cover
@pytest.mark.skipif(BROWSER is None, reason="no chromium, chromium-browser or google-chrome on the PATH")
def test_a_browser_shows_it_without_overflow_or_complaint(found: Audit, clean: Audit, tmp_path: Path) -> None:
    long = replace(found.columns, source="a_name_that_cannot_be_broken_" * 8)
    pages = {"PAGE_ENLARGED": build(clean), "PAGE": build(replace(found, columns=long))}
    harness = HARNESS
    for name, value in pages.items():
        harness = harness.replace(name, json.dumps(value).replace("<", "\\u003c"))
    (tmp_path / "harness.html").write_text(harness, encoding="utf-8")
    answer = re.search(r"<pre>(.*)</pre>", browse(tmp_path, "harness.html"))
    assert answer, "the script did not come to its end"
    for one in json.loads(unescape(answer[1])):
        assert one["page"] == one["width"] and one["body"] <= one["width"] and one["right"] <= one["width"], one
        assert one["images"] and all(natural > 0 and shown <= one["width"] for natural, shown in one["images"])


# What is declared, and what is not


def clicks(rounds: int, seed: int = 0, bots: float = 0.0) -> dict[str, list[Any]]:
    """Clicks by a logistic model of two 0/1 features; affiliates have different audiences, and one may have bots."""
    rng = np.random.default_rng(seed)
    affiliate = rng.integers(0, 4, rounds)
    shown = (rng.random((rounds, 2)) < np.array([0.2, 0.4, 0.6, 0.8])[affiliate][:, None]).astype(float)
    clicked = rng.random(rounds) < 1.0 / (1.0 + np.exp(1.0 - shown @ [0.5, 0.7]))
    clicked |= (affiliate == 2) & (rng.random(rounds) < bots)
    columns: dict[str, list[Any]] = {"x0": shown[:, 0].tolist(), "x1": shown[:, 1].tolist()}
    return columns | {"reward": clicked.astype(float).tolist(), "who": [f"a{place}" for place in affiliate.tolist()]}


@pytest.mark.no_cover
def test_honest_clicks_need_an_intercept_and_have_one(tmp_path: Path) -> None:
    path, settings = save(tmp_path / "log.parquet", clicks(60_000)), AuditSettings(reward_range=(0.0, 1.0), sources=9)
    assert audit(path, settings, source="who").certificate.lower_bound == 0.0
    bare = replace(settings, intercept=False, misspecification=0.0)
    assert audit(path, bare, source="who").certificate.lower_bound > 0.0


def test_only_what_is_declared_or_clean_carries_a_confidence(tmp_path: Path) -> None:
    path = save(tmp_path / "log.parquet", clicks(20_000, bots=0.5))
    clean = save(tmp_path / "clean.parquet", clicks(20_000, seed=1))
    settings = AuditSettings(reward_range=(0.0, 1.0), sources=9, looks=4)
    own = audit(path, settings, source="who")
    assert own.origin == "estimated" and "holds only if it is right" in own.sentence and own.tolerance > 0.0
    assert "carries no confidence" in Tree(build(own)).text() and "does not fit one linear model" in build(own)
    known = audit(path, replace(settings, misspecification=0.03), source="who")
    assert known.origin == "declared" and known.sentence.startswith("You declare that honest rewards are linear to")
    told = audit(path, settings, source="who", reference=clean)
    assert told.origin == "reference" and told.sentence.startswith("In clean.parquet, which you say is clean")
    assert 0.0 < told.tolerance < 0.1 and f"--reference={clean}" in Tree(build(told)).text().replace("'", "")
    for found in (own, known, told):
        estimated = found is not known  # which carries no confidence, and names nobody
        assert found.certificate.lower_bound > 0.0 and found.certificate.estimated == estimated
        assert found.certificate.suspect == (None if estimated else "a2")
        assert ("95 % confidence" in found.sentence) == (not estimated)
    strict = audit(path, replace(settings, misspecification=1e-4), source="who")
    assert "more than the 0.0001 that was declared" in Tree(build(strict)).text()


def test_a_reference_needs_rows_and_no_declaration_beside_it(tmp_path: Path) -> None:
    path = save(tmp_path / "log.parquet", clicks(300))
    settings = AuditSettings(reward_range=(0.0, 1.0))
    with pytest.raises(ConfigError, match="1,000 are the least"):
        audit(path, settings, reference=path)
    with pytest.raises(ConfigError, match="not both"):
        audit(path, replace(settings, misspecification=0.1), reference=path)
    with pytest.raises(ConfigError, match="give one of them"):
        audit(path, replace(settings, highest_mean=0.5), sigma="x0")


@pytest.mark.no_cover
def test_a_model_that_is_bent_is_seen_to_be(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.uniform(-1.0, 1.0, 8000)
    log = {"x0": x.tolist(), "reward": (x**3 + 0.05 * rng.normal(size=8000)).tolist()}
    found = audit(save(tmp_path / "log.parquet", log), AuditSettings(noise=0.05))
    assert found.linearity is not None and 0.1 < found.linearity.off < 0.4
    straight = {"x0": x.tolist(), "reward": (x + 0.05 * rng.normal(size=8000)).tolist()}
    plain = audit(save(tmp_path / "plain.parquet", straight), AuditSettings(noise=0.05)).linearity
    assert plain is not None and plain.off < 0.02


@pytest.mark.no_cover
def test_scales_and_units_do_not_matter(tmp_path: Path) -> None:
    """Unix seconds beside small features, and a price in cents: the tool scales them."""
    log = feedback(3000)
    settings = replace(SETTINGS, misspecification=0.01, looks=4)
    plain = audit(save(tmp_path / "log.parquet", log), settings, source="source")
    log["x5"] = (1.7e9 + np.random.default_rng(0).permutation(3000)).tolist()
    log["x1"] = (1e6 * np.array(log["x1"])).tolist()
    odd = audit(save(tmp_path / "odd.parquet", log), settings, source="source")
    assert odd.certificate.suspect == plain.certificate.suspect == BAD
    assert odd.certificate.lower_bound > 0.7 * plain.certificate.lower_bound > 1.0


@pytest.mark.no_cover
def test_scattered_lies_are_proved_by_single_rounds(tmp_path: Path) -> None:
    log, rng = feedback(2000, fraud=0.0), np.random.default_rng(2)
    lies = rng.permutation(2000)[:60]
    rewards = np.array(log["reward"])
    truth = 2.0 * np.abs(rewards[lies]).sum()
    rewards[lies] *= -1.0
    log["reward"] = rewards.tolist()
    path, settings = save(tmp_path / "log.parquet", log), AuditSettings(noise=NOISE, looks=4, misspecification=0.0)
    both, groups = audit(path, settings), audit(path, replace(settings, single_rounds=False))
    assert groups.by_rounds is None and both.by_rounds == both.certificate.lower_bound
    assert groups.certificate.lower_bound < 0.3 * truth < 0.45 * truth < both.certificate.lower_bound < truth
    assert "Single rounds, which are looked at once" in Tree(build(both)).text()


def test_a_file_of_bad_rows_is_refused_at_once(tmp_path: Path) -> None:
    log = {"x0": ["a"] * 40_000 + ["1"] * 100_000, "reward": ["1"] * 140_000}
    with pytest.raises(ValueError, match=r"of the first 1\d,\d\d\d rows .* so the rest was not read"):
        audit(save(tmp_path / "log.csv", log), AuditSettings(noise=1.0), chunk=500)


def test_rows_that_are_missing_are_in_the_sentence(tmp_path: Path) -> None:
    log = feedback(300)
    log["reward"][200] = float("nan")
    found = audit(save(tmp_path / "log.parquet", log), replace(SETTINGS, looks=4), source="source")
    assert found.sentence.endswith(
        "1 of 300 rows could not be used; if that has to do with what their rewards were, none of this holds."
    )


@pytest.mark.no_cover
def test_a_page_names_nobody_where_the_liar_has_most_of_the_traffic(tmp_path: Path) -> None:
    log, rng = feedback(3000, fraud=0.0), np.random.default_rng(4)
    lying = rng.random(3000) < 0.7
    log["reward"] = np.where(lying, -np.array(log["reward"]), log["reward"]).tolist()
    log["source"] = np.where(lying, "liar", log["source"]).tolist()
    settings = replace(SETTINGS, looks=4, misspecification=0.0)
    found = audit(save(tmp_path / "log.parquet", log), settings, source="source")
    text = Tree(build(found)).text()
    assert found.certificate.lower_bound > 100.0 and found.certificate.suspect is None
    assert all(source.placed is None for source in found.sources) and "So none is named." in text
    assert "places on each source" not in text and "agree with each other, and only without" not in text


def nearly_the_same(apart: float) -> dict[str, list[Any]]:
    """Honest rewards that depend on the difference of two columns that are nearly the same."""
    rng = np.random.default_rng(3)
    x, g, who = rng.uniform(-1, 1, 2000), rng.uniform(-1, 1, 2000), rng.integers(0, 4, 2000)
    y = x + apart * (g * (1 + who) / 2 + (who - 1.5) / 3)
    reward = 0.2 * (y - x) / apart + 0.05 * rng.choice([-1.0, 1.0], 2000)
    return {"x0": x.tolist(), "x1": y.tolist(), "reward": reward.tolist(), "who": who.astype(str).tolist()}


@pytest.mark.parametrize("apart", [1e-9, 1e-8, 1e-6, 1e-4])
def test_columns_that_are_nearly_the_same_are_refused(apart: float, tmp_path: Path) -> None:
    """Or else honest rewards would be called corrupt: rounding hides what explains them."""
    path = save(tmp_path / "log.parquet", nearly_the_same(apart))
    settings = AuditSettings(noise=0.05, misspecification=0.0, sources=9)
    with pytest.raises(ValueError, match="columns x0 and x1 are nearly the same .* leave one out"):
        audit(path, settings, source="who")


@pytest.mark.no_cover
def test_columns_that_are_the_same_do_no_harm(tmp_path: Path) -> None:
    log = feedback(1500)
    log["x9"] = [2.0 * value for value in log["x0"]]
    found = audit(
        save(tmp_path / "log.parquet", log), replace(SETTINGS, looks=4, misspecification=0.0), source="source"
    )
    assert found.certificate.lower_bound > 0.0


@pytest.mark.no_cover
def test_a_reference_carries_no_confidence_and_names_nobody(tmp_path: Path) -> None:
    """Averages bound no single mean: here an interaction is seen in the mix of one honest source alone."""

    def log(seed: int, mixed: bool) -> dict[str, list[Any]]:
        rng, n = np.random.default_rng(seed), 20_000
        who, x = rng.integers(0, 4, n), rng.choice([-1.0, 1.0], n)
        y = np.where(rng.random(n) < np.where((who == 2) & (not mixed), 0.9, 0.5), x, -x)
        z = rng.uniform(-1, 1, n)
        reward = 0.5 + 0.02 * x + 0.25 * z + 0.2 * x * y + 0.2 * rng.uniform(-1, 1, n)
        columns = {"x0": x, "x1": y, "x2": z, "reward": reward}
        return {name: column.tolist() for name, column in columns.items()} | {"who": who.astype(str).tolist()}

    path, clean = save(tmp_path / "log.parquet", log(0, False)), save(tmp_path / "clean.parquet", log(100, True))
    found = audit(path, AuditSettings(noise=0.2, sources=9, looks=4), source="who", reference=clean)
    assert found.certificate.lower_bound > 0.0 and found.certificate.suspect is None
    assert "confidence" not in found.sentence and "on average over many rows" in found.sentence
