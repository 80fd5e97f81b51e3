"""Mistyped words and keywords get a sentence that helps."""

import copy
import inspect
import pickle
from dataclasses import dataclass, replace
from typing import Any

import pytest

from robandit.errors import Configured, nearest
from robandit.lab.attacks import ATTACKS, Flip
from robandit.lab.environments import ENVIRONMENTS, Paper


@dataclass(kw_only=True, frozen=True)
class Sample(Configured):
    dim: int
    noise_range: float
    seed: int = 0


@dataclass(kw_only=True)
class Mutable(Configured):
    size: int = 1
    depth: int = 2
    width: int = 3


class ByHand(Mutable):
    """A constructor that someone wrote takes what it says."""

    def __init__(self, size: int, *more: int, **rest: int) -> None:
        super().__init__(size=size)
        self.more, self.rest = more, rest


def test_nearest_suggests_a_word_or_lists_all() -> None:
    assert nearest("round", ["budget", "rounds"]) == "; did you mean 'rounds'?"
    assert nearest("zzz", iter(["rounds", "budget"])) == "; there are budget, rounds"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Flip(round=3), "Flip has no setting 'round'; did you mean 'rounds'?"),  # type: ignore[call-arg]
        (lambda: Paper(dims=3), "Paper has no setting 'dims'; did you mean 'dim'?"),  # type: ignore[call-arg]
        (lambda: replace(Flip(), round=3), "Flip has no setting 'round'; did you mean 'rounds'?"),  # type: ignore[call-arg]
        (lambda: Sample(dim=1, zzz=2), "Sample has no setting 'zzz'; there are dim, noise_range, seed"),  # type: ignore[call-arg]
        (lambda: Flip(3), "Flip takes keywords only: Flip(budget=…, rounds=…)"),  # type: ignore[call-arg]
        (lambda: Sample(1, 0.5), "Sample takes keywords only: Sample(dim=…, noise_range=…)"),  # type: ignore[call-arg]
        (lambda: Mutable(1), "Mutable takes keywords only: Mutable(size=…, depth=…)"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_argument_gets_a_sentence(call: Any, message: str) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value) == message


def test_what_is_missing_is_python_s_to_say() -> None:
    with pytest.raises(TypeError, match=r"missing 1 required keyword-only argument: 'noise_range'"):
        Sample(dim=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("made", [Sample(dim=2, noise_range=0.5), Mutable(depth=7), Flip(rounds=5), Paper(dim=3)])
def test_copies_are_equal(made: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(made, protocol)) == made
    assert copy.copy(made) == copy.deepcopy(made) == replace(made) == made


def test_a_constructor_written_by_hand_is_left_alone() -> None:
    made = ByHand(1, 2, 3, other=4)
    assert (made.size, made.more, made.rest) == (1, (2, 3), {"other": 4})


@pytest.mark.parametrize("found", [*ATTACKS.values(), *ENVIRONMENTS.values()])
def test_the_signature_names_the_settings(found: type[Configured]) -> None:
    assert list(inspect.signature(found).parameters) == list(inspect.signature(found.__init__).parameters)[1:]
