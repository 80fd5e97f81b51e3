"""Sources of traffic: how their labels are read, and which slot each has."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from wary import Wary

from robandit.lab.checks import check_policy
from robandit.policies.sources import SourceSlots, read_logged_sources, read_source


@pytest.mark.no_cover
def test_a_policy_that_tells_sources_apart_keeps_the_contract() -> None:
    check_policy(partial(Wary, noise_range=0.5))


def test_slots_are_given_in_the_order_of_learning_and_the_rest_is_pooled() -> None:
    policy = Wary(dim=2, noise_range=0.5, seed=1)
    early = policy.choose([[1.0, 0.0]], source="late")
    for source in ("ads", 7, "mail", None, "ads"):
        policy.update(policy.choose([[1.0, 0.0]], source=source), 0.5)
    policy.update(early, 0.5)
    assert policy.slots.labels == [["ads", 7]]
    assert policy.stats.counts.tolist() == [[2, 1, 3]]
    assert policy.state()["sources"] == [["ads", 7]]


def test_a_trial_without_a_reward_gives_no_slot() -> None:
    policy = Wary(dim=2, noise_range=0.5, seed=1, trials=2)
    decision = policy.choose([[1.0, 0.0]], source=["ads", "mail"])
    policy.update(decision, [0.5, 0.5], mask=[True, False])
    assert policy.slots.labels == [["ads"], []]


def rounds_of(*labels: Any) -> Any:
    """Some rounds of three trials, with one of these labels each."""
    return st.lists(st.lists(st.sampled_from(labels), min_size=3, max_size=3), max_size=20)


@pytest.mark.no_cover
@given(
    st.one_of(
        rounds_of("a", "b", "c", "d", None).map(lambda rounds: (object, rounds)),
        rounds_of(0, 1, 63, 64, -1, 2**62).map(lambda rounds: (np.int64, rounds)),  # small ones are looked up
        rounds_of(5, 6, 7).map(lambda rounds: (np.int64, rounds)),
    )
)
def test_the_slots_of_a_trial_do_not_depend_on_the_others(given: tuple[Any, list[list[Any]]]) -> None:
    kind, rounds = given
    together, alone = SourceSlots(2, batch=3), SourceSlots(2, batch=1)
    for labels in rounds:
        found = together.place(np.array(labels, dtype=kind))
        assert found[1] == alone.place(np.array(labels[1:2], dtype=kind))[0]
        assert together.find(np.array(labels, dtype=kind)).tolist() == found.tolist()
        again = SourceSlots(2, batch=3)
        again.restore(together.labels)
        assert again.find(np.array(labels, dtype=kind)).tolist() == found.tolist()
    first = list(dict.fromkeys(labels[1] for labels in rounds))[:2]
    assert together.labels[1] == alone.labels[0] == first


def test_a_broken_list_of_sources_is_refused() -> None:
    policy = Wary(dim=2, noise_range=0.5, seed=1)
    for sources in ([], [["a", "a"]], [["a", "b", "c"]], [[1.5]], [["a"], ["b"]], None, 7):
        with pytest.raises(ValueError, match=r"source|broken"):
            Wary.from_state({**policy.state(), "sources": sources})
    with pytest.raises(ValueError, match="broken"):
        Wary.from_state({name: value for name, value in policy.state().items() if name != "sources"})


@pytest.mark.parametrize("source", [["ads", "web", "ads", "mail"], [3, 1, 3, 2], "ads", 5, None])
def test_a_warm_start_has_sources(source: Any) -> None:
    rng = np.random.default_rng(0)
    actions, rewards = rng.uniform(-0.5, 0.5, (4, 2)), rng.uniform(-1.0, 1.0, 4)
    warm, slow = (Wary(dim=2, noise_range=0.5, seed=1) for _ in range(2))
    warm.warm_start(actions, rewards, source=source)
    for i in range(4):
        label = source[i] if isinstance(source, list) else source
        slow.update(slow.choose(actions[i : i + 1], source=label), float(rewards[i]))
    assert warm.slots.labels == slow.slots.labels
    assert np.array_equal(warm.stats.counts, slow.stats.counts)
    assert np.array_equal(warm.estimate().center, slow.estimate().center)


def test_a_warm_start_of_a_batch_has_sources() -> None:
    batch = Wary(dim=2, noise_range=0.5, seed=1, trials=2)
    actions = np.full((2, 3, 2), 0.5)
    batch.warm_start(actions, np.ones((2, 3)), source=[["a", "b", "a"], ["c", "c", "c"]])
    assert batch.stats.counts.tolist() == [[2, 1, 0], [3, 0, 0]]
    batch.warm_start(actions, np.ones((2, 3)), source=["a", "b", "x"])
    assert batch.stats.counts.tolist() == [[3, 2, 1], [3, 1, 2]]
    for bad in (["a", "b"], [["a", "b", "c"]], ["a", 1, "b"], [0.5, 1.5, 2.5], 1.5):
        before = batch.state()["arrays"]["counts"]
        with pytest.raises(ValueError, match="source must be"):
            batch.warm_start(actions, np.ones((2, 3)), source=bad)
        assert np.array_equal(before, batch.state()["arrays"]["counts"])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (["a", 1], "all text or all whole numbers, got 1 and 'a'"),
        (["a"], "one for each of the 2 trials"),
        ([1, True], "a whole number of 64 bits, got True"),
        (np.array([1.0, 2.0]), "a whole number of 64 bits, got .*1.0"),
        (np.array([[1], [2]]), "one label"),
        (np.array([2**63, 1], dtype=np.uint64), "64 bits"),
        ({"a": 1}, "one label"),
    ],
)
def test_a_bad_source_is_named(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_source(source, 2, single=False)


def test_labels_are_read_as_they_are() -> None:
    numbers: tuple[Any, ...] = ([1, 2], np.array([1, 2]), np.array([1, 2], dtype=np.uint8), (np.int32(1), 2))
    for source in numbers:
        labels = read_source(source, 2, single=False)
        assert labels is not None and labels.dtype == np.int64 and labels.tolist() == [1, 2]
    for source in (["a", None], np.array(["a", None], dtype=object), [None, 3]):
        labels = read_source(source, 2, single=False)
        assert labels is not None and labels.tolist() == list(source)
    assert [type(label) for label in read_source(np.array(["a", "b"]), 2, single=False)] == [str, str]  # type: ignore[union-attr]
    assert read_logged_sources(None, (2, 3), single=False) == [None] * 3


def test_a_label_is_kept_to_its_last_character() -> None:
    """NumPy's text loses NULs at its end; two sources must not become one by that."""
    read = read_source("mail\0", 2, single=True)
    assert read is not None and read.tolist() == ["mail\0", "mail\0"]
