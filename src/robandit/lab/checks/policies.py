"""Checks that every policy must pass, ours or a user's.

>>> import robandit
>>> check_policy(lambda **settings: robandit.Greedy(noise_range=0.5, **settings))

``make`` is called with ``dim``, ``seed`` and, for a batch, ``trials``. A check that fails raises AssertionError.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from functools import partial
from math import inf, nan
from typing import Any, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.policies import Decision, Policy

MakePolicy: TypeAlias = Callable[..., Policy]
"""Makes a policy from ``dim``, ``seed`` and, for a batch, ``trials``."""

_ROUNDS = 40


def check_policy(make: MakePolicy) -> None:
    """Run all checks of a policy."""
    for check in POLICY_CHECKS:
        check(make)


def check_inputs_are_untouched(make: MakePolicy) -> None:
    """`choose` and `update` neither write to what they are given nor keep a reference to it."""
    policy = make(dim=3, seed=1)
    actions, sigma = _actions(0, 3), np.full(5, 0.1)
    before = actions.copy(), sigma.copy()
    decision = policy.choose(actions, sigma)
    twin = make(dim=3, seed=1)
    twin.update(twin.choose(actions.copy(), sigma), 0.3)
    assert np.array_equal(actions, before[0]) and np.array_equal(sigma, before[1]), "an input was modified"
    actions[:] = 7.0
    policy.update(decision, 0.3)
    assert same_state(policy, twin), "the decision, or what is learnt from it, changes with the caller's array"
    batch, spread = make(dim=3, seed=1, trials=2), np.array([0.1, 0.2])
    decision = batch.choose(before[0], spread)
    spread[:] = 7.0
    assert np.array_equal(decision.sigma, [0.1, 0.2]), "the decision changes with the caller's sigma"
    policy.estimate().center[:] = 7.0
    policy.state()["arrays"]["updates"][:] = 7
    assert same_state(policy, twin), "what the policy hands out is no copy of its state"


def check_seed_decides(make: MakePolicy) -> None:
    """The same seed makes the same choices, whatever else draws random numbers meanwhile."""
    first = _play(make(dim=3, seed=5))
    outside = np.random.get_state()  # noqa: NPY002 - to see that the global generator is left alone
    assert _same_all(first, _play(make(dim=3, seed=5))), "two policies with the same seed differ"
    assert repr(outside) == repr(np.random.get_state()), "the global random generator was used"  # noqa: NPY002


def check_batch_equals_singles(make: MakePolicy) -> None:
    """Trial i of a batch plays, bit for bit, as a single policy with seed (s, i), and as in any other batch."""
    batch, part = make(dim=3, seed=5, trials=4), make(dim=3, seed=5, trials=[1, 3])
    singles = [make(dim=3, seed=(5, trial)) for trial in range(4)]
    for round_ in range(_ROUNDS):
        actions = _actions(round_, 3, trials=4)
        labels = _labels(round_, trials=4)
        whole = batch.choose(actions, sigma=0.1, source=labels, propensity=True)
        some = part.choose(actions[[1, 3]], sigma=0.1, source=labels[1::2], propensity=True)
        ones = [
            policy.choose(actions[i], sigma=0.1, source=labels[i], propensity=True) for i, policy in enumerate(singles)
        ]
        for i, one in enumerate(ones):
            assert _same(_trial(whole, i), one), f"trial {i} of a batch differs from a single policy in round {round_}"
        assert _same(_trial(some, 1), ones[3]), f"a trial depends on its companions in round {round_}"
        rewards = _rewards(round_, whole.action)
        batch.update(whole, rewards)
        part.update(some, rewards[[1, 3]])
        for policy, one, reward in zip(singles, ones, rewards, strict=True):
            policy.update(one, float(reward))


def check_state_round_trip(make: MakePolicy) -> None:
    """A policy restored from its state, sent through JSON and NumPy's file format, continues bit for bit."""
    for settings in ({"seed": 5}, {"seed": 5, "trials": 3}):
        policy = make(dim=3, **settings)
        _play(policy)
        restored = type(policy).from_state(_through_files(policy.state()))
        assert same_state(policy, restored), "the restored state differs"
        assert _same_all(_play(policy), _play(restored)), "the restored policy continues differently"
        assert same_state(policy, restored), "the restored policy learns differently"


