"""Random streams that belong to a trial and a round, whatever runs beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.ridge import Floats

POLICY = 0
"""The stream of a policy's own draws. Each user of randomness has a number of its own."""

_CHUNK = 256  # rounds drawn at a time: amortises making a generator, costs 8 KiB per trial at four draws a round


class RoundStream:
    """``width`` uniform numbers on [0, 1) for every round of every trial.

    A counter-based generator (Philox) keyed by seed, trial and stream makes each round's numbers a function of
    those and of the round alone: trial 5 draws the same in any batch, and a log can be folded again from anywhere.

    >>> both = RoundStream(seed=7, trials=[4, 5], stream=POLICY, width=2)
    >>> alone = RoundStream(seed=7, trials=[5], stream=POLICY, width=2)
    >>> bool((both.at(1000)[1] == alone.at(1000)[0]).all())
    True
    """

    def __init__(self, *, seed: int, trials: Sequence[int], stream: int, width: int) -> None:
        keys = [np.random.SeedSequence(seed, spawn_key=(trial, stream)) for trial in trials]
        self._keys: list[NDArray[Any]] = [key.generate_state(2, np.uint64) for key in keys]
        self._width = width
        self._number = -1
        self._chunk: Floats = np.empty(0)

    def at(self, round_: int) -> Floats:
        """The numbers of a round ≥ 0: (B, width)."""
        number, offset = divmod(round_, _CHUNK)
        if number != self._number:
            self._number, self._chunk = number, np.stack([self._draw(key, number) for key in self._keys])
        return self._chunk[:, offset]

    def _draw(self, key: NDArray[Any], number: int) -> Floats:
        generator = np.random.Generator(np.random.Philox(key=key, counter=[0, 0, number, 0]))
        return generator.random((_CHUNK, self._width))
