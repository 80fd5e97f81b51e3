"""The bound from contradictions against textbook formulas and a cone solver, and the laws that it must obey."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from geometry_oracles import HAS_EXTENDED, long
from hypothesis import given
from hypothesis import strategies as st
from monitor_oracles import (
    Array,
    Cone,
    Setting,
    SlowGroup,
    cheapest,
    four_passes,
    heard,
    prior,
    random_groups,
    rank,
    steady,
    total,
)

from observed import note, repeatable, surplus
from robandit.arrays import TINY
from robandit.monitor import contradiction
from robandit.monitor.cones import Cones
from robandit.monitor.contradiction import Bound, lower_bound
from robandit.monitor.groups import Groups
from robandit.monitor.radii import Assumptions
from thinned import longer, thinned, untraced

LIES = ["clean", "flips", "huge"]


def as_groups(streams: Sequence[Sequence[SlowGroup]]) -> Groups:
    """Streams of groups, with the lengths and shares of the first."""
    return Groups(
        np.array([[group.gram for group in groups] for groups in streams]),
        np.array([[group.moment for group in groups] for groups in streams]),
        np.array([[group.reach for group in groups] for groups in streams]),
        np.array([[group.peaks for group in groups] for groups in streams]),
        np.array([[group.weight for group in groups] for groups in streams]),
        np.array([group.length for group in streams[0]]),
        np.array([group.share for group in streams[0]]),
    )


class Call(NamedTuple):
    """One minimisation."""

    cones: Cones
    start: Array
    gap: float
    found: Bound

    def plain(self, row: int = 0) -> list[list[Cone]]:
        """The cones of each group, but for empty ones."""
        parts = zip(*(array[row] for array in self.cones), strict=True)
        return [list(map(Cone, *group)) for group in parts if group[0].any()]


@contextmanager
def recorded() -> Iterator[list[Call]]:
    """The minimisations that are made meanwhile."""
    calls: list[Call] = []
    minimise = contradiction._minimise

    def spy(cones: Cones, start: Array, bound: float | None, least: Array, gap: float) -> Bound:
        found = minimise(cones, start, bound, least, gap)
        calls.append(Call(cones, start.copy(), gap, Bound(*(array.copy() for array in found))))
        return found

    with patch.object(contradiction, "_minimise", spy), patch.object(Cones, "dual", feasible(Cones.dual)):
        yield calls


def feasible(dual: Any) -> Any:
    """The dual value, of multipliers that are checked."""

    def check(self: Cones, multipliers: Array, bound: float | None) -> Any:
        assert ((np.linalg.norm(multipliers, axis=3) * self.slope).sum(axis=2) <= 1 + 1e-12).all()
        return dual(self, multipliers, bound)

    return check


def solve(streams: Sequence[Sequence[SlowGroup]], setting: Setting, **more: Any) -> Bound:
    return lower_bound(as_groups(streams), Assumptions(**asdict(setting)), **more)


@st.composite
def problems(draw: Any, dims: Sequence[int] = (1, 2, 5, 12, 20), most: int = 25) -> tuple[list[SlowGroup], Setting]:
    """Groups of one world, honest or not, and the setting that fits."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    noise, bound = 10.0 ** draw(st.floats(-2.0, 0.0)), 10.0 ** draw(st.floats(-1.0, 1.0))
    groups = random_groups(
        rng,
        dim=draw(st.sampled_from(dims)),
        number=draw(st.integers(1, most)),
        condition=10.0 ** draw(st.floats(0.0, 8.0)),
        bound=bound,
        noise=noise,
        lies=draw(st.sampled_from(LIES)),
    )
    return groups, Setting(noise=noise, parameter_bound=bound)


def some(seed: int, lies: str = "flips", **more: Any) -> tuple[list[SlowGroup], Setting]:
    """A problem with a positive bound, unless it is clean."""
    shape: dict[str, Any] = {"dim": 4, "number": 8, "condition": 10.0, "bound": 1.0, "noise": 0.05} | more
    groups = random_groups(np.random.default_rng(seed), lies=lies, **shape)
    return groups, Setting(noise=shape["noise"], parameter_bound=shape["bound"])


