"""Every attack through the public checks, and against a small case worked out by hand."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import pytest

from robandit import attacks
from robandit.arrays import Floats
from robandit.lab.attacks import ATTACKS, Adversary, Attack
from robandit.lab.attacks.ledger import Ledger
from robandit.lab.checks import ATTACK_CHECKS, MakeAttack, check_attack
from robandit.lab.checks import attacks as checks
from robandit.lab.environments import Environment, Fresh, Heteroscedastic, Menu, Offer, Paper, UnitBall, side_by_side
from robandit.policies import Decision
from robandit.streams import ENVIRONMENT, Draws

# Settings with which an attack lies often within the rounds that the checks watch.
EAGER: dict[str, dict[str, Any]] = {
    "flip": {"rounds": 40},
    "random-flips": {"probability": 0.5},
    "periodic": {"every": 3},
    "late": {"begin": 20},
    "bursts": {"period": 10, "length": 4},
    "click-fraud": {"share": 0.5, "owned": 2},
    "ace": {"sigma": 0.05},
    "garcelon-adaptive": {"target": 1},
    "recorded": {"lies": "1-20 flip; 22-30 promote; 31-31 suppress; 32-60 flip"},
}


def test_every_attack_is_here() -> None:
    exported = [getattr(attacks, name) for name in attacks.__all__]
    classes = {thing for thing in exported if isinstance(thing, type) and issubclass(thing, Attack)}
    assert {kind for kind in classes if not inspect.isabstract(kind)} == set(ATTACKS.values())
    assert len(set(ATTACKS.values())) == len(ATTACKS)


TRACED = "none", "inside-tolerance"
"""Those that reach lines which no other test does; the others need not be traced."""
NAMES = [name if name in TRACED else pytest.param(name, marks=pytest.mark.no_cover) for name in ATTACKS]


def settings_of(name: str) -> list[MakeAttack]:
    eager = EAGER.get(name)
    return [ATTACKS[name]] if eager is None else [ATTACKS[name], lambda **kw: ATTACKS[name](**(eager | kw))]


@pytest.mark.parametrize("check", ATTACK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_attack(name: str, check: Callable[[MakeAttack], None]) -> None:
    check(settings_of(name)[-1])


@pytest.mark.slow
@pytest.mark.parametrize("check", ATTACK_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", EAGER)
def test_attack_that_seldom_lies(name: str, check: Callable[[MakeAttack], None]) -> None:
    check(ATTACKS[name])


@pytest.mark.no_cover
@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "none"])
def test_the_checks_see_lies(name: str) -> None:
    attack = settings_of(name)[-1]()
    assert (checks._run(attack, Heteroscedastic(dim=3, actions=5)).c_sup[-1] > 0.0).all()


# Every attack by hand.

R = 0.5
TRUTH = [0.6, 0.8]
ACTIONS = [[1.0, 0.0], [0.0, 1.0], [0.0, -0.5]]  # means 0.6, 0.8 and −0.4


@dataclass(kw_only=True, frozen=True)
class Stub(Environment):
    """One decision set for ever, with noise that is given."""

    dim: int = 2
    noise_range: float = R
    sets: list[list[float]] = field(default_factory=lambda: ACTIONS)
    truth: list[float] = field(default_factory=lambda: TRUTH)
    noise: Sequence[Any] = (0.1,)
    sigma: float = 0.2

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        menu = Menu.of(np.array([self.sets]), np.array([self.truth]))
        for t in range(1, 1000):
            noise = np.array([self.noise[min(t, len(self.noise)) - 1]])
            yield Offer(t, menu, np.array([self.sigma]), noise)


class Told(NamedTuple):
    """What an attack did in some rounds."""

    lies: Floats  # (rounds, K)
    rewards: list[float]  # told of the action played
    c_sup: list[float]
    c_play: list[float]
    shown: list[Any]


def play(attack: Attack, plays: Sequence[int], world: Environment | None = None) -> Told:
    world = Stub() if world is None else world
    adversary = Adversary([(attack, world, [0])], seed=3)
    told = Told(np.zeros((len(plays), 0)), [], [], [], [])
    lies = []
    for offer, place in zip(world.rounds(Draws(seed=3, trials=[0], who=ENVIRONMENT)), plays, strict=False):
        plot = adversary.commit(offer, [offer])
        shown = np.asarray(plot.actions)
        decision = Decision(round=offer.round, action=shown[:, place], index=np.array([place]))
        told.rewards.append(float(adversary.answer(offer, [offer], plot, decision)[0]))
        lies.append(np.zeros(offer.means.shape[1]) if plot.lies is None else plot.lies[0])
        told.shown.append(shown[0].tolist())
        told.c_sup.append(float(adversary.ledger.c_sup[0]))
        told.c_play.append(float(adversary.ledger.c_play[0]))
    return told._replace(lies=np.array(lies))


def near(values: Any) -> Any:
    return pytest.approx(np.array(values), rel=1e-9, abs=1e-12)


def test_no_attack() -> None:
    told = play(attacks.NoAttack(), [0, 1, 2])
    assert not told.lies.any() and told.c_sup == told.c_play == [0.0, 0.0, 0.0]
    assert told.rewards == near([0.7, 0.9, -0.3])  # means + 0.1


FLIPPED = [-1.2, -1.6, 0.8]  # −2⟨a, μ*⟩: −2·0.6, −2·0.8, −2·(−0.4)
CUT = [-0.65, -0.65, 0.65]  # of a budget of 1.5 after one flip: (1.5 − 1.6/1.5)·1.5 = 2.25 − 1.6
NOTHING = [0.0, 0.0, 0.0]


def test_flip() -> None:
    told = play(attacks.Flip(rounds=2), [0, 2, 1])
    assert told.lies == near([FLIPPED, FLIPPED, NOTHING])
    assert told.rewards == near([-0.5, 0.5, 0.9])  # −0.6 + 0.1, 0.4 + 0.1, and the truth 0.8 + 0.1
    assert told.c_sup == near([16 / 15, 32 / 15, 32 / 15])  # 1.6/1.5 each
    assert told.c_play == near([1.2, 2.0, 2.0])  # 1.2, + 0.8


# Rounds in which each flips, until 1.5 is spent: in full the first time, the rest the second time, then never again.
FLIPS = {
    "flip": (attacks.Flip(rounds=5, budget=1.5), [1, 2]),
    "random flips": (attacks.RandomFlips(probability=1.0, budget=1.5), [1, 2]),
    "periodic": (attacks.Periodic(every=2, budget=1.5), [2, 4]),
    "late": (attacks.Late(begin=3, budget=1.5), [3, 4]),
    "bursts": (attacks.Bursts(period=3, length=1, budget=1.5), [1, 4]),
    "longer bursts": (attacks.Bursts(period=4, length=2, budget=1.5), [1, 2]),
}


@pytest.mark.parametrize("name", FLIPS)
def test_flips_on_a_schedule(name: str) -> None:
    attack, (first, second) = FLIPS[name]
    told = play(attack, [0] * 8)
    for t in range(1, 9):
        assert told.lies[t - 1] == near({first: FLIPPED, second: CUT}.get(t, NOTHING))
        assert told.c_sup[t - 1] == near(1.5 if t >= second else 16 / 15 if t >= first else 0.0)
        assert told.c_play[t - 1] == near(1.85 if t >= second else 1.2 if t >= first else 0.0)  # 1.2, + 0.65
    assert told.c_sup[-1] == 1.5  # to the last bit


def test_random_flips_by_chance() -> None:
    assert not play(attacks.RandomFlips(probability=0.0), [0] * 20).lies.any()
    hits = shares_lied_to(attacks.RandomFlips(probability=0.3, budget=None))
    assert abs(hits - 0.3) <= 5.0 * (0.3 * 0.7 / 20_000) ** 0.5


def shares_lied_to(attack: Attack) -> float:
    """The share of 200 trials and 100 rounds with a lie."""
    world, trials = Fresh(dim=2, actions=2), range(200)
    adversary = Adversary([(attack, world, trials)], seed=1)
    hits = 0
    for offer in islice(world.rounds(Draws(seed=1, trials=trials, who=ENVIRONMENT)), 100):
        lies = adversary.commit(offer, [offer]).lies
        hits += 0 if lies is None else int(np.count_nonzero(lies.any(axis=1)))
    return hits / 20_000


def test_stealth() -> None:
    # At right angles to μ* = (0.6, 0.8) is ±(0.8, −0.6), along which the actions reach 0.8, −0.6 and 0.3; divided by
    # the largest, 1, −0.75 and 0.375; times half of σ = 0.2.
    told = play(attacks.Stealth(share=0.5, budget=0.1), [1, 1, 1])
    sign = np.sign(told.lies[0, 0])
    assert told.lies[0] * sign == near([0.1, -0.075, 0.0375])
    # 0.1/1.5 = 0.0667 is spent of 0.1, and (0.1 − 0.1/1.5)·1.5 = 0.05 is left.
    assert told.lies[1:] * sign == near([[0.05, -0.05, 0.0375], NOTHING])
    assert told.c_sup == near([1 / 15, 0.1, 0.1])
    assert told.c_play == near([0.075, 0.125, 0.125])


def test_stealth_has_a_direction_per_trial() -> None:
    world = Fresh(dim=2, actions=3)
    adversary = Adversary([(attacks.Stealth(), world, range(50))], seed=3)
    offer = next(world.rounds(Draws(seed=3, trials=range(50), who=ENVIRONMENT)))
    lies = adversary.commit(offer, [offer]).lies
    assert lies is not None
    assert np.abs(lies).max(axis=1) == near(0.5 * offer.sigma)
    lean = offer.actions @ np.array([1.0, -1.0])  # at right angles to μ*, which is (1, 1)/√2
    signs = np.sign((lies * lean).sum(axis=1))
    assert set(signs) == {-1.0, 1.0}
    assert np.abs(np.vecdot(lies, lean)) == near(np.linalg.norm(lies, axis=1) * np.linalg.norm(lean, axis=1))


def test_suppress_best() -> None:
    # The best mean is 0.8 and the next 0.6: 0.8 − 0.21 = 0.6 − 0.01. It costs 0.21/1.5 = 0.14.
    told = play(attacks.SuppressBest(margin=0.01, budget=0.2), [1, 1, 0])
    assert told.lies == near([[0.0, -0.21, 0.0], [0.0, -0.09, 0.0], NOTHING])  # (0.2 − 0.14)·1.5 = 0.09 is left
    assert told.rewards == near([0.69, 0.81, 0.7])
    assert told.c_sup == near([0.14, 0.2, 0.2]) and told.c_sup[-1] == 0.2
    assert told.c_play == near([0.21, 0.3, 0.3])


def test_suppress_best_where_two_are_best() -> None:
    world = Stub(sets=[[0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])  # means 0.8, 0.8 and 0.6
    assert play(attacks.SuppressBest(margin=0.01), [0], world).lies == near([[-0.21, -0.21, 0.0]])
    world = Stub(sets=[[0.0, 1.0], [0.0, 1.0]])  # there is no second best: below each other
    assert play(attacks.SuppressBest(margin=0.01), [0], world).lies == near([[-0.01, -0.01]])


def test_click_fraud() -> None:
    # Rewards are 0.7, 0.9 and −0.3. A bot makes them 1, 0 and 0: lies 0.3, −0.9 and 0.3, of which 0.9/1.5 = 0.6.
    told = play(attacks.ClickFraud(share=1.0, owned=1, budget=0.8), [1, 0, 0])
    assert told.lies == near([[0.3, -0.9, 0.3], [0.3, -0.3, 0.3], NOTHING])  # (0.8 − 0.6)·1.5 = 0.3 is left
    assert told.rewards == near([0.0, 1.0, 0.7])
    assert told.c_sup == near([0.6, 0.8, 0.8])
    assert told.c_play == near([0.9, 1.2, 1.2])
    both = play(attacks.ClickFraud(share=1.0, owned=2, click=0.5, no_click=-0.5), [0])
    assert both.lies == near([[-0.2, -0.4, -0.2]])  # 0.5 − 0.7, 0.5 − 0.9, −0.5 + 0.3


def test_click_fraud_is_a_share_of_the_traffic() -> None:
    hits = shares_lied_to(attacks.ClickFraud(share=0.3, budget=None))
    assert abs(hits - 0.3) <= 5.0 * (0.3 * 0.7 / 20_000) ** 0.5


def test_click_fraud_knows_the_noise_of_each_action() -> None:
    told = play(attacks.ClickFraud(share=1.0), [1], Stub(noise=[[0.1, -0.2, 0.3]]))  # rewards 0.7, 0.6, −0.1
    assert told.lies == near([[0.3, -0.6, 0.1]])
    assert told.rewards == near([0.0])


def test_oracle_target() -> None:
    # The target is the worst, −0.4. Lies −(0.6 + 0.4 + 0.01), −(0.8 + 0.4 + 0.01), 0.
    told = play(attacks.OracleTarget(margin=0.01, budget=1.5), [2, 0, 1, 1])
    cut = [-0.49, -0.49, 0.0]  # 1.5 − 1.01 is left, since the first play was the target and cost nothing
    assert told.lies == near([[-1.01, -1.21, 0.0], [-1.01, -1.21, 0.0], cut, NOTHING])
    assert told.rewards == near([-0.3, -0.31, 0.41, 0.9])
    assert told.c_play == near([0.0, 1.01, 1.5, 1.5]) and told.c_play[-1] == 1.5
    assert told.c_sup == near([1.21 / 1.5, 2.42 / 1.5, 2.91 / 1.5, 2.91 / 1.5])


def test_oracle_target_leaves_worse_actions_alone() -> None:
    told = play(attacks.OracleTarget(margin=0.01, target=0), [1])
    assert told.lies == near([[0.0, -0.21, 0.0]])  # −[0.8 − 0.6 + 0.01]₊, −[−0.4 − 0.6 + 0.01]₊ = 0
    last = play(attacks.OracleTarget(margin=0.01, target=7), [1])  # there is no eighth: the last one
    assert last.lies == near([[-1.01, -1.21, 0.0]])


def test_garcelon_simplified() -> None:
    told = play(attacks.GarcelonSimplified(budget=1.0), [1, 0, 0])  # lies −⟨a, μ*⟩, but 0 about the worst
    assert told.lies == near([[-0.6, -0.8, 0.0], [-0.2, -0.2, 0.0], NOTHING])
    assert told.rewards == near([0.1, 0.5, 0.7])  # the noise alone, 0.7 − 0.2, the truth
    assert told.c_play == near([0.8, 1.0, 1.0])
    assert told.c_sup == near([0.8 / 1.5, 1.0 / 1.5, 1.0 / 1.5])
    assert play(attacks.GarcelonSimplified(target=1), [0]).lies == near([[-0.6, 0.0, 0.4]])


# Garcelon adaptive: R = 0.1, μ* = (0.8, 0.6), the target (1, 0), clean rewards 0.9, 0.34 and 0.34.
SMALL = Stub(noise_range=0.1, truth=[0.8, 0.6], sets=[[1.0, 0.0], [0.0, 0.4], [0.3, 0.0]], sigma=0.1)


def test_garcelon_adaptive() -> None:
    # With Σ diagonal, Σ₁₁ = 1 + n after n plays of the target, θ̂₁ = 0.9n/(1 + n), β = 0.1√(log det Σ + 2 log 20) + 1
    # and 2 log 20 = 5.991464547. Lies −(⟨θ̂, a⟩ + β‖a‖) + ½[θ̂₁ − β/√Σ₁₁]₊, norms in Σ⁻¹; none of these exceeds 1.
    told = play(attacks.GarcelonAdaptive(target=0, budget=None), [0, 0, 0, 1, 2], SMALL)
    # n = 0: β = 0.1·2.447746831 + 1 = 1.244774683. Lies −0.4β, −0.3β; the target's lower bound is −β, clipped to 0.
    assert told.lies[0] == near([0.0, -0.4979098732, -0.3734324049])
    # n = 1: β = 0.1·√(0.693147181 + 5.991464547) + 1 = 1.258546161, θ̂₁ = 0.45. Lies −0.4β = −0.503418464 and
    # −(0.135 + 0.3β/√2) = −(0.135 + 0.266977957). The target's bound 0.45 − 0.889926525 < 0 is clipped.
    assert told.lies[1] == near([0.0, -0.5034184643, -0.4019779574])
    # n = 3: β = 0.1·√(1.386294361 + 5.991464547) + 1 = 1.271620303, θ̂₁ = 0.675, the bound is
    # 0.675 − 0.635810152 = 0.039189848. Lies 0.019594924 − 0.508648121 and 0.019594924 − (0.2025 + 0.190743045).
    assert told.lies[3] == near([0.0, -0.4890531970, -0.3736481213])
    # Then (0, 0.4), whose clean reward 0.34 counts: Σ = diag(4, 1.16), θ̂₂ = 0.4·0.34/1.16 = 0.117241379,
    # β = 0.1·√(log 4.64 + 5.991464547) + 1 = 1.274338822, the bound 0.675 − β/2 = 0.037830589. Lies
    # 0.018915295 − (0.046896552 + 0.4β/√1.16 = 0.473277557) and 0.018915295 − (0.2025 + 0.15β = 0.191150823).
    assert told.lies[4] == near([0.0, -0.5012588141, -0.3747355287])
    assert told.c_play == near([0.0, 0.0, 0.0, 0.4890531970, 0.4890531970 + 0.3747355287])
    assert told.c_sup[0] == near(0.4979098732 / 1.1)
    assert told.rewards[3] == near(0.34 - 0.4890531970)
    # ε = 0.2 and n = 3: 0.8·0.039189848 = 0.031351879 in the place of 0.019594924.
    eager = play(attacks.GarcelonAdaptive(target=0, epsilon=0.2), [0, 0, 0, 1], SMALL)
    assert eager.lies[3] == near([0.0, -0.4772962425, -0.3618911667])


def test_garcelon_adaptive_is_clipped_and_cut() -> None:
    # R = 0.5: β = 0.5·2.447746831 + 1 = 2.22, so that every upper bound exceeds 1. The target is the worst, a₃.
    told = play(attacks.GarcelonAdaptive(budget=1.7), [0, 1, 1])
    assert told.lies == near([[-1.0, -1.0, 0.0], [-0.7, -0.7, 0.0], NOTHING])
    assert told.c_play == near([1.0, 1.7, 1.7]) and told.c_play[-1] == 1.7
    assert told.c_sup == near([1.0 / 1.5, 1.7 / 1.5, 1.7 / 1.5])


def test_ace() -> None:
    # σ = R = 0.5 and K = 3: β(n) = √((0.5/n) log(π²·3n²/0.15)), β(1) = √(0.5·5.285192045) = 1.625606355,
    # β(2) = √(0.25·6.671486406) = 1.291461034. The target is the worst, a₃. Clean rewards, by round:
    #   0.7 0.9 −0.3 | 0.5 0.7 −0.5 | 0.8 1.0 −0.2 | 0.6 0.8 −0.4
    told = play(attacks.ACE(budget=None), [2, 0, 2, 0], Stub(noise=[0.1, -0.1, 0.2, 0.0]))
    assert told.lies == near(
        [
            NOTHING,  # the target has not been played
            # −(0.5 + 0.3 + 2β(1)), −(0.7 + 0.3 + 2β(1))
            [-4.0512127107, -4.2512127107, 0.0],
            # a₁ was played once: −((0.5 + 0.8)/2 + 0.3 + β(2) + β(1)); a₂ never: −(1.0 + 0.3 + 2β(1))
            [-3.8670673891, -4.5512127107, 0.0],
            # a₁: −((0.5 + 0.6)/2 + 0.25 + 2β(2)), a₂: −(0.8 + 0.25 + β(1) + β(2)); the target's mean is −0.25
            [-3.3829220674, -3.9670673891, 0.0],
        ]
    )
    assert told.c_play == near([0.0, 4.0512127107, 4.0512127107, 4.0512127107 + 3.3829220674])
    assert told.c_sup[1:3] == near([4.2512127107 / 1.5, (4.2512127107 + 4.5512127107) / 1.5])


def test_ace_is_cut_and_spares_what_is_worse() -> None:
    told = play(attacks.ACE(budget=5.0), [2, 0, 1, 1], Stub(noise=[0.1, -0.1, 0.2]))
    left = 5.0 - 4.0512127107
    assert told.lies == near([NOTHING, [-4.0512127107, -4.2512127107, 0.0], [-left, -left, 0.0], NOTHING])
    assert told.c_play[-1] == 5.0
    # σ = 0.01: β(1) = 0.02·1.625606355 = 0.032512127. The target a₁ has mean 0.7: a₂ is better by 0.9 − 0.7, a₃ worse.
    told = play(attacks.ACE(sigma=0.01, target=0), [0, 1])
    assert told.lies[1] == near([0.0, -(0.2 + 0.0650242542), 0.0])


def test_top_n() -> None:
    # The two best, with rewards 0.7 and 0.9, become −1: lies −1.7 and −1.9.
    told = play(attacks.TopN(count=2, budget=2.5), [0, 1, 1])
    assert told.lies == near([[-1.7, -1.9, 0.0], [-0.8, -0.8, 0.0], NOTHING])  # 2.5 − 1.7 is left
    assert told.rewards == near([-1.0, 0.1, 0.9])
    assert told.c_play == near([1.7, 2.5, 2.5]) and told.c_play[-1] == 2.5
    assert told.c_sup == near([1.9 / 1.5, 2.7 / 1.5, 2.7 / 1.5])
    assert play(attacks.TopN(count=1), [0]).lies == near([[0.0, -1.9, 0.0]])
    assert play(attacks.TopN(count=9), [0]).lies == near([[-1.7, -1.9, -0.7]])  # all of them


def test_first_impressions() -> None:
    # The better of three are a₁ and a₂. Each is lied about twice; what others are played in between does not matter.
    told = play(attacks.FirstImpressions(times=2, depth=0.4), [0, 2, 1, 0, 0, 1])
    both, second, none_left = [-0.4, -0.4, 0.0], [0.0, -0.4, 0.0], NOTHING
    assert told.lies == near([both, both, both, both, second, second])
    assert told.rewards == near([0.3, -0.3, 0.5, 0.3, 0.7, 0.5])
    assert told.c_play == near([0.4, 0.4, 0.8, 1.2, 1.2, 1.6])
    assert play(attacks.FirstImpressions(times=1, depth=0.4), [0, 1, 0]).lies == near([both, second, none_left])
    assert play(attacks.FirstImpressions(times=9, depth=0.4, budget=0.5), [0, 0, 0]).c_play[-1] == 0.5


def test_context() -> None:
    # Means 0.3, 0.32, −0.2 and 0.48: the target is the third. Twice as long: moved by 0.5, 0.4 and, since nothing may
    # exceed length 1, 0.2.
    world = Stub(sets=[[0.5, 0.0], [0.0, 0.4], [0.0, -0.25], [0.8, 0.0]])
    told = play(attacks.ContextAttack(scale=2.0, budget=0.7), [0, 1, 1], world)
    assert told.shown[0] == near([[1.0, 0.0], [0.0, 0.8], [0.0, -0.25], [1.0, 0.0]])
    assert told.shown[1] == near([[0.7, 0.0], [0.0, 0.6], [0.0, -0.25], [1.0, 0.0]])  # 0.7 − 0.5 is left
    assert told.shown[2] == world.sets
    assert not told.lies.any() and told.rewards == near([0.4, 0.42, 0.42])  # clean
    assert told.c_play == near([0.5, 0.7, 0.7])
    assert told.c_sup == near([0.5 / 1.5, 0.7 / 1.5, 0.7 / 1.5])


def test_the_papers_attack_is_far_smaller_than_its_label() -> None:
    attack, world, trials = attacks.Flip(rounds=450), Paper(fresh_rounds=450), range(20)
    adversary = Adversary([(attack, world, trials)], seed=1)
    for offer in islice(world.rounds(Draws(seed=1, trials=trials, who=ENVIRONMENT)), 460):
        plot = adversary.commit(offer, [offer])
        first = Decision(round=offer.round, action=np.asarray(offer.actions)[:, 0], index=np.zeros(20, np.intp))
        adversary.answer(offer, [offer], plot, first)
    realised = float(adversary.ledger.c_sup.mean())
    print(f"C of the paper's attack at k = 450: {realised:.1f}, labelled {attack.label:g}")
    assert attack.label == 900.0
    assert 160.0 <= realised <= 175.0


def test_attacks_side_by_side() -> None:
    """Every attack at once, each on trials of its own, is as each alone."""
    world, trials, seed = Heteroscedastic(dim=3, actions=5), [0, 1], 4
    crowd = [settings_of(name)[-1](budget=2.0) for name in ATTACKS]
    adversary = Adversary([(attack, world, trials) for attack in crowd], seed)
    singles = [Adversary([(attack, world, trials)], seed) for attack in crowd]
    worlds = [world.rounds(Draws(seed=seed, trials=trials, who=ENVIRONMENT)) for _ in crowd]
    for offer, parts in islice(side_by_side(worlds), 60):
        place = offer.round % 5
        places = np.full(len(offer.means), place)
        plot = adversary.commit(offer, parts)
        decision = Decision(round=offer.round, action=np.asarray(offer.actions)[:, place], index=places)
        told = adversary.answer(offer, parts, plot, decision)
        for i, (single, part) in enumerate(zip(singles, parts, strict=True)):
            rows = slice(2 * i, 2 * i + 2)
            mine = single.commit(part, [part])
            decision = Decision(round=offer.round, action=np.asarray(part.actions)[:, place], index=places[rows])
            assert np.array_equal(single.answer(part, [part], mine, decision), told[rows])
            assert np.array_equal(np.asarray(mine.actions), np.asarray(plot.actions)[rows])
            assert np.array_equal(single.ledger.c_sup, adversary.ledger.c_sup[rows])
            assert np.array_equal(single.ledger.c_play, adversary.ledger.c_play[rows])


def test_flips_of_the_unit_ball() -> None:
    # μ* = (1, …, 1)/√4. The largest |mean| is 1: each flip costs 2/1.5, whatever is played.
    world = UnitBall(dim=4, sigma_high=0.0)
    adversary = Adversary([(attacks.Flip(rounds=3, budget=2.0), world, [0])], seed=1)
    told, rounds = [], world.rounds(Draws(seed=1, trials=[0], who=ENVIRONMENT))
    for offer, action in zip(rounds, ([0.5, 0, 0, 0], [0.8, 0, 0, 0], [1, 0, 0, 0]), strict=False):
        plot = adversary.commit(offer, [offer])
        told.append(
            float(
                adversary.answer(
                    offer, [offer], plot, Decision(round=1, action=np.array([action]), index=np.array([-1]))
                )[0]
            )
        )
    # Means 0.25, 0.4, 0.5. After the first flip (2 − 2/1.5)·1.5 = 1 is left: the second, by 0.8, is within; no third.
    assert told == near([-0.25, -0.4, 0.5])
    assert adversary.ledger.c_sup == near([2.0])
    assert adversary.ledger.c_play == near([1.3])  # 0.5 + 0.8


@pytest.mark.no_cover
@pytest.mark.parametrize("name", [name for name in ATTACKS if not ATTACKS[name].infinite])
def test_an_attack_on_finite_sets_refuses_infinite_ones(name: str) -> None:
    world = UnitBall(dim=2)
    adversary = Adversary([(ATTACKS[name](), world, [0])], seed=1)
    offer = next(world.rounds(Draws(seed=1, trials=[0], who=ENVIRONMENT)))
    plot = adversary.commit(offer, [offer])
    with pytest.raises(ValueError, match=f"{ATTACKS[name].__name__} needs finite decision sets"):
        adversary.answer(offer, [offer], plot, Decision(round=1, action=np.array([[0.5, 0.0]]), index=np.array([-1])))


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (attacks.Flip, {"rounds": -1}),
        (attacks.Flip, {"budget": -2.5}),
        (attacks.RandomFlips, {"probability": 1.5}),
        (attacks.Periodic, {"every": 0}),
        (attacks.Late, {"begin": 0}),
        (attacks.Bursts, {"length": 501}),
        (attacks.Bursts, {"period": 0}),
        (attacks.Stealth, {"share": 0.0}),
        (attacks.SuppressBest, {"margin": -0.5}),
        (attacks.ClickFraud, {"share": -0.25}),
        (attacks.ClickFraud, {"owned": 0}),
        (attacks.ClickFraud, {"click": float("nan")}),
        (attacks.OracleTarget, {"margin": 0.0}),
        (attacks.OracleTarget, {"target": -3}),
        (attacks.GarcelonAdaptive, {"epsilon": 1.25}),
        (attacks.GarcelonAdaptive, {"delta": 1.0}),
        (attacks.ACE, {"sigma": 0.0}),
        (attacks.ACE, {"delta": 2.0}),
        (attacks.TopN, {"count": 0}),
        (attacks.FirstImpressions, {"times": 0}),
        (attacks.FirstImpressions, {"depth": 0.0}),
        (attacks.ContextAttack, {"scale": 0.5}),
    ],
)
def test_bad_settings_are_refused(kind: type[Attack], bad: dict[str, Any]) -> None:
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=name) as error:
        kind(**bad)
    assert repr(value) in str(error.value)


# The checks find what is wrong.


@dataclass(kw_only=True)
class Honest(Attack):
    """Passes every check; the broken ones below differ from it in one way."""

    strength: ClassVar[Literal["weak", "strong"]] = "weak"
    infinite = True

    def corrupt(self, offer: Offer) -> Floats:
        return -0.5 * offer.means


@dataclass(kw_only=True)
class Medium(Honest):
    strength = "medium"  # type: ignore[assignment]


@dataclass(kw_only=True)
class WithArray(Honest):
    weights: Any = field(default_factory=lambda: np.ones(2))


@dataclass(kw_only=True)
class Doubling(Honest):
    size: float = 1.0

    def __post_init__(self) -> None:
        self.size *= 2.0


@dataclass(kw_only=True)
class Scribbling(Honest):
    def corrupt(self, offer: Offer) -> Floats:
        offer.means[:] *= -0.5
        return offer.means


@dataclass(kw_only=True)
class ScribblingLater(Honest):
    def observe(self, offer: Offer, played: Any, reward: Floats) -> None:
        offer.noise[:1] = 0.0


@dataclass(kw_only=True)
class Global(Honest):
    def corrupt(self, offer: Offer) -> Floats:
        return -np.random.random() * offer.means  # noqa: NPY002


@dataclass(kw_only=True)
class GlobalInVain(Honest):
    def corrupt(self, offer: Offer) -> Floats:
        np.random.random()  # noqa: NPY002
        return -0.5 * offer.means


@dataclass(kw_only=True)
class Unseeded(Honest):
    def start(self, draw: Draws, environment: Environment) -> None:
        self._factor = np.random.default_rng().random()

    def corrupt(self, offer: Offer) -> Floats:
        return -self._factor * offer.means


@dataclass(kw_only=True)
class Haunted(Honest):
    """Remembers what was before `start`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._seen: list[int] = []

    def corrupt(self, offer: Offer) -> Floats:
        self._seen.append(offer.round)
        return -0.5 / len(self._seen) * offer.means


