"""`robandit evaluate` as a user meets it: three forms of a log, one answer; and what is refused, with the remedy."""

from __future__ import annotations

import asyncio
import dataclasses
import gzip
import json
import re
import shlex
import shutil
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from logged import MU, PROOF, live, menus, store, write
from logged import pages as pages_of

from observed import repeatable
from robandit import cli
from robandit.cli.logs import as_json, lines
from robandit.errors import ConfigError
from robandit.lab.plan import read_entries
from robandit.logs.evaluate import evaluate
from robandit.logs.evaluate.records import DecisionLog, read
from robandit.service.files.export import as_parquet
from robandit.service.stores.sqlite import SQLiteStore, read_only
from robandit.service.stores.store import LogEntry, StoreError, append
from robandit.wire.events import Decided, Event, Rewarded, encode

EVENTS = [*live(400, lost=50), PROOF]


@cache
def long() -> list[Event]:
    return list(live(4000))


async def _here() -> bool:
    return False


def parquet(path: Path, events: list[Event]) -> Path:
    file = asyncio.run(as_parquet("shop", pages_of(events), _here))
    assert file is not None
    with file:
        file.seek(0)
        path.write_bytes(file.read())
    return path


def run(*arguments: str | Path) -> int:
    return cli.main(["evaluate", *map(str, arguments)])


