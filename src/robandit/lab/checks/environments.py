"""Checks that every environment must pass, ours or a user's.

>>> from robandit import environments
>>> check_environment(environments.Drift)

``make`` is called without arguments. A check that fails raises AssertionError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import fsum, inf, isclose
from typing import Any, TypeAlias

import numpy as np

from robandit.arrays import ALL, Floats
from robandit.geometry.regions import Region
from robandit.lab.environments import NEVER, Environment, Menu, Offer
from robandit.streams import ENVIRONMENT, Draws

MakeEnvironment: TypeAlias = Callable[[], Environment]
"""Makes an environment."""

_ROUNDS = 40
_SLACK = 1e-9  # largest relative excess over a bound by rounding
_MANY = 400  # trials; their average errs by a twentieth of their spread
_ARRAYS = ("sigma", "noise", "delay", "source", "bias")  # of an offer
_BAR = 5.0  # standard errors; chance exceeds them once in millions


def check_environment(make: MakeEnvironment) -> None:
    """Run all checks of an environment."""
    for check in ENVIRONMENT_CHECKS:
        check(make)


def check_shapes(make: MakeEnvironment) -> None:
    """Rounds are numbered from 1 on, and every array is finite and has the shape that the protocol asks for."""
    environment, trials = make(), 3
    for t, offer in enumerate(offers(environment, range(trials)), start=1):
        menu, size = offer.menu, (trials, offer.menu.means.shape[-1])
        assert offer.round == t, f"round {t} has the number {offer.round}"
        finite = isinstance(menu.actions, np.ndarray)
        if isinstance(menu.actions, np.ndarray):
            _expect("actions", menu.actions, (*size, environment.dim))
        else:
            assert menu.actions.dim == environment.dim, f"the infinite set has dimension {menu.actions.dim}"
            assert menu.witnesses is not None, "an infinite set comes without witnesses"
            _expect("witnesses", menu.witnesses, (trials, 2, environment.dim))
        _expect("parameter", menu.parameter, (trials, environment.dim))
        _expect("means", menu.means, size)
        _expect("best", menu.best, (trials,))
        _expect("gap", np.where(menu.gap == inf, 0.0, menu.gap), (trials,))  # infinite where there is no other mean
        for name, array in (("sigma", offer.sigma), ("noise", offer.noise)):
            _expect(name, array, size if finite and array.ndim == 2 else (trials,))
        if offer.delay is not None:
            _expect("delay", offer.delay, (trials,))
            assert offer.delay.dtype.kind == "i" and offer.delay.min() >= NEVER, f"delay has {offer.delay}"
        _check_visitors(offer, len(environment.shares), size)


def _check_visitors(offer: Offer, sources: int, size: tuple[int, int]) -> None:
    """Check that sources are named where the environment has shares, and only there."""
    assert (offer.source is None) == (sources == 0), f"shares has {sources} sources, but an offer has {offer.source}"
    if offer.source is not None:
        _expect("source", offer.source, size[:1])
        known = offer.source.dtype == np.int64 and 0 <= offer.source.min() <= offer.source.max() < sources
        assert known, f"source must be 64-bit integers from 0 to {sources - 1}, got {offer.source}"
    if offer.bias is not None:
        _expect("bias", offer.bias, size)


def check_bounds(make: MakeEnvironment) -> None:
    """Actions, μ*, means, noise and σ are within the bounds that the policies are told."""
    environment = make()
    noise_range = environment.noise_range
    for offer in offers(environment, range(4)):
        _at_most("the norm of an action", _reach(offer.menu), environment.action_bound)
        _at_most("the norm of μ*", np.linalg.norm(offer.menu.parameter, axis=1), environment.parameter_bound)
        _at_most("a mean", np.abs(offer.means), environment.mean_bound)
        _at_most("the distance of a clean reward from its mean", np.abs(offer.noise), noise_range)
        if offer.bias is not None:
            _at_most("the honest difference of a source", np.abs(offer.bias), environment.misspecification)
        _at_most("sigma", offer.sigma, noise_range)
        assert (offer.sigma >= 0.0).all(), f"sigma is {offer.sigma.min()}, below 0"


def check_noise(make: MakeEnvironment) -> None:
    """Noise has mean 0 and a standard deviation of at most σ, within five standard errors over many trials."""
    seen = offers(make(), range(_MANY))
    width = min(offer.means.shape[1] for offer in seen)  # the actions that every round has
    noise = np.stack([_of_each(offer.noise, width) for offer in seen])  # (rounds, B, width)
    sigma = np.stack([_of_each(offer.sigma, width) for offer in seen])
    bias, error = _average(noise)
    worst = int(np.argmax(np.abs(bias) - _BAR * error))
    assert (np.abs(bias) <= _BAR * error + 1e-12).all(), (
        f"the noise of action {worst} has mean {bias[worst]:.3g}, which should be 0 ± {error[worst]:.1g}"
    )
    excess, error = _average(noise**2 - sigma**2)
    worst = int(np.argmax(excess - _BAR * error))
    assert (excess <= _BAR * error + 1e-12).all(), (
        f"the variance of action {worst}'s noise exceeds σ² by {excess[worst]:.3g}, standard error {error[worst]:.1g}"
    )


def check_batch_equals_singles(make: MakeEnvironment) -> None:
    """A trial gets the same offers, bit for bit, alone and in any batch."""
    environment = make()
    whole, part = offers(environment, range(4)), offers(environment, [1, 3])
    alone = [offers(environment, [trial]) for trial in range(4)]
    for t, offer in enumerate(whole):
        for trial in range(4):
            difference = changes(offer, alone[trial][t], trial, 0)
            assert not difference, f"trial {trial} of a batch has another {difference} than alone in round {t + 1}"
        difference = changes(part[t], alone[3][t], 1, 0)
        assert not difference, f"the {difference} of a trial depends on its companions in round {t + 1}"


def check_seed_decides(make: MakeEnvironment) -> None:
    """The same seed makes the same offers without other randomness; another seed or trial has other noise."""
    first = offers(make(), range(2))
    outside = np.random.get_state()  # noqa: NPY002 - to see that the global generator is left alone
    again = offers(make(), range(2))
    assert _same_all(first, again), "two environments with the same seed differ"
    assert repr(outside) == repr(np.random.get_state()), "the global random generator was used"  # noqa: NPY002
    if any(offer.noise.any() for offer in first):
        noise, other = _noises(first), _noises(offers(make(), range(2), seed=6))
        assert not all(map(np.array_equal, noise, other)), "another seed has the same noise"
        assert any((a[0] != a[1]).any() for a in noise), "two trials have the same noise"


def check_iterators_are_independent(make: MakeEnvironment) -> None:
    """Two iterators of one environment neither disturb each other nor change what they have yielded."""
    environment = make()
    first, second = (environment.rounds(_draws(trials, 5)) for trials in (range(2), range(2)))
    third = environment.rounds(_draws([7], 9))
    ahead, as_yielded = [], []
    for offer in islice(first, 7):
        ahead.append(offer)
        as_yielded.append(copied(offer))
    others: list[Offer] = []
    for _ in range(_ROUNDS):
        others.append(next(second))
        ahead.append(next(first))
        next(third)
    assert _same_all(ahead[:7], as_yielded), "an iterator changed what it had yielded"
    alone = offers(environment, range(2), _ROUNDS + 7)
    assert _same_all(ahead, alone), "an iterator is disturbed by another"
    assert _same_all(others, alone[:_ROUNDS]), "an iterator is disturbed by one that is ahead"


def check_set_size(make: MakeEnvironment) -> None:
    """`set_size` is the number of actions in every set, or None."""
    environment = make()
    if environment.set_size is None:
        return
    for offer in offers(environment, range(2)):
        assert isinstance(offer.actions, np.ndarray), f"set_size is {environment.set_size}, but the set is infinite"
        size = offer.actions.shape[1]
        assert size == environment.set_size, f"set_size is {environment.set_size}, but a set has {size} actions"


def check_menu(make: MakeEnvironment) -> None:
    """Means, the best mean and the gap are what a plain computation from the actions and μ* gives."""
    for offer in offers(make(), range(2)):
        if not isinstance(offer.menu.actions, np.ndarray):
            _check_infinite_menu(offer.menu, offer.menu.actions)
            continue
        for row, actions in enumerate(offer.menu.actions):
            parameter = offer.menu.parameter[row].tolist()
            means = [fsum(x * y for x, y in zip(action, parameter, strict=True)) for action in actions.tolist()]
            best = max(means)
            gap = min((best - mean for mean in means if best - mean > _SLACK), default=inf)
            assert np.allclose(offer.means[row], means, rtol=0, atol=_SLACK), "the means are not those of the actions"
            told = float(offer.menu.best[row]), float(offer.menu.gap[row])
            assert isclose(told[0], best, abs_tol=_SLACK), f"the best mean is {best:.9g}, not {told[0]:.9g}"
            assert isclose(told[1], gap, abs_tol=_SLACK), f"the gap is {gap:.9g}, not {told[1]:.9g}"


ENVIRONMENT_CHECKS: Sequence[Callable[[MakeEnvironment], None]] = (
    check_shapes,
    check_bounds,
    check_noise,
    check_batch_equals_singles,
    check_seed_decides,
    check_iterators_are_independent,
    check_set_size,
    check_menu,
)


def offers(environment: Environment, trials: Sequence[int], rounds: int = _ROUNDS, seed: int = 5) -> list[Offer]:
    """The offers of the first rounds of an environment."""
    return list(islice(environment.rounds(_draws(trials, seed)), rounds))


def copied(offer: Offer) -> Offer:
    """A copy of an offer that shares no array with it."""
    menu = Menu(*(_copy(value) for value in offer.menu))
    parts = {name: _copy(getattr(offer, name)) for name in _ARRAYS}
    return replace(offer, menu=menu, **parts)


def changes(one: Offer, other: Offer, row: int | slice = ALL, place: int | slice = ALL) -> str:
    """The name of a part in which two offers, or a trial of each, differ; empty if they are equal."""
    for (name, a), (_, b) in zip(_parts(one), _parts(other), strict=True):
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            a, b = a[row], b[place]
        if not np.array_equal(a, b):
            return name
    return ""


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def _parts(offer: Offer) -> Iterator[tuple[str, Any]]:
    """Everything in an offer, by name. An infinite set is represented by its dimension."""
    for name, value in offer.menu._asdict().items():
        yield name, value.dim if isinstance(value, Region) else value
    for name in ("round", *_ARRAYS):
        yield name, getattr(offer, name)


def _same_all(some: Sequence[Offer], others: Sequence[Offer]) -> bool:
    """Whether two lists of offers are equal, bit for bit."""
    return len(some) == len(others) and not any(changes(a, b) for a, b in zip(some, others, strict=True))


def _draws(trials: Sequence[int], seed: int) -> Draws:
    return Draws(seed=seed, trials=trials, who=ENVIRONMENT)


def _expect(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Check that an array is finite and has this shape."""
    assert np.shape(array) == shape, f"{name} must have shape {shape}, got {np.shape(array)}"
    assert np.isfinite(array).all(), f"{name} must be finite, got {array!r:.60}"


