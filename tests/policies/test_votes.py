"""The vote against independent minimisers, and the bound that docs/ideas/quorum.md proves."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from robandit.policies import votes
from robandit.policies.ballots import Ballots, lengths, weighted_form, weighted_sum
from robandit.policies.votes import Evidence


@pytest.fixture(autouse=True)
def _to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The convex vote is followed until it stands still."""
    monkeypatch.setattr(votes, "_MOST", 5000)
    monkeypatch.setattr(votes, "_STILL", 1e-12)


def groups(seed: int, count: int, dim: int, spread: float = 1.0, lies: int = 0) -> tuple[Any, Any, Any]:
    """V, b of groups of very different sizes and shapes around one parameter, of which some say something else."""
    rng = np.random.default_rng([seed, count, dim])
    parameter = rng.normal(size=dim) / dim**0.5
    V, b = np.zeros((count, dim, dim)), np.zeros((count, dim))
    for g in range(count):
        rows = rng.normal(size=(int(rng.integers(1, 40)), dim)) * spread ** rng.uniform(-1.0, 1.0, dim)
        believed = parameter if g >= lies else 10.0 * rng.normal(size=dim)
        rewards = rows @ believed + rng.normal(size=len(rows))
        V[g], b[g] = rows.T @ rows, rows.T @ rewards
    return V, b, parameter


def disagreement(V: Any, b: Any, mu: Any, lam: float) -> float:
    e = b - V @ mu
    return float(np.sqrt(e @ np.linalg.solve(V + lam * np.eye(len(b)), e)))


def ballots(V: Any, b: Any, lam: float) -> Ballots:
    """Those of one trial, in which nobody asks for the rewards."""
    return Ballots.of(V[None], b[None], np.zeros((1, len(b))), lam)


SHAPES = [(0, 1, 1, 1.0), (1, 3, 2, 1.0), (2, 8, 5, 1.0), (3, 30, 3, 1.0), (4, 12, 6, 30.0), (5, 6, 4, 300.0)]


@pytest.mark.parametrize(("seed", "count", "dim", "spread"), SHAPES)
@pytest.mark.parametrize("lam", [0.3, 4.0])
def test_ballots_are_the_disagreement(seed: int, count: int, dim: int, spread: float, lam: float) -> None:
    V, b, parameter = groups(seed, count, dim, spread)
    held = ballots(V, b, lam)
    distance = held.distance(parameter[None])[0]
    slow = [disagreement(V[g], b[g], parameter, lam) for g in range(count)]
    np.testing.assert_allclose(distance, slow, rtol=1e-6, atol=1e-5 * spread)
    freedom = [np.trace(V[g] @ np.linalg.inv(V[g] + lam * np.eye(dim))) for g in range(count)]
    np.testing.assert_allclose(held.freedom[0], freedom, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("seed", "count", "dim", "spread"), SHAPES)
