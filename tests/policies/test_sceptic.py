"""Sceptic against a plain transcription of its definition, and what that says of its behaviour."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats
from transcriptions import Array, SlowRobustWeightedOFUL

import robandit
from robandit import attacks, environments
from robandit.lab import results
from robandit.lab.plan import Run
from robandit.lab.protocol import Scenario, simulate

R = 0.5
MEDIAN = 0.6745  # of |x|, x standard normal: where q begins
NEVER = 2.0**62  # how the state writes an infinite date


# ------------------------------------------------------------------------------------ the transcription


class SlowRidge:
    """Sigma = lambda I + sum w a a^T and b = sum w r a."""

    def __init__(self, dim: int, lam: float) -> None:
        self.Sigma: Array = lam * np.eye(dim)
        self.b: Array = np.zeros(dim)

    @property
    def mu(self) -> Array:
        return np.linalg.solve(self.Sigma, self.b)

    def widths(self, actions: Array) -> Array:
        """||a||_{Sigma^-1} of each row a."""
        return np.sqrt(np.sum(actions.T * np.linalg.solve(self.Sigma, actions.T), axis=0))

    def add(self, action: Array, reward: float, weight: float) -> None:
        self.Sigma = self.Sigma + weight * np.outer(action, action)
        self.b = self.b + weight * reward * action


class SlowModel:
    """A sharp and a blunt ridge, trust n, doubt g and mass M."""

    def __init__(self, dim: int, lam: float, blunt: float) -> None:
        self.sharp, self.blunt = SlowRidge(dim, lam), SlowRidge(dim, blunt)
        self.n = self.g = self.M = 0.0


@dataclass(kw_only=True)
class SlowSceptic(SlowRobustWeightedOFUL):
    """One trial by the definition. alpha_t at C = 0 is Robust weighted OFUL's radius; the jitter is given to it."""

    corruption: float = 0.0
    radius_scale: float = 0.001
    insurance: float = 0.0
    clip_rewards: bool = True
    events: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.few = max(1.0, 20 / self.dim)
        self.open = self.lam * self.few**-2
        self.model, self.old = self.nothing(), self.nothing()
        self.L = 4 * self.dim + 20
        self.q, self.e = MEDIAN, 0.0
        self.next = 200 / self.insurance if self.insurance > 0 else math.inf
        self.interval = 200 / self.insurance if self.insurance > 0 else 100.0
        self.left = self.better = self.contradictions = self.restarts = self.audits = 0

    def nothing(self) -> SlowModel:
        """A model that has seen nothing."""
        return SlowModel(self.dim, self.lam, self.open)

    def values(self, actions: Array) -> Array:
        """<a, m> + rho_t ||a||_{Sigma_b^-1} with m = mu_s + 0.2 (mu_b - mu_s)."""
        sharp, blunt = self.model.sharp.mu, self.model.blunt.mu
        return actions @ (sharp + 0.2 * (blunt - sharp)) + self.current_radius() * self.model.blunt.widths(actions)

    def update(self, action: Array, reward: float, sigma: float, date: float = math.nan) -> None:
        """Steps 0 to 7; `date` is that of the next audit, should this round begin one."""
        model, r = self.model, self.clip(reward) if self.clip_rewards else reward
        sigma = max(sigma, 0.04 * self.noise_range)
        unknown = sigma >= self.noise_range
        f = min(max(self.q / MEDIAN, 0.04 if unknown else 1.0), 2.0)
        spread, wide = f * sigma, float(model.sharp.widths(action[None])[0])
        z = abs(r - float(action @ model.sharp.mu)) / math.sqrt(spread**2 + wide**2)
        believed = z <= 5
        self.contradictions += not believed
        if believed:
            self.follow_noise(z * f, unknown)
        voice = 1 / (1 + (spread / (0.5 * self.noise_range)) ** 2)
        model.n += voice * believed
        model.g = max(0.0, model.g + voice * (2 * min(1.0, (z / 3) ** 2) - 1))
        if believed:
            model.sharp.add(action, r, self.sharp_weight(spread, wide))
        blur = 4 * (1 + (self.few - 1) / (1 + (spread / (0.1 * self.noise_range)) ** 2))
        blunt = (blur * spread) ** -2
        model.blunt.add(action, r, blunt)
        model.M += blunt * float(action @ action)
        self.end_audit(r, spread)
        self.begin_audit(date)
        self.doubt_enough()
        self.t += 1

    def follow_noise(self, size: float, unknown: bool) -> None:
        """Step 3: q goes up or down by the sign of z f - q."""
        step = max(0.03, 0.3 / (1 + self.model.n / 10)) if unknown else 0.03
        moved = self.q * math.exp(step * ((size > self.q) - 0.5))
        least, most = (0.04 if unknown else 0.5) * MEDIAN, 2 * MEDIAN
        self.events["q at its least"] += moved < least
        self.events["q at its most"] += moved > most
        self.q = min(max(moved, least), most)
        self.events["f at one"] += not unknown and self.q < MEDIAN

    def sharp_weight(self, spread: float, wide: float) -> float:
        """Step 5, of a reward that is believed; `wide` is before the update."""
        reach = 0.02 * self.action_bound * self.parameter_bound
        capped = 1.0 if wide == 0 else min(1.0, reach / wide)
        noisy = 1 / (1 + (spread / (0.1 * self.noise_range)) ** 2)
        self.events["capped by width"] += noisy < capped < 1
        self.events["capped by noise"] += capped < noisy
        return max(capped, noisy) / spread**2

    def end_audit(self, r: float, spread: float) -> None:
        """Steps 6a and 6b."""
        if self.next == math.inf and self.contradictions > 0:
            self.next = self.t + 100.0
        if self.left == 0:
            self.e += 0.03 * (r - self.e)
            return
        if 2 * self.left <= self.L and r > self.e + spread:
            self.better += 1
        self.left -= 1
        if self.left == 0:
            back = 4 * self.better <= self.L
            self.model = copy.deepcopy(self.old) if back else self.model
            self.events["old model back" if back else "newcomer stays"] += 1

    def diversity(self) -> float:
        """The geometric over the arithmetic mean of the eigenvalues of Sigma_b, but for rounding."""
        _, log_det = np.linalg.slogdet(self.model.blunt.Sigma)
        return math.exp(log_det / self.dim) / self.open / (1 + self.model.M / (self.dim * self.open))

    def begin_audit(self, date: float) -> None:
        """Step 6c."""
        if self.left > 0 or self.t < self.next:
            return
        diversity = self.diversity()
        self.events["too much doubt to audit"] += self.model.g > 5
        self.events["too diverse to audit"] += diversity >= 0.5
        if self.model.g > 5 or diversity >= 0.5:
            return
        self.old, self.model = self.model, self.nothing()
        self.left, self.better = self.L, 0
        self.interval *= 6
        assert 0.75 * self.interval <= date - self.t <= 1.25 * self.interval
        self.next = date
        self.audits += 1

    def doubt_enough(self) -> None:
        """Step 7."""
        if self.model.g >= max(5.0, self.dim, (self.model.n - 50) / 4):
            self.events["audit broken off"] += self.left > 0
            self.events["much trust lost"] += self.model.n > 4 * max(5.0, self.dim) + 50
            self.model, self.left = self.nothing(), 0
            self.restarts += 1

    def arrays(self) -> dict[str, Any]:
        """The state by the policy's names, but for the matrices (`check_ridges`)."""
        models = {"": self.model, "old_": self.old}
        found: dict[str, Any] = {
            "updates": self.t - 1,
            "noise": self.q,
            "earned": self.e,
            "next": min(self.next, NEVER),
        }
        for name in ("interval", "left", "better", "contradictions", "restarts", "audits"):
            found[name] = getattr(self, name)
        for mark, model in models.items():
            found |= {f"{mark}trust": model.n, f"{mark}doubt": model.g, f"{mark}mass": model.M}
            for kind, ridge in (("sharp", model.sharp), ("blunt", model.blunt)):
                found[f"{mark}{kind}_mean"] = ridge.mu
        return found