@dataclass(kw_only=True)
class Gregarious(Honest):
    def corrupt(self, offer: Offer) -> Floats:
        return -0.5 * offer.means + offer.means.mean(axis=0)


@dataclass(kw_only=True)
class FirstRow(Honest):
    """Draws by the row of a trial in its batch, not by its number."""

    def corrupt(self, offer: Offer) -> Floats:
        return -offer.means * np.random.default_rng(offer.round).random((len(offer.means), 1))


@dataclass(kw_only=True)
class Spendthrift(Honest):
    def start(self, draw: Draws, environment: Environment) -> None:
        self.budget = None


@dataclass(kw_only=True)
class Skipping(Honest):
    """Keeps accounts of its own, and leaves out a lie that it can't afford."""

    infinite = False

    def start(self, draw: Draws, environment: Environment) -> None:
        self._left = np.full(len(draw), np.inf if self.budget is None else self.budget) * (environment.noise_range + 1)

    def corrupt(self, offer: Offer) -> Floats:
        lies = -0.5 * offer.means
        cost = np.abs(lies).max(axis=1)
        afford = cost <= self._left
        self._left = self._left - np.where(afford, cost, 0.0)
        return np.where(afford[:, None], lies, 0.0)


@dataclass(kw_only=True)
class NotANumber(Honest):
    def corrupt(self, offer: Offer) -> Floats:
        return np.full_like(offer.means, np.nan)


