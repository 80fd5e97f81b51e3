"""Tests of robandit.geometry.ridge against the stored rows in 80-bit arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from geometry_oracles import HAS_EXTENDED, Float, Long, cholesky, long, solve_lower, solve_lower_transposed
from hypothesis import given, settings
from hypothesis import strategies as st

from observed import note
from robandit.geometry.ridge import Ridge
from thinned import longer

pytestmark = pytest.mark.skipif(not HAS_EXTENDED, reason="the oracle needs an 80-bit long double")

BAR = 1e-7  # what design.md promises of μ and of the played arms' widths
EPS = float(np.finfo(float).eps)
DIM = 20
ORDERS = ("shuffled", "rising", "falling")  # of the weights over time
POOLS = {"spread": 0, "one arm": 1, "two arms": 2, "three arms": 3}
FIELDS = ("root", "mean", "log_det", "precision")


# ------------------------------------------------------------------------------------------------- oracle


@dataclass(frozen=True)
class Exact:
    """One ridge regression in 80-bit: the factor L of Σ = L Lᵀ, and μ."""

    factor: Long
    mean: Long

    @property
    def log_det(self) -> np.longdouble:
        return 2 * np.log(np.diag(self.factor)).sum()

    @property
    def precision(self) -> Long:
        return self.factor @ self.factor.T

    @property
    def largest(self) -> float:
        """λ_max(Σ)."""
        return float(np.linalg.norm(np.asarray(self.precision, dtype=float), 2))

    def norm(self, vector: Long) -> np.longdouble:
        """‖vector‖_Σ."""
        image = self.factor.T @ vector
        return np.longdouble(np.sqrt(image @ image))

    def widths(self, arms: Float) -> Long:
        """√(aᵀ Σ⁻¹ a) for every row."""
        return np.sqrt((solve_lower(self.factor, long(arms).T) ** 2).sum(axis=0))

    def mean_error(self, mean: Float) -> float:
        """‖mean − μ‖_Σ / ‖μ‖_Σ."""
        size = self.norm(self.mean)
        return float(self.norm(long(mean) - self.mean) / size) if size else float(np.abs(mean).max())


def textbook(actions: Float, rewards: Float, weights: Float, regularization: float) -> Exact:
    """Σ = λI + Σ w a aᵀ and μ = Σ⁻¹ Σ w r a, in blocks of rows."""
    precision = np.longdouble(regularization) * np.eye(actions.shape[1], dtype=np.longdouble)
    moment = np.zeros(actions.shape[1], dtype=np.longdouble)
    for start in range(0, len(actions), 4096):
        block = slice(start, start + 4096)
        arms = long(actions[block])
        weighted = long(weights[block])[:, None] * arms
        precision += weighted.T @ arms
        moment += long(rewards[block]) @ weighted
    factor = cholesky(precision)
    return Exact(factor, solve_lower_transposed(factor, solve_lower(factor, moment)))


def root_error(root: Float, exact: Exact) -> float:
    """How far Lᵀ S Sᵀ L is from the identity: S Sᵀ against Σ⁻¹, relative in every direction at once."""
    image = exact.factor.T @ long(root)
    return float(np.abs(image @ image.T - np.eye(len(root))).max())


# ---------------------------------------------------------------------------------------------- textbook


@dataclass(frozen=True)
class Rows:
    """Observations of one regression."""

    actions: Float
    rewards: Float
    weights: Float
    regularization: float

    @property
    def exact(self) -> Exact:
        return textbook(self.actions, self.rewards, self.weights, self.regularization)

    def fit(self, keep_precision: bool = False) -> Ridge:
        """Fold them in one by one."""
        dim, lam = self.actions.shape[1], self.regularization
        ridge = Ridge(rows=1, dim=dim, regularization=lam, keep_precision=keep_precision)
        for action, reward, weight in zip(self.actions, self.rewards, self.weights, strict=True):
            ridge.update(action[None], np.array([reward]), np.array([weight]))
        return ridge


@st.composite
def histories(draw: st.DrawFn) -> Rows:
    """Up to 400 observations, of arms that are fresh, few, or nearly parallel."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim, rounds = draw(st.integers(1, 30)), int(rng.integers(1, draw(st.sampled_from([10, 400]))))
    kind, few = draw(st.sampled_from(["fresh", "few", "parallel"])), draw(st.integers(1, 5))
    arms = rng.normal(size=(rounds if kind == "fresh" else few, dim))
    if kind == "parallel":
        arms = arms[0] + 1e-3 * arms
    arms /= np.linalg.norm(arms, axis=1, keepdims=True)
    low, high = draw(st.sampled_from([(-4, 4), (2, 4), tuple(np.sort(rng.uniform(-4, 4, size=2)))]))
    actions = arms[rng.integers(len(arms), size=rounds)] * rng.uniform(0.1, 1.0, size=(rounds, 1))
    rewards = actions @ rng.normal(size=dim) + draw(st.floats(0, 1)) * rng.normal(size=rounds)
    return Rows(actions, rewards, 10.0 ** rng.uniform(low, high, size=rounds), 10.0 ** draw(st.integers(-3, 3)))


