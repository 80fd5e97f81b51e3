"""Robust LinTS: Thompson sampling from a posterior in which doubtful observations count less."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.policies.cw_oful import CWOFUL
from robandit.policies.lin_ts import Sampling


@dataclass(kw_only=True, eq=False)
class RobustLinTS(Sampling, CWOFUL):
    """LinTS with the weights of CW-OFUL, θ ~ N(μ_t, β² Σ_t⁻¹) with CW-OFUL's radius β.

    For an adversary that sees the action. The ellipsoid that it samples around has CW-OFUL's guarantee; for its regret
    we know of no published proof.
    """