# ------------------------------------------------------------------------------------ streams

Lie = Callable[[int, float, np.random.Generator], float]


def truth(t: int, mean: float, rng: np.random.Generator) -> float:
    return mean


def flips(first: int, last: int) -> Lie:
    """The mean with the other sign in these rounds."""
    return lambda t, mean, rng: -mean if first <= t <= last else mean


def random_lies(share: float) -> Lie:
    """Anything from -3 to 3 in a share of the rounds; some is clipped."""
    return lambda t, mean, rng: rng.uniform(-3.0, 3.0) if rng.random() < share else mean


def slander(last: int) -> Lie:
    """What is good looks bad in the first rounds."""
    return lambda t, mean, rng: -0.9 if t <= last and mean > 0.5 else mean


@dataclass(kw_only=True)
class Stream:
    """A world and what must happen in it, and what must not."""

    rounds: int
    dim: int = 3
    settings: dict[str, Any] = field(default_factory=dict)
    fresh: float = math.inf  # rounds with decision sets of their own; then one stays
    basis: bool = False  # that one is the unit vectors
    told: Any = None
    """sigma: None or a number for all; a pair for uniform draws, one for each action."""
    noise: float = 0.05
    lie: Lie = truth
    lost: float = 0.0  # the share of rewards that never arrive
    happens: str = ""
    never: str = ""

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(3)
        self.length = self.settings.get("action_bound", 1.0)
        self.parameter = np.arange(self.dim, 0.0, -1.0) * (-1.0) ** np.arange(self.dim)
        self.parameter *= 0.9 * self.settings.get("parameter_bound", 1.0) / np.linalg.norm(self.parameter)
        self.last = self.length * np.eye(self.dim) if self.basis else self.draw()

    def draw(self) -> Any:
        actions = self.rng.normal(size=(2 + self.dim, self.dim))
        return self.length * actions / np.maximum(1.0, np.linalg.norm(actions, axis=1, keepdims=True))

    def offer(self, t: int) -> tuple[Any, Any]:
        """Actions and what is told of their noise."""
        actions = self.draw() if t <= self.fresh else self.last
        if not isinstance(self.told, tuple):
            return actions, self.told
        least, most = self.told
        return actions, self.rng.uniform(least, most, size=len(actions))

    def reward(self, t: int, action: Any) -> float:
        mean = self.lie(t, float(action @ self.parameter), self.rng)
        return mean + float(np.clip(self.noise * self.rng.normal(), -R, R))


