"""Quorum against a plain transcription of its definition, and what operators can see and do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from slow_quorum import DISSENTS, FITS, SlowQuorum, Stretch

import robandit
from robandit.lab import results
from robandit.lab.checks.policies import same_state
from robandit.lab.plan import Run
from robandit.policies.groups import FREE, RoundGroups
from robandit.policies.quorum import QuorumCounts

R = 0.5


@dataclass(kw_only=True)
class Stream:
    """Traffic from some sources, of which the first lie."""

    rounds: int
    dim: int = 3
    sources: int = 4
    liars: int = 1
    starts: int = 0
    """The round from which on they lie."""
    ends: int = 10**9
    """The round from which on they don't."""
    share: float = 1.0
    """The share of their rewards that are lies."""
    clicks: bool = False
    noise: float = 0.1
    told: float | None = 0.1
    lost: float = 0.0
    """The share of rewards that never arrive."""
    settings: dict[str, Any] = field(default_factory=dict)
    happens: str = ""

    def offers(self) -> Any:
        """Actions, source, and the reward of each action."""
        rng = np.random.default_rng(4)
        parameter = np.linspace(-1.0, 1.0, self.dim + 1)[1:] / self.dim**0.5
        for t in range(self.rounds):
            actions = rng.normal(size=(5, self.dim))
            actions /= np.maximum(1.0, np.linalg.norm(actions, axis=1, keepdims=True))
            source = int(rng.integers(self.sources))
            means = actions @ parameter
            if (
                source < self.liars
                and self.starts <= t < self.ends
                and (self.share == 1.0 or rng.random() < self.share)
            ):
                means = -means
            noise = self.noise * rng.normal()
            yield actions, source, (rng.random() < 0.5 + means / 2) * 1.0 if self.clicks else means + noise


STREAMS = {
    "nobody lies": Stream(rounds=250, liars=0, happens="believed"),
    "one of four lies": Stream(rounds=250, happens="doubted"),
    "two of five fall asleep": Stream(rounds=400, sources=5, liars=2, starts=150, happens="doubted"),
    "no sources": Stream(rounds=600, sources=1, liars=1, starts=500, happens="merged"),
    "clicks": Stream(rounds=400, clicks=True, told=None, liars=1, sources=3),
    "noise not told": Stream(rounds=300, told=None, happens="doubted"),
    "noise understated": Stream(rounds=200, told=0.02, noise=0.2, liars=0, happens="louder"),
    "rewards lost": Stream(rounds=300, lost=0.4, happens="doubted"),
    "more sources than slots": Stream(rounds=300, sources=6, liars=1, settings={"max_sources": 3}, happens="pooled"),
    "one feature, tolerant": Stream(rounds=150, dim=1, settings={"tolerance": 0.3}),
    "another lambda": Stream(rounds=150, settings={"regularization": 0.3, "width": 0.7}),
    "scattered lies": Stream(rounds=500, sources=1, share=0.25, noise=0.03, told=0.03, happens="turned, told apart"),
    "scattered lies, noise not told": Stream(
        rounds=400, sources=1, share=0.25, starts=150, noise=0.03, told=None, happens="told apart"
    ),
    "lies at first": Stream(rounds=500, sources=1, ends=120, noise=0.03, told=0.03, happens="turned, first dropped"),
    "scattered lies of one in three": Stream(
        rounds=500, sources=3, share=0.3, noise=0.03, told=0.03, lost=0.1, happens="told apart"
    ),
    "scattered lies in clicks": Stream(rounds=400, clicks=True, told=None, sources=1, share=0.25, happens="no dissent"),
}


