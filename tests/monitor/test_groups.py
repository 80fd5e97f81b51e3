"""The sums of groups of rounds against sums over the stored rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitor_oracles import Array, SlowGroup

from observed import repeatable
from robandit.monitor.groups import Groups, Sums

BATCH, DIM = 3, 2


class Rounds:
    """Rounds of some streams: (B, d), (B,) and (B,) each."""

    def __init__(self, seed: int, batch: int = BATCH) -> None:
        self.rng, self.batch = np.random.default_rng(seed), batch

    def draw(self) -> tuple[Array, Array, Array]:
        weights = self.rng.uniform(0.1, 9.0, self.batch) * (self.rng.random(self.batch) < 0.8)  # some without a reward
        return self.rng.normal(size=(self.batch, DIM)), self.rng.normal(size=self.batch), weights


def slow(rounds: Sequence[tuple[Array, Array, Array]], row: int) -> SlowGroup:
    """The group of the rounds of one stream that have a reward."""
    kept = [(actions[row], rewards[row], weights[row]) for actions, rewards, weights in rounds if weights[row] > 0]
    actions = np.array([action for action, _, _ in kept]).reshape(len(kept), DIM)
    return SlowGroup(actions, np.array([r for _, r, _ in kept]), np.array([w**-0.5 for *_, w in kept]))


def check(groups: Groups, kept: Sequence[Sequence[Any]], batch: int = BATCH) -> None:
    """They are these rounds'."""
    assert groups.gram.shape == (batch, len(kept), DIM, DIM) and groups.moment.shape == (batch, len(kept), DIM)
    assert groups.reach.shape == (batch, len(kept))
    for row in range(batch):
        for g, rounds in enumerate(kept):
            group = slow(rounds, row)
            assert groups.gram[row, g] == pytest.approx(group.gram, rel=1e-12, abs=1e-12)
            assert groups.moment[row, g] == pytest.approx(group.moment, rel=1e-12, abs=1e-12)
            assert groups.reach[row, g] == pytest.approx(group.reach, rel=1e-12)
            assert groups.peaks[row, g] == pytest.approx(group.peaks, rel=1e-12)
            assert groups.weight[row, g] == pytest.approx(group.weight, rel=1e-12)


def all_of(sums: Sums) -> Groups:
    every = list(range(sums.number))
    return sums.groups(every, np.ones(len(every)), np.ones(len(every)))


DOINGS = ["append", "add", "add", "old", "merge"]


@pytest.mark.no_cover
@given(st.integers(0, 10**6), st.sampled_from([1, BATCH]), st.lists(st.sampled_from(DOINGS), max_size=60))
@repeatable(60)
def test_sums_are_of_the_rounds(seed: int, batch: int, doings: list[str]) -> None:
    sums, kept, world = Sums(batch, DIM), [[]], Rounds(seed, batch)  # type: ignore[var-annotated]
    sums.append()
    for doing in doings:
        place = int(world.rng.integers(len(kept)))
        if doing == "append":
            sums.append()
            kept.append([])
        elif doing == "merge" and place + 1 < len(kept):
            sums.merge(place)
            kept[place : place + 2] = [kept[place] + kept[place + 1]]
        elif doing in ("add", "old"):
            place = -1 if doing == "add" else place
            one = world.draw()
            sums.add(place, slice(None), *one)
            kept[place].append(one)
    assert sums.number == len(kept)
    check(all_of(sums), kept, batch)
    firsts = sorted({0, *world.rng.integers(0, len(kept), 3).tolist()})
    together = [
        [one for part in kept[a:b] for one in part] for a, b in zip(firsts, [*firsts[1:], len(kept)], strict=True)
    ]
    length, share = world.rng.random(len(firsts)), world.rng.random(len(firsts))
    groups = sums.groups(firsts, length, share)
    check(groups, together, batch)
    assert groups.length is length and groups.share is share


def test_there_is_room_for_many_and_what_was_there_stays() -> None:
    sums, world, kept = Sums(BATCH, DIM), Rounds(1), []
    for _ in range(70):
        sums.append()
        kept.append([world.draw()])
        sums.add(-1, slice(None), *kept[-1][0])
    check(all_of(sums), kept)
    for _ in range(60):
        sums.merge(3)
        kept[3:5] = [kept[3] + kept[4]]
    sums.append()
    check(all_of(sums), [*kept, []])  # what a new group gets was emptied


def test_some_streams_alone() -> None:
    sums, world = Sums(BATCH, DIM), Rounds(2)
    sums.resize(2)
    actions, rewards, _ = world.draw()
    weights, rows = np.array([2.0, 3.0, 4.0]), np.array([2, 0])
    sums.add(1, rows, actions[rows], rewards[rows], weights[rows])
    sums.add(0, np.array([1]), actions[[1]], rewards[[1]], weights[[1]])
    nothing = weights * 0
    check(all_of(sums), [[(actions, rewards, weights * [0, 1, 0])], [(actions, rewards, weights * [1, 0, 1])]])
    sums.add(0, slice(None), actions, rewards, nothing)
    check(all_of(sums), [[(actions, rewards, weights * [0, 1, 0])], [(actions, rewards, weights * [1, 0, 1])]])


def test_several_rounds_at_once_are_the_same_as_one_by_one() -> None:
    world, sums = Rounds(3, batch=1), Sums(1, DIM)
    sums.resize(2)
    rounds = [world.draw() for _ in range(20)]
    for part, place in ((rounds[:7], 0), (rounds[7:8], 0), (rounds[8:], -1), ([], 0)):
        actions = np.array([a[0] for a, _, _ in part]).reshape(-1, DIM)
        sums.fold(place, actions, np.array([r[0] for _, r, _ in part]), np.array([w[0] for *_, w in part]))
    check(all_of(sums), [rounds[:8], rounds[8:]], batch=1)


def test_arrays_are_views_of_what_is_in_use() -> None:
    sums = Sums(BATCH, DIM)
    sums.resize(5)
    arrays = sums.arrays("some_")
    assert {name: array.shape for name, array in arrays.items()} == {
        "some_gram": (5, BATCH, DIM, DIM),
        "some_moment": (5, BATCH, DIM),
        "some_reach": (5, BATCH),
        "some_peaks": (5, BATCH, DIM),
        "some_weight": (5, BATCH),
    }
    arrays["some_reach"][4] = 7.0
    assert (all_of(sums).reach[:, 4] == 7.0).all()
