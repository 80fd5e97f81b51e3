"""The policies, one file each."""

from robandit.policies.base import Decision, Policy
from robandit.policies.confidence import OneRadius, Weighted
from robandit.policies.greedy import Greedy
from robandit.policies.multi_level_weighted_oful import GuaranteeLapsed, MultiLevelWeightedOFUL
from robandit.policies.oful import OFUL
from robandit.policies.robust_weighted_oful import RobustWeightedOFUL
from robandit.policies.weighted_oful import WeightedOFUL

POLICIES: dict[str, type[Policy]] = {
    "oful": OFUL,
    "weighted-oful": WeightedOFUL,
    "greedy": Greedy,
    "robust-weighted-oful": RobustWeightedOFUL,
    "multi-level-weighted-oful": MultiLevelWeightedOFUL,
}
"""Every policy by its name."""

__all__ = [
    "OFUL",
    "POLICIES",
    "Decision",
    "Greedy",
    "GuaranteeLapsed",
    "MultiLevelWeightedOFUL",
    "OneRadius",
    "Policy",
    "RobustWeightedOFUL",
    "Weighted",
    "WeightedOFUL",
]