def same(policy: Any, slow: SlowQuorum, where: str) -> None:
    """The whole state, but for the order of the groups."""
    stats, groups = policy.stats, policy.stats.groups
    places = {(s, since): i for i, (s, since) in enumerate(zip(groups.slot[0], groups.since[0], strict=True)) if s >= 0}
    assert places.keys() == {(g.slot, g.since) for g in slow.stretches}, where
    for g in slow.stretches:
        at = 0, places[g.slot, g.since]
        V, b = g.sums()
        assert (groups.counts[at], groups.last[at]) == (g.n, g.last), where
        assert (groups.side[at], groups.spell[at]) == (g.side, g.spell), where
        assert groups.weight[at] == pytest.approx(g.weight, rel=1e-6, abs=1e-9), where
        np.testing.assert_allclose(groups.precision[at], V, rtol=1e-9, atol=1e-9, err_msg=where)
        np.testing.assert_allclose(groups.target[at], b, rtol=1e-9, atol=1e-9, err_msg=where)
    current = {(s, side): at for (s, side), at in np.ndenumerate(groups.current[0]) if at >= 0}
    assert current == {key: places[g.slot, g.since] for key, g in slow.open.items()}, where
    assert {s: spell for s, spell in enumerate(groups.now[0].tolist()) if spell > 0} == slow.spell, where
    assert stats.surprise.spread[0] == pytest.approx(slow.spread, rel=1e-9), where
    assert (stats.surprise.latest[0], stats.surprise.repeats[0]) == (slow.latest, slow.repeats), where
    np.testing.assert_allclose(stats.ridge.mean[0], np.linalg.solve(slow.Sigma, slow.b), rtol=1e-6, atol=1e-9)
    root = stats.ridge.root[0]
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(slow.Sigma), rtol=1e-6, atol=1e-9)
    assert stats.noise[0] == pytest.approx(slow.noise, rel=1e-7), where
    assert (int(stats.votes[0]), int(stats.next[0])) == (slow.votes, slow.next), where
    assert {s: since for s, since in enumerate(stats.doubted[0].tolist()) if since >= 0} == slow.doubted, where


def play(stream: Stream) -> tuple[Any, SlowQuorum]:
    """The policy and its transcription side by side."""
    policy = robandit.Quorum(dim=stream.dim, noise_range=R, seed=1, **stream.settings)
    given = {"lam" if name == "regularization" else name: value for name, value in stream.settings.items()}
    slow = SlowQuorum(stream.dim, R, **given)
    rng = np.random.default_rng(5)
    for t, (actions, source, rewards) in enumerate(stream.offers()):
        label = None if stream.sources == 1 else f"source {source}"
        decision = policy.choose(actions, sigma=stream.told, source=label)
        values = slow.values(actions)
        assert values[decision.index] >= values.max() - 1e-7, f"round {t}"
        if rng.random() >= stream.lost:
            reward = float(rewards[decision.index])
            policy.update(decision, reward)
            slow.update(decision.action, reward, R if stream.told is None else stream.told, label)
            if t % 7 == 0:
                same(policy, slow, f"round {t}")
    same(policy, slow, "at the end")
    return policy, slow


def believed(stretches: list[Stretch]) -> float:
    """The share of their rewards that is believed."""
    return sum(g.n * g.weight for g in stretches) / max(sum(g.n for g in stretches), 1)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", STREAMS)
def test_it_plays_as_its_transcription(name: str) -> None:
    stream = STREAMS[name]
    policy, slow = play(stream)
    dissent = [g for g in slow.stretches if g.side == DISSENTS]
    fits = [g for g in slow.stretches if g.side == FITS and g.spell == slow.spell.get(g.slot, 0)]
    seen = {
        "doubted": bool(slow.doubted),
        "believed": not slow.doubted,
        "merged": any(g.n >= 32 for g in slow.stretches),
        "louder": slow.noise > 3.0,
        "pooled": any(standing.pooled for standing in policy.standings()),
        "turned": max(slow.spell.values(), default=0) > 0,
        "no dissent": not dissent and not slow.spell,
        "told apart": bool(dissent) and believed(dissent) < 0.05 and believed(fits) > 0.9,
        "first dropped": believed([g for g in slow.stretches if g.spell == 0]) == 0.0 and believed(fits) > 0.9,
    }
    for event in filter(None, stream.happens.split(", ")):
        assert seen[event], event


# ------------------------------------------------------------------------------------ what operators see and do