def check_log_folds_again(make: MakePolicy) -> None:
    """Logged decisions and rewards, fed to a fresh policy, rebuild its state exactly."""
    policy, again = make(dim=3, seed=5), make(dim=3, seed=5)
    for decision, reward in [(d, float(_rewards(d.round, d.action))) for d in _play(policy)]:
        kept = {name: getattr(decision, name) for name in ("round", "sigma", "level", "source")}
        again.update(Decision(action=list(decision.action), **kept), reward)
    assert same_state(policy, again), "folding the log gives another state"


def check_choosing_changes_nothing(make: MakePolicy) -> None:
    """Within `Policy.at_round`, `choose` changes nothing, and depends on the round and on what was learnt alone."""
    policy = make(dim=3, seed=5)
    _play(policy)
    before, again = (type(policy).from_state(policy.state()) for _ in range(2))
    found: list[Decision] = []
    for one, round_ in ((policy, 900), (policy, 60), (again, 60), (again, 900)):
        with one.at_round(round_):
            found.append(one.choose(_actions(round_, 3), sigma=0.1, propensity=True))
    assert same_state(policy, before), "choosing changes the state"
    assert [one.round for one in found] == [900, 60, 60, 900], "the round is not the one that was asked for"
    assert _same_all(found, found[::-1]), "a choice depends on the choices before it"


def check_late_and_missing_feedback(make: MakePolicy) -> None:
    """Feedback may come late, in any order, or never; a trial without it does not change."""
    policy = make(dim=3, seed=5)
    decisions = [policy.choose(_actions(i, 3)) for i in range(10)]
    for i in (7, 2, 9, 0, 4):
        policy.update(decisions[i], 0.1 * i)
    assert np.isfinite(policy.estimate().center).all(), "late feedback spoils the estimate"
    batch = make(dim=3, seed=5, trials=2)
    decision = batch.choose(_actions(0, 3, trials=2))
    before = batch.state()["arrays"]
    batch.update(decision, [0.4, np.nan], mask=[True, False])
    after = batch.state()["arrays"]
    assert (after["updates"] - before["updates"]).tolist() == [1, 0], "a masked trial counts as updated"
    assert np.array_equal(batch.estimate().center[1], make(dim=3, seed=5).estimate().center), "a masked trial learns"
    assert not np.array_equal(batch.estimate().center[0], batch.estimate().center[1]), "the other trial learns nothing"


def check_sources(make: MakePolicy) -> None:
    """A decision carries its source: text or a whole number, new at any time, or missing."""
    policy = make(dim=3, seed=5)
    sources: tuple[Any, ...] = ("ads", None, 7, np.int64(7), "ads", "new")
    for round_, source in enumerate(sources):
        decision = policy.choose(_actions(round_, 3), source=source)
        assert decision.source == source and not isinstance(decision.source, np.generic), "a source is lost"
        policy.update(decision, float(_rewards(round_, decision.action)))
    assert np.isfinite(policy.estimate().center).all(), "sources spoil the estimate"
    batch, labels = make(dim=3, seed=5, trials=2), np.array([1, 2])
    decision = batch.choose(_actions(0, 3), source=labels)
    labels[:] = 9
    assert decision.source.tolist() == [1, 2], "the decision changes with the caller's sources"
    batch.update(decision, [0.3, 0.1])
    assert batch.choose(_actions(0, 3), source="ads").source.tolist() == ["ads", "ads"], "one source is not for all"
    before = type(batch).from_state(batch.state())
    bad: tuple[Any, ...] = (["ads", 1], ["ads"], [["ads", "web"]], [0.5, 1.5], np.zeros((2, 1), np.int64))
    for source in bad:
        assert _refusal(partial(batch.choose, _actions(0, 3), source=source)), f"the source {source!r} was accepted"
    assert same_state(batch, before), "a bad source changed the policy"


def check_odd_decision_sets(make: MakePolicy) -> None:
    """A policy accepts one action, one dimension, zero vectors, plain lists, and sets whose size changes."""
    assert make(dim=3, seed=1).choose(_actions(0, 3)[:1]).index == 0
    line = make(dim=1, seed=1)
    for value in (0.5, -0.5):
        line.update(line.choose([[1.0], [-1.0], [0.0]]), value)
    policy = make(dim=2, seed=1)
    for actions in ([[0.0, 0.0]], [[0.0, 0.0], [0.6, 0.8]], _actions(0, 2)[:4].tolist()):
        decision = policy.choose(actions)
        assert 0 <= decision.index < len(actions)
        assert np.array_equal(decision.action, actions[decision.index])
        policy.update(decision, 0.2)