@dataclass(kw_only=True)
class Dividing(Honest):
    """Fails where an action is zero."""

    def corrupt(self, offer: Offer) -> Floats:
        return -offer.means / np.linalg.norm(np.asarray(offer.actions), axis=2)


@dataclass(kw_only=True)
class Misshapen(Honest):
    """Fails where a set is of another size than the last."""

    infinite = False

    def start(self, draw: Draws, environment: Environment) -> None:
        self._last: Any = None

    def corrupt(self, offer: Offer) -> Floats:
        lies = -0.5 * offer.means if self._last is None else self._last
        self._last = -0.5 * offer.means
        return lies


@dataclass(kw_only=True)
class Stretching(Honest):
    """Makes actions longer than they may be."""

    strength = "strong"
    infinite = False

    def disguise(self, offer: Offer) -> Floats:
        return 3.0 * np.asarray(offer.actions)


@dataclass(kw_only=True)
class Peeking(Honest):
    """Looks at the action played, which in an infinite set comes last."""

    def corrupt(self, offer: Offer) -> Floats:
        return np.where(offer.means[:, -1:] > 0.0, -0.5 * offer.means, 0.0)


@dataclass(kw_only=True)
class Bent(Honest):
    def corrupt(self, offer: Offer) -> Floats:
        return -(offer.means**3)


