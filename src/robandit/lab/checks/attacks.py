"""Checks that every attack must pass, ours or a user's.

>>> from robandit import attacks
>>> check_attack(lambda **settings: attacks.Late(begin=5, **settings))

``make`` is called without arguments or with ``budget``. An attack is watched for 60 rounds: choose settings with which
it begins by then. A check that fails raises AssertionError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, fields
from itertools import count
from typing import NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import ALL, Floats, Index
from robandit.geometry.regions import Region
from robandit.lab.attacks import Adversary, Attack, Plot
from robandit.lab.checks.environments import changes, copied, offers
from robandit.lab.environments import (
    Bernoulli,
    ChangingSets,
    Drift,
    Environment,
    Fresh,
    Heteroscedastic,
    Menu,
    Offer,
    PerActionNoise,
    UnitBall,
)
from robandit.policies import Decision
from robandit.streams import ATTACK, POLICY, Draws

MakeAttack: TypeAlias = Callable[..., Attack]
"""Makes an attack, with ``budget`` where it is given."""

_ROUNDS = 60
_SEED = 5
_BUDGETS = (0.0, 1e-6, 0.2, 3.0)
_SLACK = 1e-9  # largest relative difference of sums in another order
_ROUNDING = 1e-13  # largest rounding error of the difference of two rewards


def check_attack(make: MakeAttack) -> None:
    """Run all checks of an attack."""
    for check in ATTACK_CHECKS:
        check(make)


def check_strength(make: MakeAttack) -> None:
    """An attack says whether it is weak or strong."""
    strength = getattr(make(), "strength", None)
    assert strength in ("weak", "strong"), f"strength must be 'weak' or 'strong', got {strength!r}"


def check_configuration_is_plain_data(make: MakeAttack) -> None:
    """The fields are JSON values, make the same attack again, and do not change while it is played."""
    attack = make()
    settings = {item.name: getattr(attack, item.name) for item in fields(attack)}
    try:
        text = json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"the configuration is no plain data: {error}") from error
    assert json.loads(text) == settings, f"the configuration comes back from JSON as {text}"
    assert type(attack)(**settings) == attack, "its configuration makes another attack"
    _run(attack, _worlds(attack)[0])
    after = {item.name: getattr(attack, item.name) for item in fields(attack)}
    assert json.dumps(after) == text, "the configuration changes while the attack is played"


def check_offers_are_untouched(make: MakeAttack) -> None:
    """No array of an offer is written to."""
    attack = make()
    for environment in _worlds(attack):
        for played in _run(attack, environment).rounds:
            changed = changes(played.offer, played.truth)
            assert not changed, f"the attack modified the offer's {changed} in round {played.offer.round}"


def check_seed_decides(make: MakeAttack) -> None:
    """The same seed makes the same lies, whatever was played before; the global generator is not used."""
    attack = make()
    for environment in _worlds(attack):
        first = _run(attack, environment)
        outside = np.random.get_state()  # noqa: NPY002 - to see that the global generator is left alone
        for other in (attack, make()):
            difference = _difference(first, _run(other, environment))
            assert not difference, f"the same seed gives another {difference}"
        assert repr(outside) == repr(np.random.get_state()), "the global random generator was used"  # noqa: NPY002


def check_batch_equals_singles(make: MakeAttack) -> None:
    """A trial gets the same lies, bit for bit, alone and in any batch, also once others have spent their budgets."""
    for attack in (make(), make(budget=0.5)):
        for environment in _worlds(attack):
            whole, part = _run(attack, environment), _run(attack, environment, trials=[1, 3])
            for trial in range(4):
                alone = _run(attack, environment, trials=[trial])
                difference = _difference(whole, alone, trial, 0)
                assert not difference, f"trial {trial} of a batch has another {difference} than alone"
                if trial == 3:
                    difference = _difference(part, alone, 1, 0)
                    assert not difference, f"a trial's {difference} depends on its companions"


def check_budget_is_kept(make: MakeAttack) -> None:
    """An attack never spends more than its budget, by the ledger and by an account of its own, and the two agree."""
    for budget in _BUDGETS:
        attack = make(budget=budget)
        for environment in _worlds(attack):
            story = _run(attack, environment)
            done_sup, done_play = _readded(story, environment)
            spent, done = (story.c_play, done_play) if attack.strength == "strong" else (story.c_sup, done_sup)
            slack = _SLACK * budget + _ROUNDING * _ROUNDS
            assert (spent <= budget).all(), f"the ledger has {spent.max():.9g} spent of a budget of {budget:g}"
            assert (done <= budget + slack).all(), f"{done.max():.9g} was spent of a budget of {budget:g}"
            assert np.allclose(story.c_play[-1], done_play, _SLACK, slack), "C_play in the ledger is not what was done"
            if isinstance(story.rounds[0].truth.actions, np.ndarray):
                assert np.allclose(story.c_sup[-1], done_sup, _SLACK, slack), "C_sup in the ledger is not what was done"


def check_last_lie_is_cut(make: MakeAttack) -> None:
    """The lie that would exceed the budget is cut to what is left, not left out."""
    attack = make(budget=None)
    for environment in _worlds(attack):
        wanted = _spent(_run(attack, environment), attack)
        if not wanted[-1].any():
            continue  # it never lies
        budget = 0.6 * float(wanted[-1][wanted[-1] > 0.0].min())
        spent = _spent(_run(make(budget=budget), environment), attack)
        for trial in np.flatnonzero(wanted[-1] > budget):
            last = int(np.argmax(wanted[:, trial] > budget))
            if last > 0 and spent[last - 1, trial] != wanted[last - 1, trial]:
                continue  # with a budget it lies otherwise, and not for want of it
            reached = spent[last, trial]
            assert abs(reached - budget) <= 1e-12 * budget, (
                f"the lie that exceeds a budget of {budget:.9g} was left out, not cut: {reached:.9g} is spent"
            )


def check_ledgers_agree(make: MakeAttack) -> None:
    """The lies about the actions played are no larger than the largest ones: C_play <= (R+1) C_sup."""
    for attack in (make(), make(budget=0.5)):
        for environment in _worlds(attack):
            story = _run(attack, environment)
            limit = (environment.noise_range + 1.0) * story.c_sup * (1.0 + _SLACK)
            assert (story.c_play <= limit).all(), "C_play exceeds (R + 1) C_sup"


def check_budget_zero_is_no_attack(make: MakeAttack) -> None:
    """With a budget of 0, rewards and features are the true ones, bit for bit."""
    attack = make(budget=0.0)
    for environment in _worlds(attack):
        story = _run(attack, environment)
        for played in story.rounds:
            assert np.array_equal(played.told, played.clean), "a reward was changed on a budget of 0"
            if isinstance(played.plot.actions, np.ndarray) and isinstance(played.truth.actions, np.ndarray):
                shown = np.array_equal(played.plot.actions, played.truth.actions)
                assert shown, "features were moved on a budget of 0"
        assert not story.c_sup.any() and not story.c_play.any(), "the ledger has expenses on a budget of 0"


def check_odd_sets(make: MakeAttack) -> None:
    """Lies are finite numbers, one for each action, in decision sets of every kind."""
    for what, environment in _odd_worlds().items():
        for attack in (make(budget=0.1), make(budget=1e12)):
            try:
                _run(attack, environment, rounds=_ROUNDS // 3)
            except AssertionError as error:
                raise AssertionError(f"{what}: {error}") from error


def check_lies_come_before_the_action(make: MakeAttack) -> None:
    """The lies of a weak attack do not depend on the action; in an infinite set they are linear in the mean."""
    attack = make(budget=None)
    if attack.strength != "weak":
        return
    for environment in _worlds(attack):
        adversary, player = Adversary([(attack, environment, range(4))], _SEED), _Player(range(4), environment.dim)
        for offer in offers(environment, range(4), _ROUNDS, _SEED):
            twins = [adversary, deepcopy(adversary), deepcopy(adversary)]  # that have seen the same so far
            tales = [_play_round(twin, offer, player, shift) for shift, twin in enumerate(twins)]
            c_sup = np.stack([twin.ledger.c_sup for twin in twins])
            assert np.allclose(c_sup, c_sup[0], rtol=_SLACK), f"C_sup depends on the action in round {offer.round}"
            _check_same_lies(tales)


def check_owners(make: MakeAttack) -> None:
    """An attack says of each visitor whether it is its own, whatever runs beside, and leaves the offer as it was."""
    for environment in _worlds(make()):
        said = []
        for trials in (range(4), [2]):
            attack = make()
            attack.start(Draws(seed=_SEED, trials=trials, who=ATTACK), environment)
            for offer in offers(environment, trials, _ROUNDS // 3, _SEED):
                before = copied(offer)
                owned = attack.owns(offer)
                assert np.shape(owned) == (len(trials),) and owned.dtype == bool, (
                    f"owns must be (B,) bools, got {owned!r}"
                )
                assert not changes(offer, before), f"owns changes the {changes(offer, before)} of an offer"
                said.append(owned[-2 if len(trials) > 1 else 0])
        half = len(said) // 2
        assert said[:half] == said[half:], "whether a visitor is owned depends on its companions"


def _check_same_lies(tales: Sequence[_Round]) -> None:
    """Check that three versions of one round, with different actions played, fit the same lies."""
    first = tales[0]
    for tale in tales:
        if tale.plot.lies is not None and first.plot.lies is not None:
            assert np.array_equal(tale.plot.lies, first.plot.lies), "the lies depend on the action played"
            promised = tale.clean + tale.plot.lies[np.arange(len(tale.told)), tale.decision.index]
            assert np.array_equal(tale.told, promised), "the reward told is not what the attack had committed to"
    if isinstance(first.truth.actions, Region):
        (l0, l1, l2), (m0, m1, m2) = (
            [tale.told - tale.clean for tale in tales],
            [tale.truth.mean_of(tale.decision.index, tale.decision.action) for tale in tales],
        )
        bent = np.abs((l1 - l0) * (m2 - m0) - (l2 - l0) * (m1 - m0)).max()
        assert bent <= _SLACK, f"lies about an infinite set must be linear in the mean, but bend by {bent:.3g}"


ATTACK_CHECKS: Sequence[Callable[[MakeAttack], None]] = (
    check_strength,
    check_configuration_is_plain_data,
    check_offers_are_untouched,
    check_seed_decides,
    check_batch_equals_singles,
    check_budget_is_kept,
    check_last_lie_is_cut,
    check_ledgers_agree,
    check_budget_zero_is_no_attack,
    check_odd_sets,
    check_lies_come_before_the_action,
    check_owners,
)


class _Round(NamedTuple):
    """What happened in a round."""

    offer: Offer  # as the attack left it
    truth: Offer  # as it was before
    plot: Plot
    decision: Decision
    clean: Floats  # the clean reward of the action played, (B,)
    told: Floats  # the reward that the policy was told, (B,)


class _Story(NamedTuple):
    """What happened in all rounds."""

    rounds: list[_Round]
    c_sup: Floats  # (rounds, B)
    c_play: Floats


def _run(attack: Attack, environment: Environment, trials: Sequence[int] = range(4), rounds: int = _ROUNDS) -> _Story:
    """Play random actions under an attack. Errors in its lies become AssertionErrors."""
    seen, ledgers = [], []
    try:
        with np.errstate(divide="raise", over="raise", invalid="raise"):
            adversary = Adversary([(attack, environment, trials)], _SEED)
            player = _Player(trials, environment.dim)
            for offer in offers(environment, trials, rounds, _SEED):
                seen.append(_play_round(adversary, offer, player))
                ledgers.append((adversary.ledger.c_sup, adversary.ledger.c_play))
                _check_shown(seen[-1], environment)
    except (ValueError, FloatingPointError) as error:
        raise AssertionError(str(error)) from error
    c_sup, c_play = (np.stack(column) for column in zip(*ledgers, strict=True))
    return _Story(seen, c_sup, c_play)


def _play_round(adversary: Adversary, offer: Offer, player: _Player, shift: int = 0) -> _Round:
    """Play one round."""
    truth = copied(offer)
    plot = adversary.commit(offer, [offer])
    decision = player.choose(truth, plot, shift)
    told = adversary.answer(offer, [offer], plot, decision)
    return _Round(offer, truth, plot, decision, truth.reward_of(decision.index, decision.action), told)


class _Player:
    """Plays random actions, which are the same in a trial whatever runs beside it."""

    def __init__(self, trials: Sequence[int], dim: int) -> None:
        draw = Draws(seed=_SEED, trials=trials, who=POLICY)
        self._place, self._length, self._direction = draw.uniform(), draw.uniform(3), draw.normal(3, dim)

    def choose(self, offer: Offer, plot: Plot, shift: int) -> Decision:
        """Choose an action for each trial. Shifts 0, 1 and 2 give different ones, if there are so many."""
        if isinstance(plot.actions, np.ndarray):
            size = plot.actions.shape[1]
            index: Index = ((self._place.at(offer.round) * size).astype(np.intp) + shift) % size
            return Decision(round=offer.round, action=plot.actions[np.arange(len(index)), index], index=index)
        far = plot.actions.support(self._direction.at(offer.round)[:, shift]).points
        points = far * self._length.at(offer.round)[:, shift, None]
        return Decision(round=offer.round, action=points, index=np.full(len(points), -1))


def _check_shown(played: _Round, environment: Environment) -> None:
    """Check that the policy is shown finite rewards, and actions that it accepts."""
    assert played.told.shape == played.clean.shape, f"the rewards told have shape {played.told.shape}"
    assert np.isfinite(played.told).all(), f"the rewards told must be finite, got {played.told}"
    if isinstance(played.plot.actions, np.ndarray):
        reach = np.linalg.norm(played.plot.actions, axis=2).max()
        assert reach <= environment.action_bound * (1.0 + _SLACK), f"an action was made too long, {reach:.9g}"


def _readded(story: _Story, environment: Environment) -> tuple[Floats, Floats]:
    """C_sup and C_play by an account of our own, (B,). In an infinite set C_sup is that of the actions played."""
    c_sup, c_play = np.zeros(story.c_sup.shape[1]), np.zeros(story.c_sup.shape[1])
    for played in story.rounds:
        lie = np.abs(played.told - played.clean)
        most, shown, true = lie, played.plot.actions, played.truth.actions
        if isinstance(shown, np.ndarray) and isinstance(true, np.ndarray):
            moves = np.linalg.norm(shown - true, axis=2)
            lies = np.zeros_like(moves) if played.plot.lies is None else np.abs(played.plot.lies)
            most, lie = (lies + moves).max(axis=1), lie + moves[np.arange(len(lie)), played.decision.index]
        c_sup += most / (environment.noise_range + 1.0)
        c_play += lie
    return c_sup, c_play


def _spent(story: _Story, attack: Attack) -> Floats:
    """What the attack had spent of its budget by each round, (rounds, B)."""
    return story.c_play if attack.strength == "strong" else story.c_sup


def _difference(one: _Story, other: _Story, row: int | slice = ALL, place: int | slice = ALL) -> str:
    """What differs between two stories, or between a trial of one and a trial of the other; empty if nothing does."""
    for a, b in zip(one.rounds, other.rounds, strict=True):
        pairs = {"lie": (_lies(a), _lies(b)), "reward": (a.told, b.told)}
        if isinstance(a.plot.actions, np.ndarray) and isinstance(b.plot.actions, np.ndarray):
            pairs["action"] = a.plot.actions, b.plot.actions
        for name, (mine, yours) in pairs.items():
            if not np.array_equal(mine[row], yours[place]):
                return f"{name} in round {a.truth.round}"
    same = np.array_equal(one.c_sup[:, row], other.c_sup[:, place])
    return "" if same and np.array_equal(one.c_play[:, row], other.c_play[:, place]) else "ledger"


def _lies(played: _Round) -> Floats:
    return np.zeros_like(played.truth.means) if played.plot.lies is None else played.plot.lies


def _worlds(attack: Attack) -> list[Environment]:
    """Ordinary environments that the attack can handle."""
    finite = Heteroscedastic(dim=3, actions=5)
    sourced = Heteroscedastic(dim=3, actions=5, sources=4, skew=0.5, zeta=0.05)
    return [finite, sourced, UnitBall(dim=3, sigma_high=0.5)] if attack.infinite else [finite, sourced]


def _odd_worlds() -> dict[str, Environment]:
    """Environments with unusual decision sets, by what is unusual."""
    return {
        "one action": Fresh(dim=3, actions=1),
        "one dimension": Fresh(dim=1, actions=3),
        "one action in one dimension": Fresh(dim=1, actions=1),
        "two actions": Fresh(dim=3, actions=2),
        "tied means": _Still(dim=2, sets=[[[0.6, 0.8], [0.8, 0.6], [0.6, 0.8]]]),
        "actions that are zero": _Still(dim=2, sets=[[[0.0, 0.0], [0.0, 0.0]]]),
        "a single action that is zero": _Still(dim=2, sets=[[[0.0, 0.0]]]),
        "a zero among others": _Still(dim=2, sets=[[[0.0, 0.0], [1.0, 0.0], [0.0, -1.0]]]),
        "tiny actions": _Still(dim=2, sets=[[[1e-200, 0.0], [0.0, -1e-200]]]),
        "no noise": Fresh(dim=3, actions=4, sigma_high=0.0),
        "sets whose size changes": ChangingSets(dim=3, actions=6, fewest=1),
        "sets that shrink": _Still(dim=1, sets=[[[0.1 * i] for i in range(5)], [[0.3]]]),
        "noise of each action": PerActionNoise(dim=3, actions=4),
        "noise of each action in sets whose size changes": PerActionNoise(dim=3, actions=4, fewest=1),
        "rewards of 0 and 1": Bernoulli(dim=3, actions=4),
        "a parameter that turns": Drift(dim=3, actions=4, drift=0.1),
    }


@dataclass(kw_only=True, frozen=True)
class _Still(Environment):
    """An environment that offers these decision sets in turn to all trials, with uniform noise."""

    sets: Sequence[Sequence[Sequence[float]]]

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        parameter, noise = np.full((len(draw), self.dim), self.dim**-0.5), draw.uniform()
        for t in count(1):
            chosen = np.array(self.sets[t % len(self.sets)])
            menu = Menu.of(np.tile(chosen, (len(draw), 1, 1)), parameter)
            yield Offer(t, menu, np.full(len(draw), self.noise_range), self.noise_range * (2.0 * noise.at(t) - 1.0))
