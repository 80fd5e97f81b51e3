"""What a policy remembers to save work never changes what it does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from robandit import MultiLevelWeightedOFUL
from robandit.geometry.intersection import Intersection
from thinned import longer, thinned

DIM, ACTIONS, TRIALS, ROUNDS, LIES = 4, 6, 5, 160, 60


def make(**more: Any) -> MultiLevelWeightedOFUL:
    """Radii so narrow that sets are empty and cascades occur."""
    settings: dict[str, Any] = {"dim": DIM, "noise_range": 0.5, "horizon": 1000, "radius_scale": 0.001, "seed": 4}
    return MultiLevelWeightedOFUL(**{"trials": TRIALS, **settings, **more})


def play(
    policy: MultiLevelWeightedOFUL,
    before: Callable[[MultiLevelWeightedOFUL, int], MultiLevelWeightedOFUL] = lambda policy, t: policy,
    rows: slice = slice(None),
) -> dict[str, NDArray[Any]]:
    """All that can be seen of a policy in a world that lies at first. ``before`` each round, it may be changed."""
    rng, seen = np.random.default_rng(3), []
    for t in range(ROUNDS):
        policy = before(policy, t)
        actions = rng.uniform(-0.5, 0.5, (TRIALS, ACTIONS, DIM))[rows]
        noise = 0.1 * rng.standard_normal(TRIALS)[rows]
        decision = policy.choose(actions, 0.1, propensity=t % 10 == 0)
        chances = policy.propensities(actions)
        seen.append((decision.index, decision.value, decision.info.cascade, chances.ravel()))
        means = decision.action.sum(axis=1)
        policy.update(decision, np.where(t < LIES, -means, means) + noise)
    return dict(zip(("index", "value", "cascade", "chances"), map(np.array, zip(*seen, strict=True)), strict=True))


def assert_same(one: dict[str, NDArray[Any]], other: dict[str, NDArray[Any]]) -> None:
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.fixture(scope="module")
def ordinary() -> dict[str, NDArray[Any]]:
    seen = play(make())
    assert (seen["cascade"] > 0).mean() > 0.1 and (seen["cascade"] > 1).any()  # there is something to remember
    return seen


def poison(kind: str) -> Callable[[MultiLevelWeightedOFUL, int], MultiLevelWeightedOFUL]:
    """Overwrite all that is remembered."""
    rng = np.random.default_rng(8)

    def before(policy: MultiLevelWeightedOFUL, t: int) -> MultiLevelWeightedOFUL:
        kept = policy._separators
        if kind == "shuffled":
            kept[:] = rng.permutation(kept)
        elif kind == "turned":
            kept *= -1.0
        elif kind == "forgotten":
            kept[:] = 0.0
        else:
            kept[:] = 10.0 ** rng.uniform(-20, 20) * rng.standard_normal(kept.shape)
        policy._separable[: len(kept)] = kind != "forgotten"
        policy._cascaded = kind != "forgotten"
        return policy

    return before


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", thinned(["garbage", "shuffled", "turned", "forgotten"], fast=["garbage"]))
def test_poisoned_hints_change_nothing(ordinary: dict[str, NDArray[Any]], kind: str) -> None:
    assert_same(ordinary, play(make(), poison(kind)))


@pytest.mark.no_cover
def test_a_restored_policy_has_no_hints_and_goes_on_bit_for_bit(ordinary: dict[str, NDArray[Any]]) -> None:
    def restored(policy: MultiLevelWeightedOFUL, t: int) -> MultiLevelWeightedOFUL:
        return MultiLevelWeightedOFUL.from_state(policy.state()) if t % 13 == 7 else policy

    assert_same(ordinary, play(make(), restored))


@pytest.mark.no_cover
@pytest.mark.parametrize("trial", longer(0, *range(1, TRIALS)))
def test_a_trial_alone_equals_that_trial_in_a_batch(ordinary: dict[str, NDArray[Any]], trial: int) -> None:
    alone = play(make(trials=[trial]), rows=slice(trial, trial + 1))
    for name in ("index", "value", "cascade"):
        np.testing.assert_array_equal(alone[name][:, 0], ordinary[name][:, trial], err_msg=name)
    chances = ordinary["chances"].reshape(ROUNDS, TRIALS, ACTIONS)
    np.testing.assert_array_equal(alone["chances"], chances[:, trial])


@pytest.mark.no_cover
def test_the_hints_save_most_of_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few of the levels that are found to be empty need more than a direction of an earlier round."""
    found: dict[str, int] = {"separated": 0, "separators": 0}

    def counted(name: str) -> None:
        inner = getattr(Intersection, name)

        def outer(self: Intersection, *given: Any) -> Any:
            answer = inner(self, *given)
            found[name] += int(answer.sum()) if name == "separated" else len(answer)
            return answer

        monkeypatch.setattr(Intersection, name, outer)

    counted("separated")
    counted("separators")
    play(make())
    assert 0 < found["separators"] < found["separated"] / 5
