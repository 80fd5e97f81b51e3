"""Large sets: the bounds that stay from round to round save work and never change an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import robandit
from robandit.geometry.ellipsoid import TIE, Ellipsoid
from robandit.geometry.large_sets import LARGE, WidthBounds, best_of_many
from robandit.geometry.ridge import Ridge

SIZES = [(1000, 5), (41, 100), (4000, 1), (200, 20)]


def played(count: int, dim: int, rows: int, seed: int) -> tuple[Ridge, Any, Any]:
    """A regression, a set that nobody can write to, and the source of randomness."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(rows, count, dim)) * 10.0 ** rng.uniform(-2, 0, (rows, count, 1))
    directions.flags.writeable = False
    return Ridge(rows=rows, dim=dim, regularization=0.5), directions, rng


def learn(ridge: Ridge, directions: Any, index: Any, rng: Any) -> None:
    actions = directions[np.arange(len(index)), index]
    ridge.update(actions, rng.normal(size=len(index)), 10.0 ** rng.uniform(-2, 3, len(index)))


@pytest.mark.parametrize(("count", "dim"), SIZES)
@pytest.mark.parametrize("rows", [1, 3])
def test_kept_bounds_give_the_bits_of_a_fresh_search(count: int, dim: int, rows: int) -> None:
    ridge, directions, rng = played(count, dim, rows, seed=count + dim + rows)
    assert directions[0].size >= LARGE
    for t in range(60):
        radius = np.full(rows, 10.0 ** rng.uniform(-3, 1))
        kept = Ellipsoid.around(ridge, radius).best(directions)
        fresh = Ellipsoid.from_root(ridge.mean, ridge.root, radius).best(directions.copy())
        assert kept[1].tobytes() == fresh[1].tobytes() and (kept[0] == fresh[0]).all(), t
        assert kept[2] is None and fresh[2] is None
        heights = np.matvec(directions, ridge.mean) + radius[:, None] * np.linalg.norm(directions @ ridge.root, axis=2)
        np.testing.assert_allclose(kept[1], heights.max(axis=1), rtol=1e-11)
        learn(ridge, directions, kept[0], rng)
    assert ridge.bounds.kept


