"""An attack that was played by hand, written down so that it can be told again."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from robandit.arrays import Bools, Floats
from robandit.lab.attacks.base import Attack
from robandit.lab.attacks.by_source import BySource, SourceFlip, SourcePromote, SourceSuppress
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws

KINDS: dict[str, Callable[[], BySource]] = {"flip": SourceFlip, "promote": SourcePromote, "suppress": SourceSuppress}
"""The attacks by source that say what each kind of lie reports."""

_STRETCH = re.compile(r"(\d{1,9})-(\d{1,9}) ([a-z]+)(?: from (\d{1,9}))?")


class LieStretch(NamedTuple):
    """The same lie in every round of a stretch of rounds, both ends included."""

    begin: int
    end: int
    kind: str
    """One of `KINDS`."""
    source: int | None = None
    """The number of the source in whose name it is told; None for all traffic."""

    def __str__(self) -> str:
        name = "" if self.source is None else f" from {self.source}"
        return f"{self.begin}-{self.end} {self.kind}{name}"


class Script:
    """Stretches of lies in the order of their rounds. It can grow while it is played.

    >>> script = Script.read("1-90 flip; 200-400 promote from 3")
    >>> script.at(90), script.at(91)
    (LieStretch(begin=1, end=90, kind='flip', source=None), None)
    >>> script.add(LieStretch(401, 410, "promote", 3))
    >>> print(script)
    1-90 flip; 200-410 promote from 3
    """

    def __init__(self, stretches: Iterable[LieStretch] = ()) -> None:
        self.stretches: list[LieStretch] = []
        for stretch in stretches:
            self.add(stretch)

    @classmethod
    def read(cls, text: object) -> Self:
        """Read stretches `FIRST-LAST KIND` or `FIRST-LAST KIND from SOURCE` that are separated by semicolons."""
        if not isinstance(text, str):
            raise ValueError(f"lies must be text such as '1-90 flip; 200-400 promote from 3', got {text!r}")
        parts = [part.strip() for part in text.split(";")] if text.strip() else []
        return cls(map(_read_stretch, parts))

    def __str__(self) -> str:
        return "; ".join(map(str, self.stretches))

    def at(self, round_: int) -> LieStretch | None:
        """The stretch that a round belongs to, if there is a lie."""
        place = bisect_left(self.stretches, round_, key=lambda stretch: stretch.end)
        if place == len(self.stretches) or self.stretches[place].begin > round_:
            return None
        return self.stretches[place]

    def add(self, stretch: LieStretch) -> None:
        """Append a stretch, which must be later than all others. One that continues the last one becomes part of it."""
        if stretch.kind not in KINDS:
            raise ValueError(f"a lie must be one of {', '.join(KINDS)}, got {stretch.kind!r}")
        last = self.stretches[-1] if self.stretches else None
        if not (0 if last is None else last.end) < stretch.begin <= stretch.end:
            raise ValueError(f"lies must be in the order of their rounds, from 1 on, got {str(stretch)!r}")
        if last is not None and stretch == last._replace(begin=last.end + 1, end=stretch.end):
            self.stretches[-1] = last._replace(end=stretch.end)
        else:
            self.stretches.append(stretch)

    def cut(self, round_: int) -> None:
        """Forget all lies after a round."""
        kept = [stretch for stretch in self.stretches if stretch.begin <= round_]
        self.stretches = [stretch._replace(end=min(stretch.end, round_)) for stretch in kept]


@dataclass(kw_only=True)
class Recorded(Attack):
    """Tells the lies of a script: what to report in which rounds, on all traffic or in the name of one source.

    `robandit play` writes such scripts. A `flip` reports the opposite; `promote` praises what is below the median of
    the set and slanders the rest; `suppress` slanders the best action.

    >>> Recorded(lies="1-90 flip; 200-400 promote from 3", budget=40.0).script.at(300).source
    3
    """

    strength = "weak"

    lies: str = "1-90 flip"
    """Stretches of rounds with their lies, as in `1-90 flip; 200-400 promote from 3`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.script = Script.read(self.lies)

    def start(self, draw: Draws, environment: Environment) -> None:
        named = [stretch.source for stretch in self.script.stretches if stretch.source is not None]
        if max(named, default=-1) >= len(environment.shares):
            raise ValueError(
                f"a source must be below the number of sources, {len(environment.shares)}, got {max(named)}"
            )
        self._tongues = {kind: make() for kind, make in KINDS.items()}
        for tongue in self._tongues.values():
            tongue.start(draw, environment)

    def corrupt(self, offer: Offer) -> Floats | None:
        stretch = self.script.at(offer.round)
        if stretch is None:
            return None
        return np.where(self.owns(offer)[:, None], self._tongues[stretch.kind].lies(offer), 0.0)

    def owns(self, offer: Offer) -> Bools:
        """Whether the visitor's reward is lied about, (B,)."""
        stretch = self.script.at(offer.round)
        if stretch is None or stretch.source is None or offer.source is None:
            return np.full(len(offer.means), stretch is not None)
        return offer.source == stretch.source


def _read_stretch(text: str) -> LieStretch:
    found = _STRETCH.fullmatch(text)
    if not found:
        raise ValueError(f"a stretch of lies must be FIRST-LAST KIND or FIRST-LAST KIND from SOURCE, got {text!r}")
    begin, end, kind, source = found.groups()
    return LieStretch(int(begin), int(end), kind, None if source is None else int(source))
