"""Replays: what a table becomes, who is in which half, what is drawn, and how far from linear the rewards are."""

from __future__ import annotations

from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy.optimize import minimize
from tables_to_replay import made_up

from robandit import OFUL, Features
from robandit.lab.attacks import Bots, NoAttack
from robandit.lab.environments import Offer, Replay
from robandit.lab.environments.linear_models import least_squares, logistic, within_sets
from robandit.lab.plan import Run
from robandit.lab.protocol import Scenario, simulate
from robandit.streams import ENVIRONMENT, Draws


def offers(replay: Replay, rounds: int, trials: Any = range(3), seed: int = 5) -> list[Offer]:
    return list(islice(replay.rounds(Draws(seed=seed, trials=trials, who=ENVIRONMENT)), rounds))


def seen(offer: Offer, trial: int) -> set[tuple[float, ...]]:
    """The actions of a set with their rewards, whatever their places."""
    actions = np.asarray(offer.actions)[trial]
    return {(*a, round(r, 9)) for a, r in zip(actions.tolist(), offer.rewards[trial].tolist(), strict=True)}


def test_every_trial_plays_every_decision_once() -> None:
    replay = Replay(data=made_up(30, fewest=2))
    whole = offers(replay, 60)
    vectors, starts = replay.sets.vectors, replay.sets.starts
    sets = [
        {(*v, r) for v, r in zip(vectors[a:b].tolist(), replay.sets.rewards[a:b].tolist(), strict=True)}
        for a, b in pairwise(starts.tolist())
    ]
    for trial in range(3):
        for lap in (whole[:30], whole[30:]):  # and once more after that
            played = [seen(offer, trial) for offer in lap]
            assert sorted(map(sorted, played)) == sorted(map(sorted, sets))
    orders = [[sorted(seen(offer, trial)) for offer in whole[:30]] for trial in range(3)]
    assert orders[0] != orders[1] != orders[2]
    assert orders[0] != [sorted(seen(offer, 0)) for offer in whole[30:]]


def test_all_trials_have_sets_of_the_same_size_and_places_are_shuffled() -> None:
    replay = Replay(data=made_up(200, fewest=2))
    sizes = [np.asarray(offer.actions).shape[1] for offer in offers(replay, 200)]
    assert sorted(sizes) == sorted(replay.sets.sizes.tolist())
    assert sizes != [np.asarray(offer.actions).shape[1] for offer in offers(replay, 200, seed=6)]
    data = {
        "round": np.repeat(np.arange(400), 3),
        "x": np.tile([0.0, 1.0, 2.0], 400),
        "reward": np.tile([0, 0, 1], 400),
    }
    first = np.array([offer.rewards[:, 0] for offer in offers(Replay(data=data), 400)])
    assert abs(first.mean() - 1 / 3) < 5 * (2 / 9 / first.size) ** 0.5  # the clicked one stands anywhere


def test_rewards_are_those_of_the_table() -> None:
    """A policy that always plays the best earns what the table holds, and regret is against the least-squares means."""
    replay = Replay(data=made_up(50))
    scenario = Scenario(replay, NoAttack(), range(2))
    trace = simulate(policy=OFUL, scenarios=[scenario], rounds=50, seed=1)
    assert np.allclose(trace.reward[-1] % 1.0, 0.0)  # whole clicks
    assert (trace.reward[-1] <= 50).all() and (trace.regret[-1] >= 0.0).all()
    loose = np.add.reduceat(replay.sets.rewards, replay.sets.starts[:-1]) / replay.sets.sizes
    assert replay.uniform == pytest.approx(loose.mean())


def test_in_order_all_trials_play_the_same() -> None:
    table = made_up(20)
    later = {**table, "time": 100 - np.asarray(table["round"])}
    replay = Replay(data=later, order="time", features=["x0", "x1"])
    first, second = (np.sort(np.asarray(offer.actions)[:, :, 0]) for offer in offers(replay, 2))
    assert (first == first[0]).all() and not np.array_equal(first, second)
    back = Replay(data=table, features=["x0", "x1"])
    assert np.allclose(np.sort(back.sets.vectors[-4:, 0]), first[0])


