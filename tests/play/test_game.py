"""A game is the lab's own run: `robandit simulate` plays it again, bit for bit, also after rewinding."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robandit.cli import main
from robandit.errors import ConfigError
from robandit.lab.attacks.recorded import Script
from robandit.lab.plan import Run, run_together
from robandit.lab.protocol import Trace
from robandit.lab.results import read
from robandit.play.found import MOST, Hall, attack_file, run_file
from robandit.play.game import Game, Lie
from robandit.play.worlds import CLICKS, PAPER, POLICIES, PlayWorld, worlds
from thinned import longer, thinned

SHORT = {"paper": PAPER._replace(rounds=300), "clicks": CLICKS._replace(rounds=400)}


def played(world: PlayWorld, *, budget: float = 12.0, seed: int = 3) -> Game:
    """A game with several lies, one of them until the budget is spent, left before its end."""
    game = Game(world, seed=seed, budget=budget)
    source = 2 if game.environment.shares else None
    for rounds, lie in ((30, None), (7, Lie("flip")), (20, Lie("promote", source)), (50, None), (120, Lie("suppress"))):
        game.play(rounds, lie)
    return game


def simulated(config: dict[str, Any]) -> list[Trace]:
    """What `robandit simulate` makes of a configuration, policy by policy."""
    return run_together(Run.read({**config, "checkpoints": config["rounds"]}).tasks(8))


@pytest.mark.parametrize("name", longer(*SHORT))
def test_simulate_plays_a_game_again_bit_for_bit(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the file that is saved, the command, and the table that it writes."""
    monkeypatch.chdir(tmp_path)
    world = SHORT[name]
    game = played(world)
    found = Hall().note(name, game)
    assert found is not None and found.spent == game.spent > 1.0
    Path("game.toml").write_text(run_file(found, world), encoding="utf-8")
    game.play(world.rounds)
    assert main(["simulate", "--config", "game.toml", "--workers", "1"]) == 0
    rows = {(row["policy"], row["round"]): row for row in read(tmp_path / "run.parquet").table.to_pylist()}
    same = [t for t in (point.round for point in game.points) if (POLICIES[0], t) in rows]
    assert len(same) > 20 and game.rounds in same
    for point in game.points:
        for k, label in enumerate(POLICIES):
            if point.round in same:
                assert rows[label, point.round]["regret"] == point.lied[k]
    for k, label in enumerate(POLICIES):
        last = rows[label, game.rounds]
        assert (last["regret"], last["c_sup"], last["c_play"]) == (game.regret[k, 0], game.spent, game.told[k])


@pytest.mark.no_cover
def test_the_twin_is_the_run_in_which_nobody_lies() -> None:
    world = SHORT["paper"]
    game = Game(world, seed=5, budget=20.0)
    game.follow(Script.read("50-90 flip"), world.rounds)
    honest = simulated({**world.config(seed=5, budget=0.0, lies=""), "attacks": ["none"]})
    assert [trace.regret[-1, 0] for trace in honest] == game.regret[:, 1].tolist()
    assert (game.regret[:, 0] != game.regret[:, 1]).all()


@pytest.mark.no_cover
@pytest.mark.parametrize("to", thinned([0, 36, 44, 226], fast=[0, 44]))
def test_rewinding_is_as_if_it_had_not_happened(to: int) -> None:
    """Wherever it goes back to, what follows is the same as in a game that was only ever played forwards."""
    world = SHORT["clicks"]
    game = played(world)
    game.rewind(to)
    assert game.round == to
    assert all(stretch.end <= to for stretch in game.script.stretches)
    game.play(40, Lie("flip", 1))
    game.play(30)
    fresh = Game(world, seed=3, budget=12.0)
    for t in range(1, game.round + 1):
        stretch = game.script.at(t)
        fresh.play(1, Lie(stretch.kind, stretch.source) if stretch else None)
    assert str(game.script) == str(fresh.script)
    assert game.regret.tolist() == fresh.regret.tolist() and game.told == fresh.told
    assert [p for p in game.points if p.round <= game.round] == fresh.points


def test_going_back_forgets_the_proof() -> None:
    game = Game(PAPER._replace(rounds=400), seed=1, budget=60.0)
    game.play(100, Lie("flip"))
    game.play(100)
    found = game.certificate
    assert found is not None and found.lower_bound > 1.0 and found.lower_bound <= game.told[-1]
    game.rewind(10)
    assert game.certificate is None and game.spent > 0.0
    with pytest.raises(ValueError, match="round 10 can't go back to 11"):
        game.rewind(11)


@pytest.mark.no_cover
def test_it_ends_where_the_world_ends() -> None:
    game = Game(SHORT["paper"]._replace(rounds=50), seed=1, budget=1.0)
    game.play(49)
    game.play(400, Lie("flip"))
    game.play(400, Lie("flip"))
    assert game.round == 50 and str(game.script) == "50-50 flip"


