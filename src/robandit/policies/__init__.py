"""The policies, one file each."""

from robandit.policies.base import Decision, Policy
from robandit.policies.greedy import Greedy
from robandit.policies.multi_level_weighted_oful import GuaranteeLapsed, MultiLevelWeightedOFUL
from robandit.policies.oful import OFUL
from robandit.policies.robust_weighted_oful import RobustWeightedOFUL
from robandit.policies.weighted_oful import WeightedOFUL

__all__ = [
    "OFUL",
    "Decision",
    "Greedy",
    "GuaranteeLapsed",
    "MultiLevelWeightedOFUL",
    "Policy",
    "RobustWeightedOFUL",
    "WeightedOFUL",
]