@pytest.mark.no_cover
@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(rows=histories())
def test_updates_match_the_textbook(rows: Rows) -> None:
    """μ, S Sᵀ, widths, log det and Σ, to a few ε √(λ_max(Σ)/λ), as S shrinks from 1/√λ to 1/√λ_max, times √rounds.

    Where rewards cancel, μ is small beside them, and its error is measured against √(Σ w r²) ≥ ‖μ‖_Σ.
    """
    exact, ridge = rows.exact, rows.fit(keep_precision=True)
    unit = EPS * np.sqrt(exact.largest / rows.regularization * len(rows.rewards))
    errors = {
        "mean": exact.mean_error(ridge.mean[0]),
        "root": root_error(ridge.root[0], exact),
        "widths": np.abs(np.linalg.norm(rows.actions @ ridge.root[0], axis=1) / exact.widths(rows.actions) - 1).max(),
        "log det": np.abs(ridge.log_det[0] - exact.log_det) / (1 + np.abs(exact.log_det)),
    }
    assert max(errors.values()) <= 1e-10
    errors["mean"] *= (
        float(exact.norm(exact.mean) / np.sqrt(rows.weights @ rows.rewards**2)) if exact.mean.any() else 1.0
    )
    for name, error in errors.items():
        note(f"textbook: {name}", error)
        assert note(f"textbook: {name}, in ε √(rounds λ_max/λ)", error / unit) <= 5
    assert ridge.precision is not None
    off = np.abs(ridge.precision[0] - exact.precision).max() / np.abs(exact.precision).max()
    assert note("textbook: precision", off) <= 1e-13


def test_a_fresh_ridge_is_the_prior() -> None:
    """Before any update: μ = 0, Σ = λI."""
    ridge = Ridge(rows=3, dim=4, regularization=0.25, keep_precision=True)
    assert (ridge.mean == 0).all() and ridge.mean.shape == (3, 4)
    assert (ridge.root == 2 * np.eye(4)).all() and ridge.root.shape == (3, 4, 4)
    np.testing.assert_allclose(ridge.log_det, np.full(3, 4 * np.log(0.25)), rtol=1e-15)
    assert ridge.precision is not None and (ridge.precision == 0.25 * np.eye(4)).all()
    assert Ridge(rows=1, dim=2, regularization=1.0).precision is None


def test_one_update_by_hand() -> None:
    """λ = 1, a = (1, 1), w = 3: Σ = [[4, 3], [3, 4]], det 7, μ = 3 r (1, 1)/7."""
    ridge = Ridge(rows=1, dim=2, regularization=1.0)
    ridge.update(np.array([[1.0, 1.0]]), np.array([7.0]), np.array([3.0]))
    np.testing.assert_allclose(ridge.mean[0], [3.0, 3.0], rtol=1e-15)
    np.testing.assert_allclose(ridge.log_det[0], np.log(7.0), rtol=1e-15)
    np.testing.assert_allclose(ridge.root[0] @ ridge.root[0].T, np.array([[4, -3], [-3, 4]]) / 7, rtol=1e-15)


# ---------------------------------------------------------------------------------------------- accuracy


@dataclass(frozen=True)
class Stream:
    """Observations of several regressions at once, time first: actions (T, n, d), the rest (T, n)."""

    names: tuple[tuple[str, str], ...]
    actions: Float
    rewards: Float
    weights: Float

    def row(self, i: int, regularization: float) -> Rows:
        return Rows(self.actions[:, i], self.rewards[:, i], self.weights[:, i], regularization)


