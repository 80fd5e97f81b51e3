"""CorruptionMonitor against the stored stream and a cone solver, and whether its certificates keep their word."""

from __future__ import annotations

import copy
import json
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import monitor_oracles as slow
import numpy as np
import pytest
from monitor_oracles import Array, SlowGroup, SlowMonitor
from scipy import stats
from test_contradiction import Call, recorded

from robandit import Certificate, CorruptionMonitor, joint_certificate
from robandit.monitor import joint
from robandit.monitor import monitor as module
from robandit.monitor.certificate import Group
from robandit.monitor.contradiction import Bound, lower_bound
from robandit.monitor.groups import Groups
from robandit.monitor.radii import Assumptions
from thinned import longer, thinned

NOISE = 0.05


# ------------------------------------------------------------------------------------ streams


class Stream(NamedTuple):
    """Feedback: actions (n, d), rewards (n,), and the corruption in them."""

    actions: Array
    rewards: Array
    lies: Array

    def part(self, first: int, last: int) -> Stream:
        return Stream(*(array[first:last] for array in self))


def flips(rounds: int, first: int = 0, last: int = 0, *, dim: int = 3, seed: int = 0, noise: float = NOISE) -> Stream:
    """Rewards with the other sign from one round to another, counted from 0."""
    rng = np.random.default_rng([rounds, seed])
    mu = rng.normal(size=dim)
    mu *= 0.9 / np.linalg.norm(mu)
    actions = rng.normal(size=(rounds, dim))
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    lies = np.zeros(rounds)
    lies[first:last] = -2 * actions[first:last] @ mu
    return Stream(actions, actions @ mu + lies + noise * rng.normal(size=rounds), lies)


def watching(stream: Stream, *, log: bool = True, **more: Any) -> CorruptionMonitor:
    """A monitor that has seen it."""
    monitor = CorruptionMonitor(**{"dim": stream.actions.shape[1], "noise": NOISE} | more)
    feed(monitor, stream, log=log)
    return monitor


def feed(monitor: CorruptionMonitor, stream: Stream, *, log: bool = True, **more: Any) -> None:
    if log:
        monitor.observe_log(stream.actions, stream.rewards, **more)
    else:
        for action, reward in zip(stream.actions, stream.rewards.tolist(), strict=True):
            monitor.observe(action, reward, **more)


def held(monitor: CorruptionMonitor, name: str) -> Any:
    """One of the arrays of its state."""
    return monitor.state()["arrays"][name]