def fraud(trials: int | None = None, rounds: int = 300, **settings: Any) -> robandit.Quorum:
    """A policy after some rounds in which "bots", a quarter of the traffic, report the opposite."""
    policy = robandit.Quorum(dim=3, noise_range=R, seed=1, trials=trials, **settings)
    rng = np.random.default_rng(6)
    for t in range(rounds):
        actions = rng.normal(size=(5, 3)) / 3.0
        actions /= np.maximum(1.0, np.linalg.norm(actions, axis=1, keepdims=True))
        label = ("bots", "ads", "mail", "web")[t % 4]
        decision = policy.choose(actions, sigma=0.1, source=label)
        mean = np.asarray(decision.action) @ [0.5, -0.5, 0.5]
        policy.update(decision, (-mean if label == "bots" else mean) + 0.1 * rng.normal())
    return policy


def test_it_names_the_liar_and_since_when() -> None:
    policy = fraud()
    standings = {standing.source: standing for standing in policy.standings()}
    assert [name for name, standing in standings.items() if standing.since is not None] == ["bots"]
    assert standings["bots"].weight < 0.1 and 2 <= (standings["bots"].since or 0) <= 100
    assert all(standings[name].weight > 0.9 for name in ("ads", "mail", "web"))
    assert [standing.rewards for standing in standings.values()] == [75] * 4
    info = policy.choose(np.eye(3)).info
    assert info.doubted == 1 and 50 <= info.dismissed <= 100 and info.votes == policy.stats.votes[0]


def test_a_quarantined_source_has_no_say() -> None:
    policy = fraud()
    policy.trust("bots")
    bought = policy.estimate().center
    policy.quarantine("bots")
    honest = policy.estimate().center
    truth = np.array([0.5, -0.5, 0.5])
    assert np.linalg.norm(honest - truth) < 0.1 < np.linalg.norm(bought - truth)
    without = policy.stats.groups
    assert (without.weight[0, without.slot[0] == policy.slots.labels[0].index("bots")] == 0.0).all()
    before = policy.estimate().center
    policy.update(policy.choose(np.eye(3), sigma=0.1, source="bots"), -1.0)
    assert np.array_equal(before, policy.estimate().center)
    restored = robandit.Quorum.from_state(policy.state())
    assert same_state(policy, restored) and restored.standings()[0].ruling == "quarantined"
    policy.release("bots")
    assert policy.standings()[0].ruling == ""


def test_a_trusted_source_is_believed_whatever_the_others_say() -> None:
    policy = fraud()
    policy.trust("bots")
    groups = policy.stats.groups
    assert (groups.weight[0, groups.slot[0] == 0] == 1.0).all()
    assert policy.standings()[0] == policy.standings()[0]._replace(weight=1.0, since=None, ruling="trusted")


def test_a_source_can_be_ruled_on_before_it_comes() -> None:
    policy = robandit.Quorum(dim=2, noise_range=R, seed=1, max_sources=2)
    policy.quarantine("later")
    policy.update(policy.choose(np.eye(2), source="later"), 1.0)
    assert np.array_equal(policy.estimate().center, np.zeros(2))
    policy.trust(None)
    with pytest.raises(ValueError, match="'third' is not told apart from others: max_sources is 2"):
        policy.trust("third")
    with pytest.raises(ValueError, match="source must be"):
        policy.trust(0.5)  # type: ignore[arg-type]
    assert policy.slots.labels == [["later", None]]


def test_rulings_and_standings_of_a_batch() -> None:
    batch, single = fraud(trials=3), fraud()
    for policy in (batch, single):
        policy.quarantine("bots")
    assert len(batch.standings()) == 3
    assert [standing.ruling for standing in batch.standings()[1]] == ["quarantined", "", "", ""]
    assert len(single.standings()) == 4


def test_a_ruling_that_is_refused_in_one_trial_changes_none() -> None:
    policy = robandit.Quorum(dim=1, noise_range=R, trials=2, max_sources=1, seed=1)
    policy.update(policy.choose([[1.0]], source=["a", "b"]), [1.0, 1.0], mask=[True, False])
    before = robandit.Quorum.from_state(policy.state())
    with pytest.raises(ValueError, match="'b' is not told apart"):
        policy.trust("b")
    assert same_state(policy, before)


