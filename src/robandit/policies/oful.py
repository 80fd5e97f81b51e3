"""OFUL: the baseline that trusts every reward."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.arrays import Floats
from robandit.policies import radius
from robandit.policies.confidence import OneRadius


@dataclass(kw_only=True, eq=False)
class OFUL(OneRadius):
    """Optimism over one ellipsoid with unit weights (Abbasi-Yadkori, Pál and Szepesvári 2011).

    Assumes clean rewards. Regret Õ(dR√T) with probability 1 − δ; no guarantee under corruption.

    >>> policy = OFUL(dim=2, noise_range=0.5, seed=1)
    >>> decision = policy.choose([[1.0, 0.0], [0.0, 1.0]])
    >>> policy.update(decision, reward=0.7)
    """

    def _theory(self) -> Floats:
        return radius.oful(self._setting, self._ridge.log_det)