def ball(rng: np.random.Generator, dim: int, bound: float) -> Array:
    point = rng.normal(size=dim)
    return bound * rng.uniform() * point / np.linalg.norm(point)


# ------------------------------------------------------------------------------------ ρ, κ and λ


@pytest.mark.no_cover
@given(problems(dims=(1, 2, 5), most=3), st.integers(-8, 8))
@repeatable(15)
def test_kappa_is_no_less_than_any_leverage_and_rho_is_exact(problem: Any, power: int) -> None:
    for group in heard(problem[0]):
        lam, failure = group.lam(power, problem[1].noise), 0.05 * group.share * prior(power)
        alone = Setting(noise=problem[1].noise, regularization=lam, parameter_bound=problem[1].parameter_bound)
        with recorded() as calls:
            solve([[group]], alone, least=-1.0)
        cones = calls[0].cones
        assert cones.slope[0, 0, 0] >= group.leverage(lam) * (1 - 1e-9)
        assert cones.slope[0, 0, 0] == pytest.approx(group.kappa(lam), rel=1e-6)
        exact = group.exact_rho(lam, failure / prior(power)) + group.rounding(lam, alone.parameter_bound)
        more = cones.radius[0, 0, 0] / exact - 1  # an allowance for the rounding of b and V
        assert more > -1e-9 and note("contradiction: rho, relative", more) < 1e-6
        assert group.exact_rho(lam, failure) == pytest.approx(group.rho(lam, failure), rel=1e-9)


@pytest.mark.no_cover
@given(problems(), st.sampled_from([None, 0.3, 40.0]), st.sampled_from([1.0, 0.7]))
@repeatable(15)
def test_the_cones_are_the_textbooks_with_the_lambdas_that_say_most(problem: Any, lam: Any, scale: float) -> None:
    groups, setting = problem[0], replace(problem[1], regularization=lam, radius_scale=scale, delta=0.01)
    rng, bound = np.random.default_rng(len(groups)), setting.parameter_bound
    guess = ball(rng, groups[0].dim, bound)
    with recorded() as calls:
        solve([groups], setting, least=-1.0, guess=guess[None])
    matrix, target, radius, slope = (array[0, :, 0] for array in calls[0].cones)
    assert calls[0].start[0] == pytest.approx(guess)
    column = steady(groups)
    for g, group in enumerate(groups):
        if not group.reach:
            assert not matrix[g].any() and not target[g].any() and radius[g] > 0
            continue
        choices = setting.choices(group, column)
        apart = [abs(np.log(slope[g] / one.kappa)) + abs(np.log(radius[g] / setting.rho(one))) for one in choices]
        chosen = int(np.argmin(apart))
        choice = choices[chosen]
        assert choice.kappa >= choice.group.leverage(choice.lam) * (1 - 1e-9)
        assert slope[g] == pytest.approx(choice.kappa, rel=1e-6)
        assert radius[g] == pytest.approx(setting.rho(choice), rel=1e-6)  # with the allowance
        says = [setting.says(one, guess) for one in choices]
        assert says[chosen] >= max(says) - 1e-6 * max(1.0, abs(max(says)))
        for mu in (guess, np.zeros_like(guess), ball(rng, group.dim, 3 * bound)):
            size = 1.0 + float(np.linalg.norm(target[g])) + float(np.linalg.norm(matrix[g] @ mu))
            error = np.linalg.norm(target[g] - matrix[g] @ mu) - choice.group.distance(choice.lam, mu / choice.factor)
            assert note("contradiction: norms, relative", error / size) < 1e-6


def test_shares_of_lambda_add_up_to_less_than_one() -> None:
    assert sum(prior(j) for j in range(-8, 9)) < 1 and sum(prior(j) for j in range(-9999, 9999)) <= 1
    assert sum(prior(j) for j in range(-9999, 9999)) > 0.999
    assert sum(rank(i) for i in range(9999)) <= 1


# ------------------------------------------------------------------------------------ the minimum