def make_stream(rounds: int, seed: int = 0) -> Stream:
    """Every pool of arms with every order of weights; weights log-uniform from 1e-4 to 1e4."""
    rng = np.random.default_rng(seed)
    names = tuple((pool, order) for pool in POOLS for order in ORDERS)
    actions = np.empty((rounds, len(names), DIM))
    weights = np.empty((rounds, len(names)))
    for i, (pool, order) in enumerate(names):
        arms = rng.normal(size=(POOLS[pool] or rounds, DIM))
        arms /= np.linalg.norm(arms, axis=1, keepdims=True)
        actions[:, i] = arms[rng.integers(len(arms), size=rounds)]
        logs = rng.uniform(-4, 4, size=rounds)
        weights[:, i] = 10.0 ** {"shuffled": logs, "rising": np.sort(logs), "falling": np.sort(logs)[::-1]}[order]
    parameter = rng.normal(size=DIM) / np.sqrt(DIM)
    rewards = actions @ parameter + rng.uniform(-0.5, 0.5, size=weights.shape)
    return Stream(names, actions, rewards, weights)


def accuracy(rounds: int, regularization: float) -> dict[tuple[str, str], tuple[float, float]]:
    """Errors of μ and of the widths of the last arms played, per stream."""
    stream = make_stream(rounds)
    ridge = Ridge(rows=len(stream.names), dim=DIM, regularization=regularization)
    for t in range(rounds):
        ridge.update(stream.actions[t], stream.rewards[t], stream.weights[t])
    errors = {}
    for i, name in enumerate(stream.names):
        exact, arms = stream.row(i, regularization).exact, stream.actions[-64:, i]
        widths = np.linalg.norm(arms @ ridge.root[i], axis=1) / exact.widths(arms) - 1
        label = f"{rounds:.0e} rounds, λ = {regularization:g}, {', '.join(name)}"
        errors[name] = (
            note(f"{label}: μ", exact.mean_error(ridge.mean[i])),
            note(f"{label}: widths", widths),
        )
    return errors


def missed(rounds: int, regularization: float) -> set[tuple[str, str]]:
    """The streams that miss the bar, in μ or in the widths."""
    return {name for name, errors in accuracy(rounds, regularization).items() if max(errors) > BAR}


@pytest.mark.parametrize("regularization", longer(1e-3, 1.0))
@pytest.mark.no_cover
def test_accuracy_over_many_updates(regularization: float) -> None:
    """2·10⁴ updates, condition up to 10¹⁰."""
    assert not missed(20_000, regularization)


@pytest.mark.slow
def test_accuracy_over_a_million_updates() -> None:
    """λ = 5 makes the condition of a single replayed arm 10⁸."""
    assert not missed(1_000_000, 5.0)


@pytest.mark.slow
def test_accuracy_beyond_the_promised_condition() -> None:
    """λ = 1 makes it 5·10⁸. Late updates below half an ulp of S are lost: falling weights leave widths 1.1e-7 off."""
    assert missed(1_000_000, 1.0) <= {("one arm", "falling")}


def sherman_morrison(rows: Rows) -> tuple[Float, Float]:
    """(Σ⁻¹, μ = Σ⁻¹ b), the usual way."""
    dim = rows.actions.shape[1]
    inverse, moment = np.eye(dim) / rows.regularization, np.zeros(dim)
    for a, r, w in zip(rows.actions, rows.rewards, rows.weights, strict=True):
        gain = inverse @ a
        inverse -= np.outer(gain, gain) * (w / (1 + w * (a @ gain)))
        moment += w * r * a
    return inverse, inverse @ moment


