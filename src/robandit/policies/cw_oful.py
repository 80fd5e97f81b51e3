"""CW-OFUL: observations that could move the estimate far count less, so that no lie moves it far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.inputs import integer, read_corruption
from robandit.policies import radius
from robandit.policies.confidence import OneRadius


@dataclass(kw_only=True, eq=False)
class Told(OneRadius):
    """A policy that is told the corruption, or guesses √T."""

    horizon: int
    """T, the number of rounds that the guarantee is for."""
    corruption: float | Sequence[float] | None
    """C in the units of eq. (def:corruption), or an upper bound on it: in a batch one number or one per trial. None if
    it is unknown."""

    def _start(self) -> None:
        self.horizon = integer("horizon", self.horizon, least=1)
        if self.corruption is not None:
            self.corruption = read_corruption(self.corruption, self._batch, self._single)
        super()._start()
        # Σ|c_t| in units of reward, one number or (B,); √T where it is unknown.
        self._spent: Floats = (self.noise_range + 1.0) * np.asarray(self.corruption, dtype=float)
        if self.corruption is None:
            self._spent = np.sqrt(np.float64(self.horizon))


@dataclass(kw_only=True, eq=False)
class CWOFUL(Told):
    """Optimism with weights w = min{1, α/‖a‖_{Σ⁻¹}} (He, Zhou, Zhang and Gu 2022).

    Against an adversary that sees the action. Told C ≥ Σ|c_t|/(R + 1), regret Õ(dR√T + dC) with probability 1 − δ;
    with C unknown, the same for C ≤ √T and no guarantee beyond. The radius is for all T rounds at once.
    """

    def _start(self) -> None:
        super()._start()
        self._threshold = radius.cw_threshold(self._setting, self._spent)
        if self.corruption is None:
            self._held = radius.cw_oful_unknown(self._setting, self.horizon)
        else:
            self._held = radius.cw_oful(self._setting, self.horizon, self._spent)

    def _theory(self) -> Floats:
        return np.broadcast_to(self._held, self._batch)

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self._ridge.update(actions, rewards, weights * cw_weight(self._threshold, self._ridge.widths(actions)))


def cw_weight(threshold: Floats, width: Floats) -> Floats:
    """min{1, α/‖a‖_{Σ⁻¹}}; 1 for an action of no width."""
    return np.minimum(1.0, threshold / np.maximum(width, 1e-300))
