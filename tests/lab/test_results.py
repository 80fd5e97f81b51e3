"""Tables, their files, and what is left of a run that was stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import robandit
from robandit import cli
from robandit.arrays import Ints
from robandit.errors import ConfigError
from robandit.files import ResultExists, write_file
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.lab import engine, results
from robandit.lab.engine import Engine, carry_out
from robandit.lab.plan import Run
from robandit.lab.summary import last_round, summary
from robandit.lab.worker import work

CONFIG: dict[str, Any] = {
    "policies": [
        {"name": "oful", "radius_scale": 0.1},
        {"name": "multi-level-weighted-oful", "radius_scale": 0.002, "label": "ML"},
    ],
    "attacks": [{"name": "flip", "rounds": [0, 5]}, {"name": "top-n", "budget": None}],
    "environments": [{"name": "paper", "dim": 3, "actions": 4}],
    "rounds": 40,
    "trials": 4,
    "checkpoints": 6,
}
ALONE = Engine(workers=1)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "run.parquet"
    carry_out(Run.read(CONFIG), path, engine=ALONE)
    return path.read_bytes()


def stopped(path: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that dies after some of its pieces (here eight of three trials each)."""
    save = results.Workspace.save
    saved: list[int] = []

    def dying(self: results.Workspace, number: int, table: pa.Table) -> None:
        if len(saved) == after:
            raise KeyboardInterrupt
        saved.append(number)
        save(self, number, table)

    with monkeypatch.context() as patch:
        patch.setattr(results.Workspace, "save", dying)
        with pytest.raises(KeyboardInterrupt):
            carry_out(Run.read(CONFIG), path, engine=Engine(workers=1, batch=3))
    assert not path.exists()
    assert len(pieces(path)) == after