def test_sums_of_quadratics_and_lengths(seed: int, count: int, dim: int, spread: float) -> None:
    V, b, parameter = groups(seed, count, dim, spread)
    rng = np.random.default_rng(seed)
    weights, squares = rng.random((1, count)), rng.random((1, count))
    held = Ballots.of(V[None], b[None], squares, 0.7)
    slow = [parameter @ V[g] @ parameter - 2 * b[g] @ parameter + squares[0, g] for g in range(count)]
    np.testing.assert_allclose(held.loss(parameter[None])[0], slow, rtol=1e-9, atol=1e-9 * spread**2)
    matrix, vector = weighted_form(weights, held.losses)
    np.testing.assert_allclose(matrix[0], np.einsum("g,gij->ij", weights[0], V), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(vector[0], weights[0] @ b, rtol=1e-12, atol=1e-12)
    full = V + 0.7 * np.eye(dim)
    slow = [np.sqrt(b[g] @ np.linalg.solve(full[g], b[g])) for g in range(count)]
    np.testing.assert_allclose(lengths(full, b, 0.7), slow, rtol=1e-6)


@pytest.mark.no_cover
@pytest.mark.parametrize(("seed", "count", "dim", "spread"), SHAPES)
@pytest.mark.parametrize("lies", [0, 2])
def test_the_convex_vote_is_the_minimum(seed: int, count: int, dim: int, spread: float, lies: int) -> None:
    """A general minimiser, started at the answer and elsewhere, finds nothing lower."""
    V, b, parameter = groups(seed, count, dim, spread, lies=min(lies, (count - 1) // 2))
    bounds = np.random.default_rng(seed).uniform(0.2, 3.0, count)

    def loss(mu: Any) -> float:
        far = np.array([disagreement(V[g], b[g], mu, 0.5) for g in range(count)])
        return 0.5 * float(mu @ mu) + float(np.where(far <= bounds, far**2, 2 * bounds * far - bounds**2).sum())

    held = ballots(V, b, 0.5)
    mean, weights = votes.settle(held, np.zeros((1, dim)), bounds[None], np.ones((1, count)), 0.5)
    found = loss(mean[0])
    for start in (mean[0], parameter, np.zeros(dim)):
        assert minimize(loss, start, method="Nelder-Mead" if dim == 1 else "BFGS").fun >= found - 1e-6 * (1 + found)
    far = held.distance(mean)
    np.testing.assert_allclose(weights, np.minimum(1.0, bounds / np.maximum(far, 1e-300)), atol=1e-6)


def test_groups_alike_elect_their_geometric_median() -> None:
    """With V = I for all and bounds near 0, Σ_g ‖μ − μ_g‖ is minimised: Weiszfeld's algorithm finds the same."""
    points = np.random.default_rng(0).normal(size=(7, 2))
    points[:3] += 50.0
    held = ballots(np.broadcast_to(1e6 * np.eye(2), (7, 2, 2)), 1e6 * points, 1e-3)
    mean, _ = votes.settle(held, points.mean(axis=0)[None], np.full((1, 7), 1e-2), np.ones((1, 7)), 1e-3)
    slow = points.mean(axis=0)
    for _ in range(20_000):
        near = 1.0 / np.linalg.norm(points - slow, axis=1)
        slow = near @ points / near.sum()
    np.testing.assert_allclose(mean[0], slow, rtol=1e-5)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), dim=st.integers(1, 5), size=st.floats(0.0, 1e6))
def test_a_minority_moves_the_vote_no_farther_than_is_proved(seed: int, dim: int, size: float) -> None:
    """The theorem of docs/ideas/quorum.md: whatever a third of the information says, however loudly."""
    rng = np.random.default_rng(seed)
    honest, liars, lam = 6, 3, 1.0
    shape = np.cov(rng.normal(size=(dim, 3 * dim + 3))).reshape(dim, dim) + 0.1 * np.eye(dim)
    V = 50.0 * np.broadcast_to(shape, (honest + liars, dim, dim))
    parameter = rng.normal(size=dim)
    b = np.matvec(V, parameter) + rng.normal(size=(honest + liars, dim))
    b[honest:] += size * rng.normal(size=dim)
    held = ballots(V, b, lam)
    bound = 1.5
    mean, _ = votes.settle(held, np.zeros((1, dim)), np.full((1, 9), bound), np.ones((1, 9)), lam)
    moved = mean[0] - parameter
    norm = float(np.sqrt(moved @ V[0] @ np.linalg.solve(V[0] + lam * np.eye(dim), V[0] @ moved)))
    errors = held.distance(parameter[None])[0, :honest]
    slack = 0.5 * lam * float(parameter @ parameter) / bound + honest * bound / 2
    assert (honest - liars) * norm <= 2.0 * errors.sum() + slack + 1e-6 * (1.0 + size)


class Sums(NamedTuple):
    """V, b and Σ w r² of the groups of some trials."""

    precision: Any
    target: Any
    squares: Any


def trial(seed: int, count: int, dim: int, empty: int = 0) -> tuple[Evidence, Sums]:
    """A trial in which the first of three sources lies, with some empty places at the end."""
    V, b, _ = groups(seed, count, dim, lies=count // 3)
    counts: Any = np.random.default_rng(seed).integers(5, 50, count)
    made = Evidence(counts * 4.0, counts, counts * 1.0, np.arange(count) // 3, np.ones(count))
    rest = {name: np.full(empty, -1 if name == "slot" else 0, x.dtype) for name, x in made._asdict().items()}
    given = Evidence(*(np.concatenate([x, rest[name]])[None] for name, x in made._asdict().items()))
    sums = Sums(V, b, np.vecdot(b, b) + 1e3)
    return given, Sums(*(np.concatenate([x, np.zeros((empty, *x.shape[1:]))])[None] for x in sums))


def count(given: Evidence, sums: Sums, floor: float) -> votes.VoteResult:
    held, one = Ballots.of(*sums, 1.0), np.ones(len(given.slot))
    start = np.zeros(sums.target[:, 0].shape)
    return votes.vote(given, held, start, one, votes.Terms(1.0, 0.0, floor * one, one))


def test_empty_places_change_no_bit() -> None:
    alone, beside = trial(3, 9, 4), trial(3, 9, 4, empty=31)
    first, second = (count(*given, 0.1) for given in (alone, beside))
    assert np.array_equal(first.weights, second.weights[:, :9]) and np.array_equal(first.noise, second.noise)
    assert (second.weights[:, 9:] == 0.0).all()
    assert (first.weights < 1.0).any()


@pytest.mark.parametrize("size", [1, 2, 5])
def test_sums_over_groups_do_not_depend_on_empty_ones(size: int) -> None:
    """NumPy's einsum adds single numbers in another order than vectors, in which zeros between them count."""
    rng = np.random.default_rng(size)
    for count in range(2, 40):
        weights, values = rng.random((3, count)), rng.normal(size=(3, count, size)) * 1e3
        slot, gap = rng.integers(3, size=(3, count)), [(0, 0), (0, 11)]
        wide, more, whole = np.pad(weights, gap), np.pad(values, [*gap, (0, 0)]), np.pad(slot, gap, constant_values=-1)
        assert np.array_equal(weighted_sum(weights, values), weighted_sum(wide, more))
        assert np.array_equal(votes.by_source(slot, values[..., 0]), votes.by_source(whole, more[..., 0]))
        slow = [[values[i, slot[i] == s, 0].sum() for s in range(slot.max() + 1)] for i in range(3)]
        np.testing.assert_allclose(votes.by_source(slot, values[..., 0]), slow, rtol=1e-12, atol=1e-9)


def test_trials_beside_it_change_no_bit_of_a_trial() -> None:
    """Neither of a vote, nor of what it leaves of spells that are over."""
    rng = np.random.default_rng(11)
    alone = [trial(seed, 9, 4, empty=3 * (seed % 2)) for seed in range(6)]
    filled = [trial(seed, 9, 4, empty=3) for seed in range(6)]
    together = Evidence(*(np.concatenate(arrays) for arrays in zip(*(given for given, _ in filled), strict=True)))
    sums = Sums(*(np.concatenate(arrays) for arrays in zip(*(sums for _, sums in filled), strict=True)))
    spell, closed = rng.integers(3, size=(6, 12)), rng.random((6, 12)) < 0.5
    closed &= together.slot >= 0
    found, zeroed = count(together, sums, 0.1), 0
    weights = rng.random((6, 12)) * (together.slot >= 0)
    left = votes.without_bad_spells(together, weights, spell, closed)
    for i, (one, own) in enumerate(alone):
        used = one.slot.shape[1]
        single, mine = count(one, own, 0.1), weights[i : i + 1, :used]
        rest = votes.without_bad_spells(one, mine, spell[i : i + 1, :used], closed[i : i + 1, :used])
        assert np.array_equal(single.weights[0], found.weights[i, :used]) and single.noise[0] == found.noise[i]
        assert np.array_equal(rest[0], left[i, :used])
        zeroed += int((rest != mine).sum())
    assert zeroed > 0 and (found.weights[together.slot >= 0] < 1.0).any()


def test_what_is_left_of_a_bad_spell_goes() -> None:
    """By the definition, group by group."""
    rng, given = np.random.default_rng(12), trial(5, 9, 3)[0]
    voice = given.voice.copy()
    voice[0, 4] = np.inf
    given, changed = given._replace(voice=voice), 0
    for _ in range(50):
        weights, spell, closed = rng.random((1, 9)), rng.integers(2, size=(1, 9)), rng.random((1, 9)) < 0.7
        left = votes.without_bad_spells(given, weights, spell, closed)
        for g in range(9):
            mine = [h for h in range(9) if (given.slot[0, h], spell[0, h]) == (given.slot[0, g], spell[0, g])]
            mean = np.average(weights[0, mine], weights=given.counts[0, mine])
            gone = bool(closed[0, g] and mean < 0.5 and g != 4)
            assert left[0, g] == (0.0 if gone else weights[0, g])
            changed += gone
    assert 50 < changed < 400


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 4)), min_size=1, max_size=9))
def test_the_weighted_median_splits_the_weight(pairs: list[tuple[int, int]]) -> None:
    values, weights = (np.array(column, dtype=float)[None] for column in zip(*pairs, strict=True))
    median = votes.weighted_median(values, weights)[0]
    below, upto = weights[values < median].sum(), weights[values <= median].sum()
    assert median in values and upto >= 0.5 * weights.sum()
    assert below < 0.5 * weights.sum() or weights.sum() == 0


def test_half_of_the_traffic_is_always_believed() -> None:
    """Even where all groups contradict each other by far more than noise."""
    rng = np.random.default_rng(0)
    V = np.broadcast_to(1e4 * np.eye(3), (1, 8, 3, 3))
    b = 1e4 * rng.normal(size=(1, 8, 3))
    counts = np.full((1, 8), 100)
    squares = np.vecdot(b, b) / 1e4 + 100.0
    given = Evidence(1e4 * np.ones((1, 8)), counts, counts * 1.0, np.arange(8)[None], np.ones((1, 8)))
    found = count(given, Sums(V, b, squares), 1.0)
    assert (found.weights > 0.3).sum() >= 4
