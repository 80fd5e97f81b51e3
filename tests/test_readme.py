"""The README's example learns: taken from the page itself, it is played with many seeds."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robandit import Bandit
from thinned import longer

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """What the example defines, without the lines that play and print."""
    names: dict[str, Any] = {}
    for part in doctest.DocTestParser().get_examples(README.read_text(encoding="utf-8")):
        if not part.want and not part.source.startswith("learnt"):
            exec(part.source, names)
    return names


@pytest.mark.no_cover
@pytest.mark.parametrize("seeds", longer(range(3), range(8)), ids=len)
def test_the_example_learns(example: dict[str, Any], seeds: range) -> None:
    """Its regret is at most a third of uniform play's, with each of the seeds."""
    play, features = example["play"], example["features"]
    regret, uniform = np.transpose([play(Bandit(features=features, seed=seed), seed=seed) for seed in seeds])
    ratio = regret / uniform
    means = f"regret {regret.mean():.1f}, uniform play {uniform.mean():.1f}"
    print(f"\n{means}; their ratio {ratio.mean():.3f}, at worst {ratio.max():.3f}")
    assert ratio.max() <= 1 / 3


def test_the_readme_is_one_screen() -> None:
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 80
    assert {"make demo", "make test"} <= {line.split("#")[0].strip() for line in lines}