def check_ties_are_broken_at_random(make: MakePolicy) -> None:
    """Three copies of an action are each played in some of 64 trials."""
    policy = make(dim=2, seed=3, trials=64)
    copies = np.tile([0.6, 0.8], (3, 1))
    first = policy.choose(copies)
    assert set(np.unique(first.index)) == {0, 1, 2}, f"only copies {np.unique(first.index)} of 0, 1, 2 were played"
    policy.update(first, np.full(64, 0.5))
    assert len(np.unique(policy.choose(copies).index)) > 1, "ties are not broken at random after the first round"


def check_propensities(make: MakePolicy) -> None:
    """Propensities are a distribution over the actions, and `choose` reports the one of its choice."""
    policy = make(dim=3, seed=5)
    for round_ in range(_ROUNDS):
        actions = _actions(round_, 3)
        chances = policy.propensities(actions)
        assert chances.shape == (5,) and (chances >= 0).all() and abs(chances.sum() - 1.0) < 1e-12
        decision = policy.choose(actions, propensity=True)
        assert decision.propensity == chances[decision.index] > 0.0
        policy.update(decision, float(_rewards(round_, decision.action)))


def check_propensities_are_frequencies(make: MakePolicy) -> None:
    """Over many trials, actions are played as often as their propensities say, within five standard deviations."""
    policy = make(dim=2, seed=5, trials=400)
    surplus, variance = np.zeros(5), np.zeros(5)
    for round_ in range(20):
        actions = _actions(round_, 2)
        chances = policy.propensities(actions)
        decision = policy.choose(actions)
        surplus += np.bincount(decision.index, minlength=5) - chances.sum(axis=0)
        variance += (chances * (1.0 - chances)).sum(axis=0)
        policy.update(decision, _rewards(round_, decision.action))
    assert (np.abs(surplus) <= 5.0 * np.sqrt(variance) + 1e-9).all(), f"played too often or too seldom by {surplus}"


def check_bad_input_changes_nothing(make: MakePolicy) -> None:
    """Bad input raises ValueError with a message, and leaves the policy as it was."""
    policy = make(dim=3, seed=5)
    _play(policy)
    good = policy.choose(_actions(0, 3))
    before = make(dim=3, seed=5).from_state(policy.state())
    for what, call in _bad_calls(policy, good):
        assert _refusal(call), f"{what} was accepted, or refused without a message"
        assert same_state(policy, before), f"{what} changed the policy"


POLICY_CHECKS: Sequence[Callable[[MakePolicy], None]] = (
    check_inputs_are_untouched,
    check_seed_decides,
    check_batch_equals_singles,
    check_state_round_trip,
    check_log_folds_again,
    check_choosing_changes_nothing,
    check_late_and_missing_feedback,
    check_sources,
    check_odd_decision_sets,
    check_ties_are_broken_at_random,
    check_propensities,
    check_propensities_are_frequencies,
    check_bad_input_changes_nothing,
)


def same_state(one: Policy, other: Policy) -> bool:
    """Whether two policies have the same state, bit for bit."""
    a, b = one.state(), other.state()
    arrays, others = a.pop("arrays"), b.pop("arrays")
    return bool(a == b and arrays.keys() == others.keys() and all(np.array_equal(arrays[k], others[k]) for k in arrays))


def _refusal(call: Callable[[], object]) -> str:
    """The message with which a call is refused; empty if it is accepted."""
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def _bad_calls(policy: Policy, good: Decision) -> Iterator[tuple[str, Callable[[], object]]]:
    """Calls that must be refused, each with a name of what is wrong with it."""
    for what, args in _bad_choices(_actions(0, 3)).items():
        yield what, partial(policy.choose, *args)
    for source in (1.5, nan, True, b"ads", 2**70, ["ads"]):
        yield f"the source {source!r}", partial(policy.choose, _actions(0, 3), source=source)  # type: ignore[arg-type]
    for what, args in _bad_updates(good).items():
        yield what, partial(policy.update, *args)