def check_state(policy: Any, references: list[SlowSceptic], t: int) -> None:
    """Every array of the state, of every trial; 1e-9 is far above rounding and far below what any change would do."""
    arrays = policy.state()["arrays"]
    for i, reference in enumerate(references):
        for name, value in reference.arrays().items():
            apart = np.max(np.abs(arrays[name][i] - value) / (1.0 + np.abs(value)))
            assert apart <= 1e-9, f"round {t}, trial {i}: {name} is {arrays[name][i]}, should be {value}"


def check_ridges(policy: Any, reference: SlowSceptic) -> None:
    """Both precisions of the model and of the one set aside, by their inverses and determinants."""
    arrays = policy.state()["arrays"]
    for mark, model in (("", reference.model), ("old_", reference.old)):
        for kind, ridge in (("sharp", model.sharp), ("blunt", model.blunt)):
            root, log_det = arrays[f"{mark}{kind}_root"][0], arrays[f"{mark}{kind}_log_det"][0]
            assert root @ root.T @ ridge.Sigma == pytest.approx(np.eye(len(root)), abs=1e-6)
            assert log_det == pytest.approx(np.linalg.slogdet(ridge.Sigma)[1], rel=1e-9, abs=1e-9)


def check_choice(decision: Any, reference: SlowSceptic, actions: Any, t: int) -> None:
    values = reference.values(actions)
    assert values[decision.index] >= values.max() - 1e-9, f"round {t}"
    assert decision.value == pytest.approx(values.max(), rel=1e-9, abs=1e-9), f"round {t}"
    seen = decision.info.contradictions, decision.info.restarts, decision.info.audits
    assert seen == (reference.contradictions, reference.restarts, reference.audits), f"round {t}"


def play(stream: Stream) -> tuple[Any, SlowSceptic]:
    """The policy and its transcription side by side."""
    settings = {"dim": stream.dim, "noise_range": R, **stream.settings}
    policy, reference = robandit.Sceptic(**settings, seed=1), SlowSceptic(**settings)
    for t in range(1, stream.rounds + 1):
        actions, told = stream.offer(t)
        decision = policy.choose(actions, sigma=told)
        check_choice(decision, reference, actions, t)
        reward = stream.reward(t, decision.action)
        if stream.rng.random() >= stream.lost:
            policy.update(decision, reward)
            date = policy.state()["arrays"]["next"][0]
            reference.update(decision.action, reward, settings["noise_range"] if told is None else decision.sigma, date)
            check_state(policy, [reference], t)
    check_ridges(policy, reference)
    return policy, reference


