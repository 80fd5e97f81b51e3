"""The real wing and `robandit replay` on made-up tables: what is played, what is tuned, and what is said."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from tables_to_replay import made_up

from robandit.cli import main
from robandit.experiments.real import DATA, race, sets, wing
from robandit.lab.environments import Replay
from robandit.lab.plan import Run
from robandit.policies import POLICIES


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of data in which electricity is made up."""
    table = made_up(120)
    whole = {"action": np.tile(["a", "b", "c", "d"], 120), "person": table.pop("who"), **table}
    pq.write_table(pa.table(whole), tmp_path / "electricity.parquet")
    return tmp_path


def test_every_policy_takes_part_and_is_told_the_same(folder: Path) -> None:
    one = wing.world("electricity", folder, fetch=False)
    found = wing.contenders(one)
    played = {settings["name"] for settings in found.values()}
    assert played >= set(POLICIES)
    assert all(settings["noise_range"] == settings["parameter_bound"] == 1.0 for settings in found.values())
    told = [label for label in found if race.TOLD in label]
    assert told == ["RobustWeightedOFUL, told C", "Quorum, told who lies"]
    assert found[race.DEFAULT]["name"] in POLICIES
    assert "OFUL" in wing.tunable(found) and race.DEFAULT not in wing.tunable(found)


def test_what_is_recommended_plays_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race, "default", lambda *_: {"name": "quorum"})
    found = wing.contenders(wing.world("electricity", folder, fetch=False), ["quorum", "oful"])
    assert list(found) == [race.DEFAULT, race.UNIFORM, "OFUL", "Quorum, told who lies"]


def test_tuning_and_playing_are_on_different_people(folder: Path) -> None:
    one = wing.world("electricity", folder, fetch=False)
    found = wing.contenders(one, ["oful", "cw-oful"])
    tune, play = wing.tuning_config(one, found, 2), wing.playing_config(one, found, 2, 1)
    assert (tune["environments"][0]["half"], play["environments"][0]["half"]) == ("tune", "play")
    assert tune["seed"] != play["seed"]
    kinds = {(a["goal"], a["when"], a["share"]) for a in play["attacks"] if a["name"] == "bots"}
    assert kinds == {(goal, when, share) for goal, when in race.FRAUD for share in race.SHARES}
    Run.read(play)


def test_only_policies_that_hear_sources_play_with_them(folder: Path) -> None:
    one = wing.world("electricity", folder, fetch=False)
    found = {"OFUL": race.declared({"name": "oful"}), "CWOFUL": race.declared({"name": "cw-oful", "corruption": None})}
    assert wing.sources_config(one, found, 2, 1) is None
    config = wing.sources_config(one, found | wing.contenders(one, ["quorum"]), 2, 1)
    assert config is not None
    assert [policy["name"] for policy in config["policies"]] == ["quorum", "robandit.lab.oracles:QuorumToldLiars"]
    assert config["environments"][0]["sources"] == 10
    assert all(attack.get("source") == race.LIAR for attack in config["attacks"] if attack["name"] == "bots")


def earned(value: float) -> dict[str, Any]:
    """A policy that earns this on average when nobody lies, and 0.1 less under each kind of fraud."""
    trials = value + np.array([-0.01, 0.0, 0.01])
    fraud = {race.fraud_label(*kind, share): trials - 0.1 for kind in race.FRAUD for share in race.SHARES}
    return {race.CLEAN: trials, **fraud}