@pytest.mark.slow
def test_sherman_morrison_would_fail_the_bar() -> None:
    """On replayed arms, updating Σ⁻¹ itself loses the digits that the square root keeps; spread out, it does not."""
    stream = make_stream(20_000)
    errors = {}
    for pool in POOLS:
        i = stream.names.index((pool, "shuffled"))
        rows, arms = stream.row(i, 1e-3), stream.actions[-64:, i]
        inverse, mean = sherman_morrison(rows)
        squares = np.maximum(np.vecdot(arms @ inverse, arms), 0.0)
        widths = np.abs(np.sqrt(squares) / rows.exact.widths(arms) - 1).max()
        errors[pool] = (
            note(f"Sherman-Morrison, {pool}: μ", rows.exact.mean_error(mean)),
            note(f"Sherman-Morrison, {pool}: widths", widths),
        )
    assert max(errors.pop("spread")) < BAR
    for mean_error, width_error in errors.values():
        assert mean_error > 10 * BAR
        assert width_error > 10 * BAR


# ------------------------------------------------------------------------------------------- bit for bit


def observations(rng: np.random.Generator, rounds: int, rows: int, dim: int) -> tuple[Float, Float, Float]:
    """Random actions (T, n, d), rewards and weights (T, n)."""
    actions = rng.normal(size=(rounds, rows, dim)) / np.sqrt(dim)
    return actions, rng.normal(size=(rounds, rows)), 10.0 ** rng.uniform(-4, 4, size=(rounds, rows))


def assert_same(one: Ridge, two: Ridge) -> None:
    """Equal bit for bit."""
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field), err_msg=field, strict=True)


def new(rows: int, dim: int) -> Ridge:
    return Ridge(rows=rows, dim=dim, regularization=0.7, keep_precision=True)


dims = pytest.mark.parametrize("dim", [1, 2, 3, 5, 8, 16, 20, 30])


@dims
def test_a_batch_equals_its_rows_singly(dim: int) -> None:
    """Bit for bit, so a trial is the same in any batch."""
    actions, rewards, weights = observations(np.random.default_rng(dim), 60, 7, dim)
    batch, singles = new(7, dim), [new(1, dim) for _ in range(7)]
    for a, r, w in zip(actions, rewards, weights, strict=True):
        batch.update(a, r, w)
        for i, single in enumerate(singles):
            single.update(a[i : i + 1].copy(), r[i : i + 1].copy(), w[i : i + 1].copy())
    for field in FIELDS:
        together = np.concatenate([getattr(single, field) for single in singles])
        np.testing.assert_array_equal(getattr(batch, field), together, err_msg=field, strict=True)


@dims
def test_index_rows_equal_slice_rows(dim: int) -> None:
    """An index in any order does what a slice does, and leaves the other rows alone."""
    rng = np.random.default_rng(dim)
    actions, rewards, weights = observations(rng, 60, 4, dim)
    by_slice, by_index, shuffled, alone = new(9, dim), new(9, dim), new(9, dim), new(4, dim)
    for a, r, w in zip(actions, rewards, weights, strict=True):
        order = rng.permutation(4)
        by_slice.update(a, r, w, rows=slice(2, 6))
        by_index.update(a, r, w, rows=np.arange(2, 6))
        shuffled.update(a[order], r[order], w[order], rows=2 + order)
        alone.update(a, r, w)
    assert_same(by_slice, by_index)
    assert_same(by_slice, shuffled)
    untouched = new(9, dim)
    for field in FIELDS:
        ours = getattr(by_index, field)
        np.testing.assert_array_equal(ours[2:6], getattr(alone, field), err_msg=field)
        np.testing.assert_array_equal(
            np.delete(ours, np.s_[2:6], 0), np.delete(getattr(untouched, field), np.s_[2:6], 0)
        )


def test_a_stepped_slice_equals_an_index() -> None:
    """Views with gaps are updated in place too."""
    actions, rewards, weights = observations(np.random.default_rng(1), 40, 3, 6)
    by_slice, by_index = new(7, 6), new(7, 6)
    for a, r, w in zip(actions, rewards, weights, strict=True):
        by_slice.update(a, r, w, rows=slice(1, 7, 2))
        by_index.update(a, r, w, rows=np.array([1, 3, 5]))
    assert_same(by_slice, by_index)


@dims
@pytest.mark.parametrize("by_index", [False, True])
def test_weight_zero_changes_nothing(dim: int, by_index: bool) -> None:
    """Bit for bit, whatever the reward, with and without an index."""
    rng = np.random.default_rng(dim)
    actions, rewards, weights = observations(rng, 20, 3, dim)
    ridge, reference = new(3, dim), new(3, dim)
    for a, r, w in zip(actions, rewards, weights, strict=True):
        ridge.update(a, r, w)
        reference.update(a, r, w)
        ridge.update(
            rng.normal(size=(3, dim)), 1e6 * rng.normal(size=3), np.zeros(3), np.arange(3) if by_index else slice(None)
        )
    assert_same(ridge, reference)


