"""Policies that watch live traffic without acting, and what they would have earned."""

from __future__ import annotations

from math import sqrt
from typing import Any

import msgspec
import numpy as np

from robandit.policies import Policy
from robandit.policies.follow import follow
from robandit.service.learning.student import Waiting, flat, make_policy, restored
from robandit.wire.events import Decided
from robandit.wire.shadows import Estimate, ShadowReport
from robandit.wire.types import BanditSettings

_Z = 1.959963984540054  # the 97.5 % point of a standard normal


class ShadowSums(msgspec.Struct, array_like=True):
    """What estimates need of n decisions: w is π/p of the action taken, r its reward as a share, x its term of DR."""

    n: int = 0
    agreed: float = 0.0
    """Σ π of the action taken."""
    w: float = 0.0
    w2: float = 0.0
    wr: float = 0.0
    w2r: float = 0.0
    w2r2: float = 0.0
    x: float = 0.0
    x2: float = 0.0
    r: float = 0.0
    r2: float = 0.0

    def add(self, chance: float, weight: float, reward: float, term: float) -> None:
        """Count a decision whose reward is final."""
        self.n += 1
        self.agreed += chance
        self.w += weight
        self.w2 += weight * weight
        self.wr += weight * reward
        self.w2r += weight * weight * reward
        self.w2r2 += (weight * reward) ** 2
        self.x += term
        self.x2 += term * term
        self.r += reward
        self.r2 += reward * reward


class Watched(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a shadow thought of a decision when it was made: before its reward, which it must not know."""

    chance: float
    """The probability π with which it would have chosen the action."""
    weight: float
    """π divided by the probability with which the action was chosen."""
    taken: float
    """What it expected of the action taken."""
    expected: float
    """What it expected of its own choice, Σ_a π(a) f(a)."""


class Shadow:
    """A policy that learns from all feedback, and never acts. It knows the whole log, and is scored from its start on.

    Its policy learns as it goes, but knows only the past in each decision. So the terms of its estimates are martingale
    differences, and the estimates are of what it would have earned on this traffic, round by round.
    """

    def __init__(self, settings: BanditSettings, policy: Policy) -> None:
        self.settings, self.policy = settings, policy
        self.sums = ShadowSums()
        self._open: dict[str, Watched] = {}

    def decided(self, made: Decided) -> None:
        """Watch a decision."""
        if made.offered is not None:
            offered = np.frombuffer(made.offered).reshape(len(made.actions), -1)
            chances = self.policy.propensities(offered)
            means = offered @ self.policy.estimate().center
            chance = float(chances[made.index])
            expected = float(chances @ means)
            self._open[made.id] = Watched(chance, chance / made.propensity, float(means[made.index]), expected)
        self.policy.skip_to(made.round)

    def settled(self, id: str, waiting: Waiting, share: float | None, width: float) -> None:  # noqa: A002
        """Learn from a reward that is final, and count it; None stands for none."""
        watched = self._open.pop(id, None)
        if share is None:
            return
        if watched is not None:
            term = watched.expected + watched.weight * (share - watched.taken)
            self.sums.add(watched.chance, watched.weight, share, term)
        follow(self.policy, waiting.decision(width), share)

    def report(self, name: str, low: float, width: float) -> ShadowReport:
        """How it does beside the policy that acts, in units of reward."""
        s = self.sums

        def estimate(total: float, squares: float, weight: float) -> Estimate | None:
            """The mean of n terms with these sums, whose deviations are divided by a mean weight."""
            if s.n < 2 or weight <= 0.0:
                return None
            mean = total / s.n
            spread = max(0.0, squares / s.n - mean * mean) / (s.n - 1)
            return Estimate(value=low + width * mean, half_width=_Z * width * sqrt(spread))

        return ShadowReport(
            name=name,
            policy=self.settings.policy,
            decisions=s.n,
            agreement=s.agreed / s.n if s.n else None,
            logged=estimate(s.r, s.r2, 1.0),
            ips=estimate(s.wr, s.w2r2, 1.0),
            snips=self._snips(low, width),
            dr=estimate(s.x, s.x2, 1.0),
        )

    def _snips(self, low: float, width: float) -> Estimate | None:
        """Self-normalised: θ = Σ w r/Σ w, with the spread of its linearisation."""
        s = self.sums
        if s.n < 2 or s.w <= 0.0:
            return None
        value = s.wr / s.w
        spread = max(0.0, s.w2r2 - 2.0 * value * s.w2r + value * value * s.w2) / s.w**2
        return Estimate(value=low + width * value, half_width=_Z * width * sqrt(spread * s.n / (s.n - 1)))

    # Keeping.

    def plain(self) -> list[Any]:
        """All of it as plain data."""
        sums = msgspec.to_builtins(self.sums)
        return [msgspec.to_builtins(self.settings), flat(self.policy.state()), sums, list(self._open.items())]

    @classmethod
    def restore(cls, plain: list[Any], seed: int, *, begins: bool = False) -> Shadow:
        """Go on from what `plain` gave, bit for bit; ``begins`` as in `restored`."""
        settings = msgspec.convert(plain[0], BanditSettings)
        found = cls(settings, restored(type(make_policy(settings, seed)), plain[1], begins=begins))
        found.sums = msgspec.convert(plain[2], ShadowSums)
        found._open = dict(msgspec.convert(plain[3], list[tuple[str, Watched]]))
        return found