@pytest.mark.no_cover
@pytest.mark.parametrize("sigma", [None, 0.03])
def test_a_batch_with_gaps_equals_its_trials(sigma: float | None) -> None:
    """Over enough rounds that groups are merged, and with trials that vote at different times."""
    batch = robandit.Quorum(dim=4, noise_range=R, seed=3, trials=3, max_sources=5)
    singles = [robandit.Quorum(dim=4, noise_range=R, seed=(3, trial), max_sources=5) for trial in range(3)]
    rng = np.random.default_rng(8)
    for t in range(700):
        actions = rng.uniform(-0.5, 0.5, (3, 6, 4))
        labels = (rng.integers(8, size=3) % [1, 3, 8]).tolist()
        keep, noise = rng.random(3) < 0.9, (sigma or 0.1) * rng.normal(size=3)
        decision = batch.choose(actions, sigma=sigma, source=labels)
        ones = [policy.choose(actions[i], sigma=sigma, source=labels[i]) for i, policy in enumerate(singles)]
        lies = (np.array(labels) == 0) & ((t < 120) | (rng.random(3) < 0.3))
        rewards = decision.action.sum(axis=1) * np.where(lies, -1.0, 1.0) + noise
        batch.update(decision, rewards, mask=keep)
        for i in np.flatnonzero(keep).tolist():
            singles[i].update(ones[i], float(rewards[i]))
        assert decision.index.tolist() == [one.index for one in ones], f"round {t}"
    if sigma is not None:
        assert (batch.stats.groups.side.max(axis=1) == DISSENTS).all() and batch.stats.groups.now.max() > 0
    for name, array in batch.state()["arrays"].items():
        for i, policy in enumerate(singles):
            mine = policy.state()["arrays"][name][0]
            shared = tuple(map(slice, mine.shape))  # the batch has as many groups as its largest trial
            assert np.array_equal(array[i][shared], mine), (name, i)


def test_a_trial_that_has_no_group_yet_leaves_the_groups_beside_it_alone() -> None:
    groups = RoundGroups.new(2, 1, 1)
    actions, rewards, first = np.array([[2.0], [9.0]]), np.array([3.0, 9.0]), np.array([1.0, 0.0])
    groups.changed[:] = False
    groups.add(np.array([7, FREE]), actions, rewards, first, np.array([5, 6]))
    assert groups.target[:, 7].tolist() == [[6.0], [0.0]] and groups.precision[:, 7].tolist() == [[[4.0]], [[0.0]]]
    assert (groups.counts[0, 7], groups.last[0, 7]) == (1, 5) and not groups.last[1].any()


def test_a_state_holds_as_many_groups_as_were_needed() -> None:
    """A place for a group has d² numbers, and most bandits never use most of those that 32 sources could need."""
    rng, policy = np.random.default_rng(5), robandit.Quorum(dim=4, noise_range=0.5, seed=1)
    sizes = []
    for t in range(1200):
        decision = policy.choose(rng.uniform(-0.5, 0.5, (3, 4)), source=f"s{t % 40}" if t >= 600 else None)
        policy.update(decision, float(rng.random() < 0.5))
        if t in (0, 599, 1199):
            sizes.append(policy.state()["arrays"]["groups_precision"].shape[1])
            policy = robandit.Quorum.from_state(policy.state())
    assert sizes[0] == 8 and sizes[1] <= 32 < sizes[2] <= 24 + 4 * 33


def test_while_nobody_disagrees_it_is_weighted_ridge() -> None:
    """With one action nothing can disagree much: the estimate is, bit for bit, that of a ridge regression."""
    policy = robandit.Quorum(dim=2, noise_range=R, seed=1)
    plain = robandit.WeightedOFUL(dim=2, noise_range=R, seed=1, sigma_floor=0.02)
    for t in range(200):
        for learner in (policy, plain):
            learner.update(learner.choose([[0.6, 0.8]], sigma=1.5), 0.5 + 0.1 * (-1.0) ** t)
    assert (policy.stats.groups.weight[policy.stats.groups.slot >= 0] == 1.0).all()
    assert np.array_equal(policy.estimate().center, plain.estimate().center)