def test_three_forms_give_one_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = write(tmp_path / "log.ndjson", EVENTS)
    packed = tmp_path / "log.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    table, kept = parquet(tmp_path / "log.parquet", EVENTS), store(tmp_path / "log.db", EVENTS, "other")
    options = ["--policy", "uniform", "--policy", "greedy", "--rewards=-1.5,1.5", "--json"]
    answers = []
    for log in ([plain], [packed], [table], [kept, "--bandit", "shop"]):
        assert run(*log, *options) == 0
        said = capsys.readouterr()
        answers.append(said.out)
        assert "warning: The values are those of corrupted feedback" in said.err and PROOF.sentence in said.err
    assert len(set(answers)) == 1
    found = json.loads(answers[0])
    assert (found["decisions"], found["trained"] + found["evaluated"]) == (400, 395)  # 4 lost and 1 pending
    assert [row["policy"] for row in found["rows"]] == ["logged", *["uniform"] * 3, *["greedy"] * 3]
    assert "5 of 400 decisions have no reward (1 pending, 4 lost)" in found["notes"][0]
    assert "3 rewards are the default" in found["notes"][1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.db", "log.gz", "log.ndjson", "log.parquet"]


@pytest.mark.no_cover
def test_estimates_agree_with_the_world(tmp_path: Path) -> None:
    """The whole way: a learner's log, read from a file; greedy trained and frozen; its value known by simulation."""
    log = read(write(tmp_path / "log", long()))
    found = evaluate(log, read_entries("policies", ["greedy"]), noise_range=0.5, reward_range=(-1.5, 1.5))
    half = log.where(np.arange(len(log)) < 1999)
    chosen = half.offered[half.chosen]
    center = np.linalg.solve(np.eye(3) + chosen.T @ chosen, chosen.T @ half.reward)
    rng = np.random.default_rng(3)
    fresh = [menus(rng, 25_000, count) for count in range(2, 6)]
    truth = float(np.mean([np.take_along_axis(x @ MU, (x @ center).argmax(1)[:, None], 1).mean() for x in fresh]))
    for row in found.rows[1:]:
        assert row.value.low < truth < row.value.high and 0.0 <= row.effective <= found.evaluated
        assert row.gain is not None and row.gain.value == pytest.approx(row.value.value - found.rows[0].value.value)
        assert row.sure is None or row.sure.low < row.value.low < row.value.high < row.sure.high


def test_a_table_that_lines_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = write(tmp_path / "log.ndjson", EVENTS), tmp_path / "out"
    arguments: list[str | Path] = [
        log,
        "--policy",
        "uniform",
        "--policy",
        "logged",
        "--policy",
        "oful,radius_scale=[0.1,0.4]",
    ]
    assert run(*arguments, "--out", out) == 0
    said = capsys.readouterr()
    table = said.out.split("\n\n")[0].splitlines()
    header = "policy estimator value 95 % interval gain over logged effective largest weight"
    assert " ".join(table[0].split()) == header
    assert len(table) == 1 + 1 + 3 * 3 and {line[table[0].index("estimator") - 1] for line in table} == {" "}
    assert "oful radius_scale=0.1" in table[5] and "400 decisions: 197 to learn from, 198 to evaluate on." in said.out
    assert sorted(path.name for path in out.iterdir()) == ["evaluate.json", "evaluate.png"]
    assert json.loads((out / "evaluate.json").read_text())["evaluated"] == 198
    assert run(*arguments, "--out", out) == 0  # the same again
    assert run(log, "--out", out) == 2 and "--force" in capsys.readouterr().err
    assert run(log, "--out", out, "--force") == 0


def test_a_policy_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "mine.py"
    own.write_text("from robandit import Greedy\n\nclass Mine(Greedy):\n    '''Mine.'''\n")
    log = write(tmp_path / "log.ndjson", EVENTS)
    assert run(log, "--policy", f"{own}:Mine", "--policy", "greedy", "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert rows[1]["policy"] == "Mine" and rows[1]["value"] == rows[4]["value"]


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--policy", "offul"], 2, "did you mean 'oful'?"),
        (["--policy", "oful,radius_scal=1"], 2, "did you mean 'radius_scale'?"),
        (["--policy", "oful,radius_scale=-1"], 2, "radius_scale must be a number > 0"),
        (["--policy", "greedy", "--train", "0"], 2, "train must be above 0"),
        (["--train", "1"], 2, "train must be at least 0 and below 1"),
        (["--train", "nan"], 2, "train must be at least 0 and below 1"),
        (["--confidence", "1"], 2, "confidence must be between 0 and 1"),
        (["--rewards=0,0.1"], 1, "beyond the range 0,0.1"),
        (["--rewards=1,0"], 2, "LOW < HIGH"),
        (["--train", "0.99"], 1, "30 are the least; wait for more"),
        (["--bandit", "shop"], 2, "--bandit is for a service's own file"),
    ],
)
def test_bad_options(
    options: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(write(tmp_path / "log.ndjson", EVENTS), *options) == code
    assert message in capsys.readouterr().err


def changed(place: int, **values: Any) -> list[Event]:
    """The log with another decision in one place."""
    event = EVENTS[place]
    assert isinstance(event, Decided)
    return [*EVENTS[:place], msgspec.structs.replace(event, **values), *EVENTS[place + 1 :]]


BROKEN: list[tuple[Any, str]] = [
    (lambda: changed(0, offered=None), "1 of 400 decisions (line 1 first) don't say what was on offer"),
    (lambda: list(live(50, exploration=0.0)), '"exploration" above 0, 0.1 say'),
    (lambda: changed(2, propensity=0.0), "line 3: decision 'd2' has propensity 0"),
    (lambda: changed(2, propensity=1.5), "line 3: propensity must be from 0 to 1, got 1.5"),
    (lambda: changed(2, offered=b"1234567"), "line 3: `offered` has 7 bytes"),
    (lambda: changed(2, offered=b"12345678"), "line 3: 1 features on offer"),
    (lambda: changed(2, index=77), "index 77"),
    (lambda: changed(2, features=[0.0, 0.0]), "line 3: 2 features, but the first decision has 3"),
    (lambda: changed(2, features=[0.0, 0.0, 0.1]), "line 3: the features on offer must"),
    (lambda: changed(2, sigma=-1.0), "line 3: sigma must be a number >= 0"),
    (lambda: EVENTS[1:], "line 1: the reward comes before decision 'd1'"),
    (lambda: [*EVENTS, EVENTS[0]], "line 801: a second decision 'd1'"),
    (lambda: [*EVENTS, EVENTS[1]], "line 801: a second reward of decision 'd1'"),
    (lambda: [PROOF], "there are no decisions"),
    (lambda: EVENTS[:20], "wait for more"),
]


@pytest.mark.parametrize(("make", "message"), BROKEN)
def test_broken_logs(make: Any, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(write(tmp_path / "log.ndjson", make())) == 1
    assert message in capsys.readouterr().err


def test_broken_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = write(tmp_path / "log.ndjson", EVENTS).read_bytes()
    bad = tmp_path / "bad"
    for data, message in (
        (b"", "is empty"),
        (whole[:-40], "line 800 is no event"),
        (b"{}\n" + whole, "line 1 is no event"),
        (whole.replace(b'"reward":', b'"reward":NaN,"x":', 1), "line 2 is no event"),
        (b"\xff\xfe" + whole, "line 1 is no event"),
        (gzip.compress(whole)[:-50], "can't be unpacked"),
        (b"PAR1nothing", "can't be read as Parquet"),
        (b"SQLite format 3\0nothing", "can't read"),
    ):
        bad.write_bytes(data)
        assert run(bad) in (1, 2)
        assert message in capsys.readouterr().err
    assert run(tmp_path) == 2 and "is a folder" in capsys.readouterr().err
    assert run(tmp_path / "none") == 1 and "there is no" in capsys.readouterr().err
    pq.write_table(pa.table({"x": [1]}), bad)
    assert run(bad) == 1 and "is no log of the service" in capsys.readouterr().err
    table = pq.read_table(parquet(tmp_path / "log.parquet", EVENTS))
    for column, value, message in (
        ("reward", [float("nan")] + [0.0] * 399, "row 1 is the first to look at"),
        ("propensity", [0.5] * 399 + [None], "row 400: propensity must be from 0 to 1, got nan"),
        ("offered", [None] * 400, "400 of 400 decisions (row 1 first)"),
    ):
        place = table.schema.get_field_index(column)
        pq.write_table(
            table.set_column(place, table.schema.field(place), [pa.array(value, table.schema.field(place).type)]), bad
        )
        assert run(bad) == 1 and message in capsys.readouterr().err


def test_a_file_that_a_service_has_open(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = store(tmp_path / "log.db", EVENTS, "other")
    before = path.read_bytes()
    held = SQLiteStore(path)
    assert run(path, "--bandit", "shop") == 2
    assert "is open in a running service; ask that for the log: GET /v1/bandits/NAME/log" in capsys.readouterr().err
    held.close()
    assert run(path) == 2 and "holds the bandits shop, other; choose one with --bandit" in capsys.readouterr().err
    assert run(path, "--bandit", "x") == 2 and "none named 'x'" in capsys.readouterr().err
    assert run(path, "--bandit", "shop") == 0
    assert path.read_bytes() == before and [one.name for one in tmp_path.iterdir()] == ["log.db"]


def test_a_file_that_a_killed_service_left(tmp_path: Path) -> None:
    """What it wrote last is in its write-ahead log alone."""
    (tmp_path / "live").mkdir()
    path = store(tmp_path / "live" / "log.db", EVENTS[:200])
    held = SQLiteStore(path)
    append(held, [LogEntry(1, place, event) for place, event in enumerate(EVENTS[200:], 201)])
    for name in ("log.db", "log.db-wal"):
        shutil.copy(tmp_path / "live" / name, tmp_path / name)
    held.close()
    assert len(read(tmp_path / "log.db")) == len(read(write(tmp_path / "log", EVENTS))) == 400


def test_a_service_that_starts_meanwhile(tmp_path: Path) -> None:
    path = store(tmp_path / "log.db", EVENTS)
    half = read_only(path, "shop")
    next(half)
    held = SQLiteStore(path)
    append(held, [LogEntry(1, len(EVENTS) + 1, msgspec.structs.replace(PROOF, id="10"))])
    held.close()
    with pytest.raises(StoreError, match="has changed while it was read: a service has started"):
        list(half)


def test_strange_propensities_are_noticed(tmp_path: Path) -> None:
    wrong = [
        msgspec.structs.replace(event, propensity=event.propensity**2) if isinstance(event, Decided) else event
        for event in long()[:1600]
    ]
    (said,) = evaluate(read(write(tmp_path / "log", wrong)), ["uniform"], train=0.0).warnings
    assert "the mean weight is" in said and "should be 1" in said
    assert not evaluate(read(write(tmp_path / "log", long()[:1600])), ["uniform"]).warnings


def test_few_that_tell_are_warned_of(tmp_path: Path) -> None:
    log = read(write(tmp_path / "log", list(live(120, seed=4))))
    assert "effective size of" in evaluate(log, ["uniform"]).warnings[0]


def test_missing_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, plain = parquet(tmp_path / "a", EVENTS), write(tmp_path / "b", EVENTS)
    for path, module, extra in ((table, "pyarrow", "lab"), (plain, "msgspec", "serve")):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ConfigError, match=rf"needs {module} as well: pip install '\.\[{extra}\]'"):
                read(path)


def test_the_example_of_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command of docs/how-to/evaluate.md says what the page shows, on a log like any other."""
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "evaluate.md").read_text(encoding="utf-8")
    _, command, *shown = page.split("```console\n")[1].split("```")[0].replace("\\\n", " ").splitlines()
    write(tmp_path / "shop.ndjson", long())
    monkeypatch.chdir(tmp_path)
    assert cli.main(shlex.split(command.removeprefix("$ robandit "))) == 0
    said = capsys.readouterr().out.splitlines()
    number = re.compile(r"-?\d[\d,.]*")
    for line, expected in zip(said, shown, strict=False):
        assert number.sub("#", line).split() == number.sub("#", expected).split()
        for one, other in zip(number.findall(line), number.findall(expected), strict=True):
            assert float(one.strip(",.").replace(",", "")) == pytest.approx(
                float(other.strip(",.").replace(",", "")), rel=0.02, abs=2e-3
            )


def test_help_suffices(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0
    text = capsys.readouterr().out
    for word in ("exploration", "--bandit", "FILE.py:CLASS", "--train", "--rewards", "exit codes", "uniform"):
        assert word in text


@pytest.mark.no_cover
@repeatable(25)
@given(data=st.data())
def test_any_log_reads_alike(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Of any shape and with rewards in any order, from NDJSON as from Parquet."""
    number, dim = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 3))
    finite = st.floats(-1e6, 1e6)
    events: list[Event] = []
    open_: list[str] = []
    for t in range(number):
        count = data.draw(st.integers(1, 4))
        offer = np.array(data.draw(st.lists(finite, min_size=count * dim, max_size=count * dim))).reshape(count, dim)
        index, p = data.draw(st.integers(0, count - 1)), data.draw(st.floats(1e-6, 1.0))
        known = {"round": t + 1, "at": 0.0, "sigma": 1.0, "level": 0, "features": offer[index].tolist()}
        names = [f"ü{i}" for i in range(count)]
        events.append(Decided(id=str(t), actions=names, index=index, propensity=p, offered=offer.tobytes(), **known))
        open_.append(str(t))
        while len(open_) > 0 and data.draw(st.booleans()):
            name = open_.pop(data.draw(st.integers(0, len(open_) - 1)))
            events.append(Rewarded(id=name, at=1.0, reward=data.draw(finite)))
    folder = tmp_path_factory.mktemp("logs")
    one, two = read(write(folder / "a", events)), read(parquet(folder / "b", events))
    assert one.outcomes == two.outcomes  # where what is not there counts as none
    for item in dataclasses.fields(DecisionLog):
        if item.name != "outcomes":
            np.testing.assert_equal(getattr(one, item.name), getattr(two, item.name))


LINES = [encode(event) for event in EVENTS[:90]]


@repeatable(60)
@given(line=st.integers(0, 89), at=st.integers(0, 10**6), byte=st.integers(0, 255))
def test_a_flipped_byte_is_refused_or_harmless(
    line: int, at: int, byte: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = bytearray(LINES[line])
    text[at % len(text)] = byte
    path = tmp_path_factory.mktemp("flip") / "log"
    path.write_bytes(b"\n".join([*LINES[:line], bytes(text), *LINES[line + 1 :]]))
    with suppress(ValueError):
        found = evaluate(read(path), ["uniform"], train=0.1)
        assert all(np.isfinite(row.value).all() for row in found.rows) and as_json(found) and lines(found)