@pytest.mark.no_cover
def test_an_honest_attack_passes() -> None:
    check_attack(Honest)
    with pytest.raises(AssertionError, match="must be linear in the mean"):
        check_attack(Bent)  # all checks are run: it is the last that finds it


BROKEN: list[tuple[type[Attack], Any, str]] = [
    (Medium, checks.check_strength, "strength must be 'weak' or 'strong', got 'medium'"),
    (WithArray, checks.check_configuration_is_plain_data, "no plain data"),
    (Doubling, checks.check_configuration_is_plain_data, "makes another attack"),
    (Scribbling, checks.check_offers_are_untouched, "modified the offer's means in round 1"),
    (ScribblingLater, checks.check_offers_are_untouched, "modified the offer's noise in round 1"),
    (Global, checks.check_seed_decides, "the same seed gives another"),
    (GlobalInVain, checks.check_seed_decides, "the global random generator was used"),
    (Unseeded, checks.check_seed_decides, "the same seed gives another"),
    (Haunted, checks.check_seed_decides, "the same seed gives another"),
    (Gregarious, checks.check_batch_equals_singles, "trial 0 of a batch has another lie in round 1 than alone"),
    (FirstRow, checks.check_batch_equals_singles, "trial 1 of a batch has another lie in round 1 than alone"),
    (Spendthrift, checks.check_budget_is_kept, "spent of a budget of 0"),
    (Spendthrift, checks.check_budget_zero_is_no_attack, "a reward was changed"),
    (Skipping, checks.check_last_lie_is_cut, "was left out, not cut"),
    (NotANumber, checks.check_odd_sets, "one action: NotANumber.corrupt must give finite numbers"),
    (Dividing, checks.check_odd_sets, "actions that are zero: invalid value encountered in divide"),
    (Misshapen, checks.check_odd_sets, "sets whose size changes: .* shape"),
    (Stretching, checks.check_odd_sets, "an action was made too long"),
    (Peeking, checks.check_lies_come_before_the_action, "depends on the action"),
    (Bent, checks.check_lies_come_before_the_action, "must be linear in the mean"),
]


@pytest.mark.parametrize(("kind", "check", "message"), BROKEN, ids=lambda x: getattr(x, "__name__", ""))
def test_a_broken_attack_is_found(kind: type[Attack], check: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(kind)


def test_a_broken_ledger_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Ledger.book

    def twice(self: Ledger, amounts: Floats, played: Any) -> None:
        book(self, amounts, played)
        self.c_play = self.c_play + 3.0 * amounts[np.arange(len(played)), played]

    monkeypatch.setattr(Ledger, "book", twice)
    with pytest.raises(AssertionError, match="C_play exceeds"):
        checks.check_ledgers_agree(Honest)
    with pytest.raises(AssertionError, match="C_play in the ledger is not what was done"):
        checks.check_budget_is_kept(Honest)