def check_minimum(call: Call, bound: float | None, row: int = 0) -> None:
    """A true lower bound; and the minimum itself where it was asked for."""
    optimum, _ = cheapest(call.plain(row), bound)
    scale = max(1.0, optimum)
    assert surplus("contradiction: above the minimum", (call.found.value[row] - optimum) / scale) <= 1e-7
    if call.gap < 1e-6:
        assert note("contradiction: below the minimum", (optimum - call.found.value[row]) / scale) <= 1e-6


@given(problems())
@repeatable(8)
@pytest.mark.no_cover
def test_the_value_is_the_minimum_that_a_cone_solver_finds(problem: Any) -> None:
    check_value(problem)


@given(problems())
@repeatable(16)
@pytest.mark.slow
def test_the_value_is_the_minimum_that_a_cone_solver_finds_more_often(problem: Any) -> None:
    check_value(problem)


def check_value(problem: Any) -> None:
    groups, setting = problem
    with recorded() as calls:
        bound = solve([groups], setting)
    assert bound.value[0] == max([0.0, *(float(call.found.value[0]) for call in calls)])
    for call in calls:
        check_minimum(call, setting.parameter_bound)
    assert np.linalg.norm(bound.parameter[0]) <= setting.parameter_bound * (1 + 1e-12)
    assert (bound.voice >= 0).all() and (bound.voice <= 1 + 1e-9).all()
    silent = [not group.reach for group in groups]
    assert not bound.voice[0, silent].any() and not bound.placed[0, silent].any()
    rng, most = np.random.default_rng(1), setting.parameter_bound
    for mu in (bound.parameter[0], np.zeros(groups[0].dim), ball(rng, groups[0].dim, most)):
        assert bound.value[0] <= setting.most(groups, mu) * (1 + 1e-6) + 1e-6


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", thinned(range(12), fast=range(6)))
def test_without_a_ball_it_is_the_minimum_over_all_parameters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = {"dim": int(rng.integers(1, 13)), "number": int(rng.integers(1, 20)), "noise": 10 ** rng.uniform(-2, 0)}
    groups, setting = some(seed, LIES[seed % 3], **shape, condition=10 ** rng.uniform(0, 8))
    with recorded() as calls:
        solve([groups], replace(setting, parameter_bound=None))
    for call in calls:
        optimum, _ = cheapest(call.plain(), None)
        error = (call.found.value[0] - optimum) / max(1.0, optimum)
        assert surplus("contradiction: above the minimum", error) <= 1e-7
        if call.gap < 1e-6:  # flat directions, in which μ may go far, cost some of the value but never add to it
            assert note("contradiction: below the minimum without a ball", -error) <= 1e-2


