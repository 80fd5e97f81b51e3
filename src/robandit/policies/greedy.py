"""Greedy: no exploration beyond what the decision sets bring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats
from robandit.policies.confidence import OneEllipsoid


@dataclass(kw_only=True, eq=False)
class Greedy(OneEllipsoid):
    """Plays argmax ⟨a, μ_t⟩ for the ridge estimate μ_t with unit weights.

    Bogunovic et al. (2021) bound its regret under corruption where contexts are diverse; elsewhere it has no guarantee.
    """

    def _radii(self) -> Floats:
        return np.zeros(self._batch)