def test_halves_share_nobody_and_make_up_the_whole(tmp_path: Path) -> None:
    table = made_up(100)
    tune, play = (Replay(data=table, person="who", half=half) for half in ("tune", "play"))
    assert len(tune.sets) + len(play.sets) == 100
    assert not set(tune.sets.person.tolist()) & set(play.sets.person.tolist())
    assert abs(len(tune.sets) - 50) <= 5
    other = Replay(data=table, person="who", half="tune", split=1)
    assert set(other.sets.person.tolist()) != set(tune.sets.person.tolist())
    alone = Replay(data={k: v for k, v in table.items() if k != "who"}, half="tune")
    assert len(alone.sets) == 50


def test_features_are_fitted_on_the_other_half() -> None:
    """Someone who is replayed changes nobody's features."""
    table = made_up(100)
    play = Replay(data=table, person="who", half="play")
    someone = play.sets.person[0]
    odd = {**table, "x0": np.where(table["who"] == someone, table["x0"] + 0.125, table["x0"])}
    again = Replay(data=odd, person="who", half="play")
    same = np.repeat(play.sets.person != someone, play.sets.sizes)
    assert np.array_equal(play.sets.vectors[same], again.sets.vectors[same])
    assert not np.array_equal(play.sets.vectors, again.sets.vectors)


def test_vectors_reach_the_bound_and_no_further() -> None:
    whole, play = Replay(data=made_up(200)), Replay(data=made_up(200), half="play")
    assert np.linalg.norm(whole.sets.vectors, axis=1).max() == pytest.approx(1.0)
    assert np.linalg.norm(play.sets.vectors, axis=1).max() <= 1.0 + 1e-12


def test_given_features_are_used_as_they_are(tmp_path: Path) -> None:
    table = made_up(30)
    given = Features(action={"x0": (-3, 3), "colour": ["red", "blue"]})
    replay = Replay(data=table, features=given)
    assert replay.names == given.names
    expected = given.rows({name: table[name] for name in ("x0", "colour")})
    assert np.array_equal(replay.sets.vectors, expected)
    given.save(tmp_path / "features.json")
    again = Replay(data=table, features=str(tmp_path / "features.json"))
    assert np.array_equal(again.sets.vectors, expected)


def test_tables_of_any_kind_are_the_same(tmp_path: Path) -> None:
    table = made_up(40, fewest=2)
    arrow = pa.table(table)
    pq.write_table(arrow, tmp_path / "t.parquet")
    pyarrow.csv.write_csv(arrow, tmp_path / "t.csv")
    kinds = [arrow, tmp_path / "t.parquet", str(tmp_path / "t.csv")]
    plain = Replay(data=table, person="who")
    for kind in kinds:
        other = Replay(data=kind, person="who")
        assert np.allclose(plain.sets.vectors, other.sets.vectors, rtol=0, atol=1e-12)
        assert np.array_equal(plain.sets.rewards, other.sets.rewards)


def test_a_file_is_read_once_and_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(made_up(40)), path)
    one, two = Replay(data=path), Replay(data=path)
    assert one == two and one.sets is two.sets and hash(one) == hash(two)
    assert one != Replay(data=path, half="play")
    pq.write_table(pa.table(made_up(50)), path)
    assert len(Replay(data=path).sets) == 50
    with pytest.raises(ValueError, match="is another file than the one with the digest abc"):
        Replay(data=path, digest="abc")


