"""Every environment through the public checks, and what each of them promises."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy import stats
from tables_to_replay import made_up

from robandit import environments
from robandit.geometry.regions import Ball
from robandit.lab.attacks import Flip, Late, NoAttack
from robandit.lab.checks import ENVIRONMENT_CHECKS, MakeEnvironment, check_environment
from robandit.lab.checks import environments as checks
from robandit.lab.environments import (
    ENVIRONMENTS,
    NEVER,
    Bernoulli,
    ChangingSets,
    Delayed,
    Drift,
    Environment,
    Fresh,
    Heteroscedastic,
    Menu,
    Offer,
    Paper,
    PerActionNoise,
    Replay,
    Synthetic,
    UnitBall,
    side_by_side,
)
from robandit.streams import ENVIRONMENT, Draws
from thinned import untraced

MAKE: dict[str, MakeEnvironment] = {
    **ENVIRONMENTS,
    "replay": lambda: Replay(data=made_up(60)),
    "replay of uneven sets": lambda: Replay(data=made_up(60, fewest=2), person="who", half="play"),
    "replay of a source": lambda: Replay(data=made_up(40), features="x*", source="colour", person="who"),
    "paper, ten fresh rounds": lambda: Paper(fresh_rounds=10),
    "paper, drifting": lambda: Paper(fresh_rounds=10, drift=0.02),
    "random parameter": lambda: Synthetic(parameter="random"),
    "one action": lambda: Synthetic(dim=3, actions=1),
    "one dimension": lambda: Synthetic(dim=1, actions=3, parameter="random"),
    "per action in changing sets": lambda: PerActionNoise(actions=5, fewest=1),
    "two-point noise per action": lambda: Heteroscedastic(per_action=True),
    "bernoulli, random parameter": lambda: Bernoulli(parameter="random", fewest=3),
    "unit ball, random parameter that turns": lambda: UnitBall(parameter="random", drift=0.05),
    "no noise": lambda: Synthetic(dim=4, sigma_high=0.0),
    "wide noise, clipped": lambda: Synthetic(dim=4, sigma_low=0.5, sigma_high=0.5),
}


def test_every_environment_is_here() -> None:
    classes = [thing for thing in vars(environments).values() if inspect.isclass(thing)]
    ours = {kind for kind in classes if issubclass(kind, Environment) and not inspect.isabstract(kind)}
    assert ours - {Synthetic} == set(ENVIRONMENTS.values())  # of which all are special cases


@pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", untraced(MAKE, but=["delayed", "no noise", "unit-ball"]))
def test_environment(name: str, check: Callable[[MakeEnvironment], None]) -> None:
    check(MAKE[name])


def world(environment: Environment, trials: Any = range(3), seed: int = 5) -> Iterator[Offer]:
    return environment.rounds(Draws(seed=seed, trials=trials, who=ENVIRONMENT))


def play(environment: Environment, rounds: int, trials: Any = range(3), seed: int = 5) -> list[Offer]:
    return list(islice(world(environment, trials, seed), rounds))


# The paper's.


def test_papers_sets_are_fresh_and_then_fixed() -> None:
    offers = play(Paper(fresh_rounds=5), 12)
    sets = [np.asarray(offer.actions) for offer in offers]
    for i in range(5):
        assert all(not np.array_equal(sets[i], sets[j]) for j in range(i))
    assert not np.array_equal(sets[5], sets[4])
    assert all(offer.menu is offers[5].menu for offer in offers[5:])
    assert sets[0].shape == (3, 20, 20)
    assert np.abs(np.array(sets)).max() <= 20**-0.5
    assert stats.kstest(np.array(sets[:6]).ravel() * 20**0.5, "uniform", args=(-1.0, 2.0)).pvalue > 0.001


def test_papers_fixed_set_and_noise_are_the_same_for_every_k() -> None:
    none, few, many = (play(Paper(fresh_rounds=k), 40) for k in (0, 3, 30))
    fixed = np.asarray(none[0].actions)
    assert np.array_equal(fixed, np.asarray(few[3].actions)) and np.array_equal(fixed, np.asarray(many[30].actions))
    for a, b, c in zip(none, few, many, strict=True):
        assert np.array_equal(a.noise, b.noise) and np.array_equal(b.noise, c.noise)
        assert np.array_equal(a.sigma, b.sigma) and np.array_equal(b.sigma, c.sigma)
    fresh = [(np.asarray(few[i].actions), np.asarray(many[i].actions)) for i in range(3)]
    assert all(np.array_equal(one, other) for one, other in fresh)  # and so are the fresh ones
    assert not np.array_equal(fixed, np.asarray(play(Paper(fresh_rounds=0), 1, seed=6)[0].actions))


def test_paper_faces_an_attack() -> None:
    assert Paper().facing(Flip(rounds=90)).fresh_rounds == 90
    assert Paper().facing(Flip(rounds=0)).fresh_rounds == 0
    assert Paper().facing(NoAttack()).fresh_rounds == Paper().facing(Late()).fresh_rounds == 0
    assert Paper(fresh_rounds=7).facing(Flip(rounds=90)).fresh_rounds == 7
    assert Fresh().facing(Flip(rounds=90)) == Fresh()


def test_papers_means_and_noise() -> None:
    for offer in play(Paper(), 20):
        assert np.allclose(offer.menu.parameter, 20**-0.5, rtol=1e-15)
        assert offer.noise.shape == offer.sigma.shape == (3,)
        assert np.allclose(offer.rewards - offer.means, offer.noise[:, None], rtol=0, atol=1e-15)  # alike for all
        assert (offer.sigma <= 0.05).all()


def test_papers_sigma_is_uniform_and_its_noise_normal() -> None:
    offers = play(Paper(dim=2, actions=2), 300, range(30))
    sigma, noise = (np.array([getattr(offer, name) for offer in offers]).ravel() for name in ("sigma", "noise"))
    assert stats.kstest(sigma, "uniform", args=(0.0, 0.05)).pvalue > 0.001
    assert stats.kstest(noise / sigma, "norm").pvalue > 0.001


def test_noise_is_clipped() -> None:
    noise = np.array([o.noise for o in play(Synthetic(dim=2, sigma_low=0.5, sigma_high=0.5), 1000)]).ravel()
    assert noise.max() == 0.5 and noise.min() == -0.5
    clipped = float(np.mean(np.abs(noise) == 0.5))
    expected = 2.0 * stats.norm.sf(1.0)  # beyond one standard deviation
    assert abs(clipped - expected) <= 5.0 * (expected * (1.0 - expected) / len(noise)) ** 0.5


# The others.


def test_bernoulli_rewards_are_clicks() -> None:
    offers = play(Bernoulli(dim=3, actions=8), 500, range(10))
    rewards, means = np.array([o.rewards for o in offers]), np.array([o.means for o in offers])
    assert set(np.unique(rewards)) == {0.0, 1.0}  # exactly
    assert means.min() >= 0.0 and means.max() <= 1.0
    for low, high in ((0.0, 0.3), (0.3, 0.5), (0.5, 0.7), (0.7, 1.0)):
        chosen = (means >= low) & (means < high)
        variance = (means * (1.0 - means))[chosen].sum()
        assert abs((rewards - means)[chosen].sum()) <= 5.0 * variance**0.5
    assert all(np.array_equal(offer.sigma, np.full(10, 0.5)) for offer in offers)


def test_bernoulli_clicks_are_independent() -> None:
    noise = np.array([o.noise for o in play(Bernoulli(dim=3, actions=2), 2000)])  # (rounds, B, 2)
    product = noise[..., 0] * noise[..., 1]
    assert abs(product.mean()) <= 5.0 * product.std() / product.size**0.5


def test_two_point_noise_has_exactly_the_deviation_told() -> None:
    offers = play(Heteroscedastic(dim=2, actions=2), 300, range(30))
    sigma, noise = (np.array([getattr(offer, name) for offer in offers]).ravel() for name in ("sigma", "noise"))
    assert np.array_equal(np.abs(noise), sigma)
    assert abs(np.sign(noise).mean()) <= 5.0 / len(noise) ** 0.5
    assert sigma.min() >= 0.05 and sigma.max() <= 0.5
    span = np.log(10.0)
    assert stats.kstest(np.log(sigma / 0.05), "uniform", args=(0.0, span)).pvalue > 0.001


def test_heteroscedastic_spans_the_floor() -> None:
    floor = (Heteroscedastic().noise_range + 1.0) / Heteroscedastic().dim ** 0.5
    assert 0.33 < floor < 0.34
    sigma = np.array([offer.sigma for offer in play(Heteroscedastic(), 500)])
    expected = np.log(floor / 0.05) / np.log(0.5 / 0.05)
    assert 0.0 < expected < 1.0
    assert abs((sigma < floor).mean() - expected) <= 5.0 * (expected * (1.0 - expected) / sigma.size) ** 0.5


def test_noise_of_each_action() -> None:
    offers = play(PerActionNoise(dim=2, actions=3), 1500)
    assert offers[0].noise.shape == offers[0].sigma.shape == (3, 3)
    noise, sigma = np.array([o.noise for o in offers]), np.array([o.sigma for o in offers])
    for pair in ((0, 1), (1, 2), (0, 2)):
        product = noise[..., pair[0]] * noise[..., pair[1]]
        assert abs(product.mean()) <= 5.0 * product.std() / product.size**0.5
    assert stats.kstest(sigma.ravel(), "uniform", args=(0.0, 0.5)).pvalue > 0.001


def test_sizes_of_changing_sets_are_shared_and_cover_the_range() -> None:
    here, there = play(ChangingSets(dim=2), 600, [0, 1, 2]), play(ChangingSets(dim=2), 600, [9])
    sizes = [np.asarray(offer.actions).shape[1] for offer in here]
    assert sizes == [np.asarray(offer.actions).shape[1] for offer in there]
    assert sizes != [np.asarray(offer.actions).shape[1] for offer in play(ChangingSets(dim=2), 600, seed=6)]
    counts = np.bincount(sizes, minlength=21)
    assert not counts[:2].any() and (counts[2:] > 0).all()
    assert stats.chisquare(counts[2:]).pvalue > 0.001
    assert all(offer.menu.means.shape == (3, size) for offer, size in zip(here, sizes, strict=True))


def test_delays_are_geometric_and_some_rewards_are_lost() -> None:
    delay = np.array([offer.delay for offer in play(Delayed(dim=2, actions=2), 2000, range(10))]).ravel()
    lost = float(np.mean(delay == NEVER))
    assert abs(lost - 0.1) <= 5.0 * (0.1 * 0.9 / len(delay)) ** 0.5
    waits = delay[delay != NEVER]
    assert waits.min() == 0 and waits.max() <= 200
    # P(W = w) = p(1 − p)^w with p = 1/11, of mean (1 − p)/p = 10 and variance (1 − p)/p² = 110
    assert abs(waits.mean() - 10.0) <= 5.0 * (110.0 / len(waits)) ** 0.5
    seen = np.bincount(np.minimum(waits, 40), minlength=41)
    chances = np.append((1 / 11) * (10 / 11) ** np.arange(40), (10 / 11) ** 40)
    assert stats.chisquare(seen, chances * len(waits)).pvalue > 0.001


def test_delays_without_loss_and_loss_without_delay() -> None:
    late = np.array([offer.delay for offer in play(Synthetic(dim=2, mean_delay=2.0), 500)])
    assert late.min() == 0 and 1.5 < late.mean() < 2.5
    lost = np.array([offer.delay for offer in play(Synthetic(dim=2, lost=0.25), 500)])
    assert set(np.unique(lost)) == {NEVER, 0}
    assert all(offer.delay is None for offer in play(Synthetic(dim=2), 5))
    gone = np.array([offer.delay for offer in play(Synthetic(dim=2, mean_delay=1.0, lost=1.0), 20)])
    assert (gone == NEVER).all()


@pytest.mark.parametrize("parameter", ["even", "random"])
def test_drift_turns_a_parameter_of_length_one(parameter: str) -> None:
    offers = play(Drift(dim=6, actions=3, drift=0.01, parameter=parameter), 400)
    path = np.array([offer.menu.parameter for offer in offers])  # (rounds, B, d)
    assert np.allclose(np.linalg.norm(path, axis=2), 1.0, rtol=1e-12)
    steps = 2.0 * np.arcsin(np.linalg.norm(path[1:] - path[:-1], axis=2) / 2.0)
    assert np.allclose(steps, 0.01, rtol=1e-9)
    far = np.arccos(np.vecdot(path[0], path[300]))
    assert np.allclose(far, (3.0, 3.0, 3.0), rtol=1e-9)  # on a great circle: 300 steps of 0.01
    assert not np.allclose(path[100, 0], path[100, 1])  # each trial in a direction of its own
    start = np.cos(-0.01) * path[0] - np.sin(0.01) * (path[1] - np.cos(0.01) * path[0]) / np.sin(0.01)
    if parameter == "even":
        assert np.allclose(start, 6**-0.5, rtol=1e-9)  # one step back


def test_drift_is_slow_by_default() -> None:
    assert Drift().drift * 10_000 == pytest.approx(np.pi / 2)
    moving = play(Drift(fresh_rounds=2), 6)
    assert all(np.array_equal(np.asarray(offer.actions), np.asarray(moving[2].actions)) for offer in moving[2:])
    assert not np.array_equal(moving[2].means, moving[5].means)  # the sets stay, the truth does not


def test_random_parameters_differ_by_trial() -> None:
    offers = play(Synthetic(dim=4, parameter="random"), 3, range(500))
    parameter = offers[0].menu.parameter
    assert all(np.array_equal(offer.menu.parameter, parameter) for offer in offers)
    assert np.allclose(np.linalg.norm(parameter, axis=1), 1.0)
    # uniform on the sphere: the coordinates have mean 0 and mean square 1/4
    assert (np.abs(parameter.mean(axis=0)) <= 5.0 * (0.25 / 500) ** 0.5).all()
    assert (np.abs((parameter**2).mean(axis=0) - 0.25) <= 5.0 * (parameter**2).std(axis=0) / 500**0.5).all()


def test_the_unit_ball() -> None:
    offers = play(UnitBall(), 5)
    assert all(offer.menu is offers[0].menu for offer in offers)
    menu = offers[0].menu
    assert isinstance(menu.actions, Ball) and menu.witnesses is not None
    assert np.allclose(menu.witnesses[:, 0], menu.parameter) and np.allclose(menu.witnesses[:, 1], -menu.parameter)
    assert np.allclose(menu.means, [1.0, -1.0]) and np.allclose(menu.best, 1.0) and not menu.gap.any()
    action = np.tile([0.5, 0.0, 0.0, 0.0, 0.0], (3, 1))
    assert np.allclose(offers[0].mean_of(np.full(3, -1), action), 0.5 / 5**0.5)
    few = offers[0].narrowed(action)
    assert isinstance(few.actions, np.ndarray)
    assert few.actions.shape == (3, 3, 5) and np.array_equal(few.actions[:, -1], action)
    assert np.allclose(few.means, [[1.0, -1.0, 0.5 / 5**0.5]] * 3)


SIZES: dict[str, int | None] = {
    **dict.fromkeys(ENVIRONMENTS, 20),
    "unit-ball": None,
    "changing-sets": None,
    "replay": 4,
    "clicks": 10,
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_set_size(name: str) -> None:
    assert MAKE[name]().set_size == SIZES[name]


def test_gap_and_best() -> None:
    actions = np.array([[[1.0, 0.0], [0.0, 1.0], [0.0, -0.5]], [[0.6, 0.0], [0.6, 0.0], [0.6, 0.0]]])
    menu = Menu.of(actions, np.array([[0.6, 0.8], [1.0, 0.0]]))
    assert np.allclose(menu.means, [[0.6, 0.8, -0.4], [0.6, 0.6, 0.6]])
    assert np.allclose(menu.best, [0.8, 0.6])
    assert np.allclose(menu.gap, [0.2, np.inf])  # where all are alike there is no other


def test_what_the_played_action_earns() -> None:
    offer = play(PerActionNoise(dim=2, actions=3), 1)[0]
    played = np.array([2, 0, 1])
    rows = np.arange(3)
    action = np.asarray(offer.actions)[rows, played]
    assert np.array_equal(offer.mean_of(played, action), offer.means[rows, played])
    assert np.array_equal(offer.reward_of(played, action), (offer.means + offer.noise)[rows, played])


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (Synthetic, {"dim": 0}),
        (Synthetic, {"dim": 2.5}),
        (Synthetic, {"noise_range": 0.0}),
        (Synthetic, {"actions": 0}),
        (Synthetic, {"fewest": 0}),
        (Synthetic, {"fewest": 21}),
        (Synthetic, {"fresh_rounds": -1}),
        (Synthetic, {"sigma_low": -0.1}),
        (Synthetic, {"sigma_low": 0.06}),
        (Synthetic, {"sigma_high": 0.7}),
        (Synthetic, {"sigma_high": float("nan")}),
        (Synthetic, {"noise": "cauchy"}),
        (Synthetic, {"parameter": "odd"}),
        (Synthetic, {"drift": -0.5}),
        (Synthetic, {"mean_delay": -2.0}),
        (Synthetic, {"mean_delay": float("inf")}),
        (Synthetic, {"lost": 1.5}),
        (Bernoulli, {"noise_range": 0.5}),
        (Bernoulli, {"drift": 0.25}),
        (Heteroscedastic, {"sigma_low": 0}),
    ],
)
def test_bad_settings_are_refused(kind: type[Synthetic], bad: dict[str, Any]) -> None:
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=name) as error:
        kind(**bad)
    assert repr(value) in str(error.value)


@pytest.mark.parametrize("bad", [{"per_action": True}, {"fewest": 3}, {"noise": "bernoulli", "noise_range": 1.0}])
def test_what_an_infinite_set_goes_without(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="infinite"):
        UnitBall(**bad)


# Side by side.

PAIRS: dict[str, tuple[Environment, ...]] = {
    "alone": (Fresh(dim=3, actions=4),),
    "three of a kind": (Fresh(dim=3, actions=4),) * 3,
    "fixed beside fresh": (Paper(dim=3, actions=4, fresh_rounds=3), Paper(dim=3, actions=4, fresh_rounds=0)),
    "one noise beside one per action": (Fresh(dim=3, actions=4), PerActionNoise(dim=3, actions=4)),
    "late beside at once": (Delayed(dim=3, actions=4), Fresh(dim=3, actions=4)),
    "changing sets": (ChangingSets(dim=3, actions=4),) * 2,
    "the unit ball": (UnitBall(dim=3), UnitBall(dim=3, parameter="random", sigma_high=0.3)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_side_by_side_equals_separate_worlds(name: str) -> None:
    kinds, trials = PAIRS[name], ([0, 1], [4], [2, 3, 5])
    together = side_by_side([world(kind, some) for kind, some in zip(kinds, trials, strict=False)])
    alone = [world(kind, some) for kind, some in zip(kinds, trials, strict=False)]
    for whole, parts in islice(together, 12):
        end = 0
        for part, other in zip(parts, alone, strict=True):
            single = next(other)
            assert not checks.changes(part, single)
            rows = range(end, end := end + len(single.menu.best))
            for i, row in enumerate(rows):
                assert_same_trial(whole, row, single, i)
        assert end == len(whole.menu.best)


def assert_same_trial(whole: Offer, row: int, single: Offer, i: int) -> None:
    """The trial ``row`` of a joint batch is trial ``i`` of its own."""
    assert whole.round == single.round
    for name, value in single.menu._asdict().items():
        if isinstance(value, np.ndarray):
            assert np.array_equal(getattr(whole.menu, name)[row], value[i])
    for name in ("sigma", "noise"):
        mine, yours = getattr(whole, name)[row], getattr(single, name)[i]
        assert np.array_equal(mine, np.broadcast_to(yours, mine.shape))
    assert (0 if whole.delay is None else whole.delay[row]) == (0 if single.delay is None else single.delay[i])


def test_side_by_side_keeps_a_fixed_menu() -> None:
    fixed = Paper(dim=3, actions=4, fresh_rounds=2)
    menus = [whole.menu for whole, _ in islice(side_by_side([world(fixed), world(fixed)]), 8)]
    assert menus[1] is not menus[2]
    assert all(menu is menus[2] for menu in menus[2:])


# The checks find what is wrong.


@dataclass(kw_only=True, frozen=True)
class Plain(Synthetic):
    """Passes every check; the broken ones below spoil each offer in one way."""

    dim: int = 3
    actions: int = 4

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        for offer in super().rounds(draw):
            yield self.spoilt(offer)

    def spoilt(self, offer: Offer) -> Offer:
        return offer


class Miscounting(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, round=offer.round - 1)


class WideSigma(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, sigma=np.zeros((len(offer.sigma), 7)))


class NoNumber(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, noise=offer.noise * np.nan)


class LongActions(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, menu=Menu.of(4.0 * np.asarray(offer.actions), offer.menu.parameter / 4.0))


class LongParameter(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, menu=Menu.of(np.asarray(offer.actions) / 2.0, 2.0 * offer.menu.parameter))


class LoudNoise(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, noise=np.where(offer.round == 9, 0.6, offer.noise))


class NegativeSigma(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, sigma=-offer.sigma)


class HugeSigma(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, sigma=offer.sigma + 0.6)


class Biased(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, noise=offer.noise + 0.1 * offer.sigma)


class Understated(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, sigma=0.9 * offer.sigma)


class BiasedForOne(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, noise=offer.noise[:, None] + 0.1 * offer.sigma[:, None] * [0.0, 0.0, 1.0, 0.0])


class Gregarious(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, noise=offer.noise / len(offer.noise))


class Global(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, noise=np.random.uniform(-0.5, 0.5, len(offer.noise)) * offer.sigma)  # noqa: NPY002


class Seedless(Plain):
    def rounds(self, draw: Draws) -> Iterator[Offer]:
        return super().rounds(Draws(seed=1, trials=draw._trials, who=ENVIRONMENT))


class Twins(Plain):
    def rounds(self, draw: Draws) -> Iterator[Offer]:
        return super().rounds(Draws(seed=draw._seed, trials=[0] * len(draw), who=ENVIRONMENT))


COUNTER = [0]


class Entangled(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        COUNTER[0] += 1
        return replace(offer, noise=offer.noise * (COUNTER[0] % 2))


class Overwriting(Plain):
    def rounds(self, draw: Draws) -> Iterator[Offer]:
        noise = np.zeros(len(draw))
        for offer in super().rounds(draw):
            noise[:] = offer.noise
            yield replace(offer, noise=noise)


class WrongSize(Plain):
    set_size = 5


class WrongBest(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, menu=offer.menu._replace(best=offer.means[:, 0]))


class WrongGap(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, menu=offer.menu._replace(gap=offer.menu.best - offer.means.min(axis=1)))


class WrongMeans(Plain):
    def spoilt(self, offer: Offer) -> Offer:
        return replace(offer, menu=offer.menu._replace(means=offer.means[:, ::-1]))


class WrongWitness(UnitBall):
    def rounds(self, draw: Draws) -> Iterator[Offer]:
        for offer in super().rounds(draw):
            assert offer.menu.witnesses is not None
            witnesses = 0.5 * offer.menu.witnesses
            menu = offer.menu._replace(witnesses=witnesses, means=0.5 * offer.means, best=0.5 * offer.menu.best)
            yield replace(offer, menu=menu)


BROKEN: list[tuple[type[Environment], Any, str]] = [
    (Miscounting, checks.check_shapes, "round 1 has the number 0"),
    (WideSigma, checks.check_shapes, r"sigma must have shape \(3, 4\), got \(3, 7\)"),
    (NoNumber, checks.check_shapes, "noise must be finite"),
    (LongActions, checks.check_bounds, "the norm of an action is"),
    (LongParameter, checks.check_bounds, "the norm of μ\\* is 2, but may be 1 at most"),
    (LoudNoise, checks.check_bounds, "the distance of a clean reward from its mean is 0.6, but may be 0.5 at most"),
    (NegativeSigma, checks.check_bounds, "below 0"),
    (HugeSigma, checks.check_bounds, "sigma is .*, but may be 0.5 at most"),
    (Biased, checks.check_noise, "the noise of action 0 has mean"),
    (BiasedForOne, checks.check_noise, "the noise of action 2 has mean"),
    (Understated, checks.check_noise, "exceeds σ²"),
    (Gregarious, checks.check_batch_equals_singles, "trial 0 of a batch has another noise than alone in round 1"),
    (Global, checks.check_seed_decides, "two environments with the same seed differ"),
    (Seedless, checks.check_seed_decides, "another seed has the same noise"),
    (Twins, checks.check_seed_decides, "two trials have the same noise"),
    (Entangled, checks.check_iterators_are_independent, "disturbed|second time"),
    (Overwriting, checks.check_iterators_are_independent, "changed what it had yielded"),
    (WrongSize, checks.check_set_size, "set_size is 5, but a set has 4 actions"),
    (WrongBest, checks.check_menu, "the best mean is"),
    (WrongGap, checks.check_menu, "the gap is"),
    (WrongMeans, checks.check_menu, "the means are not those of the actions"),
    (WrongWitness, checks.check_menu, "an action is better than the first witness"),
]


def test_a_plain_environment_passes() -> None:
    check_environment(Plain)
    with pytest.raises(AssertionError, match="the best mean is"):
        check_environment(WrongBest)  # all checks are run: it is the last that finds it


@pytest.mark.parametrize(("kind", "check", "message"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_broken_environment_is_found(kind: type[Environment], check: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(kind)
