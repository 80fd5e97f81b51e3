"""Attacks that know how groups are compared: what they promise, worked out slowly."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest

from robandit.arrays import Floats
from robandit.lab.attacks import Adversary, Attack, Framing, InsideTolerance
from robandit.lab.environments import Clicks, Environment, Fresh, Offer
from robandit.policies import Decision
from robandit.streams import ENVIRONMENT, Draws

MEASURED = Fresh(dim=3, actions=5, sources=4, sigma_low=0.1, sigma_high=0.1)
CLICKS = Clicks(dim=4, actions=5, sources=4)


def play(attack: Attack, world: Environment, rounds: int) -> list[tuple[Offer, int, float]]:
    """One trial of random play: the offer, the action played, and what was added to its reward."""
    adversary, rng = Adversary([(attack, world, [0])], seed=3), np.random.default_rng(5)
    told = []
    for offer in islice(world.rounds(Draws(seed=3, trials=[0], who=ENVIRONMENT)), rounds):
        assert isinstance(offer.actions, np.ndarray)
        plot, index = adversary.commit(offer, [offer]), rng.integers(0, 5, 1)
        action = offer.actions[[0], index]
        reward = adversary.answer(offer, [offer], plot, Decision(round=offer.round, action=action, index=index))
        told.append((offer, int(index[0]), float(reward[0] - offer.reward_of(index, action)[0])))
    return told


def seen(offer: Offer) -> tuple[Floats, Floats, int]:
    """The actions and means of the only trial, and its source."""
    assert isinstance(offer.actions, np.ndarray) and offer.source is not None
    return offer.actions[0], offer.means[0], int(offer.source[0])


@pytest.mark.no_cover
def test_lies_stay_within_the_tolerance_and_use_most_of_it() -> None:
    V, lied, used = np.zeros((4, 3, 3)), np.zeros((4, 3)), []
    for offer, place, lie in play(InsideTolerance(liars=2, tolerance=0.5, share=0.9), MEASURED, 400):
        actions, means, source = seen(offer)
        worse = means[place] < np.median(means)
        assert lie == pytest.approx(0.0) or ((lie > 0) == worse and source < 2)
        assert abs(lie) <= np.ptp(means) + 1e-12
        a = actions[place]
        before = V[source].copy()
        V[source] += np.outer(a, a) / 0.1**2
        lied[source] += lie * a / 0.1**2
        # The lie was cut by the statistics before this round, which can only have shrunk since.
        rho = 0.9 * 0.5 * np.sqrt(np.log(np.linalg.det(np.eye(3) + before)) + 2 * np.log(20 * 4))
        r = np.sqrt(lied[source] @ np.linalg.solve(np.eye(3) + before, lied[source]))
        if lie != 0.0:
            assert r <= rho * (1 + 1e-9)
            used.append(r / rho)
    assert np.median(used) > 0.8


@pytest.mark.no_cover
def test_lies_about_clicks_are_clicks_and_seldom() -> None:
    rounds = play(InsideTolerance(liars=4), CLICKS, 3000)
    told = [(offer.rewards[0, place], lie) for offer, place, lie in rounds]
    assert {round(clean + lie, 9) for clean, lie in told} == {0.0, 1.0}
    early, late = (np.mean([abs(lie) > 0 for _, lie in part]) for part in (told[:200], told[-1000:]))
    assert early > late > 0.0  # the tolerance grows more slowly than the data


@pytest.mark.no_cover
@pytest.mark.parametrize("target", [None, 3])
def test_framing_shifts_liars_one_way_and_impostors_the_other(target: int | None) -> None:
    shifts: dict[int, list[tuple[Floats, float]]] = {}
    for offer, place, lie in play(Framing(liars=2, depth=0.3, target=target, posing=0.5), MEASURED, 600):
        actions, _, source = seen(offer)
        shifts.setdefault(source, []).append((actions[place], lie))
    framed, honest = (2, 3) if target is None else (3, 2)
    assert all(lie == pytest.approx(0.0) for _, lie in shifts[honest])
    posed = [(a, lie) for a, lie in shifts[framed] if abs(lie) > 1e-12]
    assert 0.4 < len(posed) / len(shifts[framed]) < 0.6
    effects = []
    for rows in (shifts[0], shifts[1], posed):
        actions, lies = (np.array(column) for column in zip(*rows, strict=True))
        effects.append(np.linalg.lstsq(actions, lies)[0])
    assert np.linalg.norm(effects[0]) == pytest.approx(0.3)
    np.testing.assert_allclose(effects[1], effects[0], atol=1e-9)
    np.testing.assert_allclose(effects[2], -effects[0], atol=1e-9)


def test_framing_clicks() -> None:
    rounds = play(Framing(liars=2), CLICKS, 300)
    assert {round(offer.rewards[0, place] + lie, 9) for offer, place, lie in rounds} == {0.0, 1.0}


def test_who_belongs_to_a_framing_attack() -> None:
    adversary = Adversary([(Framing(liars=2, posing=1.0), MEASURED, range(50))], seed=3)
    offer = next(MEASURED.rounds(Draws(seed=3, trials=range(50), who=ENVIRONMENT)))
    assert offer.source is not None
    np.testing.assert_array_equal(adversary.liars([offer]), offer.source <= 2)


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (InsideTolerance, {"tolerance": 0.0}),
        (InsideTolerance, {"share": 1.5}),
        (Framing, {"depth": -1.0}),
        (Framing, {"posing": 2.0}),
        (Framing, {"target": -1}),
    ],
)
def test_bad_settings_are_refused(kind: Any, bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        kind(**bad)