@pytest.mark.no_cover
def test_memory_stays_flat() -> None:
    """However often somebody goes back and plays on."""
    game = Game(SHORT["paper"]._replace(rounds=100), seed=1, budget=5.0)
    sizes = set()
    for _ in range(3):
        game.play(100, Lie("flip"))
        sizes.add((len(game._kept), len(game.points), len(game.script.stretches)))
        game.rewind(0)
    assert len(sizes) == 1


# ------------------------------------------------------------------------------------ what was found


@pytest.mark.no_cover
def test_prices_are_budget_for_regret() -> None:
    game = played(SHORT["paper"])
    found = Hall().note("paper", game)
    assert found is not None
    lied, honest = game.regret.T
    for damage, price, lost in zip(found.damage, found.prices, lied - honest, strict=True):
        assert damage == lost and (price == game.spent / lost if lost > 0.0 else price is None)
    assert found.price == min(price for price in found.prices if price is not None)


def test_the_hall_keeps_the_cheapest_and_the_newest() -> None:
    hall, world = Hall(), SHORT["paper"]._replace(rounds=60)
    assert hall.note("paper", Game(world, seed=1, budget=5.0)) is None
    game = Game(world, seed=1, budget=50.0)
    for _ in range(MOST + 5):
        game.play(1, Lie("flip"))
        last = hall.note("paper", game)
        assert last is not None and hall.number(last.number) == last
        hall.note("paper", game)  # the same attack is there once
    ranked = hall.ranked()
    assert len(ranked) == MOST and len({found.lies for found in ranked}) == MOST
    assert [found.price for found in ranked] == sorted(found.price for found in ranked)
    assert hall.number(1) is None


def test_an_exported_attack_plays_against_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    game = played(SHORT["clicks"])
    found = Hall().note("clicks", game)
    assert found is not None
    Path("found.py").write_text(attack_file(found, CLICKS), encoding="utf-8")
    words = "simulate --policy greedy --environment clicks,sources=10 --rounds 60 --trials 2 --workers 1"
    assert main([*words.split(), "--attack", f"found.py:Found{found.number}"]) == 0
    rows = read(tmp_path / "run.parquet").table.to_pylist()
    assert {row["c_sup"] > 0.0 for row in rows if row["round"] == 60} == {True}


# ------------------------------------------------------------------------------------ the worlds


def test_the_policies_are_as_the_arena_tuned_them() -> None:
    evidence = json.loads((files("robandit.policies") / "evidence.json").read_text(encoding="utf-8"))["worlds"]
    for world, name in ((PAPER, "fixed after 100 rounds"), (CLICKS, "clicks from ten sources")):
        tuned = {one["label"]: one["settings"] for one in evidence[name]}
        for policy in world.config(seed=1, budget=1.0, lies="")["policies"]:
            settings = {key: None if value == "none" else value for key, value in policy.items() if key != "label"}
            assert settings == tuned[policy["label"]]


def test_real_data_that_lie_here_are_worlds(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    rng, rows = np.random.default_rng(1), 240
    table: dict[str, Any] = {
        "round": np.arange(rows) // 3,
        "action": ["a", "b", "c"] * (rows // 3),
        "person": np.arange(rows) // 6,
    }
    table |= {"price": rng.uniform(1, 9, rows), "time": rng.uniform(1, 9, rows)}
    table["reward"] = (rng.uniform(size=rows) < 1.2 / table["price"]).astype(float)
    write_table(pa.table(table), tmp_path / "electricity.parquet")
    found = worlds(tmp_path)
    assert list(found) == ["clicks", "paper", "electricity"]
    world = found["electricity"]._replace(rounds=60)
    game = Game(world, seed=1, budget=30.0)
    game.play(30, Lie("flip", 4))
    game.play(30, Lie("promote"))
    traces = simulated(world.config(seed=1, budget=30.0, lies=str(game.script)))
    assert [trace.regret[-1, 0] for trace in traces] == game.regret[:, 0].tolist()


def test_a_world_of_ones_own(tmp_path: Path) -> None:
    world = worlds(tmp_path, "fresh,dim=4,actions=6")["own"]
    assert world.make().dim == 4 and world.scales == PAPER.scales
    assert worlds(tmp_path, "clicks,sources=3")["own"].scales == CLICKS.scales
    for text, why in (
        ("unit-ball", "infinite"),
        ("fresh,dim=[2,3]", "played in one world"),
        ("fresh,dim=1000", "up to 200"),
        ("frsh", "did you mean 'fresh'"),
    ):
        with pytest.raises(ConfigError, match=why):
            worlds(tmp_path, text)
