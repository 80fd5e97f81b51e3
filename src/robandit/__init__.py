"""robandit: bandits that can't be bought."""

from robandit import attacks, checks, environments
from robandit.actions import Ball, Box, Polytope
from robandit.ellipsoid import Ellipsoid, Intersection
from robandit.policies import (
    OFUL,
    Decision,
    Greedy,
    GuaranteeLapsed,
    MultiLevelWeightedOFUL,
    Policy,
    RobustWeightedOFUL,
    WeightedOFUL,
)

__version__ = "0.1.0"

__all__ = [
    "OFUL",
    "Ball",
    "Box",
    "Decision",
    "Ellipsoid",
    "Greedy",
    "GuaranteeLapsed",
    "Intersection",
    "MultiLevelWeightedOFUL",
    "Policy",
    "Polytope",
    "RobustWeightedOFUL",
    "WeightedOFUL",
    "attacks",
    "checks",
    "environments",
]