def same(one: Any, other: Any) -> bool:
    """Bit for bit, through dicts and lists."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    return type(one) is type(other) and one == other


# ------------------------------------------------------------------------------------ blocks


@pytest.mark.no_cover
@pytest.mark.parametrize("block", [16, 5])
def test_blocks_after_any_number_of_rounds(block: int) -> None:
    monitor = CorruptionMonitor(dim=1, noise=1.0, block=block)
    most = 0.0
    for now in range(1, 3001 if block == 16 else 700):
        monitor.observe([1.0], 0.0)
        blocks = monitor._blocks.spans
        assert blocks == slow.tiles(now, block), now
        starts = [start for start, _ in blocks]
        assert starts[0] == 0 and starts[1:] == [start + length for start, length in blocks[:-1]]
        assert starts[-1] < now <= starts[-1] + blocks[-1][1]
        assert all(start % length == 0 and (length // block).bit_count() == 1 for start, length in blocks)
        most = max(most, len(blocks) / math.log2(2 + now / block))
    assert 3 < most < 5


@pytest.mark.no_cover
def test_few_blocks_after_many_rounds() -> None:
    monitor, rounds = CorruptionMonitor(dim=1, noise=1.0), 2**17
    monitor.observe_log(np.ones((rounds, 1)), np.zeros(rounds))
    assert (
        monitor._blocks.spans == slow.tiles(rounds)
        and len(held(monitor, "past_reach")) == len(monitor._blocks.spans) < 65
    )
    assert max(len(slow.tiles(now)) for now in range(2**20 - 2000, 2**20 + 40000, 97)) < 80


@pytest.mark.slow
def test_few_blocks_after_a_million_rounds() -> None:
    monitor, rounds = CorruptionMonitor(dim=1, noise=1.0), 2**20
    for _ in range(64):
        monitor.observe_log(np.ones((rounds // 64, 1)), np.zeros(rounds // 64))
        assert len(monitor._blocks.spans) < 80
    assert monitor._blocks.spans == slow.tiles(rounds) and monitor.certificate().rounds == rounds
    assert sum(array.nbytes for array in monitor.state()["arrays"].values()) < 5000


def check_groups(groups: Groups, expected: Sequence[SlowGroup], row: int = 0) -> None:
    assert groups.gram.shape[1] == len(groups.length) == len(groups.share) == len(expected)
    assert groups.length == pytest.approx([group.length for group in expected])
    assert groups.share == pytest.approx([group.share for group in expected], rel=1e-12)
    for g, group in enumerate(expected):
        assert groups.gram[row, g] == pytest.approx(group.gram, rel=1e-9, abs=1e-9)
        assert groups.moment[row, g] == pytest.approx(group.moment, rel=1e-9, abs=1e-9)
        assert groups.reach[row, g] == pytest.approx(group.reach, rel=1e-9)
        assert groups.weight[row, g] == pytest.approx(group.weight, rel=1e-9)


def check_partitions(monitor: CorruptionMonitor, reference: SlowMonitor, row: int = 0) -> None:
    """The groups of every partition, and of the sources, are sums over the stored rounds."""
    found, expected = list(monitor.partitions()), list(reference.partitions())
    assert len(found) == len(expected)
    now = len(reference.rounds)
    for part, (starts, groups) in zip(found, expected, strict=True):
        assert list(part.starts) == starts
        ends = [*starts[1:], now]
        assert list(part.names) == [f"{start + 1:,}–{end:,}" for start, end in zip(starts, ends, strict=True)]
        check_groups(part.groups, groups, row)


@pytest.mark.no_cover
@pytest.mark.parametrize("settings", [{}, {"block": 4}, {"sources": 3}, {"reward_range": (-0.5, 0.4)}])
def test_groups_are_sums_of_the_stored_rounds(settings: dict[str, Any]) -> None:
    rng = np.random.default_rng(3)
    monitor, reference = CorruptionMonitor(dim=2, noise=0.3, **settings), SlowMonitor(dim=2, noise=0.3, **settings)
    for t in range(700):
        action, reward = rng.normal(size=2), float(rng.normal())
        sigma = float(rng.uniform(0.1, 2.0)) if t % 3 else None
        source = f"source {rng.integers(1 + t // 100)}" if "sources" in settings else None
        monitor.observe(action, reward, sigma, source)
        reference.observe(action, reward, sigma, source)
        if t in (0, 3, 15, 16, 17, 130, 256, 511, 699):
            check_partitions(monitor, reference)
            if source and t in (130, 699):
                check_sources(monitor, reference)
    assert held(monitor, "certain") == pytest.approx(reference.certain) and held(monitor, "beyond") == reference.beyond
    assert (reference.beyond > 100) == ("reward_range" in settings)


def check_sources(monitor: CorruptionMonitor, reference: SlowMonitor) -> None:
    expected = reference.by_source()
    with looks() as seen:
        copy.deepcopy(monitor).lower_bounds()
    assert len(seen) == len(list(reference.partitions())) + (len(expected) > 1)
    if len(expected) > 1:
        check_groups(seen[-1].groups, expected)


@pytest.mark.no_cover
def test_no_more_than_all_of_delta_is_spent() -> None:
    monitor, spent = CorruptionMonitor(dim=1, noise=1.0, block=2), dict[tuple[int, int], float]()
    for _ in range(300):
        monitor.observe([1.0], 0.0)
        for part in monitor.partitions():
            for start, length, share in zip(part.starts, part.groups.length, part.groups.share, strict=True):
                assert spent.setdefault((start, int(length)), share) == share  # it never changes
    assert spent.keys() <= {(i * 2 * 2**j, 2 * 2**j) for j in range(10) for i in range(300)}
    assert 0.8 < sum(spent.values()) <= 1
    every = sum(slow.share(i * 16 * 2**j, 16 * 2**j) for j in range(300) for i in range(300))
    assert 0.98 < every <= 1
    assert every == pytest.approx(sum(slow.rank(i) for i in range(300)) ** 2)


# ------------------------------------------------------------------------------------ the bound


class Look(NamedTuple):
    """A call of `lower_bound`, and the minimisations in it."""

    groups: Groups
    assumed: Assumptions
    calls: list[Call]
    bound: Bound


@contextmanager
def looks() -> Iterator[list[Look]]:
    """The partitions that are looked at meanwhile."""
    seen: list[Look] = []

    def spy(groups: Groups, assumed: Assumptions, **more: Any) -> Bound:
        more = {name: copy.copy(value) for name, value in more.items()}
        with recorded() as calls:
            bound = lower_bound(groups, assumed, **more)
        seen.append(Look(groups, assumed, calls, Bound(*(array.copy() for array in bound))))
        return bound

    with patch.object(module, "lower_bound", spy), patch.object(joint, "lower_bound", spy):
        yield seen


def optima(look: Look, groups: Sequence[SlowGroup], setting: slow.Setting) -> list[float]:
    """By the book and the cone solver: the minimum with the norms of each minimisation."""
    found, column = [], slow.steady(groups)
    for call in look.calls:
        cones = []
        for g, group in enumerate(groups):
            if group.reach > 0:
                choices = setting.choices(group, column)
                slopes, radii = call.cones.slope[0, g], call.cones.radius[0, g]
                cones.append([by_the_book(choices, setting, *pair) for pair in zip(slopes, radii, strict=True)])
        found.append(slow.cheapest(cones, setting.parameter_bound)[0])
    return found


def by_the_book(choices: list[slow.Choice], setting: slow.Setting, slope: float, radius: float) -> slow.Cone:
    """The cone of the choice that has this slope and this radius."""
    apart = [abs(math.log(slope / one.kappa)) + abs(math.log(radius / setting.rho(one))) for one in choices]
    assert min(apart) < 2e-6
    return setting.cone(choices[int(np.argmin(apart))])


@pytest.mark.no_cover
@pytest.mark.parametrize("settings", longer({"sources": 2}, {}, {"regularization": 200.0, "delta": 0.2}))
def test_the_bound_is_the_best_minimum_of_all_partitions_and_looks(settings: dict[str, Any]) -> None:
    stream = flips(170, 40, 75, dim=2)
    monitor = CorruptionMonitor(dim=2, noise=NOISE, **settings)
    reference = SlowMonitor(2, NOISE, sources=monitor.sources)
    own = {name: value for name, value in settings.items() if name != "sources"}
    best, before = 0.0, 0.0
    for t, (action, reward) in enumerate(zip(stream.actions, stream.rewards.tolist(), strict=True), 1):
        source = ("liar" if stream.lies[t - 1] else "honest") if "sources" in settings else None
        monitor.observe(action, reward, source=source)
        reference.observe(action, reward, None, source)
        if t not in (30, 70, 170):
            continue
        with looks() as seen:
            reported = monitor.lower_bounds()[0]
        partitions = [groups for _, groups in reference.partitions()]
        if len(reference.by_source()) > 1:
            partitions.append(reference.by_source())
        assert len(seen) == len(partitions)
        for look, groups in zip(seen, partitions, strict=True):
            check_groups(look.groups, groups)
            minima = optima(look, groups, slow.Setting(noise=NOISE, **own))
            best = max(best, look.bound.value[0])
            assert look.bound.value[0] <= max(minima, default=0.0) + 1e-7 * max(1.0, reported)
            assert not minima or minima[-1] <= reported + 1e-6 * max(1.0, reported)
        assert reported == pytest.approx(best, rel=1e-7) and reported >= before
        before = reported
        assert monitor.certificate().lower_bound == pytest.approx(reported, rel=1e-7)  # minimised again
    assert reported > 1


def nothing(groups: Groups, _: Assumptions, **__: Any) -> Bound:
    """What groups say that prove nothing."""
    batch, number, dim = groups.moment.shape
    return Bound(np.zeros(batch), np.zeros((batch, dim)), np.zeros((batch, number)), np.zeros((batch, number)))


def test_a_bound_never_goes_down(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, found = flips(400, 0, 20), []
    monitor = CorruptionMonitor(dim=3, noise=NOISE)
    for first in range(0, 400, 100):
        feed(monitor, stream.part(first, first + 100))
        found.append(monitor.certificate().lower_bound)
    assert found == sorted(found) and 0 < found[0] < found[-1]
    groups = monitor.certificate().groups
    monkeypatch.setattr(module, "lower_bound", nothing)
    assert monitor.certificate().lower_bound >= found[-1] and monitor.certificate().groups == groups


@pytest.mark.no_cover
def test_looking_costs_nothing() -> None:
    stream = flips(400, 100, 160)
    often, once = watching(stream.part(0, 0)), watching(stream)
    for t in range(0, 400, 40):
        feed(often, stream.part(t, t + 40))
        often.lower_bounds()
    assert often.lower_bounds()[0] >= 0.97 * once.lower_bounds()[0] > 1
    looked = copy.deepcopy(once)
    assert same(looked.certificate(), once.certificate()) and same(looked.state(), once.state())


@pytest.mark.no_cover
def test_what_lies_cost_in_one_dimension_is_proved_almost_whole() -> None:
    for seed in range(2):
        stream = flips(1024, 256, 320, dim=1, seed=seed, noise=1e-3)
        proved, truth = watching(stream, noise=1e-3).lower_bounds()[0], np.abs(stream.lies).sum()
        assert 0.995 * truth < proved < 0.9999 * truth
        stream.actions[::7] *= 3.0  # now and then a lever that could have done the same with less
        stream.rewards[::7] *= 3.0
        stretched = watching(stream, noise=1e-3, parameter_bound=1.0).lower_bounds()[0]
        assert 0 < stretched < np.abs(stream.lies).sum() + 2 * np.abs(stream.lies[::7]).sum()


# ------------------------------------------------------------------------------------ batches, logs, masks, sigma


@pytest.mark.no_cover
def test_streams_at_once_are_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    streams = [flips(200, 30 * row, 30 * row + 20 * row, seed=row) for row in range(4)]
    sigma = rng.uniform(0.5, 2.0, size=(200, 4)) * NOISE
    mask = rng.random((200, 4)) < 0.8
    shared: dict[str, Any] = {"dim": 3, "noise": NOISE, "reward_range": (-0.8, 0.7)}
    batch, alone = CorruptionMonitor(**shared, trials=4), [CorruptionMonitor(**shared) for _ in streams]
    references = [SlowMonitor(3, NOISE, reward_range=(-0.8, 0.7)) for _ in streams]
    for t in range(200):
        actions = np.array([stream.actions[t] for stream in streams])
        rewards = np.where(mask[t], [stream.rewards[t] for stream in streams], np.nan)
        batch.observe(actions, rewards, sigma[t], mask=mask[t])
        for row, single in enumerate(alone):
            single.observe(actions[row], float(rewards[row]), sigma[t, row], mask=mask[t, [row]])
            references[row].observe(actions[row], float(rewards[row]), sigma[t, row])
        if t in (100, 199):
            together = batch.certificate()
            for row, single in enumerate(alone):
                check_partitions(batch, references[row], row)
                one, many = single.certificate(), together[row]
                assert many.lower_bound == pytest.approx(one.lower_bound, rel=1e-9, abs=1e-12)
                for name in ("delta", "rounds", "altered", "alarm", "since"):
                    assert getattr(many, name) == getattr(one, name), name
                assert [group.name for group in many.groups] == [group.name for group in one.groups]
                assert many.altered >= references[row].beyond > 0
    assert batch.lower_bounds() == pytest.approx([certificate.lower_bound for certificate in together])
    assert together[3].lower_bound > 5 + together[0].lower_bound


@pytest.mark.no_cover
def test_noise_of_its_own_for_each_stream() -> None:
    scales = (0.02, 0.1, 0.3)
    streams = [flips(200, 0, 40, seed=row, noise=noise) for row, noise in enumerate(scales)]
    batch = CorruptionMonitor(dim=3, noise=scales, trials=3)
    assert batch.noise == scales
    for t in range(200):
        batch.observe([stream.actions[t] for stream in streams], [stream.rewards[t] for stream in streams])
    alone = [watching(stream, noise=noise) for stream, noise in zip(streams, scales, strict=True)]
    assert batch.lower_bounds() == pytest.approx([one.lower_bounds()[0] for one in alone], rel=1e-9)
    assert (batch.lower_bounds() > 0).sum() >= 2


@pytest.mark.no_cover
def test_a_log_is_as_one_by_one() -> None:
    stream, rng = flips(300, 60, 90), np.random.default_rng(1)
    sigma, source = rng.uniform(0.5, 2.0, 300) * NOISE, rng.choice(["a", "b", "c", "d"], 300)
    settings: dict[str, Any] = {"dim": 3, "noise": NOISE, "sources": 2, "reward_range": (-0.6, 0.7)}
    one = CorruptionMonitor(**settings)
    for t in range(300):
        one.observe(stream.actions[t], stream.rewards[t], sigma[t], source=str(source[t]))
    for cuts in ([], [1, 2, 17, 100], [16, 32, 33, 290]):
        log = CorruptionMonitor(**settings)
        for first, last in zip([0, *cuts], [*cuts, 300], strict=True):
            part = slice(first, last)
            log.observe_log(stream.actions[part], stream.rewards[part], sigma[part], source[part])
        check_alike(one.state(), log.state())
    assert (
        one.certificate().lower_bound == pytest.approx(log.certificate().lower_bound, rel=1e-9)
        and held(one, "certain") > 1
    )


def check_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    """States but for rounding."""
    for name in one.keys() - {"arrays"}:
        assert one[name] == other[name], name
    assert one["arrays"].keys() == other["arrays"].keys()
    for name, array in one["arrays"].items():
        assert other["arrays"][name] == pytest.approx(array, rel=1e-9, abs=1e-9), name


def test_an_empty_log_changes_nothing() -> None:
    monitor = watching(flips(40))
    before = monitor.state()
    monitor.observe_log(np.zeros((0, 3)), [])
    assert same(monitor.state(), before)


def test_an_empty_log_of_sources_changes_nothing() -> None:
    monitor = CorruptionMonitor(dim=3, noise=NOISE, sources=2)
    before = monitor.state()
    monitor.observe_log(np.zeros((0, 3)), [], source=[])
    assert same(monitor.state(), before)


def test_one_sigma_for_all_and_none_for_the_declared_noise() -> None:
    stream = flips(100)
    plain, told, other = (watching(stream.part(0, 0)) for _ in range(3))
    feed(plain, stream)
    feed(told, stream, sigma=NOISE)
    feed(other, stream, sigma=2 * NOISE)
    assert same(plain.state(), told.state())
    assert other.state()["arrays"]["past_gram"] == pytest.approx(plain.state()["arrays"]["past_gram"] / 4)
    alone = watching(stream.part(0, 0))
    feed(alone, stream, log=False, sigma=2 * NOISE)
    check_alike(alone.state(), other.state())


def test_a_round_without_a_reward_counts_as_a_round_and_as_nothing_else() -> None:
    stream = flips(64)
    monitor, shifted = CorruptionMonitor(dim=3, noise=NOISE, reward_range=(-1, 1)), SlowMonitor(3, NOISE)
    for t in range(64):
        monitor.observe(stream.actions[t], np.nan if t % 2 else stream.rewards[t], mask=[t % 2 == 0])
        shifted.observe(stream.actions[t], math.nan if t % 2 else float(stream.rewards[t]))
    check_partitions(monitor, shifted)
    assert monitor.certificate().rounds == 64 and held(monitor, "certain") == 0
    elsewhere = CorruptionMonitor(dim=3, noise=NOISE, reward_range=(2, 3))
    elsewhere.observe(stream.actions[0], 9.0, mask=[False])
    assert elsewhere.certificate().lower_bound == 0 and elsewhere.certificate().altered == 0


# ------------------------------------------------------------------------------------ rewards beyond their range


def test_what_is_beyond_the_range_is_certain() -> None:
    stream = flips(100, dim=2)
    rewards = np.clip(stream.rewards, -1.0, 1.0)
    rewards[[3, 50, 97]] = [4.0, -1.5, 1.25]
    monitor = CorruptionMonitor(dim=2, noise=NOISE, reward_range=(-1, 1), parameter_bound=1.0)
    monitor.observe_log(stream.actions[:3], rewards[:3])
    nothing: dict[str, Any] = {"alarm": None, "since": None, "groups": (), "sources": (), "parameter_bound": 1.0}
    assert monitor.certificate() == Certificate(lower_bound=0.0, delta=0.05, rounds=3, altered=0, **nothing)
    monitor.observe(stream.actions[3], rewards[3])
    found = monitor.certificate()
    assert (found.lower_bound, found.altered, found.alarm, found.since) == (3.0, 1, 4, None)
    monitor.observe_log(stream.actions[4:], rewards[4:])
    found = monitor.certificate()
    clipped = watching(Stream(stream.actions, np.clip(rewards, -1, 1), stream.lies))
    assert found.lower_bound == pytest.approx(3.75 + clipped.certificate().lower_bound)
    assert (found.altered, found.alarm, found.rounds) == (3, 4, 100)
    moments = [one.state()["arrays"]["past_moment"] for one in (clipped, monitor)]
    assert moments[0] == pytest.approx(moments[1], rel=1e-12)
    at_the_ends = watching(Stream(stream.actions[:2], np.array([-1.0, 1.0]), stream.lies[:2]), reward_range=(-1, 1))
    assert at_the_ends.certificate().lower_bound == 0 and at_the_ends.certificate().altered == 0


@pytest.mark.no_cover
def test_the_least_number_of_altered_rewards() -> None:
    stream = flips(600, 100, 160)
    width = 2.6
    ranged, plain = watching(stream, reward_range=(-1.3, 1.3)), watching(stream)
    bound = plain.certificate().lower_bound
    assert ranged.certificate().lower_bound == pytest.approx(bound) and bound > 3 * width  # nothing was beyond
    assert ranged.certificate().altered == math.ceil(bound / width) and plain.certificate().altered == 1
    beyond = Stream(stream.actions, np.where(np.arange(600) % 50 == 20, 1.8, stream.rewards), stream.lies)
    both = watching(beyond, reward_range=(-1.3, 1.3))
    found = both.certificate()
    assert found.altered == max(12, math.ceil((found.lower_bound - 12 * 0.5) / width)) and found.lower_bound > 6


# ------------------------------------------------------------------------------------ sources


def by_source(rounds: int, liar: str, share: float = 0.25, *, names: Sequence[str] = "abcd", **more: Any) -> Any:
    """A stream in which one of the sources always lies, and who says what."""
    rng = np.random.default_rng(rounds)
    source = rng.choice(list(names), rounds)
    if liar:
        source = np.where(rng.random(rounds) < share, liar, np.where(source == liar, names[0], source))
    honest, lying = flips(rounds, 0, 0, **more), flips(rounds, 0, rounds, **more)
    rewards = np.where(source == liar, lying.rewards, honest.rewards)
    return Stream(honest.actions, rewards, np.where(source == liar, lying.lies, 0.0)), source


@pytest.mark.no_cover
def test_the_lying_source_comes_first() -> None:
    stream, source = by_source(400, "x")
    monitor = CorruptionMonitor(dim=3, noise=NOISE, sources=10)
    monitor.observe_log(stream.actions, stream.rewards, source=source)
    found, truth = monitor.certificate(), np.abs(stream.lies).sum()
    assert found.sources[0].name == "x" and found.sources[0].placed > 0.9 * sum(one.placed for one in found.sources)
    assert truth > found.lower_bound > 0.5 * truth  # blocks alone can't tell a liar in every fourth round
    assert watching(stream).certificate().lower_bound < 0.3 * truth and not watching(stream).certificate().sources
    assert found.sources[0].placed == pytest.approx(found.lower_bound, rel=0.02)
    assert [one.placed for one in found.sources] == sorted((one.placed for one in found.sources), reverse=True)
    assert found.suspect == "x" and not found.groups and found.since is None  # no time is to blame
    assert "All sources but x agree with each other, and only without it." in found.sentence


def test_where_a_time_is_to_blame_no_source_is() -> None:
    stream, (_, source) = flips(400, 192, 256), by_source(400, "")
    monitor = CorruptionMonitor(dim=3, noise=NOISE, sources=4)
    monitor.observe_log(stream.actions, stream.rewards, source=source)
    found = monitor.certificate()
    assert found.since == 193 and found.groups and not found.sources and found.sentence.endswith("from 193 on.")
    assert found.suspect is None


@pytest.mark.no_cover
def test_sources_beyond_their_number_share_one_group() -> None:
    stream, source = by_source(300, "", names="abcdef")
    source[:6] = ["c", "a", "b", "d", "e", "f"]
    monitor = CorruptionMonitor(dim=3, noise=NOISE, sources=3)
    reference = SlowMonitor(3, NOISE, sources=3)
    for first in range(0, 300, 60):
        part = slice(first, first + 60)
        monitor.observe_log(stream.actions[part], stream.rewards[part], source=source[part])
    for t in range(300):
        reference.observe(stream.actions[t], float(stream.rewards[t]), None, source[t])
    check_sources(monitor, reference)
    assert monitor.state()["labels"] == ["c", "a", "b"] and len(held(monitor, "source_reach")) == 4
    lying, who = by_source(300, "f", names="abcf")
    who[:3] = ["a", "b", "c"]
    for sources, name in ((3, "(all other sources)"), (4, "f")):
        monitor = CorruptionMonitor(dim=3, noise=NOISE, sources=sources)
        monitor.observe_log(lying.actions, lying.rewards, source=who)
        assert monitor.certificate().sources[0].name == name


def test_labels_of_any_kind_and_one_for_a_batch() -> None:
    monitor = CorruptionMonitor(dim=1, noise=1.0, sources=5, trials=2)
    for source in ("a", 7, ["a", "b"], np.array([7, 9])):
        monitor.observe([[1.0], [2.0]], [0.0, 1.0], source=source)
    assert monitor.state()["labels"] == ["a", 7, "b", 9]
    assert held(monitor, "source_reach").tolist() == [[1.0, 2.0], [1.0, 2.0], [0.0, 2.0], [0.0, 2.0]]
    assert json.loads(json.dumps(monitor.state()["labels"])) == ["a", 7, "b", 9]


def test_a_label_is_the_same_in_a_log() -> None:
    one, log = (CorruptionMonitor(dim=1, noise=1.0, sources=5) for _ in range(2))
    for source in ("a", 1):
        one.observe([1.0], 0.0, source=source)
    log.observe_log([[1.0], [1.0]], [0.0, 0.0], source=["a", 1])
    assert log.state()["labels"] == one.state()["labels"]


def test_honest_sources_are_not_blamed() -> None:
    stream, source = by_source(400, "")
    monitor = CorruptionMonitor(dim=3, noise=NOISE, sources=4)
    monitor.observe_log(stream.actions, stream.rewards, source=source)
    found = monitor.certificate()
    assert found.lower_bound == 0 and not found.sources and not found.groups and found.alarm is None


# ------------------------------------------------------------------------------------ certificates


@pytest.mark.no_cover
def test_a_certificate_says_when() -> None:
    stream = flips(320, 256, 320)
    monitor, alarms = CorruptionMonitor(dim=3, noise=NOISE), []
    feed(monitor, stream.part(0, 240))
    for t in range(240, 300, 12):
        feed(monitor, stream.part(t, t + 12))
        found = monitor.certificate()
        alarms += [t + 12] if found.lower_bound > 0 else []
        assert found.alarm == (alarms[0] if alarms else None)
        assert found.since == (257 if alarms else None) and found.rounds == t + 12
    assert len(alarms) >= 2


def test_a_certificate_says_where() -> None:
    for first, last in ((256, 320), (192, 256)):
        found = watching(flips(600, first, last)).certificate()
        assert (found.rounds, found.delta, found.altered, found.sources) == (600, 0.05, 1, ())
        assert found.alarm == 600 and found.since == first + 1 and f"rounds from {first + 1} on." in found.sentence
        assert all(isinstance(group, Group) and group.placed >= 0 for group in found.groups)
        assert 0.95 * found.lower_bound < sum(group.placed for group in found.groups) < found.lower_bound * (1 + 1e-6)
        liar = max(found.groups, key=lambda group: group.placed)
        assert liar.name == f"{first + 1}–{last}" and liar.placed > 0.9 * found.lower_bound


def test_certificates_in_words() -> None:
    kind: dict[str, Any] = {"delta": 0.05, "rounds": 12_345, "altered": 0, "alarm": None, "since": None}
    kind |= {"groups": (), "sources": ()}
    clean = Certificate(lower_bound=0.0, **kind).sentence
    assert clean == "No corruption is proved in 12,345 rounds, at 95 % confidence; it may still be there."
    kind |= {"altered": 1_234, "delta": 0.001}
    found = Certificate(lower_bound=56.78, **kind)
    shared = "then with 99.9 % confidence these 12,345 rewards were altered by 56.8 or more in all"
    least = "and at least 1,234 of them were altered."
    who = "Fraud, drift and groups that honestly differ would all look like this; the data don't say which."
    assert found.sentence == f"If honest rewards are exactly linear in the features, {shared}, {least} {who}"
    sources = (Group("x", 40.0), Group("y", 1.0))
    told = Certificate(lower_bound=56.78, **kind | {"sources": sources, "since": 2_000}).sentence
    assert told == f"{found.sentence} It is explained most cheaply by rounds from 2,000 on."  # x and y are not accused
    suspect = Certificate(lower_bound=56.78, **kind | {"sources": sources, "suspect": "x"}).sentence
    assert "All sources but x agree with each other" in suspect and "these data can't tell" in suspect
    loose = Certificate(lower_bound=1.0, **kind | {"misspecification": 0.1, "beyond": 7}).sentence
    assert "linear to within 0.1" in loose and "7 of them were outside the range of honest rewards" in loose
    bound = Certificate(lower_bound=1.0, **kind | {"parameter_bound": 2.0, "rests_on_bound": True}).sentence
    assert "contradict your parameter bound of 2" in bound and "fraud" not in bound.lower()
    with pytest.raises(AttributeError):
        found.lower_bound = 1.0  # type: ignore[misc]


# ------------------------------------------------------------------------------------ shards


def test_shards_prove_together_what_none_proves_alone() -> None:
    stream = flips(400, 0, 200)
    halves = stream.part(0, 200), stream.part(200, 400)  # one μ each, and they contradict
    shards = [watching(half, delta=0.02) for half in halves]
    assert all(shard.lower_bounds()[0] == 0 for shard in shards)
    found = joint_certificate(shards)
    truth = np.abs(stream.lies).sum()
    assert truth > found.lower_bound > 0.3 * truth
    assert (found.delta, found.rounds, found.altered, found.alarm) == (0.04, 400, 1, None)
    assert all(group.name.split(":")[0] in ("shard 1", "shard 2") for group in found.groups) and found.groups
    assert "96 % confidence" in found.sentence


def check_joint(shards: Sequence[CorruptionMonitor], references: Sequence[SlowMonitor]) -> None:
    """Against the groups of all shards with δ share of their own, and the cone solver."""
    alone, delta = sum(float(shard.lower_bounds()[0]) for shard in shards), sum(shard.delta for shard in shards)
    with looks() as seen:
        found = joint_certificate(shards)
    seen = [look for look in seen if look.assumed.delta == delta]  # the others are of one shard each
    assert found.lower_bound >= alone * (1 - 1e-12) and found.delta == pytest.approx(delta)
    lists = [[groups for _, groups in reference.partitions()] for reference in references]
    assert len(seen) == max(map(len, lists))
    certain = sum(reference.certain for reference in references)
    best = alone
    for m, look in enumerate(seen):
        groups = [
            SlowGroup(group.actions, group.rewards, group.scales, group.length, group.share * shard.delta / delta)
            for parts, shard in zip(lists, shards, strict=True)
            for group in parts[min(m, len(parts) - 1)]
        ]
        check_groups(look.groups, groups)
        minima = optima(look, groups, slow.Setting(noise=NOISE, delta=delta))
        assert look.bound.value[0] <= max(minima, default=0.0) + 1e-6
        assert not minima or minima[-1] + certain <= found.lower_bound + 1e-5
        best = max(best, look.bound.value[0] + certain)
    assert found.lower_bound == pytest.approx(best, rel=1e-7) and found.lower_bound > alone + 0.5


@pytest.mark.no_cover
@pytest.mark.parametrize("lengths", [(120, 120), pytest.param((40, 150, 70), marks=pytest.mark.slow)])
def test_shards_by_the_book(lengths: Sequence[int]) -> None:
    stream, first = flips(sum(lengths), 30, 80, dim=2), 0
    shards, references = [], []
    for i, length in enumerate(lengths):
        part, first = stream.part(first, first + length), first + length
        part.rewards[5] = 60.0
        shards.append(watching(part, delta=0.01 * (i + 1), reward_range=(-2, 2)))
        references.append(SlowMonitor(2, NOISE, reward_range=(-2, 2)))
        for action, reward in zip(part.actions, part.rewards.tolist(), strict=True):
            references[-1].observe(action, reward)
    check_joint(shards, references)
    found = joint_certificate(shards)
    assert found.altered == len(lengths) and found.lower_bound > 58 * len(lengths)


def test_a_shard_without_rounds_takes_nothing_away() -> None:
    shards = [watching(flips(300, 50, 90), delta=0.02), watching(flips(3), delta=0.01)]
    found = joint_certificate(shards)
    assert found.lower_bound >= shards[0].lower_bounds()[0] > 1
    assert found.rounds == 303
    assert found.delta == pytest.approx(0.03)


@pytest.mark.no_cover
def test_one_shard_alone() -> None:
    shard = watching(flips(300, 50, 90))
    assert joint_certificate([shard]).lower_bound == pytest.approx(shard.certificate().lower_bound, rel=0.01)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"dim": 2}, "dim"),
        ({"noise": 0.1}, "noise"),
        ({"parameter_bound": 2.0}, "parameter_bound"),
        ({"misspecification": 0.1}, "misspecification"),
        ({"noise": None, "reward_range": (0, 2 * NOISE), "highest_mean": 0.01}, "noise|rare"),
        ({"regularization": 1.0}, "regularization"),
        ({"radius_scale": 2.0}, "radius_scale"),
        ({"block": 8}, "block"),
        ({"trials": 1}, "one stream each"),
        ({"delta": 0.95}, "delta must add up to less than 1, got 1"),
    ],
)
def test_shards_that_do_not_fit(other: dict[str, Any], words: str) -> None:
    plain: dict[str, Any] = {"dim": 3, "noise": NOISE}
    with pytest.raises(ValueError, match=words):
        joint_certificate([CorruptionMonitor(**plain), CorruptionMonitor(**plain | other)])


def test_no_shards() -> None:
    with pytest.raises(ValueError, match="monitor"):
        joint_certificate([])


# ------------------------------------------------------------------------------------ state


def full() -> CorruptionMonitor:
    """A monitor of which everything has been used."""
    return CorruptionMonitor.from_state(used().state())


@cache
def used() -> CorruptionMonitor:
    stream, source = by_source(330, "x")
    stream.rewards[::40] += 2.0
    monitor = CorruptionMonitor(dim=3, noise=NOISE, sources=3, reward_range=(-1.0, 1.0))
    monitor.observe_log(stream.actions, stream.rewards, source=source)
    monitor.lower_bounds()
    return monitor


def through_json(state: dict[str, Any]) -> dict[str, Any]:
    plain = json.loads(json.dumps({name: value for name, value in state.items() if name != "arrays"}))
    return plain | {"arrays": {name: array.copy() for name, array in state["arrays"].items()}}


def batch_of_two() -> CorruptionMonitor:
    return CorruptionMonitor.from_state(used_batch().state())


@cache
def used_batch() -> CorruptionMonitor:
    monitor, streams = CorruptionMonitor(dim=3, noise=(NOISE, 0.1), trials=2), [flips(250, 50, 90), flips(250, seed=1)]
    for t in range(250):
        monitor.observe([stream.actions[t] for stream in streams], [stream.rewards[t] for stream in streams])
    monitor.lower_bounds()
    return monitor


@pytest.mark.no_cover
@pytest.mark.parametrize("make", [full, batch_of_two, lambda: CorruptionMonitor(dim=2, noise=1.0)])
def test_a_monitor_goes_on_from_its_state(make: Callable[[], CorruptionMonitor]) -> None:
    monitor = make()
    state = monitor.state()
    again = CorruptionMonitor.from_state(through_json(state))
    assert same(again.state(), state)
    assert same(monitor.certificate(), again.certificate())
    rng, shape = np.random.default_rng(5), (monitor._batch, monitor.dim) if monitor.trials else (monitor.dim,)
    for t in range(60):
        action, reward = rng.normal(size=shape), rng.normal(size=shape[:-1])
        for one in (monitor, again):
            one.observe(action, reward, source="new" if monitor.sources else None)
            if t == 20:
                one.certificate()
    assert same(monitor.state(), again.state()) and same(monitor.certificate(), again.certificate())


@pytest.mark.no_cover
def test_what_was_proved_before_stays_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    monitors = full(), batch_of_two(), watching(flips(300, 64, 128))
    before = [monitor.lower_bounds() for monitor in monitors]
    monkeypatch.setattr(module, "lower_bound", nothing)
    for monitor, bounds in zip(monitors, before, strict=True):
        again = CorruptionMonitor.from_state(through_json(monitor.state()))
        assert same(again.lower_bounds(), bounds) and same(monitor.lower_bounds(), bounds) and bounds.max() > 1
        assert same(again.certificate(), monitor.certificate())
    assert monitors[0].certificate().sources and monitors[2].certificate().since is not None


def test_a_state_is_a_copy() -> None:
    monitor = full()
    state = monitor.state()
    kept = copy.deepcopy(state)
    monitor.observe(np.ones(3), 5.0, source="x")
    assert same(state, kept)
    again = CorruptionMonitor.from_state(state)
    again.observe(np.ones(3), 5.0, source="x")
    assert same(state, kept) and same(again.state(), monitor.state())


def broken(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    state = full().state()
    change(state)
    return state


BROKEN: dict[str, Callable[[dict[str, Any]], object]] = {
    "no format": lambda s: s.pop("format"),
    "another format": lambda s: s.update(format=99),
    "another thing": lambda s: s.update(monitor="Quorum"),
    "no config": lambda s: s.pop("config"),
    "no arrays": lambda s: s.pop("arrays"),
    "no round": lambda s: s.pop("round"),
    "no blocks": lambda s: s.pop("blocks"),
    "no labels": lambda s: s.pop("labels"),
    "no groups": lambda s: s.pop("groups"),
    "unknown setting": lambda s: s["config"].update(colour="red"),
    "bad setting": lambda s: s["config"].update(delta=2.0),
    "config is a list": lambda s: s.update(config=[1]),
    "negative round": lambda s: s.update(round=-1),
    "a round that is none": lambda s: s.update(round=1.5),
    "a block too few": lambda s: s["blocks"].pop(),
    "a block of three": lambda s: s["blocks"][0].append(1),
    "a block of no length": lambda s: s["blocks"][0].__setitem__(1, 0),
    "groups of four": lambda s: s["groups"][0].append(["a", 1.0, 1.0, 1.0]),
    "arrays are none": lambda s: s.update(arrays=None),
    "an array too few": lambda s: s["arrays"].pop("past_gram"),
    "no sources": lambda s: s["arrays"].pop("source_reach"),
    "an array too many": lambda s: s["arrays"].update(other=np.zeros(1)),
    "another shape": lambda s: s["arrays"].update(past_reach=np.zeros((1, 1))),
    "another kind": lambda s: s["arrays"].update(alarm=np.zeros(1)),
    "not a number": lambda s: s["arrays"]["past_moment"].fill(np.nan),
    "infinite": lambda s: s["arrays"]["certain"].fill(np.inf),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_states(name: str) -> None:
    with pytest.raises(ValueError, match="state|must|expected|unpack"):
        CorruptionMonitor.from_state(broken(BROKEN[name]))


TORN: dict[str, Callable[[dict[str, Any]], object]] = {
    "fewer rounds than blocks": lambda s: s.update(round=5),
    "blocks that begin late": lambda s: s.update(blocks=[[start + 7, length] for start, length in s["blocks"]]),
    "groups of no stream": lambda s: s.update(groups=[]),
    "blame of no stream": lambda s: s.update(blamed=[]),
    "more labels than sources": lambda s: s.update(labels=["a", "b", "c", "d"]),
    "labels of nobody": lambda s: s.update(labels=[]),
    "labels that no dict takes": lambda s: s.update(labels=[["a"], ["b"], ["c"]]),
}


@pytest.mark.parametrize("name", TORN)
def test_states_whose_parts_do_not_fit(name: str) -> None:
    with pytest.raises(ValueError, match="state"):
        CorruptionMonitor.from_state(broken(TORN[name]))


@pytest.mark.parametrize("state", [[], None, 5])
def test_what_is_no_state_at_all(state: Any) -> None:
    with pytest.raises(ValueError, match="state"):
        CorruptionMonitor.from_state(state)


# ------------------------------------------------------------------------------------ what is refused

SETTINGS: list[tuple[str, Any]] = [
    *(("dim", value) for value in (0, -1, 2.5, True, "3", None)),
    *(("noise", value) for value in (0.0, -1.0, math.nan, math.inf, "x", (1.0, 2.0))),
    *(("misspecification", value) for value in (-0.1, math.nan, math.inf)),
    *(("parameter_bound", value) for value in (0.0, -1.0, math.nan, math.inf)),
    *(("delta", value) for value in (0.0, 1.0, -0.1, 1.5, math.nan, None)),
    *(("regularization", value) for value in (0.0, -1.0, math.nan)),
    *(("reward_range", value) for value in ((1, 0), (0, 0), (0, math.nan), (0, math.inf), (1,), (0, 1, 2), "ab", 3)),
    *(("sources", value) for value in (-1, 1.5, None)),
    *(("block", value) for value in (0, -16, 2.5)),
    *(("radius_scale", value) for value in (0.0, -1.0, math.nan)),
    *(("trials", value) for value in (-1, 2.5, "x")),
]


@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_settings_that_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name}.* must|{name} must") as error:
        CorruptionMonitor(**{"dim": 2, "noise": 1.0} | {name: value})
    assert repr(value) in str(error.value) or name == "reward_range"


def test_no_trials_are_refused() -> None:
    with pytest.raises(ValueError, match="trials"):
        CorruptionMonitor(dim=2, noise=1.0, trials=0)


@pytest.mark.parametrize("noise", [(1.0,), (1.0, 2.0, 3.0), (1.0, 0.0), (1.0, math.nan)])
def test_noise_of_a_batch_that_is_refused(noise: Any) -> None:
    with pytest.raises(ValueError, match="noise must be"):
        CorruptionMonitor(dim=2, noise=noise, trials=2)


BAD_ROUNDS: list[Any] = [
    *(("reward", {"reward": value}) for value in (math.nan, math.inf, -math.inf, [1.0], "x", None, 1j)),
    *(("action", {"action": value}) for value in ([math.nan, 0, 0], [math.inf, 0, 0], [1, 2], [[1, 2, 3]], 1.0, "x")),
    *(("sigma", {"sigma": value}) for value in (0.0, -1.0, math.nan, math.inf, [1.0, 1.0], [0.0], "x")),
    *(("source", {"source": value}) for value in (None, ["x", "y"])),
    *(("mask", {"mask": value}) for value in ([True, False], 1, [1.0], "x")),
    *(("sigma", {"sigma": value}) for value in (1e-120, 1e120)),
    ("source", {"source": {}}),
]


@pytest.mark.parametrize(("name", "bad"), BAD_ROUNDS)
def test_rounds_that_are_refused_change_nothing(name: str, bad: dict[str, Any]) -> None:
    monitor = full()
    before = monitor.state()
    with pytest.raises(ValueError, match=name):
        monitor.observe(**dict[str, Any](action=np.ones(3), reward=5.0, source="never seen") | bad)
    assert same(monitor.state(), before)


BAD_LOGS: list[tuple[str, dict[str, Any]]] = [
    *(("rewards", {"rewards": value}) for value in ([1.0, math.nan], [math.inf, 1.0], [1.0], 1.0, [[1.0, 2.0]], "x")),
    *(("actions", {"actions": value}) for value in (np.full((2, 3), math.nan), np.ones((2, 2)), np.ones(3), "x")),
    *(("sigma", {"sigma": value}) for value in (0.0, -1.0, [1.0, math.nan], [1.0, 0.0], [1.0, 1.0, 1.0], math.inf)),
    *(("source", {"source": value}) for value in (None, ["x"], ["x", "y", "z"])),
]


@pytest.mark.parametrize(("name", "bad"), BAD_LOGS)
def test_logs_that_are_refused_change_nothing(name: str, bad: dict[str, Any]) -> None:
    monitor = full()
    before = monitor.state()
    with pytest.raises(ValueError, match=name):
        monitor.observe_log(**dict[str, Any](actions=np.ones((2, 3)), rewards=[5.0, 5.0], source=["new", "x"]) | bad)
    assert same(monitor.state(), before)


BAD_BATCHES: list[tuple[str, dict[str, Any]]] = [
    *(("reward", {"reward": value}) for value in ([1.0, math.nan], 1.0, [1.0], [1.0, 2.0, 3.0])),
    *(
        ("action", {"action": value})
        for value in (np.ones(3), np.ones((3, 3)), np.ones((2, 2)), np.full((2, 3), np.inf))
    ),
    *(("sigma", {"sigma": value}) for value in ([1.0], [1.0, 0.0], [1.0, math.nan], [[1.0, 1.0]])),
    *(("mask", {"mask": value}) for value in ([True], [True, True, False], [1, 0])),
    ("source", {"source": "x"}),
]


@pytest.mark.parametrize(("name", "bad"), BAD_BATCHES)
def test_rounds_of_a_batch_that_are_refused_change_nothing(name: str, bad: dict[str, Any]) -> None:
    monitor = batch_of_two()
    before = monitor.state()
    with pytest.raises(ValueError, match=name):
        monitor.observe(**dict[str, Any](action=np.ones((2, 3)), reward=[1.0, 2.0]) | bad)
    assert same(monitor.state(), before)


@pytest.mark.parametrize("reward", [1e160, 1e300])
def test_an_absurd_reward_does_not_silence_a_monitor(reward: float) -> None:
    stream = flips(300, 0, 60)
    monitor = watching(stream)
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        try:
            monitor.observe(stream.actions[0], reward)
        except ValueError:
            return
        assert monitor.certificate().lower_bound > 0


def test_a_single_action_that_is_hardly_noisy() -> None:
    monitor = CorruptionMonitor(dim=2, noise=1.0)
    for _ in range(20):
        monitor.observe([1.0, 1.0], 0.0, sigma=1e-9)
    assert monitor.certificate().lower_bound == 0


def test_rounding_accuses_nobody_whose_features_are_large() -> None:
    rng = np.random.default_rng(0)
    monitor = CorruptionMonitor(dim=3, noise=NOISE, trials=9)
    mu, direction = rng.uniform(-0.5, 0.5, size=(9, 3)), rng.normal(size=(9, 3))
    for _ in range(40):
        actions = 1e7 * rng.uniform(-1, 1, (9, 1)) * direction
        monitor.observe(actions, np.vecdot(actions, mu) + NOISE * rng.normal(size=9))
    assert not monitor.lower_bounds().any()


def test_a_batch_has_no_log() -> None:
    with pytest.raises(ValueError, match="watches a batch"):
        CorruptionMonitor(dim=2, noise=1.0, trials=2).observe_log(np.ones((3, 2)), np.ones(3))


def test_settings_are_fixed() -> None:
    monitor = full()
    for item in fields(monitor):
        with pytest.raises(AttributeError, match=f"{item.name} is fixed"):
            setattr(monitor, item.name, getattr(monitor, item.name))
    with pytest.raises(AttributeError):
        monitor.colour = "red"


# ------------------------------------------------------------------------------------ whether they keep their word


@dataclass(kw_only=True)
class Streams:
    """Many streams at once: who acts how, what noise there is, and who lies."""

    trials: int
    dim: int = 5
    rounds: int = 300
    kind: str = "gaussian"
    adaptive: bool = False
    lies: str = "none"
    noise: float = NOISE
    seed: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([self.seed, self.trials, self.dim])
        self.mu = self.unit()
        if self.kind == "bernoulli":
            self.mu = np.abs(self.mu)
        self.earned = np.zeros((self.trials, self.dim))
        self.tries = np.zeros((self.trials, self.dim))

    def unit(self) -> Array:
        vectors = self.rng.normal(size=(self.trials, self.dim))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def act(self) -> Array:
        """Fresh, or the unit vector that has looked best so far, but for every tenth round."""
        actions = self.unit()
        if self.adaptive:
            best = (self.earned / np.maximum(self.tries, 1e-9)).argmax(axis=1)
            best = np.where(self.rng.random(self.trials) < 0.1, self.rng.integers(self.dim, size=self.trials), best)
            actions = np.eye(self.dim)[best]
        return np.abs(actions) if self.kind == "bernoulli" else actions

    def reward(self, mean: Array) -> Array:
        if self.kind == "gaussian":
            return mean + self.noise * self.rng.normal(size=self.trials)
        if self.kind == "rademacher":
            return mean + self.noise * self.rng.choice([-1.0, 1.0], size=self.trials)
        return (self.rng.random(self.trials) < mean).astype(float)

    def lie(self, t: int, actions: Array, mean: Array) -> Array:
        """What is added to the reward."""
        if self.lies == "sparse":
            return 3 * self.rng.normal(size=self.trials) * (self.rng.random(self.trials) < 0.05)
        if self.lies == "direction":
            return np.where(actions[:, 0] > 0.4, 0.5, 0.0) * (t < self.rounds // 2)
        if self.lies == "flips":
            return -2 * mean * (64 <= t < 128)
        return np.zeros(self.trials)

    def watch(self, looks: Sequence[int], **more: Any) -> tuple[Array, Array]:
        """The bounds and the truth, (looks, B)."""
        monitor = CorruptionMonitor(dim=self.dim, noise=self.noise, trials=self.trials, **more)
        truth, bounds, truths = np.zeros(self.trials), [], []
        for t in range(self.rounds):
            actions = self.act()
            mean = np.vecdot(actions, self.mu)
            lies = self.lie(t, actions, mean)
            rewards = self.reward(mean) + lies
            self.earned += rewards[:, None] * actions
            self.tries += np.abs(actions)
            monitor.observe(actions, rewards)
            truth += np.abs(lies)
            if t + 1 in looks:
                bounds.append(monitor.lower_bounds())
                truths.append(truth.copy())
        return np.array(bounds), np.array(truths)


def at_least(breaches: Any) -> float:
    """With 99 % confidence the probability of a breach is no lower (Clopper and Pearson)."""
    count = int(breaches.sum())
    return float(stats.beta.ppf(0.01, count, len(breaches) - count + 1)) if count else 0.0


def checkpoints(rounds: int) -> list[int]:
    return sorted({int(t) for t in np.geomspace(17, rounds, 12)})


WORLDS = [(kind, adaptive) for kind in ("gaussian", "rademacher", "bernoulli") for adaptive in (False, True)]


def check_level(trials: int, rounds: int, kind: str, adaptive: bool) -> None:
    noise = 0.5 if kind == "bernoulli" else NOISE
    streams = Streams(trials=trials, rounds=rounds, kind=kind, adaptive=adaptive, noise=noise)
    bounds, _ = streams.watch(checkpoints(rounds), delta=0.1)
    assert len(bounds) >= 11 and at_least((bounds > 0).any(axis=0)) <= 0.1


@pytest.mark.no_cover
@pytest.mark.parametrize(("kind", "adaptive"), thinned(WORLDS, fast=WORLDS[0::3]))
def test_clean_streams_are_seldom_accused(kind: str, adaptive: bool) -> None:
    check_level(400, 160, kind, adaptive)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "adaptive"), WORLDS)
def test_thousands_of_clean_streams_are_seldom_accused(kind: str, adaptive: bool) -> None:
    check_level(2500, 1000, kind, adaptive)


@pytest.mark.no_cover
def test_with_half_the_radius_they_would_be() -> None:
    streams = Streams(trials=40, dim=20, rounds=300, kind="rademacher", noise=0.5)
    bounds, _ = streams.watch([300], radius_scale=0.5)
    assert at_least((bounds > 0).any(axis=0)) > 0.5


LIES = ["sparse", "direction", "flips"]


def check_lies(trials: int, rounds: int, lies: str, looks: Sequence[int], **world: Any) -> Array:
    streams = Streams(trials=trials, rounds=rounds, lies=lies, **world)
    bounds, truth = streams.watch(looks)
    assert at_least((bounds > truth * (1 + 1e-9)).any(axis=0)) <= 0.05
    return np.asarray(bounds[-1] / np.maximum(truth[-1], 1e-9))


@pytest.mark.no_cover
@pytest.mark.parametrize("lies", LIES)
def test_no_more_is_proved_than_there_was(lies: str) -> None:
    share = check_lies(60, 200, lies, (40, 100, 200), dim=2)
    assert np.median(share) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("lies", LIES)
@pytest.mark.parametrize(("kind", "dim"), [("gaussian", 1), ("gaussian", 5), ("rademacher", 3)])
def test_no_more_is_proved_than_there_was_in_many_streams(lies: str, kind: str, dim: int) -> None:
    check_lies(1000, 600, lies, checkpoints(600), kind=kind, dim=dim)


@pytest.mark.no_cover
def test_thirty_flips_among_fifteen_hundred_rounds_are_found() -> None:
    rng = np.random.default_rng(4)
    streams = Streams(trials=12, dim=20, rounds=1500)
    streams.lie = lambda t, actions, mean: -2 * mean * (t < 30)  # type: ignore[method-assign]
    bounds, truth = streams.watch([1500])
    assert np.mean(bounds[0] > truth[0] / 20) > 0.8 and (bounds < truth).all()
    spread = set(rng.permutation(1500)[:30].tolist())
    streams = Streams(trials=12, dim=20, rounds=1500, seed=1)
    streams.lie = lambda t, actions, mean: -2 * mean * (t in spread)  # type: ignore[method-assign]
    bounds, truth = streams.watch([1500])
    assert np.mean(bounds[0] > truth[0] / 100) > 0.8 and (bounds < truth).all()