def worked_on(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the pieces that are worked on from now on."""
    numbers: list[int] = []

    def noting(tasks: dict[int, Any], *rest: Any) -> Any:
        numbers.extend(tasks)
        return work(tasks, *rest)

    monkeypatch.setattr(engine, "work", noting)
    return numbers


def pieces(path: Path) -> list[Path]:
    return sorted(path.with_name(path.name + ".parts").glob("*.parquet"))


@pytest.mark.no_cover
def test_the_table_is_tidy_and_tells_what_it_is_from(tmp_path: Path) -> None:
    run = Run.read(CONFIG)
    result = carry_out(run, tmp_path / "run.parquet", engine=ALONE)
    table = result.table
    told = [pa.field("empty", pa.int64()), pa.field("cascade", pa.int64())]  # Multi-level's info
    assert table.schema.equals(pa.schema([*results.SCHEMA, *told]))
    times = [1, 2, 4, 9, 19, 40]
    assert table.num_rows == 2 * 3 * 4 * len(times)
    assert table["round"].to_pylist()[: len(times)] == times
    assert result.config == run.plain() and result.version == robandit.__version__
    assert Run.read(result.config) == run
    rows = table.to_pylist()
    assert {(row["attack"], row["strength"], row["C"]) for row in rows} == {
        ("flip", "weak", 0.0),
        ("flip", "weak", 10.0),
        ("top-n", "strong", None),
    }
    for row in rows:
        levels = row["level_use"]
        assert len(levels) == (7 if row["policy"] == "ML" else 0)  # ⌈log₂ 80⌉
        assert sum(levels) == (row["round"] if levels else 0)
        assert row["updates"] == row["round"] and row["smallest_gap"] <= row["gap"]
        assert 0.0 <= row["c_play"] <= 1.5 * row["c_sup"] + 1e-12  # R + 1 = 1.5
    assert len({(r["policy"], r["attack"], r["C"], r["trial"], r["round"]) for r in rows}) == table.num_rows


@pytest.mark.no_cover
def test_the_table_is_the_trace(tmp_path: Path) -> None:
    run = Run.read(CONFIG)
    table = carry_out(run, tmp_path / "run.parquet", engine=Engine(workers=1, batch=1000)).table
    traces = [task.run() for task in run.tasks(1000)]
    for name in ("regret", "c_sup", "c_play", "gap", "smallest_gap", "updates"):
        expected = np.concatenate([getattr(trace, name).T.ravel() for trace in traces])
        assert np.array_equal(table[name].to_numpy(), expected)
    for name in ("empty", "cascade"):  # which Multi-level alone tells
        assert [name in trace.info for trace in traces] == [False, True]
        values = table[name].to_pylist()
        told = traces[1].info[name].T.ravel().tolist()
        assert values == [None] * (len(values) - len(told)) + told
    assert table["level_use"].to_pylist()[-1] == traces[1].level_use[-1, -1].tolist()


@pytest.mark.parametrize(("batch", "workers"), [(1, 1), (7, 1), (64, 1), (7, 2), (64, 2)])
@pytest.mark.no_cover
def test_batch_and_workers_change_no_byte(batch: int, workers: int, tmp_path: Path, undisturbed: bytes) -> None:
    path = tmp_path / "run.parquet"
    carry_out(Run.read(CONFIG), path, engine=Engine(workers=workers, batch=batch))
    assert path.read_bytes() == undisturbed
    assert [item.name for item in tmp_path.iterdir()] == ["run.parquet"]  # nothing else is left


def test_a_piece_that_is_damaged_during_the_run_is_noticed(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, finish = tmp_path / "run.parquet", results.Workspace.finish

    def damaging(self: results.Workspace, *, replace: bool) -> None:
        piece = pieces(path)[2]
        piece.write_bytes(piece.read_bytes()[:-1])
        finish(self, replace=replace)

    with monkeypatch.context() as patch:
        patch.setattr(results.Workspace, "finish", damaging)
        with pytest.raises(OSError, match="damaged during the run; start it again"):
            carry_out(Run.read(CONFIG), path, engine=Engine(workers=1, batch=3))
    assert not path.exists() and [item.name for item in tmp_path.iterdir()] == ["run.parquet.parts"]
    redone = worked_on(monkeypatch)
    carry_out(Run.read(CONFIG), path, engine=ALONE)
    assert path.read_bytes() == undisturbed and redone == [2]


@pytest.mark.no_cover
def test_what_a_kill_leaves_while_the_pieces_are_put_together_is_cleared_up(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.parquet"
    stopped(path, 5, monkeypatch)
    (path.with_name(path.name + ".parts") / "whole.draft").write_bytes(b"half a result")
    carry_out(Run.read(CONFIG), path, engine=ALONE)
    assert path.read_bytes() == undisturbed and [item.name for item in tmp_path.iterdir()] == ["run.parquet"]


@pytest.mark.parametrize("after", [0, 1, 5, 8])
@pytest.mark.no_cover
def test_a_stopped_run_goes_on_and_ends_the_same(
    after: int, tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.parquet"
    if after < 8:
        stopped(path, after, monkeypatch)
    ran = worked_on(monkeypatch)
    carry_out(
        Run.read(CONFIG), path, engine=Engine(workers=1, batch=5 if 0 < after < 8 else 3)
    )  # pieces are cut as they were
    assert path.read_bytes() == undisturbed
    assert len(ran) == 8 - after % 8


@pytest.mark.no_cover
def test_damaged_pieces_are_noticed_and_redone(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.parquet"
    stopped(path, 6, monkeypatch)
    found = pieces(path)
    flipped = bytearray(found[0].read_bytes())
    flipped[len(flipped) // 2] ^= 1
    found[0].write_bytes(flipped)
    found[1].write_bytes(found[1].read_bytes()[:-7])
    found[2].write_bytes(b"")
    found[3].rename(found[3].with_name(found[3].name[:7] + "0" * 32 + ".parquet"))
    folder = path.with_name(path.name + ".parts")
    (folder / ".000007-x.parquet.99.draft").write_bytes(b"half a piece")
    found[4].rename(found[4].with_name(found[5].name[:7] + found[4].name[7:]))  # another task's rows under its number
    found[5].unlink()
    redone = worked_on(monkeypatch)
    carry_out(Run.read(CONFIG), path, engine=ALONE)
    assert path.read_bytes() == undisturbed
    assert sorted(redone) == list(range(8))


@pytest.mark.no_cover
def test_pieces_without_a_readable_stamp_are_not_trusted(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.parquet"
    stopped(path, 3, monkeypatch)
    (path.with_name(path.name + ".parts") / "run.json").write_text('{"format": 1, "vers')
    carry_out(Run.read(CONFIG), path, engine=ALONE)
    assert path.read_bytes() == undisturbed


def test_nothing_is_overwritten_silently(tmp_path: Path, undisturbed: bytes) -> None:
    path = tmp_path / "run.parquet"
    for there in (b"something else", b"", undisturbed):
        path.write_bytes(there)
        other = Run.read({**CONFIG, "seed": 2})
        with pytest.raises(ResultExists, match="--force"):
            carry_out(other, path, engine=ALONE)
        assert path.read_bytes() == there
    assert carry_out(Run.read(CONFIG), path, engine=ALONE).table.num_rows  # the same run: read, not run again
    assert path.read_bytes() == undisturbed
    carry_out(other, path, engine=ALONE, force=True)
    assert results.read(path).config["seed"] == 2


def test_a_result_that_appears_meanwhile_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.parquet"
    save = results.Workspace.save

    def meddling(self: results.Workspace, number: int, table: pa.Table) -> None:
        save(self, number, table)
        path.write_bytes(b"mine")

    monkeypatch.setattr(results.Workspace, "save", meddling)
    with pytest.raises(ResultExists, match="appeared meanwhile"):
        carry_out(Run.read(CONFIG), path, engine=ALONE)
    assert path.read_bytes() == b"mine"


def test_pieces_of_another_run_or_version_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.parquet"
    stopped(path, 3, monkeypatch)
    with pytest.raises(ResultExists, match="pieces of another run"):
        carry_out(Run.read({**CONFIG, "seed": 2}), path, engine=ALONE)
    monkeypatch.setattr(robandit, "__version__", "0.0.0")
    with pytest.raises(ResultExists, match="pieces of another run"):
        carry_out(Run.read(CONFIG), path, engine=ALONE)
    assert len(pieces(path)) == 3
    carry_out(Run.read({**CONFIG, "seed": 2}), path, engine=ALONE, force=True)
    assert results.read(path).config["seed"] == 2 and not pieces(path)


def test_two_processes_do_not_run_into_one_another(tmp_path: Path) -> None:
    run, path = Run.read(CONFIG), tmp_path / "run.parquet"
    with (
        results.Workspace(path, run).open(batch=3, force=False),
        pytest.raises(ResultExists, match="another process is running"),
        results.Workspace(path, run).open(batch=3, force=True),
    ):
        pass


def test_reading_something_else_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("text")
    with pytest.raises(ValueError, match="not a result of robandit"):
        results.read(path)
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(ValueError, match="not a result of robandit"):
        results.read(path)
    with path.open("wb") as file:
        results.write(file, [], [results.SCHEMA], {})
    with pytest.raises(ValueError, match="not a result of robandit"):
        results.read(path)
    with pytest.raises(FileNotFoundError):
        results.read(tmp_path / "missing.parquet")


def test_the_stamp_is_in_the_file(undisturbed: bytes) -> None:
    about = json.loads(pq.read_schema(pa.BufferReader(undisturbed)).metadata[b"robandit"])
    assert about["version"] == robandit.__version__ and about["numpy"] == np.__version__
    assert about["config"]["rounds"] == 40


def test_a_forced_run_that_was_stopped_goes_on(
    tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.parquet"
    carry_out(Run.read({**CONFIG, "seed": 2}), path, engine=ALONE)
    other, save = path.read_bytes(), results.Workspace.save

    def dying(self: results.Workspace, number: int, table: pa.Table) -> None:
        save(self, number, table)
        raise KeyboardInterrupt

    for expected, force in ((1, True), (2, True), (3, False)):  # a plain rerun knows that it was forced
        with monkeypatch.context() as patch:
            patch.setattr(results.Workspace, "save", dying)
            with pytest.raises(KeyboardInterrupt):
                carry_out(Run.read(CONFIG), path, engine=Engine(workers=1, batch=3), force=force)
        assert len(pieces(path)) == expected and path.read_bytes() == other
    carry_out(Run.read(CONFIG), path, engine=ALONE)
    assert path.read_bytes() == undisturbed


def test_a_run_that_fails_at_once_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "late.py"
    source.write_text(
        "from robandit.lab.attacks import Flip\n"
        "class Late(Flip):\n"
        "    def corrupt(self, offer):\n"
        "        return None if offer.round < 3 else offer.means[:, :1]\n"
    )
    with pytest.raises(ValueError, match="Late.corrupt must give"):
        carry_out(Run.read({**CONFIG, "attacks": [f"{source}:Late"]}), tmp_path / "run.parquet", engine=ALONE)
    assert [item.name for item in tmp_path.iterdir() if item.suffix != ".py" and item.name != "__pycache__"] == []


def test_results_of_edited_code_are_told_apart(tmp_path: Path) -> None:
    source, path = tmp_path / "mine.py", tmp_path / "run.parquet"
    text = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from robandit.lab.attacks import Flip\n"
        "@dataclass(kw_only=True)\n"
        "class Mine(Flip):\n"
        "    lift: float = 1.0\n"
        "    def corrupt(self, offer):\n"
        "        return self.lift * (offer.means > 0)\n"
    )
    config = {**CONFIG, "policies": ["greedy"], "attacks": [f"{source}:Mine"]}
    source.write_text(text)
    first = carry_out(Run.read(config), path, engine=ALONE).table["c_sup"].to_numpy()[-1]
    source.write_text(text.replace("self.lift * (", "2 * self.lift * ("))
    with pytest.raises(ResultExists, match="by other code"):
        carry_out(Run.read(config), path, engine=ALONE)
    second = carry_out(Run.read(config), path, engine=ALONE, force=True).table["c_sup"].to_numpy()[-1]
    assert second == pytest.approx(2 * first)


def test_classes_of_a_session_are_told_apart_by_their_code() -> None:
    def first() -> type:
        class Mine(robandit.Greedy):
            def confidence(self, level: Ints) -> Ellipsoid:
                return Ellipsoid.around(self.stats, np.full(self.batch, 2.0))

        return Mine

    def second() -> type:
        class Mine(robandit.Greedy):
            def confidence(self, level: Ints) -> Ellipsoid:
                return Ellipsoid.around(self.stats, np.full(self.batch, 3.0))

        return Mine

    digests = [
        list(results.stamp(Run.read({"policies": [make()]}))["code"].values()) for make in (first, first, second)
    ]
    assert digests[0] == digests[1] != digests[2]
    assert "code" not in results.stamp(Run.read({"policies": ["oful"]}))


def test_places_that_are_no_file(tmp_path: Path) -> None:
    for place in (tmp_path, Path(".")):
        with pytest.raises(ConfigError, match="is a folder"):
            carry_out(Run.read(CONFIG), place, engine=ALONE, force=True)


def test_a_file_system_without_links(tmp_path: Path, undisturbed: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", refuse)
    path = tmp_path / "run.parquet"
    carry_out(Run.read(CONFIG), path, engine=ALONE)
    assert path.read_bytes() == undisturbed
    with pytest.raises(ResultExists):
        write_file(path, b"other", replace=False)


@pytest.mark.no_cover
def test_a_result_of_format_3_is_still_read_summarised_and_drawn(tmp_path: Path) -> None:
    path = Path(__file__).with_name("data") / "format-3.parquet"
    result = results.read(path)
    table = result.table
    assert result.last_round().equals(last_round(table))
    assert {"empty", "cascade", "contradictions", "restarts", "audits"} < set(table.column_names)
    (curves,) = summary(table).values()
    assert sorted(curve.trials for curve in curves.values()) == [2, 2, 2]
    assert max(curve.cascade for curve in curves.values()) > 0.0
    assert cli.main(["plot", str(path), "--out", str(tmp_path)]) == 0
    assert len(list(tmp_path.glob("*.png"))) >= 2


def test_info_may_not_take_the_name_of_another_column() -> None:
    task = next(iter(Run.read(CONFIG).tasks(1000)))
    trace = task.run()
    with pytest.raises(ValueError, match="can't tell 'regret' in its info"):
        results.tabulate(task, trace._replace(info={"regret": trace.updates}))