def split(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Sizes (…, G, K) of the cones of each group which add up to 1 at most."""
    parts = rng.dirichlet(np.full(shape[2], 0.3), size=shape[:2])
    return np.asarray(parts * rng.uniform(size=(*shape[:2], 1)) ** rng.choice([0.0, 0.1, 1.0, 5.0], (shape[0], 1, 1)))


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(3))
def test_without_a_ball_any_multipliers_stay_below_the_minimum(seed: int) -> None:
    groups, setting = some(seed, LIES[seed])
    with recorded() as calls:
        solve([groups], replace(setting, parameter_bound=None), least=-1.0)
    cones, optimum = calls[-1].cones, cheapest(calls[-1].plain(), None)[0]
    rng, shape = np.random.default_rng(seed), (200, *cones.target.shape[1:])
    many = Cones(*(np.repeat(array, 200, axis=0) for array in cones))
    directions = rng.normal(size=shape) + rng.uniform(0.0, 30.0, (200, 1, 1, 1)) * cones.residual(
        calls[-1].found.parameter
    )
    sizes = split(rng, shape) / np.maximum(np.linalg.norm(directions, axis=3), TINY)
    duals = many.dual(directions * (sizes / many.slope)[..., None], None)
    assert (duals <= optimum + 1e-9 * max(1.0, optimum)).all() and duals.max() > -np.inf


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_the_value_is_the_minimum_of_many_more(seed: int) -> None:
    rng = np.random.default_rng([7, seed])
    for _ in range(60):
        shape = {"dim": int(rng.integers(1, 21)), "number": int(rng.integers(1, 26))}
        noise, bound = 10 ** rng.uniform(-2, 0), 10 ** rng.uniform(-1, 1)
        condition, lies = 10 ** rng.uniform(0, 8), str(rng.choice(LIES))
        groups, setting = some(int(rng.integers(2**32)), lies, **shape, condition=condition, bound=bound, noise=noise)
        with recorded() as calls:
            solve([groups], setting)
        for call in calls:
            check_minimum(call, bound)


@pytest.mark.no_cover
@pytest.mark.parametrize("seeds", longer(1, 3))
@pytest.mark.parametrize("lies", LIES)
def test_from_the_rounds_to_the_bound_by_the_book(lies: str, seeds: int) -> None:
    for seed in range(seeds):
        groups, setting = some(seed, lies, dim=3, number=6)
        book, value = four_passes(groups, setting), solve([groups], setting).value[0]
        assert (value > 0) == (lies != "clean") and (book > 0) == (lies != "clean")
        assert value == pytest.approx(book, rel=0.01)  # the first two minima are rough, and so other λ may be chosen
        fixed = replace(setting, regularization=30.0)
        assert solve([groups], fixed).value[0] == pytest.approx(four_passes(groups, fixed), rel=1e-6)


@pytest.mark.no_cover
def test_in_one_dimension_it_is_the_least_of_a_scan() -> None:
    for seed, lies in enumerate(LIES * 2):
        groups, setting = some(seed, lies, dim=1, number=5, bound=0.7)
        setting = replace(setting, regularization=5.0, delta=0.2)
        cones = [[setting.cone(one) for one in setting.choices(group, 0)] for group in heard(groups)]
        values = [total(cones, np.array([mu])) for mu in np.linspace(-0.7, 0.7, 1001)]
        least, value = min(values), solve([groups], setting).value[0]
        assert value <= least + 1e-9 * max(1.0, least)
        assert value == pytest.approx(least, rel=0.02, abs=0.02)  # the scan's steps
        assert (value > 0.1) == (lies != "clean")


def test_what_exceeds_the_ball_is_a_contradiction_too() -> None:
    rng = np.random.default_rng(0)
    actions = rng.choice([-1.0, 1.0], size=(200, 1))
    group = SlowGroup(actions, actions[:, 0] * 3 + 0.05 * rng.normal(size=200), np.full(200, 0.05), 256.0)
    value = solve([[group]], Setting(noise=0.05, parameter_bound=1.0)).value[0]
    assert 300 < value < 400  # 200 rewards of 3 that honestly are 1 at most
    assert solve([[group]], Setting(noise=0.05, parameter_bound=2.5)).value[0] < 100
    assert solve([[group]], Setting(noise=0.05, parameter_bound=3.1)).value[0] == 0


# ------------------------------------------------------------------------------------ below the minimum in any case


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(6))
def test_any_multipliers_stay_below_the_minimum(seed: int) -> None:
    groups, setting = some(seed, LIES[seed % 3], bound=[0.3, 1.0, 4.0][seed % 3])
    with recorded() as calls:
        solve([groups], setting, least=-1.0)
    cones, bound = calls[-1].cones, setting.parameter_bound or 0.0
    optimum, mu = cheapest(calls[-1].plain(), bound)
    rng, shape = np.random.default_rng(seed), (400, *cones.target.shape[1:])
    many = Cones(*(np.repeat(array, 400, axis=0) for array in cones))
    pull = cones.residual(mu[None])  # where the best multipliers point
    directions = np.where(rng.random((400, 1, 1, 1)) < 0.5, pull + 0.1 * rng.normal(size=shape), rng.normal(size=shape))
    directions /= np.maximum(np.linalg.norm(directions, axis=3, keepdims=True), TINY)
    sizes = split(rng, shape)
    multipliers = directions * (sizes / many.slope)[..., None]
    duals = many.dual(multipliers, bound)
    assert (duals <= optimum + 1e-9 * max(1.0, optimum)).all()
    assert many.dual(np.zeros(shape), bound).tolist() == [0.0] * 400
    if HAS_EXTENDED:  # what is reported is rounded down
        below = exact_dual(many, multipliers, bound) - duals
        assert (below > 0).all() and (below <= 1e-9 * (1 + np.abs(duals).max())).all()


def exact_dual(cones: Cones, multipliers: Array, bound: float) -> Any:
    """sum <u, y> - rho ||u|| - B ||sum A^T u||, in 80 bits."""
    u, (A, y, rho, _) = long(multipliers), map(long, cones)
    pull = np.sum(u[..., None] * A, axis=(1, 2, 3))
    return np.sum(u * y, axis=(1, 2, 3)) - np.sum(rho * norms(u), axis=(1, 2)) - bound * norms(pull)


def norms(vectors: Any) -> Any:
    return np.sqrt(np.sum(vectors**2, axis=-1))


STOPS = thinned([(1, 1), (1, 3), (2, 1), (3, 2), (6, 1), (6, 3), (10, 2)], fast=[(1, 1), (2, 1), (6, 3)])


@pytest.mark.parametrize(("steps", "newton"), untraced(STOPS, but=[(1, 1)]))
def test_stopping_early_never_overestimates(steps: int, newton: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contradiction, "_STEPS", steps)
    monkeypatch.setattr(contradiction, "_NEWTON", newton)
    for seed in range(1, 3):
        groups, setting = some(seed, LIES[seed], bound=[1.0, 0.4, 3.0][seed])
        with recorded() as calls:
            solve([groups], setting)
        for call in calls:
            optimum, _ = cheapest(call.plain(), setting.parameter_bound)
            assert call.found.value[0] <= optimum + 1e-9 * max(1.0, optimum)


@pytest.mark.no_cover
@pytest.mark.parametrize("ratio", [1e3, 1e6, 1e9, 1e12])
def test_where_nothing_contradicts_rounding_proves_nothing(ratio: float) -> None:
    for seed in range(10):
        groups, setting = some(seed, "clean", bound=0.05 * ratio)
        assert solve([groups], setting).value[0] == 0
        quiet = [replace(group, rewards=group.rewards / ratio) for group in groups]  # μ is far inside the ball
        assert solve([quiet], setting).value[0] == 0


# ------------------------------------------------------------------------------------ laws


def batch(number: int, lies: str = "flips") -> tuple[list[list[SlowGroup]], Setting]:
    """Problems with the same lengths and shares."""
    streams = [some(seed, "clean" if seed % 3 == 2 else lies)[0] for seed in range(number)]
    return [
        [replace(group, length=first.length) for group, first in zip(groups, streams[0], strict=True)]
        for groups in streams
    ], some(0)[1]


@pytest.mark.no_cover
def test_many_at_once_are_as_each_alone() -> None:
    streams, setting = batch(12)
    together = solve(streams, setting)
    assert 6 <= (together.value > 0).sum() < 12
    for row, groups in enumerate(streams):
        alone = solve([groups], setting)
        for name, one, many in zip(Bound._fields, alone, together, strict=True):
            assert many[row] == pytest.approx(one[0], rel=1e-9, abs=1e-9), name


def test_where_less_is_enough_nothing_is_lost() -> None:
    streams, setting = batch(12)
    plain = solve(streams, setting).value
    assert solve(streams, setting, least=0.3 * plain).value == pytest.approx(plain, rel=1e-9)
    each = solve(streams, setting, least=np.where(np.arange(12) % 2, 0.3 * plain, 2 * plain)).value
    assert each[1::2] == pytest.approx(plain[1::2], rel=1e-9)
    assert (each[::2] <= plain[::2] * (1 + 1e-9)).all()


def test_where_a_little_less_is_enough_nothing_is_lost_either() -> None:
    streams, setting = batch(12)
    plain = solve(streams, setting).value
    for share in (0.9, 0.99):
        assert solve(streams, setting, least=share * plain).value == pytest.approx(plain, rel=1e-6)


def test_what_cannot_exceed_enough_is_not_followed_up() -> None:
    groups, setting = some(1)
    with recorded() as calls:
        value = solve([groups], setting, least=1e9).value
    assert value == 0 and not calls


def rescaled(groups: Sequence[SlowGroup], setting: Setting, unit: float) -> tuple[list[SlowGroup], Setting]:
    """The same in another unit of rewards."""
    scaled = [replace(group, rewards=unit * group.rewards, scales=unit * group.scales) for group in groups]
    lam = None if setting.regularization is None else setting.regularization / unit**2
    sizes = {"noise": unit * setting.noise, "parameter_bound": unit * (setting.parameter_bound or 0.0)}
    return scaled, replace(setting, **sizes, regularization=lam)


@pytest.mark.no_cover
@pytest.mark.parametrize("unit", [7.0, 1e5])
def test_the_unit_of_rewards_does_not_matter(unit: float) -> None:
    for seed in range(2):
        groups, setting = some(seed, LIES[1 + seed])
        for lam, rel in ((30.0, 1e-6), (None, 1e-3)):  # rough minima at first are rougher in large units
            setting = replace(setting, regularization=lam)
            other, value = rescaled(groups, setting, unit), solve([groups], setting).value[0]
            assert value > 0.1 and solve([other[0]], other[1]).value[0] == pytest.approx(unit * value, rel=rel)


def test_not_even_where_rewards_are_tiny() -> None:
    groups, setting = some(1)
    other, value = rescaled(groups, setting, 1e-10), solve([groups], setting).value[0]
    assert value > 0.1 and solve([other[0]], other[1]).value[0] == pytest.approx(1e-10 * value, rel=1e-3)


@pytest.mark.no_cover
def test_the_unit_of_features_does_not_matter() -> None:
    for seed in range(4):
        groups, setting = some(seed, LIES[1 + seed % 2])
        scaled = [replace(group, actions=5 * group.actions) for group in groups]
        fixed = replace(setting, regularization=20.0)
        other = replace(fixed, regularization=500.0, parameter_bound=(setting.parameter_bound or 0.0) / 5)
        assert solve([scaled], other).value[0] == pytest.approx(solve([groups], fixed).value[0], rel=1e-6)


@pytest.mark.no_cover
def test_neither_does_the_basis_nor_the_order_of_groups() -> None:
    for seed in range(4):
        groups, setting = some(seed)
        rng = np.random.default_rng(seed)
        basis, order = np.linalg.qr(rng.normal(size=(4, 4)))[0], rng.permutation(8)
        fixed = replace(setting, regularization=30.0)  # else a column may stand out, and columns are of one basis
        rotated = [replace(group, actions=group.actions @ basis) for group in groups]
        assert solve([rotated], fixed).value[0] == pytest.approx(solve([groups], fixed).value[0], rel=1e-6)
        value = solve([groups], setting).value[0]
        assert solve([[groups[g] for g in order]], setting).value[0] == pytest.approx(value, rel=1e-6)


def test_doubt_a_larger_ball_and_smaller_shares_prove_less() -> None:
    groups, setting = some(1)
    setting = replace(setting, regularization=30.0, parameter_bound=0.1)
    value = solve([groups], setting).value[0]
    for weaker in ({"delta": 0.001}, {"parameter_bound": 0.2}, {"radius_scale": 1.1}):
        assert 0 < solve([groups], replace(setting, **weaker)).value[0] < value * (1 - 1e-6), weaker
    smaller = [replace(group, share=group.share / 9) for group in groups]
    assert 0 < solve([smaller], setting).value[0] < value * (1 - 1e-6)
    assert solve([smaller], replace(setting, delta=0.45)).value[0] == pytest.approx(value, rel=1e-6)


def test_no_data_prove_nothing() -> None:
    nothing = SlowGroup(np.zeros((0, 3)), np.zeros(0), np.zeros(0))
    silent = SlowGroup(np.zeros((9, 3)), np.full(9, 5.0), np.ones(9))  # no feature, no reward but noise and lies
    for groups in ([nothing], [nothing] * 4, [silent, nothing]):
        bound = solve([groups], Setting(noise=1.0))
        assert not bound.value.any() and not bound.placed.any() and not bound.voice.any()
