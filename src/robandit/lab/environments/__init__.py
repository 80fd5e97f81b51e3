"""The environments: what a round offers, random worlds whose parts can be changed, and ten of them by name."""

from robandit.lab.environments.base import NEVER, Environment, Menu, Offer, side_by_side
from robandit.lab.environments.presets import (
    Bernoulli,
    ChangingSets,
    Clicks,
    Delayed,
    Drift,
    Fresh,
    Heteroscedastic,
    Paper,
    PerActionNoise,
    UnitBall,
)
from robandit.lab.environments.synthetic import Synthetic

ENVIRONMENTS: dict[str, type[Environment]] = {
    "paper": Paper,
    "fresh": Fresh,
    "heteroscedastic": Heteroscedastic,
    "bernoulli": Bernoulli,
    "clicks": Clicks,
    "per-action-noise": PerActionNoise,
    "unit-ball": UnitBall,
    "changing-sets": ChangingSets,
    "delayed": Delayed,
    "drift": Drift,
}
"""Every environment by its name."""

__all__ = [
    "ENVIRONMENTS",
    "NEVER",
    "Bernoulli",
    "ChangingSets",
    "Clicks",
    "Delayed",
    "Drift",
    "Environment",
    "Fresh",
    "Heteroscedastic",
    "Menu",
    "Offer",
    "Paper",
    "PerActionNoise",
    "Synthetic",
    "UnitBall",
    "side_by_side",
]
