"""robandit: bandits that can't be bought."""

from robandit import attacks, checks, environments
from robandit.actions import Ball, Box, Polytope
from robandit.certificate import Certificate
from robandit.ellipsoid import Ellipsoid, Intersection
from robandit.monitor import CorruptionMonitor, joint_certificate
from robandit.policies import (
    COBE,
    CWOFUL,
    OFUL,
    SAVE,
    Decision,
    Exp3P,
    GAdaOFUL,
    Greedy,
    GuaranteeLapsed,
    LinTS,
    MultiLevelWeightedOFUL,
    Policy,
    RobustBandit,
    RobustLinTS,
    RobustWeightedOFUL,
    Sceptic,
    StochasticCorral,
    VarianceAwareCWOFUL,
    WeightedOFUL,
)
from robandit.recommend import Recommendation, recommend

__version__ = "0.1.0"

__all__ = [
    "COBE",
    "CWOFUL",
    "OFUL",
    "SAVE",
    "Ball",
    "Box",
    "Certificate",
    "CorruptionMonitor",
    "Decision",
    "Ellipsoid",
    "Exp3P",
    "GAdaOFUL",
    "Greedy",
    "GuaranteeLapsed",
    "Intersection",
    "LinTS",
    "MultiLevelWeightedOFUL",
    "Policy",
    "Polytope",
    "Recommendation",
    "RobustBandit",
    "RobustLinTS",
    "RobustWeightedOFUL",
    "Sceptic",
    "StochasticCorral",
    "VarianceAwareCWOFUL",
    "WeightedOFUL",
    "attacks",
    "checks",
    "environments",
    "joint_certificate",
    "recommend",
]