def _bad_choices(actions: Floats) -> dict[str, tuple[Any, ...]]:
    """Arguments that `choose` must refuse, from five good actions."""

    def spoilt(value: float) -> Floats:
        bad = actions.copy()
        bad[2, 1] = value
        return bad

    return {
        "a NaN feature": (spoilt(nan),),
        "an infinite feature": (spoilt(inf),),
        "an action that is too long": (spoilt(3.0),),
        "an empty decision set": (np.zeros((0, 3)),),
        "actions of another dimension": (actions[:, :2],),
        "one action without its axis": (actions[0],),
        "an axis too many": (actions[None],),
        "text": ([["a", "b", "c"]],),
        "a negative sigma": (actions, -0.1),
        "a NaN sigma": (actions, nan),
        "an infinite sigma": (actions, inf),
        "too few sigmas": (actions, [0.1, 0.2]),
    }


def _bad_updates(good: Decision) -> dict[str, tuple[Any, ...]]:
    """Arguments that `update` must refuse, from a good decision."""
    return {
        "a NaN reward": (good, nan),
        "an infinite reward": (good, -inf),
        "two rewards": (good, [0.1, 0.2]),
        "no reward": (good, None),
        "a negative sigma with the reward": (good, 0.1, -1.0),
        "a NaN sigma with the reward": (good, 0.1, nan),
        "a decision with a NaN action": (replace(good, action=[nan, 0.0, 0.0]), 0.1),
        "a decision of another dimension": (replace(good, action=[0.1, 0.2]), 0.1),
        "a mask of the wrong size": (good, 0.1, None, [True, False]),
        "a decision without its round": (replace(good, round=None), 0.1),  # type: ignore[arg-type]
        "a round that is no integer": (replace(good, round=1.5), 0.1),  # type: ignore[arg-type]
        "a decision with an odd source": (replace(good, source=0.5), 0.1),
        "a round beyond all rounds": (replace(good, round=10**30), 0.1),
    }


def _actions(round_: int, dim: int, trials: int | None = None) -> Floats:
    """Five actions of norm at most 1. The first trials get the same ones whatever the number of trials."""
    shape = (5, dim) if trials is None else (trials, 5, dim)
    return np.random.default_rng(round_).uniform(-1.0, 1.0, shape) / dim**0.5


def _labels(round_: int, trials: int) -> list[str | None]:
    """A source for each trial: one of three at first, then none, and in the end one that comes late."""
    names: list[str | None] = [f"source {(round_ + trial) % 3}" for trial in range(trials)]
    return names if round_ < 20 else [None] * trials if round_ < 30 else [*names[:-1], "late"]


def _rewards(round_: int, action: Any) -> Floats:
    """The rewards of the chosen actions, which are linear, noisy, and flipped every third round."""
    means = np.asarray(action, dtype=float).sum(axis=-1) / np.shape(action)[-1] ** 0.5
    noise = 0.1 * np.random.default_rng([round_, 1]).standard_normal(np.shape(means))
    return np.asarray((-means if round_ % 3 == 0 else means) + noise)


def _play(policy: Policy) -> list[Decision]:
    """Play some rounds and give the decisions."""
    trials = len(policy.trials) if isinstance(policy.trials, Sequence) else policy.trials
    decisions = []
    for round_ in range(_ROUNDS):
        source = _labels(round_, trials or 1)
        decision = policy.choose(_actions(round_, policy.dim, trials), source=source if trials else source[0])
        policy.update(decision, _rewards(decision.round, decision.action))
        decisions.append(decision)
    return decisions


def _trial(decision: Decision, i: int) -> Decision:
    """One trial's part of a batch's decision."""
    parts = {item.name: getattr(decision, item.name) for item in fields(decision)}
    parts["info"] = parts["info"]._make([part[i] for part in parts["info"]])
    return Decision(**{name: part[i] if isinstance(part, np.ndarray) else part for name, part in parts.items()})


def _same(one: Decision, other: Decision) -> bool:
    """Whether two decisions are equal, bit for bit."""
    return all(
        np.array_equal(getattr(one, item.name), getattr(other, item.name), equal_nan=item.name == "value")
        for item in fields(one)
    )


def _same_all(some: list[Decision], others: list[Decision]) -> bool:
    return len(some) == len(others) and all(_same(a, b) for a, b in zip(some, others, strict=True))


def _through_files(state: dict[str, Any]) -> dict[str, Any]:
    """A state as it comes back from JSON and an .npz file."""
    plain = json.loads(json.dumps({key: value for key, value in state.items() if key != "arrays"}))
    file = io.BytesIO()
    np.savez(file, **state["arrays"])
    file.seek(0)
    with np.load(file, allow_pickle=False) as saved:
        return {**plain, "arrays": dict(saved)}