def _at_most(what: str, values: Floats, bound: float) -> None:
    """Check that values respect a bound, up to rounding."""
    assert (values <= bound * (1.0 + _SLACK)).all(), f"{what} is {values.max():.9g}, but may be {bound:g} at most"


def _reach(menu: Menu) -> Floats:
    """The norms of the actions; in an infinite set, the largest."""
    if isinstance(menu.actions, np.ndarray):
        return np.linalg.norm(menu.actions, axis=2)
    return np.asarray(menu.actions.farthest().values)


def _noises(some: Sequence[Offer]) -> list[Floats]:
    """The noise of each round, (B, 1) or (B, K)."""
    return [offer.noise.reshape(len(offer.noise), -1) for offer in some]


def _of_each(array: Floats, width: int) -> Floats:
    """The numbers (B, width) of the first actions, from one for each trial (B,) or one for each action (B, K)."""
    return np.broadcast_to(array[:, None], (len(array), width)) if array.ndim == 1 else array[:, :width]


def _average(values: Floats) -> tuple[Floats, Floats]:
    """The average (K,) of values (rounds, B, K), and its standard error from the spread of the trials."""
    each = values.mean(axis=0)
    return each.mean(axis=0), each.std(axis=0, ddof=1) / len(each) ** 0.5


def _check_infinite_menu(menu: Menu, region: Region) -> None:
    """Check that no action out of many is better or worse than the witnesses."""
    assert menu.witnesses is not None
    _at_most("the norm of a witness", np.linalg.norm(menu.witnesses, axis=2), float(region.farthest().values[0]))
    cloud = region.support(np.random.default_rng(0).standard_normal((500, region.dim))).points  # of the set
    values = cloud @ menu.parameter.T  # (500, B)
    means = np.vecdot(menu.witnesses, menu.parameter[:, None, :])
    assert np.allclose(menu.means, means, rtol=0, atol=_SLACK), "the means are not those of the witnesses"
    assert (values.max(axis=0) <= means[:, 0] + _SLACK).all(), "an action is better than the first witness"
    assert (values.min(axis=0) >= means[:, 1] - _SLACK).all(), "an action is worse than the second witness"
    assert np.allclose(menu.best, means[:, 0], rtol=0, atol=_SLACK), "the best mean is not the first witness's"
    assert not menu.gap.any(), "the gap of an infinite set is 0"