def test_bad_settings_are_named() -> None:
    bad: dict[str, Any] = {"max_sources": 0, "width": -1.0, "tolerance": float("nan")}
    for name, value in bad.items():
        with pytest.raises(ValueError, match=name):
            robandit.Quorum(dim=2, noise_range=R, **{name: value})


def late_traffic(policy: robandit.Quorum, lean: float, lies: bool) -> None:
    """Rewards come 30 rounds late, shuffled, every fifth never; one source comes after 300 of 600 rounds."""
    rng, waiting = np.random.default_rng(9), []
    leans = lean * rng.choice([-1.0, 1.0], size=(5, 3)) / 3**0.5
    for t in range(600):
        source = int(rng.integers(5 if t >= 300 else 4))
        actions = rng.normal(size=(5, 3))
        actions /= np.maximum(1.0, np.linalg.norm(actions, axis=1, keepdims=True))
        decision = policy.choose(actions, sigma=0.2, source=source)
        mean = decision.action @ (np.array([0.4, -0.4, 0.4]) + leans[source])
        waiting.append((decision, (-mean if lies and source == 4 else mean) + 0.2 * rng.normal()))
        if len(waiting) == 30:
            for place in rng.permutation(30)[:24].tolist():
                policy.update(*waiting[place])
            waiting = []


def test_late_shuffled_and_missing_rewards_expose_a_late_liar() -> None:
    policy = robandit.Quorum(dim=3, noise_range=R, seed=1)
    late_traffic(policy, lean=0.0, lies=True)
    assert [standing.source for standing in policy.standings() if standing.since is not None] == [4]
    assert np.linalg.norm(policy.estimate().center - [0.4, -0.4, 0.4]) < 0.15


@pytest.mark.no_cover
@pytest.mark.parametrize(("lean", "tolerance"), [(0.02, 0.0), (0.05, 0.05), (0.1, 0.1)])
def test_honest_sources_that_differ_are_not_expelled(lean: float, tolerance: float) -> None:
    policy = robandit.Quorum(dim=3, noise_range=R, seed=1, tolerance=tolerance)
    late_traffic(policy, lean=lean, lies=False)
    assert all(standing.since is None and standing.weight > 0.9 for standing in policy.standings())


@pytest.mark.no_cover
def test_the_result_table_shows_its_counts_as_they_stand() -> None:
    """They are counts already, and are not added up over the rounds."""
    run = Run.read(
        {
            "policies": ["quorum", "greedy"],
            "attacks": [{"name": "flip", "rounds": 60}],
            "environments": [{"name": "paper", "dim": 3, "actions": 4}],
            "rounds": 400,
            "trials": 3,
            "checkpoints": 6,
        }
    )
    for task in run.tasks(6):
        trace = task.run()
        table = results.tabulate(task, trace).to_pylist()
        assert set(trace.info) == (set() if task.policy.label == "greedy" else set(QuorumCounts._fields))
        for name, counts in trace.info.items():
            assert [row[name] for row in table] == counts.T.ravel().tolist()
        if trace.info:
            votes = trace.info["votes"]
            assert (np.diff(votes, axis=0) >= 0).all() and 10 < votes.max() < 40
            assert trace.info["dismissed"].max() > 0


def test_a_state_of_other_numerics_goes_on() -> None:
    """Older states do not say theirs."""
    policy = fraud()
    state = policy.state()
    assert state.pop("numerics") == robandit.Quorum.numerics > robandit.OFUL.numerics
    assert same_state(robandit.Quorum.from_state(state), policy)


@pytest.mark.parametrize("say", ["trust", "quarantine"])
def test_an_operator_may_speak_for_all_sources(say: str) -> None:
    """Then there is none that the vote has to test."""
    policy = robandit.Quorum(dim=2, noise_range=R, seed=1)
    for source in ("mail", "web"):
        getattr(policy, say)(source)
    for t in range(40):
        policy.update(policy.choose([[0.6, 0.8], [0.8, 0.6]], source=("mail", "web")[t % 2]), 0.3)
    assert policy.stats.votes[0] > 2
    assert [standing.weight for standing in policy.standings()] == [float(say == "trust")] * 2