def test_scores_by_hand() -> None:
    found = {race.DEFAULT: earned(0.5), "OFUL": earned(0.6), "X, told C": earned(0.9)}
    first, second, third = race.scores(found, 0.2)
    assert [row.policy for row in (first, second, third)] == ["X, told C", "OFUL", race.DEFAULT]
    assert second.clean[0] == pytest.approx(0.6) and second.attacked[0] == pytest.approx(0.5)
    assert second.clean[1] == pytest.approx(4.302653 * 0.01 / 3**0.5, rel=1e-5)  # Student's t of two degrees
    assert wing.best_untold(found) == "OFUL"  # and not the one that is told
    beside = wing.standing(found, "OFUL")
    assert beside.clean[0] == pytest.approx(-0.1) and beside.clean[1] == pytest.approx(0.0, abs=1e-9)
    assert wing.both(found["OFUL"]) == pytest.approx((0.6 + 5 * 0.5) / 6)
    assert any("promote, opening | 17% / 17% / 17%" in line for line in wing.kind_rows({"here": found}, "OFUL"))


def test_the_wing_from_end_to_end(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "out"
    words = ["arena", "real", "--worlds", "electricity", "--policies", "greedy", "--trials", "2", "--tune-trials", "1"]
    words += ["--data", str(folder), "--out", str(out), "--workers", "1"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "| OFUL | ." in said and "| default | ." in said and "A linear model beside a logistic one" in said
    assert said == (out / "real.md").read_text(encoding="utf-8")
    assert {path.name for path in out.iterdir()} >= {"real.json", "real-electricity.png", "real-electricity.parquet"}
    assert main(words) == 0 and capsys.readouterr().out == said  # it is all there


@pytest.mark.no_cover
def test_held_out_data_have_a_command_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = made_up(60, fewest=2)
    pq.write_table(pa.table({"person": table.pop("who"), "action": table["colour"], **table}), tmp_path / "car.parquet")
    words = ["arena", "real", "--held-out", "--worlds", "car", "--trials", "2", "--tune-trials", "1"]
    assert main([*words, "--data", str(tmp_path), "--out", str(tmp_path / "out"), "--workers", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("# The held-out data\n\n`robandit arena real --held-out --trials 2")
    assert "- car: 2 to 4 actions" in said and "| RobustLinTS | ." in said and "| SAVE |" not in said
    assert set(wing.HELD_OUT) < set(DATA) and not set(wing.HELD_OUT) & set(wing.WORLDS)


def test_a_replay_of_ones_own_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "choices.csv", tmp_path / "out"
    pyarrow.csv.write_csv(pa.table(made_up(80, fewest=2)), path)
    words = ["replay", str(path), "--person", "who", "--trials", "2", "--out", str(out), "--workers", "1"]
    assert main(words) == 0
    said = capsys.readouterr()
    assert "decisions among 2 to 4 actions with 7 features" in said.out and "default" in said.out
    assert {one.name for one in out.iterdir()} == {
        "replay.parquet",
        "replay.md",
        "replay.png",
        "replay-calibration.png",
    }
    assert main([*words, "--policy", "oful,radius_scale=0.5", "--bots", "0.1", "--force"]) == 0
    assert "oful" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--bots", "2"], "--bots must be shares between 0 and 1, got '2'"),
        (["--reward", "who"], "rewards must lie from 0 to 1, got 0 to "),
        (["--round", "visit"], "there is no column 'visit'"),
    ],
)
def test_what_is_wrong_with_a_file(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pyarrow.csv.write_csv(pa.table(made_up(40)), tmp_path / "c.csv")
    assert main(["replay", str(tmp_path / "c.csv"), "--out", str(tmp_path / "o"), *more]) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "o").exists()


def test_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = made_up(300)
    taken = np.arange(1200) % 4 == np.repeat(np.random.default_rng(1).integers(0, 4, 300), 4)
    table["reward"] = pa.array(np.where(taken, table["reward"], np.nan), from_pandas=True)
    table["p"] = np.full(1200, 0.25)
    pq.write_table(pa.table(table), tmp_path / "log.parquet")
    words = ["replay", str(tmp_path / "log.parquet"), "--propensity", "p", "--features", "x*", "--trials", "2"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "Rejection replay" in said and "SNIPS" in said and "rounds kept" in said


def test_the_list_of_data_and_one_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data"]) == 0
    said = capsys.readouterr().out
    assert all(name in said and DATA[name].package.licence in said for name in DATA)
    monkeypatch.setattr("robandit.experiments.real.catalogue.find", lambda *_, **__: [suppliers(tmp_path)])
    assert main(["data", "electricity", "--out", str(tmp_path / "e.csv")]) == 0
    said = capsys.readouterr().out
    assert "8 rows: round, action, pf, cl, loc, wk, tod, seas, reward, person" in said and "Licence: MIT" in said
    assert len(Replay(data=tmp_path / "e.csv", person="person", action="action").sets) == 2
    assert main(["data", "electricty"]) == 2
    assert "there are no data called 'electricty'; did you mean 'electricity'" in capsys.readouterr().err


# The data sets.


def suppliers(folder: Path) -> Path:
    """Two answers of a customer each, as the survey has them."""
    head = "choice,id,alt,pf,cl,loc,wk,tod,seas,chid"
    rows = [
        f"{'TRUE' if alt == 2 else 'FALSE'},{who},{alt},{alt},{who},0,1,0,{alt % 2},{who}"
        for who in (1, 2)
        for alt in (1, 2, 3, 4)
    ]
    path = folder / "electricity.csv.gz"
    path.write_bytes(gzip.compress("\n".join([head, *rows]).encode()))
    return path


def test_swissmetro_has_those_who_could_choose_all_three(tmp_path: Path) -> None:
    names = ["CHOICE", "ID", "GA", "FIRST", "LUGGAGE", "AGE", "MALE", "INCOME", "SM_SEATS"]
    names += [f"{ride}_{what}" for ride in ("TRAIN", "SM", "CAR") for what in ("AV", "CO", "TT", "HE")]
    one = dict.fromkeys(names, 1) | {"CHOICE": 2, "TRAIN_CO": 50, "SM_CO": 70, "CAR_CO": 90, "AGE": 3}
    rows = [one, one | {"GA": 0, "CHOICE": 3, "ID": 2}, one | {"CAR_AV": 0}, one | {"CHOICE": 0}]
    text = "\n".join([",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)])
    (tmp_path / "s.csv").write_text(text)
    found = sets.swissmetro([tmp_path / "s.csv"])
    assert found["round"].tolist() == [0, 0, 0, 1, 1, 1] and found["reward"].tolist() == [0, 1, 0, 0, 0, 1]
    assert np.expm1(found["francs"]).round(6).tolist() == [0, 0, 90, 50, 70, 90]  # a season ticket
    assert found["TRAIN:AGE"].tolist() == [3, 0, 0, 3, 0, 0] and found["SM"].tolist() == [0, 1, 0] * 2
    assert len(set(found) - {"round", "action", "reward", "person"}) == 18


def test_films_are_described_by_ratings_that_are_held_out(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    taste, kind = rng.normal(size=(30, 2)), rng.normal(size=(80, 2))
    person, film = (part.ravel() for part in np.meshgrid(np.arange(30), np.arange(80), indexing="ij"))
    stars = np.clip(np.round(3.3 + 1.2 * np.vecdot(taste[person], kind[film])), 1, 5).astype(int)
    rows = [f"{u}\t{i}\t{s}\t0" for u, i, s in zip(person, film, stars, strict=True)]
    (tmp_path / "r").write_text("\n".join(["user_id:token\titem_id:token\trating:float\ttimestamp:float", *rows]))
    found = sets.movielens([tmp_path / "r"])
    assert len(found["round"]) == 30 * 11 * 20 and (np.bincount(found["round"]) == 20).all()
    wrong = stars[found["person"] * 80 + found["action"]] < 4  # here names and numbers sort alike but for their order
    assert wrong.any()
    replay = Replay(data=dict(found), person="person", action="action", half="play")
    assert replay.dim == 17 and replay.hindsight().value > replay.uniform + 0.2
