"""The compiled kernel: NumPy's is its oracle, and for intersections so is the dual in 80-bit arithmetic."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from geometry_oracles import Body, dual_support

import robandit
from robandit.geometry import kernel as kernels
from robandit.geometry.ellipsoid import TIE, Ellipsoid
from robandit.geometry.intersection import Intersection
from robandit.geometry.ridge import Ridge
from robandit.lab.checks.policies import (
    check_batch_equals_singles,
    check_late_and_missing_feedback,
    check_log_folds_again,
    check_odd_decision_sets,
    check_state_round_trip,
    check_ties_are_broken_at_random,
)
from robandit.policies.dissent import Surprise
from robandit.policies.groups import RoundGroups

POLICIES: dict[str, dict[str, Any]] = {
    "OFUL": {"radius_scale": 0.4},
    "WeightedOFUL": {"radius_scale": 0.02},
    "Greedy": {},
    "CWOFUL": {"horizon": 400, "corruption": 5.0, "radius_scale": 0.1},
    "MultiLevelWeightedOFUL": {"horizon": 400, "radius_scale": 0.002},
    "Quorum": {},
    "LinTS": {"radius_scale": 0.1},
    "StochasticCorral": {"horizon": 400},
}


def numba() -> Any:
    """The compiled kernel: compiled, which takes seconds, by the process that tests it, and not by all that collect."""
    return kernels.load_kernel("numba")


def compiled(body: Ellipsoid) -> Ellipsoid:
    """The same ellipsoids, searched by the compiled kernel."""
    same = Ellipsoid.from_root(body.center, body.root, body.radius, body.precision)
    same._kernel = numba()
    return same


def bodies(rng: np.random.Generator, rows: int, dim: int, apart: float) -> tuple[Ellipsoid, Ellipsoid]:
    """Pairs of ellipsoids whose centres are about so far apart."""

    def precision() -> Any:
        seen = rng.normal(size=(rows, 3 * dim + 1, dim)) * np.exp(0.7 * rng.normal(size=(rows, 1, dim)))
        return np.swapaxes(seen, 1, 2) @ seen

    center = rng.normal(size=(rows, dim))
    first = Ellipsoid(center, precision(), rng.uniform(0.5, 2.0, rows))
    return first, Ellipsoid(center + apart * rng.normal(size=(rows, dim)), precision(), rng.uniform(0.5, 2.0, rows))


@pytest.mark.parametrize("dim", [1, 2, 5, 20])
@pytest.mark.parametrize("rows", [1, 7])
def test_updates_are_those_of_numpy(dim: int, rows: int) -> None:
    rng = np.random.default_rng(dim + rows)
    plain, fast = (
        Ridge(rows=rows, dim=dim, regularization=0.5, keep_precision=True, kernel=name) for name in kernels.KERNELS
    )
    for t in range(200):
        part: Any = slice(None) if t % 3 else rng.permutation(rows)[: 1 + rows // 2]
        count = len(np.arange(rows)[part])
        seen = rng.normal(size=(count, dim)), rng.normal(size=count), rng.uniform(0.0, 100.0, count) * (t % 5 > 0)
        plain.update(*seen, part)
        fast.update(*seen, part)
    for name, array in plain.arrays().items():
        np.testing.assert_allclose(fast.arrays()[name], array, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_million_weights_of_one_arm_keep_their_digits() -> None:
    """The square root keeps widths where Σ⁻¹ itself would lose them, in this kernel as well."""
    ridge = Ridge(rows=1, dim=3, regularization=1.0, kernel="numba")
    arm = np.array([[0.6, 0.0, 0.8]])
    for _ in range(10_000):
        ridge.update(arm, np.array([0.5]), np.array([1e4]))
    assert ridge.widths(arm)[0] ** 2 == pytest.approx(1.0 / (1.0 + 1e8), rel=1e-9)
    assert ridge.mean[0] == pytest.approx(0.5 * arm[0], rel=1e-7)


@pytest.mark.parametrize(("rows", "count", "dim"), [(1, 20, 20), (6, 20, 20), (6, 1, 1), (3, 1000, 5), (1, 300, 20)])
def test_the_best_action_is_that_of_numpy(rows: int, count: int, dim: int) -> None:
    rng = np.random.default_rng(count)
    first, _ = bodies(rng, rows, dim, 0.1)
    shared = np.broadcast_to(rng.normal(size=(count, dim)), (rows, count, dim))
    for directions in (
        rng.normal(size=(rows, count, dim)),
        shared,
        np.repeat(shared[:, : (count + 1) // 2], 2, axis=1),
    ):
        plain, fast = first.argmax(directions), compiled(first).argmax(directions)
        assert (plain[0] == fast[0]).all()
        np.testing.assert_allclose(fast[1], plain[1], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dim", [1, 2, 3, 6, 20])
@pytest.mark.parametrize("apart", [0.02, 0.2, 0.6])
def test_the_best_action_in_an_intersection_is_that_of_numpy(dim: int, apart: float) -> None:
    rng = np.random.default_rng(int(100 * apart) + dim)
    first, second = bodies(rng, 40, dim, apart)
    directions = rng.normal(size=(40, 12, dim))
    directions[:20, 6:] = directions[:20, :6]  # copies tie
    directions[-1, 3] = 0.0
    plain = Intersection(first, second).argmax(directions)
    fast = Intersection(compiled(first), second).argmax(directions)
    assert (plain[0] == fast[0]).all()
    np.testing.assert_allclose(fast[1], plain[1], rtol=1e-11)


@pytest.mark.parametrize(("dim", "apart"), [(1, 2.0), (2, 1.0), (5, 0.3), (20, 0.06)])
def test_directions_that_separate_are_those_of_numpy(dim: int, apart: float) -> None:
    """They prove of all pairs that do not meet, and of no others, that these do not meet."""
    rng = np.random.default_rng(dim)
    first, second = bodies(rng, 60, dim, apart)
    plain, fast = Intersection(first, second), Intersection(compiled(first), second)
    empty, one, other = plain.is_empty(), plain.separators(), fast.separators()
    assert empty.any() and not empty.all()
    lengths = np.linalg.norm(one, axis=1), np.linalg.norm(other, axis=1)
    np.testing.assert_allclose(np.vecdot(one, other)[empty], (lengths[0] * lengths[1])[empty], rtol=1e-6)
    for directions in (one, other, rng.normal(size=one.shape)):
        proved = plain.separated(directions)
        assert fast.separated(directions).tolist() == proved.tolist()
        assert not (proved & ~empty).any() and (proved[empty].all() or directions is not one)
    assert fast.separated(other)[empty].all()


def test_groups_and_surprise_are_those_of_numpy_bit_for_bit() -> None:
    rng, batch, dissent = np.random.default_rng(8), 5, 0
    pairs = [(RoundGroups.new(batch, 1, 7), Surprise.new(batch)) for _ in range(2)]
    for t in range(1, 200):
        seen = rng.random(batch) < 0.9
        weights, now = np.where(seen, rng.uniform(0.5, 2.0, batch), 0.0), rng.integers(t, 2 * t + 1, batch)
        group = np.where(seen, rng.integers(8, size=batch), -1)  # a trial that sees nothing may have no group yet
        actions, rewards = rng.normal(size=(batch, 7)), rng.integers(20, size=(batch, 2))[:, 0] / 4  # not contiguous
        distance, least = 3.0 * np.abs(rng.normal(size=batch)), rng.choice([0.04, 1.0], batch)
        found = []
        for (groups, surprise), kernel in zip(pairs, (None, numba()), strict=True):
            groups.add(group, actions, rewards, weights, now, kernel)
            found.append(surprise.judge(distance, rewards, least, now, seen, kernel).tolist())
        assert found[0] == found[1]
        dissent += sum(found[0])
    for plain, fast in zip(*pairs, strict=True):
        for name, array in plain.arrays().items():
            assert array.tobytes() == fast.arrays()[name].tobytes(), name
    assert dissent and pairs[0][1].repeats.any()
    assert (pairs[0][0].changed == pairs[1][0].changed).all()


def test_directions_that_need_more_digits_are_found_by_numpy() -> None:
    first = Ellipsoid(np.zeros((1, 4)), np.eye(4)[None], np.ones(1))
    second = Ellipsoid(np.full((1, 4), 3.0), np.diag([1e-8, 1.0, 1.0, 1e8])[None], np.ones(1))
    plain, fast = Intersection(first, second), Intersection(compiled(first), second)
    assert plain.separators().tolist() == fast.separators().tolist()


def raw(first: Ellipsoid, second: Ellipsoid, directions: Any) -> tuple[Any, Any, Any]:
    """What the kernel itself answers, without NumPy to help it."""
    rows = np.arange(len(directions))
    one = rows, first.center, first.root, first.radius
    two = rows, second.center, second.root, second.precision, second.radius
    return numba().intersect(directions, directions @ first.root, *one, *two, TIE)


def test_all_ways_to_end_occur_and_numpy_takes_over_where_digits_would_be_lost() -> None:
    rng = np.random.default_rng(0)
    first, second = bodies(rng, 300, 4, 0.5)
    assert {numba().SETTLED, numba().EMPTY} <= set(raw(first, second, rng.normal(size=(300, 5, 4)))[2].tolist())
    needle = np.diag([1e-8, 1.0, 1.0, 1e8])[None]
    first = Ellipsoid(np.zeros((1, 4)), np.eye(4)[None], np.ones(1))
    second = Ellipsoid(np.full((1, 4), 1e-5), needle, np.ones(1))
    directions = np.array([[[0.5, 0.1, 0.0, 1.0], [0.4, 0.0, 0.0, 1.0]]])
    assert raw(first, second, directions)[2].tolist() == [numba().HARD]
    for plain, fast in zip(
        Intersection(first, second).argmax(directions),
        Intersection(compiled(first), second).argmax(directions),
        strict=True,
    ):
        assert plain.tolist() == fast.tolist()


@pytest.mark.no_cover
@pytest.mark.parametrize("dim", [1, 2, 5, 12])
@pytest.mark.parametrize("apart", [0.1, 0.3])
def test_values_are_those_of_the_dual_in_extended_precision(dim: int, apart: float) -> None:
    rng = np.random.default_rng(dim)
    first, second = bodies(rng, 12, dim, apart)
    directions = rng.normal(size=(12, 1, dim))
    _, values, ended = raw(first, second, directions)
    assert (ended != numba().HARD).any()
    for i in np.flatnonzero(ended != numba().HARD):
        one, two = (Body(each.center[i], each.precision[i], float(each.radius[i])) for each in (first, second))
        assert values[i] == pytest.approx(float(dual_support(one, two, directions[i, 0])), rel=1e-11, abs=1e-12)


def play(name: str, kernel: str, rounds: int = 150, **more: Any) -> tuple[list[Any], robandit.Policy]:
    """The choices of a policy in a world that lies at first."""
    settings = {"dim": 4, "noise_range": 0.5, "trials": 5, "seed": 3, **POLICIES[name], **more}
    policy = getattr(robandit, name)(**settings, kernel=kernel)
    rng, seen = np.random.default_rng(1), []
    for t in range(rounds):
        decision = policy.choose(rng.uniform(-0.5, 0.5, (5, 6, 4)), 0.1)
        seen.append((decision.index, decision.level, decision.value))
        means = decision.action.sum(axis=1) / 2.0
        policy.update(decision, np.where(t < 40, -means, means) + 0.1 * rng.standard_normal(5))
    return seen, policy


@pytest.mark.no_cover
@pytest.mark.parametrize("name", POLICIES)
def test_policies_play_as_with_numpy(name: str) -> None:
    plain, fast = play(name, "numpy")[0], play(name, "numba")[0]
    for t, (one, other) in enumerate(zip(plain, fast, strict=True)):
        assert one[0].tolist() == other[0].tolist() and one[1].tolist() == other[1].tolist(), t
        np.testing.assert_allclose(one[2], other[2], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", ["OFUL", "MultiLevelWeightedOFUL", "Quorum"])
@pytest.mark.parametrize(
    "check",
    [
        check_batch_equals_singles,
        check_state_round_trip,
        check_log_folds_again,
        check_late_and_missing_feedback,
        check_odd_decision_sets,
        check_ties_are_broken_at_random,
    ],
    ids=lambda check: check.__name__,
)
def test_shared_checks(name: str, check: Any) -> None:
    """Batches, restored states and folded logs agree bit for bit within the kernel."""
    check(partial(getattr(robandit, name), dim=3, noise_range=0.5, **POLICIES[name], kernel="numba"))


def test_the_kernel_is_part_of_configuration_and_state() -> None:
    state = play("OFUL", "numba", rounds=3)[1].state()
    assert state["config"]["kernel"] == "numba"
    assert robandit.OFUL.from_state(state).kernel == "numba"
    del state["config"]["kernel"]  # as older states have none
    assert robandit.OFUL.from_state(state).kernel == "numpy"
    with pytest.raises(ValueError, match="kernel must be one of 'numpy', 'numba', got 'cuda'"):
        robandit.OFUL(dim=2, noise_range=0.5, kernel="cuda")


def test_without_numba_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError("No module named 'numba'")

    monkeypatch.setattr(kernels, "import_module", missing)
    with pytest.raises(ImportError, match=r"pip install '\.\[fast\]' in a clone of robandit, or use kernel='numpy'"):
        robandit.OFUL(dim=2, noise_range=0.5, kernel="numba")
    robandit.OFUL(dim=2, noise_range=0.5)