def test_a_row_of_weight_zero_beside_others() -> None:
    """Masking one row of a batch by its weight does not disturb the rest."""
    actions, rewards, weights = observations(np.random.default_rng(2), 30, 4, 5)
    weights[:, 1] = 0.0
    masked, without = new(4, 5), new(4, 5)
    others = np.array([0, 2, 3])
    for a, r, w in zip(actions, rewards, weights, strict=True):
        masked.update(a, r, w)
        without.update(a[others], r[others], w[others], rows=others)
    assert_same(masked, without)


@pytest.mark.parametrize("rows", [slice(None), np.array([2, 0, 1])], ids=["slice", "index"])
def test_inputs_are_not_modified(rows: slice | np.ndarray) -> None:
    """Neither written to nor kept: read-only inputs do, and changing them afterwards has no effect."""
    (actions,), (rewards,), (weights,) = observations(np.random.default_rng(3), 1, 3, 4)
    copies = actions.copy(), rewards.copy(), weights.copy()
    for array in (actions, rewards, weights):
        array.flags.writeable = False
    ridge, reference = new(3, 4), new(3, 4)
    ridge.update(actions, rewards, weights, rows)
    reference.update(*copies, rows)
    for array in copies:
        array[:] = np.nan
    assert_same(ridge, reference)
    assert np.isfinite(ridge.root).all()


def test_keeping_the_precision_changes_nothing_else() -> None:
    """root, mean and log det are the same without it."""
    actions, rewards, weights = observations(np.random.default_rng(4), 50, 3, 6)
    kept, bare = new(3, 6), Ridge(rows=3, dim=6, regularization=0.7)
    for a, r, w in zip(actions, rewards, weights, strict=True):
        kept.update(a, r, w)
        bare.update(a, r, w)
    assert set(kept.arrays()) == set(FIELDS) and set(bare.arrays()) == set(FIELDS[:3])
    for field in FIELDS[:3]:
        assert kept.arrays()[field] is getattr(kept, field)
        np.testing.assert_array_equal(getattr(kept, field), getattr(bare, field), strict=True)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(rows=histories(), seed=st.integers(0, 1000))
def test_the_order_of_updates_does_not_matter(rows: Rows, seed: int) -> None:
    """But for rounding."""
    order = np.random.default_rng(seed).permutation(len(rows.rewards))
    turned = Rows(rows.actions[order], rows.rewards[order], rows.weights[order], rows.regularization).fit()
    exact = rows.exact
    assert exact.mean_error(turned.mean[0]) <= 1e-9
    assert root_error(turned.root[0], exact) <= 1e-9


def test_a_refit_is_the_regression_of_all_observations_at_once() -> None:
    rng = np.random.default_rng(9)
    rows, rewards, weights = rng.normal(size=(3, 30, 4)), rng.normal(size=(3, 30)), rng.uniform(0.1, 9.0, (3, 30))
    slow, fast = (Ridge(rows=3, dim=4, regularization=0.7, keep_precision=True) for _ in range(2))
    for t in range(30):
        slow.update(rows[:, t], rewards[:, t], weights[:, t])
    weighted = weights[..., None] * rows
    precision, target = np.swapaxes(weighted, 1, 2) @ rows + 0.7 * np.eye(4), np.vecmat(rewards, weighted)
    fast.refit(np.array([0, 2]), precision[[0, 2]], target[[0, 2]])
    for row in (0, 2):
        np.testing.assert_allclose(fast.mean[row], slow.mean[row], rtol=1e-10)
        np.testing.assert_allclose(fast.log_det[row], slow.log_det[row], rtol=1e-12)
        np.testing.assert_allclose(fast.root[row] @ fast.root[row].T, slow.root[row] @ slow.root[row].T, rtol=1e-9)
        assert np.array_equal(fast.precision[row], precision[row])  # type: ignore[index]
    assert np.array_equal(fast.mean[1], np.zeros(4))
