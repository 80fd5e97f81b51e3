"""Sources of traffic: environments that have them, attacks by them, and what a run tells of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robandit import OFUL, Decision, Policy
from robandit.arrays import Bools, Floats
from robandit.lab import results
from robandit.lab.attacks import Attack, BySource, NoAttack, SourceFlip, SourceNoise, SourcePromote, SourceSuppress
from robandit.lab.checks import ENVIRONMENT_CHECKS
from robandit.lab.checks.attacks import check_owners
from robandit.lab.checks.environments import check_bounds, check_shapes
from robandit.lab.engine import Engine, carry_out
from robandit.lab.environments import Bernoulli, Clicks, Delayed, Environment, Fresh, Offer, Synthetic, UnitBall
from robandit.lab.oracles import OFULToldLiars
from robandit.lab.plan import Run
from robandit.lab.protocol import Scenario, simulate
from robandit.streams import ATTACK, ENVIRONMENT, Draws
from thinned import untraced

SIZE: dict[str, Any] = {"dim": 4, "actions": 6}
WORLDS: dict[str, Environment] = {
    "equal": Fresh(**SIZE, sources=5),
    "skewed": Fresh(**SIZE, sources=5, skew=1.0),
    "honest differences": Fresh(**SIZE, sources=3, zeta=0.2),
    "clicks": Bernoulli(**SIZE, sources=3, zeta=0.5),
    "one source": Fresh(**SIZE, sources=1),
    "ball": UnitBall(dim=3, sources=4),
    "click rates": Clicks(sources=3, zeta=0.05),
    "short parameter": Fresh(**SIZE, parameter="random", shortest=0.2, longest=0.7),
}


def offers(world: Environment, trials: int, rounds: int) -> list[Offer]:
    return list(islice(world.rounds(Draws(seed=3, trials=range(trials), who=ENVIRONMENT)), rounds))


@pytest.mark.parametrize("check", ENVIRONMENT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", untraced(WORLDS, but=["honest differences"]))
def test_worlds_pass_the_checks(name: str, check: Any) -> None:
    check(lambda: WORLDS[name])


def test_sources_visit_by_their_shares() -> None:
    world = WORLDS["skewed"]
    np.testing.assert_allclose(world.shares, np.array([60, 30, 20, 15, 12]) / 137)  # 1, 1/2, 1/3, 1/4, 1/5
    seen = np.concatenate([offer.source for offer in offers(world, 50, 200) if offer.source is not None])
    np.testing.assert_allclose(np.bincount(seen) / len(seen), world.shares, atol=0.02)


def test_a_skew_may_be_an_integer() -> None:
    assert Fresh(**SIZE, sources=5, skew=1).shares == WORLDS["skewed"].shares  # as `--environment clicks,skew=1` says


@pytest.mark.parametrize("settings", [{}, {"noise": "bernoulli", "noise_range": 1.0}, {"mean_delay": 3.0}])
def test_a_world_is_the_same_with_and_without_sources(settings: dict[str, Any]) -> None:
    plain, sourced = (offers(Synthetic(**SIZE, sources=n, **settings), 2, 300) for n in (0, 4))
    for one, other in zip(plain, sourced, strict=True):
        assert one.source is None and other.source is not None and one.bias is other.bias is None
        np.testing.assert_array_equal(one.rewards, other.rewards)
        np.testing.assert_array_equal(one.menu.actions, other.menu.actions)
        np.testing.assert_array_equal(one.delay, other.delay)


def test_the_honest_difference_of_a_source_is_linear_and_stays() -> None:
    rows: dict[int, list[tuple[Floats, Floats]]] = {}
    for offer in offers(WORLDS["honest differences"], 1, 100):
        assert offer.source is not None and offer.bias is not None and isinstance(offer.actions, np.ndarray)
        rows.setdefault(int(offer.source[0]), []).append((offer.actions[0], offer.bias[0]))
        np.testing.assert_array_equal(offer.rewards, offer.means + offer.bias + offer.noise[:, None])
    leans = []
    for seen in rows.values():
        actions, bias = (np.concatenate(column) for column in zip(*seen, strict=True))
        lean, *_ = np.linalg.lstsq(actions, bias)
        np.testing.assert_allclose(actions @ lean, bias, atol=1e-12)
        assert np.linalg.norm(lean) == pytest.approx(0.2)
        leans.append(lean)
    assert len(leans) == 3 and np.abs(np.diff(leans, axis=0)).max() > 0.05


def test_clicks_stay_clicks_where_sources_differ() -> None:
    for offer in offers(WORLDS["clicks"], 20, 50):
        np.testing.assert_allclose(offer.rewards, offer.rewards.round(), atol=1e-12)
        assert offer.bias is not None and ((offer.means + offer.bias >= 0) & (offer.means + offer.bias <= 1)).all()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"sources": -1}, "sources"),
        ({"zeta": 0.1}, "skew and zeta need sources >= 1, got 0.0 and 0.1"),
        ({"skew": 0.1}, "skew and zeta need sources"),
        ({"sources": 2, "zeta": 0.1, "infinite": True}, "an infinite set goes without zeta"),
    ],
)
def test_bad_settings_are_refused(bad: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Synthetic(**SIZE, **bad)


# Click rates and short parameters.


@pytest.mark.parametrize("rates", [(0.02, 0.4), (0.1, 0.3), (0.0, 0.5)])
def test_click_rates_stay_in_range_and_differ(rates: tuple[float, float]) -> None:
    world = Clicks(dim=5, actions=50, lowest=rates[0], highest=rates[1])
    means = np.concatenate([offer.means for offer in offers(world, 20, 30)])
    assert rates[0] <= means.min() and means.max() <= rates[1]
    assert np.ptp(means) > 0.7 * (rates[1] - rates[0])
    assert means.mean() == pytest.approx(np.mean(rates), abs=0.02)


def test_the_length_of_the_parameter() -> None:
    (first,) = offers(Fresh(**SIZE, parameter="random", shortest=0.2, longest=0.7), 400, 1)
    lengths = np.linalg.norm(first.menu.parameter, axis=1)
    assert 0.2 <= lengths.min() < 0.22 and 0.68 < lengths.max() <= 0.7
    (fixed,) = offers(Fresh(**SIZE, shortest=0.5, longest=0.5), 3, 1)
    np.testing.assert_allclose(np.linalg.norm(fixed.menu.parameter, axis=1), 0.5)


@pytest.mark.parametrize(
    "bad",
    [
        {"shortest": 0.0},
        {"shortest": 0.8, "longest": 0.7},
        {"longest": 1.5},
        {"lowest": 0.1},
        {"noise": "bernoulli", "noise_range": 1.0, "lowest": 0.1, "highest": 0.3},
        {"noise": "bernoulli", "noise_range": 1.0, "parameter": "random", "lowest": 0.4, "highest": 0.3},
        {"noise": "bernoulli", "noise_range": 1.0, "parameter": "random", "lowest": 0.4, "highest": 0.9},
    ],
)
def test_lengths_and_rates_that_cannot_be_had_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="shortest|lowest|rates"):
        Synthetic(**SIZE, **bad)


# Attacks by source.

KINDS: dict[type[BySource], Any] = {
    SourcePromote: lambda means, praise, slander: [praise if m < np.median(means) else slander for m in means],
    SourceSuppress: lambda means, praise, slander: [slander if m == max(means) else None for m in means],
}


def lies_of(attack: Attack, world: Environment, rounds: int, trials: int = 3) -> list[tuple[Offer, Floats]]:
    attack.start(Draws(seed=3, trials=range(trials), who=ATTACK), world)
    seen = offers(world, trials, rounds)
    return [(offer, _or_zeros(attack.corrupt(offer), offer)) for offer in seen]


def _or_zeros(lies: Floats | None, offer: Offer) -> Floats:
    return np.zeros_like(offer.means) if lies is None else lies


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("world", ["equal", "clicks"])
def test_what_lying_sources_report(kind: type[BySource], world: str) -> None:
    for offer, lies in lies_of(kind(liars=2), WORLDS[world], 30):
        assert offer.source is not None
        for trial, source in enumerate(offer.source.tolist()):
            means, rewards = offer.means[trial].tolist(), offer.rewards[trial]
            ends = (1.0, 0.0) if world == "clicks" else (max(means), min(means))
            for place, wanted in enumerate(KINDS[kind](means, *ends)):
                honest = wanted is None or source >= 2
                was = rewards[place] if world == "clicks" else means[place]
                assert lies[trial, place] == pytest.approx(0.0 if honest else wanted - was, abs=1e-12)


def test_flips_and_noise() -> None:
    for offer, lies in lies_of(SourceFlip(liars=5), WORLDS["equal"], 10):
        np.testing.assert_array_equal(lies, -2.0 * offer.means)
    for offer, lies in lies_of(SourceFlip(liars=3), WORLDS["clicks"], 10):
        np.testing.assert_allclose(offer.rewards + lies, 1.0 - offer.rewards)
    told = [offer.rewards + lies for offer, lies in lies_of(SourceNoise(liars=3), WORLDS["clicks"], 200)]
    assert set(np.round(np.concatenate(told), 9).ravel().tolist()) == {0.0, 1.0}
    assert np.mean(told) == pytest.approx(0.5, abs=0.1)


def _who(attack: BySource, rounds: int) -> list[set[int]]:
    """The sources that lie in each round."""
    found = []
    for offer, lies in lies_of(attack, WORLDS["equal"], rounds, trials=60):
        assert offer.source is not None
        found.append(set(offer.source[np.abs(lies).max(axis=1) > 0].tolist()))
    return found


def test_when_sources_lie() -> None:
    assert _who(SourceFlip(liars=2), 3) == [{0, 1}] * 3
    assert _who(SourceFlip(liars=1, first=4), 3) == [{4}] * 3
    assert _who(SourceFlip(liars=9, begin=3, end=4), 6) == [
        set(),
        set(),
        {0, 1, 2, 3, 4},
        {0, 1, 2, 3, 4},
        set(),
        set(),
    ]
    assert _who(SourceFlip(liars=2, move_every=2), 7) == [{0, 1}] * 2 + [{2, 3}] * 2 + [{4, 0}] * 2 + [{1, 2}]
    sleeper = SourceFlip(liars=2, begin=100)
    ((offer, lies),) = lies_of(sleeper, WORLDS["equal"], 1)
    assert not lies.any() and offer.source is not None
    np.testing.assert_array_equal(sleeper.owns(offer), offer.source < 2)  # who told the liars knows sleepers too


@pytest.mark.parametrize(
    "bad", [{"liars": 0}, {"first": -1}, {"begin": 0}, {"end": 0}, {"move_every": 0}, {"budget": -1.0}]
)
def test_bad_attacks_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        SourceFlip(**bad)


def test_a_source_that_is_not_there_cannot_lie() -> None:
    with pytest.raises(ValueError, match="first must be below the number of sources, 5, got 7"):
        lies_of(SourceFlip(first=7), WORLDS["equal"], 1)


# The protocol.


def test_policies_and_results_are_told_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = []
    choose = OFUL.choose

    def overhear(policy: Policy, actions: Any, sigma: Any = None, **more: Any) -> Decision:
        decision = choose(policy, actions, sigma, **more)
        sources.append(decision.source)
        return decision

    monkeypatch.setattr(OFUL, "choose", overhear)
    scenario = Scenario(WORLDS["equal"], SourceFlip(liars=2), range(3))
    trace = simulate(policy=OFUL, scenarios=[scenario], rounds=50, seed=3, at=np.arange(1, 51))
    np.testing.assert_array_equal(trace.source, sources)
    lying = np.array(sources) < 2
    np.testing.assert_array_equal(trace.lies, lying.cumsum(axis=0))
    counted = np.stack([(np.array(sources) == g) & lying for g in range(5)], axis=2).cumsum(axis=0)
    np.testing.assert_array_equal(trace.lies_by_source, counted)


@pytest.mark.no_cover
@pytest.mark.parametrize("world", [WORLDS["equal"], Delayed(**SIZE, sources=5)])
def test_who_is_told_the_liars_learns_from_the_others(world: Environment) -> None:
    play: dict[str, Any] = {"scenarios": [Scenario(world, SourceFlip(liars=2), range(4))], "rounds": 120, "seed": 3}
    told = simulate(policy=OFULToldLiars, **play, at=np.arange(1, 121))
    everyone = simulate(policy=OFUL, **play, at=np.arange(1, 121))
    honest = (told.source >= 2).cumsum(axis=0)
    assert (told.updates <= honest).all() and (told.updates[-1] < everyone.updates[-1]).all()
    if not isinstance(world, Delayed):
        np.testing.assert_array_equal(told.updates, honest)
    nobody = {**play, "scenarios": [Scenario(world, NoAttack(), range(4))]}
    np.testing.assert_array_equal(
        simulate(policy=OFULToldLiars, **nobody).regret, simulate(policy=OFUL, **nobody).regret
    )


def test_columns_of_sources(tmp_path: Path) -> None:
    config: dict[str, Any] = {
        "rounds": 20,
        "trials": 2,
        "policies": ["oful"],
        "attacks": [{"name": "source-flip", "liars": 1}],
    }
    config["environments"] = [{"name": "fresh", **SIZE}, {"name": "fresh", **SIZE, "sources": 2, "label": "two"}]
    carry_out(Run.read(config), tmp_path / "two.parquet", engine=Engine(workers=1))
    rows = results.read(tmp_path / "two.parquet").last_round().to_pylist()
    assert [row["source"] for row in rows[:2]] == [None, None] == [row["lies_by_source"] for row in rows[:2]]
    for row in rows[2:]:
        assert row["source"] in (0, 1) and len(row["lies_by_source"]) == 2
        assert row["lies_by_source"] == [row["lies"], 0] and 0 < row["lies"] < 20
    carry_out(
        Run.read({**config, "environments": config["environments"][:1]}),
        tmp_path / "one.parquet",
        engine=Engine(workers=1),
    )
    assert "source" not in results.read(tmp_path / "one.parquet").schema.names


# The public checks find what is wrong.


class Vague(SourceFlip):
    def owns(self, offer: Offer) -> Any:
        return np.full(len(offer.means), 0.5)


class Sociable(SourceFlip):
    def owns(self, offer: Offer) -> Bools:
        return np.full(len(offer.means), len(offer.means) > 1)


@dataclass(kw_only=True, frozen=True)
class Miscounted(Fresh):
    """Names a source that has no share."""

    sources: int = 3

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        for offer in super().rounds(draw):
            assert offer.source is not None
            yield replace(offer, source=offer.source + 1)


@dataclass(kw_only=True, frozen=True)
class Partial(Fresh):
    """Its sources differ by more than it says."""

    sources: int = 3
    zeta: float = 0.3

    @property
    def misspecification(self) -> float:
        return 0.1


@pytest.mark.parametrize(
    ("check", "kind", "message"),
    [
        (check_owners, Vague, "owns must be \\(B,\\) bools"),
        (check_owners, Sociable, "depends on its companions"),
        (check_shapes, Miscounted, "source must be 64-bit integers from 0 to 2"),
        (check_bounds, Partial, "the honest difference of a source is .* but may be 0.1"),
    ],
)
def test_what_is_broken_is_found(check: Any, kind: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(kind)