def test_a_replay_in_a_run(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    pyarrow.csv.write_csv(pa.table(made_up(40, fewest=2)), path)
    attacks = [{"name": "none"}, {"name": "bots", "rounds": 40}]
    world = {"name": "replay", "data": str(path), "person": "who"}
    run = Run.read({"policies": ["oful"], "environments": [world], "attacks": attacks, "rounds": 40, "trials": 3})
    (task,) = run.tasks(64)  # uneven sets of one file share a batch
    assert task.run().reward.shape[1] == 6


BAD: list[tuple[dict[str, Any], str]] = [
    ({"data": None}, "data must be a .parquet or .csv file"),
    ({"half": "both"}, "half must be one of all, tune, play, got 'both'"),
    ({"reward": "clicks"}, "there is no column 'clicks'"),
    ({"features": "x7"}, "there is no column 'x7'"),
    ({"order": "colour"}, "row 0: colour"),
    ({"data": {"round": [1, 1], "x": [1.0, 2.0], "reward": [1.0, 0.0]}}, "at least 2 decisions to replay, got 1"),
    ({"data": {"round": [], "x": [], "reward": []}}, "the table has no rows"),
    ({"data": {"round": [1, 2], "x": [1.0, 2.0], "reward": [1.0, None]}}, "row 1: every action needs its reward"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_what_is_wrong_is_named(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Replay(**{"data": made_up(10), **bad})


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Replay(data=tmp_path / "none.csv")
    with pytest.raises(ValueError, match="is a folder"):
        Replay(data=tmp_path)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(ValueError, match="can't be read as Parquet"):
        Replay(data=tmp_path / "t.parquet")


# The models.


def test_the_fits_are_those_of_an_independent_solver() -> None:
    sets = Replay(data=made_up(150, fewest=2), features=["x0", "x1"]).sets
    x, y, w = sets.vectors, sets.rewards, np.repeat(1.0 / sets.sizes, sets.sizes)
    assert np.allclose(least_squares(sets), np.linalg.solve((x * w[:, None]).T @ x, x.T @ (w * y)))

    def loss(theta: Any) -> float:
        z = x @ theta
        return float(w @ (np.logaddexp(0, z) - y * z)) / len(sets) + 5e-7 * float(theta @ theta)

    assert np.allclose(logistic(sets), minimize(loss, np.zeros(3), tol=1e-12).x, rtol=0, atol=2e-4)
    parts = [range(a, b) for a, b in pairwise(sets.starts.tolist())]
    inner, gaps = np.zeros((3, 3)), np.zeros(3)
    for part in parts:
        rows = list(part)
        c, r = x[rows] - x[rows].mean(axis=0), y[rows] - y[rows].mean()
        inner, gaps = inner + c.T @ c / len(rows), gaps + c.T @ r / len(rows)
    assert np.allclose(within_sets(sets)[:2], np.linalg.lstsq(inner, gaps, rcond=None)[0][:2])


def test_hindsight_is_what_its_parameter_earns() -> None:
    replay = Replay(data=made_up(150, fewest=2))
    best = replay.hindsight()
    sets, total = replay.sets, 0.0
    for a, b in pairwise(sets.starts.tolist()):
        total += sets.rewards[a + int(np.argmax(sets.vectors[a:b] @ best.parameter))]
    assert best.value == pytest.approx(total / len(sets)) and best.value > replay.uniform
    assert best.value >= sets.value(sets.vectors @ replay.parameter)


def test_linear_rewards_lose_nothing_and_crooked_ones_are_seen() -> None:
    rng = np.random.default_rng(7)
    x = rng.uniform(-1, 1, 9000)
    base = {"round": np.repeat(np.arange(3000), 3), "x": x}
    straight = Replay(data=base | {"reward": (rng.random(9000) < 0.5 + 0.4 * x).astype(float)})
    found = straight.linearity()
    assert abs(found.loss) <= max(found.half, 0.01) and found.worst < 0.02
    crooked = Replay(data=base | {"reward": (rng.random(9000) < 0.05 + 0.9 * (x > 0.6)).astype(float)})
    assert crooked.misspecification == crooked.linearity().worst > 0.1
    assert crooked.misspecification > crooked.linearity().deciles["linear"][0].error


def test_people_are_not_in_both_folds_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    folds: list[Any] = []
    monkeypatch.setattr(
        "robandit.lab.environments.replay.linearity", lambda sets, first: folds.append((sets.person, first))
    )
    Replay(data=made_up(100), person="who").linearity()
    ((person, first),) = folds
    assert not set(person[first].tolist()) & set(person[~first].tolist())


# Bots.


def lies(attack: Bots, replay: Replay, rounds: int, trials: int = 4) -> tuple[list[Offer], list[Any]]:
    attack.start(Draws(seed=1, trials=range(trials), who=2), replay)
    played = offers(replay, rounds, range(trials))
    return played, [attack.corrupt(offer) for offer in played]


@pytest.mark.parametrize(("when", "begin"), [("opening", 0), ("middle", 40)])
def test_bots_in_a_window(when: str, begin: int) -> None:
    _, told = lies(Bots(when=when, share=0.1, rounds=100), Replay(data=made_up(100)), 100)
    assert [t for t, lie in enumerate(told) if lie is not None] == list(range(begin, begin + 10))


@pytest.mark.parametrize("share", [0.05, 0.1, 0.2])
def test_spread_bots_come_evenly(share: float) -> None:
    attack = Bots(share=share)
    for first in (1, 500, 5000):
        assert abs(sum(attack.is_bot(t) for t in range(first, first + 1000)) - 1000 * share) <= 5


def test_bots_under_the_name_of_a_source() -> None:
    world, attack = Replay(data=made_up(100), sources=10), Bots(share=0.2, source=3)
    assert world.shares == (0.1,) * 10
    faced, asked = offers(world.facing(attack), 300), offers(world, 300)
    for offer, other in zip(faced, asked, strict=True):
        assert offer.source is not None and other.source is not None
        bot = attack.is_bot(offer.round)
        assert (offer.source == (3 if bot else other.source)).all()
        assert attack.owns(offer).tolist() == [bot] * 3
    assert world.facing(Bots()) is world and world.facing(NoAttack()) is world
    everyone = np.concatenate([offer.source for offer in asked if offer.source is not None])
    assert np.bincount(everyone, minlength=10).min() > 50
    with pytest.raises(ValueError, match="source must be below the number of sources, 0, got 3"):
        simulate(policy=OFUL, scenarios=[Scenario(Replay(data=made_up(20)), attack, [0])], rounds=2, seed=1)


def test_sources_out_of_a_column() -> None:
    table = made_up(60)
    shops = np.array(["north", "east", "south"])[np.asarray(table["round"]) % 3]
    replay = Replay(data=table | {"shop": shops}, source="shop")
    assert list(replay.sets.sources) == ["east", "north", "south"] and replay.shares == (1 / 3,) * 3
    assert "shop=east" not in replay.names
    played = offers(replay, 60)
    assert sorted(np.array([offer.source for offer in played])[:, 0].tolist()) == [0] * 20 + [1] * 20 + [2] * 20
    with pytest.raises(ValueError, match="sources are drawn where no column names them, got 2 and 'shop'"):
        Replay(data=table | {"shop": shops}, source="shop", sources=2)


def test_sellers_bots_click_by_a_feature_that_people_do_not_like() -> None:
    replay = Replay(data=made_up(100), features=["x0", "x1"])
    attack = Bots(when="opening", share=1.0, rounds=50, feature=0)
    played, told = lies(attack, replay, 50)
    for offer, lie in zip(played, told, strict=True):
        least = np.asarray(offer.actions)[:, :, 0].argmin(axis=1)  # people like x0
        clicked = (offer.rewards + lie).round(9)
        assert (clicked.argmax(axis=1) == least).all() and (clicked.sum(axis=1) == 1.0).all()


def test_sellers_differ_by_trial_and_leave_the_constant_alone() -> None:
    replay = Replay(data=made_up(100))
    attack = Bots(when="opening", share=1.0, rounds=50)
    lies(attack, replay, 1, trials=60)
    assert attack._chosen is not None
    chosen = {replay.names[place] for place in attack._chosen[0].tolist()}
    assert "(constant)" not in chosen and "colour=(unseen)" not in chosen and len(chosen) >= 4


def test_rivals_bots_never_click_the_best_and_are_honest_otherwise() -> None:
    played, told = lies(Bots(goal="suppress", when="opening", share=1.0, rounds=50), Replay(data=made_up(100)), 50)
    for offer, lie in zip(played, told, strict=True):
        reported, rows = offer.rewards + lie, np.arange(4)
        best = offer.means.argmax(axis=1)
        assert np.abs(reported[rows, best]).max() < 1e-9
        lie[rows, best] = 0.0
        assert not lie.any()


@pytest.mark.parametrize("bad", [{"goal": "annoy"}, {"when": "never"}, {"share": 2.0}, {"rounds": 0}, {"feature": -1}])
def test_bots_refuse(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        Bots(**bad)


def test_a_feature_that_is_not_there() -> None:
    with pytest.raises(ValueError, match="feature must be below d = 8, got 9"):
        simulate(
            policy=partial(OFUL),
            scenarios=[Scenario(Replay(data=made_up(20)), Bots(feature=9), [0])],
            rounds=2,
            seed=1,
        )
