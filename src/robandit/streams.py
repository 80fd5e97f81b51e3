"""Random streams that belong to a trial and a round, whatever runs beside them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats

POLICY, ENVIRONMENT, ATTACK = range(3)
"""Who draws. Each has its own streams."""

_CHUNK_ROUNDS = 256  # most rounds drawn at a time, to spread the cost of the Python around each draw
_CHUNK_NUMBERS = 16384  # most numbers drawn at a time for one trial (128 KiB)
_LEAP = 0x9E3779B97F4A7C15F39CC0605CEDC835  # from chunk to chunk: 2¹²⁸ over the golden ratio keeps all of them apart


class RoundStream:
    """Random numbers ``(B, *shape)`` for every round of every trial: uniform on [0, 1), or normal.

    The numbers depend on seed, trial, ``key`` and round alone, since the generator (PCG64-DXSM) can leap to any round:
    trial 5 draws the same in any batch, and a log can be folded again from anywhere.

    >>> both = RoundStream(seed=7, trials=[4, 5], key=(POLICY,), shape=(2,))
    >>> alone = RoundStream(seed=7, trials=[5], key=(POLICY,), shape=(2,))
    >>> bool((both.at(1000)[1] == alone.at(1000)[0]).all())
    True
    """

    def __init__(
        self, *, seed: int, trials: Sequence[int], key: tuple[int, ...], shape: tuple[int, ...], normal: bool = False
    ) -> None:
        sources = [np.random.PCG64DXSM(np.random.SeedSequence(seed, spawn_key=(trial, *key))) for trial in trials]
        self._generators = [(source, source.state, np.random.Generator(source)) for source in sources]
        self._shape, self._normal = shape, normal
        self.chunk_rounds = max(1, min(_CHUNK_ROUNDS, _CHUNK_NUMBERS // max(1, int(np.prod(shape)))))
        self._number = -1
        self._chunk: Floats = np.empty(0)

    def at(self, round_: int) -> Floats:
        """The numbers of a round ≥ 0, (B, *shape), which are read-only."""
        number, offset = divmod(round_, self.chunk_rounds)
        return self.chunk(number)[offset]

    def at_each(self, rounds: NDArray[np.int64]) -> Floats:
        """The numbers (B, *shape) where each trial has its own round; ``rounds`` is (B,)."""
        if (rounds == rounds[0]).all():
            return self.at(int(rounds[0]))
        numbers = np.empty((len(rounds), *self._shape))
        for round_ in np.unique(rounds):
            rows = rounds == round_
            numbers[rows] = self.at(int(round_))[rows]
        return numbers

    def chunk(self, number: int) -> Floats:
        """The numbers of the rounds from number·chunk_rounds on, (chunk_rounds, B, *shape)."""
        if number != self._number:
            self._draw(number)
        return self._chunk

    def _draw(self, number: int) -> None:
        self._number, shape = number, (self.chunk_rounds, *self._shape)
        self._chunk = np.empty((self.chunk_rounds, len(self._generators), *self._shape))
        for trial, (source, start, generator) in enumerate(self._generators):
            source.state = start
            source.advance(number * _LEAP)
            self._chunk[:, trial] = generator.standard_normal(shape) if self._normal else generator.random(shape)
        self._chunk.flags.writeable = False


class Derived:
    """A function of streams of the same shape, computed for a chunk of rounds at a time.

    >>> draw = Draws(seed=7, trials=[0, 1], who=ENVIRONMENT)
    >>> sigma, normal = draw.uniform(), draw.normal()
    >>> noise = Derived(lambda sigma, normal: sigma * normal, sigma, normal)
    >>> bool((noise.at(300) == sigma.at(300) * normal.at(300)).all())
    True
    """

    def __init__(self, function: Callable[..., Floats], *streams: RoundStream) -> None:
        self._function, self._streams, self._number = function, streams, -1
        self._chunk: Floats = np.empty(0)

    def at(self, round_: int) -> Floats:
        """The values of the function in a round."""
        number, offset = divmod(round_, self._streams[0].chunk_rounds)
        if number != self._number:
            self._number = number
            self._chunk = self._function(*(stream.chunk(number) for stream in self._streams))
        return self._chunk[offset]


class Draws:
    """Makes the streams of an environment or an attack, which must ask for them in the same order every time.

    >>> draw = Draws(seed=7, trials=[0, 1, 2], who=ENVIRONMENT)
    >>> sets, noise = draw.uniform(20, 5), draw.normal()
    >>> sets.at(1).shape, noise.at(1).shape
    ((3, 20, 5), (3,))
    """

    def __init__(self, *, seed: int, trials: Sequence[int], who: int) -> None:
        self._seed, self._trials, self._who, self._made = seed, tuple(trials), who, 0

    def __len__(self) -> int:
        """The number of trials B."""
        return len(self._trials)

    def uniform(self, *shape: int) -> RoundStream:
        """A stream of numbers on [0, 1), of this shape in each trial and round."""
        return self._stream(self._trials, self._next_key(), shape)

    def normal(self, *shape: int) -> RoundStream:
        """A stream of standard normal numbers, of this shape in each trial and round."""
        return self._stream(self._trials, self._next_key(), shape, normal=True)

    def shared(self, *shape: int) -> RoundStream:
        """A stream of numbers on [0, 1) that all trials share, (1, *shape): they depend on seed and round alone."""
        return self._stream((0,), (*self._next_key(), 0), shape)  # a longer key than any trial's

    def _next_key(self) -> tuple[int, ...]:
        self._made += 1
        return self._who, self._made

    def _stream(
        self, trials: tuple[int, ...], key: tuple[int, ...], shape: tuple[int, ...], normal: bool = False
    ) -> RoundStream:
        return RoundStream(seed=self._seed, trials=trials, key=key, shape=shape, normal=normal)
