"""What uniform play would have earned on the decisions of a bandit that explores."""

from __future__ import annotations

from math import sqrt

import msgspec

from robandit.wire.activity import UniformReport
from robandit.wire.shadows import Estimate

_Z = 1.959963984540054  # the 97.5 % point of a standard normal
_ROUNDING = 1e-9


def uniform_weight(actions: int, propensity: float, exploration: float) -> float:
    """The weight of a decision in an estimate of uniform play, π/p; 0 for one that was not made while the bandit
    explored, as another process may have made it."""
    least = exploration / actions
    drawn = least * (1.0 - _ROUNDING) <= propensity <= (1.0 - exploration + least) * (1.0 + _ROUNDING)
    return 1.0 / (actions * propensity) if exploration > 0.0 and drawn else 0.0


class UniformSums(msgspec.Struct, array_like=True):
    """What the estimates need of n decisions: w is the weight and r the reward of each."""

    n: int = 0
    w: float = 0.0
    w2: float = 0.0
    r: float = 0.0
    r2: float = 0.0
    wr: float = 0.0
    wr2: float = 0.0
    w2r: float = 0.0
    w2r2: float = 0.0

    def add(self, weight: float, reward: float) -> None:
        """Count a decision whose reward is final. One of weight 0 says nothing of uniform play."""
        if weight > 0.0:
            self.n += 1
            self.w += weight
            self.w2 += weight * weight
            self.r += reward
            self.r2 += reward * reward
            self.wr += weight * reward
            self.wr2 += weight * reward * reward
            self.w2r += weight * weight * reward
            self.w2r2 += (weight * reward) ** 2

    def report(self) -> UniformReport:
        """The bandit beside uniform play, in units of reward. The intervals are for large numbers."""
        if self.n < 2:
            return UniformReport(
                decisions=self.n, effective=float(self.n), logged=None, ips=None, snips=None, gain=None
            )
        value, mean = self.wr / self.w, self.r / self.n
        # Of what the self-normalised estimate differs by when a decision is left out, scaled by n: w (r − θ)/w̄.
        scale = self.n / self.w
        own = scale**2 * (self.w2r2 - 2.0 * value * self.w2r + value**2 * self.w2)
        ours = self.r2 - self.n * mean**2
        both = scale * (self.wr2 - value * self.wr - mean * (self.wr - value * self.w))
        return UniformReport(
            decisions=self.n,
            effective=self.w**2 / self.w2,
            logged=self._estimate(mean, ours),
            ips=self._estimate(self.wr / self.n, self.w2r2 - self.wr**2 / self.n),
            snips=self._estimate(value, own),
            gain=self._estimate(mean - value, ours - 2.0 * both + own),
        )

    def _estimate(self, value: float, squares: float) -> Estimate:
        """A mean of n terms whose squared deviations have this sum."""
        return Estimate(value=value, half_width=_Z * sqrt(max(0.0, squares) / (self.n - 1) / self.n))