@pytest.mark.parametrize(("count", "dim"), SIZES)
def test_bounds_hold_and_are_tight_after_many_updates(count: int, dim: int) -> None:
    ridge, directions, rng = played(count, dim, 2, seed=7)
    start = np.vecdot(directions, directions) / 0.5
    ridge.bounds.of(directions, ridge.root)
    for t in range(3000):
        learn(ridge, directions, rng.integers(0, min(count, 3 + t // 100), 2), rng)
    bounds = ridge.bounds.of(directions, ridge.root)
    along = directions.astype(np.longdouble) @ ridge.root.astype(np.longdouble)
    exact = (along * along).sum(axis=2).astype(float)
    assert (bounds >= exact - 1e-12 * start).all()
    assert (bounds <= exact + 2e-11 * dim * start).all()


@pytest.mark.parametrize("size", [1e-30, 1e-6, 1.0, 1e30, 1e60])
@pytest.mark.parametrize("spread", [0.0, 4.0])
def test_bounds_in_single_precision_hold_and_are_tight(size: float, spread: float) -> None:
    """Also where single precision can't hold the directions, or widths are far smaller than the root."""
    rng = np.random.default_rng(11)
    directions = size * rng.normal(size=(500, 80))
    root = rng.normal(size=(80, 80)) * 10.0 ** -rng.uniform(0.0, spread, 80)
    directions[0] = size * np.linalg.solve(root.T, rng.normal(size=80))  # what S makes much shorter
    along = directions.astype(np.longdouble) @ root.astype(np.longdouble)
    exact = np.sqrt((along * along).sum(axis=1)).astype(float)
    found = np.sqrt(WidthBounds().of(directions[None].copy(), root[None])[0])
    assert (found >= exact).all()
    scale = (np.linalg.norm(directions, axis=1) + 1e-11) * (1.0 + np.linalg.norm(root))
    assert (found <= exact + 1e-4 * scale).all()


def test_bounds_are_computed_again_before_rounding_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("robandit.geometry.large_sets._LIFE", 5)
    ridge, directions, rng = played(400, 20, 1, seed=2)
    for t in range(12):
        ridge.bounds.of(directions, ridge.root)
        ridge.bounds._squares += 1.0  # as if it were rounding
        learn(ridge, directions, rng.integers(0, 400, 1), rng)
        assert (ridge.bounds._squares.min() > 4.5) == (t % 5 == 4)


def test_the_loosest_bounds_change_nothing() -> None:
    """Every action is then a candidate, and the widths are computed again afterwards."""
    ridge, directions, rng = played(400, 20, 2, seed=3)
    for _ in range(40):
        learn(ridge, directions, rng.integers(0, 400, 2), rng)
    center, root, radius = ridge.mean, ridge.root, np.array([0.1, 2.0])
    right = best_of_many(directions, center, root, radius, TIE, WidthBounds())
    loose = WidthBounds()
    loose.of(directions, root)
    loose._squares += 1e6
    found = best_of_many(directions, center, root, radius, TIE, loose)
    assert (found[0] == right[0]).all() and found[1].tobytes() == right[1].tobytes() and found[2] is None
    assert (loose._squares < 1e6).all()  # as they were computed again


def test_bounds_that_are_too_low_would_be_noticed_here() -> None:
    """This is what the margin is for."""
    ridge, directions, _ = played(400, 20, 1, seed=4)
    low = WidthBounds()
    low.of(directions, ridge.root)
    right = best_of_many(directions, ridge.mean, ridge.root, np.ones(1), TIE, low)
    low._squares[0, right[0]] = 0.0
    wrong = best_of_many(directions, ridge.mean, ridge.root, np.ones(1), TIE, low)
    assert wrong[0] != right[0]


def test_duplicates_tie_and_so_do_many() -> None:
    ridge, directions, _ = played(500, 10, 1, seed=5)
    copies = directions.copy()
    copies[0, 100:300] = copies[0, Ellipsoid.around(ridge, np.ones(1)).best(directions)[0][0]]
    _, best, ties = Ellipsoid.around(ridge, np.ones(1)).best(copies)
    assert ties is not None and ties.sum() in (200, 201) and ties[0, 100:300].all()
    mask, value = Ellipsoid.around(ridge, np.ones(1)).argmax(copies)
    assert (mask == ties).all() and value == best


def test_a_reset_forgets_the_bounds() -> None:
    ridge, directions, rng = played(400, 20, 2, seed=6)
    for _ in range(20):
        learn(ridge, directions, Ellipsoid.around(ridge, np.ones(2)).best(directions)[0], rng)
    ridge.reset(np.array([1]))
    after = Ellipsoid.around(ridge, np.ones(2)).best(directions)
    fresh = Ellipsoid.from_root(ridge.mean, ridge.root, np.ones(2)).best(directions.copy())
    assert (after[0] == fresh[0]).all() and after[1].tobytes() == fresh[1].tobytes()


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["OFUL", "CWOFUL", "Quorum", "MultiLevelWeightedOFUL"])
def test_a_policy_on_a_set_that_stays_is_one_that_knows_nothing_of_it(name: str) -> None:
    """Whether the set is recognised, or changed in between; the other policy is made anew in every round."""
    rng = np.random.default_rng(8)
    first = rng.uniform(-1, 1, (450, 10)) / 10**0.5
    more: dict[str, Any] = (
        {} if name == "Quorum" else {"radius_scale": 0.05} | ({} if name == "OFUL" else {"horizon": 200})
    )
    more |= {"corruption": None} if name == "CWOFUL" else {}
    kind = getattr(robandit, name)
    stays, other = (kind(dim=10, noise_range=0.5, seed=3, **more) for _ in range(2))
    actions = first.copy()
    for t in range(60):
        if t == 30:
            actions[:] = -first  # the same array, with something else in it
        other = kind.from_state(other.state())
        one, two = stays.choose(actions), other.choose(actions)
        assert (one.index, one.value) == (two.index, two.value), t
        reward = float(one.action.sum() * 0.2 + rng.normal() * 0.05)
        stays.update(one, reward)
        other.update(two, reward)


def test_a_batch_is_its_trials_on_a_large_set_too() -> None:
    rng = np.random.default_rng(9)
    sets = rng.uniform(-1, 1, (3, 450, 10)) / 10**0.5
    batch = robandit.OFUL(dim=10, noise_range=0.5, seed=5, trials=3)
    alone = [robandit.OFUL(dim=10, noise_range=0.5, seed=(5, trial)) for trial in range(3)]
    for _ in range(40):
        together = batch.choose(sets)
        single = [policy.choose(actions) for policy, actions in zip(alone, sets, strict=True)]
        assert together.value.tolist() == [decision.value for decision in single]
        assert together.index.tolist() == [decision.index for decision in single]
        rewards = rng.uniform(-0.5, 0.5, 3)
        batch.update(together, rewards)
        for policy, decision, reward in zip(alone, single, rewards.tolist(), strict=True):
            policy.update(decision, reward)


def test_a_large_set_that_was_made_writeable_again_is_looked_at_again() -> None:
    rng = np.random.default_rng(10)
    policy, fresh = (robandit.OFUL(dim=10, noise_range=0.5, seed=3) for _ in range(2))
    actions = rng.uniform(-1, 1, (450, 10)) / 10**0.5
    actions.flags.writeable = False
    for _ in range(3):
        policy.update(policy.choose(actions), 0.1)
        fresh.update(fresh.choose(actions.copy()), 0.1)
    actions.flags.writeable = True
    actions *= -0.5
    decision, other = policy.choose(actions), fresh.choose(actions.copy())
    assert (decision.index, decision.value) == (other.index, other.value)
    actions *= 9.0
    with pytest.raises(ValueError, match="actions must have norm"):
        policy.choose(actions)


def test_room_to_compute_in_is_kept_and_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets of other sizes come between, and one that is too large to keep room for."""
    monkeypatch.setattr("robandit.geometry.large_sets._ROOM", 100 * 80)
    rng, bounds = np.random.default_rng(0), WidthBounds()
    root = rng.normal(size=(1, 80, 80))
    kept = []
    for count in (100, 50, 100, 101, 100):
        offered = rng.normal(size=(1, count, 80))
        found = bounds.of(offered, root)
        assert found.tobytes() == WidthBounds().of(offered, root).tobytes()
        assert (found >= np.square(np.vecmat(offered[0], root).reshape(count, 80)).sum(axis=1)).all()
        kept.append(bounds._room)
    assert all(room is kept[0] for room in kept) and len(kept[0]) == 2 * 100 * 80