OTHER = {"action_bound": 1.7, "parameter_bound": 2.5, "mean_bound": 4.0, "regularization": 0.3, "delta": 0.2}
INSURED: dict[str, Any] = {"insurance": 1.0}
STREAMS = {
    "clean": Stream(
        rounds=300, told=(0.0, 0.1), noise=0.01, happens="q at its least, f at one", never="contradictions, restarts"
    ),
    "flipped, then fixed": Stream(
        rounds=500, told=0.05, fresh=40, lie=flips(1, 40), happens="contradictions, restarts, audits, old model back"
    ),
    "flipped late": Stream(
        rounds=800, told=0.05, fresh=0, lie=flips(400, 499), happens="restarts, much trust lost, newcomer stays"
    ),
    "flipped, but not long enough": Stream(
        rounds=900,
        told=0.05,
        fresh=0,
        lie=flips(601, 720),
        happens="contradictions, too much doubt to audit, audits",
        never="restarts",
    ),
    "random lies": Stream(
        rounds=400,
        dim=5,
        told=(0.01, 0.2),
        lie=random_lies(0.2),
        lost=0.2,
        settings={"regularization": 0.25},
        happens="contradictions, restarts, too diverse to audit",
        never="audits",
    ),
    "understated": Stream(
        rounds=400, told=0.05, noise=0.15, lie=random_lies(0.05), happens="q at its most, contradictions"
    ),
    "not told": Stream(
        rounds=400, noise=0.02, fresh=100, lie=random_lies(0.05), happens="q at its least, contradictions, audits"
    ),
    "not told, noisy": Stream(rounds=300, noise=0.6, happens="capped by width", never="contradictions"),
    "told too much": Stream(
        rounds=300, told=(0.3, 0.8), noise=0.2, lie=flips(1, 50), happens="f at one, q at its least"
    ),
    "noisy": Stream(
        rounds=600, told=0.49, noise=0.45, fresh=100, lie=flips(1, 100), settings=INSURED, happens="old model back"
    ),
    "d = 1": Stream(
        rounds=500,
        dim=1,
        told=0.05,
        lie=flips(1, 60),
        settings=INSURED,
        happens="restarts, too diverse to audit",  # there is but one direction
        never="audits",
    ),
    "d = 20": Stream(
        rounds=500, dim=20, told=(0.0, 0.05), fresh=90, lie=flips(1, 90), happens="restarts, newcomer stays"
    ),
    "d = 20, not told": Stream(rounds=300, dim=20, noise=0.02, fresh=50, happens="q at its least"),
    "bounds": Stream(
        rounds=500, told=0.1, fresh=60, lie=flips(1, 60), settings=OTHER, happens="restarts, audits, capped by width"
    ),
    "unclipped, wide radius": Stream(
        rounds=430,
        told=0.05,
        lie=random_lies(0.2),
        settings={"clip_rewards": False, "radius_scale": 0.1, "insurance": 0.5, "regularization": 4.0},
        happens="contradictions, too diverse to audit",
        never="audits",
    ),
    "small range": Stream(
        rounds=500,
        told=0.02,
        fresh=60,
        lie=flips(1, 60),
        settings={"noise_range": 0.1},
        happens="restarts, audits, q at its most",
    ),
    "insured, slandered": Stream(
        rounds=1900,
        dim=2,
        told=0.05,
        fresh=0,
        basis=True,
        lie=slander(100),
        settings=INSURED,
        happens="newcomer stays, old model back",
        never="contradictions",
    ),
    "insured, disturbed": Stream(
        rounds=400,
        dim=2,
        told=0.05,
        fresh=0,
        basis=True,
        lie=flips(208, 230),
        settings=INSURED,
        happens="audits, audit broken off, contradictions",
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_it_plays_as_transcribed(name: str) -> None:
    stream = replace(STREAMS[name])  # with a generator of its own
    _, reference = play(stream)
    counted = {name: getattr(reference, name) for name in ("contradictions", "restarts", "audits")}
    happened = {event for event, times in {**reference.events, **counted}.items() if times}
    assert set(filter(None, stream.happens.split(", "))) <= happened
    assert not set(stream.never.split(", ")) & happened


def test_trials_of_a_batch_play_as_transcribed_each_with_its_own_gaps() -> None:
    trials = 5
    stream = replace(STREAMS["insured, slandered"])
    policy = robandit.Sceptic(dim=2, noise_range=R, **INSURED, trials=trials, seed=1)
    references = [SlowSceptic(dim=2, noise_range=R, **INSURED) for _ in range(trials)]
    for t in range(1, 351):
        actions, told = stream.offer(t)
        decision = policy.choose(actions, sigma=told)
        rewards = np.array([stream.reward(t, action) for action in decision.action])
        rewards[t % trials] *= -1.0 if t % 7 == 0 else 1.0
        mask = stream.rng.random(trials) < 0.9
        policy.update(decision, np.where(mask, rewards, np.nan), mask=mask)
        dates = policy.state()["arrays"]["next"]
        for i, reference in enumerate(references):
            one: dict[str, Any] = {name: getattr(decision, name)[i] for name in ("index", "value")}
            one["info"] = decision.info._make([count[i] for count in decision.info])
            check_choice(robandit.policies.Decision(round=t, action=decision.action[i], **one), reference, actions, t)
            if mask[i]:
                reference.update(decision.action[i], rewards[i], told, dates[i])
        check_state(policy, references, t)
    assert len({reference.t for reference in references}) > 1  # the gaps differ, and so do
    assert len({reference.next for reference in references}) == trials  # the audits
    assert min(reference.contradictions for reference in references) > 0


def test_the_date_of_an_audit_is_drawn_uniformly() -> None:
    trials = 400
    policy = robandit.Sceptic(dim=2, noise_range=R, insurance=1.0, trials=trials, seed=2)
    for _ in range(200):
        policy.update(policy.choose([[1.0, 0.0]], sigma=0.1), np.full(trials, 0.5))
    arrays = policy.state()["arrays"]
    assert (arrays["audits"] == 1).all() and (arrays["interval"] == 1200.0).all()
    u = ((arrays["next"] - 200) / 1200 - 0.75) / 0.5
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_actions_of_length_zero_and_sigma_told_with_the_reward() -> None:
    policy, reference = robandit.Sceptic(dim=2, noise_range=R, seed=1), SlowSceptic(dim=2, noise_range=R)
    rng = np.random.default_rng(4)
    for t in range(1, 81):
        action = np.zeros(2) if t % 2 else rng.uniform(-0.7, 0.7, size=2)
        reward, sigma = float(rng.normal()) if t % 5 == 0 else 0.05, float(rng.uniform(0.0, 2 * R))
        policy.update(policy.choose(action[None], sigma=0.3), reward, sigma=sigma)
        reference.update(action, reward, sigma)
        check_state(policy, [reference], t)


def test_infinite_sets() -> None:
    stream = replace(STREAMS["flipped, then fixed"])
    policy, reference = robandit.Sceptic(dim=3, noise_range=R, seed=1), SlowSceptic(dim=3, noise_range=R)
    around = stream.rng.normal(size=(2000, 3))
    around /= np.linalg.norm(around, axis=1, keepdims=True)
    for t in range(1, 121):
        decision = policy.choose(robandit.Ball(3), sigma=0.05)
        assert decision.value == pytest.approx(reference.values(decision.action[None])[0], rel=1e-8, abs=1e-9)
        assert decision.value >= reference.values(around).max() - 1e-9
        reward = stream.reward(t, decision.action)
        policy.update(decision, reward)
        reference.update(decision.action, reward, 0.05, policy.state()["arrays"]["next"][0])
        check_state(policy, [reference], t)
    assert reference.restarts > 0


# ------------------------------------------------------------------------------------ behaviour


def interval(samples: Any) -> tuple[float, float]:
    """A 99 % t-interval for the mean of independent samples."""
    half = stats.t.ppf(0.995, len(samples) - 1) * samples.std(ddof=1) / math.sqrt(len(samples))
    return samples.mean() - half, samples.mean() + half


def test_it_gets_over_the_papers_attack() -> None:
    scenario = Scenario(environments.Paper(), attacks.Flip(rounds=90), range(60))
    run = partial(simulate, scenarios=[scenario], rounds=2000, seed=1, at=np.array([2000]))
    ours, oful = run(policy=robandit.Sceptic), run(policy=partial(robandit.OFUL, radius_scale=0.25))
    assert (ours.info["restarts"][-1] >= 1).all()
    ahead = 0.5 * oful.regret[-1] - ours.regret[-1]  # paired: the same worlds
    assert interval(ahead)[0] > 0


VOICE = 1 / (1 + 0.08**2)  # of a sigma at its floor, 0.04 R


def trusting(rounds: int, trials: int | None = None) -> tuple[Any, Any]:
    """A policy that has earned trust by a constant reward, and its decision."""
    policy = robandit.Sceptic(dim=1, noise_range=R, seed=1, trials=trials)
    decision = policy.choose([[1.0]], sigma=1e-6)
    for _ in range(rounds):
        policy.update(decision, 0.5)
    return policy, decision


@pytest.mark.parametrize("honest", [1, 40, 70, 71, 100, 333, 1000])
def test_a_restart_costs_a_liar_a_quarter_of_the_trust(honest: int) -> None:
    policy, decision = trusting(honest)
    trust = honest * VOICE
    assert policy.state()["arrays"]["trust"][0] == pytest.approx(trust)
    needed = math.ceil(max(5.0, (trust - 50) / 4) / VOICE)
    for lies in range(1, needed):
        policy.update(decision, -1.2)
        seen = policy.choose([[1.0]])
        assert (seen.info.contradictions, seen.info.restarts) == (lies, 0)
    policy.update(decision, -1.2)
    assert policy.choose([[1.0]]).info.restarts == 1
    arrays = policy.state()["arrays"]
    fresh = robandit.Sceptic(dim=1, noise_range=R, seed=1).state()["arrays"]
    for name in ("trust", "doubt", "mass", "sharp_mean", "blunt_mean", "sharp_root", "blunt_root", "left"):
        assert np.array_equal(arrays[name], fresh[name])


def test_lies_that_truths_outnumber_never_unseat_a_model() -> None:
    policy, decision = trusting(10)
    for _ in range(500):
        for reward in (-1.2, 0.5):
            policy.update(decision, reward)
    seen = policy.choose([[1.0]])
    assert (seen.info.contradictions, seen.info.restarts) == (500, 0)


def test_one_huge_lie_leaves_no_trace_in_the_sharp_estimate() -> None:
    policy = robandit.Sceptic(dim=3, noise_range=R, trials=2, seed=1)
    rng, parameter, middle = np.random.default_rng(5), np.array([0.6, -0.3, 0.4]), 300
    for t in range(600):
        actions = rng.normal(size=(1, 3))
        actions /= np.linalg.norm(actions)  # one at a time, so that both are taught the same
        reward = float(actions[0] @ parameter) + 0.05 * rng.normal()
        decision = policy.choose(actions, sigma=0.05)
        told, heard = ([1e6, 0.0], [True, False]) if t == middle else ([reward] * 2, [True, True])
        policy.update(decision, told, mask=heard)
    arrays = policy.state()["arrays"]
    for name in ("sharp_mean", "sharp_root", "sharp_log_det", "noise", "trust"):
        assert np.array_equal(arrays[name][0], arrays[name][1]), name
    assert not np.array_equal(arrays["blunt_mean"][0], arrays["blunt_mean"][1])
    assert arrays["contradictions"].tolist() == [1, 0]
    assert arrays["restarts"].tolist() == arrays["audits"].tolist() == [0, 0]


def test_the_result_table_shows_what_happened() -> None:
    run = Run.read(
        {
            "policies": [{"name": "sceptic", "insurance": 1.0}, "greedy"],
            "attacks": [{"name": "flip", "rounds": [0, 30]}],
            "environments": [{"name": "paper", "dim": 3, "actions": 4}],
            "rounds": 400,
            "trials": 3,
            "checkpoints": 6,
        }
    )
    names = ("contradictions", "restarts", "audits")
    for task in run.tasks(6):
        trace = task.run()
        table = results.tabulate(task, trace).to_pylist()
        assert set(trace.info) == (set() if task.policy.label == "greedy" else set(names))
        for name, counts in trace.info.items():
            assert [row[name] for row in table] == counts.T.ravel().tolist()
            assert (np.diff(counts, axis=0) >= 0).all()
        if task.policy.label == "sceptic":
            last = {name: [row[name] for row in table if row["round"] == 400] for name in names}
            assert min(last["audits"]) >= 1  # insured: even where nobody lied
            assert min(last["restarts"][3:]) >= 1 and max(last["restarts"][:3]) == 0
            assert all(c > r for c, r in zip(last["contradictions"][3:], last["restarts"][3:], strict=True))


@pytest.mark.parametrize("stop", [200, 220, 227])  # an audit's first round, a later one, its last but one
@pytest.mark.parametrize("back", [True, False])
def test_a_saved_audit_goes_on_and_ends_the_same(stop: int, back: bool) -> None:
    stream = replace(STREAMS["insured, slandered"], lie=truth if back else slander(100))
    policy, saved = robandit.Sceptic(dim=2, noise_range=R, **INSURED, seed=1), None
    for t in range(1, 261):
        actions, told = stream.offer(t)
        decision = policy.choose(actions, sigma=told)
        if saved is not None:
            other = saved.choose(actions, sigma=told)
            assert (other.index, other.value, other.info) == (decision.index, decision.value, decision.info)
        reward = stream.reward(t, decision.action)
        for one in (policy, saved):
            if one is not None:
                one.update(decision, reward)
        if t == stop:
            saved = robandit.Sceptic.from_state(policy.state())
            left, set_aside = (policy.state()["arrays"][name][0] for name in ("left", "old_trust"))
            assert left == 228 - stop and set_aside > 100  # a model to come back
    assert saved is not None
    mine, its = policy.state()["arrays"], saved.state()["arrays"]
    assert all(np.array_equal(mine[name], its[name]) for name in mine)
    assert mine["left"][0] == 0 and (mine["trust"][0] > 100) == back  # or else the newcomer stayed


def estimated_noise(told: float | None, noise: float, trials: int, rounds: int) -> Any:
    """f by q, (rounds, trials), on a clean stream of Gaussian noise."""
    policy = robandit.Sceptic(dim=3, noise_range=R, trials=trials, seed=1)
    rng, parameter, found = np.random.default_rng(6), np.array([0.6, -0.3, 0.4]), []
    for _ in range(rounds):
        actions = rng.normal(size=(5, 3))
        decision = policy.choose(actions / np.linalg.norm(actions, axis=1, keepdims=True), sigma=told)
        policy.update(decision, decision.action @ parameter + noise * rng.normal(size=trials))
        found.append(policy.state()["arrays"]["noise"] / MEDIAN)
    return np.array(found)


def test_it_finds_out_that_sigma_is_understated() -> None:
    found = estimated_noise(told=0.05, noise=0.1, trials=30, rounds=600)[300:].mean(axis=0)
    low, high = interval(found)
    assert 1.6 < low < high < 2.0


@pytest.mark.parametrize("noise", [0.05, 0.15])
def test_it_finds_a_sigma_that_it_is_not_told(noise: float) -> None:
    found = R * np.exp(np.log(estimated_noise(told=None, noise=noise, trials=30, rounds=400)[200:]).mean(axis=0))
    low, high = interval(found)
    assert 0.7 * noise < low < high < 1.3 * noise


def test_the_exponent_of_the_proof() -> None:
    """E exp(θ(2 min{1, (z/3)²} − 1)) = 1 at θ = 5.26 for a standard normal z, and less for every smaller θ > 0."""
    z = np.linspace(0.0, 12.0, 240_001)
    added = 2.0 * np.minimum(1.0, (z / 3.0) ** 2) - 1.0
    for theta, low, high in ((1.0, 0.0, 0.6), (4.0, 0.0, 0.6), (5.26, 0.99, 1.0), (5.4, 1.0, 1.5)):
        mean = np.trapezoid(np.exp(theta * added) * 2.0 * np.exp(-(z**2) / 2.0) / np.sqrt(2.0 * np.pi), z)
        assert low < mean < high
    assert 1e4 * np.exp(-5.26 * 5) < 4e-8
    assert np.log(1e4 / 0.05) / 5.26 == pytest.approx(2.32, abs=0.005)
